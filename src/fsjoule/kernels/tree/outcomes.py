"""The outcome of a commit: its kernel, or why it has none. Kept in the cache, so that nothing is built twice."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter

from fsjoule.errors import ConfigError, KernelBuildError
from fsjoule.host.cache.stages import Progress, cache_key
from fsjoule.kernels.build import build_key, build_revision, built_folder, read_notes
from fsjoule.kernels.choices import take_kernels
from fsjoule.kernels.compilation import compiler_version
from fsjoule.kernels.kept import Kept, keep, kept
from fsjoule.kernels.reads import READS, Reads
from fsjoule.kernels.source_tree import Revision
from fsjoule.kernels.tree.commits import Commit
from fsjoule.kernels.tree.frozen import Frozen
from fsjoule.kernels.tree.repository import Repository
from fsjoule.model import DEFAULT_RECIPE

_NICE: Final = 10


@dataclass(frozen=True, slots=True)
class Built:
    """A kernel: its folder, for `--kernel`; the digest of image, device tree and modules; what its build read."""

    folder: Path
    image: str
    reads: Reads


@dataclass(frozen=True, slots=True)
class Unbuildable:
    """There is no kernel of this commit, and that is the commit's own fault. `reason` is one line."""

    reason: str


Outcome = Built | Unbuildable
_FAILURE: Final = TypeAdapter(Unbuildable)


@dataclass(frozen=True, slots=True)
class Builds:
    """Builds of one repository with one configuration. Raises MissingToolError for what a build needs."""

    repository: Repository
    frozen: Frozen
    jobs: int
    recipe: str = DEFAULT_RECIPE
    compiler: str = field(default_factory=compiler_version)

    def kept(self, commit: Commit, *, progress: Progress) -> Outcome | None:
        """The outcome of a commit as far as no build is needed; None if it is not known."""
        if commit.conflict:
            return Unbuildable(commit.conflict)
        failed = kept(Kept.FAILURE, self._failure_key(commit), _FAILURE)
        if failed is not None:
            return failed
        folder = built_folder(commit.content, self._key(commit), self.recipe)
        return None if folder is None else self._built(folder, progress)

    def build(self, commit: Commit, *, progress: Progress) -> Outcome:
        """Build a commit unless that was done. Raises LabError if this machine is at fault, and what `progress` raises.

        A failure is kept: the same content fails again.
        """
        known = self.kept(commit, progress=progress)
        if known is not None:
            return known
        try:
            folder = build_revision(
                self._revision(commit),
                self.frozen.configuration,
                progress=progress,
                recipe=self.recipe,
                jobs=self.jobs,
                nice=_NICE,
                needed=self.frozen.needed,
            )
        except KernelBuildError as error:
            failed = Unbuildable(error.reason)
            keep(Kept.FAILURE, self._failure_key(commit), _FAILURE, failed)
            return failed
        return self._built(folder, progress)

    def _built(self, folder: Path, progress: Progress) -> Outcome:
        lost = sorted(set(self.frozen.needed) & set(read_notes(folder).not_granted))
        if lost:
            return Unbuildable(f"this source does not accept {', '.join(lost)}")
        try:
            [kernel] = take_kernels([str(folder)], progress=progress, recipe=self.recipe)
        except ConfigError as error:  # no driver for the card, no device tree of this board
            return Unbuildable(" ".join(error.what.replace(str(folder), "its build").split()))
        return Built(folder, kernel.facts.digest, Reads.from_json((folder / READS).read_bytes()))

    def _key(self, commit: Commit) -> str:
        return build_key(commit.content, self.frozen.configuration, self.compiler)

    def _failure_key(self, commit: Commit) -> str:
        return cache_key({"build": self._key(commit), "needed": self.frozen.needed})

    def _revision(self, commit: Commit) -> Revision:
        name = "-".join(filter(None, (self.repository.describe(commit.adds), commit.variant)))
        return Revision(self.repository.git_dir, commit.id, commit.content, name)
