"""The limit of labgrid's own calls, and the looks for a dead program meanwhile."""

from __future__ import annotations

import time

import pytest

from fsjoule.errors import LabError
from fsjoule.lab.translate import time_limit


def test_a_look_that_takes_longer_than_the_pause_is_not_begun_again() -> None:
    under_way, most, looks = 0, 0, 0

    def slowly() -> tuple[str, ...]:
        nonlocal under_way, most, looks
        under_way, looks = under_way + 1, looks + 1
        most = max(most, under_way)
        time.sleep(0.2)
        under_way -= 1
        return ()

    with time_limit(60, "waiting", slowly, every_s=0.02):
        while looks < 3:
            time.sleep(0.01)
    assert most == 1


def test_the_limit_interrupts_a_look_as_well() -> None:
    begin = time.monotonic()

    def for_ever() -> tuple[str, ...]:
        time.sleep(600)
        return ()

    with (
        pytest.raises(LabError, match="waiting took longer than 1 s"),
        time_limit(1, "waiting", for_ever, every_s=0.02),
    ):
        time.sleep(600)
    assert time.monotonic() - begin < 300


def test_a_dead_program_ends_the_wait() -> None:
    dead = ("the exporter is dead",)
    with pytest.raises(LabError, match="the exporter is dead"), time_limit(600, "waiting", lambda: dead, every_s=0.02):
        time.sleep(600)
