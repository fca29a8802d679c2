"""Trends as words, charts, a page and a JSON document.

It takes histories and changes from `fsjoule.verdicts.trend` and decides nothing. `page.trend_page` collects them,
`html.render_trend_page` makes one file of them, with a script that draws a chart when it comes into view.
"""
