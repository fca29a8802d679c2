"""Trends as people look at them: words, charts, the page, the JSON document."""
