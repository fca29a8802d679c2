"""Trends: how the figures of a series went over time or over kernels, and whether they changed.

::

    index ── newest rows ── histories ── changes nominated ──> text, JSON, charts, a page
                                           └─ fresh boots: confirmed or refuted, kept as a document

Entry points: `trend.trend_of`, `history.histories`, `changes.changes_of`. docs/trend.md explains it.
"""
