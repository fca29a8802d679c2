"""Verdicts as text, Markdown, JSON, charts and a page. Takes what a comparison found; decides nothing."""
