"""The use case: measure a plan on a board, entry by entry, and store each result at once."""

from __future__ import annotations

import dataclasses
import logging
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date
from typing import Final, Protocol

from fsjoule.bench.boots import BootKey, Boots, CurrentBoot, boot_key
from fsjoule.bench.crash.check import CrashWork, FlashWork
from fsjoule.bench.crash.shared import Claim, Share, SharedStates
from fsjoule.bench.crash.update import UpdateWork
from fsjoule.bench.damage import Flakey, PowerLoss
from fsjoule.bench.held import HeldWork
from fsjoule.bench.instrument import check_board, check_kernel, check_meter, meter_of
from fsjoule.bench.judge import WorkFacts, idle_window, judge
from fsjoule.bench.measurer import IDLE_S, lost_energy, recorded
from fsjoule.bench.onboard import marks as onboard
from fsjoule.bench.own_command import CommandWork
from fsjoule.bench.phases import Phases
from fsjoule.bench.power_on import Segments, cut, reached, sum_complaints, timed_lines
from fsjoule.bench.profiles import attach_count, attach_profile
from fsjoule.bench.scratch import working_directory
from fsjoule.bench.tries import Tries, fault_of
from fsjoule.errors import (
    BoardError,
    ConfigError,
    FsjouleError,
    InfrastructureError,
    LabError,
    MeasurementInvalid,
    MeterError,
    NoMeterError,
    Part,
    PlaceLostError,
    StorageError,
)
from fsjoule.filesystems import filesystem
from fsjoule.meter.energy.validity import tick_notes
from fsjoule.meter.links.notices import file_notices
from fsjoule.model import (
    MIB,
    BoardFacts,
    BoardProfile,
    HostLoad,
    LabStep,
    Measurement,
    MeterInfo,
    Plan,
    Planned,
    Provision,
    Run,
    RunStatus,
)
from fsjoule.model.emmc import EmmcFacts
from fsjoule.model.layer import in_series, stack_of
from fsjoule.model.medium import Medium
from fsjoule.model.workload import (
    BlockWorkload,
    CrashWorkload,
    FioWorkload,
    FlakeyWorkload,
    HeldWorkload,
    ImportedWorkload,
    PowerLossWorkload,
    TimedWorkload,
)
from fsjoule.ports import Board, Clock, LabHealth, Meter, Profiler, ResultStore, Shell
from fsjoule.store.schemas import STEPS_FILE, encode_steps
from fsjoule.suites import unpacked

_log: Final = logging.getLogger(__name__)

_ATTEMPTS: Final = 2
# The counters of CPU and block device at power-on.
_ZERO_COUNTERS: Final = f"cpu {'0 ' * 10}\nversion 15\ncpu0 {'0 ' * 9}\n{'0 ' * 17}\n"


class Bench(Protocol):
    """Measures the entries of a run's plan, and stores each measurement at once."""

    @property
    def run(self) -> Run: ...

    @property
    def plan(self) -> Plan: ...

    @property
    def phases(self) -> Phases: ...

    @property
    def results(self) -> Sequence[Measurement]: ...

    @property
    def failures_in_a_row(self) -> int: ...

    def begin(self) -> None:
        """Open the run's folder. Raises InstrumentError if a resumed run has another meter than before."""
        ...

    def release(self, repetition: int) -> None:
        """Let repetitions up to this one be measured ahead."""
        ...

    def measure(self, entry: Planned) -> Measurement:
        """The entry's measurement, valid or not, when it is stored. Raises InfrastructureError when the lab fails."""
        ...

    def finish(
        self,
        reason: str | None = None,
        *,
        expected: int | None = None,
        ended_early: str | None = None,
        plan: Plan | None = None,
    ) -> Run:
        """Switch the board off and close the run as complete, or as aborted for a reason.

        `expected` is the number of entries to be measured (default: all). `ended_early` says why a run with fewer is
        complete, `plan` is the plan as it was measured if fewer repetitions sufficed.
        """
        ...


@dataclass
class BoardBench:
    """A bench on one board. Call `begin`, `measure` for each entry, `finish`; the board is off after `finish`.

    If the board is taken away meanwhile (PlaceLostError), it is left as it is, and nothing more is measured.

    `last_fault` is the fault with which the last attempt ended, or switching the board off at the end; None if it went
    well. `kept` are the measurements of a resumed run: they are not repeated, but for those `again` whose boot is made
    again whole, and boots are numbered after theirs.
    `take_steps` gives the lab's steps since its last call, `health` knows the lab's dead parts. With a `profiler` each
    measurement has a profile, and the run the symbols of each boot; with a `counter` it has the number of instructions,
    which goes before that of the board's own processor.
    With `sampled` perf makes the profiles on the board, and no figure counts. With `claim` the board shares crash
    states with others.

    In guest time a figure depends to the digit on all that was done before in its boot. There a second try begins with
    the boot's first entry, and the entries after one that fails twice are not measured.
    """

    run: Run
    profile: BoardProfile
    board: Board
    meter: Meter
    store: ResultStore
    clock: Clock
    on_measured: Callable[[Measurement], None]
    kept: Sequence[Measurement] = ()
    again: frozenset[int] = frozenset()
    take_steps: Callable[[], tuple[LabStep, ...]] = tuple
    health: LabHealth | None = None
    profiler: Profiler | None = None
    counter: Profiler | None = None
    sampled: bool = False
    traced: bool = False
    claim: Callable[[Claim], Share] | None = None
    phases: Phases = field(init=False)
    results: list[Measurement] = field(init=False)
    failures_in_a_row: int = field(default=0, init=False)
    last_fault: InfrastructureError | None = field(default=None, init=False)
    _boots: Boots = field(init=False)
    _over: str | None = field(default=None, init=False)
    _asked_in: int = field(default=0, init=False)
    _lost: PlaceLostError | None = field(default=None, init=False)
    # The last boot that was cut into segments.
    _segments: tuple[CurrentBoot, WorkFacts, Segments | None] | None = field(default=None, init=False)
    _tries: Tries = field(init=False)
    # In guest time: what was measured since its boot began, and the boots that have failed.
    _made: list[Planned] = field(default_factory=list[Planned], init=False)
    _failed: dict[BootKey, InfrastructureError] = field(default_factory=dict[BootKey, InfrastructureError], init=False)
    # Cards that do not boot for good, by kernel, provision and root filesystem.
    _never: dict[tuple[str, Provision, str], BoardError] = field(
        default_factory=dict[tuple[str, Provision, str], BoardError], init=False
    )

    def __post_init__(self) -> None:
        self.phases = Phases(self.clock, dict(self.run.phases_s))
        self.results = list(self.kept)
        self._tries = Tries(self.store)
        for entry in self.plan.entries:
            if entry.number in self.again:
                boot = {each.number for each in self.plan.entries if boot_key(each) == boot_key(entry)}
                self._tries.again(boot_key(entry), [each.number for each in self.kept if each.number in boot])
        self._boots = Boots(
            board=self.board,
            meter=self.meter,
            store=self.store,
            clock=self.clock,
            profile=self.profile,
            profiler=self.profiler,
            seed=self.plan.seed,
            phases=self.phases,
            count=max((each.boot for each in self.kept), default=0),
            sampled=self.sampled,
            traced=self.traced,
            counted=self.profile.count_instructions and not (self.profiler or self.sampled or self.traced),
            entries=self.plan.entries,
        )

    @property
    def plan(self) -> Plan:
        return self.run.plan

    @property
    def boots(self) -> int:
        """How often the board has booted, in a resumed run from its begin."""
        return self._boots.count

    def begin(self) -> None:
        """Open the run's folder. Raises InstrumentError if a resumed run has another meter than before.

        The meter is asked before it records, because a meter that replaces it in the first measurement is another one.
        """
        now = self._ask_meter()
        if self.run.meter is None:
            self.run = dataclasses.replace(self.run, meter=now)
        elif now is not None:
            check_meter(self.run.meter, now)
        self.store.begin(self.run)

    def measure(self, entry: Planned) -> Measurement:
        """Measure and store one entry, booting as needed; a transient fault of the lab gets a second try.

        A card that does not boot for good is not booted again. A kept measurement is returned as it is. An invalid
        measurement is returned and stored like any other. Raises InfrastructureError when the lab or this computer
        fails, in guest time also for each entry that the boot still owed.
        """
        if (stored := self._kept_or_given_up(entry)) is not None:
            return stored
        before: list[Planned] = []
        for attempt in range(1, _ATTEMPTS + 1):
            started_utc = self.clock.utc()
            try:
                self.board.check_ours()
                for earlier in before:
                    self._measure(earlier)
                measurement = self._measure(entry)
            except Exception as error:
                self._check_lost(entry, started_utc, error)
                if isinstance(error, InfrastructureError):
                    self._take(error, entry)
                # Every error is noted, a bug too.
                self._note(entry, started_utc, error)
                if not isinstance(error, InfrastructureError):
                    raise
                self.failures_in_a_row += attempt == _ATTEMPTS or not error.transient
                self._over = error.what if error.ends_run else self._over
                # In guest time what was in the entry's boot must be measured before it once more.
                before = [each for each in self._made if boot_key(each) == boot_key(entry)]
                self._made = []
                self._tries.again(self._unit(entry))
                if not error.transient or attempt == _ATTEMPTS:
                    if self.profile.guest_time:
                        self._failed[boot_key(entry)] = error
                    raise
                whole = f", from the begin of the boot ({len(before)} before it)" if before else ""
                _log.info("%s: %s: trying again%s", entry.slug, error.what, whole)
            else:
                self.failures_in_a_row, self.last_fault = 0, None
                return measurement
        raise AssertionError("unreachable")

    def help(self, entry: Planned) -> None:
        """Check crash states of an entry that another board measures. Raises InfrastructureError."""
        assert isinstance(entry.workload, CrashWorkload), "only these are shared"
        started_utc = self.clock.utc()
        try:
            self.board.check_ours()
            self._measure_crash_states(entry, entry.workload, helps=True)
        except Exception as error:
            self._check_lost(entry, started_utc, error)
            if isinstance(error, InfrastructureError):
                self._take(error, entry)
            self._note(entry, started_utc, error)
            raise

    def _kept_or_given_up(self, entry: Planned) -> Measurement | None:
        """What a resumed run has of the entry. Raises InfrastructureError if its boot is known to fail."""
        for earlier in self.kept:
            if earlier.number == entry.number and earlier.number not in self.again:
                return earlier
        if (never := self._never.get(boot_key(entry)[1:])) is not None:
            self._boots.end_or_log()
            self._note(entry, self.clock.utc(), never)
            raise never
        if (failed := self._failed.get(boot_key(entry))) is not None:
            raise failed
        return None

    def _unit(self, entry: Planned) -> BootKey | int:
        """What is measured whole: in guest time a boot, else the entry alone."""
        return boot_key(entry) if self.profile.guest_time else entry.number

    def _take(self, error: InfrastructureError, entry: Planned) -> None:
        """Name what is dead in the lab, switch the board off, and decide what a second try is good for."""
        if isinstance(error, LabError):
            error.blame_lab(self._lab_faults())
        self.last_fault = error
        if self._boots.current is None and isinstance(error, BoardError) and not error.transient:
            self._never[boot_key(entry)[1:]] = error
        self._boots.end_or_log()
        if self._lab_faults():
            # What is dead with the board off stays dead: each further boot would wait for it again.
            error.transient, error.ends_run = False, True

    def _lab_faults(self) -> tuple[str, ...]:
        return () if self.health is None else self.health.faults()

    def booted(self, entry: Planned) -> Shell:
        """The shell of the board, booted for the entry if necessary."""
        booted = self._boots.boot_for(entry)
        booted.measurer.forget_files()
        return booted.transcript

    def provisioned(self, entry: Planned) -> str:
        """An empty directory of the board on the entry's filesystem, booted and provisioned as needed."""
        booted = self._boots.boot_for(entry)
        booted.measurer.forget_files()
        with self.phases("provisioning"):
            booted.measurer.turn_to(entry.storage)
            kind = booted.measurer.kind_of(entry)
            return working_directory(booted.measurer.scratch, kind, entry.provision)

    def failed_part(self, *, metered: bool) -> Part | None:
        """The part of the lab with whose fault the run has ended; None if it ended otherwise.

        A meter that is there (`metered`) has failed if each measurement lost its energy.
        """
        if self.last_fault is not None:
            return self.last_fault.part
        before = {id(each) for each in self.kept}
        measured = [each for each in self.results if id(each) not in before]
        return Part.METER if metered and measured and all(lost_energy(each.notes) for each in measured) else None

    def release(self, repetition: int) -> None:
        """Nothing is measured ahead."""

    def finish(
        self,
        reason: str | None = None,
        *,
        expected: int | None = None,
        ended_early: str | None = None,
        plan: Plan | None = None,
    ) -> Run:
        """See Bench."""
        due = len(self.plan.entries) if expected is None else expected
        reason = reason or self._over or not_taken(due, len(self.results), ended_early)
        self.run = dataclasses.replace(self.run, plan=plan or self.plan)
        try:
            if self._lost is None:
                if reason is None:  # else the board may be in the midst of something
                    self._boots.keep_symbols()
                    if (booted := self._boots.current) is not None:
                        booted.measurer.emmcs.look_again()
                        self._note_emmcs(booted)
                self._boots.end()
            else:
                reason = self._lost.what
        except FsjouleError as error:
            reason = reason or f"the board could not be switched off: {error.what}"
            self.last_fault = error if isinstance(error, InfrastructureError) else self.last_fault
        self.run = closed(self.run, reason, ended_early, self.clock.utc(), self.phases)
        self.store.finish(self.run)
        return self.run

    def _storage_in_series(self, name: str) -> str:
        """The device's name in series. An emulated one differs with its QEMU, as does all that it is measured on."""
        version = re.search(r"\d+\.\d+", self.run.versions.get("qemu", ""))
        return f"{name} (QEMU {version[0]})" if version else name

    def _card_in_series(self, name: str) -> str:
        """The card's name in series, with the part of it that is used."""
        part = f", {self.profile.scratch_bytes // MIB} MiB of it" if self.profile.scratch_bytes else ""
        return self._storage_in_series(name) + part

    def _measure(self, entry: Planned) -> Measurement:
        started_utc = self.clock.utc()
        booted, evidence = self._work(entry)
        facts = self._learn_facts(entry)
        meter = meter_of(self.run.meter, evidence.trace)  # raises InstrumentError if the trace is another meter's
        if meter != self.run.meter:  # it was silent until now
            self.run = dataclasses.replace(self.run, meter=meter)
            self.store.update(self.run)
        if evidence.trace is not None:
            evidence.notes += self._meter_notes(evidence.trace.info, facts)
        if self.profiler is not None:
            attach_profile(self.profiler, evidence)
        elif self.counter is not None:
            attach_count(self.counter, evidence)
        self._note_load(evidence)
        self._note_emmcs(booted)
        evidence.off_w = self._boots.off_w
        further = booted.measurer.storage_model
        measurement = judge(
            entry,
            evidence,
            profile=self.profile,
            boot=booted.number,
            storage=in_series(
                (self._storage_in_series(further) if further else self._card_in_series(facts.storage))
                + booted.measurer.storage_setting,
                stack_of(entry.storage),
            ),
            card=self.board.image(),
            started_utc=started_utc,
        )
        # A measurement is worthless if somebody else had the board meanwhile.
        self.board.check_ours()
        with self.phases("store"):
            attachments = {"console.log": booted.transcript.take(), **evidence.attachments}
            attachments["kernel.log"] = evidence.kernel_log.encode()
            if steps := self.take_steps():
                attachments[STEPS_FILE] = encode_steps(steps)
            withdrawn, new = self._tries.add(
                self._unit(entry), measurement, None if evidence.part else evidence.trace, attachments
            )
        if self.profile.guest_time:
            self._made.append(entry)
        self.results = [*(each for each in self.results if each.number not in withdrawn), *new]
        for each in new:
            self.on_measured(each)
        if evidence.board_lost:
            # The measurement is stored: a failure now is no reason to repeat it.
            self._boots.end_or_log()
        return measurement

    def _work(self, entry: Planned) -> tuple[CurrentBoot, WorkFacts]:
        """Do the entry's work; returns the boot that counts for it, and the evidence."""
        match entry.workload:
            case TimedWorkload() as workload if workload.is_boot:
                return self._measure_power_on(entry, workload) if workload.rules else self._measure_boot(entry)
            case PowerLossWorkload() | CrashWorkload() as workload:
                return self._measure_crashes(entry, workload)
            case FlakeyWorkload():
                booted = self._boots.boot_for(entry)
                # A board that panics over a damaged filesystem does not answer later.
                self._learn_facts(entry)
                return booted, Flakey(entry, entry.workload, booted.measurer.seed).measure(booted.measurer)
            case FioWorkload() as workload:
                booted = self._boots.boot_for(entry)
                return booted, booted.measurer.job(entry, workload, self.plan.files_bytes(entry, workload))
            case HeldWorkload() as workload:
                return self._measure_state(entry, HeldWork(entry, workload, unpacked(self.plan.files)))
            case ImportedWorkload() | BlockWorkload() as workload:
                raise ConfigError(f"{workload.slug} was measured by others: nothing here can repeat it")
            case TimedWorkload() as workload:
                booted = self._boots.boot_for(entry)
                if workload.command:
                    work = CommandWork(entry, workload, workload.command, unpacked(self.plan.files))
                    evidence = work.measure(booted.measurer)
                else:
                    evidence = booted.measurer.operation(entry, workload)
                return booted, evidence

    def _measure_state(self, entry: Planned, work: HeldWork) -> tuple[CurrentBoot, WorkFacts]:
        if entry.workload.is_off:
            return work.measure_off(self._boots)
        booted = self._boots.boot_for(entry)
        self._learn_facts(entry)  # a board that does not wake up does not answer later
        return booted, work.measure(booted.measurer)

    def _check_lost(self, entry: Planned, started_utc: str, error: Exception) -> None:
        """Raise PlaceLostError if the board was taken away, because that explains every other error."""
        if not isinstance(error, InfrastructureError) or isinstance(error, StorageError):
            return
        try:
            self.board.check_ours()
        except PlaceLostError as lost:
            self._lost, self._boots.current = lost, None
            self.last_fault = lost
            self._note(entry, started_utc, lost)
            raise lost from error
        except InfrastructureError:
            return  # the first error is the one to report

    def _note(self, entry: Planned, started_utc: str, error: Exception) -> None:
        fault = fault_of(error, entry, started_utc=started_utc, ended_utc=self.clock.utc(), steps=self.take_steps())
        self.run = dataclasses.replace(self.run, faults=(*self.run.faults, fault))
        try:
            self.store.update(self.run)
        except StorageError as full:
            _log.info("%s: the fault is not in the run folder: %s", entry.slug, full.what)

    def _learn_facts(self, entry: Planned) -> BoardFacts:
        """Record board, card and meter in each boot. Raises InfrastructureError for another kernel or board.

        All boots have the same questions behind them: none differs from the others by having been asked.
        """
        run, image = self.run, self.board.image()
        if self._boots.count != self._asked_in:
            board = self.board.facts()
            check_kernel(run, entry.kernel, board)
            if entry.kernel in run.boards:
                check_board(run.boards[entry.kernel], board)
            else:
                run = dataclasses.replace(
                    run, boards={**run.boards, entry.kernel: board}, meter=run.meter or self._ask_meter()
                )
                # Before hours are measured; each measurement has the note, too.
                for note in self._meter_notes(run.meter, board) if run.meter else ():
                    _log.warning("%s", note)
            self._asked_in = self._boots.count
        if image not in run.images:
            run = dataclasses.replace(run, images=(*run.images, image))
        if run is not self.run:
            self.run = run
            self.store.update(run)
        return run.boards[entry.kernel]

    def _meter_notes(self, meter: MeterInfo, board: BoardFacts) -> list[str]:
        today = date.fromisoformat(self.clock.utc()[: len("2026-01-01")])
        return [*tick_notes(meter, board.tick_hz), *file_notices(meter, today)]

    def _note_load(self, evidence: WorkFacts) -> None:
        """Record how busy the computer is. An emulated board in real time is slow on a busy one, and says so."""
        average, cores = self.clock.load()
        now = HostLoad(cores, average, average)
        self.run = dataclasses.replace(self.run, load=now if self.run.load is None else self.run.load.with_later(now))
        if now.is_busy and self.profile.simulated and not self.profile.guest_time:
            evidence.busy = f"the computer was busy: {now.text}"
            # Without the number, as one remark for all measurements.
            evidence.notes.append("the computer was busy: more processes wanted a processor than it has")

    def _note_emmcs(self, booted: CurrentBoot) -> None:
        """Record what the boot's eMMCs say of themselves; a run keeps the first and the last of it."""
        known, seen = self.run.emmcs, booted.measurer.emmcs.seen
        now = {name: EmmcFacts(known[name].before if name in known else last, last) for name, last in seen.items()}
        if any(known.get(name) != facts for name, facts in now.items()):
            self.run = dataclasses.replace(self.run, emmcs={**known, **now})
            self.store.update(self.run)

    def _ask_meter(self) -> MeterInfo | None:
        try:
            return self.meter.info()
        except NoMeterError:
            return None
        except MeterError as error:
            _log.info("%s", error.what)
            return None

    def _measure_boot(self, entry: Planned) -> tuple[CurrentBoot, WorkFacts]:
        self._boots.prepare(entry)
        with recorded(self.meter, self._boots.rest) as recording:
            booted = self._boots.boot(entry)
            with self.phases("idle"):
                self._boots.rest(IDLE_S)
        line = self.profile.mark_line
        marks = line.heard_as(onboard.BOOT_START), line.heard_as(onboard.BOOT_STOP)
        evidence = WorkFacts(trace=recording.trace, marks=marks, idle_s=IDLE_S, idle_after=True)
        evidence.notes.append("counters since power-on; idle power from the second after the boot")
        evidence.notes += [recording.note] if recording.note else []
        evidence.kernel_log = booted.measurer.kernel_log()
        try:
            evidence.usage = onboard.usage(_ZERO_COUNTERS, booted.measurer.counters())
        except MeasurementInvalid as error:
            evidence.complaints += error.reasons
        return booted, evidence

    def _measure_power_on(self, entry: Planned, workload: TimedWorkload) -> tuple[CurrentBoot, WorkFacts]:
        """A whole boot, or a segment of the one that was just measured; of a new one if there is none."""
        booted = self._boots.current
        if not workload.segment or booted is None or self._segments is None or self._segments[0] is not booted:
            try:
                booted, whole = self._measure_boot(entry)
            except BoardError as error:
                with suppress(LabError):
                    error.blame(filter(None, [reached(workload.rules, self.board.since_power_on())]))
                raise
            self._segments = booted, whole, self._cut(whole, workload)
        _, whole, segments = self._segments
        notes = [each for each in whole.notes if each.startswith("no energy")] if workload.segment else whole.notes
        evidence = WorkFacts(None, ("", ""), IDLE_S, idle_after=True, notes=[*notes], complaints=[*whole.complaints])
        evidence.part = bool(workload.segment)
        if not workload.segment:
            evidence.usage, evidence.kernel_log, evidence.attachments = whole.usage, whole.kernel_log, whole.attachments
            evidence.trace = whole.trace
        if segments is None:
            return booted, evidence
        if remark := segments.remark(workload.segment or workload.rules[0].name) if workload.segment else "":
            evidence.notes.append(remark)
        if not workload.segment or segments.has(workload.segment):
            evidence.trace = whole.trace
            evidence.window, evidence.late_s = segments.window(workload.segment)
        return booted, evidence

    def _cut(self, whole: WorkFacts, workload: TimedWorkload) -> Segments | None:
        """The segments of a boot; without them it has complaints."""
        with self.phases("reading"):
            told = self.board.since_power_on()
        whole.attachments["console-times.log"] = timed_lines(told)
        if whole.trace is None:
            whole.complaints.append("a boot is cut into segments in the meter's trace, and there is none")
            return None
        try:
            line, ours = self.profile.mark_line, (onboard.BOOT_START, onboard.BOOT_STOP)
            # Over a GPIO no other mark has a name.
            heard_as = {text: line.heard_as(text) for text in ours}
            segments = cut(workload.rules, told, whole.trace, heard_as)
            idle = idle_window(whole.trace, whole.idle_s, after=whole.idle_after)
            whole.complaints += sum_complaints(whole.trace, segments, idle)
        except MeasurementInvalid as error:
            whole.complaints += error.reasons
            return None
        return segments

    def _measure_crashes(
        self, entry: Planned, workload: PowerLossWorkload | CrashWorkload
    ) -> tuple[CurrentBoot, WorkFacts]:
        if isinstance(workload, PowerLossWorkload):
            return self._measure_power_loss(entry, PowerLoss.of(entry, workload, self.plan.seed))
        return self._measure_crash_states(entry, workload)

    def _measure_power_loss(self, entry: Planned, loss: PowerLoss) -> tuple[CurrentBoot, WorkFacts]:
        """Cut the power of a running board and boot it again; the next iteration begins on that boot.

        An iteration's boot is the one after its cut, even if the next iteration is another repetition.
        """
        booted = self._boots.current
        if booted is None or (booted.kernel, booted.provision) != (entry.kernel, entry.provision):
            booted = self._boots.boot_for(entry)
        self._learn_facts(entry)
        try:
            loss.begin(booted.measurer)
        except MeasurementInvalid as error:
            return booted, WorkFacts(trace=None, marks=("", ""), idle_s=IDLE_S, complaints=list(error.reasons))
        aged = booted.measurer.ageing.facts if loss.kind.age else None
        with self.phases("power-loss"):
            cut = self.board.cut(loss.cut_after_s, loss.seed)
        before = booted.transcript.take()
        self._boots.end()
        booted = self._boots.boot(entry)
        evidence = loss.recover(booted.measurer, cut)
        if aged:
            evidence.aged = aged
            evidence.notes.insert(0, aged.text)
        evidence.attachments["before-the-cut.log"] = before + cut.console.encode()
        return booted, evidence

    def _measure_crash_states(
        self, entry: Planned, workload: CrashWorkload, *, helps: bool = False
    ) -> tuple[CurrentBoot, WorkFacts]:
        """Record on a fresh boot, so that another boot can record the same, and check; boot again after a crash."""
        if workload.confirm:
            update = UpdateWork(entry, workload, unpacked(self.plan.files), self.plan.seed)
            return update.measure_card(self._boots, lambda: self._learn_facts(entry))
        kind = FlashWork if filesystem(entry.filesystem).medium is Medium.MTD else CrashWork
        alone = SharedStates(self.store, entry)
        claim = self.claim or alone.claim
        work = kind(entry, workload, unpacked(self.plan.files), self.plan.seed, claim, helps)
        while True:
            self._boots.prepare(entry)
            booted = self._boots.boot(entry)
            self._learn_facts(entry)
            try:
                evidence = work.measure(booted.measurer)
            except BoardError as error:
                if work.goes_on(error):
                    _log.info("%s: the board crashed, which is a finding: it is booted again", entry.slug)
                    continue
                evidence = work.ended(error)
            for info in work.meters:  # another meter than the run's ends the run
                check_meter(self.run.meter or info, info)
            alone.end()
            return booted, evidence


def not_taken(expected: int, taken: int, ended_early: str | None) -> str | None:
    """Why a run with fewer measurements than expected is not complete; None if it is."""
    missing = expected - taken
    return f"{missing} of {expected} measurements were not taken" if missing and ended_early is None else None


def closed(run: Run, reason: str | None, ended_early: str | None, utc: str, phases: Phases) -> Run:
    """The run as it ended: complete, or aborted for a reason."""
    return dataclasses.replace(
        run,
        status=RunStatus.ABORTED if reason else RunStatus.COMPLETE,
        abort_reason=reason,
        ended_early=None if reason else ended_early,
        finished_utc=utc,
        phases_s=dict(phases.spent_s),
    )
