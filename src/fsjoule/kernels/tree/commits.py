"""The commits of a range, in a line: from a good one to a bad one, each a step more than the one before.

A line follows first parents, as releases and their maintainers' trees do. A step that is a merge can be entered
(`inside`): its line runs between the same two ends, and each of its positions has one commit more of the branch that
was merged. Every position of a line holds all good revisions, so that nothing that came in beside them differs.

Some commits nobody wrote: one branch's commit on top of another branch, and a branch without one of its commits. git
merges them without a work tree, so nothing is left behind when it is killed. The same question gives the same commit,
by its hash. They live in the scratch repository.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from fsjoule.errors import ConfigError, HostError
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
    """The content of both. Raises HostError if git fails for another reason than a conflict."""
    command = ("merge-tree", "--write-tree", "--name-only", "--no-messages", "--allow-unrelated-histories")
    result = repository.ask(*command, ours, theirs)
    said = result.stdout.decode(errors="replace").split("\n")
    if result.returncode not in (0, _CONFLICT):
        raise HostError(f"git cannot merge {theirs} into {ours}: {result.stderr.decode(errors='replace').strip()}")
    if result.returncode == _CONFLICT:
        return Conflict(tuple(sorted({path for path in said[1:] if path})))
    return said[0]


def _commit(repository: Repository, tree: str, message: str, *parents: str) -> str:
    options = [part for parent in parents for part in ("-p", parent)]
    found = repository.git("rev-parse", tree)
    return repository.git(*_IDENTITY, "commit-tree", found, *options, "-m", message, environment=_DATES)


_FORMAT = "--format=%H%x09%T%x09%P%x09%s"
_SHORT = 12


@dataclass(frozen=True, slots=True)
class Commit:
    """One position of a line.

    `id` is what is checked out, `content` the hash of its files. `adds` is the user's commit that this step adds: the
    same, unless `id` is one that we made; `variant` says then how it differs, for names. `conflict` says why there is
    no such content.
    """

    id: str
    content: str
    adds: str
    parents: tuple[str, ...]
    subject: str
    variant: str = ""
    conflict: str = ""

    @property
    def is_merge(self) -> bool:
        """Whether there may be a line inside of this step."""
        return len(self.parents) > 1

    @property
    def short(self) -> str:
        """For tables and messages."""
        return self.adds[:_SHORT]


Line = tuple[Commit, ...]  # position 0 is good, the last one is bad


def find_line(repository: Repository, good: Sequence[str], bad: Sequence[str]) -> Line:
    """The line between revisions by the user's names for them.

    With several bad ones the line ends at their last common commit. With several good ones it begins with all of them;
    if none of them has the others, position 0 is a commit that we make. Raises ConfigError for revisions that are not
    there, equal, swapped or not in line.
    """
    goods = {repository.revision(name).commit: name for name in good}
    bads = {repository.revision(name).commit: name for name in bad}
    for commit, name in bads.items():
        _check(repository, goods, commit, name)
    bases = repository.ask("merge-base", "--octopus", *bads).stdout.decode().split()
    if not bases:
        raise ConfigError(f"{' and '.join(bads.values())} share no history", hint="bisect them one at a time")
    tip = bases[0]
    if any(repository.holds(commit, tip) or not repository.holds(tip, commit) for commit in goods):
        names = " and ".join(bads.values())
        hint = "bisect them one at a time: each has a change of its own"
        raise ConfigError(f"{names} have no commit in common that the good revisions have not", hint=hint)
    # A commit that has all good ones and nothing more.
    base, *rest = repository.git("merge-base", "--independent", *goods).split()
    for other in rest:
        both = merged(repository, base, other)
        if isinstance(both, Conflict):
            what = f"{' and '.join(goods.values())} do not merge: {both}"
            raise ConfigError(what, hint="give one of them")
        base = both
    steps = first_parents(repository, tip, *goods)
    # Once a commit holds them, all after it do.
    first = bisect_left(steps, 1, key=lambda step: all(repository.holds(step.id, commit) for commit in goods))
    return (described(repository, base), *steps[first:])


def inside(repository: Repository, before: Commit, merge: Commit) -> Line:
    """The line inside of a step: from the position before it to the merge itself, one commit of the branch at a time.

    The last position is the merge; where that has the same content as the branch's last commit on top of `before`, that
    commit stands there. Empty for a step that is no merge.
    """
    if not merge.is_merge:
        return ()
    line = [before]
    own = sorted(merge.parents, key=lambda parent: not repository.holds(parent, before.id))
    for parent in own:
        start = line[-1]
        if start.conflict:
            break
        line += [_on_top(repository, start.id, commit) for commit in first_parents(repository, parent, start.id)]
    if len(line) > 1 and line[-1].content == merge.content:
        return (*line[:-1], replace(line[-1], id=merge.id))
    return (*line, replace(merge, parents=()))


def without_commit(repository: Repository, tip: Commit, culprit: Commit) -> Commit | Conflict:
    """The tip with a commit reverted, if git can do that by itself. The culprit is no first commit of a history."""
    made = without(repository, tip.id, culprit.adds)
    if isinstance(made, Conflict):
        return made
    content = described(repository, made).content
    return replace(tip, id=made, content=content, parents=(tip.id,), variant=f"without-{culprit.short}")


def _check(repository: Repository, goods: dict[str, str], bad: str, name: str) -> None:
    for commit, good in goods.items():
        if commit == bad:
            raise ConfigError(f"{good} is both good and bad", hint="give two revisions that differ")
        if repository.holds(commit, bad):
            raise ConfigError(f"{good} (good) comes after {name} (bad): they look swapped", hint="swap them")
        if not repository.holds(bad, commit):
            common = repository.ask("merge-base", commit, bad).stdout.decode().strip()
            hint = (
                f"their last common commit is {common[:_SHORT]}: is that good?" if common else "they share no history"
            )
            raise ConfigError(f"{good} (good) is not an ancestor of {name} (bad)", hint=hint)


def first_parents(repository: Repository, tip: str, *without: str) -> list[Commit]:
    """The commits from the tip along first parents that are in none of the histories, oldest first."""
    return _log(repository, "--first-parent", "--reverse", tip, *(f"^{commit}" for commit in without))


def described(repository: Repository, commit: str) -> Commit:
    """A commit by its hash."""
    return _log(repository, "--no-walk", commit)[0]


def _log(repository: Repository, *arguments: str) -> list[Commit]:
    commits: list[Commit] = []
    for line in filter(None, repository.git("log", _FORMAT, *arguments, "--").split("\n")):
        commit, content, parents, subject = line.split("\t", 3)
        commits.append(Commit(commit, content, commit, tuple(parents.split()), subject))
    return commits


def _on_top(repository: Repository, start: str, commit: Commit) -> Commit:
    both = merged(repository, start, commit.id)
    if isinstance(both, Conflict):
        return replace(commit, content="", conflict=f"{commit.short} does not merge into {start[:_SHORT]}: {both}")
    if both == commit.id:
        return commit
    return replace(commit, id=both, content=described(repository, both).content, variant=f"on-{start[:_SHORT]}")
