"""A comparison as text, Markdown, JSON, charts and a page.

It takes the findings of `verdicts` and decides nothing. `words.py` has the sentences, `table.py` the columns;
`report/words.py` and `report/findings.py` are shared with the gate.
"""
