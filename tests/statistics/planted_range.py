#!/usr/bin/env python3
"""Makes a kernel's git repository with a range of commits for `fsjoule bisect`, from Debian's source package.

::

    apt-get download linux-source-6.1
    python tests/statistics/planted_range.py linux-source-6.1_*_all.deb linux
    fsjoule bisect --lg-env env/deterministic.yaml --tree linux --good base --bad planted \
        -k ext4-write-16k --metric cpu,throughput --effect 0.8%

From `base` to `planted` there are 72 commits along first parents. One of a merge's own commits plants the loss. Some do
not compile, some do not take the configuration, some do not boot. Some change nothing that a build reads, some give the
same kernel, some only move code. `harmless` is the same range without the loss. Names and times are fixed, so the same
source gives the same hashes.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from fsjoule.host import process

TIMEOUT_S: Final = 1800.0
COMMITS: Final = 72
_PATCH: Final = Path(__file__).with_name("planted-loss.patch")
_AUTHOR: Final = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
    "GIT_AUTHOR_NAME": "fsjoule",
    "GIT_AUTHOR_EMAIL": "fsjoule@example.org",
    "GIT_AUTHOR_DATE": "2000-01-01T00:00:00Z",
    "GIT_COMMITTER_NAME": "fsjoule",
    "GIT_COMMITTER_EMAIL": "fsjoule@example.org",
    "GIT_COMMITTER_DATE": "2000-01-01T00:00:00Z",
}

Edit = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Change:
    """One commit that changes one file."""

    path: str
    subject: str
    edit: Edit


@dataclass(frozen=True, slots=True)
class Merge:
    """A branch from the commit before it, merged."""

    name: str
    changes: tuple[Change | Patch, ...]


@dataclass(frozen=True, slots=True)
class Patch:
    """One commit made by a patch."""

    file: Path
    subject: str


def _replaced(old: str, new: str) -> Edit:
    def edit(text: str) -> str:
        if old not in text:
            raise ValueError(old)
        return text.replace(old, new, 1)

    return edit


def _appended(line: str) -> Edit:
    return lambda text: f"{text}{line}\n"


def moves(path: str) -> Change:
    """A function that nobody calls: all code behind it moves."""
    name = "planted_" + "".join(each if each.isalnum() else "_" for each in path)
    code = f"\nint {name}(int value);\nnoinline int __used {name}(int value)\n{{\n\treturn value * 3 + 1;\n}}"
    return Change(path, "a function that nobody calls", _appended(code))


def line(path: str) -> Change:
    """The lines below have other numbers, which a few warnings of the kernel contain."""
    return Change(path, "a line more", _replaced("\n", "\n/* One line more. */\n"))


def comment(path: str) -> Change:
    """Read by the compiler; the kernel stays the same, byte for byte."""
    return Change(path, "a comment, and no line more", _replaced("\n", " /* A comment. */\n"))


def rule(path: str) -> Change:
    """Read by make or kconfig; the kernel stays the same."""
    return Change(path, "a comment", _appended("# A comment."))


def unread(path: str) -> Change:
    """No build reads it."""
    return Change(path, "a line that no build reads", _appended("\n"))


def breaks(path: str, subject: str, old: str, new: str) -> tuple[Change, Change]:
    """A commit that breaks something, and the one that mends it."""
    return Change(path, subject, _replaced(old, new)), Change(path, f"mended: {subject}", _replaced(new, old))


_FORGETS, _REMEMBERS = breaks("fs/ext4/Kconfig", "no option EXT4_FS", "config EXT4_FS\n", "config EXT4\n")
_TYPO, _TYPED = breaks("fs/ext4/super.c", "does not compile", "\n#include", "\nthis does not compile\n#include")
_TYPO_2, _TYPED_2 = breaks("fs/ext4/inode.c", "does not compile", "\n#include", "\nthis does not compile\n#include")
_PANICS, _CALM = breaks(
    "init/main.c", "panics", "\tkernel_init_freeable();\n", '\tpanic("planted");\n\tkernel_init_freeable();\n'
)
_HANGS, _RUNS = breaks(
    "init/do_mounts.c",
    "hangs",
    "\twait_for_device_probe();\n",
    "\tfor (;;)\n\t\tcpu_relax();\n\twait_for_device_probe();\n",
)
_LOSS: Final = Patch(_PATCH, "fs/ext4/file.c: a planted loss")


def _branch(middle: Change | Patch) -> Merge:
    """A branch with the culprit, or a harmless commit of the same file, in its middle."""
    before = (
        moves("fs/ext4/dir.c"),
        line("fs/ext4/namei.c"),
        comment("fs/ext4/extents.c"),
        unread("Documentation/filesystems/ext4/overview.rst"),
    )
    after = (moves("fs/ext4/balloc.c"), _TYPO_2, _TYPED_2, moves("fs/ext4/fsync.c"))
    return Merge("writes", (*before, middle, *after))


# What is at which position; all others are harmless.
_AT: Final[dict[int, Change | Merge]] = {
    9: _FORGETS,
    12: _REMEMBERS,
    20: Merge(
        "other",
        (moves("fs/btrfs/super.c"), unread("Documentation/filesystems/btrfs.rst"), comment("fs/xfs/xfs_super.c")),
    ),
    34: _TYPO,
    38: _TYPED,
    45: _PANICS,
    48: _CALM,
    51: _branch(_LOSS),
    60: _HANGS,
    62: _RUNS,
}
# Each kind with the files that it changes: a form, and names for it.
_HARMLESS: Final = (
    (moves, "fs/{}.c", "aio attr buffer dcache exec fcntl inode ioctl locks namei open read_write select"),
    (line, "mm/{}.c", "filemap memory mmap page-writeback readahead workingset slub swap truncate vmscan"),
    (unread, "drivers/{}.c", "gpu/drm/drm_drv usb/core/hub net/loopback scsi/scsi nvme/host/core ata/libata-core"),
    (moves, "block/{}.c", "bio blk-core blk-mq elevator genhd blk-merge blk-settings fops"),
    (comment, "kernel/{}.c", "groups cred exit fork kthread params pid reboot signal softirq sys"),
    (moves, "drivers/{}.c", "mmc/core/block mmc/core/mmc_ops mmc/core/queue mmc/host/sdhci tty/tty_io base/core"),
    (line, "fs/{}.c", "jbd2/commit jbd2/journal jbd2/transaction iomap/buffered-io ext4/mballoc ext4/page-io"),
    (
        unread,
        "{}",
        "MAINTAINERS CREDITS Documentation/process/howto.rst tools/perf/perf.c net/core/dev.c sound/core/init.c",
    ),
    (rule, "fs/{}", "ext4/Makefile xfs/Makefile xfs/Kconfig btrfs/Kconfig"),
)


def harmless() -> Iterator[Change]:
    """Commits that cost nothing, of all kinds in turn, each in a file of its own."""
    left = [(kind, [form.format(name) for name in names.split()]) for kind, form, names in _HARMLESS]
    for kind, paths in cycle(left):
        if paths:
            yield kind(paths.pop(0))


def plan() -> list[Change | Merge]:
    """The commits along first parents, from the one after `base`."""
    fill = harmless()
    return [_AT.get(position) or next(fill) for position in range(1, COMMITS + 1)]


class Repository:
    """A repository with the source in it."""

    def __init__(self, tree: Path) -> None:
        self._tree = tree

    def git(self, *arguments: str | Path) -> str:
        done = process.run(["git", "-C", self._tree, *arguments], timeout_s=TIMEOUT_S, env=_AUTHOR)
        return done.stdout.decode().strip()

    def begin(self, source: Path) -> None:
        """Commit Debian's source, from its package or its archive."""
        self._tree.mkdir(parents=True)
        with TemporaryDirectory(dir=self._tree.parent) as folder:
            if source.suffix == ".deb":
                process.run(["dpkg-deb", "-x", source, folder], timeout_s=TIMEOUT_S)
                (source,) = Path(folder).glob("usr/src/linux-source-*.tar.xz")
            process.run(["tar", "-C", self._tree, "--strip-components=1", "-xf", source], timeout_s=TIMEOUT_S)
        self.git("init", "--quiet", "--initial-branch=planted")
        self.git("config", "gc.auto", "0")
        self.git("add", "--all", "--force")
        self.git("commit", "--quiet", "--message=Debian's source")
        self.git("tag", "base")

    def add(self, commits: list[Change | Merge]) -> None:
        for each in commits:
            if isinstance(each, Merge):
                self._merge(each)
            else:
                self._change(each)

    def _change(self, change: Change | Patch) -> None:
        if isinstance(change, Patch):
            self.git("apply", "--index", change.file)
            self.git("commit", "--quiet", f"--message={change.subject}")
            return
        file = self._tree / change.path
        try:
            file.write_text(change.edit(file.read_text(errors="surrogateescape")), errors="surrogateescape")
        except ValueError as error:
            raise SystemExit(f"{change.path} has not {error} in it: this source is not the one expected") from error
        self.git("commit", "--quiet", f"--message={change.path}: {change.subject}", "--", change.path)

    def _merge(self, merge: Merge) -> None:
        onto = self.git("symbolic-ref", "--short", "HEAD")
        self.git("checkout", "--quiet", "-B", f"{onto}-{merge.name}")
        for each in merge.changes:
            self._change(each)
        self.git("checkout", "--quiet", onto)
        self.git("merge", "--quiet", "--no-ff", f"--message=Merge branch {merge.name}", f"{onto}-{merge.name}")


def plant(source: Path, tree: Path) -> None:
    """Make the repository."""
    repository = Repository(tree)
    repository.begin(source)
    commits = plan()
    with_loss = commits.index(_AT[51])
    repository.add(commits[:with_loss])
    repository.git("branch", "harmless")
    repository.add(commits[with_loss:])
    repository.git("checkout", "--quiet", "harmless")
    repository.add([_branch(moves("fs/ext4/file.c")), *commits[with_loss + 1 :]])
    repository.git("checkout", "--quiet", "planted")


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("source", type=Path, help="linux-source-6.1_…_all.deb, or the archive in it")
    parser.add_argument("tree", type=Path, help="the new repository")
    given = parser.parse_args()
    plant(given.source.absolute(), given.tree.absolute())
    print(f"{given.tree}: base to planted, base to harmless, {COMMITS} commits each")
    return 0


if __name__ == "__main__":
    sys.exit(main())
