"""Earlier builds as Allure keeps them: one line of JSON each, made from run folders. Pure.

Allure would append such a line whenever it makes a report. Made from the folders they are the same on every machine,
and a report that is made twice is in its history once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from statistics import fmean
from typing import Any

from fsjoule.allure.builds import build_name
from fsjoule.allure.documents import Result
from fsjoule.allure.tests import milliseconds, run_tests
from fsjoule.store import LoadedRun


def history_lines(earlier: Iterable[LoadedRun]) -> str:
    """`history.jsonl` of runs in the order of time. Where their own reports are, if they had any, is not known."""
    return "".join(f"{json.dumps(_line(loaded), separators=(',', ':'))}\n" for loaded in earlier)


def _line(loaded: LoadedRun) -> dict[str, Any]:
    tests = list(run_tests(loaded))
    return {
        "uuid": loaded.run.run_id,
        "name": build_name(loaded),
        "timestamp": milliseconds(loaded.run.started_utc),
        "knownTestCaseIds": sorted({test.case_id for test in tests}),
        # Of retries the last one counts.
        "testResults": {test.history_id: test.history_document() for test in tests},
        "metrics": _means(tests),
        "url": "",
    }


def _means(tests: Iterable[Result]) -> dict[str, float]:
    """A build's figure is the mean over its repetitions, as Allure makes it of the current one."""
    values: dict[str, list[float]] = {}
    for test in tests:
        for metric in test.metrics:
            values.setdefault(metric.key, []).append(metric.value)
    return {key: fmean(each) for key, each in values.items()}
