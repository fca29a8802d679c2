"""Words that parts of the report must agree on: how a test's message begins, categories, pages. Pure."""

from __future__ import annotations

from typing import Any, Final

from fsjoule.report.allure.documents import Status

# The page of trends, beside Allure's.
TRENDS: Final = "trends.html"

REGRESSION: Final = "regression"
INVALID: Final = "invalid measurement"
LAB_TRANSIENT: Final = "lab fault, transient"
LAB: Final = "lab fault"
DAMAGED: Final = "damaged result"
NOT_MEASURED: Final = "not measured"
UNDECIDED: Final = "not decided"
BUG: Final = "bug"

_CATEGORIES: Final = (
    ("Regression", Status.FAILED, REGRESSION),
    ("Invalid measurement", Status.BROKEN, INVALID),
    ("Lab fault, transient", Status.BROKEN, LAB_TRANSIENT),
    ("Lab fault", Status.BROKEN, LAB),
    ("Damaged result", Status.BROKEN, DAMAGED),
    ("Not decided", Status.SKIPPED, UNDECIDED),
    ("Not measured", Status.SKIPPED, NOT_MEASURED),
    # Whatever else goes wrong is nobody's fault but ours.
    ("Bug", Status.BROKEN, ""),
)


def categories() -> list[dict[str, Any]]:
    """Allure's configuration of them; the first that fits is taken."""
    return [
        {"name": name, "matchers": [{"statuses": [status.value], **({"message": f"^{begin}"} if begin else {})}]}
        for name, status, begin in _CATEGORIES
    ]
