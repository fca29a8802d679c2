#!/usr/bin/env python3
"""Adds a patch series for `fsjoule review` to a repository of Linux 6.1: five patches, one of which costs instructions.

::

    python tests/statistics/planted_series.py linux base   # the repository of planted_range.py, or another one
    fsjoule review base..series --tree linux --each

Patch 3 makes each page that ext4 begins to write wait for a loop: 21 rounds are 0.3 % of a write's instructions. The
others are a comment, a text, a function that moves within its file, and another width in a file of proc.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from planted_range import Change, Repository

ROUNDS = 21
_INODE = "fs/ext4/inode.c"
_BEGINS = "\ttrace_ext4_da_write_begin(inode, pos, len);\n"
_MOVED = (
    "static int ext4_nonda_switch(",
    "/* We always reserve for an inode update;",
    "static int ext4_da_write_begin(",
)
_BEFORE = "/*\n * Reserve space for a single cluster"


def replaced(path: str, subject: str, old: str, new: str) -> Change:
    """One place of a file has another text. Raises ValueError, when it is edited, for a file without that text."""

    def edit(text: str) -> str:
        if old not in text:
            raise ValueError(old)
        return text.replace(old, new, 1)

    return Change(path, subject, edit)


def moved(text: str) -> str:
    """A function stands before another one."""
    if _MOVED[0] not in text or _BEFORE not in text:
        raise ValueError(_MOVED[0])
    start = text.index(_MOVED[0])
    end = min(at for each in _MOVED[1:] if (at := text.find(each, start)) > 0)
    function, rest = text[start:end], text[:start] + text[end:]
    return rest.replace(_BEFORE, function + _BEFORE, 1)


def loop(rounds: int) -> str:
    """A block of C that executes two instructions a round."""
    text = f'\t{{\n\t\tunsigned long n = {rounds};\n\n\t\tasm volatile("1: subs %0, %0, #1\\n\\tbne 1b"'
    return text + ' : "+r" (n) : : "cc");\n\t}\n'


def in_block_code(rounds: int) -> Change:
    """Each page that is added to a request waits for a loop: about 9 rounds are 0.1 % of a write's instructions."""
    begins = "\tif (!__bio_try_merge_page(bio, page, len, offset, &same_page)) {\n"
    return replaced("block/bio.c", "wait before a page is added", begins, loop(rounds) + begins)


def series(rounds: int = ROUNDS) -> list[Change]:
    """The patches, in order."""
    return [
        replaced(_INODE, "explain a reservation", f"{_BEFORE}\n", f"{_BEFORE}, of data alone\n"),
        replaced("Documentation/admin-guide/ext4.rst", "word it better", "Disable delayed", "Switch off delayed"),
        replaced(_INODE, "wait before a write begins", _BEGINS, _BEGINS + loop(rounds)),
        Change(_INODE, "move ext4_nonda_switch() up", moved),
        replaced("mm/vmstat.c", "one column more", '"%6lu ", data_race', '"%7lu ", data_race'),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("tree", type=Path, help="a repository of Linux 6.1")
    parser.add_argument("base", help="where the branch `series` begins")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of the loop (default: %(default)s)")
    given = parser.parse_args()
    repository = Repository(given.tree.absolute())
    repository.git("checkout", "--quiet", "-B", "series", given.base)
    repository.add(list(series(given.rounds)))
    print(f"{given.tree}: {given.base}..series")
    return 0


if __name__ == "__main__":
    sys.exit(main())
