"""Revisions of a kernel's source, checked out in our own tree: the user's tree is not touched.

A switch between revisions changes only the files that differ, so that `make` builds only what differs.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fsjoule.errors import ConfigError, HostError
from fsjoule.host import process
from fsjoule.host.paths import cache_folder
from fsjoule.host.process import run_watched

QUICK_S: Final = 60.0
CHECKOUT_S: Final = 900.0
# Our own tree ignores the user's settings: line ends, hooks, detection of renamed files.
_OWN_SETTINGS: Final = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
# git sets these for a hook: with them, git in another folder would still work on the hook's repository.
_NO_OTHER: Final[dict[str, str | None]] = dict.fromkeys(
    (
        "GIT_DIR",
        "GIT_WORK_TREE",
        "GIT_COMMON_DIR",
        "GIT_INDEX_FILE",
        "GIT_OBJECT_DIRECTORY",
        "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    )
)


@dataclass(frozen=True, slots=True)
class Revision:
    """A commit of a repository. `tree` is the hash of its content, `git_dir` is its folder of objects."""

    git_dir: Path
    commit: str
    tree: str
    describe: str

    @property
    def repository_id(self) -> str:
        """A short name, unique to each repository of this machine."""
        return hashlib.sha256(str(self.git_dir).encode()).hexdigest()[:12]

    @property
    def workplace(self) -> Path:
        """The folder in the cache with the source that kernels are built from, and their build folders. May be absent.

        Whoever checks out or builds there holds its lock, `.lock`.
        """
        return kernels_cache() / "trees" / self.repository_id


def kernels_cache() -> Path:
    """The folder of built kernels and their build folders; made if absent."""
    return cache_folder("kernels")


def find_revision(tree: Path, name: str, *, kernel: bool = True) -> Revision:
    """Look up a revision. Raises ConfigError without a repository, such a revision, or with `kernel` a kernel in it."""
    try:
        git_dir = _git(tree, "rev-parse", "--path-format=absolute", "--git-common-dir")
    except HostError as error:
        hint = "give a clone of the repository; for sources without one: git init, git add -A, git commit"
        # Git's words for a repository of another user. It wants the top of the tree, wherever it was called.
        if owned := re.search(r"dubious ownership in repository at '(.+)'", error.what):
            hint = f"it is another user's: git config --global --add safe.directory {shlex.quote(owned[1])}"
        raise ConfigError(f"{tree} is not a readable git repository: {error.what}", hint=hint) from error
    try:
        commit = _git(tree, "rev-parse", "--verify", "--end-of-options", f"{name}^{{commit}}")
    except HostError as error:
        raise ConfigError(
            f"{tree} has no revision {name!r}", hint="give an existing commit, tag or branch, or fetch it"
        ) from error
    try:
        if kernel:
            _git(tree, "cat-file", "-e", f"{commit}:arch/arm/Kconfig")
    except HostError as error:
        hint = "give the repository of the kernel itself, at its top"
        raise ConfigError(f"{name} of {tree} is not a kernel's source: it has no arch/arm", hint=hint) from error
    return Revision(Path(git_dir), commit, _git(tree, "rev-parse", f"{commit}^{{tree}}"), describe(tree, commit))


def tree_here() -> Path | None:
    """The kernel's repository that the current folder is in, at its top; None if it is in none."""
    here = Path.cwd()
    top = next((folder for folder in (here, *here.parents) if (folder / ".git").exists()), None)
    return top if top is not None and (top / "arch" / "arm" / "Kconfig").is_file() else None


def is_revision(tree: Path, name: str) -> bool:
    """Whether a repository has such a commit, tag or branch. Raises ConfigError if it cannot be read."""
    try:
        find_revision(tree, name)
    except ConfigError:
        find_revision(tree, "HEAD")
        return False
    return True


def describe(tree: Path, commit: str) -> str:
    """A readable name of a commit: the last tag before it, the number of commits since, and its hash."""
    return _git(tree, "describe", "--tags", "--always", commit)


def has_changes(tree: Path, revision: Revision) -> bool:
    """Whether the user's own tree is at that revision and has uncommitted changes."""
    return _git(tree, "rev-parse", "HEAD") == revision.commit and has_any_changes(tree)


def has_any_changes(tree: Path) -> bool:
    """Whether the user's own tree, if there is one, has uncommitted changes of tracked files."""
    if _git(tree, "rev-parse", "--is-inside-work-tree") != "true":
        return False
    return bool(_git(tree, "status", "--porcelain", "--untracked-files=no", timeout_s=CHECKOUT_S))


def lacks(tree: Path) -> str:
    """Why the repository's history is incomplete; empty if it is complete."""
    if _git(tree, "rev-parse", "--is-shallow-repository") == "true":
        return "is a shallow repository: the history between two commits may be cut off"
    if "promisor" in _git(tree, "config", "--list", "--name-only"):
        return "is a partial clone: it may lack files of old commits"
    return ""


def borrow(git_dir: Path, into: Path) -> None:
    """Make our own tree if absent. It borrows a repository's objects; nothing is checked out."""
    into.mkdir(parents=True, exist_ok=True)
    own_git(into, "init", "--quiet")  # mends one that was killed while it was made
    (into / ".git" / "objects" / "info" / "alternates").write_text(f"{git_dir / 'objects'}\n")


def check_out(revision: Revision, into: Path) -> None:
    """Switch our own tree, made if absent, to a revision. It borrows the repository's objects.

    Only one process at a time may call it. Raises HostError if git fails (a full disk).
    """
    borrow(revision.git_dir, into)
    (into / ".git" / "index.lock").unlink(missing_ok=True)  # from a killed checkout
    log = into / ".git" / "checkout.log"
    log.unlink(missing_ok=True)
    # It ends with this process: nothing may write into a tree that the next process already uses.
    run_watched(
        ["git", "-C", into, "checkout", "--quiet", "--force", "--detach", revision.commit],
        log=log,
        timeout_s=CHECKOUT_S,
        how_far=lambda: f"kernel build: checking out {revision.describe}",
        env=_NO_OTHER | _OWN_SETTINGS,
    )


def files_of(tree: Path) -> list[str]:
    """The paths of all files of the checked out revision."""
    return own_git(tree, "ls-files", "-z").stdout.decode(errors="surrogateescape").rstrip("\0").split("\0")


def own_git(
    tree: Path,
    *arguments: str,
    timeout_s: float = QUICK_S,
    given: bytes | None = None,
    environment: Mapping[str, str] | None = None,
    check: bool = True,
) -> subprocess.CompletedProcess[bytes]:
    """Run git in our own tree; `given` is its input. Raises HostError if it fails (with `check`)."""
    env = {**_NO_OTHER, **_OWN_SETTINGS, **(environment or {})}
    return process.run(["git", "-C", tree, *arguments], timeout_s=timeout_s, env=env, input_bytes=given, check=check)


def _git(tree: Path, *arguments: str, timeout_s: float = QUICK_S) -> str:
    # Its words are looked at, so they are English.
    result = process.run(["git", "-C", tree, *arguments], timeout_s=timeout_s, env={**_NO_OTHER, "LC_ALL": "C"})
    return result.stdout.decode().strip()
