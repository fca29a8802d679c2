"""Changes of several boards and series become causes: what is together, what is still so, what is over."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

from fsjoule.model import Provision, SeriesKey
from fsjoule.model.kernel import Kernel
from fsjoule.model.metrics import Metric
from fsjoule.model.series import Series
from fsjoule.statistics.changepoints import Nomination
from fsjoule.store.states import ChangeState, KeptState
from fsjoule.verdicts.trend.causes import Cause, Fate, causes
from fsjoule.verdicts.trend.changes import ChangeStatus, LevelChange
from fsjoule.verdicts.trend.history import History, HistoryPoint

NIGHTS = 30
# A new kernel every night.
KERNELS = {night + 1: Kernel(f"6.12.{night}", "") for night in range(NIGHTS)}


def history(levels: dict[int, float], board: str = "evk", *, minute: int = 0, kernel: int = 0) -> History:
    """Of levels by their first nights; `kernel` is that of all nights, else each night has its own."""
    series = Series(SeriesKey("quick", board, "card", "ext4", (), (), Provision.SCRATCH, "read-16k"), simulated=True)
    points: list[HistoryPoint] = []
    figure = 100.0
    for night in range(NIGHTS):
        figure = levels.get(night, figure)
        at = datetime(2026, 1, 1, 2, minute, tzinfo=UTC) + timedelta(days=night)
        points.append(HistoryPoint(night, kernel or night + 1, f"{at:%Y-%m-%dT%H:%M:%SZ}", figure, (figure,), 1))
    return History(series, Metric.THROUGHPUT, tuple(points))


def changes(one: History, *at: int, off: int = 0) -> list[LevelChange]:
    """The changes of a history at these nights, as a detector sees them that is `off` by some points."""
    figures = [point.figure for point in one.points]
    return [LevelChange(one, Nomination(n + off, n + off - 3, n + off + 2, figures[n] / figures[n - 1])) for n in at]


def told(found: Sequence[Cause]) -> list[tuple[Fate, int, int]]:
    """Fate, night and number of changes of each cause."""
    return [(cause.fate, cause.since.run, len(cause.changes)) for cause in found]


def test_one_commit_on_six_boards_is_one_cause() -> None:
    boards = [history({20: 88.0}, f"b{number}", minute=10 * number) for number in range(6)]
    seen = [
        change for number, one in enumerate(boards) for change in changes(one, 20, off=(number == 0) - (number == 1))
    ]
    (cause,) = causes(seen, KERNELS)
    assert told([cause]) == [(Fate.OPEN, 20, 6)]
    assert (cause.last.run, cause.boards, len(cause.still)) == (19, tuple(f"b{n}" for n in range(6)), 6)


def test_boards_that_measure_a_kernel_on_other_nights_share_its_cause() -> None:
    early, late = history({20: 88.0}, "a"), history({20: 88.0}, "b")
    later = [point._replace(started_utc=f"2026-03-{point.run + 1:02d}T02:00:00Z") for point in late.points]
    late = History(late.series, late.metric, tuple(later))
    assert told(causes([*changes(early, 20), *changes(late, 20)], KERNELS)) == [(Fate.OPEN, 20, 2)]


def test_other_nights_and_other_kernels_are_other_causes() -> None:
    seen = [*changes(history({12: 88.0}, "a"), 12), *changes(history({20: 88.0}, "b"), 20)]
    assert told(causes(seen, KERNELS)) == [(Fate.OPEN, 20, 1), (Fate.OPEN, 12, 1)]
    same_night = history({20: 88.0}, "c", kernel=NIGHTS + 1)
    kernels = {**KERNELS, NIGHTS + 1: Kernel("5.10.1", "")}
    assert len(causes([*changes(history({20: 88.0}), 20), *changes(same_night, 20)], kernels)) == 2


def test_two_commits_two_nights_apart_with_boards_of_their_own_are_two() -> None:
    first = [change for n in range(4) for change in changes(history({18: 88.0}, f"a{n}"), 18)]
    second = [change for n in range(4) for change in changes(history({20: 88.0}, f"b{n}"), 20)]
    assert told(causes([*first, *second], KERNELS)) == [(Fate.OPEN, 20, 4), (Fate.OPEN, 18, 4)]
    # A straggler alone is the detector's own error.
    assert told(causes([*first, *second[:1]], KERNELS)) == [(Fate.OPEN, 18, 5)]


def test_what_came_back_is_over_and_its_cure_is_no_gain() -> None:
    outage = history({10: 60.0, 16: 100.0})
    (cause,) = causes(changes(outage, 10, 16), KERNELS)
    assert (cause.fate, cause.still, cause.cured and cause.cured.run) == (Fate.OVER, (), 16)
    # Over without a change back: only the newest nights are as before.
    (unseen,) = causes(changes(history({10: 60.0, 27: 100.0}), 10), KERNELS)
    assert (unseen.fate, unseen.cured) == (Fate.OVER, None)


def test_a_second_loss_and_half_a_cure_leave_it_open() -> None:
    staircase = causes(changes(history({10: 80.0, 20: 64.0}), 10, 20), KERNELS)
    assert told(staircase) == [(Fate.OPEN, 20, 1), (Fate.OPEN, 10, 1)]
    halfway = causes(changes(history({10: 60.0, 20: 70.0}), 10, 20), KERNELS)
    assert told(halfway) == [(Fate.OPEN, 10, 1), (Fate.GAIN, 20, 1)]


def test_a_gain_that_is_lost_again_is_an_open_loss() -> None:
    seen = changes(history({10: 120.0, 20: 100.0}), 10, 20)
    assert told(causes(seen, KERNELS)) == [(Fate.OPEN, 20, 1), (Fate.OVER, 10, 1)]


@pytest.mark.parametrize("closed", [True, False])
def test_what_is_accepted_or_refuted_is_closed(closed: bool) -> None:
    (first,), (second,) = (changes(history({20: 88.0}, board), 20) for board in ("a", "b"))
    accepted = LevelChange(
        first.history, first.nomination, kept=(KeptState(first.history.series.key, ChangeState.ACCEPTED),)
    )
    refuted = LevelChange(second.history, second.nomination, ChangeStatus.REFUTED)
    (cause,) = causes([accepted, refuted if closed else second], KERNELS)
    assert (cause.fate, len(cause.still)) == ((Fate.CLOSED, 0) if closed else (Fate.OPEN, 1))


def test_on_one_kernel_the_night_counts() -> None:
    boards = [history({20: 88.0}, board, kernel=1) for board in "ab"]
    later = history({25: 88.0}, "c", kernel=1)
    seen = [*(change for one in boards for change in changes(one, 20)), *changes(later, 25)]
    assert told(causes(seen, KERNELS)) == [(Fate.OPEN, 25, 1), (Fate.OPEN, 20, 2)]
