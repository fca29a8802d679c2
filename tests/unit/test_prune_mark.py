"""The mark of a removal in an object store."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from fsjoule.store.objects.prune_mark import PruneMark


def going_on(**left: float) -> bool:
    return PruneMark("ci@runner", "1", (datetime.now(UTC) + timedelta(**left)).isoformat()).going_on


def test_a_removal_goes_on_until_its_end_and_for_as_long_as_clocks_differ() -> None:
    assert going_on(minutes=14)
    assert going_on(minutes=-4)
    assert not going_on(minutes=-6)
    assert not PruneMark("ci@runner", "1", "").going_on


def test_nobody_waits_for_an_end_that_only_a_wrong_clock_can_have_written() -> None:
    assert going_on(minutes=19)
    assert not going_on(days=365)
