"""Verdicts as text, Markdown, JSON, charts and a page. Takes what a comparison found; decides nothing."""

from __future__ import annotations

from fsjoule.report.comparison.as_json import to_document
from fsjoule.report.comparison.chart import forest_chart
from fsjoule.report.comparison.markdown import to_markdown
from fsjoule.report.comparison.model import Compared, ComparedSide, Invalid, Judged, Subject
from fsjoule.report.comparison.page import render_page
from fsjoule.report.comparison.text import print_comparison
from fsjoule.report.comparison.words import headline

__all__ = [
    "Compared",
    "ComparedSide",
    "Invalid",
    "Judged",
    "Subject",
    "forest_chart",
    "headline",
    "print_comparison",
    "render_page",
    "to_document",
    "to_markdown",
]
