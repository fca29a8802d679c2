"""A kernel's repository that is bisected, and the scratch repository beside it in the cache.

The scratch repository borrows the user's objects and keeps the commits that we make (`commits.py`). Nothing is
written into the user's repository, and nothing is checked out there.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fsjoule.errors import ConfigError
from fsjoule.kernels.source_tree import (
    CHECKOUT_S,
    Revision,
    borrow,
    describe,
    find_revision,
    lacks,
    own_git,
)


@dataclass(frozen=True, slots=True)
class Repository:
    """`tree` is what the user named, `git_dir` where it keeps its objects, `scratch` our own repository.

    Its revisions are those of a `kernel`, or of another program.
    """

    tree: Path
    git_dir: Path
    scratch: Path
    kernel: bool = True

    def git(self, *arguments: str, given: str = "", environment: Mapping[str, str] | None = None) -> str:
        """Git's answers about commits, the user's and our own. Raises HostError if it fails."""
        result = own_git(self.scratch, *arguments, given=given.encode(), environment=environment, timeout_s=CHECKOUT_S)
        return result.stdout.decode(errors="replace").rstrip("\n")

    def ask(self, *arguments: str) -> subprocess.CompletedProcess[bytes]:
        """Run git where to fail is an answer, too."""
        return own_git(self.scratch, *arguments, timeout_s=CHECKOUT_S, check=False)

    def describe(self, commit: str) -> str:
        """A name of one of the user's commits, for tables: by the last tag before it."""
        return describe(self.tree, commit)

    def revision(self, name: str) -> Revision:
        """A revision by the user's name for it. Raises ConfigError as `find_revision` does."""
        return find_revision(self.tree, name, kernel=self.kernel)

    def made(self, commit: str, name: str) -> Revision:
        """One of the commits that we made, as a revision by that name."""
        return Revision(self.git_dir, commit, self.git("rev-parse", f"{commit}^{{tree}}"), name)

    def holds(self, commit: str, ancestor: str) -> bool:
        """Whether a commit is, or descends from, another one."""
        return self.ask("merge-base", "--is-ancestor", ancestor, commit).returncode == 0


def open_repository(tree: Path, *, kernel: bool = True) -> Repository:
    """The repository at a path.

    Raises ConfigError if that is no repository, has no commit of a kernel where one is wanted, or is not whole
    (shallow, partial). Changes that are not committed belong to no commit: they stay as they are, and are not measured.
    """
    found = find_revision(tree, "HEAD", kernel=kernel)
    if lacking := lacks(tree):
        raise ConfigError(
            f"{tree} {lacking}", hint="fetch the rest: git fetch --unshallow, or a new clone of all of it"
        )
    repository = Repository(tree, found.git_dir, found.workplace / "source", kernel)
    borrow(found.git_dir, repository.scratch)
    return repository
