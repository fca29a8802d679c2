"""The script on the board for tests on many files, and its arguments.

It needs a POSIX shell and busybox's dd, sha512sum, stat, cp, rm.
"""

from __future__ import annotations

from typing import Final

from fsjoule.bench.onboard.marks import DIRECTORY
from fsjoule.model import KIB
from fsjoule.model.workload import SERIES_FILES

SCRIPT: Final = f"{DIRECTORY}/files"
# The contents of all files: random bytes in the board's memory, made once per boot.
BLOCK: Final = f"{DIRECTORY}/block"
BLOCK_BYTES: Final = 1024 * KIB

# A halving series, twice: 256 MB down to 512 kB in about 1 GB (Berger, 2016).
_SERIES: Final = SERIES_FILES // 2
_PER_DIRECTORY: Final = 16

TEXT: Final = f"""#!/bin/sh
# files write DIRECTORY KIB...; files hash DIRECTORY; files fill|fragment DIRECTORY PERCENT; files remove DIRECTORY
set -e
what=$1
cd "$2"
shift 2
made=0
make_directory() {{
    made=$((made + 1))
    mkdir "d$made"
    i=0
    while [ $i -lt {_PER_DIRECTORY} ]; do
        cp {BLOCK} "d$made/$i"
        i=$((i + 1))
    done
}}
is_full() {{
    set -- "$1" $(stat -f -c '%b %a' .)
    [ $((($2 - $3) * 100)) -ge $(($1 * $2)) ]
}}
case $what in
write)
    n=0
    for kib in "$@"; do
        n=$((n + 1))
        unit=64
        [ "$kib" -ge 64 ] || unit=$kib
        dd if=/dev/urandom of="f$n" bs="${{unit}}k" count=$((kib / unit)) 2> /dev/null
    done
    ;;
hash) sha512sum f* > /dev/null ;;
fill) until is_full "$1"; do make_directory; done ;;
fragment)
    oldest=1
    until is_full "$1"; do
        make_directory
        make_directory
        rm -r "d$oldest"
        oldest=$((oldest + 1))
    done
    ;;
remove) rm -rf d* ;;
esac
"""


def sizes_kib(size_bytes: int) -> tuple[int, ...]:
    """The file sizes in KiB: two halving series of ten, in all about `size_bytes`."""
    largest_kib = 1 << max(0, (size_bytes // 4 // KIB).bit_length() - 1)
    series = [max(1, largest_kib >> i) for i in range(_SERIES)]
    return (*series, *series)


def write(directory: str, size_bytes: int) -> tuple[str, ...]:
    return (SCRIPT, "write", directory, *map(str, sizes_kib(size_bytes)))


def hash_all(directory: str) -> tuple[str, ...]:
    return (SCRIPT, "hash", directory)


def fill(directory: str, share: float) -> tuple[str, ...]:
    """Fill the filesystem with directories of files up to the fraction `share`."""
    return (SCRIPT, "fill", directory, str(round(100 * share)))


def fragment(directory: str, share: float) -> tuple[str, ...]:
    """Fill as `fill` does, but remove the oldest directory for every two new ones."""
    return (SCRIPT, "fragment", directory, str(round(100 * share)))


def remove_all(directory: str) -> tuple[str, ...]:
    return (SCRIPT, "remove", directory)
