"""Two scripts on the board that test whether files survive: one writes files, one inspects them afterwards.

They need a POSIX shell and busybox's dd, sha256sum, stat, sync, tail, tr, wc.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from fsjoule.bench.onboard.marks import DIRECTORY
from fsjoule.model import KIB, FileFate, PowerLossWorkload

WRITER: Final = f"{DIRECTORY}/write-files"
INSPECTOR: Final = f"{DIRECTORY}/inspect-files"
LIST: Final = f"{DIRECTORY}/files.list"
# Random bytes in the board's memory; every file gets a different part.
POOL: Final = f"{DIRECTORY}/pool"
# Prints a part of the pool, with `skip=` and `count=` in bytes. busybox's tail takes ten times as long.
FROM_POOL: Final = f"dd if={POOL} bs=64k iflag=skip_bytes,count_bytes status=none"
_NEW: Final = f"{DIRECTORY}/new-file"
_POOL_OFFSETS: Final = 256 * KIB
_MOSTLY: Final = 0.5  # in random bytes one of 256 is a zero

# Ends only with an error: power is cut while it runs. A file is acknowledged when it and its directory have been synced
# (busybox's sync is fsync), as fsync(2) asks for; on a filesystem mounted with `sync`, when it has been written. Its
# checksum is taken before, from memory.
_WRITER_TEXT: Final = f"""#!/bin/sh
# write-files DIRECTORY sync|async SEED SMALLEST SPAN
directory=$1 mode=$2 chance=$3 smallest=$4 span=$5 n=0
next() {{
    chance=$(((chance * 1103515245 + 12345) & 0x7fffffff))
    drawn=$(((chance >> 8) % $1))
}}
while :; do
    n=$((n + 1))
    next "$span"
    size=$((smallest + drawn))
    next {_POOL_OFFSETS}
    {{ echo "$n"; {FROM_POOL} skip=$drawn count=$((size - ${{#n}} - 1)); }} > {_NEW}
    sum=$(sha256sum < {_NEW})
    if [ "$mode" = sync ]; then
        dd if={_NEW} of="$directory/$n" bs=1M 2>&1 || break
    else
        dd if={_NEW} of="$directory/$n" bs=1M conv=fsync 2>&1 && sync "$directory" || break
    fi > {DIRECTORY}/said
    echo "synced $n $size ${{sum%% *}}"
done
echo "stopped at $n: $(tail -n 1 {DIRECTORY}/said)"
exit 1
"""

_INSPECTOR_TEXT: Final = f"""#!/bin/sh
# inspect-files DIRECTORY: what is left of each file of the list, whose lines are NAME SIZE SHA256
while read -r name size sum; do
    file=$1/$name
    if ! said=$(stat -c %s "$file" 2>&1); then
        case $said in
            *'No such file'*) echo "$name missing" ;;
            *) echo "$name unreadable" ;;
        esac
    elif ! found=$(sha256sum < "$file" 2> /dev/null); then
        echo "$name unreadable"
    elif [ "${{found%% *}}" = "$sum" ]; then
        echo "$name intact"
    else
        echo "$name differs $(tr -d '\\0' < "$file" | wc -c)"
    fi
done < {LIST}
"""

SCRIPTS: Final = {WRITER: _WRITER_TEXT.encode(), INSPECTOR: _INSPECTOR_TEXT.encode()}

_SYNCED: Final = re.compile(r"^synced (\S+) (\d+) ([0-9a-f]{64})\n", re.MULTILINE)
_STOPPED: Final = re.compile(r"^stopped at .*\n", re.MULTILINE)
_NAMED: Final = 10
_MESSAGES: Final = 20


@dataclass(frozen=True, slots=True)
class Promised:
    """A file whose sync has returned."""

    name: str
    size_bytes: int
    sha256: str


def pool_argv(seed: int, size_bytes: int) -> tuple[str, ...]:
    """The command that makes the pool, the same for the same seed."""
    return (
        *("fio", "--name=pool", f"--filename={POOL}", "--rw=write", "--bs=64k", f"--size={size_bytes}"),
        *("--ioengine=psync", f"--randseed={seed}", "--refill_buffers", "--output=/dev/null"),
    )


def writer_pool_bytes(workload: PowerLossWorkload) -> int:
    return _POOL_OFFSETS + -(-workload.size_bytes // (64 * KIB)) * 64 * KIB


def writer_argv(workload: PowerLossWorkload, directory: str, seed: int) -> tuple[str, ...]:
    """The command that writes files until the power is cut, and prints a line per safe file, which `promised` reads."""
    mode = "sync" if workload.sync else "async"
    span = workload.size_bytes - workload.smallest_bytes + 1
    return (WRITER, directory, mode, str(seed), str(workload.smallest_bytes), str(span))


def promised(console: str) -> tuple[Promised, ...]:
    """The acknowledged files. A line that the cut has shortened does not count."""
    return tuple(Promised(name, int(size), sha256) for name, size, sha256 in _SYNCED.findall(console))


def stopped(console: str) -> str:
    """Why the writer ended by itself; empty if it did not."""
    reason = _STOPPED.search(console)
    return reason[0].strip() if reason else ""


def file_list(files: Iterable[Promised]) -> bytes:
    return "".join(f"{file.name} {file.size_bytes} {file.sha256}\n" for file in files).encode()


def fates(inspected: str, files: Sequence[Promised]) -> dict[str, FileFate]:
    """The fate of each file, by name, from the inspector's output. An unmentioned file could not be read."""
    by_name = {name: rest for name, _, rest in (line.partition(" ") for line in inspected.splitlines())}
    return {file.name: _fate(by_name.get(file.name, "unreadable"), file) for file in files}


def all_refused(files: Sequence[Promised]) -> dict[str, FileFate]:
    return dict.fromkeys((file.name for file in files), FileFate.REFUSED)


def _fate(inspected: str, file: Promised) -> FileFate:
    what, _, nonzero_bytes = inspected.partition(" ")
    match what:
        case "intact":
            return FileFate.INTACT
        case "missing":
            return FileFate.MISSING
        case "differs":
            mostly_there = nonzero_bytes.isdigit() and int(nonzero_bytes) > _MOSTLY * file.size_bytes
            return FileFate.SILENT if mostly_there else FileFate.ZEROED
        case _:
            return FileFate.DETECTED


def is_read_only(mounts: str, directory: str) -> bool:
    """Whether `/proc/mounts` says that the filesystem at a directory is mounted read-only."""
    mount = re.search(rf"^\S+ {re.escape(directory)} \S+ (\S+)", mounts, re.MULTILINE)
    return mount is not None and "ro" in mount[1].split(",")


def counted(of_files: dict[str, FileFate]) -> dict[FileFate, int]:
    """The number of files per fate, in the order of the fates."""
    counts = Counter(of_files.values())
    return {fate: counts[fate] for fate in FileFate if counts[fate]}


def named(of_files: dict[str, FileFate]) -> tuple[str, ...]:
    """The first damaged files with their fates, and the number of further ones."""
    damaged = [f"{name}: {fate.value}" for name, fate in of_files.items() if fate is not FileFate.INTACT]
    more = [f"and {len(damaged) - _NAMED} more"] if len(damaged) > _NAMED else []
    return (*damaged[:_NAMED], *more)


def messages(kernel_log: str) -> tuple[str, ...]:
    """The first lines of the kernel's warnings and errors, and the number of further ones."""
    lines = [line.strip() for line in kernel_log.splitlines() if line.strip()]
    more = [f"and {len(lines) - _MESSAGES} more"] if len(lines) > _MESSAGES else []
    return (*lines[:_MESSAGES], *more)
