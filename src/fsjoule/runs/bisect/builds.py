"""ports.KernelBuilds of a git repository: its commits, and kernels that are built while the board measures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Final, Self

from fsjoule.kernels.build import read_notes
from fsjoule.kernels.tree import commits as tree
from fsjoule.kernels.tree.builder import Builder, BuiltCommit, CommitBuilds
from fsjoule.kernels.tree.commits import Conflict
from fsjoule.kernels.tree.pools import changes_of, pools_of
from fsjoule.kernels.tree.repository import Repository
from fsjoule.model.bisection import BuiltKernel, NoKernel, WantedKernel
from fsjoule.store.bisection import CommitLine

# A first build, of a large configuration, on a slow machine.
_BUILD_TIMEOUT_S: Final = 4 * 3600.0


@dataclass
class TreeBuilds:
    """Kernels of a repository's commits. `aligned` makes the builds with forced alignment of functions.

    Builds of both kinds take turns: they would share the processors. `add` tells the lines whose commits are asked for.
    """

    repository: Repository
    plain: CommitBuilds
    aligned: Callable[[], CommitBuilds]
    _commits: dict[str, tree.Commit] = field(default_factory=dict[str, tree.Commit], init=False)
    _built: dict[str, BuiltCommit] = field(default_factory=dict[str, BuiltCommit], init=False)
    _builders: dict[bool, Builder] = field(default_factory=dict[bool, Builder], init=False)
    _open: ExitStack = field(default_factory=ExitStack, init=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._open.close()

    def add(self, line: tree.Line, inside: str = "") -> CommitLine:
        """The line as the log has it."""
        self._commits |= {commit.id: commit for commit in line}
        return CommitLine(
            commits=tuple(commit.id for commit in line),
            adds=tuple(commit.adds for commit in line),
            subjects=tuple(commit.subject for commit in line),
            inside=inside,
        )

    def is_merge(self, commit: str) -> bool:
        return self._commits[commit].is_merge

    def enter(self, before: str, merge: str) -> CommitLine:
        """The line inside of a merge. From now on its commits are asked for, and the merge is its last step."""
        return self.add(tree.inside(self.repository, self._commits[before], self._commits[merge]), inside=merge)

    def expect(self, wanted: Sequence[WantedKernel]) -> None:
        for aligned in (False, True):
            candidates = [self._commit(each) for each in wanted if each.aligned == aligned]
            commits = [each for each in candidates if not isinstance(each, Conflict)]
            if commits or aligned in self._builders:
                self._builder(aligned=aligned).want(commits)

    def built(self, wanted: WantedKernel) -> BuiltKernel | None:
        if wanted.aligned not in self._builders or isinstance(commit := self._commit(wanted), Conflict):
            return None
        outcome = self._builders[wanted.aligned].outcome(commit)
        return _built(outcome) if isinstance(outcome, BuiltCommit) else None

    def take(self, wanted: WantedKernel) -> BuiltKernel | NoKernel:
        commit = self._commit(wanted)
        if isinstance(commit, Conflict):
            return NoKernel(f"git cannot revert {self._commits[wanted.without].short} there: {commit}")
        builder = self._builder(aligned=wanted.aligned)
        outcome = builder.wait(commit, _BUILD_TIMEOUT_S)
        if not isinstance(outcome, BuiltCommit):
            return NoKernel(outcome.reason)
        if wanted.is_plain:
            self._built[wanted.commit] = outcome
        return _built(outcome)

    def pools(self, commits: Sequence[str]) -> tuple[int, ...]:
        line = [self._commits[each] for each in commits]
        built = {number: self._built[each] for number, each in enumerate(commits) if each in self._built}
        return pools_of(changes_of(self.repository, line), built).numbers

    def _commit(self, wanted: WantedKernel) -> tree.Commit | Conflict:
        commit = self._commits[wanted.commit]
        return tree.without_commit(self.repository, commit, self._commits[wanted.without]) if wanted.without else commit

    def _builder(self, *, aligned: bool) -> Builder:
        if aligned not in self._builders:
            builds = self.aligned() if aligned else self.plain
            self._builders[aligned] = self._open.enter_context(Builder(builds))
        return self._builders[aligned]


def _built(outcome: BuiltCommit) -> BuiltKernel:
    return BuiltKernel(outcome.folder, outcome.image, read_notes(outcome.folder).seconds)
