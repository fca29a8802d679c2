"""A simulated lab of 50 boards: queue times, the effect of priority, and when to buy a board (docs/planning.md).

    python benchmarks/lab_queue.py --days 40 --seed 1

Discrete events over labgrid's rule: a place that is free goes to the waiter with the highest priority, among equals to
the one who has waited longest; nobody's place is taken away. Times are in hours; day 0 is a Monday.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import json
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

# Eight kinds of boards, unevenly wanted: the boards of each, and the share of gates that ask for it.
BOARDS: Final = (10, 8, 8, 6, 6, 5, 4, 3)
WANTED: Final = (0.18, 0.16, 0.15, 0.13, 0.12, 0.10, 0.09, 0.07)
# Pairs until a gate decided: the 23 comparisons of docs/gate.md.
PAIRS: Final = (2,) * 6 + (3,) * 7 + (4,) * 6 + (5,) * 3 + (6,)
GATE: Final = "merge request"
_WORKDAY: Final = (9.0, 18.0)
_DAY_H: Final = 24.0
_WEEKEND: Final = (5, 6)
_MINUTES: Final = 60.0
_WARM_UP_DAYS: Final = 2.0
_GOAL_MIN: Final = 10.0
_GOAL_SHARE: Final = 0.9


@dataclass(frozen=True, slots=True)
class Lab:
    """The assumptions: of the work, of boards, of what fails. `fails_h` are mean hours of life, `None` for never."""

    boards: tuple[int, ...] = BOARDS
    merge_requests: float = 400.0  # per working day
    kinds_each: int = 3  # kinds of boards that gate a merge request
    boot_min: float = 3.0  # flash, boot, measure; the gate boots twice for a pair
    setup_min: float = 1.0
    fault: float = 0.02  # share of boots that are made twice
    board_fails_h: float | None = 60 * _DAY_H  # repaired on the next working morning
    exporter_fails_h: float | None = (
        90 * _DAY_H
    )  # a computer with `per_exporter` boards, repaired after an hour of work
    per_exporter: int = 7
    in_hours: float = 0.8  # share of the arrivals between 9 and 18 o'clock
    priorities: bool = True
    hours_of: Callable[[np.random.Generator], float] | None = None  # instead of a gate's


@dataclass(order=True, slots=True)
class Job:
    """Work that waits for a board of a kind. First in a queue is the one with the highest priority, then the oldest."""

    order: tuple[float, float, int]
    name: str = field(compare=False)
    kind: int = field(compare=False)
    asked_h: float = field(compare=False)
    takes_h: float = field(compare=False)
    request: int = field(compare=False, default=-1)
    started_h: float = field(compare=False, default=-1.0)
    lost: int = field(compare=False, default=0)


@dataclass
class Simulated:
    """What came of it: the jobs that were done, and the hours that boards of a kind were held in working time."""

    jobs: list[Job]
    held: np.ndarray
    possible: np.ndarray

    def waits_min(self, name: str, kind: int | None = None) -> np.ndarray:
        found = [j for j in self.jobs if j.name == name and kind in (None, j.kind)]
        return np.array([(each.started_h - each.asked_h) * _MINUTES for each in found])

    def answers_min(self) -> np.ndarray:
        """Minutes from each merge request to the last of its gates' answers."""
        last: dict[int, float] = {}
        asked: dict[int, float] = {}
        for job in self.jobs:
            if job.request >= 0:
                last[job.request] = max(last.get(job.request, 0.0), job.started_h + job.takes_h)
                asked[job.request] = min(asked.get(job.request, np.inf), job.asked_h)
        return np.array([(last[each] - asked[each]) * _MINUTES for each in last])


def simulate(lab: Lab, days: float, seed: int) -> Simulated:
    """Simulate so many days, after two to fill the queues."""
    return _Simulation(lab, days, np.random.default_rng(seed)).run()


class _Simulation:
    def __init__(self, lab: Lab, days: float, random: np.random.Generator) -> None:
        self._lab, self._random = lab, random
        self._end_h = (days + _WARM_UP_DAYS) * _DAY_H
        self._events: list[tuple[float, int, Callable[[float], None]]] = []
        self._number = itertools.count()
        self._kind = [kind for kind, count in enumerate(lab.boards) for _ in range(count)]
        # Neighbours in the list of boards have different exporters, so that no exporter has all boards of a kind.
        exporters = max(1, -(-len(self._kind) // lab.per_exporter))
        self._of_exporter = [[b for b in range(len(self._kind)) if b % exporters == e] for e in range(exporters)]
        self._running: dict[int, Job] = {}
        self._broken: dict[int, int] = dict.fromkeys(range(len(self._kind)), 0)
        self._free = [deque(b for b, k in enumerate(self._kind) if k == kind) for kind in range(len(lab.boards))]
        self._queues: list[list[Job]] = [[] for _ in lab.boards]
        self._done = Simulated([], np.zeros(len(lab.boards)), np.zeros(len(lab.boards)))

    def run(self) -> Simulated:
        self._plan_work()
        self._plan_failures()
        while self._events and self._events[0][0] < self._end_h:
            now_h, _, event = heapq.heappop(self._events)
            event(now_h)
        working_h = sum(_overlap(day * _DAY_H, self._end_h, day) for day in range(int(self._end_h / _DAY_H) + 1))
        self._done.possible = np.array(self._lab.boards) * working_h
        return self._done

    def _at(self, when_h: float, event: Callable[[float], None]) -> None:
        heapq.heappush(self._events, (when_h, next(self._number), event))

    def _plan_work(self) -> None:
        lab, random = self._lab, self._random
        share = np.array(WANTED[: len(lab.boards)]) / sum(WANTED[: len(lab.boards)])
        for request, when_h in enumerate(self._arrivals(lab.merge_requests)):
            kinds = random.choice(len(share), size=min(lab.kinds_each, len(share)), replace=False, p=share)
            for kind in kinds:
                self._ask(when_h, GATE, int(kind), self._gate_h, 0.0, request=request)
        if lab.hours_of is not None:
            return

        def any_kind() -> int:
            return int(random.choice(len(share), p=share))

        for when_h in self._arrivals(60.0):
            self._ask(when_h, "bench", any_kind(), lambda: random.uniform(0.5, 1.5), 0.0)
        for when_h in self._arrivals(20.0):
            self._ask(when_h, "a person", any_kind(), lambda: 0.5, 10.0)
        for when_h in self._arrivals(4.0):
            self._ask(when_h, "bisection", any_kind(), lambda: random.uniform(2.0, 6.0), -5.0)
        for day, kind in itertools.product(range(int(self._end_h / _DAY_H)), range(len(share))):
            for _ in range(2):
                self._ask(day * _DAY_H + 6.0, "nightly trend", kind, lambda: 3.0, -10.0)

    def _gate_h(self) -> float:
        lab, random = self._lab, self._random
        if lab.hours_of is not None:
            return lab.hours_of(random)
        boots = 2 * int(random.choice(PAIRS))
        boots += random.binomial(boots, lab.fault)
        return (lab.setup_min + boots * lab.boot_min * random.uniform(0.8, 1.2)) / _MINUTES

    def _arrivals(self, per_day: float) -> Iterator[float]:
        """Times of a Poisson process, most of them in working time; none on weekends."""
        lab, random = self._lab, self._random
        for day in range(int(self._end_h / _DAY_H) + 1):
            if day % 7 in _WEEKEND and lab.hours_of is None:
                continue
            within, around = random.poisson(per_day * lab.in_hours), random.poisson(per_day * (1 - lab.in_hours))
            times = [*random.uniform(*_WORKDAY, within), *random.uniform(0, _DAY_H, around)]
            yield from (day * _DAY_H + each for each in sorted(times))

    def _ask(
        self,
        when_h: float,
        name: str,
        kind: int,
        takes_h: Callable[[], float],
        priority: float,
        *,
        request: int = -1,
    ) -> None:
        order = (-priority if self._lab.priorities else 0.0, when_h, next(self._number))
        job = Job(order, name, kind, when_h, takes_h(), request)
        self._at(when_h, lambda now_h: self._wait(now_h, job))

    def _wait(self, now_h: float, job: Job) -> None:
        heapq.heappush(self._queues[job.kind], job)
        self._serve(now_h, job.kind)

    def _serve(self, now_h: float, kind: int) -> None:
        while self._queues[kind] and self._free[kind]:
            board, job = self._free[kind].popleft(), heapq.heappop(self._queues[kind])
            job.started_h, lost = now_h, job.lost
            self._running[board] = job
            self._at(now_h + job.takes_h, lambda end_h, b=board, j=job, n=lost: self._finish(end_h, b, j, n))

    def _finish(self, now_h: float, board: int, job: Job, lost: int) -> None:
        if self._running.get(board) is not job or job.lost != lost:
            return  # its board failed meanwhile
        self._leave(now_h, board)
        if job.asked_h >= _WARM_UP_DAYS * _DAY_H:
            self._done.jobs.append(job)
        self._free[job.kind].append(board)
        self._serve(now_h, job.kind)

    def _leave(self, now_h: float, board: int) -> Job:
        job = self._running.pop(board)
        days = range(int(job.started_h / _DAY_H), int(now_h / _DAY_H) + 1)
        self._done.held[job.kind] += sum(_overlap(job.started_h, now_h, day) for day in days)
        return job

    def _plan_failures(self) -> None:
        lab = self._lab
        for board in range(len(self._kind)):
            self._plan_failure(lab.board_fails_h, [board], _next_morning, 0.0)
        for boards in self._of_exporter:
            self._plan_failure(lab.exporter_fails_h, boards, _hour_of_work, 0.0)

    def _plan_failure(
        self, mean_h: float | None, boards: Sequence[int], repaired: Callable[[float], float], from_h: float
    ) -> None:
        if mean_h is None:
            return

        def fail(now_h: float) -> None:
            for board in boards:
                self._break(now_h, board)
            self._at(repaired(now_h), repair)

        def repair(now_h: float) -> None:
            for board in boards:
                self._broken[board] -= 1
                if not self._broken[board]:
                    self._free[self._kind[board]].append(board)
                    self._serve(now_h, self._kind[board])
            self._plan_failure(mean_h, boards, repaired, now_h)

        self._at(from_h + self._random.exponential(mean_h), fail)

    def _break(self, now_h: float, board: int) -> None:
        self._broken[board] += 1
        kind = self._kind[board]
        if board in self._running:
            job = self._leave(now_h, board)
            job.lost += 1
            self._wait(now_h, job)  # it is started again, and its age is what it was
        elif board in self._free[kind]:
            self._free[kind].remove(board)


def _overlap(start_h: float, end_h: float, day: int) -> float:
    """The working time of a day between two times."""
    if day % 7 in _WEEKEND:
        return 0.0
    return max(0.0, min(end_h, day * _DAY_H + _WORKDAY[1]) - max(start_h, day * _DAY_H + _WORKDAY[0]))


def _next_morning(now_h: float) -> float:
    day = int(now_h / _DAY_H) + 1
    while day % 7 in _WEEKEND:
        day += 1
    return day * _DAY_H + _WORKDAY[0] + 1.0


def _hour_of_work(now_h: float) -> float:
    day = int(now_h / _DAY_H)
    opens_h, closes_h = (day * _DAY_H + hour for hour in _WORKDAY)
    if day % 7 in _WEEKEND or now_h > closes_h:
        return _next_morning(now_h)
    return max(now_h, opens_h) + 1.0


# --------------------------------------------------------------------------------------------------------- the tables


def by_name(found: Simulated) -> list[dict[str, Any]]:
    """Waits for a board, by what waits."""
    rows: list[dict[str, Any]] = []
    for name in dict.fromkeys(job.name for job in found.jobs):
        waits = found.waits_min(name)
        p50, p90, p99 = np.percentile(waits, [50, 90, 99])
        rows.append({"work": name, "jobs": len(waits), "p50": p50, "p90": p90, "p99": p99, "most": waits.max()})
    return rows


def by_kind(lab: Lab, found: Simulated) -> list[dict[str, Any]]:
    """How much the boards of a kind are held in working time, and what merge requests wait for them."""
    rows: list[dict[str, Any]] = []
    for kind, boards in enumerate(lab.boards):
        waits = found.waits_min(GATE, kind)
        held = found.held[kind] / found.possible[kind]
        rows.append({"kind": kind + 1, "boards": boards, "held": held, "p90": np.percentile(waits, 90)})
    return rows


def purchases(lab: Lab, days: float, seed: int, count: int) -> list[dict[str, Any]]:
    """Buy boards one after the other, each of the kind with the longest wait (90th percentile) of merge requests."""
    rows: list[dict[str, Any]] = []
    for _ in range(count):
        found = simulate(lab, days, seed)
        worst = max(by_kind(lab, found), key=lambda row: row["p90"])
        answers = np.percentile(found.answers_min(), [50, 90])
        rows.append(
            {
                "boards": sum(lab.boards),
                "p50": answers[0],
                "p90": answers[1],
                "worst kind": worst["kind"],
                "its p90": worst["p90"],
            }
        )
        more = list(lab.boards)
        more[worst["kind"] - 1] += 1
        lab = replace(lab, boards=tuple(more))
    return rows


def carried(boards: int, seed: int, gates: int = 8000) -> float:
    """The share of its time that a pool can be held, day and night, while 90 % of gates wait for 10 minutes at most.

    It is to a hundredth, from so many simulated `gates` that arrive at random.
    """
    low, high = 0.02, 0.99
    alone = Lab(boards=(boards,), kinds_each=1, in_hours=0.0, board_fails_h=None, exporter_fails_h=None)
    gate_h = (alone.setup_min + 2 * float(np.mean(PAIRS)) * alone.boot_min * (1 + alone.fault)) / _MINUTES

    def hours(random: np.random.Generator) -> float:
        return (alone.setup_min + 2 * int(random.choice(PAIRS)) * alone.boot_min * (1 + alone.fault)) / _MINUTES

    while high - low > 0.01:
        middle = (low + high) / 2
        per_day = middle * boards * _DAY_H / gate_h
        lab = replace(alone, merge_requests=per_day, hours_of=hours)
        waits = simulate(lab, gates / per_day, seed).waits_min(GATE)
        low, high = (middle, high) if np.mean(waits <= _GOAL_MIN) >= _GOAL_SHARE else (low, middle)
    return low


def told(title: str, rows: Sequence[dict[str, Any]]) -> str:
    words = [list(rows[0]), *([f"{x:.2f}" if isinstance(x, float) else str(x) for x in row.values()] for row in rows)]
    return "\n".join([title, *("  ".join(f"{word:>14}" for word in line) for line in words), ""])


def main() -> None:
    parser = argparse.ArgumentParser(description="A simulated lab of boards: queue times, priority, when to buy")
    parser.add_argument("--days", type=float, default=40.0, help="simulated days (default: 40)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--requests", type=float, default=400.0, help="merge requests on a working day (default: 400)")
    parser.add_argument("--boot-min", type=float, default=3.0, help="minutes for one boot of a gate (default: 3)")
    parser.add_argument("--buy", type=int, default=10, help="boards to buy one after the other (default: 10)")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    lab = Lab(merge_requests=given.requests, boot_min=given.boot_min)
    with_priority = simulate(lab, given.days, given.seed)
    tables = {
        "minutes of waiting, with priorities": by_name(with_priority),
        "minutes of waiting, all alike": by_name(simulate(replace(lab, priorities=False), given.days, given.seed)),
        "kinds of boards": by_kind(lab, with_priority),
        "boards bought, minutes to the last answer for a merge request": purchases(
            lab, given.days, given.seed, given.buy
        ),
        "share of its time that a pool can be held": [
            {"boards": n, "held": carried(n, given.seed)} for n in (1, 2, 3, 4, 6, 8, 12, 16)
        ],
    }
    if given.json:
        print(json.dumps({"settings": vars(given), "tables": tables}, default=float))
        return
    for title, rows in tables.items():
        print(told(title, rows))


if __name__ == "__main__":
    main()
