"""Advice as text, JSON, charts and a page.

It takes what `verdicts/advice` found and decides nothing. `words.py` has the sentences, `tables.py` the tables.
"""
