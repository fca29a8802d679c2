"""Trends: how figures of a series went over time or over kernels, where they changed, and whether that is so.

::

    index ── newest rows ── histories ── changes nominated ──> text, JSON, charts, a page
                                           └─ fresh boots: confirmed or refuted, kept as a document

docs/trend.md explains it.
"""
