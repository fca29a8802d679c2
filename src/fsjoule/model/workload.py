"""Workloads. Each knows its size, written bytes, space, time and names."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, replace
from typing import ClassVar, Final, Literal, Protocol, Self

from fsjoule.model.operation import (
    KIB,
    MIB,
    BlockKind,
    FlakeyModel,
    Hazard,
    HeldState,
    ImportKind,
    IoPattern,
    StateKind,
    TimedKind,
    fio_bytes,
    fio_seconds,
    size_label,
)

_FEWEST_BLOCKS: Final = 16
_SHORTEST_S: Final = 3.0
# Assumed time of a timed operation, besides moving its bytes, before the board has been seen doing it.
_OPERATION_S: Final = 1.0
# Files of up to 256 KiB that a small board writes and syncs per second: 5 to 8 were seen.
_FILES_PER_S: Final = 10
# It waits until the device begins to damage data.
_FLAKEY_S: Final = 20.0
_STATES_S: Final = 300.0
CRASH_LOG_BYTES: Final = 160 * MIB
# Files that are written or hashed: two halving series of ten (Berger, 2016).
SERIES_FILES: Final = 20
_NO_NAME: Final = re.compile(r"[^A-Za-z0-9._=+,-]+")
_LONGEST_SLUG: Final = 80
_DIGEST: Final = 8
# Options of fio that a name tells, if their value is one word.
_TOLD: Final = {
    "rwmixread": "mix{}",
    "rate": "rate{}",
    "rate_iops": "{}iops",
    "random_distribution": "{}",
    "ioengine": "{}",
    "fdatasync": "fdatasync{}",
    "thinktime": "think{}",
    "runtime": "most{}",
    "end_fsync": "endfsync{}",
    "verify": "verify{}",
}
_WORD: Final = re.compile(r"[a-z]*[_0-9]*:?\d*(\.\d+)?[a-z0-9]*", re.IGNORECASE)


class _Sized(Protocol):
    @property
    def slug(self) -> str: ...

    @property
    def size_bytes(self) -> int: ...

    @property
    def space_bytes(self) -> int: ...


class _Workload:
    """The properties of all workloads, with the defaults of most.

    Each also has a `slug`, its short name, unique within a suite; `seconds`, its time at a speed in MiB/s; and
    `scaled`, the workload with its sizes multiplied. `cuts_power`: it ends with a power cut at a random moment.
    `modules` are kernel modules that it needs beside the filesystem's.
    """

    __slots__ = ()
    cuts_power: ClassVar[bool] = False
    modules: ClassVar[tuple[str, ...]] = ()

    @property
    def name(self: _Sized) -> str:
        return self.slug

    @property
    def label(self: _Sized) -> str:
        """Its name in tables and charts: `randread 16 KiB`, `copy 24 MiB`."""
        return self.slug

    @property
    def identity(self: _Sized) -> str:
        """The slug with the size, without which figures must not be compared."""
        return _identity(self)

    @property
    def explained(self) -> str:
        """What its name does not tell; empty if it tells all."""
        return ""

    @property
    def order(self: _Sized) -> tuple[int, int, int]:
        return (2, self.size_bytes, 0)

    @property
    def is_boot(self) -> bool:
        return False

    @property
    def is_off(self) -> bool:
        """Whether the board is off meanwhile, and booted afterwards."""
        return False

    @property
    def reads_an_image(self) -> bool:
        """Whether a read-only filesystem can do it."""
        return False

    @property
    def uses_root(self) -> bool:
        """Whether it needs a file of its size on the card's root, too."""
        return False

    @property
    def only_writes(self) -> bool:
        """Whether it only writes: otherwise the device's write counter is not about the moved bytes."""
        return True

    @property
    def space_bytes(self: _Sized) -> int:
        """Bytes that it puts onto the filesystem; 0 if it fills a share of it."""
        return self.size_bytes

    def written_bytes(self: _Sized, mib_per_s: float) -> int:
        """Bytes that it writes at that speed, with its preparation, as far as its sizes tell."""
        del mib_per_s
        return self.space_bytes


class _WithoutFio(_Workload):
    """Values for workloads without fio: `access` is the form of fio's requests, `4 MiB direct`.

    `programs` is the number of concurrent programs, `buffer_bytes` the memory of blocks in flight.
    """

    __slots__ = ()
    jobs: ClassVar[int] = 1
    programs: ClassVar[int] = 1
    block_size_bytes: ClassVar[int] = 0
    access: ClassVar[str] = ""
    buffer_bytes: ClassVar[int] = 0

    def at_depth(self, depth: int) -> Self:
        """The workload with that queue depth, if it has a queue."""
        del depth
        return self

    def seconds(self, mib_per_s: float) -> float:
        """Its time, as far as its sizes tell; taken as 1 s where nothing is known of it."""
        del mib_per_s
        return _OPERATION_S

    def scaled(self, factor: float) -> Self:
        """The workload with its sizes multiplied: unchanged where they are small, or its program's or test's own."""
        del factor
        return self


@dataclass(frozen=True, slots=True)
class FioWorkload(_Workload):
    """One fio job. `fsync_every` counts writes (0: never); `end_fsync` makes buffered writes reach the card.

    `size_bytes` is divided among `files`. With `io_bytes` that much is moved, over and over in the same files; with
    `runtime_s` as much as that time allows. Each of the `jobs` has its own files, unless they are `shared`. With
    `kernel_threads` the CPU time of each kernel thread is recorded, too. `options` are further options of fio, by name;
    they win over the fields. `beside` are other jobs that run at the same time, and whose results are added.
    """

    operation: IoPattern
    block_size_bytes: int
    size_bytes: int
    jobs: int = 1
    depth: int = 1
    direct: bool = False
    fsync_every: int = 0
    end_fsync: bool = True
    engine: str = "psync"
    files: int = 1
    io_bytes: int = 0
    runtime_s: float = 0.0
    shared: bool = False
    kernel_threads: bool = False
    options: tuple[tuple[str, str], ...] = ()
    beside: tuple[FioWorkload, ...] = ()
    kind: Literal["fio"] = "fio"

    @property
    def slug(self) -> str:
        """Short name, unique within a suite: `randread-16k`."""
        block = self.block_size_bytes
        size = f"{block}b" if block % KIB else f"{block // KIB}k"
        return "-".join([self.operation.value, size, *self._extras])

    @property
    def _extras(self) -> list[str]:
        """Parts of the name for values that are not the default."""
        extras = ["direct"] if self.direct else []
        extras += [f"{self.jobs}jobs"] if self.jobs > 1 else []
        extras += [f"qd{self.depth}"] if self.depth > 1 else []
        extras += [f"fsync{self.fsync_every}"] if self.fsync_every else []
        extras += [f"{self.files}files"] if self.files > 1 else []
        extras += [f"{self.runtime_s:g}s"] if self.runtime_s else []
        extras += ["shared"] if self.shared and self.options else []
        told = {name: _TOLD[name].format(value) for name, value in self.options if _is_told(name, value)}
        extras += [word.replace(":", "") for word in told.values()]
        extras += [f"with{len(self.beside)}"] if self.beside else []
        hidden = [[name, value] for name, value in self.options if name not in told]
        beside = [replace(each, size_bytes=0, io_bytes=0).words for each in self.beside]  # a name has no sizes
        return extras + ([_digest([hidden, *beside])] if hidden or beside else [])

    @property
    def words(self) -> str:
        """The job in fio's words, as far as they differ from a plain job's."""
        fields = {"rw": self.operation.value, "bs": self.block_size_bytes, "size": self.size_bytes}
        plain = {"numjobs": 1, "iodepth": 1, "nrfiles": 1, "fsync": 0, "io_size": 0}
        values = (self.jobs, self.depth, self.files, self.fsync_every, self.io_bytes)
        fields |= {name: value for name, value in zip(plain, values, strict=True) if value != plain[name]}
        fields |= {"time_based": 1, "runtime": f"{self.runtime_s:g}"} if self.runtime_s else {}
        fields |= {"filename": "shared"} if self.shared else {}
        fields |= {"direct": 1} if self.direct else {}
        return " ".join(f"{name}={value}" for name, value in (*fields.items(), *self.options))

    @property
    def explained(self) -> str:
        if not self.beside and all(_is_told(*option) for option in self.options):
            return ""
        return f"{self.slug} is fio's {'; at the same time '.join(each.words for each in self.together)}"

    @property
    def together(self) -> tuple[FioWorkload, ...]:
        """Its jobs of different kinds."""
        return self, *self.beside

    @property
    def label(self) -> str:
        return " ".join([self.operation.value, size_label(self.block_size_bytes), *self._extras])

    @property
    def identity(self) -> str:
        again = f" of {self.io_bytes // KIB}KiB" if self.io_bytes else ""
        return _identity(self) + again + "".join(f" + {each.identity.partition(' ')[2]}" for each in self.beside)

    @property
    def order(self) -> tuple[int, int, int]:
        return (0, self.block_size_bytes, list(IoPattern).index(self.operation))

    @property
    def reads(self) -> bool:
        return any(each.operation.reads for each in self.together)

    @property
    def verifies(self) -> bool:
        """Whether it reads what it has written."""
        return any("verify" in (one := dict(each.options)) and one.get("do_verify") != "0" for each in self.together)

    @property
    def only_writes(self) -> bool:
        return not self.reads and not self.verifies

    @property
    def only_reads(self) -> bool:
        """Whether its files stay as they were laid out."""
        return not any(each.operation.writes for each in self.together)

    @property
    def reads_an_image(self) -> bool:
        return self.only_reads

    @property
    def mixed(self) -> bool:
        """Whether fio reads and writes at the same time. What it has written it verifies afterwards."""
        return self.reads and not self.only_reads

    @property
    def files_key(self) -> tuple[object, ...]:
        """Workloads of one key need the same files, but for their size."""
        return self.files, self.jobs, self.shared, self.direct, self.options, self.beside

    @property
    def programs(self) -> int:
        return sum(each.jobs for each in self.together)

    def reads_files_of(self, size_bytes: int) -> bool:
        """Whether it may read files of that size, the first part of them if they are larger: by an eighth at most.

        Equal sizes become a little different when they are rounded to whole blocks.
        """
        return self.size_bytes <= size_bytes <= self.size_bytes * 9 // 8

    @property
    def access(self) -> str:
        return f"{size_label(self.block_size_bytes)} {'direct' if self.direct else 'buffered'}"

    @property
    def buffer_bytes(self) -> int:
        return sum(each.jobs * each.depth * each.block_size_bytes for each in self.together)

    @property
    def space_bytes(self) -> int:
        return sum(each.size_bytes * (1 if each.shared else each.jobs) for each in self.together)

    @property
    def moved_bytes(self) -> int:
        """Bytes that all jobs read or write, if no time ends them."""
        moved = sum(max(each.size_bytes, each.io_bytes) * each.jobs for each in self.together)
        return 2 * moved if self.verifies else moved

    def written_bytes(self, mib_per_s: float) -> int:
        beside = sum(each.written_bytes(mib_per_s) for each in self.beside)
        laid_out = replace(self, beside=()).space_bytes
        if not self.operation.writes:
            return laid_out + beside
        written = max(laid_out, self.io_bytes * self.jobs)
        timed = self.runtime_s * mib_per_s * MIB
        mixed = bool(timed) and self.operation.reads
        return beside + (round(written + timed * self._written_share) if mixed else max(written, round(timed)))

    @property
    def _written_share(self) -> float:
        return 1 - int(dict(self.options).get("rwmixread", "50")) / 100

    @property
    def paced_s(self) -> float:
        """The seconds that it takes at least, because an option holds it back."""
        return max(map(_paced_s, self.together))

    def seconds(self, mib_per_s: float) -> float:
        """Its time at that speed, with the time to lay out its files."""
        runtime_s = max(each.runtime_s for each in self.together)
        if not runtime_s:
            return max(self.paced_s, self.moved_bytes / MIB / mib_per_s)
        laid_out_s = self.space_bytes / MIB / mib_per_s if self.reads else 0.0
        return laid_out_s + runtime_s

    def at_depth(self, depth: int) -> Self:
        return replace(self, depth=depth)

    def at_most(self, depth: int) -> Self:
        """The workload with no queue that is deeper."""
        beside = tuple(each.at_most(depth) for each in self.beside)
        return replace(self, depth=min(self.depth, depth), beside=beside)

    def scaled(self, factor: float) -> Self:
        """The workload with sizes and time multiplied: whole blocks, at least 16 of them if it has as many.

        With several files, their number is multiplied and their size stays. Files with less than 16 blocks in all are
        read or written repeatedly until 16 blocks have been moved. No time gets shorter than 3 s.
        """
        if self.beside:
            alone = replace(self, beside=()).scaled(factor)
            return replace(alone, beside=tuple(each.scaled(factor) for each in self.beside))
        block = self.block_size_bytes
        if self.files > 1:
            files, each = max(1, round(self.files * factor)), self.size_bytes // self.files
            again = files * (each // block) < _FEWEST_BLOCKS <= self.files * (each // block)
            io_bytes = _FEWEST_BLOCKS * block if again else self.io_bytes
            return replace(self, files=files, size_bytes=files * each, io_bytes=io_bytes)
        fewest = _FEWEST_BLOCKS if self.size_bytes >= _FEWEST_BLOCKS * block else 1
        blocks = max(fewest, round(self.size_bytes * factor / block))
        moved = max(blocks, round(self.io_bytes * factor / block)) if self.io_bytes else 0
        runtime_s = max(_SHORTEST_S, round(self.runtime_s * factor)) if self.runtime_s else 0.0
        return replace(self, size_bytes=blocks * block, io_bytes=moved * block, runtime_s=runtime_s)


@dataclass(frozen=True, slots=True)
class OwnCommand:
    """A user's program on the board, with arguments; the working directory is on the filesystem under test.

    An argument may have `{directory}`, and `{size_kib}` or `{size_mib}` of the workload. `./NAME` is one of the
    `files`, name and SHA-256 each, whose contents the plan has. The commands of `prepare` run before the window. Beyond
    `limit_s` it is ended. With `sync` all it wrote is on the device at the end of the window. What it moved is the
    first group of the pattern `moved` in its output, in bytes, or `moved_bytes`.
    """

    name: str
    argv: tuple[str, ...]
    prepare: tuple[tuple[str, ...], ...] = ()
    files: tuple[tuple[str, str], ...] = ()
    limit_s: float = 300.0
    sync: bool = True
    moved: str = ""
    moved_bytes: int = 0

    def digest(self, size_bytes: int) -> str:
        """The digest of all that makes its series, with what it moves for each byte of a workload of that size."""
        share = round(self.moved_bytes / (size_bytes or MIB), 3)
        return _digest([self.argv, self.prepare, self.files, self.sync, self.moved, *([share] if share else [])])

    @property
    def size_unit(self) -> int:
        """Bytes of the unit in which it is told the workload's size; 0 if it is not told."""
        words = " ".join(word for argv in (self.argv, *self.prepare) for word in argv)
        return MIB if "{size_mib}" in words else KIB if "{size_kib}" in words else 0


@dataclass(frozen=True, slots=True)
class SegmentRule:
    """Where a segment of a boot begins: at a `mark` of the board's, or at the first console line that `line` matches.

    A mark counts before a line, for the meter itself has heard it. With neither it is the moment of power-on. A boot
    need not have an `optional` one. The last rule of a boot is its end.
    """

    name: str
    line: str = ""
    mark: str = ""
    optional: bool = False


@dataclass(frozen=True, slots=True)
class TimedWorkload(_WithoutFio):
    """An operation timed as a whole, or a user's `command`.

    `size_bytes` is the size of a copy, or of the files that are written or hashed. `fill` is the used share of the
    filesystem: before a mount, or at the end of fragmenting. A copy comes from the board's memory, or with `from_root`
    from a file of its root filesystem. A boot from power-on has `rules`, and is the `segment` of that name, or whole.
    """

    operation: TimedKind
    size_bytes: int = 0
    fill: float = 0.0
    from_root: bool = False
    command: OwnCommand | None = None
    rules: tuple[SegmentRule, ...] = ()
    segment: str = ""
    kind: Literal["timed"] = "timed"

    @property
    def slug(self) -> str:
        """Short name, unique within a suite: `mkfs`, `copy-16m`, `mount-full60`, `command-logger`."""
        parts = [self.operation.value]
        if self.command:
            return f"{self.operation.value}-{self.command.name}"
        if self.segment:
            return f"{self.operation.value}-{self.segment}"
        if self.size_bytes:
            parts.append(f"{self.size_bytes // MIB}m" if self.size_bytes % MIB == 0 else f"{self.size_bytes // KIB}k")
        if self.fill:
            parts.append(f"full{round(100 * self.fill)}")
        return "-".join(parts)

    @property
    def name(self) -> str:
        return self.slug if self.command or self.segment else self.operation.value

    @property
    def identity(self) -> str:
        """Another script, or another argument, is another series; so is a segment that begins or ends elsewhere."""
        if self.rules:
            return f"{self.slug} {_digest([[rule.line, rule.mark] for rule in self._edges])}"
        return f"{_identity(self)} {self.command.digest(self.size_bytes)}" if self.command else _identity(self)

    @property
    def _edges(self) -> tuple[SegmentRule, ...]:
        """The rules that make its begin and its end: a segment ends at the next one that its boot has."""
        if not self.segment:
            return self.rules[-1:]
        at = [rule.name for rule in self.rules].index(self.segment)
        ends = next(n for n, rule in enumerate(self.rules[at + 1 :], at + 1) if not rule.optional)
        return self.rules[at : ends + 1]

    @property
    def label(self) -> str:
        if self.command:
            return self.command.name
        if self.segment:
            return f"{self.operation.value}/{self.segment}"
        return f"{self.operation.value} {size_label(self.size_bytes)}" if self.size_bytes else self.operation.value

    @property
    def explained(self) -> str:
        if not self.command:
            return ""
        files = "".join(f", {name} {digest[:8]}" for name, digest in self.command.files)
        commands = " after ".join(
            f"`{' '.join(argv)}`" for argv in (self.command.argv, *reversed(self.command.prepare))
        )
        return f"{self.slug} is {commands}{files}"

    @property
    def order(self) -> tuple[int, int, int]:
        at = [rule.name for rule in self.rules].index(self.segment) + 1 if self.segment else 0
        return (1, self.size_bytes + at, list(TimedKind).index(self.operation))

    @property
    def is_boot(self) -> bool:
        return self.operation in (TimedKind.BOOT, TimedKind.POWER_ON)

    @property
    def reads_an_image(self) -> bool:
        return (self.is_boot or self.operation in (TimedKind.MOUNT, TimedKind.UMOUNT)) and not self.fill

    @property
    def only_writes(self) -> bool:
        return self.operation not in (TimedKind.HASH_FILES, TimedKind.COMMAND)

    @property
    def uses_root(self) -> bool:
        return self.from_root

    @property
    def files(self) -> int:
        """The number of files that it writes or hashes; 0 if it is not a number."""
        return SERIES_FILES if self.operation in (TimedKind.WRITE_FILES, TimedKind.HASH_FILES) else 0

    @property
    def moved_bytes(self) -> int:
        """Bytes that it moves, if they are one number."""
        moving = (TimedKind.COPY, TimedKind.WRITE_FILES, TimedKind.HASH_FILES)
        if self.command:
            return self.command.moved_bytes
        return self.size_bytes if self.operation in moving else 0

    def seconds(self, mib_per_s: float) -> float:
        return _OPERATION_S + self.size_bytes / MIB / mib_per_s

    def scaled(self, factor: float) -> Self:
        """The workload with its size multiplied, and what its command moves with it."""
        if self.command:
            unit = self.command.size_unit
            if not unit or factor == 1:
                return self  # it does what it does
            size_bytes = max(unit, round(self.size_bytes * factor / unit) * unit)
            moved_bytes = round(self.command.moved_bytes * size_bytes / self.size_bytes)
            return replace(self, size_bytes=size_bytes, command=replace(self.command, moved_bytes=moved_bytes))
        return replace(self, size_bytes=_kib(self.size_bytes * factor))


@dataclass(frozen=True, slots=True)
class PowerLossWorkload(_WithoutFio):
    """Files are written and synced one by one until the power is cut at a random moment.

    With `sync` the filesystem is mounted with that option and nothing else syncs. File sizes are random, from
    `smallest_bytes` to `size_bytes`. The cut comes `earliest_s` to `latest_s` after the start of the first file.
    """

    sync: bool
    size_bytes: int = 256 * KIB
    smallest_bytes: int = 4 * KIB
    earliest_s: float = 0.5
    latest_s: float = 4.0
    kind: Literal["power-loss"] = "power-loss"
    operation: ClassVar = Hazard.POWER_LOSS
    cuts_power: ClassVar = True

    @property
    def mean_s(self) -> float:
        return (self.earliest_s + self.latest_s) / 2

    @property
    def slug(self) -> str:
        return f"power-loss-{'sync' if self.sync else 'async'}"

    @property
    def space_bytes(self) -> int:
        return round(self.latest_s * _FILES_PER_S) * self.size_bytes

    def written_bytes(self, mib_per_s: float) -> int:
        del mib_per_s
        return round(_FILES_PER_S * self.mean_s * (self.smallest_bytes + self.size_bytes) / 2)

    def seconds(self, mib_per_s: float) -> float:
        """Its time, without the boot after it."""
        del mib_per_s
        return self.mean_s


@dataclass(frozen=True, slots=True)
class FlakeyWorkload(_WithoutFio):
    """A large file and a sync, several small ones and a sync, on a device that damages written data (dm-flakey)."""

    model: FlakeyModel
    size_bytes: int = 30 * MIB
    files: int = 8
    file_bytes: int = MIB
    kind: Literal["dm-flakey"] = "dm-flakey"
    operation: ClassVar = Hazard.DM_FLAKEY
    modules: ClassVar = ("dm-flakey",)

    @property
    def slug(self) -> str:
        return f"dm-flakey-{self.model.value}"

    @property
    def space_bytes(self) -> int:
        return self.size_bytes + self.files * self.file_bytes

    def seconds(self, mib_per_s: float) -> float:
        return _FLAKEY_S + self.space_bytes / MIB / mib_per_s

    def scaled(self, factor: float) -> Self:
        return replace(self, size_bytes=_kib(self.size_bytes * factor))


@dataclass(frozen=True, slots=True)
class CrashWorkload(_WithoutFio):
    """A user's program on a recorded device: each state that a power cut can leave behind is checked.

    The device has at most `device_bytes`, and the log of its writes `log_bytes`, in the board's memory if it has no
    device of its own. With `only` no other states are checked than these. With `confirm` the program is an update of
    the board: the whole card is recorded, to the end of that program in the next boot, and each state is booted.
    """

    command: OwnCommand
    confirm: tuple[str, ...] = ()
    device_bytes: int = 64 * MIB
    log_bytes: int = CRASH_LOG_BYTES
    size_bytes: int = 0
    only: tuple[str, ...] = ()
    kind: Literal["crash-states"] = "crash-states"
    operation: ClassVar = Hazard.CRASH_STATES
    modules: ClassVar = ("dm-log-writes", "dm-snapshot", "dm-zero")

    @property
    def slug(self) -> str:
        return f"{Hazard.CRASH_STATES.value}-{self.command.name}"

    @property
    def identity(self) -> str:
        """Another script, other arguments and other states are another series."""
        states = hashlib.sha256(" ".join(self.only).encode()).hexdigest()[:8]
        confirmed = f" {_digest(self.confirm)}" if self.confirm else ""
        return f"{self.slug} {self.command.digest(0)}{confirmed}" + (f" states {states}" if self.only else "")

    @property
    def space_bytes(self) -> int:
        return self.device_bytes

    def seconds(self, mib_per_s: float) -> float:
        """Unknown before the writes are recorded; taken as for a thousand states."""
        del mib_per_s
        return _STATES_S


@dataclass(frozen=True, slots=True)
class HeldWorkload(_WithoutFio):
    """A state that the board is held in for `held_s` seconds, and whose power is measured.

    The argv of `command` runs beside it the whole time, `copies` times (0: once for each processor); its `prepare` ran
    before. An empty argv is no command. With `mounted` the filesystem under test is, else it takes no part.
    """

    state: HeldState
    held_s: float
    command: OwnCommand
    copies: int = 1
    mounted: bool = False
    size_bytes: int = 0
    kind: Literal["state"] = "state"
    operation: ClassVar = StateKind.STATE

    @property
    def is_off(self) -> bool:
        return self.state is HeldState.OFF

    @property
    def reads_an_image(self) -> bool:
        return True

    @property
    def only_writes(self) -> bool:
        return False

    @property
    def slug(self) -> str:
        """`state-idle`."""
        return f"{StateKind.STATE.value}-{self.command.name}"

    @property
    def label(self) -> str:
        return self.command.name

    @property
    def identity(self) -> str:
        """`state-idle 120s 1a2b3c4d`. Another command, or another time, is another series."""
        digest = _digest([self.state, self.copies, self.mounted, self.command.digest(0)])
        return f"{self.slug} {self.held_s:g}s {digest}"

    @property
    def explained(self) -> str:
        if not self.command.argv:
            return ""
        copies = f" {self.copies} times" if self.copies > 1 else "" if self.copies else " on each processor"
        return f"{self.slug} runs `{' '.join(self.command.argv)}`{copies}"

    def seconds(self, mib_per_s: float) -> float:
        del mib_per_s
        return self.held_s

    def scaled(self, factor: float) -> Self:
        """The workload with its time multiplied, not below 3 s."""
        return replace(self, held_s=max(_SHORTEST_S, round(self.held_s * factor)))


@dataclass(frozen=True, slots=True)
class BlockWorkload(_WithoutFio):
    """A block of a test that is not fsjoule's: what it does between its marks is the test's own matter.

    `test` is pytest's name of the test, `block` that of the block, "" for the whole test.
    """

    test: str
    block: str = ""
    size_bytes: int = 0
    kind: Literal["block"] = "block"
    operation: ClassVar = BlockKind.BLOCK

    @property
    def only_writes(self) -> bool:
        return False

    @property
    def slug(self) -> str:
        """`block-tests.test_app.test_sync-ext4.sync`: a file's name. One that loses a character ends in a digest."""
        plain = self.test.replace(".py::", "::").replace("::", ".").replace("/", ".").replace("[", "-").replace("]", "")
        plain += f".{self.block}" if self.block else ""
        short = _NO_NAME.sub("_", plain)[-_LONGEST_SLUG:].lstrip(".-")
        digest = hashlib.sha256(f"{self.test}\0{self.block}".encode()).hexdigest()[:_DIGEST]
        return f"{BlockKind.BLOCK}-{short if short == plain else f'{short}-{digest}'}"

    @property
    def identity(self) -> str:
        """`block-tests/test_app.py::test_sync[ext4] sync`: as pytest has it, for two tests may have one slug."""
        return " ".join(filter(None, [f"{BlockKind.BLOCK}-{self.test}", self.block]))

    @property
    def label(self) -> str:
        """`test_sync[ext4] sync`."""
        return " ".join(filter(None, [self.test.rpartition("::")[2], self.block]))


@dataclass(frozen=True, slots=True)
class ImportedWorkload(_WithoutFio):
    """Work that somebody else measured: nothing is known of it but its name there, which is a file's name, too."""

    work: str
    size_bytes: int = 0
    kind: Literal["imported"] = "imported"
    operation: ClassVar = ImportKind.IMPORTED

    @property
    def only_writes(self) -> bool:
        return False

    @property
    def slug(self) -> str:
        """`imported-boot-to-login`, whatever its name there: it is no `boot` of ours."""
        return f"{ImportKind.IMPORTED}-{self.work}"


# What is shown as a whole: it has a duration and an energy.
OperationWorkload = TimedWorkload | BlockWorkload | ImportedWorkload
Workload = FioWorkload | OperationWorkload | PowerLossWorkload | FlakeyWorkload | CrashWorkload | HeldWorkload


def _identity(workload: _Sized) -> str:
    return f"{workload.slug} {workload.size_bytes // KIB}KiB" if workload.size_bytes else workload.slug


def _kib(size_bytes: float) -> int:
    return round(size_bytes / KIB) * KIB


def _is_told(name: str, value: str) -> bool:
    return name in _TOLD and _WORD.fullmatch(value) is not None


def _digest(content: object) -> str:
    return hashlib.sha256(json.dumps(content, separators=(",", ":")).encode()).hexdigest()[:8]


def _paced_s(job: FioWorkload) -> float:
    options, moved = dict(job.options), max(job.size_bytes, job.io_bytes)
    blocks = moved / job.block_size_bytes
    rates = [fio_bytes(each) for each in re.split("[,:]", options.get("rate", "")) if each]
    rates += [int(each) * job.block_size_bytes for each in re.split("[,:]", options.get("rate_iops", "")) if each]
    slowest = min(filter(None, rates), default=0)
    thought_s = blocks * fio_seconds(options.get("thinktime", "0"), 1e-6) / int(options.get("thinktime_blocks", "1"))
    return thought_s + (moved / slowest if slowest else 0.0)
