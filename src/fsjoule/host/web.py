"""Requests to servers of others, bounded in time and size. A token goes to its own server, and to no other.

Proxies and certificates come from the usual variables (HTTPS_PROXY, NO_PROXY, REQUESTS_CA_BUNDLE). ~/.netrc is never
asked: its password would take the place of a token, or be sent where none is to be.
"""

from __future__ import annotations

import ipaddress
import os
import re
import socket
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urljoin, urlsplit

import requests
from urllib3.exceptions import HTTPError, ProtocolError

from fsjoule.errors import ConfigError

_TIMEOUT_S: Final = 60.0  # for the next bytes
_PART: Final = 1 << 16
_MIB: Final = 1 << 20
_HOPS: Final = 5
_ADDRESS: Final = re.compile(r"https?://[^/@?#\s]+(/[^@?#\s]*)?")
_CERTIFICATES: Final = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")


class AnswerError(Exception):
    """There is no whole answer. The text says why, after the server's name. A `transient` fault may pass."""

    def __init__(self, why: str, *, transient: bool = True) -> None:
        super().__init__(why)
        self.transient = transient


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """An answer: its status, and its body while it comes, of at most `most_bytes` in `limit_s`."""

    status: int
    most_bytes: int
    limit_s: float
    _response: requests.Response

    def parts(self) -> Iterator[bytes]:
        """The body's parts. Raises AnswerError."""
        size, deadline = 0, time.monotonic() + self.limit_s
        # The bytes that have come, not as many as asked for: a server that sends one a minute is noticed.
        while part := self._response.raw.read1(_PART, decode_content=True):
            size += len(part)
            if size > self.most_bytes:
                raise AnswerError(f"sends more than {self.most_bytes / _MIB:g} MiB", transient=False)
            if time.monotonic() > deadline:
                raise AnswerError(f"took longer than {self.limit_s:g} s")
            yield part

    def content(self) -> bytes:
        """The whole body. Raises AnswerError."""
        return b"".join(self.parts())


def is_address(url: str) -> bool:
    """Whether it is the address of a web server, without a password."""
    try:
        return _ADDRESS.fullmatch(url) is not None and bool(urlsplit(url).hostname)
    except ValueError:
        return False


def is_private(url: str) -> bool:
    """Whether an address leads to this computer or into its own network. A name that only a proxy knows does not."""
    parts = urlsplit(url)
    try:
        found = socket.getaddrinfo(parts.hostname, parts.port or 443, type=socket.SOCK_STREAM)
    except (OSError, ValueError):
        return False
    return any(not ipaddress.ip_address(str(address[0]).partition("%")[0]).is_global for *_, address in found)


@contextmanager
def answered(
    method: str,
    url: str,
    *,
    most_bytes: int,
    limit_s: float,
    authorization: str = "",
    headers: Mapping[str, str] | None = None,
    query: Mapping[str, str] | None = None,
    document: object = None,
) -> Generator[HttpAnswer]:
    """Send a request, with `document` as JSON; its answer. `authorization` is the header of the address's own server.

    A GET follows a few redirects. Raises AnswerError, which does not contain the header, also for what cuts off
    `HttpAnswer.parts`; ConfigError if the lab's own certificates are not there.
    """
    try:
        with requests.Session() as session:
            session.trust_env = False  # it means ~/.netrc, too
            session.headers.update(headers or {})
            more = {"params": query, "json": document}
            with _sent(session, method, url, authorization, more) as response:
                yield HttpAnswer(response.status_code, most_bytes, limit_s, response)
    except (requests.RequestException, HTTPError, ValueError) as error:
        # The cause is cut off: it carries the request, and so the token.
        cut = isinstance(error, ProtocolError | requests.exceptions.ChunkedEncodingError)
        raise AnswerError("broke off" if cut else f"cannot be reached: {type(error).__name__}") from None


def _sent(
    session: requests.Session, method: str, url: str, authorization: str, more: dict[str, Any]
) -> requests.Response:
    """The answer's head. requests would read a redirect's body without limit, and make a GET of a changed PUT."""
    first = url
    for _ in range(_HOPS + 1):
        # From http to https of one server the token stays.
        own = authorization and (url == first or not session.should_strip_auth(first, url))
        answer = session.request(
            method,
            url,
            headers={"Authorization": authorization} if own else {},
            timeout=_TIMEOUT_S,
            stream=True,
            allow_redirects=False,
            proxies=requests.utils.get_environ_proxies(url),
            verify=_certificates(),
            **more,
        )
        if method != "GET" or not answer.is_redirect:
            return answer
        answer.close()
        url = urljoin(url, answer.headers["Location"])
        # The address of a stored file may be signed, behind a question mark.
        if not is_address(url.partition("?")[0]):
            raise AnswerError("sends us to what is no address of a web server", transient=False)
        if first.startswith("https:") and not url.startswith("https:"):
            raise AnswerError("sends us from https to http", transient=False)
        if is_private(url) and not is_private(first):
            raise AnswerError("sends us into the lab's own network", transient=False)
        more = {}
    raise AnswerError(f"sends us to more than {_HOPS} other addresses", transient=False)


def _certificates() -> str | bool:
    """The file or folder of certificates that servers are checked with; True: the usual ones. Raises ConfigError."""
    for name in _CERTIFICATES:
        if path := os.environ.get(name):
            if not Path(path).exists():
                raise ConfigError(f"{name}: there is no {path}", hint="give a file of certificates, or unset it")
            return path
    return True
