"""Commits that nobody wrote: one branch's commit on top of another branch, and a branch without one of its commits.

git merges them without a work tree, so nothing is left behind when it is killed. The same question gives the same
commit, by its hash. They live in the scratch repository.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from fsjoule.errors import LabError
from fsjoule.kernels.tree.repository import Repository

_CONFLICT: Final = 1
_IDENTITY: Final = ("-c", "user.name=fsjoule", "-c", "user.email=fsjoule@localhost", "-c", "commit.gpgSign=false")
_EPOCH: Final = "946684800 +0000"
_DATES: Final = {"GIT_AUTHOR_DATE": _EPOCH, "GIT_COMMITTER_DATE": _EPOCH}


@dataclass(frozen=True, slots=True)
class Conflict:
    """git cannot put the two together without somebody's help; `paths` says where."""

    paths: tuple[str, ...]

    def __str__(self) -> str:
        return f"conflicts in {', '.join(self.paths)}"


def merged(repository: Repository, ours: str, theirs: str) -> str | Conflict:
    """The commit that has both histories, which may be one of the two."""
    if repository.holds(theirs, ours):
        return theirs
    if repository.holds(ours, theirs):
        return ours
    tree = _merged_tree(repository, ours, theirs)
    if isinstance(tree, Conflict):
        return tree
    return _commit(repository, tree, f"{theirs} on {ours}", ours, theirs)


def without(repository: Repository, tip: str, culprit: str) -> str | Conflict:
    """The tip with a commit reverted: of a merge, all that came with it, as seen from its first parent.

    The culprit is in the tip's history, and has a parent.
    """
    # A revert is a merge whose common ancestor is the culprit and whose other side is the culprit's parent.
    base = _commit(repository, f"{culprit}^{{tree}}", "culprit")
    tree = _merged_tree(
        repository,
        _commit(repository, f"{tip}^{{tree}}", "tip", base),
        _commit(repository, f"{culprit}^1^{{tree}}", "parent", base),
    )
    if isinstance(tree, Conflict):
        return tree
    return _commit(repository, tree, f"{tip} without {culprit}", tip)


def _merged_tree(repository: Repository, ours: str, theirs: str) -> str | Conflict:
    """The content of both. Raises LabError if git fails for another reason than a conflict."""
    command = ("merge-tree", "--write-tree", "--name-only", "--no-messages", "--allow-unrelated-histories")
    done = repository.ask(*command, ours, theirs)
    said = done.stdout.decode(errors="replace").split("\n")
    if done.returncode not in (0, _CONFLICT):
        raise LabError(f"git cannot merge {theirs} into {ours}: {done.stderr.decode(errors='replace').strip()}")
    if done.returncode == _CONFLICT:
        return Conflict(tuple(sorted({path for path in said[1:] if path})))
    return said[0]


def _commit(repository: Repository, tree: str, message: str, *parents: str) -> str:
    options = [part for parent in parents for part in ("-p", parent)]
    found = repository.git("rev-parse", tree)
    return repository.git(*_IDENTITY, "commit-tree", found, *options, "-m", message, environment=_DATES)
