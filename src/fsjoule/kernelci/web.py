"""Requests to KernelCI's servers: bounded in time and size, and errors that contain no token."""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final
from urllib.parse import urljoin, urlsplit

import requests
from requests.auth import AuthBase
from urllib3.exceptions import HTTPError, ProtocolError

from fsjoule.errors import KernelCIError, StorageError
from fsjoule.host.plaintext import plain_line

_TIMEOUT_S: Final = 60.0  # for the next bytes
_ANSWER_S: Final = 300.0
_DOWNLOAD_S: Final = 1800.0
_MOST_ANSWER: Final = 1 << 26
_PART: Final = 1 << 16
_REFUSALS: Final = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
_SHOWN: Final = 300
_HOPS: Final = 5
# Refusals that pass by themselves: too slow, too often.
_LATER: Final = (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS)
_ADDRESS: Final = re.compile(r"https?://[^/@?#\s]+(/[^@?#\s]*)?")


class _Signed(AuthBase):
    """Sends the token; requests would prefer a password in ~/.netrc to a header of ours."""

    def __init__(self, token: str) -> None:
        self._token = token

    def __call__(self, r: requests.PreparedRequest) -> requests.PreparedRequest:
        if self._token:
            r.headers["Authorization"] = f"Bearer {self._token}"
        return r


def is_address(url: str) -> bool:
    """Whether it is the address of a web server, without a password."""
    try:
        return _ADDRESS.fullmatch(url) is not None and bool(urlsplit(url).hostname)
    except ValueError:
        return False


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
    with _answer(method, url, what, token, params=query, json=document) as answer:
        content = b"".join(_parts(answer, url, _MOST_ANSWER, _ANSWER_S))
        if answer.status_code != HTTPStatus.OK:
            raise _refused(answer.status_code, content, url, what)
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise KernelCIError(f"{what}: {_host(url)} does not answer in JSON", hint="is the address right?") from error


def download(
    url: str, file: Path, what: str, *, most_bytes: int, sha256: str | None, limit_s: float = _DOWNLOAD_S
) -> None:
    """Fetch a file, without any token. Raises KernelCIError if it is not there, too large, cut off or damaged."""
    digest = hashlib.sha256()
    try:
        # What is stored compressed stays so: its digest is the file's.
        with _answer("GET", url, what, "", headers={"Accept-Encoding": "identity"}) as answer, file.open("wb") as kept:
            if answer.status_code != HTTPStatus.OK:
                raise _refused(answer.status_code, b"", url, what)
            for part in _parts(answer, url, most_bytes, limit_s):
                digest.update(part)
                kept.write(part)
    except OSError as error:
        raise StorageError(f"{file} cannot be written: {error.strerror or error}") from error
    if sha256 is not None and digest.hexdigest() != sha256.lower():
        raise KernelCIError(
            f"{what} is damaged: {url} has the SHA-256 {digest.hexdigest()}, and its job says {plain_line(sha256)}"
        )


@contextmanager
def _answer(method: str, url: str, what: str, token: str, **more: Any) -> Generator[requests.Response]:  # noqa: ANN401
    try:
        with requests.Session() as session, _sent(session, method, url, token, more) as answer:
            yield answer
    except (requests.RequestException, HTTPError, ValueError) as error:
        # The cause is cut off: it carries the request, and so the token.
        cut = isinstance(error, ProtocolError | requests.exceptions.ChunkedEncodingError)
        why = "broke off" if cut else f"cannot be reached: {type(error).__name__}"
        raise KernelCIError(f"{what}: {_host(url)} {why}", transient=True) from None


def _sent(session: requests.Session, method: str, url: str, token: str, more: dict[str, Any]) -> requests.Response:
    """The answer's head. requests would read a redirect's body without limit, and make a GET of a changed PUT."""
    first = _host(url)
    for _ in range(_HOPS + 1):
        signed = _Signed(token if _host(url) == first else "")
        answer = session.request(
            method, url, auth=signed, timeout=_TIMEOUT_S, stream=True, allow_redirects=False, **more
        )
        if method != "GET" or not answer.is_redirect:
            return answer
        answer.close()
        url = urljoin(url, answer.headers["Location"])
        # The address of a stored file may be signed, behind a question mark.
        if not is_address(url.partition("?")[0]):
            raise KernelCIError(f"{first} sends us to what is no address of a web server")
        more.pop("params", None)
    raise KernelCIError(f"{first} sends us to more than {_HOPS} other addresses")


def _parts(answer: requests.Response, url: str, most_bytes: int, limit_s: float) -> Iterator[bytes]:
    size, deadline = 0, time.monotonic() + limit_s
    # The bytes that have come, not as many as asked for: a server that sends one a minute is noticed.
    while part := answer.raw.read1(_PART, decode_content=True):
        size += len(part)
        if size > most_bytes:
            raise KernelCIError(f"{url} is larger than {most_bytes >> 20} MiB")
        if time.monotonic() > deadline:
            raise KernelCIError(f"{url} took longer than {limit_s:g} s", transient=True)
        yield part


def _refused(status: int, content: bytes, url: str, what: str) -> KernelCIError:
    why = plain_line(content.decode(errors="replace"))[:_SHOWN]
    told = f"{what}: {_host(url)} refuses with HTTP {status}{f': {why}' if why else ''}"
    if status in _REFUSALS:
        return KernelCIError(told, hint="the token is wrong or expired, or its user may not do this", denied=True)
    return KernelCIError(told, transient=status >= HTTPStatus.INTERNAL_SERVER_ERROR or status in _LATER)


def _host(url: str) -> str:
    """The server's part of an address."""
    return "/".join(url.split("/")[:3])
