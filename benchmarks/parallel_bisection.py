"""What boards in guest time that boot at once gain for a bisection: on several boards, then the same on one.

python benchmarks/parallel_bisection.py --boards 4

Debian's kernels stand for the commits: 6.1 for the good ones, 6.12 from the first bad one on; each commit has its own
folder. So nothing is compiled, and what is measured is boots alone: cards, labs that come up and go down, ext4's
randread-16k, and what is made ahead in vain. The boots and figures of both turns must be equal to the digit. Nothing
else should run: the ratio is that of the cores that are free. The exit code is 1 if something differs.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from common import show
from guest_time import options, quick_ext4, say, turn_s

from fsjoule.host import interrupts
from fsjoule.host.messages import lines_to
from fsjoule.kernels import take_kernels
from fsjoule.kernels.kernel import KernelFiles
from fsjoule.model.bisection import BuiltKernel, NoKernel, WantedKernel
from fsjoule.model.metrics import Metric
from fsjoule.runs.bisect.boots import BoardBoots
from fsjoule.runs.bisect.pool import Pool, PoolAssignment
from fsjoule.runs.bisect.search import BisectionSearch
from fsjoule.store.bisection import Asked, CommitLine, MeasuredBoot, bisection_log
from fsjoule.verdicts.bisection.state import BisectionState

_GOOD, _BAD = "6.1", "6.12"
_TREE: Final = "imx6ul-14x14-evk.dtb"
_FIGURE: Final = "ext4-randread-16k throughput"


@dataclass
class _Debian:
    """ports.KernelBuilds: all commits are built already. `folder` gets a link to its kernel for each of them."""

    first_bad: str
    folder: Path
    good: Path
    bad: Path

    def expect(self, wanted: Sequence[WantedKernel]) -> None:
        """Nothing is to be built."""

    def built(self, wanted: WantedKernel) -> BuiltKernel:
        is_bad = wanted.commit >= self.first_bad and wanted.without != self.first_bad
        link = self.folder / f"{wanted.commit}-{wanted.without}-{wanted.aligned}"
        if not link.is_symlink():
            link.symlink_to(self.bad if is_bad else self.good)
        return BuiltKernel(link, f"{wanted}")

    def take(self, wanted: WantedKernel) -> BuiltKernel | NoKernel:
        return self.built(wanted)

    def pools(self, commits: Sequence[str]) -> tuple[int, ...]:
        return tuple(range(len(commits)))

    def is_merge(self, commit: str) -> bool:
        del commit
        return False

    def enter(self, before: str, merge: str) -> CommitLine:
        raise AssertionError(f"{merge} after {before} is no merge")


def _build_folder(kernel: KernelFiles, folder: Path) -> Path:
    """A folder with the kernel's parts where `make` would leave them."""
    tree = kernel.device_tree
    assert tree is not None, "the board has one"
    for part, place in ((kernel.image, "zImage"), (tree, f"boot/{_TREE}"), (kernel.modules_root / "lib", "lib")):
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / place).symlink_to(part)
    return folder


def _bisect(boards: int, commits: Sequence[str], first_bad: str, folder: Path) -> None:
    choice, environment = quick_ext4(folder / "results", "6.1")
    metrics, select, command = (Metric.THROUGHPUT,), "randread-16k", tuple(sys.argv)
    taken = take_kernels((_GOOD, _BAD))
    builds = _Debian(first_bad, folder, *(_build_folder(each.files, folder / each.facts.label) for each in taken))
    with bisection_log(folder / "log") as log, ExitStack() as closing:
        closing.enter_context(interrupts.handled())
        log.add(_asked(commits))
        log.add(CommitLine(tuple(commits), subjects=("",) * len(commits)))
        if boards > 1:
            assigned = PoolAssignment(choice, environment, metrics, select, folder / "ahead", command)
            boots = closing.enter_context(Pool(assigned, boards, choice.results))
        else:
            alone = BoardBoots(choice, environment, metrics, select, folder / "cards", command)
            boots = closing.enter_context(alone)
        BisectionSearch(log, builds, boots, environment.profile.name, builds, ahead=boards - 1).run()


def _asked(commits: Sequence[str]) -> Asked:
    return Asked(
        made_utc="2026-11-23T00:00:00Z",
        repository="",
        good=(commits[0],),
        bad=(commits[-1],),
        board="deterministic",
        suite="quick",
        filesystems=("ext4",),
        provision="scratch",
        storages=None,
        select="randread-16k",
        figures=(_FIGURE,),
        effects={Metric.THROUGHPUT: 0.01},
        budget=120,
        seed=3,
        simulated=True,
    )


def _turn(boards: int, commits: int, first_bad: int, folder: Path) -> tuple[float, BisectionState]:
    """A turn's seconds, and what it found."""
    words = ("--boards", str(boards), "--commits", str(commits), "--first-bad", str(first_bad))
    took_s = turn_s(*words, "--turn", folder)
    with bisection_log(folder / "log") as log:
        return took_s, BisectionState.of(log.events)


def _told(boot: MeasuredBoot) -> tuple[object, ...]:
    return boot.number, boot.kernel, boot.purpose, boot.seed, boot.figures


def main() -> int:
    parser = options(__doc__ or "")
    parser.add_argument("--commits", type=int, default=64, help="with both ends (default: %(default)s)")
    parser.add_argument("--first-bad", type=int, default=41, help="its number, from 1 on (default: %(default)s)")
    chosen = parser.parse_args()
    if not 0 < chosen.first_bad < chosen.commits:
        parser.error(f"--first-bad {chosen.first_bad}: not from 1 to {chosen.commits - 1}")
    if chosen.turn is not None:
        commits = tuple(f"{number:040x}" for number in range(chosen.commits))
        _bisect(chosen.boards, commits, commits[chosen.first_bad], chosen.turn)
        return 0
    with tempfile.TemporaryDirectory() as name:
        together_s, together = _turn(chosen.boards, chosen.commits, chosen.first_bad, Path(name) / "together")
        alone_s, alone = _turn(1, chosen.commits, chosen.first_bad, Path(name) / "alone")
    differing = sum(_told(one) != _told(other) for one, other in zip(alone.booted, together.booted, strict=False))
    differing += abs(len(alone.booted) - len(together.booted))
    assert alone.answered is not None, "a search ends with an answer"
    result = {
        "answer": alone.answered.text,
        "boots": len(alone.booted),
        "seconds on one board": round(alone_s),
        f"seconds on {chosen.boards} boards": round(together_s),
        "times as fast": round(alone_s / together_s, 2),
        "boots that differ": differing,
    }
    show("A bisection on boards in guest time that boot at once", result, as_json=chosen.json)
    return 1 if differing else 0


if __name__ == "__main__":
    with lines_to(say):
        sys.exit(main())
