"""What a run looks like to others: text, JSON, charts and a page. Takes model objects; reads no results from files."""

from __future__ import annotations

from fsjoule.report.summary import Summary, summarise
from fsjoule.report.text import print_summary

__all__ = ["Summary", "print_summary", "summarise"]
