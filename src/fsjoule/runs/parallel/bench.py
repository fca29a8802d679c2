"""One run from the boots of several boards, in the order of its plan."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final

from fsjoule.bench.boots import boot_key
from fsjoule.bench.crash.shared import Claim, Share, SharedStates, shares_states
from fsjoule.bench.instrument import check_meter
from fsjoule.bench.phases import Phases
from fsjoule.bench.run import closed, not_taken
from fsjoule.bench.tries import Tries
from fsjoule.errors import InfrastructureError
from fsjoule.model import Measurement, Plan, Planned, PoolPlace, Run
from fsjoule.ports import Clock, ResultStore
from fsjoule.runs.parallel.boards import Boards
from fsjoule.runs.parallel.messages import Done, Measured
from fsjoule.store.profiles import symbols_file

_log: Final = logging.getLogger(__name__)


@dataclass
class PoolBench:
    """A bench on the boards of a pool, which make its boots ahead.

    Call `begin`, `measure` in the order of the plan, and `finish`.

    Each measurement is stored when a board has made it, and then `on_stored` hears of it with the board's number. What
    a boot, or a block of boots, has in the store is of one board; see `Tries`.

    With `blocks` a repetition is measured on one board, as in real time it must be: kernels are compared within it. In
    guest time boards share the crash states of a measurement.
    `entries` are those of the plan that are to be measured. Of the measurements that are `kept` from a resumed run,
    those among `entries` are measured again; boots are numbered after theirs.
    """

    run: Run
    boards: Boards
    store: ResultStore
    clock: Clock
    on_measured: Callable[[Measurement], None]
    entries: Sequence[Planned]
    kept: Sequence[Measurement] = ()
    blocks: bool = False
    on_stored: Callable[[int, Measurement], None] = lambda _board, _measurement: None
    phases: Phases = field(init=False)
    results: list[Measurement] = field(init=False)
    _failures: int = field(default=0, init=False)
    _boots: list[tuple[Planned, ...]] = field(init=False)
    _number: dict[int, int] = field(init=False)
    _taken: dict[int, Done] = field(default_factory=dict[int, Done], init=False)
    _tries: Tries = field(init=False)
    _under_way: dict[int, tuple[int, int]] = field(default_factory=dict[int, tuple[int, int]], init=False)
    _stored: dict[int, Measurement] = field(default_factory=dict[int, Measurement], init=False)
    _over: InfrastructureError | None = field(default=None, init=False)
    _ending: bool = field(default=False, init=False)
    _failed: set[int] = field(default_factory=set[int], init=False)
    _spent: dict[str, Phases] = field(default_factory=dict[str, Phases], init=False)
    _shared: dict[int, SharedStates] = field(default_factory=dict[int, SharedStates], init=False)

    def __post_init__(self) -> None:
        self.phases = Phases(self.clock, dict(self.run.phases_s))
        unit: Callable[[Planned], object] = (lambda entry: entry.repetition) if self.blocks else boot_key
        self._boots = [tuple(entries) for _, entries in groupby(self.entries, key=unit)]
        self._spent = {each.lab.place: Phases(self.clock, dict(each.phases_s)) for each in self.run.places}
        self._number = {entry.number: boot for boot, entries in enumerate(self._boots) for entry in entries}
        self.results = [each for each in self.kept if each.number not in self._number]
        self._stored = {each.number: each for each in self.kept if each.number in self._number}
        self._tries = Tries(self.store)
        for boot, entries in enumerate(self._boots):
            self._tries.again(boot, [entry.number for entry in entries if entry.number in self._stored])

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
        self.boards.on_measured = self._arrived
        if not self.blocks:
            self.boards.share, self.boards.on_helped = self._share, self._helped
        elif any(map(shares_states, self.entries)):
            _log.info("each board checks all states of what it measures: in real time each boot has a log of its own")
        begun = {each.repetition: each.place for each in self.kept if self.blocks and each.place}
        repetitions = [entries[0].repetition for entries in self._boots]
        pins = {number: begun[each] for number, each in enumerate(repetitions) if each in begun}
        booted = max((each.boot for each in self.kept), default=0)
        # Of a resumed run the faults and phases are here already.
        self.boards.begin(dataclasses.replace(self.run, phases_s={}, faults=()), self._boots, pins, booted)

    def release(self, repetition: int) -> None:
        """Let boards measure up to this repetition, and no further."""
        self.boards.release(sum(entries[0].repetition <= repetition for entries in self._boots))

    def measure(self, entry: Planned) -> Measurement:
        """The entry's measurement, stored, as soon as its boot is done. A kept one is returned as it is.

        Raises LabError as the boot did, for each entry that the boot still owed.
        """
        for earlier in self.kept:
            if earlier.number == entry.number and earlier.number not in self._number:
                return earlier
        number = self._number[entry.number]
        if number not in self._taken:
            done, failed = self.boards.boot(number)
            for each in (*failed, done):
                self._learn(each)
            self._taken[number] = done
        done = self._taken[number]
        stored = self._stored.get(entry.number)
        if stored is None:
            assert done.fault is not None, "a boot without a fault has all its entries"
            if done.number not in self._failed:
                self._failed.add(done.number)
                self._failures += 1
            raise done.fault
        if done.fault is None:
            self._failures = 0
        self._take(stored)
        return stored

    def finish(
        self,
        reason: str | None = None,
        *,
        expected: int | None = None,
        ended_early: str | None = None,
        plan: Plan | None = None,
    ) -> Run:
        """End the boards, and close the run. See Bench."""
        self._ending = True
        self.boards.end()
        for done in self.boards.done:
            if done.number not in self._taken and ended_early is None:
                with suppress(InfrastructureError):  # of a full disk the run's last state tells
                    self._learn(done)
        there = {each.number for each in self.results}
        if ahead := [number for number in sorted(self._stored) if number not in there]:
            if ended_early is None:
                for number in ahead:
                    self._take(self._stored[number])
            else:
                self.store.withdraw(ahead)  # what the decision was not made from
        due = len(self.plan.entries) if expected is None else expected
        reason = reason or not_taken(due, len(self.results), ended_early)
        self.run = dataclasses.replace(self.run, places=self._places(), plan=plan or self.plan)
        self.run = closed(self.run, reason, ended_early, self.clock.utc(), self.phases)
        self.store.finish(self.run)
        return self.run

    def _take(self, stored: Measurement) -> None:
        self.results.append(stored)
        self.on_measured(stored)

    def _arrived(self, board: int, boot: int, measured: Measured) -> None:
        """Store a measurement. Raises StorageError, and InstrumentError for another meter; once, and not at the end."""
        if self._over is not None:
            return
        try:
            if measured.run.meter is not None and self.run.meter is not None and not self.blocks:
                check_meter(self.run.meter, measured.run.meter)
            self._learn_facts(measured.run)
            if self._under_way.setdefault(boot, (board, measured.attempt)) != (board, measured.attempt):
                self._under_way[boot] = board, measured.attempt
                self._tries.again(boot)
            with self.phases("store"):
                parts = measured.measurement, measured.trace, measured.attachments
                withdrawn, new = self._tries.add(boot, *parts)
        except InfrastructureError as error:
            self._over = error
            if not self._ending:
                raise
            _log.info("board %s: %s", board, error.what)
            return
        for number in withdrawn:
            del self._stored[number]
        if measured.measurement.number in self._shared:
            self._shared[measured.measurement.number].end()
        for each in new:
            self._stored[each.number] = each
            self.on_stored(board, each)

    def _share(self, claim: Claim) -> Share:
        """Raises OtherLogError, which ends the run, and StorageError."""
        entry = next(each for each in self.entries if each.number == claim.entry)
        return self._shared.setdefault(claim.entry, SharedStates(self.store, entry)).claim(claim)

    def _helped(self, done: Done) -> None:
        """Take over the time and the fault of a board that has helped. Another board has checked what it has not."""
        if done.fault is not None and not self._ending:
            _log.info("a board that helped to check crash states has failed: %s", done.fault.what)
        with suppress(*([InfrastructureError] if self._ending else [])):
            self._learn(done)

    def _learn(self, done: Done) -> None:
        """Take over what became known of the run in a unit. Raises InstrumentError for another meter in guest time."""
        boot_run = done.run
        if boot_run.meter is not None and self.run.meter is not None and not self.blocks:
            check_meter(self.run.meter, boot_run.meter)
        if done.place:
            spent = self._spent.setdefault(done.place, Phases(self.clock))
            for name, seconds in boot_run.phases_s.items():
                spent.add(name, seconds)
        load = self.run.load
        self.run = dataclasses.replace(
            self.run,
            faults=(*self.run.faults, *boot_run.faults),
            load=load.with_later(boot_run.load) if load and boot_run.load else load or boot_run.load,
        )
        self._learn_facts(boot_run, changed=True)
        for name, seconds in boot_run.phases_s.items():
            self.phases.add(name, seconds)
        files = dict(done.kept)
        for of_board, boot in done.boots.items():
            if symbols_file(of_board) in files:
                self.store.keep(symbols_file(boot), files[symbols_file(of_board)])

    def _learn_facts(self, boot_run: Run, *, changed: bool = False) -> None:
        """Take over boards, images and meter, which a run that is killed has from its first measurement on."""
        run = dataclasses.replace(
            self.run,
            places=self._places(),
            meter=None if self.blocks else self.run.meter or boot_run.meter,
            boards={**boot_run.boards, **self.run.boards},
            images=(*self.run.images, *(each for each in boot_run.images if each not in self.run.images)),
        )
        if changed or run != self.run:
            self.run = run
            self.store.update(run)

    def _places(self) -> tuple[PoolPlace, ...]:
        """The places that were ready in this run, with the time that was spent at each."""
        return tuple(
            dataclasses.replace(place, phases_s=dict(self._spent[name].spent_s) if name in self._spent else {})
            for name, place in sorted(self.boards.places.items())
        )
