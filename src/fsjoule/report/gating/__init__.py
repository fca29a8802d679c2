"""A gate's answer as text, Markdown and JSON.

It takes the findings of `verdicts` and decides nothing. `words.py` has the sentences, `table.py` the columns;
`document.py` writes `gate.json` for the run folder, and reads it back.
"""
