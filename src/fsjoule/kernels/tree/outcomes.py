"""What became of a commit: its kernel, or why it has none. Kept in the cache, so that nothing is built twice."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter, ValidationError

from fsjoule.errors import ConfigError, KernelBuildError
from fsjoule.host.cache.stages import Progress, cache_key
from fsjoule.host.json_text import json_text
from fsjoule.kernels.build import build_key, build_revision, built_folder, failure_file, read_notes
from fsjoule.kernels.choices import take_kernels
from fsjoule.kernels.compilation import compiler_version
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
        """What is known of a commit without building it; None if nothing is."""
        if commit.conflict:
            return Unbuildable(commit.conflict)
        try:
            return _FAILURE.validate_json(self._failure(commit).read_bytes())
        except (OSError, ValidationError):
            folder = built_folder(commit.content, self._key(commit), self.recipe)
        return None if folder is None else self._built(folder, progress)

    def build(self, commit: Commit, *, progress: Progress) -> Outcome:
        """Build a commit unless that was done. Raises LabError if this machine is at fault, and what `progress` raises.

        A failure is kept: the same content fails again.
        """
        kept = self.kept(commit, progress=progress)
        if kept is not None:
            return kept
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
            _write(self._failure(commit), json_text(_FAILURE, failed))
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

    def _failure(self, commit: Commit) -> Path:
        key = cache_key({"build": self._key(commit), "needed": self.frozen.needed})
        return failure_file(key)

    def _revision(self, commit: Commit) -> Revision:
        name = "-".join(filter(None, (self.repository.describe(commit.adds), commit.variant)))
        return Revision(self.repository.git_dir, commit.id, commit.content, name)


def _write(file: Path, content: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    unfinished = file.with_name(f".{file.name}.{os.getpid()}")
    unfinished.write_bytes(content)
    unfinished.rename(file)
