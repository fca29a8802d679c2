"""Trends: the figures of a series over time or over kernels, and the changes in them.

::

    index ── newest rows ── histories ── changes nominated ── causes ──> text, JSON, charts, pages, Allure
                                           └─ fresh boots: confirmed or refuted, kept as a document

`store/index/trend.py` reads the rows. Entry points: `trend.trend_of`, `history.histories`, `changes.changes_of`,
`causes.causes`. docs/trend.md explains it.
"""
