"""Addresses of commits on a forge: GitLab, GitHub or cgit. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from fsjoule.errors import ConfigError

# Where a job of GitLab CI finds the address of its project.
VARIABLE: Final = "CI_PROJECT_URL"


@dataclass(frozen=True, slots=True)
class Forge:
    """Addresses with `{}` for commits: of one commit, and of the difference from an older to a newer one."""

    commit: str
    difference: str


def forge_of(project: str) -> Forge:
    """The forge of a project by the project's address. Raises ConfigError if that is no http or https address."""
    parts = urlsplit(project)
    if parts.scheme not in ("http", "https") or not parts.hostname or any(sign in project for sign in "{}<>\"' "):
        raise ConfigError(
            f"{project!r} is not the address of a project", hint="for example https://gitlab.com/me/linux"
        )
    base = project.rstrip("/")
    if parts.hostname.endswith("kernel.org") or "/cgit" in parts.path:
        return Forge(f"{base}/commit/?id={{}}", f"{base}/diff/?id2={{}}&id={{}}")
    base = base.removesuffix(".git")
    dash = "" if "github" in parts.hostname else "/-"
    return Forge(f"{base}{dash}/commit/{{}}", f"{base}{dash}/compare/{{}}...{{}}")
