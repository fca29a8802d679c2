"""What a run looks like to others: text, JSON, charts and a page. Takes model objects; reads no results from files."""

from __future__ import annotations

from fsjoule.report.as_json import to_json
from fsjoule.report.oneline import one_line, plan_lines
from fsjoule.report.page import render_page
from fsjoule.report.summary import Summary, summarise
from fsjoule.report.text import print_summary

__all__ = ["Summary", "one_line", "plan_lines", "print_summary", "render_page", "summarise", "to_json"]
