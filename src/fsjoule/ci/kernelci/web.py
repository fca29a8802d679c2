"""Requests to KernelCI's servers: their JSON and files, and errors that contain no token."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

from fsjoule.errors import KernelCIError, StorageError
from fsjoule.host.plaintext import plain_line
from fsjoule.host.web import AnswerError, HttpAnswer, answered

_ANSWER_S: Final = 300.0
_DOWNLOAD_S: Final = 1800.0
_MOST_ANSWER: Final = 1 << 26
_REFUSALS: Final = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
_SHOWN: Final = 300
# Refusals that pass by themselves: too slow, too often.
_LATER: Final = (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS)


def asked(
    method: str,
    url: str,
    what: str,
    *,
    token: str = "",
    query: Mapping[str, str] | None = None,
    document: object = None,
) -> Any:  # noqa: ANN401 - any JSON
    """The JSON of an answer. Raises KernelCIError, transient if the server cannot be reached or has a fault."""
    more = {"authorization": f"Bearer {token}" if token else "", "query": query, "document": document}
    with _answer(method, url, what, most_bytes=_MOST_ANSWER, limit_s=_ANSWER_S, **more) as answer:
        content = answer.content()
    if answer.status != HTTPStatus.OK:
        raise _refused(answer.status, content, url, what)
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise KernelCIError(f"{what}: {_host(url)} does not answer in JSON", hint="is the address right?") from error


def download(
    url: str, file: Path, what: str, *, most_bytes: int, sha256: str | None, limit_s: float = _DOWNLOAD_S
) -> None:
    """Fetch a file, without any token. Raises KernelCIError if it is not there, too large, cut off or damaged."""
    digest = hashlib.sha256()
    # What is stored compressed stays so: its digest is the file's.
    plain = {"Accept-Encoding": "identity"}
    try:
        with (
            _answer("GET", url, what, most_bytes=most_bytes, limit_s=limit_s, headers=plain) as answer,
            file.open("wb") as kept,
        ):
            if answer.status != HTTPStatus.OK:
                raise _refused(answer.status, b"", url, what)
            for part in answer.parts():
                digest.update(part)
                kept.write(part)
    except OSError as error:
        raise StorageError(f"{file} cannot be written: {error.strerror or error}") from error
    if sha256 is not None and digest.hexdigest() != sha256.lower():
        raise KernelCIError(
            f"{what} is damaged: {url} has the SHA-256 {digest.hexdigest()}, and its job says {plain_line(sha256)}"
        )


@contextmanager
def _answer(method: str, url: str, what: str, **more: Any) -> Generator[HttpAnswer]:  # noqa: ANN401 - as `answered` has it
    try:
        with answered(method, url, **more) as answer:
            yield answer
    except AnswerError as error:
        raise KernelCIError(f"{what}: {_host(url)} {error}", transient=error.transient) from None


def _refused(status: int, content: bytes, url: str, what: str) -> KernelCIError:
    why = plain_line(content.decode(errors="replace"))[:_SHOWN]
    told = f"{what}: {_host(url)} refuses with HTTP {status}{f': {why}' if why else ''}"
    if status in _REFUSALS:
        return KernelCIError(told, hint="the token is wrong or expired, or its user may not do this", denied=True)
    return KernelCIError(told, transient=status >= HTTPStatus.INTERNAL_SERVER_ERROR or status in _LATER)


def _host(url: str) -> str:
    """The server's part of an address."""
    return "/".join(url.split("/")[:3])
