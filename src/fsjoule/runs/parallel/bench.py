"""One run from the boots of several boards, in the order of its plan."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from fsjoule.bench.boots import boot_key
from fsjoule.bench.instrument import check_meter
from fsjoule.bench.phases import Phases
from fsjoule.bench.run import closed, not_taken
from fsjoule.model import Measurement, Plan, Planned, PoolPlace, Run
from fsjoule.ports import Clock, ResultStore
from fsjoule.runs.parallel.boards import Boards
from fsjoule.runs.parallel.messages import Done, Stored
from fsjoule.store.profiles import symbols_file


@dataclass
class ParallelBench:
    """A run whose boots are made ahead. Call `begin`, `measure` in the order of the plan, and `finish`.

    With `blocks` a repetition is measured on one board, as in real time it must be: kernels are compared within it.
    `entries` are those of the plan that are to be measured. Boots are numbered in the order of the plan, with those
    that failed before another board made them, and after those of the measurements that are `kept` from a resumed run.
    """

    run: Run
    boards: Boards
    store: ResultStore
    clock: Clock
    say: Callable[[str], None]
    on_measured: Callable[[Measurement], None]
    entries: Sequence[Planned]
    kept: Sequence[Measurement] = ()
    blocks: bool = False
    phases: Phases = field(init=False)
    results: list[Measurement] = field(init=False)
    _failures: int = field(default=0, init=False)
    _boots: list[tuple[Planned, ...]] = field(init=False)
    _number: dict[int, int] = field(init=False)
    _taken: dict[int, tuple[Done, int]] = field(default_factory=dict[int, tuple[Done, int]], init=False)
    _booted: int = field(init=False)
    _failed: set[int] = field(default_factory=set[int], init=False)
    _spent: dict[str, Phases] = field(default_factory=dict[str, Phases], init=False)

    def __post_init__(self) -> None:
        self.phases = Phases(self.clock, dict(self.run.phases_s))
        self.results = list(self.kept)
        self._booted = max((each.boot for each in self.kept), default=0)
        unit: Callable[[Planned], object] = _block if self.blocks else boot_key
        self._boots = [tuple(entries) for _, entries in groupby(self.entries, key=unit)]
        self._spent = {each.lab.place: Phases(self.clock, dict(each.phases_s)) for each in self.run.places}
        self._number = {entry.number: boot for boot, entries in enumerate(self._boots) for entry in entries}

    @property
    def plan(self) -> Plan:
        return self.run.plan

    @property
    def failures_in_a_row(self) -> int:
        """Boots that failed one after the other; none while several boards are left, which go on with other boots."""
        return 0 if len(self.boards.processes.left) > 1 else self._failures

    def begin(self) -> None:
        """Open the run's folder; the boards begin to boot."""
        self.store.begin(self.run)
        # Of a resumed run the faults and phases are here already.
        begun = {each.repetition: each.place for each in self.kept if self.blocks and each.place}
        repetitions = [entries[0].repetition for entries in self._boots]
        pins = {number: begun[each] for number, each in enumerate(repetitions) if each in begun}
        self.boards.begin(dataclasses.replace(self.run, phases_s={}, faults=()), self._boots, pins)

    def release(self, repetition: int) -> None:
        """Let boards measure up to this repetition, and no further."""
        self.boards.release(sum(entries[0].repetition <= repetition for entries in self._boots))

    def measure(self, entry: Planned) -> Measurement:
        """The entry's measurement, stored, as soon as its boot is done. A kept one is returned as it is.

        Raises LabError as the boot did, for each entry that the boot still owed.
        """
        for kept in self.kept:
            if kept.number == entry.number:
                return kept
        done, before = self._boot_of(entry)
        stored = next((each for each in done.stored if each.measurement.number == entry.number), None)
        if stored is None:
            assert done.fault is not None, "a boot without a fault has all its entries"
            if done.number not in self._failed:
                self._failed.add(done.number)
                self._failures += 1
            raise done.fault
        if done.fault is None:
            self._failures = 0
        return self._keep(stored, done, before)

    def finish(self, reason: str | None = None, *, expected: int | None = None, ended_early: str | None = None) -> Run:
        """End the boards, and close the run as complete, or as aborted for a reason. See `Bench.finish`."""
        self.boards.end()
        if reason is not None and ended_early is None:
            self._keep_rest()
        wanted = len(self.plan.entries) if expected is None else expected
        reason = reason or not_taken(wanted, len(self.results), ended_early)
        self.run = dataclasses.replace(self.run, places=self._places())
        self.run = closed(self.run, reason, ended_early, self.clock.utc(), self.phases)
        self.store.finish(self.run)
        return self.run

    def _keep(self, stored: Stored, done: Done, before: int) -> Measurement:
        boot = before + stored.measurement.boot
        measurement = dataclasses.replace(stored.measurement, boot=boot, place=done.place)
        with self.phases("store"):
            self.store.add(measurement, stored.trace, stored.attachments)
        self.results.append(measurement)
        self.on_measured(measurement)
        return measurement

    def _keep_rest(self) -> None:
        """Store what other boards have measured ahead, and in boots that were cut short."""
        there = {each.number for each in self.results}
        for done in self.boards.done:
            if done.number not in self._taken:
                self._taken[done.number] = self._learned(done)
            for stored in done.stored:
                if stored.measurement.number not in there:
                    self._keep(stored, *self._taken[done.number])

    def _boot_of(self, entry: Planned) -> tuple[Done, int]:
        """The boot of an entry, and how many boots there were before it."""
        number = self._number[entry.number]
        if number not in self._taken:
            done, failed = self.boards.boot(number)
            for each in failed:
                self._learn(each)
            self._taken[number] = self._learned(done)
        return self._taken[number]

    def _learned(self, done: Done) -> tuple[Done, int]:
        """The boot, whose run is taken over, and how many boots there were before it."""
        self._learn(done)
        return done, self._booted - done.boots

    def _learn(self, done: Done) -> None:
        """Take over what became known of the run in a unit. Raises InstrumentError for another meter in guest time."""
        found, run = done.run, self.run
        if found.meter is not None and run.meter is not None and not self.blocks:
            check_meter(run.meter, found.meter)
        if done.place:
            spent = self._spent.setdefault(done.place, Phases(self.clock))
            for name, seconds in found.phases_s.items():
                spent.add(name, seconds)
        self.run = dataclasses.replace(
            run,
            places=self._places(),
            meter=None if self.blocks else run.meter or found.meter,
            boards={**found.boards, **run.boards},
            images=(*run.images, *(each for each in found.images if each not in run.images)),
            faults=(*run.faults, *found.faults),
            load=run.load.with_later(found.load) if run.load and found.load else run.load or found.load,
        )
        self.store.update(self.run)
        for name, seconds in found.phases_s.items():
            self.phases.add(name, seconds)
        names = {symbols_file(n): symbols_file(self._booted + n) for n in range(1, done.boots + 1)}
        for name, content in done.kept:
            self.store.keep(names.get(name, name), content)
        self._booted += done.boots

    def _places(self) -> tuple[PoolPlace, ...]:
        """The places that were ready in this run, with the time that was spent at each."""
        return tuple(
            dataclasses.replace(place, phases_s=dict(self._spent[name].spent_s) if name in self._spent else {})
            for name, place in sorted(self.boards.places.items())
        )


def _block(entry: Planned) -> int:
    return entry.repetition
