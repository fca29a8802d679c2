"""Why a figure changed, as text, JSON, folded stacks and a picture.

It takes what `verdicts/explanation` found and decides nothing. `words.py` has the sentences, `table.py` the columns.
"""
