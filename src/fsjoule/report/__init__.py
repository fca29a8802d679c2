"""Runs, verdicts, publications and trends as text, JSON, charts and pages for people.

For: presentation only. It takes model objects and verdicts, and decides nothing.
Called by: `cli`, `pytest_plugin`, `ci`, `runs`.
May call: `verdicts`, `store`, `suites`, `statistics`, `host`, `model`. No room below may import it.

Rooms: `bisection/`, `trend/`, `explanation/`, `advice/` (answers, as the files `comparison.py` and `gate.py`),
`publications/` (a published benchmark's own form), `allure/` (Allure's report of many runs), `places/` (a whole lab),
`service/` (pages of an index over HTTP).
Entry points: `summary.summarise` (rows of every table), `run.print_summary` (terminal), `page.render_page` (one HTML
file), `run.to_json`. `tables.py` describes a table once, for terminal, page and Markdown. `site.py` has the files
that the pages of a service share.
"""
