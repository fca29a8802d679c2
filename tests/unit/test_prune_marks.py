"""The mark of a removal in an object store, as a push reads it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from fsjoule.store.objects.prune import PruneMark


@pytest.mark.parametrize(
    ("left", "going_on"),
    [
        (timedelta(minutes=14), True),
        (timedelta(minutes=-4), True),  # clocks differ
        (timedelta(minutes=19), True),
        (timedelta(minutes=-6), False),
        (timedelta(minutes=21), False),
        (timedelta(days=365 * 900), False),  # a wrong clock's
    ],
)
def test_nobody_waits_for_longer_than_a_removal_may_take(left: timedelta, going_on: bool) -> None:
    mark = PruneMark("lab, process 1", "0" * 16, (datetime.now(UTC) + left).isoformat())
    assert mark.going_on is going_on


def test_a_removal_that_has_ended_does_not_go_on() -> None:
    assert not PruneMark("lab, process 1", "0" * 16, "").going_on
