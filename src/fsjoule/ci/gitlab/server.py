"""Common to all calls of GitLab: its variables, and errors that contain no token."""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import gitlab
import requests
from gitlab.exceptions import GitlabError

from fsjoule.errors import ConfigError, GitLabError
from fsjoule.host.inside import MIB, read_inside
from fsjoule.report.markdown import without_mentions

TOKEN_VARIABLE: Final = "FSJOULE_GITLAB_TOKEN"  # noqa: S105 - its name, not a token
_TIMEOUT_S: Final = 30.0
_LOOPBACK: Final = {"127.0.0.1", "::1", "localhost"}
# More than GitLab takes as a note.
_MOST_BYTES: Final = MIB
# What GitLab would do for a text: a quick action at the start of a line.
_QUICK_ACTION: Final = re.compile(r"^(\s*)/", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class GitLabProject:
    """A project, and a token for it."""

    server: str
    project: str
    token: str = field(repr=False)


def text_of_a_job(file: Path) -> str | None:
    """A text that a job left as artifact, None if there is none.

    Raises ConfigError if it is no UTF-8, ResultError as `read_inside`: through a link to /proc/self/environ, for
    example, the token would become a part of the text.
    """
    content = read_inside(file.parent, file.name, at_most=_MOST_BYTES)
    try:
        return None if content is None else content.decode()
    except UnicodeDecodeError as error:
        raise ConfigError(f"this is no text: {error}", file=file) from error


def inert(text: str) -> str:
    """Markdown that GitLab shows and does nothing for. Who may push a branch writes it, the token's user posts it."""
    return _QUICK_ACTION.sub(r"\1&#47;", without_mentions(text))


@contextmanager
def told_without_token(token: str, what: str, forbidden: str) -> Generator[None]:
    """Turn errors into GitLabError: `what` says what failed, `forbidden` is the hint if the token lacks a right.

    The cause is cut off, because it carries the request and so the token.
    """
    try:
        yield
    except GitlabError as error:
        hint = forbidden if error.response_code in {401, 403} else None
        raise GitLabError(f"{what}: {_without(token, str(error))}", hint=hint) from None
    except (requests.RequestException, UnicodeError, ValueError) as error:
        # UnicodeError and ValueError come from a token that no header can hold.
        raise GitLabError(f"{what}: {type(error).__name__}: {_without(token, str(error))}") from None


@contextmanager
def signed_in(server: str, token: str, what: str) -> Generator[tuple[gitlab.Gitlab, int | None]]:
    """The server for a project's token, and the number of the token's user.

    Raises GitLabError as above, ConfigError where everybody on the way could read the token.
    """
    address = urlsplit(server)
    if address.scheme != "https" and address.hostname not in _LOOPBACK:
        raise ConfigError(f"the token is not sent to {server}: that is not https", hint="give GitLab a certificate")
    hint = f"{TOKEN_VARIABLE} needs the scope api and at least the role Reporter in this project (docs/ci.md)"
    with (
        told_without_token(token, what, hint),
        # A bearer token, because requests removes it when a server redirects to another server.
        gitlab.Gitlab(server, oauth_token=token, timeout=_TIMEOUT_S) as signed,
    ):
        signed.auth()
        yield signed, None if signed.user is None else signed.user.attributes["id"]


def needed(variables: Mapping[str, str], name: str) -> str:
    """The value of a variable that GitLab sets. Raises ConfigError if it is missing."""
    value = variables.get(name, "")
    if not value:
        raise ConfigError(f"{name} is not set", hint="GitLab sets it in each job of a pipeline")
    return value


def _without(token: str, text: Any) -> str:  # noqa: ANN401 - a server may answer with anything
    """The text without the token, plain or escaped."""
    for form in {token, repr(token)[1:-1], repr(token.encode())[2:-1]}:
        text = str(text).replace(form, "[token]")
    return text
