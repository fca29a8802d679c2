"""What all that talks to GitLab has in common: its variables, and errors in which no token stands."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any

import requests
from gitlab.exceptions import GitlabError

from fsjoule.errors import ConfigError, GitLabError


@contextmanager
def told_without_token(token: str, what: str, forbidden: str) -> Generator[None]:
    """Errors as ours: `what` could not be done, and `forbidden` as the hint where the token may not do it.

    Their cause is cut: it carries the request, and that the token.
    """
    try:
        yield
    except GitlabError as error:
        hint = forbidden if error.response_code in {401, 403} else None
        raise GitLabError(f"{what}: {_without(token, str(error))}", hint=hint) from None
    except (requests.RequestException, UnicodeError, ValueError) as error:
        # Also what a token does that no header can hold.
        raise GitLabError(f"{what}: {type(error).__name__}: {_without(token, str(error))}") from None


def needed(variables: Mapping[str, str], name: str) -> str:
    """A variable that GitLab sets. Raises ConfigError if it is missing."""
    value = variables.get(name, "")
    if not value:
        raise ConfigError(f"{name} is not set", hint="GitLab sets it in each job of a pipeline")
    return value


def _without(token: str, text: Any) -> str:  # noqa: ANN401 - a server may answer with anything
    """A text in which the token is not to be seen, also where it was escaped."""
    for form in {token, repr(token)[1:-1], repr(token.encode())[2:-1]}:
        text = str(text).replace(form, "[token]")
    return text
