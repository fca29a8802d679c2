"""One measurement of an update's crash states: each state of the whole card that a power cut in it can leave is booted.

The lab records what the board writes to its card, from the update to the first start of the new version. This card has
no cache: a state is what is there after each write. The boot loader reads nothing of a slot that it does not start, nor
of the filesystem under test: three writes of a run there make a state, the first, the middle and the last.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, pairwise
from pathlib import Path
from typing import Final, NamedTuple

from fsjoule.bench.boots import Boots, CurrentBoot
from fsjoule.bench.crash.check import Checked, CrashWork, Promise, Recording
from fsjoule.bench.judge import WorkFacts
from fsjoule.bench.measurer import IDLE_S, Measurer
from fsjoule.bench.own_command import CommandWork
from fsjoule.bench.scratch import checked, perform, provisioning
from fsjoule.errors import BoardError, FsjouleError, LabError, MeasurementInvalid, PlaceLostError, StorageError
from fsjoule.host import process
from fsjoule.model import CARD, MIB, CrashFate
from fsjoule.model.card_writes import CardWrite, read_card_writes
from fsjoule.model.filesystem import Filesystem
from fsjoule.model.layer import device_of
from fsjoule.model.write_log import FLUSH, FUA, MADE, MARK, Coverage, LogEntry, State, WriteLog

_log: Final = logging.getLogger(__name__)

SECTOR_BYTES: Final = 512
INSTALLED, CONFIRMED = Promise("1", "holds", "the installed version"), Promise("2", "holds", "the confirmed version")
_SYNC_S: Final = 120.0
_TABLE_S: Final = 30.0
_OLD, _NEW = "the old version", "the new version"


@dataclass(frozen=True, slots=True)
class Partition:
    """A part of the card, in bytes."""

    begin: int
    size: int

    def digest(self, card: Path) -> str:
        """SHA-256 of its content on a card."""
        with card.open("rb") as file:
            file.seek(self.begin)
            digest, left = hashlib.sha256(), self.size
            while left and (chunk := file.read(min(left, MIB))):
                digest.update(chunk)
                left -= len(chunk)
        return digest.hexdigest()


class Group(NamedTuple):
    """Writes that make one state: numbers `first` to before `end`. `alone`: it is one that the boot loader may read."""

    first: int
    end: int
    alone: bool
    phase: object


def groups_of(writes: Sequence[CardWrite], ends: Sequence[int], unread: Callable[[int], object]) -> Iterator[Group]:
    """A card's writes in their order. The numbers `ends`, and another place on the card, end a group.

    `unread` names the place of an offset that the boot loader does not read; false if it may read it.
    """

    def phase(number: int) -> tuple[object, ...]:
        return (unread(writes[number].offset), *(int(number >= end) for end in ends))

    for key, numbers in groupby(range(len(writes)), phase):
        run = list(numbers)
        cuts = sorted({0, 1, len(run) // 2, len(run)}) if key[0] else range(len(run) + 1)
        for begin, end in pairwise(cuts):
            yield Group(run[begin], run[end - 1] + 1, not key[0], key)


@dataclass(frozen=True, slots=True)
class RecordedUpdate:
    """The writes of an update and of the first start of what it brought.

    After `installed` of them it was done, with number `restarted` the new version's start begins, and after `confirmed`
    that was confirmed. `old`, `new` and `scratch` are numbers of partitions: the slots, and the filesystem under test,
    0 if it is not on the card.
    """

    writes: tuple[CardWrite, ...]
    installed: int
    restarted: int
    confirmed: int
    partitions: Mapping[int, Partition]
    old: int
    new: int
    scratch: int

    def groups(self) -> Iterator[Group]:
        """The writes in their order. A promise, a power cycle, and another place on the card end a group."""
        return groups_of(self.writes, (self.installed, self.restarted, self.confirmed), self._unread)

    def _unread(self, offset: int) -> int:
        """The partition there, if the boot loader reads it only when it starts it, or never; else 0."""
        parts = {number: self.partitions.get(number) for number in (self.new, self.scratch)}
        return next((number for number, each in parts.items() if each and 0 <= offset - each.begin < each.size), 0)


@dataclass
class UpdateWork(CrashWork):
    """One measurement of a workload with `confirm`, on a card with two slots."""

    _groups: list[Group] = field(default_factory=list[Group])
    _repeated: set[tuple[int, int]] = field(default_factory=set[tuple[int, int]])

    def measure_card(self, boots: Boots, learn: Callable[[], object]) -> tuple[CurrentBoot, WorkFacts]:
        """Record an update, and boot each of its states. `learn` is called in the first boot. Raises LabError."""
        try:
            with tempfile.TemporaryDirectory(prefix="fsjoule-update-") as folder:
                return self._measure_card(boots, learn, Path(folder))
        except OSError as error:
            raise StorageError(f"the card of a state cannot be kept: {error}") from error

    def _measure_card(self, boots: Boots, learn: Callable[[], object], folder: Path) -> tuple[CurrentBoot, WorkFacts]:
        card, last = folder / "card.img", folder / "last.img"
        boots.prepare(self.entry)
        shutil.copyfile(boots.board.card_image(), card)
        # Whole: a block map leaves out what the card has there from before.
        self._put(boots, card)
        booted, evidence, update = self._record_card(boots, learn, card)
        if update is not None:
            recording = self._recording = self.states_of(update)
            shutil.copyfile(card, last)
            _apply(last, update.writes)
            # What was whole in the new version's slot before the update still is if nothing was written there.
            whole = {n: {update.partitions[n].digest(each) for each in (card, last)} for n in (update.old, update.new)}
            self._boot_all(boots, card, update, whole)
            broken = self._fall_back(boots, last, update)
            known = self._evidence(recording)
            evidence.attachments |= known.attachments
            assert known.crash is not None
            count = dict(known.crash.checked)
            count[broken.fate] = count.get(broken.fate, 0) + 1
            first = (*known.crash.first_losses, *([f"fallback: {broken.details}"] if broken.fate.is_loss else []))
            evidence.crash = replace(
                known.crash,
                writes=len(update.writes),
                checked=count,
                states=known.crash.states + 1,
                different=known.crash.different + 1,
                first_losses=first,
                cause=next(iter(first), ""),
                mount_s=None,
                check_s=None,
            )
            evidence.notes += self._notes(broken)
        boots.prepare(self.entry)
        return booted, evidence

    def _record_card(
        self, boots: Boots, learn: Callable[[], object], card: Path
    ) -> tuple[CurrentBoot, WorkFacts, RecordedUpdate | None]:
        """Record the update, and the first start of the new version. `card` becomes the card before the update."""
        sizes: list[int] = []
        roots: list[int] = []
        record = boots.board.record_writes()
        booted = boots.boot(self.entry)
        learn()

        def note() -> None:
            if record is None:
                what = "only a virtual board's lab records what is written to its card (docs/updates.md)"
                raise MeasurementInvalid(self.workload.slug, [what])
            sizes.append(record.stat().st_size)

        def install(kind: Filesystem) -> WorkFacts:
            note()
            roots.append(_root(booted.measurer))
            return self._install(booted.measurer, kind, note)

        evidence = booted.measurer.around(self.entry, install)
        if evidence.complaints or record is None:
            return booted, evidence, None
        [old] = roots
        on_card = device_of(self.entry.storage) == CARD
        scratch = _number(booted.measurer.profile.scratch_device) if on_card else 0
        boots.end()
        _, before, after = sizes
        _apply(card, read_card_writes(record, 0, before))
        writes = list(read_card_writes(record, before))
        installed, restarted = sum(1 for _ in read_card_writes(record, before, after)), len(writes)
        boots.board.record_writes()
        again = boots.boot(self.entry)
        try:
            if (new := _root(again.measurer)) == old:
                evidence.complaints.append(f"partition {old} was started after the update, too")
                return again, evidence, None
            self._confirm(again.measurer)
        except MeasurementInvalid as error:
            evidence.complaints += error.reasons
            return again, evidence, None
        end = record.stat().st_size
        boots.end()
        confirmed = restarted + sum(1 for _ in read_card_writes(record, 0, end))
        writes += read_card_writes(record)
        partitions = _partitions(card)
        update = RecordedUpdate(tuple(writes), installed, restarted, confirmed, partitions, old, new, scratch)
        return booted, evidence, update

    def _install(self, measurer: Measurer, kind: Filesystem, note: Callable[[], None]) -> WorkFacts:
        """Bring the update onto the board and install it; `note` is called before and after that."""
        with measurer.phases("provisioning"):
            argv = self._bring(measurer, kind)
        note()
        with measurer.phases("recording"):
            self._run_update(measurer, argv)
        note()
        checked(measurer.shell, "sync", timeout_s=_SYNC_S)
        return WorkFacts(trace=None, marks=("", ""), idle_s=IDLE_S)

    def _bring(self, measurer: Measurer, kind: Filesystem) -> tuple[str, ...]:
        """Bring the update onto the board. Returns the words that install it. Raises MeasurementInvalid, LabError."""
        command, work = self.workload.command, self._command
        work.put_files(measurer)
        directory, steps = provisioning(measurer.scratch, kind, self.entry.provision)
        perform(measurer.shell, steps)
        for argv in command.prepare:
            work.prepare(measurer, argv, work.words(directory, argv, sync=False))
        checked(measurer.shell, "sync", timeout_s=_SYNC_S)
        return work.words(directory, command.argv, sync=False)

    def _run_update(self, measurer: Measurer, argv: Sequence[str]) -> None:
        done = measurer.shell.run(argv, timeout_s=self.workload.command.limit_s)
        if done.exit_code:
            said = CommandWork.output(measurer).decode(errors="replace").strip()[-300:]
            raise MeasurementInvalid(self.workload.slug, [f"the program ended with exit code {done.exit_code}: {said}"])

    def _confirm(self, measurer: Measurer) -> None:
        self._command.put_files(measurer)
        argv = self.workload.confirm
        self._command.prepare(measurer, argv, self._command.words("/", argv, sync=True))

    @property
    def _command(self) -> CommandWork:
        return CommandWork(self.entry, self.workload, self.workload.command, self.contents)

    def states_of(self, update: RecordedUpdate) -> Recording:
        """The states, as those of a log in which each write lasts: an entry is a group of writes."""
        entries, self._groups = [LogEntry(0, 0, 0, MARK, MADE)], list(update.groups())
        promises = {update.installed: INSTALLED, update.confirmed: CONFIRMED}
        phase = self._groups[0].phase if self._groups else None
        for group in self._groups:
            if group.phase != phase:
                entries.append(LogEntry(group.first, 0, 0, FLUSH))
            phase = group.phase
            writes = update.writes[group.first : group.end]
            content = hashlib.sha256(b"".join(map(bytes, writes))).hexdigest()[:16]
            sectors = sum(len(each.data) for each in writes) // SECTOR_BYTES
            entries.append(LogEntry(group.first, writes[0].offset // SECTOR_BYTES, sectors, FUA, content))
            if promise := promises.get(group.end):
                entries.append(LogEntry(0, 0, 0, MARK, promise.mark))
        log = WriteLog(entries, {INSTALLED.mark, CONFIRMED.mark})
        only = self.workload.only
        different = tuple(map(log.state, only)) if only else log.coverage(self.plan_seed).different
        states = tuple(sorted(different, key=lambda each: (each.epoch, each.subset.events)))
        return Recording(log, (INSTALLED, CONFIRMED), Coverage(len(update.writes) + 1, states))

    def _groups_in(self, log: WriteLog, state: State) -> int:
        """How many groups of writes are on the card in this state."""
        epoch = log.epochs[state.epoch]
        end = epoch.events[state.subset.events - 1] + 1 if state.subset.events else epoch.begins
        return sum(each.writes for each in log.entries[:end])

    def _boot_all(self, boots: Boots, card: Path, update: RecordedUpdate, whole: Mapping[int, set[str]]) -> None:
        """Boot each state; `card` has what was there before the update."""
        assert self._recording is not None
        log, due = self._recording.log, self._recording.coverage.different
        _log.info("%s: %d writes, %d states to boot", self.entry.slug, len(update.writes), len(due))
        began_s, written = time.monotonic(), 0
        for done, state in enumerate(due, 1):
            count = self._groups_in(log, state)
            end = self._groups[count - 1].end if count else 0
            _apply(card, update.writes[written:end])
            written = end
            variables = sum(each.alone for each in self._groups[:count])
            known = self.results[state.name] = self._boot(
                boots, card, update, whole=whole, state=state, variables=variables
            )
            left_s = (time.monotonic() - began_s) / done * (len(due) - done)
            losses = sum(each.fate.is_loss for each in self.results.values())
            _log.info(
                "%s: %d of %d states booted, %d losses; %s: %s; about %.0f min left",
                self.entry.slug, done, len(due), losses, state.name, known, left_s / 60,
            )  # fmt: skip

    def _boot(
        self,
        boots: Boots,
        card: Path,
        update: RecordedUpdate,
        *,
        whole: Mapping[int, set[str]],
        state: State,
        variables: int,
    ) -> Checked:
        """Boot a state. With each new number of writes to the boot loader's `variables` the update is repeated."""
        try:
            root, boot_s = self._started(boots, card)
        except BoardError as error:
            return Checked(CrashFate.REFUSED, details=_line(error))
        name = {update.old: _OLD, update.new: _NEW}.get(root, f"partition {root}")
        if update.partitions[root].digest(card) not in whole.get(root, ()):
            return Checked(CrashFate.LOST, boot_s, details=f"{name} is started, and is not whole")
        if state.promises and root != update.new:
            return Checked(CrashFate.LOST, boot_s, details=f"{name} is started, and the new one was promised")
        if (root, variables) in self._repeated:
            return Checked(CrashFate.OK, boot_s, details=name)
        self._repeated.add((root, variables))
        began_s = time.monotonic()
        try:
            self._repeat(boots, card)
        except (BoardError, MeasurementInvalid) as error:
            return Checked(CrashFate.UNWRITABLE, boot_s, details=f"{name} is started; again: {_line(error)}")
        return Checked(CrashFate.OK, boot_s, time.monotonic() - began_s, name)

    def _repeat(self, boots: Boots, card: Path) -> None:
        """Install the update once more, in the current boot. Raises MeasurementInvalid, at the second try LabError."""
        try:
            self._install_again(boots)
        except PlaceLostError:
            raise
        except LabError as error:
            _log.info("%s: once more, for it may have been the lab: %s", self.entry.slug, error.what)
            self._start(boots, card)
            self._install_again(boots)

    def _install_again(self, boots: Boots) -> None:
        assert boots.current is not None
        measurer = boots.current.measurer
        measurer.turn_to(self.entry.storage)
        self._run_update(measurer, self._bring(measurer, measurer.kind_of(self.entry)))

    def _fall_back(self, boots: Boots, card: Path, update: RecordedUpdate) -> Checked:
        """Whether the old version is started if the new one, which is installed, cannot be."""
        _apply(card, [CardWrite(update.partitions[update.new].begin, bytes(MIB))])
        try:
            root, boot_s = self._started(boots, card)
        except BoardError as error:
            return Checked(CrashFate.REFUSED, details=f"the new version cannot be started, and {_line(error)}")
        if root != update.old:
            return Checked(
                CrashFate.LOST, boot_s, details=f"the new version cannot be started, and partition {root} was"
            )
        return Checked(CrashFate.OK, boot_s)

    def _started(self, boots: Boots, card: Path) -> tuple[int, float]:
        """Start the board from a card: its root's partition, and the seconds. Raises LabError at the second try."""
        try:
            return self._start(boots, card)
        except PlaceLostError:
            raise
        except LabError as error:
            _log.info("%s: once more, for it may have been the lab: %s", self.entry.slug, error.what)
            return self._start(boots, card)

    def _start(self, boots: Boots, card: Path) -> tuple[int, float]:
        self._put(boots, card)
        began_s = time.monotonic()
        booted = boots.boot(self.entry)
        return _root(booted.measurer), time.monotonic() - began_s

    def _notes(self, fallback: Checked) -> list[str]:
        started = [each for each in self.results.values() if each.mount_s]
        old = sum(each.details == _OLD for each in started)
        boots_s = [each.mount_s for each in started]
        repeats_s = [each.check_s for each in started if each.check_s]
        notes = [f"the old version was started in {old} states, the new one in {len(started) - old}"]
        if boots_s:
            notes.append(f"a start took {statistics.median(boots_s):.0f} s, at most {max(boots_s):.0f} s")
        if repeats_s:
            notes.append(f"the update was repeated in {len(repeats_s)} states, in {statistics.median(repeats_s):.0f} s")
        if not fallback.fate.is_loss:
            notes.append(f"a new version that cannot be started: the old one was, after {fallback.mount_s:.0f} s")
        return notes

    def _put(self, boots: Boots, card: Path) -> None:
        boots.end()
        with boots.phases("flash"):
            boots.board.put_card(card)


def _apply(card: Path, writes: Iterable[CardWrite]) -> None:
    with card.open("r+b") as file:
        for each in writes:
            file.seek(each.offset)
            file.write(each.data)


def _line(error: FsjouleError) -> str:
    """An error in one line, without the console's."""
    return " ".join(error.what.partition("\n")[0].split())


def _partitions(card: Path) -> dict[int, Partition]:
    """The partitions of a card, by their numbers. Raises HostError."""
    table = json.loads(process.run(["sfdisk", "--json", card], timeout_s=_TABLE_S).stdout)["partitiontable"]
    return {
        _number(each["node"]): Partition(each["start"] * SECTOR_BYTES, each["size"] * SECTOR_BYTES)
        for each in table["partitions"]
    }


def _number(node: str) -> int:
    """That of a partition. Raises MeasurementInvalid."""
    number = re.search(r"\d+$", node)
    if number is None:
        raise MeasurementInvalid("update", [f"{node} is no partition"])
    return int(number[0])


def _root(measurer: Measurer) -> int:
    """The number of the partition that the kernel was told as its root."""
    words = checked(measurer.shell, "cat", "/proc/cmdline").stdout.split()
    return _number(next((each for each in reversed(words) if each.startswith("root=")), "nothing"))
