"""Which commits of a kernel's range give the same kernel as the one before: forecast from what builds read, and built.

Builds every commit of a range, those too that a bisection would not build, and compares images. "Wrong" counts commits
that were said to have the kernel of one that was built, and have another; then the script ends with 1. "Needless"
counts steps of which the build read something and that gave the same kernel all the same: they cost a build each.
Reverts do not: their content was built before.

    python tests/statistics/equal_images.py --tree ~/linux --good v6.1 --bad HEAD
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from output import Report

from fsjoule.host.messages import lines_to
from fsjoule.kernels.configuration import board_configuration
from fsjoule.kernels.recipe import load_recipe, recipes_folder
from fsjoule.kernels.tree.builder import Builder, BuildOutcome, BuiltCommit, CommitBuilds
from fsjoule.kernels.tree.commits import Line, find_line
from fsjoule.kernels.tree.frozen import freeze
from fsjoule.kernels.tree.pools import Changes, changes_of, pools_of
from fsjoule.kernels.tree.repository import open_repository
from fsjoule.model import DEFAULT_RECIPE

TIMEOUT_S = 4 * 3600.0
_SHOWN = 12


@dataclass(frozen=True, slots=True)
class Everything:
    """A line of which each position was built, or failed to. `seconds` is how long each took."""

    line: Line
    changes: Changes
    outcomes: tuple[BuildOutcome, ...]
    seconds: tuple[float, ...]

    @property
    def built(self) -> Mapping[int, BuiltCommit]:
        return {position: each for position, each in enumerate(self.outcomes) if isinstance(each, BuiltCommit)}

    def wrong(self, known: Sequence[int]) -> list[int]:
        """Positions that do not have the image that the kernels of these positions, and nothing else, say they have."""
        pools = pools_of(self.changes, {position: self.built[position] for position in known})
        said = {position: pools.images.get(pools.numbers[position]) for position in self.built}
        return [position for position, image in said.items() if image not in (None, self.built[position].image)]

    def needless(self) -> list[int]:
        """Positions whose step changes something that a build next to it read, and that have the image before them."""
        last = len(self.line) - 1
        numbers = pools_of(self.changes, {0: self.built[0], last: self.built[last]}).numbers
        return [
            two
            for one, two in pairwise(sorted(self.built))
            if numbers[one] != numbers[two]
            and self.built[one].image == self.built[two].image
            and self.line[two].content not in {each.content for each in self.line[:two]}
        ]


def build_all(tree: Path, good: Sequence[str], bad: Sequence[str], jobs: int) -> Everything:
    """Build each commit of a range, oldest first. Both ends must build."""
    repository = open_repository(tree)
    line = find_line(repository, good, bad)
    configuration = board_configuration(load_recipe(recipes_folder(), DEFAULT_RECIPE), ())
    ends = [repository.made(each.id, each.short) for each in (line[0], line[-1])]
    outcomes: list[BuildOutcome] = []
    seconds: list[float] = []
    builds = CommitBuilds(repository, freeze(ends, configuration, jobs=jobs), jobs)
    with Builder(builds) as builder:
        for commit in line:
            started = time.monotonic()
            outcomes.append(builder.wait(commit, TIMEOUT_S))
            seconds.append(time.monotonic() - started)
    return Everything(line, changes_of(repository, line), tuple(outcomes), tuple(seconds))


def report(found: Everything) -> Report:
    """A row for each position, and what was right and wrong of the forecast from the ends."""
    last = len(found.line) - 1
    numbers = pools_of(found.changes, {0: found.built[0], last: found.built[last]}).numbers
    wrong = {position for known in (*([each] for each in found.built), [0, last]) for position in found.wrong(known)}
    settings = {
        "positions": len(found.line),
        "built": len(found.built),
        "pools forecast from both ends": numbers[-1] + 1,
        "images": len({each.image for each in found.built.values()}),
        "wrong": len(wrong),
        "needless": len(found.needless()),
    }
    shown = Report("Equal images", dict(settings))
    for position, (commit, outcome) in enumerate(zip(found.line, found.outcomes, strict=True)):
        image = outcome.image[:_SHOWN] if isinstance(outcome, BuiltCommit) else outcome.reason
        shown.rows.append(
            {
                "position": position,
                "commit": commit.short,
                "subject": commit.subject[:40],
                "pool": numbers[position],
                "image": image,
                "s": round(found.seconds[position], 1),
                "wrong": "wrong" if position in wrong else "",
            }
        )
    return shown


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Build all commits of a range, and compare equal images with forecast."
    )
    parser.add_argument("--tree", type=Path, required=True, help="a repository with a kernel's source")
    parser.add_argument("--good", action="append", required=True)
    parser.add_argument("--bad", action="append", required=True)
    parser.add_argument("--jobs", type=int, default=2, help="compilers at a time")
    parser.add_argument("--json", action="store_true", help="JSON instead of a table")
    given = parser.parse_args()
    with lines_to(lambda text: print(text, file=sys.stderr)):
        shown = report(build_all(given.tree, given.good, given.bad, given.jobs))
    shown.show(as_json=given.json)
    return 1 if shown.settings["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
