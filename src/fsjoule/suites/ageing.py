"""Ages a filesystem: the operations of months of use, as a script that replays them on the board.

What shapes an aged filesystem is how full it is, how often its device has been written, and the sizes and ages of its
files (Kadekodi, Nagarajan, Ganger: Geriatrix, CMU-PDL-17-106). The replay fills the device to the asked share and then
goes on at that share: files are made in pieces, several at once, and removed when their life ends; a profile that
writes at random places overwrites a database. All choices come from the age's seed, none from the filesystem: each gets
the same operations.
"""

from __future__ import annotations

import hashlib
import heapq
import math
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from statistics import NormalDist
from typing import Final

from fsjoule.errors import ConfigError
from fsjoule.filesystems import filesystem
from fsjoule.model import KIB, MIB, Planned
from fsjoule.model.age import Age
from fsjoule.suites.plan import USABLE, StorageSpace
from fsjoule.suites.profile import UsageProfile, profile_names, profile_of

# The layout changes little after the device was written so often; a year of some profiles writes it 200 times. ext4 on
# 256 MiB, `logger`: 1, 21, 87, 76, 79 % of the free space in runs below 1 MiB after 0.5, 1, 2, 4, 8 times.
MOST_TURNS: Final = 4.0
# A database is not overwritten more often: then each of its places was written.
_MOST_OVERWRITES: Final = 1.0
_UNIT: Final = 4 * KIB
_PIECE_UNITS: Final = 8  # a file grows by pieces of 32 KiB
_STREAMS: Final = 4  # files that grow at the same time
_PIECES_PER_SYNC: Final = 16
_PIECES_PER_SYNC_UNSAFE: Final = 256  # of a profile that syncs little: the kernel writes back by itself
_SYNCS: Final = 0.25  # share of a profile's bytes with an fsync from which files are synced while they grow
_MOST_FILES, _FEWEST_FILES = 4096, 64
_SIGMA: Final = 1.2  # of sizes and of life times, both lognormal
_LARGEST: Final = 16  # times the mean
_FOLDERS: Final = 16
_LEAST_DATABASE: Final = 4 * MIB
_ROUNDS: Final = 8
_SMALLEST: Final = 64 * MIB
_SIGNS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"

_FIO: Final = (
    "--name=b --filename=database --size={mib}m --ioengine=psync --fallocate=none --norandommap=1 --end_fsync=1 "
    "--output=/dev/null"
)
# awk writes all files without another program. Its text is of random signs (Lehmer's), because it ends at a NUL.
_SCRIPT: Final = """#!/bin/sh
# Replays {name} in the folder "$1".
set -e
cd "$1"
mkdir aged
cd aged
mkdir {folders}
b="{fio}"
{layout}
awk '
function run(command) {{ if (system(command)) {{ print command " failed"; exit 1 }} }}
function done(file) {{ if (close(file)) {{ print file " cannot be written"; exit 1 }} }}
BEGIN {{
    ORS = ""
    signs = "{signs}"
    x = {seed}
    for (i = 0; i < {piece} / 256; i++) {{
        part = ""
        for (n = 0; n < 256; n++) {{ x = (x * 16807) % 2147483647; part = part substr(signs, x % 64 + 1, 1) }}
        piece = piece part
    }}
    small = substr(piece, 1, {unit})
}}
$1 == "a" {{ # N FILE...: each file grows by N pieces, in turn
    for (n = $2; n > 0; n--) {{
        for (i = 3; i <= NF; i++) {{ print piece >> $i; done($i) }}
        written += NF - 2
        if (written >= {per_sync}) {{ written = 0; run("sync") }}
    }}
}}
$1 == "t" {{ for (n = $3; n > 0; n--) print small >> $2; done($2) }} # FILE N: it grows by N small pieces
$1 == "d" {{ run("rm " substr($0, 3)) }}
$1 == "b" {{ run("fio " fio " --rw=randwrite --bs={block}k --io_size=" $3 "m --randseed=" $2) }} # overwrites
' fio="$b" <<'END'
{operations}
END
sync
set -- $(find . -type f -exec stat -c %s {{}} + | awk '{{ bytes += $1 }} END {{ printf "%d %.0f", NR, bytes }}')
[ "$1 $2" = "{files} {bytes}" ] || {{ echo "the filesystem holds $2 bytes of {bytes}: too full"; exit 1; }}
"""


@dataclass(frozen=True, slots=True)
class Replay:
    """The script that ages a filesystem on a device. `turns` is how often the device is written in that time.

    `replayed` of them are replayed. `digest` is that of the operations; `files` are there at the end.
    """

    script: bytes
    digest: str
    turns: float
    replayed: float
    files: int
    live_bytes: int


@dataclass
class _Use:
    """The files while they are made and removed, in units of 4 KiB."""

    chance: random.Random
    mean: float
    room: int
    live: int = 0
    written: int = 0
    made: int = 0
    sizes: dict[str, int] = field(default_factory=dict[str, int])
    ends: list[tuple[float, str]] = field(default_factory=list[tuple[float, str]])

    def lines(self, until: float) -> Iterator[str]:
        """The operations until so many units are written."""
        while self.written < until:
            batch = sorted((self._size(), self._name()) for _ in range(_STREAMS))
            needed = sum(size for size, _ in batch)
            if removed := list(self._removed(needed)):
                yield f"d {' '.join(removed)}"
            yield from _grown(batch)
            for size, name in batch:
                self.sizes[name] = size
                self.written += size
                heapq.heappush(self.ends, (self.written + self.room * self._lognormal(), name))
            self.live += needed

    def _removed(self, needed: int) -> Iterator[str]:
        while self.live + needed > self.room and self.ends:
            name = heapq.heappop(self.ends)[1]
            self.live -= self.sizes.pop(name)
            yield name

    def _size(self) -> int:
        return max(1, round(self.mean * min(self._lognormal(), _LARGEST)))

    def _name(self) -> str:
        self.made += 1
        return f"{self.made % _FOLDERS}/{self.made}"

    def _lognormal(self) -> float:
        """A number of mean 1."""
        normal = NormalDist().inv_cdf(max(self.chance.random(), 1e-9))
        return math.exp(_SIGMA * normal - _SIGMA**2 / 2)


def _grown(batch: list[tuple[int, str]]) -> Iterator[str]:
    """The operations that make files of these sizes, the smallest first, at the same time."""
    done = 0
    for i, (size, _) in enumerate(batch):
        pieces = size // _PIECE_UNITS
        if pieces > done:
            yield f"a {pieces - done} {' '.join(name for _, name in batch[i:])}"
            done = pieces
    yield from (f"t {name} {size % _PIECE_UNITS}" for size, name in batch if size % _PIECE_UNITS)


def usage_of(age: Age) -> UsageProfile:
    """The profile of an age. Raises ConfigError for one that does not come with fsjoule, or has no card."""
    if age.profile not in profile_names():
        hint = "a file of your own cannot be one: its name would not say what it holds"
        choices = ", ".join(profile_names())
        raise ConfigError(f"unknown profile {age.profile!r} of an age", hint=f"choose from {choices}; {hint}")
    profile = profile_of(age.profile)[1]
    if profile.card is None:
        raise ConfigError(f"the profile {age.profile} has no card: its size says how often a year writes it")
    return profile


def turns(age: Age) -> float:
    """How often a device is written in this time."""
    profile = usage_of(age)
    card_mib = profile.card.size_gib * KIB if profile.card else math.inf
    return profile.writes.mib_per_day * age.days / card_mib


def check_aged(entries: Iterable[Planned], space: StorageSpace) -> None:
    """Raise ConfigError for an aged filesystem whose device is too small, or that leaves no room for its workload."""
    for entry in entries:
        age = filesystem(entry.filesystem).age
        if age is None:
            continue
        where, size_bytes = space.scratch_of(entry.storage)
        if size_bytes < _SMALLEST:
            what = f"{where} has {size_bytes / MIB:.0f} MiB: an aged filesystem takes {_SMALLEST // MIB} or more"
            raise ConfigError(what, hint="--age 0, or another storage device; nothing was written or erased")
        room = int(100 * (USABLE - entry.workload.space_bytes / size_bytes))
        if age.fill > room:
            raise ConfigError(
                f"{entry.suite} does not fit an aged filesystem: {entry.workload.slug} puts "
                f"{entry.workload.space_bytes / MIB:.0f} MiB onto {where}, which is {age.fill} % full",
                hint=(f"--age-fill {room} or less; " if room > 0 else "") + "nothing was written or erased",
            )


@lru_cache(maxsize=8)
def replay(age: Age, device_bytes: int) -> Replay:
    """The operations of an age for a device of this size. Raises ConfigError for its profile."""
    profile, all_turns = usage_of(age), turns(age)
    writes, replayed = profile.writes, min(all_turns, MOST_TURNS)
    live = int(device_bytes * age.fill / 100)
    database = int(live * writes.random_share / 2) // MIB * MIB
    database = database if database >= _LEAST_DATABASE else 0
    in_files = live - database
    per_file = (1 - writes.random_share) * writes.mib_per_day * MIB / max(1.0, profile.files_per_day)
    mean = min(max(per_file, in_files / _MOST_FILES, _UNIT), in_files / _FEWEST_FILES)
    synced = profile.fsynced_mib_per_day / writes.mib_per_day if writes.mib_per_day else 0.0
    chance = random.Random(f"{age.profile} {age.seed}")  # noqa: S311 - a recorded seed, not a secret
    use = _Use(chance, mean / _UNIT, int(in_files / _UNIT))
    # The first turn fills the device.
    churned = max(0.0, replayed - age.fill / 100) * (1 - writes.random_share) * device_bytes / _UNIT
    overwritten_mib = int(min(replayed * writes.random_share * device_bytes, _MOST_OVERWRITES * database) / MIB)
    lines: list[str] = []
    # What comes next might be larger than what is left.
    lines += use.lines(use.room - 2 * _STREAMS * use.mean)
    filled = use.written
    for number in range(1, _ROUNDS + 1):
        lines += use.lines(filled + churned * number / _ROUNDS)
        if part := overwritten_mib * number // _ROUNDS - overwritten_mib * (number - 1) // _ROUNDS:
            lines.append(f"b {age.seed * _ROUNDS + number} {part}")
    bytes_left = use.live * _UNIT + database
    script = _SCRIPT.format(
        files=len(use.sizes) + bool(database),
        bytes=bytes_left,
        name=age.name,
        folders=" ".join(map(str, range(_FOLDERS))),
        signs=_SIGNS,
        seed=age.seed,
        piece=_PIECE_UNITS * _UNIT,
        unit=_UNIT,
        per_sync=_PIECES_PER_SYNC if synced >= _SYNCS else _PIECES_PER_SYNC_UNSAFE,
        fio=_FIO.format(mib=database // MIB),
        layout="fio $b --rw=write --bs=1024k" if database else ":",
        block=writes.block_kib,
        operations="\n".join(lines),
    ).encode()
    digest = hashlib.sha256(script).hexdigest()
    return Replay(script, digest, all_turns, replayed, len(use.sizes) + bool(database), bytes_left)
