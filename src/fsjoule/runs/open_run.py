"""A run that is open: its kernels taken, its cards made, its lab held, its bench measuring, its folder written."""

from __future__ import annotations

import logging
import os
import secrets
import shlex
import sys
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, Protocol

from rich.console import Console

from fsjoule import images, kernels, lab
from fsjoule.bench.measurer import lost_energy
from fsjoule.bench.run import Bench, BoardBench
from fsjoule.errors import FsjouleError, also
from fsjoule.filesystems import modules_of
from fsjoule.host import interrupts
from fsjoule.host.clock import HostClock
from fsjoule.images.programs import card_programs
from fsjoule.kernels import TakenKernel
from fsjoule.model import HostLoad, JobFacts, LabFacts, Measurement, Plan, Planned, Run, RunStatus
from fsjoule.report.oneline import one_line
from fsjoule.report.run import show_run, write_report
from fsjoule.runs.held_lab import Equipment, HeldLab, equipment, first_line
from fsjoule.runs.parallel.bench import PoolBench
from fsjoule.runs.parallel.boards import BoardsPace, started_boards
from fsjoule.runs.parallel.messages import Assignment
from fsjoule.runs.plan import RunPlan, check_apart, plan_run, root_filesystems
from fsjoule.runs.request import RunRequest
from fsjoule.store.folder import RunFolder
from fsjoule.store.profiles import PROGRAMS_FILE, encode_programs
from fsjoule.store.reader import load_run, load_run_file
from fsjoule.suites import Pace, check_modules

_log: Final = logging.getLogger(__name__)

# Two runs with one id would pass for copies in an index of many boards and years.
_RUN_ID_BYTES: Final = 5
_BOOTING: Final = ("flash", "boot")  # phases of a run


_REVISION: Final = {
    "branch": ("FSJOULE_BRANCH", "CI_COMMIT_REF_NAME"),
    "commit": ("FSJOULE_COMMIT", "CI_COMMIT_SHA"),
    # A report takes runs of one pipeline as one build; a kernel that is not under test has its own history there.
    "pipeline": ("FSJOULE_PIPELINE", "CI_PIPELINE_ID"),
    "kernel_role": ("FSJOULE_KERNEL_ROLE",),
}


class Observer(Protocol):
    """Hears of a run as it goes on."""

    def opened(self, run: Run, folder: Path, earlier: Sequence[Measurement]) -> None:
        """The run's folder is there, with what was measured before it was resumed (`earlier`)."""
        ...

    def stored(self, measurement: Measurement) -> None: ...

    def closed(self, run: Run) -> None:
        """Nothing more is measured, and the board is off."""
        ...


@dataclass(frozen=True, slots=True)
class ReadyRun:
    """A plan that can be measured now: with its kernels and cards, and the lab of a single board up.

    `setup_s` is the time that it took to get there.
    """

    plan: RunPlan
    held: HeldLab
    kernels: tuple[TakenKernel, ...]
    cards: Mapping[tuple[str, str], images.CardImage]
    setup_s: float

    @property
    def assignment(self) -> Assignment:
        """The same run for a process with a board of its own."""
        return Assignment(self.plan.request, self.plan.environment, self.kernels, self.plan.command)

    def equipment(self, target: Any) -> Equipment:  # noqa: ANN401 - a labgrid Target; labgrid is fsjoule.lab's
        """The board and the meter of a labgrid target, with the cards of the run. Raises LabError."""
        with lab.lab_errors("finding the board's parts"):
            lab.guard(target, self.held.guard)
        return equipment(target, self.cards, self.held.where)


def make_ready(plan: RunPlan, held: HeldLab, *, cards: Path | None = None) -> ReadyRun:
    """Take the kernels, make the cards, and bring the virtual lab up if the environment file asks for one.

    A run on several boards needs no lab here: each board has its own, or its place. `cards` is the folder of the card
    images; without it, the cache. Raises ConfigError for an unsuitable kernel, LabError.
    """
    started_s = time.monotonic()
    request = plan.request
    if request.pooled:
        check_apart(plan.to_do)
    average, cores = HostClock().load()
    if plan.profile.simulated and not plan.profile.guest_time and average > cores:
        load = HostLoad(cores, average, average).text
        _log.warning(
            "the computer is busy (%s): an emulated board in real time is too slow then; one in guest time does not "
            "care (env/deterministic.yaml)",
            load,
        )
    with interrupts.interruptible():
        taken, images_made = _kernels_and_cards(plan, cards)
    if not request.pooled:
        held.bring_up(taken, meter_program=request.meter_program)
    return ReadyRun(plan, held, taken, images_made, plan.planned_s + time.monotonic() - started_s)


def _kernels_and_cards(
    plan: RunPlan, root: Path | None
) -> tuple[tuple[TakenKernel, ...], dict[tuple[str, str], images.CardImage]]:
    request, recipe = plan.request, plan.profile.recipe
    taken = plan.taken or kernels.take_kernels(request.kernels, recipe=recipe, modules=modules_of(request.filesystems))
    for kernel in taken:
        storages = {entry.storage for entry in plan.plan.entries}
        check_modules(request.suite, request.filesystems, kernel.facts, storages)
    if request.resumed is not None:
        request.resumed.check_kernels(kernel.facts for kernel in taken)
    cards = {
        (kernel.facts.label, filesystem): images.build_card(kernel, filesystem, recipe=recipe, root=root)
        for kernel in taken
        for filesystem in root_filesystems(plan.plan.entries)
    }
    if request.resumed is not None:
        request.resumed.check_images(card.facts for card in cards.values())
    return taken, cards


class Progress:
    """What is told of a run: a line for each measurement, the time that is left, and which lost their energy.

    `until` is the last repetition to be measured, so far; `expected` how many measurements the run has by then. With
    `pace` lines have the time that is left.
    """

    def __init__(self, plan: RunPlan, observer: Observer | None, pace: Pace | BoardsPace | None) -> None:
        self.plan = plan
        self.observer = observer
        self._pace = pace
        self._repetition = plan.repetition
        self._judged = 0
        self._news_told = False
        self._counted: set[int] = set()
        self._measurements: dict[int, Measurement] = {}
        self._lines: dict[int, str] = {}
        self._without_energy: dict[int, str] = {}
        self._phases_s: Mapping[str, float] = {}
        self._spent_s = (0.0, 0.0)

    @property
    def until(self) -> int:
        return self.plan.plan.repeat if self._repetition is None else self._repetition.until

    @property
    def expected(self) -> int:
        return self.plan.expected(self.until)

    def begin(self, phases_s: Mapping[str, float]) -> None:
        """The bench begins; `phases_s` has what it spends."""
        self._phases_s = phases_s
        self._spent_s = self._spent()

    def there(self, earlier: Sequence[Measurement]) -> None:
        """These measurements are there already, and were told when they were made."""
        for each in earlier:
            self._note_energy(each)
            self._measurements[each.number], self._lines[each.number] = each, self._line(each)

    def decided(self, measured: Sequence[Measurement]) -> bool:
        """Judge what is measured after the last repetition so far; whether no more of them are needed."""
        repetition = self._repetition
        if repetition is None or self._judged == repetition.until:
            return True
        self._judged = repetition.until
        self._repetition, line = repetition.after(measured)
        if line:
            _log.info("%s", line)
        if isinstance(self._pace, Pace):
            self._pace.entries = self.plan.entries_until(self.until)
        return self._repetition.until == repetition.until

    def ended_plan(self) -> Plan | None:
        """The plan as it was measured, if fewer repetitions may do."""
        return None if self._repetition is None else self._repetition.ended()

    def measured(self, measurement: Measurement) -> None:
        """The measurement counts."""
        self._note_energy(measurement)
        self.tell(0, measurement)
        if self.observer is not None:
            self.observer.stored(measurement)

    def tell(self, board: int, measurement: Measurement) -> None:
        """A line for a measurement, once, unless another try has other figures.

        One of several boards (from 1) is told before its boot is done.
        """
        line = self._line(measurement)
        self._measurements[measurement.number] = measurement
        if self._lines.get(measurement.number) == line:
            return
        self._lines[measurement.number] = line
        where = f"board {board}: " if board else ""
        left = ""
        if self._pace is not None:
            before, self._spent_s = self._spent_s, self._spent()
            self._pace.note(measurement.number, self._spent_s[0] - before[0], self._spent_s[1] - before[1])
            left = self._pace.text if len(self._measurements) < self.expected else ""
        _log.info("[%3s/%s] %s%s%s", len(self._measurements), self.expected, where, line, f"; {left}" if left else "")
        if self._repetition is not None and not self._news_told:
            news = self._repetition.news(tuple(self._measurements.values()))
            self._news_told = bool(news)
            if news:
                _log.info("%s", news)

    def lost_energy(self) -> str:
        """How many measurements lost their energy, and why; empty if none did. A board without a meter loses none."""
        if not self._without_energy or not self.plan.environment.has_meter:
            return ""
        why = "; ".join(dict.fromkeys(self._without_energy.values()))
        return (
            f"{len(self._without_energy)} of {len(self._counted)} measurements have no energy: {why}\n"
            "  hint: check the meter; --allow-missing-energy accepts throughput alone"
        )

    def _note_energy(self, measurement: Measurement) -> None:
        self._counted.add(measurement.number)
        self._without_energy.pop(measurement.number, None)  # of a try before
        # An outcome needs no energy.
        if measurement.outcome is None and (why := lost_energy(measurement.notes)):
            self._without_energy[measurement.number] = why

    def _line(self, measurement: Measurement) -> str:
        return one_line(measurement, kernel=len(self.plan.plan.kernels) > 1, card=not self.plan.request.paired)

    def _spent(self) -> tuple[float, float]:
        """The time now, and the seconds that boots have taken so far."""
        return time.monotonic(), sum(self._phases_s.get(name, 0.0) for name in _BOOTING)


class OpenRun:
    """A run whose folder is open; `bench` measures. `open_run` makes one, and closes it however its body ends."""

    def __init__(self, plan: RunPlan, bench: Bench, folder: Path, progress: Progress) -> None:
        self.plan = plan
        self.bench = bench
        self.folder = folder
        self._progress = progress
        self._ended_early: str | None = None
        self._stopped: str | None = None

    def wants(self, entry: Planned) -> bool:
        """Whether an entry is to be measured. Between two boots it is judged whether more are."""
        if entry.repetition <= self._progress.until:
            return True
        if self._progress.decided(self.bench.results):
            return False
        self.bench.release(self._progress.until)
        return entry.repetition <= self._progress.until

    def stop(self, why: str) -> None:
        """The run ends incomplete, for this reason."""
        self._stopped = why

    def end_early(self, why: str) -> None:
        """The run is complete with what it has, for this reason."""
        self._ended_early = why

    @property
    def resuming(self) -> str | None:
        """The command that resumes the run if it was aborted, else None."""
        if load_run_file(self.folder).status is not RunStatus.ABORTED:
            return None
        options = () if self.plan.request.resumed else ("--resume", str(self.folder))
        return shlex.join((*self.plan.command, *options))

    def show(self, console: Console, *, wide: bool) -> None:
        show_run(load_run(self.folder), console, wide=wide)

    def lost_energy(self) -> str:
        """How many measurements lost their energy, and why; empty if none did. A board without a meter loses none."""
        return self._progress.lost_energy()

    def close(self, reason: str | None) -> None:
        """Finish the bench, and write the page. A `reason` is why the run was aborted, unless it has a better one."""
        progress, bench = self._progress, self.bench
        interrupts.tell()
        whole = len(bench.results) >= progress.expected
        signal = None if self._ended_early is not None or whole else interrupts.reason()
        reason = signal or self._stopped or reason
        run = bench.finish(
            reason,
            expected=progress.expected,
            ended_early=self._ended_early,
            plan=progress.ended_plan() if reason is None and whole else None,
        )
        if progress.observer is not None:
            progress.observer.closed(run)
        try:
            page = write_report(self.folder)
        except FsjouleError as error:
            _log.info("no report.html: %s", error.what)
        else:
            _log.info("report: %s", page)


@contextmanager
def held_run(
    request: RunRequest,
    environment: lab.EnvironmentFile,
    *,
    taken: tuple[TakenKernel, ...] = (),
    command: tuple[str, ...],
    observer: Observer | None = None,
    earlier: Sequence[Path] = (),
) -> Generator[OpenRun]:
    """A run of its own of a command: the board's place is held in the body, in which signals may end it.

    `taken` and `earlier` are those of `plan_run`; `observer` hears of the run. However the body ends, the
    board is off afterwards, and a lab that was brought up for it is down. After Ctrl-C, SIGTERM or SIGHUP the run's
    folder says so, and KeyboardInterrupt is raised. Raises ConfigError, LabError.
    """
    held = HeldLab(environment)
    with ExitStack() as closing:
        closing.enter_context(interrupts.handled())
        closing.enter_context(redirect_stdout(sys.stderr))  # labgrid prints the output of its tools
        closing.callback(held.close)
        ready = make_ready(plan_run(request, held, command, taken=taken, earlier=earlier), held)
        run = closing.enter_context(open_run(ready, observer=observer))
        with interrupts.interruptible():
            yield run


@contextmanager
def open_run(
    ready: ReadyRun, *, find_target: Callable[[ExitStack], Any] | None = None, observer: Observer | None = None
) -> Generator[OpenRun]:
    """A run on the board, or on the boards that the request asks for; its places are held in the body.

    `find_target` gives labgrid's target of a single board, which it may close with the stack; by default it is made
    from the environment file. Raises ConfigError, LabError.
    """
    plan, held = ready.plan, ready.held
    with ExitStack() as closing:
        if plan.request.pooled:
            boards = closing.enter_context(started_boards(ready.assignment))
            progress = Progress(plan, observer, BoardsPace(boards, may_end_early=plan.request.paired))
            clock, blocks = HostClock(), not plan.profile.guest_time
            run, folder = _begun(ready, progress, clock.utc(), boards.lab, boards.emulator)
            bench = PoolBench(
                *(run, boards, folder, clock, progress.measured, plan.to_do, plan.request.kept),
                blocks=blocks,
                on_stored=progress.tell,
            )
            if plan.repetition is not None:
                bench.release(plan.until)
            yield closing.enter_context(_kept_in(folder, ready, bench, progress))
        else:
            closing.enter_context(held.place())
            with held.failing():
                target = found_target(plan.environment, closing) if find_target is None else find_target(closing)
            yield closing.enter_context(run_at(ready, target, observer=observer))


def found_target(environment: lab.EnvironmentFile, closing: ExitStack) -> Any:  # noqa: ANN401 - a labgrid Target
    """Labgrid's target of an environment file, which ends with the stack. Raises LabError."""
    with interrupts.interruptible():
        return closing.enter_context(lab.labgrid_target(environment.path))


@contextmanager
def run_at(
    ready: ReadyRun,
    target: Any,  # noqa: ANN401 - a labgrid Target
    *,
    observer: Observer | None = None,
    paced: bool = True,
) -> Generator[OpenRun]:
    """A run on the board of a labgrid target whose place is held. `paced`: lines tell the time that is left."""
    plan, held, clock = ready.plan, ready.held, HostClock()
    request = plan.request
    with held.failing():
        parts = ready.equipment(target)
        lab_facts = lab.lab_facts(target)
    pace = Pace(plan.entries_until(plan.until), may_end_early=request.paired) if paced else None
    progress = Progress(plan, observer, pace)
    run, folder = _begun(ready, progress, clock.utc(), lab_facts, held.emulator)
    with lab.recorded_steps() as take_steps:
        bench = BoardBench(
            *(run, plan.profile, parts.board, parts.meter, folder, clock, progress.measured),
            kept=request.kept,
            again=plan.again,
            take_steps=take_steps,
            health=held,
            profiler=parts.profiler if request.profiled else None,
            counter=parts.profiler if plan.profile.guest_time else None,
            sampled=request.sampled,
            traced=request.traced,
        )
        try:
            with _kept_in(folder, ready, bench, progress) as opened:
                yield opened
        finally:
            part = bench.failed_part(metered=plan.environment.has_meter)
            if part is not None or len(bench.results) > len(request.kept):
                held.note_end(part)


@contextmanager
def _kept_in(folder: RunFolder, ready: ReadyRun, bench: Bench, progress: Progress) -> Generator[OpenRun]:
    """The run in its folder. However the body ends, the run is closed and its report written."""
    plan = ready.plan
    bench.phases.add("setup", ready.setup_s)
    bench.begin()
    progress.begin(bench.phases.spent_s)
    opened = OpenRun(plan, bench, folder.path, progress)
    if plan.request.profiled:
        programs = card_programs(plan.profile.recipe)
        folder.keep(PROGRAMS_FILE, encode_programs(programs))
    _log.info("results go to %s", folder.path)
    if progress.observer is not None:
        progress.observer.opened(bench.run, folder.path, plan.request.kept)
    try:
        yield opened
    except BaseException as error:
        # Finished measurements are kept and shown, also after Ctrl-C.
        with also(error, "closing the run"):
            what = error.what if isinstance(error, FsjouleError) else f"a bug: {type(error).__name__}: {error}"
            opened.close(what.partition("\n")[0] if isinstance(error, Exception) else None)
        raise
    opened.close(None)


def _begun(
    ready: ReadyRun, progress: Progress, utc: str, lab_facts: LabFacts | None, emulator: str | None
) -> tuple[Run, RunFolder]:
    """A new run, or the one that is resumed; and its folder. Raises ConfigError."""
    plan = ready.plan
    request, profile, resumed = plan.request, plan.profile, plan.request.resumed
    programs = versions(emulator) | revision()
    if resumed is None:
        run = Run(
            run_id=secrets.token_hex(_RUN_ID_BYTES),
            started_utc=utc,
            status=RunStatus.RUNNING,
            simulated=profile.simulated,
            plan=plan.plan,
            kernels=tuple(kernel.facts for kernel in ready.kernels),
            lab=lab_facts,
            job=lava_job(),
            versions=programs,
            command=plan.command,
        )
        return run, RunFolder(request.results, board=profile.name)
    resumed.check_board(profile.name, programs)
    if not profile.guest_time:
        resumed.check_boards(request.boards)
    if not request.pooled:  # else the boards are alike, in whichever lab
        resumed.check_lab(lab_facts, emulated=profile.guest_time and emulator is not None)
    _log.info("%s of %s measurements are already there", len(resumed.kept), progress.expected)
    if plan.again:
        _log.info(
            "%s of them are measured again: a figure in guest time depends on its whole boot, and theirs was cut short",
            len(plan.again),
        )
    progress.there(resumed.kept)
    return resumed.going_on(utc, plan.plan), resumed.folder()


def versions(emulator: str | None) -> dict[str, str]:
    """Versions of all programs that take part, except those on the card."""
    by_program = {name: version(name) for name in ("fsjoule", "labgrid", "pytest", "numpy")}
    by_program["python"] = sys.version.split()[0]
    if emulator is not None:
        by_program["ser2net"] = first_line("ser2net", "-v")
        by_program["qemu"] = first_line(emulator, "--version")
    return by_program


def revision() -> dict[str, str]:
    """Branch, commit, pipeline and kernel role, as far as the user or the CI names them."""
    named = {name: next(filter(None, map(os.environ.get, variables)), None) for name, variables in _REVISION.items()}
    return {name: text for name, text in named.items() if text is not None}


def lava_job() -> JobFacts | None:
    """The LAVA job that this process is part of, as far as LAVA and the device's shell name it; None outside."""
    number = os.environ.get("LAVA_JOB_ID")
    if not number:
        return None
    device, worker, server = (os.environ.get(f"FSJOULE_LAVA_{name}", "") for name in ("DEVICE", "WORKER", "SERVER"))
    return JobFacts(number, device, worker, f"{server.rstrip('/')}/scheduler/job/{number}" if server else "")
