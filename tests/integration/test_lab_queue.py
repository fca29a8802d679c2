"""The simulated lab of docs/planning.md agrees with queueing theory, and with labgrid's order."""

from __future__ import annotations

import importlib
from math import factorial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(name="queue")
def _queue(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("lab_queue")


def waiting_share(boards: int, load: float) -> float:
    """Erlang's C: the share that waits, for a load in boards that are held on average."""
    full = load**boards / factorial(boards) * boards / (boards - load)
    return full / (sum(load**k / factorial(k) for k in range(boards)) + full)


@pytest.mark.parametrize(("boards", "load"), [(1, 0.6), (3, 2.1)])
def test_waits_are_those_of_queueing_theory(queue: Any, boards: int, load: float) -> None:
    def hours(random: np.random.Generator) -> float:
        return random.exponential(1.0)

    lab = queue.Lab(
        boards=(boards,),
        merge_requests=24 * load,
        kinds_each=1,
        in_hours=0.0,
        board_fails_h=None,
        exporter_fails_h=None,
        hours_of=hours,
    )
    waits = queue.simulate(lab, 20_000 / (24 * load), seed=1).waits_min(queue.GATE) / 60
    expected = waiting_share(boards, load)
    assert np.mean(waits > 0) == pytest.approx(expected, rel=0.08)
    assert np.mean(waits) == pytest.approx(expected / (boards - load), rel=0.25)


def test_who_has_priority_waits_less_and_the_others_more(queue: Any) -> None:
    lab = queue.Lab(merge_requests=420)
    ordered, alike = (
        queue.simulate(queue.replace(lab, priorities=priorities), 8, seed=2) for priorities in (True, False)
    )
    for name, less in (("a person", True), ("bisection", False)):
        assert (np.median(ordered.waits_min(name)) < np.median(alike.waits_min(name))) == less


def test_a_job_whose_board_fails_starts_again_and_is_done_once(queue: Any) -> None:
    calm = queue.Lab(merge_requests=100, board_fails_h=None, exporter_fails_h=None)
    shaken = queue.replace(calm, board_fails_h=20.0, exporter_fails_h=100.0)
    quiet, troubled = (queue.simulate(lab, 10, seed=3) for lab in (calm, shaken))
    assert all(job.lost == 0 for job in quiet.jobs)
    again = [job for job in troubled.jobs if job.lost]
    assert again
    assert len({id(job) for job in troubled.jobs}) == len(troubled.jobs)
    assert np.mean(troubled.waits_min(queue.GATE)) > np.mean(quiet.waits_min(queue.GATE))
    # A board has one job at a time.
    assert (troubled.held <= troubled.possible).all()


def test_a_larger_pool_carries_more_of_its_time(queue: Any) -> None:
    shares = [queue.carried(boards, seed=1, gates=600) for boards in (1, 6)]
    assert 0.1 < shares[0] < 0.3
    assert shares[0] + 0.2 < shares[1] < 0.95
