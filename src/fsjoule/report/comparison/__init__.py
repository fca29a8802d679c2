"""A comparison as text, Markdown, JSON, charts and a page.

It takes what `verdicts` found and decides nothing. `words.py` has the sentences, `table.py` the columns; what a gate's
output has as well is in `report/words.py` and `report/findings.py`.
"""
