"""Small git repositories that look like a kernel's."""

from __future__ import annotations

from pathlib import Path

from fsjoule.host import process


def git(tree: Path, *arguments: str) -> str:
    """What git says, as an author of a kernel."""
    identity = ("-c", "user.name=a", "-c", "user.email=a@b.c")
    return process.run(["git", "-C", tree, *identity, *arguments], timeout_s=30).stdout.decode().strip()


def commit(tree: Path, name: str, text: str) -> str:
    """The hash of a commit that makes a file have that text."""
    (tree / name).parent.mkdir(parents=True, exist_ok=True)
    (tree / name).write_text(text)
    git(tree, "add", name)
    git(tree, "commit", "--quiet", f"--message={name}: {text[:40]}")
    return git(tree, "rev-parse", "HEAD")


def new_tree(tree: Path) -> Path:
    """What a kernel's repository has in common with this: the file by which it is known, tags, commits."""
    tree.mkdir()
    git(tree, "init", "--quiet", "--initial-branch=main")
    commit(tree, "arch/arm/Kconfig", "config ARM")
    git(tree, "tag", "v6.1")
    return tree
