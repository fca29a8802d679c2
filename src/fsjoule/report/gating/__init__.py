"""A gate's verdict as text, Markdown and JSON.

It takes what `verdicts` found and decides nothing. `words.py` has the sentences, `table.py` the columns; `as_json.py`
writes `gate.json` into the run folder.
"""
