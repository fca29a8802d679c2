"""Result files for Allure's `allure2` reader: tests, steps, attachments, metrics. Pure.

The beginnings of tests' messages are words on which tests and Allure's categories must agree.

Times are milliseconds since 1970 UTC.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final


class AllureStatus(StrEnum):
    """A regression is `failed`; a missing or invalid figure is `broken`."""

    PASSED = "passed"
    FAILED = "failed"
    BROKEN = "broken"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file of a test. `source` is its name in the results, which contains `-attachment`."""

    name: str
    type: str
    source: str

    def document(self) -> dict[str, Any]:
        return {"name": self.name, "type": self.type, "source": self.source}


@dataclass(frozen=True, slots=True)
class AllureStep:
    name: str
    status: AllureStatus
    start_ms: int
    stop_ms: int
    message: str = ""
    parameters: tuple[tuple[str, str], ...] = ()
    steps: tuple[AllureStep, ...] = ()

    def document(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "status": self.status.value,
            "statusDetails": {"message": self.message} if self.message else {},
            "stage": "finished",
            "start": self.start_ms,
            "stop": self.stop_ms,
            "parameters": [{"name": name, "value": value} for name, value in self.parameters],
            "steps": [step.document() for step in self.steps],
        }


@dataclass(frozen=True, slots=True)
class AllureMetric:
    """A figure of a test. Allure averages figures of one build with equal keys."""

    key: str
    value: float


@dataclass(frozen=True, slots=True)
class Result:
    """One test result. `identity` and `parameters` identify it, and are the same in every build.

    `about` are facts that are shown like parameters, but do not identify it. `trend` is the query that selects its
    series on the page of trends.
    """

    uuid: str
    identity: str
    name: str
    status: AllureStatus
    start_ms: int
    stop_ms: int
    labels: tuple[tuple[str, str], ...]
    message: str = ""
    trace: str = ""
    description: str = ""
    parameters: tuple[tuple[str, str], ...] = ()
    about: tuple[tuple[str, str], ...] = ()
    steps: tuple[AllureStep, ...] = ()
    attachments: tuple[Attachment, ...] = ()
    metrics: tuple[AllureMetric, ...] = ()
    trend: str = ""

    @property
    def page_id(self) -> str:
        """Name of its page in the report, which Allure derives from the name of its file."""
        return _md5(self.uuid)

    @property
    def case_id(self) -> str:
        """Allure's hash of the identity."""
        return _md5(self.identity)

    @property
    def history_id(self) -> str:
        """Allure's hash of identity and parameters, which finds the test in earlier builds."""
        return f"{self.case_id}.{_md5(','.join(f'{name}:{value}' for name, value in sorted(self.parameters)))}"

    def document(self) -> dict[str, Any]:
        """The content of `<uuid>-result.json`."""
        told = [{"name": name, "value": value} for name, value in self.parameters]
        told += [{"name": name, "value": value, "excluded": True} for name, value in self.about]
        details = {"message": self.message, "trace": self.trace}
        return {
            "uuid": self.uuid,
            "fullName": self.identity,
            "historyId": self.history_id,
            "name": self.name,
            "status": self.status.value,
            "statusDetails": {name: text for name, text in details.items() if text},
            "stage": "finished",
            "start": self.start_ms,
            "stop": self.stop_ms,
            "description": self.description,
            "labels": [{"name": name, "value": value} for name, value in self.labels],
            "parameters": told,
            "steps": [step.document() for step in self.steps],
            "attachments": [attachment.document() for attachment in self.attachments],
        }

    def metrics_document(self) -> list[dict[str, Any]]:
        """The content of `<uuid>-perf.json`."""
        return [
            {
                "id": f"{self.uuid}-{number}",
                "key": metric.key,
                "value": metric.value,
                "start": self.start_ms,
                "stop": self.stop_ms,
            }
            for number, metric in enumerate(self.metrics)
        ]

    def history_document(self) -> dict[str, Any]:
        """Its entry in a build's line of Allure's history."""
        return {
            "id": self.page_id,
            "name": self.name,
            "fullName": self.identity,
            "environment": "default",
            "status": self.status.value,
            **({"message": self.message} if self.message else {}),
            "start": self.start_ms,
            "stop": self.stop_ms,
            "duration": self.stop_ms - self.start_ms,
            "labels": [{"name": name, "value": value} for name, value in self.labels],
            "url": "",
            "historyId": self.history_id,
            "reportLinks": [],
        }


def properties(values: Mapping[str, str]) -> str:
    """Java properties for Allure's `environment.properties`, one line each."""
    lines = [f"{name.replace(' ', '_')} = {' '.join(text.split())}" for name, text in values.items() if text]
    return "".join(f"{line}\n" for line in lines)


def _md5(text: str) -> str:
    """Allure's own hash; nothing here relies on its security."""
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


TRENDS: Final = "trends.html"

REGRESSION: Final = "regression"
OPEN_LOSS: Final = "open loss"
INVALID: Final = "invalid measurement"
LAB_TRANSIENT: Final = "lab fault, transient"
LAB: Final = "lab fault"
DAMAGED: Final = "damaged result"
NOT_MEASURED: Final = "not measured"
UNDECIDED: Final = "not decided"
BUG: Final = "bug"

_CATEGORIES: Final = (
    ("Open loss", AllureStatus.FAILED, OPEN_LOSS),
    ("Regression", AllureStatus.FAILED, REGRESSION),
    ("Invalid measurement", AllureStatus.BROKEN, INVALID),
    ("Lab fault, transient", AllureStatus.BROKEN, LAB_TRANSIENT),
    ("Lab fault", AllureStatus.BROKEN, LAB),
    ("Damaged result", AllureStatus.BROKEN, DAMAGED),
    ("Not decided", AllureStatus.SKIPPED, UNDECIDED),
    ("Not measured", AllureStatus.SKIPPED, NOT_MEASURED),
    # Everything else is our fault.
    ("Bug", AllureStatus.BROKEN, ""),
)


def categories() -> list[dict[str, Any]]:
    """Allure's configuration of categories; the first match counts."""
    return [
        {"name": name, "matchers": [{"statuses": [status.value], **({"message": f"^{begin}"} if begin else {})}]}
        for name, status, begin in _CATEGORIES
    ]
