"""Trends as cards, words, charts, a page and a JSON document.

It takes histories and changes from `fsjoule.verdicts.trend` and decides nothing. `page.trend_page` writes one file,
whose script draws a chart when it comes into view.
"""
