"""Earlier builds in Allure's form: one line of JSON each, made from run folders. Pure.

Allure would append such a line with every report. Lines made from the folders are the same on every machine, and a
report that is made twice is in its history once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from statistics import fmean
from typing import Any

from fsjoule.report.allure.builds import Build, build_name
from fsjoule.report.allure.documents import Result
from fsjoule.report.allure.tests import milliseconds, run_tests


def history_lines(earlier: Iterable[Build]) -> str:
    """`history.jsonl` of builds in the order of time, without links to their own reports, which are unknown."""
    return "".join(f"{json.dumps(_line(build), separators=(',', ':'))}\n" for build in earlier)


def _line(build: Build) -> dict[str, Any]:
    tests = [test for loaded in build for test in run_tests(loaded)]
    newest = build[-1].run
    return {
        "uuid": newest.run_id,
        "name": build_name(build),
        "timestamp": milliseconds(newest.started_utc),
        "knownTestCaseIds": sorted({test.case_id for test in tests}),
        # The last retry counts.
        "testResults": {test.history_id: test.history_document() for test in tests},
        "metrics": _means(tests),
        "url": "",
    }


def _means(tests: Iterable[Result]) -> dict[str, float]:
    """A build's figures: means over repetitions, as Allure computes them for the current build."""
    values: dict[str, list[float]] = {}
    for test in tests:
        for metric in test.metrics:
            values.setdefault(metric.key, []).append(metric.value)
    return {key: fmean(each) for key, each in values.items()}
