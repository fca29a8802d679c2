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
from fsjoule.bench.crash.shared import Claim, Share
from fsjoule.bench.run import BoardBench
from fsjoule.errors import InfrastructureError, LabError, Part, also
from fsjoule.host import interrupts
from fsjoule.host.clock import HostClock
from fsjoule.host.messages import silent
from fsjoule.model import Measurement, Planned, Run, Trace
from fsjoule.runs.held_lab import HeldLab
from fsjoule.runs.open_run import ReadyRun, found_target, make_ready
from fsjoule.runs.parallel.messages import Assignment, BootTask, Done, Measured, Ready
from fsjoule.runs.parallel.processes import Link, serve
from fsjoule.runs.plan import plan_run


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
        self.take(name)
        self.kept.append((name, content))

    def take(self, name: str) -> bytes | None:
        there = dict(self.kept).get(name)
        self.kept = [each for each in self.kept if each[0] != name]
        return there

    def finish(self, run: Run) -> None:
        self.run = run


@dataclass(frozen=True, slots=True)
class PoolPlaceHealth:
    """ports.LabHealth of a place of a pool, which somebody may have taken parts from."""

    held: HeldLab

    def faults(self, part: Part | None = None) -> tuple[str, ...]:
        dead = self.held.faults(part)
        try:
            return (*dead, *self.held.guard.lacks())
        except LabError as error:
            return dead or (error.what,)  # without a coordinator nobody knows whose the board is


def _work(link: Link, name: str) -> None:
    assignment: Assignment = link.receive()
    request = replace(assignment.request, boards=1)
    environment = replace(assignment.environment, virtual_lab=name) if name else assignment.environment
    held = HeldLab(environment)
    # Who waits for a place says so; a lab of its own comes up silently.
    with silent(bool(name)), ExitStack() as closing:
        closing.callback(held.close)
        with silent():  # the run has told already what all boards have in common
            plan = plan_run(request, held, assignment.command, taken=assignment.kernels)
            ready = make_ready(plan, held)
        closing.enter_context(held.place())
        with held.failing():
            target = found_target(environment, closing)
        link.send(Ready(held.emulator, lab.lab_facts(target)))
        faulty = False
        while (boot := link.receive()) is not None:
            done, part, measured = _booted(ready, target, boot, link)
            # A run adds one fault at most, however many of its boots fail.
            if (part is not None and not faulty) or (part is None and measured):
                held.note_end(part)
                faulty = part is not None
            link.send(done)


def _booted(
    ready: ReadyRun,
    target: Any,  # noqa: ANN401 - a labgrid Target
    boot: BootTask,
    link: Link,
) -> tuple[Done, Part | None, bool]:
    """A boot or a block of boots, the part of the lab with whose fault it ended, and whether anything was measured."""
    plan, parts = ready.plan, ready.equipment(target)
    store = BootStore(boot.run, link.send)
    with silent(False), lab.recorded_steps() as take_steps:
        bench = BoardBench(
            *(boot.run, plan.profile, parts.board, parts.meter, store, HostClock()),
            on_measured=lambda _measurement: None,
            take_steps=take_steps,
            health=PoolPlaceHealth(ready.held),
            profiler=parts.profiler if plan.request.profiled else None,
            counter=parts.profiler if plan.profile.guest_time else None,
            sampled=plan.request.sampled,
            traced=plan.request.traced,
            claim=partial(claimed, link) if plan.profile.guest_time else None,
        )
        done = make_boot(bench, boot, store, link)
        part = bench.failed_part(metered=plan.environment.has_meter)
    return replace(done, dead=done.fault is not None and part is not None), part, bool(bench.results)


def claimed(link: Link, claim: Claim) -> Share:
    """The run's answer. Who measures waits in it for those who help, whose steps have limits. Raises LabError."""
    link.send(claim)
    answer: Share | None = link.receive()
    if answer is None:
        raise LabError("the run ends", hint="--resume RUN goes on with it")
    return answer


def make_boot(bench: BoardBench, boot: BootTask, store: BootStore, link: Link) -> Done:
    """Measure the entries of a boot, or of a block of boots. A fault that a second try does not cure ends its boot.

    The block goes on with its next boot, unless the board is why. If the process is ended, it sends what is known.
    """
    fault: InfrastructureError | None = None
    try:
        bench.begin()
        with interrupts.interruptible():
            for _, entries in groupby(boot.entries, key=boot_key):
                error = _measure_all(bench.help if boot.helps else bench.measure, entries)
                fault = fault or error
                if error is not None and (error.part is not None or error.ends_run):
                    break
    except InfrastructureError as error:
        fault = error
    except BaseException as error:
        with also(error, "switching the board off"):
            bench.finish("the board's process ends")
        with also(error, "sending what is known of the boot"):
            link.send(_done(boot, store, LabError("the board's process was ended")))
        raise
    # The plan is the whole run's. An end before its time would not ask the board for the symbols of its profiles.
    bench.finish(None if fault is None else fault.what, expected=len(bench.results))
    return _done(boot, store, fault)


def _done(boot: BootTask, store: BootStore, fault: InfrastructureError | None) -> Done:
    return Done(boot.number, store.run, tuple(store.kept), fault)


def _measure_all(measure: Callable[[Planned], object], entries: Iterable[Planned]) -> InfrastructureError | None:
    """Measure the entries of a boot; returns the fault that ended it, or None."""
    try:
        for entry in entries:
            measure(entry)
    except InfrastructureError as error:
        return error
    return None


if __name__ == "__main__":
    serve(_work)
