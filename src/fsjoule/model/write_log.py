"""The states that a power cut can leave behind, from the log of a device's writes. Pure.

A device with a cache keeps what was flushed, and each write that was meant to last (FUA). Of what it was given since
the last flush each write may have reached the medium or not, in any order, and one of them only in part. Between two
flushes is an epoch. The log is dm-log-writes': it has a write when the flush after it is complete, and at once if it is
FUA. So the order of the plain writes within an epoch is that of their completion, and they are all after the epoch's
FUA writes and marks. Source: the kernel's Documentation/admin-guide/device-mapper/log-writes.rst.

A state's name is its epoch and what has reached the medium of it: `17:0-4,6` has writes 0 to 4 and 6 of epoch 17,
`17:-` none, `17:0-4+5/8` the first 8 sectors of write 5, too, `17:0-4+5/-8` all but its first 8. `17.2:-` is the state
after the epoch's second lasting write or mark, `17:...` that after all of them.
"""

from __future__ import annotations

import hashlib
import random
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from fsjoule.errors import ConfigError, MeasurementInvalid
from fsjoule.model.crash import STATE_NAME, log_and_state

SECTOR_BYTES: Final = 512
FLUSH, FUA, DISCARD, MARK = 1, 2, 4, 8
MADE: Final = "made"  # the mark after mkfs
END: Final = "dm-log-writes-end"  # the kernel's own, when the device is removed
# Random subsets of an epoch, beside those that separate each pair of its writes.
_RANDOM: Final = 8
_FEW: Final = 3
_NAMED: Final = 8  # digits of a log's digest in names


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One entry of the log. Its data begin at sector `place` of the log, and are for `sector` of the device.

    Sectors have 512 bytes. `content` is the digest of the data, or the text of a mark.
    """

    place: int
    sector: int
    sectors: int
    flags: int
    content: str = ""

    def __str__(self) -> str:
        return f"{self.place} {self.sector} {self.sectors} {self.flags} {self.content}"

    @classmethod
    def read(cls, line: str) -> LogEntry:
        """An entry as the board prints it. Raises MeasurementInvalid."""
        words = line.split(" ", 4)
        try:
            place, sector, sectors, flags = map(int, words[:4])
        except ValueError:
            raise MeasurementInvalid("the log of writes", [f"it has a damaged entry: {line[:80]!r}"]) from None
        return cls(place, sector, sectors, flags, words[4] if len(words) > 4 else "")  # noqa: PLR2004 - the text

    @property
    def writes(self) -> bool:
        """Whether it changes the device's content."""
        return bool(self.sectors) and not self.flags & MARK


@dataclass(frozen=True, slots=True)
class Epoch:
    """What lies between two flushes, as numbers of entries: all before `begins` is durable.

    `events` are lasting writes and marks, in order.

    The `pending` writes are on the medium for sure when the next epoch begins. `promises` is how many promises had been
    made when it began.
    """

    number: int
    begins: int
    events: tuple[int, ...]
    pending: tuple[int, ...]
    promises: int


@dataclass(frozen=True, slots=True)
class Subset:
    """What has reached the medium of an epoch: its first `events`, these pending `writes`, and a part of a `torn` one.

    The first `sectors` of that are there; with a negative number all but the first ones.
    """

    events: int
    writes: frozenset[int] = frozenset()
    torn: int | None = None
    sectors: int = 0


@dataclass(frozen=True, slots=True)
class Piece:
    """Sectors of the device with the data of the log from sector `place` on; with zeros, if there is no place.

    They are those of a write with the digest `content`, from its sector `offset` on.
    """

    sector: int
    sectors: int
    place: int | None
    content: str = ""
    offset: int = 0

    def __str__(self) -> str:
        return f"{self.sector}:{self.sectors}:{'' if self.place is None else self.place}"

    @property
    def end(self) -> int:
        return self.sector + self.sectors

    def part(self, sector: int, end: int) -> Piece:
        """The sectors from `sector` to `end` of it."""
        skipped = sector - self.sector
        place = None if self.place is None else self.place + skipped
        return Piece(sector, end - sector, place, self.content, self.offset + skipped)


@dataclass(frozen=True, slots=True)
class State:
    """A state to check: `pieces` differ from what is durable when its epoch begins; `promises` had been made."""

    name: str
    epoch: int
    subset: Subset
    promises: int
    pieces: tuple[Piece, ...]

    @property
    def is_torn(self) -> bool:
        return self.subset.torn is not None


@dataclass(frozen=True, slots=True)
class Coverage:
    """The states of a log: `states` were enumerated, and `different` ones by content and promises remain to check."""

    states: int
    different: tuple[State, ...]


class WriteLog:
    """A recorded run: its entries, and its epochs since the filesystem was made."""

    def __init__(self, entries: Sequence[LogEntry], promises: Container[str]) -> None:
        """`promises` are the texts of the marks that are promises. Raises MeasurementInvalid."""
        self.entries = tuple(entries)
        made = next((i for i, each in enumerate(entries) if each.flags & MARK and each.content == MADE), None)
        if made is None:
            raise MeasurementInvalid("the log of writes", ["it was cut short: the filesystem's making is not in it"])
        self.made = made
        self._promises = promises
        self.epochs = tuple(self._epochs())

    @property
    def writes(self) -> int:
        """The number of writes since the filesystem was made."""
        return sum(each.writes for each in self.entries[self.made :])

    @property
    def is_whole(self) -> bool:
        """Whether it goes on to the end: dm-log-writes stops to log when its device is full, and says so to nobody."""
        return bool(self.entries[-1].flags & MARK) and self.entries[-1].content == END

    @property
    def digest(self) -> str:
        """SHA-256 of all writes and marks in their order, in 16 digits. A promise's mark is the number of a process."""
        contents = ("promise" if self._is_promise(each) else each.content for each in self.entries)
        entries = zip(self.entries, contents, strict=True)
        text = "\n".join(f"{each.sector} {each.sectors} {each.flags} {content}" for each, content in entries)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def name(self) -> str:
        """The begin of its digest."""
        return self.digest[:_NAMED]

    @property
    def promises(self) -> int:
        """The number of promises that were made."""
        return sum(self._is_promise(each) for each in self.entries[self.made :])

    def pieces(self, numbers: Iterable[int]) -> tuple[Piece, ...]:
        """The device's content after these writes, in order; later ones win."""
        return _painted(self._whole(number) for number in numbers if self.entries[number].writes)

    def full_name(self, state: State) -> str:
        """The state's name with that of its log, so that it is no other log's: `3f9a1c2e/17:0-3`."""
        return f"{self.name}/{state.name}"

    def state(self, name: str) -> State:
        """The state of this name. Raises ConfigError for one that the log does not have, or of another log."""
        log, name = log_and_state(name)
        if not self.digest.startswith(log):
            raise ConfigError(
                f"{name} was named in log {log}, and this is log {self.name}: another state would be meant",
                hint="the same seed, kernel and program give the same log on a board in guest time; "
                "fsjoule crash show NAME RUN shows a state in the run that it is of",
            )
        wrong = ConfigError(
            f"{name!r} is no state of this log",
            hint=f"for example 17:0-4,6 or 17:- (see docs/crash.md); epochs: 0 to {len(self.epochs) - 1}",
        )
        parsed = STATE_NAME.fullmatch(name)
        if parsed is None or int(parsed["epoch"]) >= len(self.epochs):
            raise wrong
        epoch = self.epochs[int(parsed["epoch"])]
        events = len(epoch.events) if parsed["events"] is None else int(parsed["events"])
        writes = _numbers(parsed["writes"], len(epoch.pending))
        torn = None if parsed["torn"] is None else int(parsed["torn"])
        too_many = torn is not None and torn >= len(epoch.pending)
        if writes is None or events > len(epoch.events) or too_many:
            raise wrong
        return self._state(epoch, Subset(events, writes, torn, int(parsed["sectors"] or 0)))

    def coverage(self, seed: int) -> Coverage:
        """All states up to the bound, each content once: with the most promises that had been made with it.

        An epoch has these: each number of first writes, each write alone, all but each write, each write torn in half
        as the last of the first ones (either half), and some random subsets. So each pair of writes is separated,
        in both orders.
        """
        best: dict[int, State] = {}
        content, count, done = _Content(), 0, 0
        for epoch in self.epochs:
            content.apply(self.pieces(range(done, epoch.begins)))
            done = epoch.begins
            for subset in self._subsets(epoch, random.Random(f"{seed} {epoch.number}")):  # noqa: S311 - recorded
                count += 1
                state = self._state(epoch, subset)
                key = content.digest_with(state.pieces)
                known = best.get(key)
                if known is None or known.promises < state.promises:
                    best[key] = state
        return Coverage(count, tuple(sorted(best.values(), key=lambda each: each.epoch)))

    def lacks(self, state: State) -> frozenset[int]:
        """The epoch's pending writes that are not whole on the medium, by their numbers in the epoch."""
        return frozenset(range(len(self.epochs[state.epoch].pending))) - state.subset.writes

    def lacking(self, epoch: int, lacks: frozenset[int]) -> State:
        """The state at an epoch's end without these pending writes."""
        those = self.epochs[epoch]
        return self._state(those, Subset(len(those.events), frozenset(range(len(those.pending))) - lacks))

    def _is_promise(self, entry: LogEntry) -> bool:
        return bool(entry.flags & MARK) and entry.content in self._promises

    def _epochs(self) -> Iterator[Epoch]:
        events: list[int] = []
        pending: list[int] = []
        number = promises = begun = 0
        begins = self.made + 1
        for i in range(begins, len(self.entries)):
            entry = self.entries[i]
            if self._is_promise(entry):
                events.append(i)
                promises += 1
            if entry.flags & MARK:
                continue
            if entry.flags & FLUSH:
                if events or pending:
                    yield Epoch(number, begins, tuple(events), tuple(pending), begun)
                    number, begun, events, pending = number + 1, promises, [], []
                begins = i
            if entry.writes:
                (events if entry.flags & FUA else pending).append(i)
        yield Epoch(number, begins, tuple(events), tuple(pending), begun)

    def _subsets(self, epoch: Epoch, chance: random.Random) -> Iterator[Subset]:
        whole, n = len(epoch.events), len(epoch.pending)
        yield from (Subset(events) for events in range(whole))
        every = frozenset(range(n))
        subsets = [frozenset(range(i)) for i in range(n + 1)]
        subsets += [each for i in range(n) for each in (frozenset({i}), every - {i})]
        subsets += [frozenset(i for i in range(n) if chance.random() < 0.5) for _ in range(_RANDOM if n >= _FEW else 0)]  # noqa: PLR2004 - an even chance
        yield from (Subset(whole, each) for each in dict.fromkeys(subsets))
        for i, number in enumerate(epoch.pending):
            half = self.entries[number].sectors // 2
            if half and not self.entries[number].flags & DISCARD:
                yield from (Subset(whole, frozenset(range(i)), i, each) for each in (half, -half))

    def _state(self, epoch: Epoch, subset: Subset) -> State:
        numbers = [i for i in epoch.events[: subset.events] if self.entries[i].writes]
        writes = [self._whole(i) for i in numbers]
        for i, number in enumerate(epoch.pending):
            if i in subset.writes:
                writes.append(self._whole(number))
            elif i == subset.torn:
                writes.append(_torn(self._whole(number), subset.sectors))
        marks = sum(bool(self.entries[i].flags & MARK) for i in epoch.events[: subset.events])
        return State(_name(epoch, subset), epoch.number, subset, epoch.promises + marks, _painted(writes))

    def _whole(self, number: int) -> Piece:
        entry = self.entries[number]
        place = None if entry.flags & DISCARD else entry.place
        return Piece(entry.sector, entry.sectors, place, entry.content)


class _Content:
    """A device's content, sector by sector; a digest of it that follows each change."""

    def __init__(self) -> None:
        self._sectors: dict[int, int] = {}
        self._digest = 0

    def apply(self, pieces: Iterable[Piece]) -> None:
        for sector, now in _contents(pieces):
            self._digest ^= self._sectors.get(sector, 0) ^ now
            self._sectors[sector] = now

    def digest_with(self, pieces: Iterable[Piece]) -> int:
        """The digest with these pieces above the content."""
        digest = self._digest
        for sector, now in _contents(pieces):
            digest ^= self._sectors.get(sector, 0) ^ now
        return digest


def _contents(pieces: Iterable[Piece]) -> Iterator[tuple[int, int]]:
    """Each sector with a number that tells it and its content; 0 for zeros, which every sector has at first."""
    for piece in pieces:
        for i in range(piece.sectors):
            sector = piece.sector + i
            yield sector, 0 if piece.place is None else hash((sector, piece.content, piece.offset + i))


def _painted(writes: Iterable[Piece]) -> tuple[Piece, ...]:
    """What is visible of these writes, by sector: later ones are above earlier ones."""
    visible: list[Piece] = []
    for write in writes:
        first = bisect_right(visible, write.sector, key=lambda piece: piece.end)
        last = bisect_left(visible, write.end, lo=first, key=lambda piece: piece.sector)
        below = visible[first:last]
        left = [below[0].part(below[0].sector, write.sector)] if below and below[0].sector < write.sector else []
        right = [below[-1].part(write.end, below[-1].end)] if below and below[-1].end > write.end else []
        visible[first:last] = [*left, write, *right]
    return tuple(visible)


def _torn(write: Piece, sectors: int) -> Piece:
    """The first sectors of a write, or with a negative number all but its first."""
    return (
        write.part(write.sector, write.sector + sectors)
        if sectors > 0
        else write.part(write.sector - sectors, write.end)
    )


def _name(epoch: Epoch, subset: Subset) -> str:
    events = f".{subset.events}" if subset.events < len(epoch.events) else ""
    torn = "" if subset.torn is None else f"+{subset.torn}/{subset.sectors}"
    return f"{epoch.number}{events}:{_ranges(sorted(subset.writes))}{torn}"


def _ranges(numbers: Sequence[int]) -> str:
    """`0-4,6` of 0, 1, 2, 3, 4, 6; `-` of none."""
    runs: list[list[int]] = []
    for each in numbers:
        if runs and runs[-1][-1] == each - 1:
            runs[-1].append(each)
        else:
            runs.append([each])
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs) or "-"


def _numbers(text: str, count: int) -> frozenset[int] | None:
    """The numbers of `_ranges`' text; None if one of them is not below the count."""
    if text == "-":
        return frozenset()
    numbers: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if not first.isdigit() or (dash and not last.isdigit()) or int(last or first) >= count:
            return None
        numbers |= set(range(int(first), int(last or first) + 1))
    return frozenset(numbers)


def least(lacks: frozenset[int], fails: Callable[[frozenset[int]], bool]) -> frozenset[int]:
    """A smallest part of the writes that a failing state lacks whose lack alone still fails: each of them is needed.

    `fails` says whether the state without these writes fails; it does with `lacks`. This is ddmin of Zeller and
    Hildebrandt (2002), "Simplifying and isolating failure-inducing input".
    """
    those, parts = sorted(lacks), 2
    while len(those) > 1:
        size = -(-len(those) // parts)
        chunks = [those[i : i + size] for i in range(0, len(those), size)]
        rests = [[each for each in those if each not in chunk] for chunk in chunks] if len(chunks) > 2 else []  # noqa: PLR2004
        for candidate in (*chunks, *rests):
            if fails(frozenset(candidate)):
                parts = 2 if candidate in chunks else max(parts - 1, 2)
                those = candidate
                break
        else:
            if size == 1:
                break
            parts = min(2 * parts, len(those))
    return frozenset(those)
