"""Trends: the figures of a series over time or over kernels, and the changes in them.

::

    index ── newest rows ── histories ── changes nominated ──> text, JSON, charts, a page
                                           └─ fresh boots: confirmed or refuted, kept as a document

Entry points: `trend.trend_of`, `history.histories`, `changes.changes_of`. docs/trend.md explains it.
"""
