"""A patch series as a line of commits: a range of the user's repository, or patch files that git applies to a base.

Patches are applied beside the user's repository, in a folder that goes afterwards: git takes from its index the few
files that a series touches. The commits stay in the scratch repository, and nothing else does.
"""

from __future__ import annotations

import logging
import mailbox
import re
import shlex
import tempfile
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from email.header import decode_header, make_header
from pathlib import Path
from typing import Final

from fsjoule.errors import ConfigError
from fsjoule.host.plaintext import plain_line
from fsjoule.kernels.source_tree import CHECKOUT_S, has_changes, own_git
from fsjoule.kernels.tree.commits import Line, described, first_parents
from fsjoule.kernels.tree.repository import Repository

_log: Final = logging.getLogger(__name__)

_BASE: Final = re.compile(rb"^base-commit: ([0-9a-f]{40})\s*$", re.MULTILINE)
_DIFF: Final = re.compile(rb"^(?:diff --git |--- a/)", re.MULTILINE)
_PATCH: Final = ".patch"
_MAILBOXES: Final = frozenset({".mbx", ".mbox"})
_MAKERS: Final = "git format-patch and b4 am make such files"
_WORDS: Final = re.compile(r"^(?:error|fatal): (.+)$", re.MULTILINE)
_APPLY: Final = (
    *("-c", "user.name=fsjoule", "-c", "user.email=fsjoule@localhost", "-c", "commit.gpgSign=false"),
    *("-c", "gc.auto=0", "-c", "maintenance.auto=false"),
    *("am", "--quiet", "--empty=drop", "--committer-date-is-author-date"),
)


def find_patch_series(repository: Repository, series: str, base: str | None = None) -> Line:
    """The line of a series: its base, then each of its commits, along first parents.

    `series` is a range (`A..B`), a file of mails (mbox), a patch file, or a folder of them. Patches are applied to
    `base`, or to the commit that they say they were made for, or to HEAD. Raises ConfigError for an empty series, for
    what is neither, and for a patch that does not apply, with git's words.
    """
    path = Path(series).expanduser()
    if path.exists():
        return _applied(repository, path, base)
    if base is not None:
        raise ConfigError(f"--base {base}: {series} is no file of patches, and a range has its own base")
    before, dots, after = series.partition("..")
    if not dots or after.startswith("."):
        hint = "a range of commits (main..topic), a file of mails, or a folder of patches"
        raise ConfigError(f"{series} is no series: there is no such file, and it is no range", hint=hint)
    first, last = (repository.revision(name or "HEAD").commit for name in (before, after))
    commits = first_parents(repository, last, first)
    if not commits or not commits[0].parents:
        why = "they share no history" if commits else f"{before or 'HEAD'} has all of them"
        raise ConfigError(f"{series} is an empty range: {why}", hint="BASE..TIP: the base comes first")
    if has_changes(repository.tree, repository.revision(last)):
        _log.info("%s has uncommitted changes, which are not in the series", repository.tree)
    parent = commits[0].parents[0]
    if parent != first:
        _log.info("the series leaves %s at %s", before or "HEAD", repository.describe(parent))
    return (described(repository, parent), *commits)


def _applied(repository: Repository, path: Path, base: str | None) -> Line:
    files = _patch_files(path)
    for file in files:
        _check_replies(file)
    onto = repository.revision(base or _own_base(repository, files) or "HEAD")
    tip = _apply(repository, files, onto.commit, base or onto.describe)
    commits = first_parents(repository, tip, onto.commit)
    if not commits:
        raise ConfigError(f"{path} has no patch", hint=_MAKERS)
    # They are not in the user's repository, which knows names of its own commits only.
    own = (replace(each, adds=onto.commit, variant=f"patch-{at}") for at, each in enumerate(commits, start=1))
    return (described(repository, onto.commit), *own)


def _patch_files(path: Path) -> Sequence[Path]:
    """The file itself, or a folder's patches in the order of their names, or its one mailbox. Raises ConfigError."""
    if not path.is_dir():
        return [path.resolve()]
    files = sorted(each.resolve() for each in path.iterdir() if each.is_file())
    patches = [each for each in files if each.suffix == _PATCH]
    mailboxes = [each for each in files if each.suffix in _MAILBOXES]
    if not patches and len(mailboxes) != 1:
        several = f"several series: {', '.join(each.name for each in mailboxes)}" if mailboxes else "no patch (*.patch)"
        raise ConfigError(f"{path} has {several}", hint="name the file of one series")
    return patches or mailboxes


def _check_replies(file: Path) -> None:
    """Raise ConfigError for a reply with a patch, which git would apply: a reader proposes something in a thread."""
    with closing(mailbox.mbox(file, create=False)) as mails:
        replies = [mail for mail in mails if str(make_header(decode_header(str(mail["Subject"])))).lower()[:3] == "re:"]
        patched = [mail["Subject"] for mail in replies if _DIFF.search(mail.as_bytes())]
    if patched:
        hint = f"b4 am -m {shlex.quote(str(file))} -o series leaves the replies of a thread out"
        raise ConfigError(f"{file}: git would apply the patch in a reply, {plain_line(patched[0])}", hint=hint)


def _own_base(repository: Repository, files: Sequence[Path]) -> str | None:
    """The commit that the patches say they were made for (git format-patch --base), if the repository has it."""
    named = [match[1].decode() for file in files if (match := _BASE.search(file.read_bytes()))]
    if not named:
        return None
    if repository.ask("cat-file", "-e", f"{named[-1]}^{{commit}}").returncode == 0:
        return named[-1]
    _log.info("the series is for %s, which %s does not have: it is applied to HEAD", named[-1], repository.tree)
    return None


def _apply(repository: Repository, files: Sequence[Path], base: str, name: str) -> str:
    """The commit of the last patch. Raises ConfigError for the first one that does not apply."""
    kept = {"GIT_OBJECT_DIRECTORY": str(repository.scratch / ".git" / "objects"), "LC_ALL": "C"}
    with tempfile.TemporaryDirectory(prefix="fsjoule-series-") as temporary:
        tree = Path(temporary)
        own_git(tree, "init", "--quiet", "--template=")
        own_git(tree, "update-ref", "--no-deref", "HEAD", base, environment=kept)
        own_git(tree, "read-tree", "HEAD", environment=kept, timeout_s=CHECKOUT_S)
        done = own_git(tree, *_APPLY, *map(str, files), environment=kept, timeout_s=CHECKOUT_S, check=False)
        tip = own_git(tree, "rev-parse", "HEAD", environment=kept).stdout.decode().strip()
        if done.returncode == 0:
            return tip
        said = done.stderr.decode(errors="replace")
        message = tree / ".git" / "rebase-apply" / "final-commit"
        words = "; ".join(_WORDS.findall(said)) or said.strip()
        if not message.exists():
            raise ConfigError(f"{files[0]} is no series of patches: {words}", hint=_MAKERS)
        number = 1 + int(own_git(tree, "rev-list", "--count", f"{base}..HEAD", environment=kept).stdout)
        subject = next(iter(message.read_text(errors="replace").splitlines()), "")
        raise ConfigError(
            f"patch {number}, {subject!r}, does not apply to {name}: {words}",
            hint="--base REV, the commit that the series was made for; your tree is as it was",
        )
