"""A session puts a run together: choice, lab, place, images, board, meter, run folder, report."""

from __future__ import annotations

import dataclasses
import functools
import math
import os
import secrets
import shlex
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from rich.console import Console

from fsjoule import images, kernels, lab
from fsjoule.bench.boots import boot_key
from fsjoule.bench.measurer import lost_energy
from fsjoule.bench.run import Bench
from fsjoule.errors import ConfigError, FsjouleError, ResultError, also
from fsjoule.filesystems import modules_of
from fsjoule.host import interrupts
from fsjoule.host.clock import HostClock
from fsjoule.images.programs import card_programs
from fsjoule.model import BoardProfile, HostLoad, LabFacts, Measurement, Plan, Planned, Run, RunStatus
from fsjoule.report.oneline import one_line, plan_lines
from fsjoule.report.run import show_run, write_report
from fsjoule.runs.held_lab import Equipment, HeldLab, check_equipment, equipment
from fsjoule.runs.parallel.bench import ParallelBench
from fsjoule.runs.parallel.boards import Boards, BoardsPace
from fsjoule.runs.parallel.messages import Assignment
from fsjoule.runs.profiler import LabProfiler, check_profiled
from fsjoule.runs.repetition import Repetition
from fsjoule.runs.request import Request, check_apart, planned, root_filesystems
from fsjoule.runs.versions import lava_job, revision, versions
from fsjoule.store.files import check_writable
from fsjoule.store.folder import RunFolder
from fsjoule.store.profiles import PROGRAMS_FILE, encode_programs
from fsjoule.store.reader import load_run, load_run_file
from fsjoule.suites import Pace, check_modules

# Two runs with one id would pass for copies in an index of many boards and years.
_RUN_ID_BYTES: Final = 5
_BOOTING: Final = ("flash", "boot")  # phases of a run
AnyBench = Bench | ParallelBench
_SETUP_STARTED: Final = "FSJOULE_SETUP_STARTED"  # set by make: start of its set-up, in seconds of the epoch


class Observer(Protocol):
    """Hears of a run as it goes on."""

    def opened(self, run: Run, folder: Path, earlier: Sequence[Measurement]) -> None:
        """The run's folder is there, with what was measured before it was resumed (`earlier`)."""
        ...

    def stored(self, measurement: Measurement) -> None: ...

    def closed(self, run: Run) -> None:
        """Nothing more is measured, and the board is off."""
        ...


@dataclass
class Session:
    """One invocation. `open` and `close` bracket everything; `lab.place` and `run` are entered within.

    Who can only say after the plan whether anything is to be measured calls `prepare` and `start` instead of `open`.
    Signals that end it (`interrupts`) are raised only where a body says so: in `open` while it builds, not in `close`.
    `coordinator` is the address of labgrid's coordinator, and overrides the environment. `taken` are the choice's
    kernels, if they have been taken already. `held` is a lab that is up and held around several runs.
    `cards` is the folder of the card images; without it, the cache. `observer` hears of the run.
    With a `pace` each measurement is followed by the time that is left. `to_do` are the plan's entries to be measured;
    with a `repetition` fewer may do.
    """

    choice: Request
    environment: lab.EnvironmentFile
    say: Callable[[str], None]
    command: tuple[str, ...]
    coordinator: str | None = None
    taken: tuple[kernels.TakenKernel, ...] = ()
    held: HeldLab | None = None
    cards: Path | None = None
    observer: Observer | None = None
    lab: HeldLab = field(init=False)
    plan: Plan = field(init=False)
    expected: int = field(default=0, init=False)
    ended_early: str | None = field(default=None, init=False)
    stopped: str | None = field(default=None, init=False)
    pace: Pace | BoardsPace | None = field(default=None, init=False)
    to_do: tuple[Planned, ...] = field(default=(), init=False)
    repetition: Repetition | None = field(default=None, init=False)
    _selected: frozenset[int] = field(default=frozenset(), init=False)
    _bench: AnyBench | None = field(default=None, init=False)
    _judged: int = field(default=0, init=False)
    _told: dict[int, Measurement] = field(default_factory=dict[int, Measurement], init=False)
    _setup_s: float = field(default=0.0, init=False)
    _folder: Path | None = field(default=None, init=False)
    _phases_s: Mapping[str, float] = field(default_factory=dict[str, float], init=False)
    _measurements: set[int] = field(default_factory=set[int], init=False)
    _spent_s: tuple[float, float] = field(default=(0.0, 0.0), init=False)
    _without_energy: dict[int, str] = field(default_factory=dict[int, str], init=False)
    _lines: dict[int, str] = field(default_factory=dict[int, str], init=False)
    _again: frozenset[int] = field(default=frozenset(), init=False)
    _kernels: tuple[kernels.TakenKernel, ...] = field(default=(), init=False)
    _cards: dict[tuple[str, str], images.CardImage] = field(default_factory=dict[tuple[str, str], Any], init=False)

    def __post_init__(self) -> None:
        self.lab = self.held or HeldLab(self.environment, self.say, self.coordinator)

    def open(self) -> None:
        """Do what `prepare` and `start` do. Raises as they do."""
        self.prepare()
        self.start()

    def prepare(self) -> None:
        """Check the request, find the place, and make the plan.

        Raises ConfigError for an impossible plan, and that or LabError for a missing or occupied place.
        """
        started_s = time.monotonic()
        if self.choice.profiled:
            check_profiled(self.environment)
        if self.choice.resumed is None:
            check_writable(self.choice.results, "--results")
        if self.held is None:
            self.lab.find()
            if lab.wants_virtual_lab(self.environment):
                check_equipment(self.environment, self.choice.boards)
        if self.choice.resumed is not None:
            self.choice.resumed.check_storages(self.profile.storages)
        taken = tuple(kernel.facts.label for kernel in self.taken)
        self.plan = self._plan(taken or kernels.kernel_labels(self.choice.kernels, self.profile.recipe))
        self.to_do = self.plan.entries
        self._decide_repetitions()
        for line in plan_lines(self.plan.left_out, self.plan.adjusted):
            self.say(line)
        self._setup_s = time.monotonic() - started_s + _make_setup_s()

    def start(self) -> None:
        """Take the kernels, make the cards, and bring the virtual lab up if the environment file asks for one.

        A run on several boards needs no lab here: each board has its own, or its place.
        Raises ConfigError for an unsuitable kernel, LabError.
        """
        started_s = time.monotonic()
        if self.choice.boards > 1:
            check_apart(self.to_do)
        self._warn_of_load()
        with interrupts.interruptible():
            self._build()
        if self.held is None and self.choice.boards == 1:
            self.lab.bring_up(self._kernels, meter_program=self.choice.meter_program)
        self._setup_s += time.monotonic() - started_s

    def _decide_repetitions(self) -> None:
        """Prepare for a plan that goes on until it is decided. Raises ResultError if it is."""
        if not self.plan.until_decided:
            return
        self.repetition = Repetition.of(
            self.plan,
            self.choice.suite,
            guest_time=self.profile.guest_time,
            boards=self.choice.boards,
            measured=self._kept,
        )
        resumed = self.choice.resumed
        if resumed is not None and resumed.run.status is RunStatus.COMPLETE:
            begun = resumed.begun
            line = self.repetition.go_on(self._kept) if self.repetition.until == begun else ""
            if self.repetition.until == begun:
                hint = f"--repeat {begun + 1} adds a boot all the same"
                raise ResultError(
                    f"{resumed.path} needs no more boots: {line or 'nothing is to be decided'}", hint=hint
                )
        self.say(self.repetition.intent())

    def select(self, numbers: Iterable[int]) -> None:
        """Measure only these entries of the plan, those of a resumed run apart.

        In guest time a boot of which something is left to measure is measured again whole. Raises ConfigError if what a
        resumed run has of it is not selected.
        """
        kept, selected = {each.number for each in self._kept}, frozenset(numbers)
        self._selected = selected | kept
        missing = [entry for entry in self.plan.entries if entry.number in selected - kept]
        if self.profile.guest_time:
            boots = set(map(boot_key, missing))
            begun = [entry for entry in self.plan.entries if entry.number in kept and boot_key(entry) in boots]
            if left_out := [entry.slug for entry in begun if entry.number not in selected]:
                raise ConfigError(
                    f"-k leaves out what was measured in a boot that is made again whole: {', '.join(left_out)}",
                    hint="select that as well, or leave -k out",
                )
            self._again = frozenset(entry.number for entry in begun)
        to_do = {entry.number for entry in missing} | self._again
        self.to_do = tuple(entry for entry in self.plan.entries if entry.number in to_do)
        self._expect()

    def _expect(self) -> None:
        """Count what is to be measured, as far as that is known."""
        until = self.plan.repeat if self.repetition is None else self.repetition.until
        entries = [entry for entry in self.plan.entries if entry.number in self._selected and entry.repetition <= until]
        self.expected = len(entries)
        entries = [entry for entry in self.to_do if entry.repetition <= until]
        if isinstance(self.pace, Pace):
            self.pace.entries = entries
        elif self.pace is None:
            self.pace = Pace(entries)

    def wants(self, entry: Planned) -> bool:
        """Whether an entry is to be measured. Between two boots it is judged whether more are."""
        if self.repetition is None or entry.repetition <= self.repetition.until:
            return True
        if self._bench is None or self._judged == self.repetition.until:
            return False
        self._judged = self.repetition.until
        if line := self.repetition.go_on(self._bench.results):
            self.say(line)
        self._expect()
        if isinstance(self._bench, ParallelBench):
            self._bench.release(self.repetition.until)
        return entry.repetition <= self.repetition.until

    @property
    def _kept(self) -> tuple[Measurement, ...]:
        return () if self.choice.resumed is None else self.choice.resumed.kept

    def _warn_of_load(self) -> None:
        average, cores = HostClock().load()
        if self.profile.simulated and not self.profile.guest_time and average > cores:
            load = HostLoad(cores, average, average).text
            self.say(
                f"warning: the computer is busy ({load}): an emulated board in real time is too slow then; one in "
                "guest time does not care (env/deterministic.yaml)"
            )

    def preview(self) -> Plan:
        """The plan, without building anything; kernels have the user's names. Raises ConfigError."""
        return self._plan(self.choice.kernels)

    @property
    def profile(self) -> BoardProfile:
        return self.environment.profile

    def _build(self) -> None:
        self._kernels = self.taken or kernels.take_kernels(
            self.choice.kernels,
            progress=self.say,
            recipe=self.profile.recipe,
            modules=modules_of(self.choice.filesystems),
        )
        for kernel in self._kernels:
            check_modules(self.choice.suite, self.choice.filesystems, kernel.facts)
        if self.choice.resumed is not None:
            self.choice.resumed.check_kernels(kernel.facts for kernel in self._kernels)
        self._cards = {
            (kernel.facts.label, root): images.build_card(
                kernel, root, progress=self.say, recipe=self.profile.recipe, root=self.cards
            )
            for kernel in self._kernels
            for root in root_filesystems(self.plan.entries)
        }
        if self.choice.resumed is not None:
            self.choice.resumed.check_images(card.facts for card in self._cards.values())

    def _plan(self, labels: tuple[str, ...]) -> Plan:
        choice = self.choice
        if choice.resumed is not None:
            plan = choice.resumed.run.plan
            more = functools.partial(self._planned_on, plan.kernels)
            return dataclasses.replace(choice.resumed.plan(choice.repeat, more), until_decided=choice.until_decided)
        arranged = planned(choice, self.profile, labels)
        return Plan(
            suite=choice.suite.name,
            filesystems=choice.filesystems,
            kernels=labels,
            repeat=arranged.entries[-1].repetition,
            seed=choice.seed,
            size_factors={
                part.name: choice.factor_for(part.name, self.profile) for part in choice.suite.leaves if part.source
            },
            entries=arranged.entries,
            left_out=arranged.left_out,
            adjusted=arranged.adjusted,
            until_decided=choice.until_decided,
        )

    def _planned_on(self, labels: tuple[str, ...], storages: tuple[str, ...] | None) -> tuple[Planned, ...]:
        return planned(dataclasses.replace(self.choice, storages=storages), self.profile, labels).entries

    def close(self) -> None:
        """Release the place, and take down the lab that `open` brought up."""
        if self.held is None:
            self.lab.close()

    def assignment(self) -> Assignment:
        """The same session for a process with a board of its own."""
        return Assignment(self.choice, self.environment, self._kernels, self.command)

    def equipment(self, target: Any) -> Equipment:  # noqa: ANN401 - a labgrid Target; labgrid is fsjoule.lab's
        """The board and the meter of a labgrid target, with the cards of the run. Raises LabError."""
        with lab.lab_errors("finding the board's parts"):
            lab.guard(target, self.lab.guard)
        return equipment(target, self._cards, self.lab.where, self.say)

    @contextmanager
    def run(self, target: Any) -> Generator[Bench]:  # noqa: ANN401 - a labgrid Target; labgrid is fsjoule.lab's
        """A run on the board of a labgrid target. However the body ends, the run is closed and its report written."""
        clock = HostClock()
        with self.lab.failing():
            board, meter, diagnose = self.equipment(target)
            lab_facts = lab.lab_facts(target)
        run, kept, folder = self._begun(clock.utc(), lab_facts)
        with lab.recorded_steps() as take_steps:
            bench = Bench(
                *(run, self.profile, board, meter, folder, clock, self.say, self._measured),
                kept=kept,
                again=self._again,
                take_steps=take_steps,
                diagnose=diagnose,
                profiler=LabProfiler(*self.lab.where) if self.choice.profiled else None,
                sampled=self.choice.sampled,
            )
            try:
                with self._kept_in(folder, bench, kept):
                    yield bench
            finally:
                part = bench.failed_part(metered=self.environment.has_meter)
                if part is not None or len(bench.results) > len(kept):
                    self.lab.note_end(part)

    @contextmanager
    def run_on(self, boards: Boards) -> Generator[ParallelBench]:
        """A run on several boards, with the interface of `run` as far as it needs no shell of a board."""
        self.lab.emulator = boards.emulator
        clock = HostClock()
        run, kept, folder = self._begun(clock.utc(), boards.lab)
        blocks = not self.profile.guest_time
        bench = ParallelBench(run, boards, folder, clock, self.say, self._measured, self.to_do, kept, blocks=blocks)
        bench.on_stored = self._tell
        if self.repetition is not None:
            bench.release(self.repetition.until)
        self.pace = BoardsPace(boards, may_end_early=self.choice.paired)
        with self._kept_in(folder, bench, kept):
            yield bench

    def _begun(self, utc: str, lab_facts: LabFacts | None) -> tuple[Run, Sequence[Measurement], RunFolder]:
        """A new run, or the one that is resumed with what was measured before; and its folder. Raises ConfigError."""
        resumed = self.choice.resumed
        if resumed is None:
            return self._new_run(utc, lab_facts), (), RunFolder(self.choice.results, board=self.profile.name)
        resumed.check_board(self.profile.name, versions(self.lab.emulator) | revision())
        if not self.profile.guest_time:
            resumed.check_boards(self.choice.boards)
        if self.choice.boards == 1:  # else the boards are alike, in whichever lab
            resumed.check_lab(lab_facts, self.say)
        self.say(f"{len(resumed.kept)} of {self.expected} measurements are already there")
        if self._again:
            self.say(
                f"{len(self._again)} of them are measured again: a figure in guest time depends on its whole boot, and "
                "theirs was cut short"
            )
        for each in resumed.kept:
            self._note_energy(each)
            self._told[each.number], self._lines[each.number] = each, self._line(each)
        return resumed.going_on(utc, self.plan), resumed.kept, resumed.folder()

    @contextmanager
    def _kept_in(self, folder: RunFolder, bench: AnyBench, kept: Sequence[Measurement]) -> Generator[None]:
        bench.phases.add("setup", self._setup_s)
        bench.begin()
        self._phases_s = bench.phases.spent_s
        self._spent_s = self._spent()
        self._folder, self._bench = folder.path, bench
        if self.choice.profiled:
            programs = card_programs(self.profile.recipe, progress=self.say)
            folder.keep(PROGRAMS_FILE, encode_programs(programs))
        self.say(f"results go to {folder.path}")
        if self.observer is not None:
            self.observer.opened(bench.run, folder.path, kept)
        try:
            yield
        except BaseException as error:
            # Finished measurements are kept and shown, also after Ctrl-C.
            with also(error, "closing the run"):
                self._finish(bench, folder.path, _reason(error))
            raise
        self._finish(bench, folder.path, None)

    def _finish(self, bench: AnyBench, folder: Path, reason: str | None) -> None:
        interrupts.tell(self.say)
        reason = self._interrupted(bench) or self.stopped or reason
        if self.repetition is not None and reason is None and len(bench.results) >= self.expected:
            bench.run = dataclasses.replace(bench.run, plan=self.repetition.ended())
        run = bench.finish(reason, expected=self.expected, ended_early=self.ended_early)
        if self.observer is not None:
            self.observer.closed(run)
        self._write_page(folder)

    def _interrupted(self, bench: AnyBench) -> str | None:
        """The signal that ended an incomplete run; None if no signal did."""
        return None if self.ended_early is not None or len(bench.results) >= self.expected else interrupts.reason()

    def _new_run(self, utc: str, lab_facts: LabFacts | None) -> Run:
        return Run(
            run_id=secrets.token_hex(_RUN_ID_BYTES),
            started_utc=utc,
            status=RunStatus.RUNNING,
            simulated=self.profile.simulated,
            plan=self.plan,
            kernels=tuple(kernel.facts for kernel in self._kernels),
            lab=lab_facts,
            job=lava_job(),
            versions=versions(self.lab.emulator) | revision(),
            command=self.command,
        )

    @property
    def to_go_on(self) -> str | None:
        """The command that resumes the run if it was aborted, else None."""
        if self._folder is None or load_run_file(self._folder).status is not RunStatus.ABORTED:
            return None
        return shlex.join((*self.command, *(() if self.choice.resumed else ("--resume", str(self._folder)))))

    @property
    def card_images(self) -> tuple[images.CardImage, ...]:
        """The cards of the run, once it is open."""
        return tuple(self._cards.values())

    @property
    def folder(self) -> Path | None:
        return self._folder

    def show(self, console: Console, *, wide: bool) -> None:
        if self._folder is not None:
            show_run(load_run(self._folder), console, wide=wide)

    def lost_energy(self) -> str:
        """How many measurements lost their energy, and why; empty if none did. A board without a meter loses none."""
        if not self._without_energy or not self.environment.has_meter:
            return ""
        why = "; ".join(dict.fromkeys(self._without_energy.values()))
        return (
            f"{len(self._without_energy)} of {len(self._measurements)} measurements have no energy: {why}\n"
            "  hint: check the meter; --allow-missing-energy accepts throughput alone"
        )

    def _note_energy(self, measurement: Measurement) -> None:
        self._measurements.add(measurement.number)
        self._without_energy.pop(measurement.number, None)  # of a try before
        # An outcome needs no energy.
        if measurement.outcome is None and (why := lost_energy(measurement.notes)):
            self._without_energy[measurement.number] = why

    def _measured(self, measurement: Measurement) -> None:
        self._note_energy(measurement)
        self._tell(0, measurement)
        if self.observer is not None:
            self.observer.stored(measurement)

    def _tell(self, board: int, measurement: Measurement) -> None:
        """A line for a measurement, once, unless another try has other figures.

        One of several boards (from 1) is told before its boot is done.
        """
        line = self._line(measurement)
        self._told[measurement.number] = measurement
        if self._lines.get(measurement.number) == line:
            return
        self._lines[measurement.number] = line
        where = f"board {board}: " if board else ""
        left = self._left(measurement)
        self.say(f"[{len(self._told):>3}/{self.expected}] {where}{line}{f'; {left}' if left else ''}")
        if self.repetition is not None and (news := self.repetition.news(tuple(self._told.values()))):
            self.say(news)

    def _line(self, measurement: Measurement) -> str:
        return one_line(measurement, kernel=len(self.plan.kernels) > 1, card=not self.choice.paired)

    def _left(self, measurement: Measurement) -> str:
        """The time that is left, in words; nothing before it is known, and after the last measurement."""
        if self.pace is None:
            return ""
        before, self._spent_s = self._spent_s, self._spent()
        self.pace.note(measurement.number, self._spent_s[0] - before[0], self._spent_s[1] - before[1])
        return self.pace.text if len(self._told) < self.expected else ""

    def _spent(self) -> tuple[float, float]:
        """The time now, and the seconds that boots have taken so far."""
        return time.monotonic(), sum(self._phases_s.get(name, 0.0) for name in _BOOTING)

    def _write_page(self, folder: Path) -> None:
        try:
            path = write_report(folder)
        except FsjouleError as error:
            self.say(f"no report.html: {error.what}")
        else:
            self.say(f"report: {path}")


def _reason(error: BaseException) -> str | None:
    if isinstance(error, FsjouleError):
        return error.what.partition("\n")[0]
    return f"a bug: {type(error).__name__}: {error}".partition("\n")[0] if isinstance(error, Exception) else None


def _make_setup_s() -> float:
    """Seconds of make's set-up before it started this process; 0 without make."""
    try:
        seconds = time.time() - float(os.environ.pop(_SETUP_STARTED, ""))
    except ValueError:
        return 0.0  # a user may have set it to anything
    return seconds if 0 < seconds < math.inf else 0.0
