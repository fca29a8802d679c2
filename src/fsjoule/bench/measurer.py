"""One measurement on a booted board: provision, arm the meter, work, disarm. `judge` does the rest."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final
from uuid import UUID, uuid5

from fsjoule.bench import board_state, data_image, fio, kernel_log
from fsjoule.bench.aged import SECTOR_BYTES, AgedImages, Ageing, Place
from fsjoule.bench.emmc import Emmcs
from fsjoule.bench.events import attach_events, begin_events
from fsjoule.bench.judge import WorkFacts
from fsjoule.bench.kernel_log import Level, MessageSubject
from fsjoule.bench.media import counter_files
from fsjoule.bench.onboard import files as onboard_files
from fsjoule.bench.onboard import marks as onboard
from fsjoule.bench.onboard import state as onboard_state
from fsjoule.bench.phases import Phases
from fsjoule.bench.profiles import (
    START_S,
    attach_counts,
    attach_samples,
    check_counting,
    check_sampling,
    under_perf,
)
from fsjoule.bench.scratch import (
    SCRATCH_DIRECTORY,
    Scratch,
    Step,
    attach,
    checked,
    filesystem_step,
    lab_step,
    last_words,
    perform,
    provisioning,
    refusal,
    scratch_node,
    settling,
    takes_discards,
)
from fsjoule.bench.timed import TimedWork
from fsjoule.errors import BoardError, MeasurementInvalid, MeterError, NoMeterError, also
from fsjoule.filesystems import filesystem
from fsjoule.images.partition_table import is_of_a_card
from fsjoule.layers import stack
from fsjoule.meter.protocol.trace_builder import ANOTHER_STREAM
from fsjoule.model import (
    CARD,
    MIB,
    AgeFacts,
    BoardProfile,
    FioWorkload,
    Planned,
    Provision,
    Reach,
    TimedWorkload,
    Trace,
)
from fsjoule.model.board_state import StatePolicy
from fsjoule.model.emmc import WITHOUT_CACHE, storage_setting
from fsjoule.model.filesystem import Filesystem, content_of
from fsjoule.model.layer import base_of, device_of, stack_of
from fsjoule.model.medium import Medium
from fsjoule.ports import Clock, Command, CommandResult, Meter, Shell

_log: Final = logging.getLogger(__name__)

IDLE_S: Final = 1.0
NO_ENERGY: Final = "no energy: "
_TAIL_S: Final = 0.1  # lets the frame with the samples after the stop mark arrive
_SLOWEST_BYTES_PER_S: Final = 0.1 * MIB
_ID_BYTES: Final = 24
_SEEDING_TIMEOUT_S: Final = 120.0
_LOOK_S: Final = 5.0  # at a board that has to cool down
_LEFT_BEHIND: Final = (
    *(onboard.RESULT, onboard.BEFORE, onboard.AFTER, onboard.DURATION),
    *(onboard.THREADS_BEFORE, onboard.THREADS_AFTER),
)
_INSTALLER: Final = f"{onboard.DIRECTORY}/install"
_END: Final = "end-of-fsjoule-script"
# A folder that takes its filesystem's place is mounted there, too.
_TWICE: Final = ("sh", "-c", '"$@" && "$@"', "sh")
_SHORT_SCRATCH: Final = "fsjoule-scratch"
_UUIDS: Final = UUID("6d6a6f75-6c65-4000-8000-66736a6f756c")


@dataclass
class MeterTrace:
    """The meter's trace, or a note why there is none."""

    trace: Trace | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class _LaidOut:
    """Files on the board that nothing has written to since they were laid out: for which readers, and where."""

    readers: tuple[object, ...] | None
    size_bytes: int
    directory: str


def lost_energy(notes: Iterable[str]) -> str:
    """Why a measurement has no energy, by its notes; empty if it has energy."""
    return next((note.removeprefix(NO_ENERGY) for note in notes if note.startswith(NO_ENERGY)), "")


@contextmanager
def recorded(meter: Meter, rest: Callable[[float], None]) -> Generator[MeterTrace]:
    """Record the meter around a body. A silent meter costs the energy, not the measurement.

    Raises MeterError, transient, if the meter restarted meanwhile: it may be another meter, and has lost the marks.
    `rest` lets seconds pass while the board is idle; it is not called after a body that failed.
    """
    recording = MeterTrace()

    def failed(error: MeterError) -> None:
        recording.note = f"{NO_ENERGY}{error.what}"
        if not isinstance(error, NoMeterError):  # which was said once, before the first
            _log.info("%s", recording.note)

    try:
        meter.arm()
    except MeterError as error:
        failed(error)
    try:
        yield recording
    except BaseException as error:
        if not recording.note:
            with also(error, "ending the meter's recording"):
                meter.disarm()
        raise
    if not recording.note:
        rest(_TAIL_S)
        try:
            recording.trace = meter.disarm()
        except MeterError as error:
            failed(error)
        else:
            if ANOTHER_STREAM in recording.trace.faults:
                raise MeterError("the meter started anew while it was recording", transient=True)


@dataclass
class Measurer:
    """Measures on one boot of a board; `storage_model` is the reported name of the device under test ("": card).

    With `sampled` perf takes samples of the work instead of the meter, with `traced` the kernel's events are kept. With
    `counted` perf counts instructions.
    `boot_log` has what the kernel has said of itself in this boot; `damaged` says that one of the measurements was too
    much for it.
    """

    shell: Shell
    meter: Meter
    clock: Clock
    profile: BoardProfile
    seed: int
    phases: Phases
    sampled: bool = False
    traced: bool = False
    counted: bool = False
    images: AgedImages | None = None
    scratch: Scratch = field(init=False)
    ageing: Ageing = field(init=False)
    storage_model: str = field(default="", init=False)
    emmcs: Emmcs = field(init=False)
    boot_log: str = field(default="", init=False)
    damaged: bool = field(default=False, init=False)
    _storage: str = field(default="", init=False)
    _stale: bool = field(default=True, init=False)
    _counters: tuple[str, ...] = field(init=False)
    _card_seen: bool = field(default=False, init=False)
    _attached: dict[str, str] = field(default_factory=dict[str, str], init=False)
    _loaded: set[str] = field(default_factory=set[str], init=False)
    _installed: dict[str, bytes] = field(default_factory=dict[str, bytes], init=False)
    _measured: str = field(default="", init=False)
    _made: int = field(default=0, init=False)
    _laid_out: _LaidOut | None = field(default=None, init=False)
    _events: tuple[str, ...] = field(default=(), init=False)
    _state_before: onboard_state.StateReading | None = field(default=None, init=False)
    _numbers: dict[int, int] = field(default_factory=dict[int, int], init=False)

    def __post_init__(self) -> None:
        self._counters = counter_files(self.profile.card_device, Medium.BLOCK)
        self.ageing = Ageing(self.shell, self.install, self.images)
        self.scratch = Scratch(self.shell, self._card_scratch, self.profile.purge, self._identity, self.ageing)
        self.emmcs = Emmcs(self.shell)
        steps = [
            # Until the kernel's random numbers are seeded, mkfs waits a second per UUID.
            lab_step("dd", "if=/dev/random", "of=/dev/null", "bs=1", "count=1", timeout_s=_SEEDING_TIMEOUT_S),
            lab_step("rm", "-rf", onboard.DIRECTORY),
            lab_step("mkdir", "-p", onboard.DIRECTORY),
            lab_step("mkfifo", onboard.GATE),
            lab_step("sh", "-c", f"{kernel_log.grep_command((MessageSubject.KERNEL,), Level)} || true"),
        ]
        self.boot_log = perform(self.shell, steps)[-1].stdout
        if self.profile.scratch_bytes:
            self._shorten_scratch()
        if policy := self.profile.state_policy:
            self._set_governor(policy.governor)
        if self.sampled:
            check_sampling(self.shell)
        self._events = check_counting(self.shell) if self.counted else ()

    def _shorten_scratch(self) -> None:
        """Take the begin of the scratch partition, through dm-linear: its partition table stays as it is."""
        self.shell.run(("modprobe", "dm-mod"))
        sectors = self.profile.scratch_bytes // SECTOR_BYTES
        table = f"0 {sectors} linear {self.profile.scratch_device} 0"
        checked(self.shell, "dmsetup", "create", "--verifyudev", _SHORT_SCRATCH, "--table", table)

    @property
    def _card_scratch(self) -> str:
        return f"/dev/mapper/{_SHORT_SCRATCH}" if self.profile.scratch_bytes else self.profile.scratch_device

    def turn_to(self, name: str, programs: Mapping[str, bytes] | None = None) -> None:
        """Measure on this storage device of the board from now on, with its layers; bring it up at its first use.

        `programs` are installed in the same upload. Raises LabError if the board does not have the device, or not the
        cache without which it is to be measured, and MeasurementInvalid if it refuses a layer.
        """
        programs = programs or {}
        if name == self._storage and not self._stale:
            self.install(programs)
            return
        self._storage, self._stale = name, True
        self.scratch.unmount()
        self.emmcs.restore()
        device, layers = device_of(name), stack(stack_of(name))
        if device == CARD:
            self._check_card()
            self._counters = counter_files(self.profile.card_device, Medium.BLOCK)
            scratch, disk, self.storage_model = self._card_scratch, self.profile.card_device, ""
            purge = self.profile.purge
        else:
            storage = self.profile.storages[device]
            if device not in self._attached:
                self._attached[device] = attach(self.shell, device, storage)
            self._counters, scratch = counter_files(storage.device, storage.medium), scratch_node(storage)
            disk, self.storage_model = storage.device, self._attached[device]
            purge = self.profile.purge and takes_discards(self.shell, storage)
        if self.storage_setting:
            self.emmcs.without_cache(device, disk)
        elif device not in self.emmcs.seen and not self.profile.guest_time:  # an emulated card does not wear
            self.emmcs.look(device, disk)
        self.load_modules(*layers.modules)
        self.scratch.purge = purge
        self.scratch.set_up(layers, scratch, disk)
        self._stale = False
        scripts = onboard.scripts(
            mark_line=self.profile.mark_line,
            counters=self._counters,
            uptime=self.sampled,
            traced=self.traced,
            events=self._events,
        )
        scripts |= {onboard_state.SCRIPT: onboard_state.TEXT.encode()} if self._reads_state else {}
        self.install({**scripts, onboard_files.SCRIPT: onboard_files.TEXT.encode(), **programs})

    @property
    def storage_setting(self) -> str:
        """What the name of the device under test ends with in series."""
        return WITHOUT_CACHE if storage_setting(base_of(self._storage))[1] else ""

    def _check_card(self) -> None:
        """Raise BoardError if this kernel gives the card's name to another disk, whose data would be overwritten.

        A disk that cannot be read is left to whoever uses it.
        """
        if self._card_seen or self.profile.reach is not Reach.CARD:
            return
        disk = f"/dev/{self.profile.card_device}"
        read = "; ".join(f"dd if={disk} bs=8 skip={at} count={count} 2>/dev/null" for at, count in ((55, 1), (71, 2)))
        dump = self.shell.run(("sh", "-c", f"({read}) | od -An -v -tx1")).stdout.split()
        self._card_seen = True
        if len(dump) == _ID_BYTES:
            identity = bytes.fromhex("".join(dump))
            if not is_of_a_card(identity[:4], identity[8:]):
                raise BoardError(
                    f"{disk} is not the card that fsjoule has written: nothing was written to it",
                    transient=False,
                    hint="this kernel numbers the board's disks otherwise: lsblk on the board shows them, and the "
                    "environment file names the card's (card_device, scratch_device)",
                )

    def job(self, entry: Planned, workload: FioWorkload, files_bytes: int) -> WorkFacts:
        """Run an entry's fio job. The evidence has fio's errors, and those of making the filesystem.

        If it reads, files of `files_bytes` are laid out, unless it may take those that the job before has read.
        """
        files, there = _LaidOut(entry.files_read, files_bytes, ""), self._laid_out
        if there and there.readers == files.readers and workload.reads_files_of(there.size_bytes):
            files = there
        return self.around(entry, lambda kind: self._fio(entry, kind, workload, files))

    def numbered(self, entry: Planned) -> int:
        """The number in an entry's marks: in guest time the one within this boot.

        The plan's number is another one for each kernel, and another word costs the board other instructions.
        """
        if not self.profile.guest_time:
            return entry.number
        return self._numbers.setdefault(entry.number, len(self._numbers) + 1)

    def operation(self, entry: Planned, workload: TimedWorkload) -> WorkFacts:
        """Do an entry's timed operation. The evidence has its errors, as with `job`."""

        def work(kind: Filesystem) -> WorkFacts:
            return self._timed(self.numbered(entry), TimedWork(self.scratch, kind, workload, self._identity))

        return self.around(entry, work)

    def around(self, entry: Planned, work: Callable[[Filesystem], WorkFacts]) -> WorkFacts:
        """Do an entry's work with its modules loaded, and keep the kernel's log. Raises LabError."""
        kind = self.kind_of(entry)
        # Parts share names of workloads, and workloads of one part can differ in size only.
        self._measured, self._made = f"{entry.suite} {entry.slug} {entry.workload.size_bytes}", 0
        self._state_before = None
        self.forget_files()
        self.load_modules(*kind.modules)
        try:
            with self.phases("provisioning"):
                self.turn_to(entry.storage)
                self.clear_kernel_log(lab_step("rm", "-f", *_LEFT_BEHIND))
            evidence = work(kind)
        except MeasurementInvalid as error:
            evidence = WorkFacts(trace=None, marks=("", ""), idle_s=IDLE_S, complaints=list(error.reasons))
            self.ageing.facts = None  # they may be those of the filesystem before
        # The next measurement sets the layers up anew.
        self._stale |= bool(evidence.complaints and self.scratch.stack.layers)
        if kind.age and self.ageing.facts:
            evidence.aged = self.ageing.facts
            evidence.notes.insert(0, evidence.aged.text)
        evidence.notes += self.emmcs.notes(device_of(entry.storage))
        if not evidence.board_lost:
            with self.phases("reading"):
                evidence.complaints += self.emmcs.complaints()
                evidence.boot_log, evidence.kernel_log = self.boot_log, self.kernel_log()
                evidence.notes += [f"ciphers and checksums: {found}"] if (found := self.scratch.drivers()) else []
                evidence.image_bytes = data_image.image_bytes(self.shell) if kind.read_only else None
            said = [
                each for each in kernel_log.messages(evidence.kernel_log) if each.kind.part is MessageSubject.KERNEL
            ]
            self.boot_log += "".join(f"{each.line}\n" for each in said)
            self.damaged |= kernel_log.is_damaged(said)
        return evidence

    def aged(self, entry: Planned) -> tuple[Place, AgeFacts]:
        """Make an entry's aged filesystem, and leave it. Raises MeasurementInvalid if it cannot be aged, LabError."""
        kind = self.kind_of(entry)
        self._measured, self._made = f"aged {content_of(entry.filesystem)}", 0
        self.load_modules(*kind.modules)
        self.turn_to(entry.storage)
        perform(self.shell, self.scratch.making(kind))
        place = self.ageing.age(self.scratch, kind)
        assert place is not None
        assert self.ageing.facts is not None
        return place, self.ageing.facts

    @staticmethod
    def kind_of(entry: Planned) -> Filesystem:
        """The filesystem of an entry, made as the layers below or in it need."""
        layers = stack(stack_of(entry.storage))
        kind = filesystem(layers.made_on(entry.filesystem))
        return replace(kind, unmount=(*_TWICE, *kind.unmount)) if layers.on_directory else kind

    def forget_files(self) -> None:
        """Lay files out anew next time: something else is going to be done on the board."""
        self._laid_out = None

    def install(self, programs: Mapping[str, bytes]) -> None:
        """Put missing scripts into the board's memory, all at once: each line on a console takes 0.1 s or more."""
        missing = {path: text for path, text in programs.items() if self._installed.get(path) != text}
        if missing:
            unpacking = (
                f"cat > {path} <<'{_END}'\n".encode() + text + f"{_END}\nchmod +x {path}\n".encode()
                for path, text in missing.items()
            )
            self.shell.put(_INSTALLER, b"".join(unpacking))
            checked(self.shell, "sh", "-e", _INSTALLER)
            self._installed |= missing

    def _identity(self) -> UUID | None:
        """In guest time each filesystem's UUID is the same in every run and with every kernel.

        No two filesystems of a boot share a UUID: a journal that mkfs does not overwrite could be taken for the new
        filesystem's.
        """
        self._made += 1
        return uuid5(_UUIDS, f"{self.seed} {self._measured} {self._made}") if self.profile.guest_time else None

    def load_modules(self, *names: str) -> None:
        """Load modules before the first mount, which would take longer; missing ones may be built in."""
        with self.phases("provisioning"):
            # In their order, or a board in guest time would do something else in each process of Python.
            for module in (each for each in dict.fromkeys(names) if each not in self._loaded):
                self.shell.run(("modprobe", module))
                self._loaded.add(module)

    def kernel_log(self) -> str:
        """The kernel's messages since the start of this measurement, or since the boot."""
        return checked(self.shell, "dmesg").stdout

    def clear_kernel_log(self, *before: Step) -> None:
        """Do the steps `before`, and clear the log."""
        *done, last = self.shell.run_all([*(each.command for each in before), Command(("dmesg", "-C"))])
        if len(done) < len(before):
            raise before[len(done)].error(last)
        if last.exit_code != 0:
            checked(self.shell, "dmesg", "-c")  # busybox's dmesg, which also prints it

    def rest(self, seconds: float) -> None:
        """Let time pass while the board is idle."""
        if self.profile.guest_time:
            checked(self.shell, "sleep", f"{seconds:g}")
        else:
            self.clock.sleep(seconds)

    def counters(self) -> str:
        """The CPU's and the device's counters, in the form that `onboard.usage` reads."""
        return self.shell.run(onboard.counters_argv(self._counters)).stdout

    def _fio(self, entry: Planned, kind: Filesystem, workload: FioWorkload, files: _LaidOut) -> WorkFacts:
        limit_s = (
            60.0
            + max(each.runtime_s for each in workload.together)
            + workload.moved_bytes / _SLOWEST_BYTES_PER_S
            + 2 * workload.paced_s
        )
        with self.phases("provisioning"):
            files = self._with_files(entry, kind, workload, files, limit_s)
        number, threads = self.numbered(entry), "threads" if workload.kernel_threads else ""
        argv = fio.run_argv(
            workload,
            files.directory,
            output=onboard.RESULT,
            before=f"{onboard.START} {number} {workload.programs} {threads}".rstrip(),
            after="" if workload.programs > 1 else f"{onboard.STOP} {number} {threads}".rstrip(),
            seed=self.seed,
        )
        if workload.programs > 1:
            argv = (onboard.JOBS, str(number), threads, *argv)
        more = (onboard.THREADS_BEFORE, onboard.THREADS_AFTER) if workload.kernel_threads else ()
        evidence, done, contents = self._work(
            number, argv, phase="fio", timeout_s=limit_s, read=(onboard.RESULT, *more)
        )
        if done.exit_code:
            told = done.stdout.strip()[-300:]
            evidence.complaints.insert(0, f"`{done.argv[0]}` ended with exit code {done.exit_code}: {told}")
        text, *readings = contents
        if readings:
            evidence.kernel_threads_s = onboard.kernel_threads_s(*map(_decoded, readings))
        evidence.attachments["fio.json"] = text
        try:
            evidence.fio = fio.parse(text.decode(errors="replace"), argv)
        except MeasurementInvalid as error:
            evidence.complaints += error.reasons
        else:
            evidence.complaints += fio.complaints(evidence.fio)
            evidence.duration_s = evidence.fio.runtime_ns / 1e9
            evidence.moved_bytes = evidence.fio.io_bytes
        if workload.only_reads and not evidence.complaints:
            self._laid_out = files
        return evidence

    def _with_files(
        self, entry: Planned, kind: Filesystem, workload: FioWorkload, files: _LaidOut, limit_s: float
    ) -> _LaidOut:
        """Provide the filesystem with the files that the workload needs, and empty caches.

        Files that are there are touched, or `relatime` would let their first reader alone write their time of access.
        """
        if files.directory:
            steps = (
                [] if kind.raw or kind.read_only else [lab_step("sh", "-c", f"touch {shlex.quote(files.directory)}/*")]
            )
        elif kind.read_only:
            # An image is made of its files: they are laid out before it is there.
            argv = fio.layout_argv(replace(workload, size_bytes=files.size_bytes), data_image.FOLDER)
            layout = filesystem_step(*argv, timeout_s=limit_s)
            steps = self.scratch.making(kind, [layout], workload.space_bytes)
            steps += self.scratch.mounting(kind)
            files = replace(files, directory=SCRATCH_DIRECTORY)
        else:
            directory, steps = provisioning(self.scratch, kind, entry.provision)
            files = replace(files, directory=directory)
            if workload.reads:
                argv = fio.layout_argv(replace(workload, size_bytes=files.size_bytes), directory)
                steps.append(filesystem_step(*argv, timeout_s=limit_s))
        if workload.reads and entry.provision is Provision.SCRATCH:
            steps += self.scratch.forgetting(kind)
        self.settle(steps)
        return files

    @property
    def _reads_state(self) -> bool:
        """Whether the board's state is read. In guest time nothing changes by itself: only if a policy asks for it."""
        return self.profile.state_policy is not None or not self.profile.guest_time

    def settle(self, steps: Sequence[Step] = ()) -> None:
        """Do the steps and empty the caches, once the board is as its policy asks. Raises BoardError if it stays so."""
        if not self._reads_state:
            perform(self.shell, [*steps, *settling()])
            return
        policy, waited_s = self.profile.state_policy or StatePolicy(), 0.0
        while True:
            said = perform(self.shell, [*steps, *settling(), lab_step(onboard_state.SCRIPT)])[-1].stdout
            self._state_before = onboard_state.reading(said)
            state = self._state_before.state
            blind = policy.cool_below_c is not None and state.hottest_c is None  # no wait brings a thermometer
            unmet, left_s = board_state.unmet(state, policy), 0.0 if blind else policy.wait_s - waited_s
            if not unmet or (left_s <= 0 and policy.measure_anyway):
                return
            if left_s <= 0:
                hint = "cool the board, or change board_state in the environment file (wait_s, else: measure)"
                raise BoardError(f"{'; '.join(unmet)}: refused after {waited_s:g} s", transient=False, hint=hint)
            if waited_s % (6 * _LOOK_S) == 0:
                _log.info("%s: waiting for it, at most %g s more", "; ".join(unmet), left_s)
            pause_s = min(_LOOK_S, left_s)
            with self.phases("waiting"):
                self.rest(pause_s)
            steps, waited_s = (), waited_s + pause_s

    def _set_governor(self, governor: str) -> None:
        """Raises BoardError if the board does not take it; "" changes nothing."""
        if governor and (done := self.shell.run(onboard_state.governor_argv(governor))).exit_code != 0:
            there = ", ".join(sorted(set(done.stdout.split()))) or "no cpufreq"
            hint = "board_state in the environment file names it; the kernel needs its driver and the governor"
            what = f"the board does not take the governor {governor!r}: it has {there}"
            raise BoardError(what, transient=False, hint=hint)

    def _timed(self, number: int, work: TimedWork) -> WorkFacts:
        with self.phases("provisioning"):
            argv = work.prepare()
            self.settle()
        unmounts = work.unmounts_after
        evidence, done = self.timed(number, argv, unmounts=unmounts, time_limit_s=work.time_limit_s)
        if done.exit_code != 0:
            evidence.complaints.insert(0, refusal(replace(done, argv=argv), last_words(self.shell)))
        evidence.moved_bytes = work.workload.moved_bytes
        if not evidence.complaints:
            try:
                with self.phases("provisioning"):
                    evidence.space = work.space()
            except MeasurementInvalid as error:
                evidence.complaints += error.reasons
        return evidence

    def timed(
        self,
        number: int,
        argv: Sequence[str],
        *,
        unmounts: Sequence[str] = (),
        around: Sequence[str] = (),
        counted: bool = True,
        time_limit_s: float,
    ) -> tuple[WorkFacts, CommandResult]:
        """Run and time a program between two marks, and then `unmounts`. The caller judges its exit code.

        `around` is a program that runs all of this. With `counted` the board counts instructions, if it does so at all.
        """
        argv = (*around, onboard.TIMED, str(number), shlex.join(unmounts), *argv)
        evidence, done, [text] = self._work(
            *(number, argv), phase="timed", timeout_s=time_limit_s, read=(onboard.DURATION,), counted=counted
        )
        try:
            spent = onboard.spent(_decoded(text), unmounted=bool(unmounts))
        except MeasurementInvalid as error:
            evidence.complaints += error.reasons
        else:
            evidence.duration_s, evidence.unmount_s = spent.duration_s, spent.unmount_s
            evidence.user_s, evidence.sys_s = spent.user_s, spent.sys_s
        return evidence, done

    def _work(
        self,
        number: int,
        argv: tuple[str, ...],
        *,
        phase: str,
        timeout_s: float,
        read: tuple[str, ...],
        counted: bool = True,
    ) -> tuple[WorkFacts, CommandResult, list[bytes]]:
        """The evidence of a program's run, its end, and the contents of the files that it is to leave (`read`)."""
        counted &= bool(self._events)
        recording = MeterTrace()
        if self.traced:
            begin_events(self.shell)
        if self.sampled:
            with self.phases(phase):
                done = self.shell.run(under_perf(argv), timeout_s=timeout_s + START_S)
        else:
            program = (onboard.COUNTED, *argv) if counted else argv
            with recorded(self.meter, self.rest) as recording:
                with self.phases("idle"):
                    self.rest(IDLE_S)
                with self.phases(phase):
                    done = self.shell.run(program, timeout_s=timeout_s + START_S * counted)
                    done = replace(done, argv=argv)
        line = self.profile.mark_line
        marks = line.heard_as(onboard.start_mark(number)), line.heard_as(onboard.stop_mark(number))
        evidence = WorkFacts(trace=recording.trace, marks=marks, idle_s=IDLE_S)
        evidence.notes += [recording.note] if recording.note else []
        with self.phases("reading"):
            if self._state_before is not None:
                after = onboard_state.reading(checked(self.shell, onboard_state.SCRIPT).stdout)
                evidence.states, self._state_before = (self._state_before, after), None
            counts = (onboard.COUNTS,) * counted
            first, second, *contents = self.shell.get_all((onboard.BEFORE, onboard.AFTER, *counts, *read))
        if counted:
            attach_counts(evidence, _decoded(contents.pop(0)), in_guest_time=self.profile.guest_time)
        before, after = _decoded(first), _decoded(second)
        if self.traced:
            with self.phases("reading"):
                attach_events(self.shell, evidence)
        if self.sampled:
            attach_samples(self.shell, evidence, before, after)
        try:
            evidence.usage = onboard.usage(before, after)
        except MeasurementInvalid as error:
            evidence.complaints += error.reasons
        return evidence, done, contents


def _decoded(content: bytes) -> str:
    return content.decode(errors="replace")
