"""One measurement of crash states: record a run on a fresh boot, then mount and check each state that it allows."""

from __future__ import annotations

import logging
import re
import time
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Final

from fsjoule.bench.crash import onboard
from fsjoule.bench.crash.shared import Claim, Share
from fsjoule.bench.judge import WorkFacts, idle_window
from fsjoule.bench.measurer import IDLE_S, NO_ENERGY, Measurer, MeterTrace, recorded
from fsjoule.bench.own_command import CommandWork
from fsjoule.bench.scratch import SCRATCH_DIRECTORY, attach, attempted, checked, scratch_node
from fsjoule.errors import BoardError, MeasurementInvalid
from fsjoule.layers import NOTHING
from fsjoule.meter.energy import energy
from fsjoule.model import KIB, MIB, CrashFacts, CrashFate, CrashWorkload, MeterInfo, Planned, Trace, Value, Window
from fsjoule.model.crash import StateEnergies, StateTimes, log_and_state
from fsjoule.model.filesystem import Filesystem
from fsjoule.model.write_log import MADE, SECTOR_BYTES, Coverage, LogEntry, State, WriteLog, least

_log: Final = logging.getLogger(__name__)

_MODULES: Final = ("loop", "dm-mod", "dm-log-writes", "dm-snapshot", "dm-zero")
_BATCH: Final = 40
_LEAST_BATCH, _BATCHES = 8, 16  # of few states so many, that boards which share them end together
_BATCH_S: Final = 60.0
_STATE_S: Final = 10.0
_READ_S: Final = 900.0
STEP_S: Final = 120.0
_FIRST: Final = 10
_MOST_CRASHES: Final = 5
_MOST_TRIES: Final = 60
_CHUNK: Final = 40  # entries that become durable with one order
_WITH_PROMISE: Final = ("env", f"PATH={onboard.FOLDER}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
_LINE: Final = re.compile(
    r"^(?P<name>[\d.:,+/-]+) (?P<fate>[a-z]+) (?P<times>\d+ \d+ \d+ \d+) ?(?P<details>.*)$",
    re.MULTILINE,
)
_CLOCK: Final = re.compile(r"^clock (\d+) (\d+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Promise:
    """A promise of the recorded program, by its mark: `synced`, `gone` or `holds`, and what it is about."""

    mark: str
    kind: str
    subject: str

    @classmethod
    def read(cls, line: str) -> Promise:
        mark, kind, _sum, _size, subject = line.split(" ", 4)
        return cls(mark, kind, subject)


@dataclass(frozen=True, slots=True)
class Recording:
    """A recorded run: its log, its promises in their order, and the states to check."""

    log: WriteLog
    promises: tuple[Promise, ...]
    coverage: Coverage

    @property
    def files(self) -> list[str]:
        """All files that are ever promised."""
        return list(dict.fromkeys(each.subject for each in self.promises if each.kind != "holds"))


@dataclass(frozen=True, slots=True)
class Checked:
    """A state's fate, the seconds of its mount and of its check, and its broken promises, by their numbers.

    With a meter mount and check have their energies, in mJ: that of the whole board.
    """

    fate: CrashFate
    mount_s: float = 0.0
    check_s: float = 0.0
    details: str = ""
    mount_mj: Value | None = None
    check_mj: Value | None = None

    @classmethod
    def read(cls, line: re.Match[str], mount_mj: Value | None = None, check_mj: Value | None = None) -> Checked:
        """From a line of the board's programs."""
        mount, mounted, check, done = map(int, line["times"].split())
        seconds = (mounted - mount) / 1e9, (done - check) / 1e9
        return cls(CrashFate(line["fate"]), *seconds, line["details"].strip(), mount_mj, check_mj)

    @classmethod
    def of(cls, text: str) -> Checked:
        """From `str` of one."""
        words = text.split(" ", 5)
        energies = (_value(each) for each in words[3:5])
        return cls(CrashFate(words[0]), float(words[1]), float(words[2]), "".join(words[5:]), *energies)

    def __str__(self) -> str:
        energies = ("-" if each is None else f"{each.value:g}~{each.uncertainty:.2g}mJ" for each in self._energies)
        return f"{self.fate.value} {self.mount_s:g} {self.check_s:g} {' '.join(energies)} {self.details}".rstrip()

    @property
    def _energies(self) -> tuple[Value | None, Value | None]:
        return self.mount_mj, self.check_mj


def _value(text: str) -> Value | None:
    return None if text == "-" else Value(*map(float, text.removesuffix("mJ").split("~")))


@dataclass
class CrashWork:
    """One measurement. It goes on after a crash of the board, if the next boot records the same.

    `plan_seed` chooses the random states. `claim` gives the batches that this board checks, and what is known already.
    One that `helps` checks states of another board's measurement, and nothing else.
    """

    entry: Planned
    workload: CrashWorkload
    contents: Mapping[str, bytes]
    plan_seed: int
    claim: Callable[[Claim], Share] = lambda _claim: Share(None, {})
    helps: bool = False
    results: dict[str, Checked] = field(default_factory=dict[str, Checked])
    crashes: int = 0
    _recording: Recording | None = None
    _careful: list[State] = field(default_factory=list[State])
    meters: list[MeterInfo] = field(default_factory=list[MeterInfo])
    _unmetered: set[str] = field(default_factory=set[str])
    running: list[State] = field(default_factory=list[State])
    _durable: int = 0

    def measure(self, measurer: Measurer) -> WorkFacts:
        """Record and check on a fresh boot. Raises LabError; see `goes_on` after a BoardError."""
        return measurer.around(self.entry, lambda kind: self._measure(measurer, kind))

    def goes_on(self, error: BoardError) -> bool:
        """Whether the board's end was a state's work: then a further boot goes on with the others.

        A state has crashed the board if it does so twice, the second time alone: once may be the lab's fault.
        """
        if not self.running:
            return False
        self.crashes += 1
        if len(self.running) == 1 and self.running[0] in self._careful:
            self.results[self.running[0].name] = Checked(CrashFate.CRASHED, details=error.what)
            _log.info("state %s: %s", self.running[0].name, error.what)
        self._careful, self.running = self.running, []
        return self.crashes <= _MOST_CRASHES

    def _measure(self, measurer: Measurer, kind: Filesystem) -> WorkFacts:
        with measurer.phases("recording"):
            checked(measurer.shell, "rm", "-rf", onboard.FOLDER)
            checked(measurer.shell, "mkdir", "-p", onboard.FOLDER)
            sectors = self._record(measurer, kind)
            recording = self._read(measurer)
        if self._recording is not None and self._recording.log.digest != recording.log.digest:
            raise BoardError("the boot after a crash recorded other writes than the one before", transient=False)
        self._recording, self._durable = recording, 0
        measurer.install(self._checker(measurer, kind, recording, sectors))
        with measurer.phases("checking"):
            self._check_all(measurer, recording)
        with measurer.phases("explaining"):
            cause = "" if self.helps else self._cause(measurer, recording)
        return self._evidence(recording, cause)

    def ended(self, error: BoardError) -> WorkFacts:
        """What is known when the board cannot go on. Raises the error if nothing was recorded."""
        if self._recording is None or not self.results:
            raise error
        evidence = self._evidence(self._recording)
        evidence.board_lost = True
        evidence.notes.append(f"the other states were not checked: {error.what}")
        return evidence

    def _evidence(self, recording: Recording, cause: str = "") -> WorkFacts:
        evidence = WorkFacts(trace=None, marks=("", ""), idle_s=IDLE_S)
        evidence.crash = replace(self._facts(recording), cause=cause)
        if not all(log_and_state(name)[0] for name in self.workload.only):
            evidence.notes.append(f"--states named no log: these are states of log {recording.log.name}")
        evidence.notes += [f"no energy of some states: {each}" for each in sorted(self._unmetered)]
        states = (each for each in recording.coverage.different if each.name in self.results)
        evidence.attachments |= {
            "states.txt": _lines(f"{each.name} {self.results[each.name]}" for each in states),
            "writes.txt": _lines(f"{i} {each}" for i, each in enumerate(recording.log.entries)),
            "promises.txt": _lines(f"{i} {each.kind} {each.subject}" for i, each in enumerate(recording.promises, 1)),
        }
        return evidence

    def _facts(self, recording: Recording) -> CrashFacts:
        log, coverage = recording.log, recording.coverage
        states = [each for each in coverage.different if each.name in self.results]
        lost = [each for each in states if self._fate(each).is_loss]
        return CrashFacts(
            log_sha256=log.digest,
            writes=log.writes,
            epochs=len(log.epochs),
            promises=len(recording.promises),
            states=coverage.states,
            different=len(coverage.different),
            checked=dict(Counter(map(self._fate, states))),
            torn=sum(each.is_torn for each in lost),
            first_losses=tuple(f"{each.name}: {self._words(each, recording.promises)}" for each in lost[:_FIRST]),
            mount_s=StateTimes.of({each.name: self.results[each.name].mount_s for each in states}),
            check_s=StateTimes.of({each.name: self.results[each.name].check_s for each in states}),
            mount_mj=_joined({each.name: self.results[each.name].mount_mj for each in states}),
            check_mj=_joined({each.name: self.results[each.name].check_mj for each in states}),
        )

    def _record(self, measurer: Measurer, kind: Filesystem) -> int:
        """Make the filesystem on a recorded device and run the program. Returns the device's size in sectors."""
        shell, scratch = measurer.shell, measurer.scratch
        measurer.load_modules(*_MODULES)
        measurer.install(onboard.recorder())
        work = CommandWork(self.entry, self.workload, self.workload.command, self.contents)
        work.put_files(measurer)
        scratch.unmount()
        there = int(checked(shell, "blockdev", "--getsz", scratch.device).stdout)
        sectors = min(there, max(self.workload.device_bytes, kind.least_bytes) // SECTOR_BYTES) // 8 * 8
        log = self._log_place(measurer)
        attempted(shell, onboard.RECORDER, scratch.device, str(sectors), log, timeout_s=STEP_S)
        recorded = replace(scratch, device=onboard.DEVICE, purge=False, stack=NOTHING)
        recorded.make(kind)
        checked(shell, "dmsetup", "message", onboard.NODE, "0", "mark", MADE)
        recorded.mount(kind)
        checked(shell, "sync", timeout_s=STEP_S)
        argv = work.words(SCRATCH_DIRECTORY, self.workload.command.argv, sync=False)
        self._run(measurer, work, argv)
        recorded.unmount()
        attempted(shell, "dmsetup", "remove", "--retry", onboard.NODE, timeout_s=STEP_S)
        return sectors

    def _log_place(self, measurer: Measurer) -> str:
        """The log's device, or its KiB in the board's memory.

        Raises BoardError if the device is not there, or is not what the environment file says, and MeasurementInvalid
        if it is the device under test.
        """
        name = measurer.profile.log_storage
        if not name:
            return str(self.workload.log_bytes // KIB)
        storage, disk = measurer.profile.storages[name], measurer.scratch.disk
        if storage.device.startswith(disk) or disk.startswith(storage.device):
            what = f"{name} cannot be under test: it has the log of the writes (log_storage of the environment file)"
            raise MeasurementInvalid(self.workload.slug, [what])
        attach(measurer.shell, name, storage)
        return scratch_node(storage)

    def _run(self, measurer: Measurer, work: CommandWork, argv: Sequence[str]) -> None:
        """Run the program, whole. Raises MeasurementInvalid if it fails."""
        done = measurer.shell.run((*_WITH_PROMISE, *argv), timeout_s=self.workload.command.limit_s)
        if done.exit_code:
            said = work.output(measurer).decode(errors="replace").strip()[-300:]
            raise MeasurementInvalid(self.workload.slug, [f"the program ended with exit code {done.exit_code}: {said}"])

    def _promises(self, text: bytes) -> tuple[Promise, ...]:
        """All promises of a whole run. Raises MeasurementInvalid if there is none."""
        if not text:
            hint = "promise synced FILE, after its fsync, tells what must survive (docs/crash.md)"
            raise MeasurementInvalid(self.workload.slug, [f"the program made no promise: {hint}"])
        return tuple(Promise.read(line) for line in text.decode().splitlines())

    def _read(self, measurer: Measurer) -> Recording:
        """The recorded run, as the board prints it. Raises MeasurementInvalid for one without promises."""
        attempted(measurer.shell, onboard.READER, timeout_s=_READ_S)
        entries, promised = measurer.shell.get_all((onboard.ENTRIES, onboard.PROMISES))
        promises = self._promises(promised)
        log = WriteLog([LogEntry.read(line) for line in entries.decode().splitlines()], {p.mark for p in promises})
        if not log.is_whole:
            place = measurer.profile.log_storage or f"{self.workload.log_bytes // MIB} MiB of memory"
            room = f"{place} had no room for all writes, or could not take one"
            raise MeasurementInvalid(self.workload.slug, [f"the log of writes was cut short: {room}"])
        if log.promises != len(promises):
            what = f"the log has {log.promises} of {len(promises)} promises: the program went on after one that failed"
            raise MeasurementInvalid(self.workload.slug, [what])
        if self.workload.only:
            states = tuple(sorted(map(log.state, self.workload.only), key=lambda each: each.epoch))
            coverage = Coverage(len(states), states)
        else:
            coverage = log.coverage(self.plan_seed)
        _log.info(
            "%s: log %s: %d writes in %d epochs, %d promises: %d states, %d of them different",
            self.entry.slug, log.name, log.writes, len(log.epochs), len(promises), coverage.states,
            len(coverage.different),
        )  # fmt: skip
        return Recording(log, promises, coverage)

    def _checker(self, measurer: Measurer, kind: Filesystem, recording: Recording, sectors: int) -> dict[str, bytes]:
        """The board's program that checks, by its path."""
        return onboard.checker(kind, onboard.DEVICE, sectors, recording.files, self.marks(measurer))

    def marks(self, measurer: Measurer) -> onboard.Marks:
        return onboard.Marks(measurer.profile.mark_line, measurer.numbered(self.entry))

    def _check_all(self, measurer: Measurer, recording: Recording) -> None:
        log, states = recording.log, recording.coverage.different
        careful = {each.name for each in self._careful}
        began_s, begun = 0.0, -1
        for some in self._shares(recording):
            due = [each for each in some if each.name not in self.results]
            if due and log.epochs[due[0].epoch].begins < self._durable:
                self._durable = 0  # the checker begins again with an empty device
            for batch in _batches(due, careful):
                if begun < 0:
                    began_s, begun = time.monotonic(), len(self.results)
                self._check(measurer, log, batch)
                done = len(self.results) - begun
                left_s = (time.monotonic() - began_s) / done * (len(states) - len(self.results))
                losses = sum(each.fate.is_loss for each in self.results.values())
                _log.info(
                    "%s: %d of %d states checked, %d losses; about %.0f min left",
                    self.entry.slug, len(self.results), len(states), losses, left_s / 60,
                )  # fmt: skip

    def _shares(self, recording: Recording) -> Iterator[Sequence[State]]:
        """The states to check, those known apart, batch by batch in their order.

        First those with which the board crashed. At the end what no other board has checked after all.
        """
        states = recording.coverage.different
        yield [each for each in states if each in self._careful]
        size = min(_BATCH, max(_LEAST_BATCH, len(states) // _BATCHES))
        batches = [states[i : i + size] for i in range(0, len(states), size)]
        while True:
            known = {name: str(each) for name, each in self.results.items()}
            share = self.claim(Claim(self.entry.number, recording.log.digest, len(batches), known))
            self.results |= {name: Checked.of(text) for name, text in share.known.items() if name not in self.results}
            if share.batch is None:
                break
            yield batches[share.batch]
        if not self.helps:
            yield states

    def _check(self, measurer: Measurer, log: WriteLog, states: Sequence[State], *, metered: bool = True) -> None:
        """Check states of rising epochs. Raises BoardError if the board does not answer any more."""
        orders = [] if self._durable else ["rewind"]
        for state in states:
            orders += self._advance(log, log.epochs[state.epoch].begins)
            orders.append(f"state {state.name} {state.promises} {' '.join(map(str, state.pieces))}")
        measurer.shell.put(onboard.ORDERS, ("\n".join(orders) + "\n").encode())
        self.running = list(states)
        with recorded(measurer.meter, measurer.rest) if metered else nullcontext(MeterTrace()) as recording:
            if metered and not recording.note:
                measurer.rest(IDLE_S)
            said = checked(measurer.shell, *onboard.CHECK_ARGV, timeout_s=_BATCH_S + _STATE_S * len(states)).stdout
        self.running = []
        energies = self._energies(measurer, recording, said) if metered else {}
        self.results |= {
            line["name"]: Checked.read(line, *energies.get(line["name"], ())) for line in _LINE.finditer(said)
        }
        if missing := [each.name for each in states if each.name not in self.results]:
            raise BoardError(f"state {missing[0]} was not checked: {said.strip()[-300:]}", transient=False)

    def _energies(self, measurer: Measurer, recording: MeterTrace, said: str) -> dict[str, tuple[Value, Value]]:
        """The energies of a batch; nothing without a trace that has them, which is noted."""
        if recording.trace is None:
            self._unmetered.add(recording.note.removeprefix(NO_ENERGY))
            return {}
        if recording.trace.info not in self.meters:
            self.meters.append(recording.trace.info)
        try:
            return energies_mj(recording.trace, self.marks(measurer).heard, said)
        except MeasurementInvalid as error:
            self._unmetered |= set(error.reasons)
            return {}

    def _advance(self, log: WriteLog, begins: int) -> Iterator[str]:
        """The orders after which all entries before `begins` are durable."""
        pieces = log.pieces(range(self._durable, begins)) if begins > self._durable else ()
        for i in range(0, len(pieces), _CHUNK):
            yield f"apply {' '.join(map(str, pieces[i : i + _CHUNK]))}"
        self._durable = max(begins, self._durable)

    def _cause(self, measurer: Measurer, recording: Recording) -> str:
        """Why the first loss happens: the fewest writes whose lack is enough, found by checking further states."""
        log, promises, coverage = recording.log, recording.promises, recording.coverage
        lost = [each for each in coverage.different if self._fate(each).is_loss and log.lacks(each)]
        first = min(lost, key=lambda each: (each.is_torn, each.epoch), default=None)
        if first is None or self._fate(first) is CrashFate.CRASHED:
            return ""
        epoch, budget = log.epochs[first.epoch], iter(range(_MOST_TRIES))

        def fails(lacks: frozenset[int]) -> bool:
            state = log.lacking(first.epoch, lacks)
            if state.name not in self.results:
                if next(budget, None) is None:
                    return False
                self._check(measurer, log, [state], metered=False)
            return self.results[state.name].fate.is_loss

        if first.is_torn:
            torn = log.entries[epoch.pending[first.subset.torn or 0]]
            what = (
                f"{torn.sectors / 2:g} KiB at sector {torn.sector}, write {first.subset.torn} of epoch {epoch.number}"
            )
            return f"{first.name}: {self._words(first, promises)} when {what}, reaches the medium in part"
        if self._durable > epoch.begins:
            self._durable = 0  # the checker begins again with an empty device
        lacks = least(log.lacks(first), fails) if fails(log.lacks(first)) else log.lacks(first)
        state = log.lacking(first.epoch, lacks)
        entries = [(i, log.entries[epoch.pending[i]]) for i in sorted(lacks)]
        writes = ", ".join(f"{i} ({each.sectors / 2:g} KiB at sector {each.sector})" for i, each in entries[:_FIRST])
        more = f" and {len(entries) - _FIRST} more" if len(entries) > _FIRST else ""
        what = f"without write{'s' * (len(entries) > 1)} {writes}{more} of epoch {epoch.number}"
        known = self.results[state.name]
        broken = re.findall(r"(\d+)=", known.details) if known.fate is CrashFate.LOST else []
        unsafe = any(int(each) > epoch.promises for each in broken)
        why = ", and nothing flushed it before it was promised" if unsafe else ""
        return f"{state.name}: {self._words(state, promises)} {what}{why}"

    def _words(self, state: State, promises: Sequence[Promise]) -> str:
        """`lost: config differs, spool/new-3 missing`."""
        known = self.results[state.name]
        if known.fate is not CrashFate.LOST:
            return f"{known.fate.value}: {known.details}" if known.details else known.fate.value
        broken = re.findall(r"(\d+)=([a-z]+)", known.details)
        return "lost: " + ", ".join(f"{promises[int(n) - 1].subject} {fate}" for n, fate in broken)

    def _fate(self, state: State) -> CrashFate:
        known = self.results.get(state.name)
        return CrashFate.OK if known is None else known.fate


def _batches(states: Sequence[State], careful: Container[str]) -> Iterator[list[State]]:
    """States in their order, those of a batch in which the board crashed one by one."""
    batch: list[State] = []
    for state in states:
        if state.name in careful or len(batch) == _BATCH:
            if batch:
                yield batch
            batch = []
        batch.append(state)
        if state.name in careful:
            yield batch
            batch = []
    if batch:
        yield batch


def _lines(lines: Iterable[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def energies_mj(trace: Trace, marks: tuple[str, str], said: str) -> dict[str, tuple[Value, Value]]:
    """The energies of each state's mount and check, in mJ, from the meter's trace and what the checker has `said`.

    Its times are put on the meter's clock by the two marks. A mark is sent between two readings of the board's clock:
    what lies between them bounds the error of all times, and counts in each uncertainty. Raises MeasurementInvalid.
    """
    clocks = [(int(each[1]), int(each[2])) for each in _CLOCK.finditer(said)]
    heard = [[each.time_us for each in trace.marks if each.text == text] for text in marks]
    if not all(heard) or len(clocks) != len(heard):
        raise MeasurementInvalid("the states' energies", ["the meter has not heard both marks of a batch"])
    (first_ns, last_ns), first_us = (sum(each) / 2 for each in clocks), heard[0][0]
    us_per_ns = (heard[1][-1] - first_us) / (last_ns - first_ns)
    slack_s = max(end - begin for begin, end in clocks) / 2e9
    idle = idle_window(trace, IDLE_S)

    def energy_mj(begin_ns: int, end_ns: int) -> Value:
        window = Window(*(first_us + (each - first_ns) * us_per_ns for each in (begin_ns, end_ns)))
        return energy(trace, window, idle, slack_s=slack_s).gross_mj

    lines = [(line["name"], [*map(int, line["times"].split())]) for line in _LINE.finditer(said)]
    nothing = Value(0.0, 0.0)  # a state that was refused is not checked
    return {
        name: (energy_mj(times[0], times[1]), energy_mj(times[2], times[3]) if times[3] else nothing)
        for name, times in lines
    }


def _joined(energies: Mapping[str, Value | None]) -> StateEnergies | None:
    known = {name: (each.value, each.uncertainty) for name, each in energies.items() if each is not None and each.value}
    return StateEnergies.of(known)


@dataclass
class FlashWork(CrashWork):
    """One measurement on raw NAND: states after each program of a page and each erasure, and with a page torn.

    The kernel's NAND core does all of them in two functions; probes there trace them, with the pages' data. A page is
    programmed at once or torn, and nothing is held back, so that an epoch has one write. The spare area is not
    recorded: its checksums are made again. Source: drivers/mtd/nand/raw/nand_base.c.
    """

    def _record(self, measurer: Measurer, kind: Filesystem) -> int:
        """Returns the sectors of an erase block."""
        shell, scratch = measurer.shell, measurer.scratch
        scratch.unmount()
        erase_size = f"/sys/class/mtd/{scratch.device.rpartition('/')[2]}/erasesize"
        block = int(checked(shell, "cat", erase_size).stdout) // SECTOR_BYTES
        measurer.install(onboard.recorder(block))
        work = CommandWork(self.entry, self.workload, self.workload.command, self.contents)
        work.put_files(measurer)
        checked(shell, onboard.RECORDER, scratch.device, timeout_s=STEP_S)
        scratch.make(kind)
        checked(shell, "sh", "-c", f"echo {MADE} > {onboard.MARKER}")
        scratch.mount(kind)
        self._run(measurer, work, work.words(SCRATCH_DIRECTORY, self.workload.command.argv, sync=False))
        scratch.unmount()
        return block

    def _checker(self, measurer: Measurer, kind: Filesystem, recording: Recording, sectors: int) -> dict[str, bytes]:
        log = recording.log
        changed = sorted({each.sector // sectors for each in log.entries[log.made :] if each.writes})
        return onboard.flash_checker(
            kind, measurer.scratch.device, sectors, changed, recording.files, marks=self.marks(measurer)
        )
