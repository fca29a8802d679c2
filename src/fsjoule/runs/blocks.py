"""A run of blocks of tests that are not fsjoule's: each is measured as it is, and stored as a bench's measurements are.

The board is the tests' own. Nothing here switches it, boots it or writes to its storage.
"""

from __future__ import annotations

import logging
import math
import os
import secrets
import statistics
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, cast

from fsjoule import lab
from fsjoule.bench.instrument import meter_of
from fsjoule.bench.judge import WorkFacts, judge
from fsjoule.bench.measurer import lost_energy, recorded
from fsjoule.bench.onboard import marks as onboard
from fsjoule.bench.profiles import attach_profile, keep_symbols
from fsjoule.errors import FsjouleError, LabError, MeasurementInvalid, MeterError, ResultError
from fsjoule.host.clock import HostClock
from fsjoule.lab.blocks import ActiveShell, BlockTarget
from fsjoule.model import (
    BlockWorkload,
    BoardFacts,
    BoardProfile,
    Energy,
    ImageFacts,
    KernelFacts,
    KernelOrigin,
    MarkLine,
    Measurement,
    Plan,
    Planned,
    Provision,
    Run,
    RunStatus,
)
from fsjoule.model.metrics import Metric, figure_of
from fsjoule.model.series import Series
from fsjoule.ports import CommandResult, Profiler, Shell
from fsjoule.runs.open_run import lava_job, revision, versions
from fsjoule.statistics.changepoints import nominate
from fsjoule.statistics.figures import one_per_boot
from fsjoule.store.folder import RunFolder
from fsjoule.store.points import points_of, utc
from fsjoule.store.reader import load_run, load_run_file
from fsjoule.store.run_folders import runs_below
from fsjoule.store.schemas import STEPS_FILE, encode_steps

_log: Final = logging.getLogger(__name__)

IDLE_S: Final = 1.0
LEAST_IDLE_S: Final = 0.5
_RUN_ID_BYTES: Final = 5
# A mark of the board is sent by a command of its shell, whose answer comes over a console.
_WINDOW_EXCESS_S: Final = 1.0
_BOOT_ID: Final = ("cat", "/proc/sys/kernel/random/boot_id")
_UNKNOWN: Final = "unknown"
# Older boots say little of today's board.
_MOST_RUNS: Final = 60
# The branch whose runs are the history: a merge request's target, or the main one.
_BRANCH: Final = ("FSJOULE_HISTORY_BRANCH", "CI_MERGE_REQUEST_TARGET_BRANCH_NAME", "CI_DEFAULT_BRANCH")
Row = tuple[str, int, float | None]
"""A valid measurement: its run's id, its boot and its energy in mJ."""
NO_IMAGE: Final = ImageFacts("", "", "", "", {}, {})


@dataclass
class Used:
    """What a block has used, once it has ended. Reading `energy` raises MeterError, MeasurementInvalid without one."""

    name: str
    measurement: Measurement | None = None
    fault: FsjouleError | None = None
    result: CommandResult | None = None

    @property
    def energy(self) -> float:
        """Joules from the start mark to the stop mark."""
        return self._energy.gross_mj.value * 1e-3

    @property
    def net_energy(self) -> float:
        """Joules above the idle power of the moment before the block."""
        return self._energy.net_mj.value * 1e-3

    @property
    def uncertainty(self) -> float:
        """The standard uncertainty (k=1) of `energy`, in joules."""
        return self._energy.gross_mj.uncertainty * 1e-3

    @property
    def power(self) -> float:
        """The mean power in watts."""
        return self._energy.mean_power_w.value

    @property
    def seconds(self) -> float:
        """The block's time by the meter's clock; without a trace, by this computer's."""
        duration_s = self._ended.duration_s
        if duration_s is None:
            raise self._no_energy()
        return duration_s

    @property
    def _ended(self) -> Measurement:
        if self.fault is not None:
            raise self.fault
        if self.measurement is None:
            raise MeterError(f"block {self.name!r} has not ended: read its figures behind the with statement")
        return self.measurement

    @property
    def _energy(self) -> Energy:
        ended = self._ended
        if not ended.valid:
            raise MeasurementInvalid(f"block {self.name!r} is invalid", ended.invalid_reasons)
        if ended.energy is None:
            raise self._no_energy()
        return ended.energy

    def _no_energy(self) -> MeterError:
        why = lost_energy(self._ended.notes) or "the meter gave no trace"
        return MeterError(f"block {self.name!r} has no energy: {why}")


@dataclass(frozen=True, slots=True)
class BlockHistory:
    """The energies in mJ of earlier boots of one series at its present level, one of each; `runs` is their number."""

    boots: tuple[float, ...] = ()
    runs: int = 0


@dataclass
class BlockRun:
    """Blocks on one board, in a run folder below `results` that the first of them makes.

    `suite` names the project whose tests they are. Call `measure` for each block, and `close`. With a `profiler` (of a
    board in guest time) each block has a profile, from the next power-on.
    """

    target: BlockTarget
    suite: str
    results: Path
    command: tuple[str, ...] = ()
    profiler: Profiler | None = None
    folder: Path | None = field(default=None, init=False)
    measurements: list[Measurement] = field(default_factory=list[Measurement], init=False)
    _run: Run | None = field(default=None, init=False)
    _store: RunFolder | None = field(default=None, init=False)
    _boot_id: str = field(default="", init=False)
    _boot: int = field(default=1, init=False)
    _facts: BoardFacts | None = field(default=None, init=False)
    # Folders whose runs were read for their history: by series, the rows of `_of_folders`.
    _folders: dict[str, dict[Series, list[Row]]] = field(default_factory=dict[str, dict[Series, list[Row]]], init=False)
    _clock: HostClock = field(default_factory=HostClock, init=False)

    @contextmanager
    def measure(
        self,
        workload: BlockWorkload,
        *,
        repetition: int = 1,
        idle_s: float = IDLE_S,
        command: str | None = None,
        timeout_s: float = 0.0,
    ) -> Generator[Used]:
        """Measure the body, or a `command` of the board's shell, with the board's own marks if it has a mark line.

        What the body raises is the test's own, and nothing of it is stored then.

        A failure of the meter does not disturb the body: whoever reads the energy gets it.
        """
        meter, shell = self.target.meter, self.target.shell()
        assert meter is not None, "whoever has none does not measure"
        used = Used(workload.label)
        self._look(shell)
        guest_time = self.target.settings.guest_time
        number = len(self.measurements) + 1
        begin, end = onboard.start_mark(number), onboard.stop_mark(number)
        line = self.target.settings.mark_line
        by_board = command is not None and self.target.has_mark_line

        def rest(seconds: float) -> None:
            if guest_time and shell is not None:
                shell.run(("sleep", f"{seconds:g}"))
            else:
                self._clock.sleep(seconds)

        started_utc, seconds, lost = self._clock.utc(), 0.0, ""
        with lab.recorded_steps() as take_steps:
            with recorded(meter, rest) as recording:
                sent: list[Callable[[], None]] = []
                try:
                    rest(idle_s)
                    sent += [] if by_board else [self.target.mark(begin, shell)]
                except FsjouleError as error:
                    lost = error.what
                begun_s = self._clock.now_s()
                if command is not None:
                    used.result = self._run_on_board(
                        shell, command, (begin, end) if by_board else None, line, timeout_s
                    )
                yield used
                seconds = self._clock.now_s() - begun_s
                try:
                    sent += [] if lost or by_board else [self.target.mark(end, shell)]
                    for arrived in sent:
                        arrived()
                except FsjouleError as error:
                    lost = error.what
            steps = take_steps()
        facts = WorkFacts(
            trace=recording.trace,
            marks=(line.heard_as(begin), line.heard_as(end))
            if by_board or not self.target.marked_by_host
            else (begin, end),
            idle_s=idle_s,
        )
        facts.attachments |= {STEPS_FILE: encode_steps(steps)} if steps else {}
        facts.notes += [recording.note] if recording.note else []
        if self.profiler is not None:
            attach_profile(self.profiler, facts)
        facts.complaints += [lost] if lost and not recording.note else []
        if facts.trace is None and not guest_time:
            facts.duration_s = seconds
        try:
            self._look(self.target.shell())  # the block may have booted the board
            used.measurement = self._stored(workload, repetition, facts, started_utc)
        except FsjouleError as error:
            used.fault = error

    @staticmethod
    def _run_on_board(
        shell: ActiveShell | None, command: str, marks: tuple[str, str] | None, line: MarkLine, timeout_s: float
    ) -> CommandResult:
        """Raises LabError without an open shell."""
        if shell is None:
            raise LabError("the board has no open shell to run a command in", hint="bring it to its shell before")
        if marks is None:
            return shell.plainly(command, timeout_s)
        return shell.marked(line, marks[0], command, marks[1], timeout_s)

    def close(self, reason: str | None = None) -> None:
        """End the run, aborted for a `reason`. Its page takes seconds: `fsjoule report` makes it."""
        if self._store is None or self._run is None:
            return
        if self.profiler is not None and (shell := self.target.shell()) is not None:
            keep_symbols(cast("Shell", shell), self._boot, self._store)
        run = replace(
            self._run,
            status=RunStatus.ABORTED if reason else RunStatus.COMPLETE,
            abort_reason=reason,
            finished_utc=self._clock.utc(),
        )
        self._store.finish(run)

    def history(self, series: Series, location: str, since_utc: str | None = None) -> BlockHistory:
        """What earlier runs have of a series: below a folder, or in an index (a file or a server's URL).

        Boots of the branch that a merge request is for, if the CI names it. A change to less energy begins a new level.
        One to more does not, for runs that failed are recorded, too: `since_utc` begins the history where somebody has
        accepted it. Raises as reading an index does.
        """
        branch = next(filter(None, map(os.environ.get, _BRANCH)), None)
        level = lowest_level(self._runs_of(series, location, branch, since_utc))
        return BlockHistory(tuple(figure for boots in level for figure in boots), len(level))

    def _runs_of(
        self, series: Series, location: str, branch: str | None, since_utc: str | None
    ) -> list[tuple[float, ...]]:
        """The figures of boots, run by run, oldest first."""
        own = self._run.run_id if self._run else ""
        found: dict[str, list[tuple[int, float | None]]] = {}
        if Path(location).is_dir():
            if location not in self._folders:
                self._folders[location] = _of_folders(self.suite, Path(location), branch, since_utc)
            rows = self._folders[location].get(series, [])
        else:
            rows = _of_index(series, location, branch, since_utc)
        for run_id, boot, figure in rows:
            if run_id != own:
                found.setdefault(run_id, []).append((boot, figure))
        boots = [tuple(each for each in one_per_boot(rows) if _usable(each)) for rows in found.values()]
        return [tuple(float(each) for each in run if each is not None) for run in boots if run][-_MOST_RUNS:]

    def _look(self, shell: ActiveShell | None) -> None:
        """Count boots, and learn the board's facts from the first one that has a shell."""
        if shell is None:
            return
        said = shell.run(_BOOT_ID)
        boot_id = said.stdout.strip() if said.exit_code == 0 else ""
        if boot_id == self._boot_id and self._facts is not None:
            return
        self._boot += self._facts is not None
        self._boot_id = boot_id
        if self.profiler is not None:
            self.profiler.count_next()  # the test may switch the board off and on
        self._facts = lab.board_facts(shell, self.target.settings.board, "")

    def _stored(self, workload: BlockWorkload, repetition: int, facts: WorkFacts, started_utc: str) -> Measurement:
        settings, board = self.target.settings, self._facts
        kernel = board.kernel_release if board else _UNKNOWN
        entry = Planned(
            number=len(self.measurements) + 1,
            repetition=repetition,
            kernel=kernel or _UNKNOWN,
            filesystem=(board.root_filesystem if board else "") or _UNKNOWN,
            workload=workload,
            suite=self.suite,
            provision=Provision.ROOT,
        )
        run, store = self._opened(entry)
        run = replace(run, meter=meter_of(run.meter, facts.trace), plan=_grown(run.plan, entry))
        if board is not None and entry.kernel not in run.boards:
            run = replace(
                run,
                boards={**run.boards, entry.kernel: board},
                kernels=(*run.kernels, KernelFacts(entry.kernel, entry.kernel, KernelOrigin.BOARD, kernel, "")),
            )
        profile = BoardProfile(
            name=settings.board,
            recipe="",
            simulated=settings.simulated,
            mark_device=settings.mark_device,
            card_device="",
            scratch_device="",
            purge=False,
            size_factor=1.0,
            window_excess_s=_WINDOW_EXCESS_S,
            guest_time=settings.guest_time,
        )
        measurement = judge(
            entry,
            facts,
            profile=profile,
            boot=self._boot,
            storage=_UNKNOWN,
            card=NO_IMAGE,
            started_utc=started_utc,
        )
        store.update(run)
        store.add(measurement, facts.trace, facts.attachments)
        self._run = run
        self.measurements.append(measurement)
        return measurement

    def _opened(self, entry: Planned) -> tuple[Run, RunFolder]:
        """The run and its folder, which the first block makes. Raises StorageError."""
        if self._run is not None and self._store is not None:
            return self._run, self._store
        settings = self.target.settings
        run = Run(
            run_id=secrets.token_hex(_RUN_ID_BYTES),
            started_utc=self._clock.utc(),
            status=RunStatus.RUNNING,
            simulated=settings.simulated,
            plan=_grown(None, entry),
            lab=lab.lab_facts(self.target.target),
            job=lava_job(),
            versions=versions(None) | revision(),
            command=self.command,
        )
        store = RunFolder(self.results, board=settings.board)
        store.begin(run)
        self._run, self._store, self.folder = run, store, store.path
        return run, store


def lowest_level(runs: Sequence[tuple[float, ...]]) -> Sequence[tuple[float, ...]]:
    """The neighbouring runs of the level with the least energy; a run has a figure of each of its boots."""
    figures = [statistics.median(boots) for boots in runs]
    if not figures:
        return ()
    from fsjoule.statistics.finder import RupturesFinder  # noqa: PLC0415 - takes a second to import

    nominations = nominate(figures, RupturesFinder(), more_is_better=False).nominations
    starts = [0, *(each.index for each in nominations)]
    medians = [statistics.median(figures[a:b]) for a, b in zip(starts, [*starts[1:], None], strict=True)]
    lowest = medians.index(min(medians))
    return runs[starts[lowest] : [*starts[1:], None][lowest]]


def _grown(plan: Plan | None, entry: Planned) -> Plan:
    """The plan with one more entry: tests decide as they go."""
    before = plan.entries if plan else ()
    entries = (*(each for each in before if each.number != entry.number), entry)
    return Plan(
        suite=entry.suite,
        filesystems=tuple(dict.fromkeys(each.filesystem for each in entries)),
        kernels=tuple(dict.fromkeys(each.kernel for each in entries)),
        repeat=max(each.repetition for each in entries),
        seed=0,
        size_factors={},
        entries=entries,
    )


def _of_index(series: Series, location: str, branch: str | None, since_utc: str | None) -> list[Row]:
    """Valid measurements of a series in an index, oldest run first. An index that is not there yet has none."""
    if "://" not in location and not Path(location).exists():
        return []
    # An index's library takes as long to import as a block takes, and folders need none.
    from fsjoule.model.series import Where  # noqa: PLC0415
    from fsjoule.store.index.database import open_index  # noqa: PLC0415
    from fsjoule.store.index.queries import points  # noqa: PLC0415

    with open_index(location) as index:
        where = Where(series=(series.key,), branches=(branch,) if branch else (), since_utc=since_utc)
        metric = Metric.OPERATION_ENERGY
        several = points(index, where, metrics=(metric,), at_most=_MOST_RUNS * 10).values()
        return [(each.run_id, each.boot, each.figures.get(metric)) for group in several for each in group]


def _of_folders(suite: str, folder: Path, branch: str | None, since_utc: str | None) -> dict[Series, list[Row]]:
    """Valid measurements of a suite's newest runs below a folder by series, oldest run first."""
    runs: list[tuple[str, Path]] = []
    for path in runs_below([folder])[0]:
        try:
            run = load_run_file(path)
        except ResultError as error:
            _log.warning("%s is left out of the history: %s", path, error.what)
            continue
        ours = run.plan.suite == suite and branch in {None, run.versions.get("branch")}
        if ours and (since_utc is None or utc(run.started_utc) >= since_utc):
            runs.append((run.started_utc, path))
    rows: dict[Series, list[Row]] = {}
    for _, path in sorted(runs)[-_MOST_RUNS:]:
        for series, point in points_of(load_run(path)).points:
            if point.valid:
                figure = point.figures.get(Metric.OPERATION_ENERGY)
                rows.setdefault(series, []).append((point.run_id, point.boot, figure))
    return rows


def energies_of(measurements: Sequence[Measurement]) -> list[tuple[int, float]]:
    """Boot and energy in mJ of each valid measurement that has one."""
    rows = [(each.boot, figure_of(each, Metric.OPERATION_ENERGY)) for each in measurements if each.valid]
    return [(boot, each) for boot, each in rows if each is not None and _usable(each)]


def _usable(figure: float | None) -> bool:
    return figure is not None and math.isfinite(figure) and figure > 0
