"""Revisions of a kernel's source, checked out in a tree of our own: the user's is not touched.

Switching it from revision to revision leaves alone what both have, so that `make` builds only what differs.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fsjoule.errors import ConfigError, LabError
from fsjoule.host import process

_QUICK_S: Final = 60.0
_CHECKOUT_S: Final = 900.0


@dataclass(frozen=True, slots=True)
class Revision:
    """A commit of a repository. `tree` is the hash of its content, `git_dir` where the repository keeps its objects."""

    git_dir: Path
    commit: str
    tree: str
    describe: str

    @property
    def repository_id(self) -> str:
        """Short, and another one for each repository of this machine."""
        return hashlib.sha256(str(self.git_dir).encode()).hexdigest()[:12]


def find_revision(tree: Path, name: str) -> Revision:
    """Look a revision up. Raises ConfigError if that is no repository, has no such revision, or holds no kernel."""
    try:
        git_dir = _git(tree, "rev-parse", "--path-format=absolute", "--git-common-dir")
    except LabError as error:
        hint = "give a clone of the kernel's repository; for sources without one: git init, git add -A, git commit"
        raise ConfigError(f"{tree} is no git repository that can be read: {error.what}", hint=hint) from error
    try:
        commit = _git(tree, "rev-parse", "--verify", "--end-of-options", f"{name}^{{commit}}")
    except LabError as error:
        raise ConfigError(
            f"{tree} has no revision {name!r}", hint="give a commit, a tag or a branch that is there, or fetch it"
        ) from error
    try:
        _git(tree, "cat-file", "-e", f"{commit}:arch/arm/Kconfig")
    except LabError as error:
        hint = "give the repository of the kernel itself, at its top"
        raise ConfigError(f"{name} of {tree} is no kernel's source: it has no arch/arm", hint=hint) from error
    describe = _git(tree, "describe", "--tags", "--always", commit)
    return Revision(Path(git_dir), commit, _git(tree, "rev-parse", f"{commit}^{{tree}}"), describe)


def has_changes(tree: Path, revision: Revision) -> bool:
    """Whether the user's own tree is at that revision, with changes that are not committed."""
    if _git(tree, "rev-parse", "--is-inside-work-tree") != "true":
        return False
    at_it = _git(tree, "rev-parse", "HEAD") == revision.commit
    return at_it and bool(_git(tree, "status", "--porcelain", "--untracked-files=no", timeout_s=_CHECKOUT_S))


def check_out(revision: Revision, into: Path) -> None:
    """Bring a tree of our own to a revision; made if it is not there yet. It borrows the repository's objects.

    Only one process at a time may do so. Raises LabError if git fails (a full disk).
    """
    if not (into / ".git").is_dir():
        into.mkdir(parents=True, exist_ok=True)
        _git(into, "init", "--quiet")
    (into / ".git" / "objects" / "info" / "alternates").write_text(f"{revision.git_dir / 'objects'}\n")
    (into / ".git" / "index.lock").unlink(missing_ok=True)  # of a checkout that was killed
    _git(into, "checkout", "--quiet", "--force", "--detach", revision.commit, timeout_s=_CHECKOUT_S)


def _git(tree: Path, *arguments: str, timeout_s: float = _QUICK_S) -> str:
    return process.run(["git", "-C", tree, *arguments], timeout_s=timeout_s).stdout.decode().strip()
