"""Run folders as an Allure report, with the trends page beside it.

::

    run folders ── builds ── results ──> Allure's result files ── generate (Node) ──> report
                      ├────── history ──> history.jsonl ──────────────┘                 │
                      └────── index ────> trends.html <── linked from every test ───────┘

The folders are the truth: everything here can be made again from them, history included.
"""

from __future__ import annotations
