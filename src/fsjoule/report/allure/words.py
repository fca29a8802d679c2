"""Words on which parts of the report must agree: the beginnings of tests' messages, categories, pages. Pure."""

from __future__ import annotations

from typing import Any, Final

from fsjoule.report.allure.documents import Status

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
    ("Open loss", Status.FAILED, OPEN_LOSS),
    ("Regression", Status.FAILED, REGRESSION),
    ("Invalid measurement", Status.BROKEN, INVALID),
    ("Lab fault, transient", Status.BROKEN, LAB_TRANSIENT),
    ("Lab fault", Status.BROKEN, LAB),
    ("Damaged result", Status.BROKEN, DAMAGED),
    ("Not decided", Status.SKIPPED, UNDECIDED),
    ("Not measured", Status.SKIPPED, NOT_MEASURED),
    # Everything else is our fault.
    ("Bug", Status.BROKEN, ""),
)


def categories() -> list[dict[str, Any]]:
    """Allure's configuration of categories; the first match counts."""
    return [
        {"name": name, "matchers": [{"statuses": [status.value], **({"message": f"^{begin}"} if begin else {})}]}
        for name, status, begin in _CATEGORIES
    ]
