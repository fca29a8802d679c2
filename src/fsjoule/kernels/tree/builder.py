"""Kernels built in the background, the most urgent first, while the board measures.

One build runs at a time, with several compilers: they share a build folder, and two at once would compile twice what
they have in common. A build ends with the process that started it, however that ends; the next one finds what was
finished.

The outcome of a commit, its kernel or why it has none, is kept in the cache, so that nothing is built twice.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Final, Protocol, Self

from pydantic import TypeAdapter

from fsjoule.errors import ConfigError, HostError, KernelBuildError
from fsjoule.host import interrupts
from fsjoule.host.cache.stages import cache_key
from fsjoule.kernels.build import KeptBuild, build_key, build_revision, built_folder, keep, kept, read_notes
from fsjoule.kernels.compilation import compiler_version
from fsjoule.kernels.reads import READS, Reads
from fsjoule.kernels.source_tree import Revision
from fsjoule.kernels.sources import take_kernels
from fsjoule.kernels.tree.commits import Commit
from fsjoule.kernels.tree.frozen import Frozen
from fsjoule.kernels.tree.repository import Repository
from fsjoule.model import DEFAULT_RECIPE

NICE: Final = 10


@dataclass(frozen=True, slots=True)
class BuiltCommit:
    """A kernel or program: its folder, a digest of what comes onto the card, what its build read, its seconds."""

    folder: Path
    image: str
    reads: Reads
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Unbuildable:
    """There is no kernel of this commit, and that is the commit's own fault. `reason` is one line."""

    reason: str


BuildOutcome = BuiltCommit | Unbuildable
_FAILURE: Final = TypeAdapter(Unbuildable)


@dataclass(frozen=True, slots=True)
class CommitBuilds:
    """Builds of one repository with one configuration. Raises MissingToolError for what a build needs."""

    repository: Repository
    frozen: Frozen
    jobs: int
    recipe: str = DEFAULT_RECIPE
    compiler: str = field(default_factory=compiler_version)

    def kept(self, commit: Commit) -> BuildOutcome | None:
        """The outcome of a commit as far as no build is needed; None if it is not known."""
        if commit.conflict:
            return Unbuildable(commit.conflict)
        failed = kept(KeptBuild.FAILURE, self._failure_key(commit), _FAILURE)
        if failed is not None:
            return failed
        folder = built_folder(commit.content, self._key(commit), self.recipe)
        return None if folder is None else self._built(folder)

    def build(self, commit: Commit) -> BuildOutcome:
        """Build a commit unless that was done. Raises HostError, and what cancels it.

        A failure is kept: the same content fails again.
        """
        outcome = self.kept(commit)
        if outcome is not None:
            return outcome
        try:
            name = "-".join(filter(None, (self.repository.describe(commit.adds), commit.variant)))
            folder = build_revision(
                Revision(self.repository.git_dir, commit.id, commit.content, name),
                self.frozen.configuration,
                recipe=self.recipe,
                jobs=self.jobs,
                nice=NICE,
                needed=self.frozen.needed,
            )
        except KernelBuildError as error:
            failed = Unbuildable(error.reason)
            keep(KeptBuild.FAILURE, self._failure_key(commit), _FAILURE, failed)
            return failed
        return self._built(folder)

    def _built(self, folder: Path) -> BuildOutcome:
        notes = read_notes(folder)
        lost = sorted(set(self.frozen.needed) & set(notes.not_granted))
        if lost:
            return Unbuildable(f"this source does not accept {', '.join(lost)}")
        try:
            [kernel] = take_kernels([str(folder)], recipe=self.recipe)
        except ConfigError as error:  # no driver for the card, no device tree of this board
            return Unbuildable(" ".join(error.what.replace(str(folder), "its build").split()))
        return BuiltCommit(folder, kernel.facts.digest, Reads.from_json((folder / READS).read_bytes()), notes.seconds)

    def _key(self, commit: Commit) -> str:
        return build_key(commit.content, self.frozen.configuration, self.compiler)

    def _failure_key(self, commit: Commit) -> str:
        return cache_key({"build": self._key(commit), "needed": self.frozen.needed})


class Builds(Protocol):
    """Builds of one repository in one way."""

    def kept(self, commit: Commit) -> BuildOutcome | None:
        """The outcome of a commit as far as no build is needed; None if it is not known."""
        ...

    def build(self, commit: Commit) -> BuildOutcome:
        """Build a commit unless that was done. Raises HostError, and what cancels it."""
        ...


_POLL_S: Final = 0.2
_END_S: Final = 60.0


class _BrokenOffError(HostError):
    """Nobody wants the kernel that is being built any more, or not before another one."""


class Builder:
    """A context: builds go on in its body. `waited_s` is how long `wait` waited in all."""

    def __init__(self, builds: Builds) -> None:
        self._builds = builds
        self._state = threading.Condition()
        self._wanted: tuple[Commit, ...] = ()
        self._under_way: Commit | None = None
        self._known: dict[str, BuildOutcome] = {}
        self._failure: BaseException | None = None
        self._closing = False
        self._thread = threading.Thread(target=self._work, name="kernel builder", daemon=True)
        self.waited_s = 0.0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._state:
            self._closing = True
            self._state.notify_all()
        self._thread.join(_END_S)

    def want(self, commits: Sequence[Commit]) -> None:
        """Build these next, in this order, instead of those that were wanted before.

        A build under way that is not among them is broken off if one of them is to be built.
        """
        with self._state:
            self._wanted = tuple(commits)
            self._state.notify_all()

    def outcome(self, commit: Commit) -> BuildOutcome | None:
        """The outcome of a commit; None if it is not built yet, now or in an earlier run."""
        with self._state:
            outcome = self._known.get(commit.id)
        if outcome is None and (outcome := self._builds.kept(commit)) is not None:
            with self._state:
                self._known[commit.id] = outcome
        return outcome

    def wait(self, commit: Commit, timeout_s: float) -> BuildOutcome:
        """The outcome of a commit, which is the most urgent one now.

        Raises what broke the build if it was not the commit's fault (HostError: a full disk), and HostError after the
        time.
        """
        started = time.monotonic()
        outcome = self.outcome(commit)
        try:
            while outcome is None:
                interrupts.check()
                with self._state:
                    if self._failure is not None:
                        failure, self._failure = self._failure, None
                        raise failure
                    if time.monotonic() - started > timeout_s:
                        raise HostError(f"no kernel of {commit.short} after {timeout_s:.0f} s", transient=True)
                    if self._wanted[:1] != (commit,):
                        self._wanted = (commit, *(each for each in self._wanted if each != commit))
                        self._state.notify_all()
                    self._state.wait(_POLL_S)
                    outcome = self._known.get(commit.id)
        finally:
            self.waited_s += time.monotonic() - started
        return outcome

    def _work(self) -> None:
        interrupts.cancel_with(self._check_wanted)
        while (commit := self._next()) is not None:
            try:
                outcome = self._builds.build(commit)
            except _BrokenOffError:
                continue
            except BaseException as error:  # noqa: BLE001 - told by whoever waits
                with self._state:
                    self._failure, self._wanted = error, ()
            else:
                with self._state:
                    self._known[commit.id] = outcome
            finally:
                with self._state:
                    self._under_way = None
                    self._state.notify_all()

    def _next(self) -> Commit | None:
        """The most urgent commit that is not built yet, as soon as there is one; None at the end."""
        with self._state:
            while not self._closing:
                for commit in self._to_build():
                    self._under_way = commit
                    return commit
                self._state.wait()
        return None

    def _to_build(self) -> list[Commit]:
        return [commit for commit in self._wanted if commit.id not in self._known]

    def _check_wanted(self) -> None:
        """Break off a build that is not wanted any more. Called every few seconds."""
        with self._state:
            to_build = self._to_build()
            if self._closing or (to_build and self._under_way not in to_build):
                raise _BrokenOffError("not wanted any more")
