"""Run folders as an Allure report, with the trends page beside it.

::

    run folders ── builds ── results ──> Allure's result files ── generate (Node) ──> report
                      ├────── history ──> history.jsonl ──────────────┘                 │
                      └────── index ────> trends.html <── linked from every test ───────┘

With pytest's `--alluredir`, `listener` makes allure-pytest's results equal to these.

The folders are the truth: everything here, history included, can be made again from them.
"""

from __future__ import annotations
