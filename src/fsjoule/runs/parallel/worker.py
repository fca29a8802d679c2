"""The process of one board: `python -m fsjoule.runs.parallel.worker FD NAME`. It brings up a lab and boots.

Without a name it takes a place of a pool.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from typing import Any

from fsjoule import lab
from fsjoule.bench.boots import boot_key
from fsjoule.bench.run import Bench
from fsjoule.errors import LabError, Part, also
from fsjoule.host import interrupts
from fsjoule.host.clock import HostClock
from fsjoule.model import Measurement, Planned, Run, Trace
from fsjoule.runs.parallel.messages import Assignment, Boot, Done, Measured, Ready
from fsjoule.runs.parallel.processes import Link, serve
from fsjoule.runs.profiler import LabProfiler
from fsjoule.runs.session import Session


@dataclass
class BootStore:
    """A ports.ResultStore that sends each measurement to the run, and keeps the boot's files until it is done."""

    run: Run
    send: Callable[[Measured], None]
    attempt: int = 0
    kept: list[tuple[str, bytes]] = field(default_factory=list[tuple[str, bytes]])

    def begin(self, run: Run) -> None:
        self.run = run

    def update(self, run: Run) -> None:
        self.run = run

    def add(self, measurement: Measurement, trace: Trace | None, attachments: dict[str, bytes]) -> None:
        run = replace(self.run, plan=replace(self.run.plan, entries=()), faults=(), phases_s={})
        self.send(Measured(measurement, trace, dict(attachments), run, self.attempt))

    def withdraw(self, numbers: Collection[int]) -> None:
        del numbers  # all that were sent, for others follow
        self.attempt += 1

    def keep(self, name: str, content: bytes) -> None:
        self.kept.append((name, content))

    def finish(self, run: Run) -> None:
        self.run = run


def _work(link: Link, name: str) -> None:
    assignment: Assignment = link.receive()
    choice = replace(assignment.choice, boards=1)
    environment = replace(assignment.environment, virtual_lab=name) if name else assignment.environment
    session = Session(choice, environment, _hear_nothing, assignment.command, taken=assignment.kernels)
    with ExitStack() as closing:
        closing.callback(session.close)
        session.prepare()
        if not name:
            session.lab.say = link.say  # who waits for a place says so
        session.start()
        closing.enter_context(session.lab.place())
        with interrupts.interruptible(), session.lab.failing():
            target = closing.enter_context(lab.labgrid_target(environment.path))
        session.say = link.say
        link.send(Ready(session.lab.emulator, lab.lab_facts(target)))
        faulty = False
        while (boot := link.receive()) is not None:
            done, part, measured = _booted(session, target, boot, link)
            # A run adds one fault at most, however many of its boots fail.
            if (part is not None and not faulty) or (part is None and measured):
                session.lab.note_end(part)
                faulty = part is not None
            link.send(done)


def _booted(
    session: Session,
    target: Any,  # noqa: ANN401 - a labgrid Target
    boot: Boot,
    link: Link,
) -> tuple[Done, Part | None, bool]:
    """A boot or a block of boots, the part of the lab with whose fault it ended, and whether anything was measured."""
    board, meter, diagnose = session.equipment(target)
    store = BootStore(boot.run, link.send)
    with lab.recorded_steps() as take_steps:
        bench = Bench(
            *(boot.run, session.profile, board, meter, store, HostClock(), link.say),
            on_measured=lambda _measurement: None,
            take_steps=take_steps,
            diagnose=partial(_dead_parts, session, diagnose),
            profiler=LabProfiler(*session.lab.where) if session.choice.profiled else None,
            sampled=session.choice.sampled,
        )
        done = make_boot(bench, boot, store, link)
        part = bench.failed_part(metered=session.environment.has_meter)
    return replace(done, dead=done.fault is not None and part is not None), part, bool(bench.results)


def make_boot(bench: Bench, boot: Boot, store: BootStore, link: Link) -> Done:
    """Measure the entries of a boot, or of a block of boots. A fault that a second try does not cure ends its boot.

    The block goes on with its next boot, unless the board is why. If the process is ended, it sends what is known.
    """
    fault: LabError | None = None
    try:
        bench.begin()
        with interrupts.interruptible():
            for _, entries in groupby(boot.entries, key=boot_key):
                found = _measure_all(bench, entries)
                fault = fault or found
                if found is not None and (found.part is not None or found.ends_run):
                    break
    except LabError as error:
        fault = error
    except BaseException as error:
        with also(error, "switching the board off"):
            bench.finish("the board's process ends")
        with also(error, "sending what is known of the boot"):
            link.send(_done(boot, store, LabError("the board's process was ended")))
        raise
    bench.finish(None if fault is None else fault.what)
    return _done(boot, store, fault)


def _done(boot: Boot, store: BootStore, fault: LabError | None) -> Done:
    return Done(boot.number, store.run, tuple(store.kept), fault)


def _measure_all(bench: Bench, entries: Iterable[Planned]) -> LabError | None:
    """Measure the entries of a boot; returns the fault that ended it, or None."""
    try:
        for entry in entries:
            bench.measure(entry)
    except LabError as error:
        return error
    return None


def _dead_parts(session: Session, diagnose: Callable[[], tuple[str, ...]]) -> tuple[str, ...]:
    """What the board needs and its lab has lost, in words."""
    dead = diagnose()
    try:
        return (*dead, *session.lab.guard.lacks())
    except LabError as error:
        return dead or (error.what,)  # without a coordinator nobody knows whose the board is


def _hear_nothing(_text: str) -> None:
    """The run has said already what all boards have in common."""


if __name__ == "__main__":
    serve(_work)
