"""Requests to KernelCI: its API's events and nodes, the files of jobs, and KCIDB, to which figures go.

Sources: kernelci-api (api/main.py, doc/api-details.md) and kernelci-core (kernelci/api/models.py) of July and August
2026; kernelci/pullab_cloud, KernelCI's own lab that polls; kernelci/kcidb-ng (SUBMITTERS.md, kcidb-restd-rs) of April
2026.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, cast

from fsjoule.errors import ConfigError, KernelCIError, StorageError
from fsjoule.host.plaintext import plain_line
from fsjoule.host.web import AnswerError, HttpAnswer, answered, is_address

KCIDB_VARIABLE: Final = "KCIDB_REST"
# KernelCI's tools have address and token in one: https://TOKEN@db.kernelci.org
_FORM: Final = re.compile(r"(?P<scheme>https?://)(?P<token>[^/@:\s]+)@(?P<rest>[^@\s]+)")
_ANSWER_S: Final = 300.0
_DOWNLOAD_S: Final = 1800.0
_MOST_ANSWER: Final = 1 << 26
_REFUSALS: Final = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
_SHOWN: Final = 300
# Refusals that pass by themselves: too slow, too often.
_LATER: Final = (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS)
TOKEN_VARIABLE: Final = "KCI_API_TOKEN"  # noqa: S105 - its name, not a token
# The API's limit for events with their nodes.
EVENTS_AT_ONCE: Final = 1000
_NODE_ID: Final = re.compile(r"[0-9a-f]{24}")


@dataclass(frozen=True, slots=True)
class Api:
    """KernelCI's API by its address with the version (https://api.kernelci.org/latest), and a user's token of it."""

    url: str
    token: str = field(repr=False)

    def __post_init__(self) -> None:
        if not is_address(self.url):
            raise ConfigError("this is no address of KernelCI's API", hint="https://api.kernelci.org/latest")
        if not self.token:
            raise ConfigError(
                f"there is no token of {self.url}",
                hint=f"{TOKEN_VARIABLE}: of a user in the group runtime:LAB:node-editor, who may take the lab's jobs",
            )

    def user(self) -> str:
        """The token's user. Raises KernelCIError if the API does not know it."""
        found = self._object("GET", "whoami", "asking KernelCI who we are")
        return str(found.get("username") or found.get("email") or "")

    def waiting(self, since: str) -> list[dict[str, Any]]:
        """Events of jobs that wait for a lab, with their nodes, after a time (ISO 8601). Raises KernelCIError."""
        query = {"state": "available", "kind": "job", "recursive": "true", "limit": str(EVENTS_AT_ONCE), "from": since}
        what = "asking KernelCI for jobs"
        found = asked("GET", f"{self._base}/events", what, token=self.token, query=query)
        if not isinstance(found, list) or not all(isinstance(each, dict) for each in cast("list[object]", found)):
            raise self._strange(what)
        return cast("list[dict[str, Any]]", found)

    def node(self, number: str) -> dict[str, Any]:
        """Raises KernelCIError."""
        return self._object("GET", self._node(number), f"asking KernelCI for node {number}")

    def update(self, node: dict[str, Any]) -> None:
        """Write a node, changed, as `node` gave it. Raises KernelCIError, for example without the right."""
        self._object("PUT", self._node(node["id"]), f"changing KernelCI's node {node['id']}", document=node)

    @property
    def _base(self) -> str:
        return self.url.rstrip("/")

    def _node(self, number: str) -> str:
        if not is_node(number):
            raise KernelCIError(f"{number!r} is no node of KernelCI's")
        return f"node/{number}"

    def _object(self, method: str, path: str, what: str, document: object = None) -> dict[str, Any]:
        found = asked(method, f"{self._base}/{path}", what, token=self.token, document=document)
        if not isinstance(found, dict):
            raise self._strange(what)
        return cast("dict[str, Any]", found)

    def _strange(self, what: str) -> KernelCIError:
        return KernelCIError(f"{what}: {self.url} does not answer as KernelCI's API does", hint="is the address right?")


def is_node(number: object) -> bool:
    """Whether it is the number of a node. It names a folder, too."""
    return isinstance(number, str) and _NODE_ID.fullmatch(number) is not None


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


@dataclass(frozen=True, slots=True)
class Kcidb:
    """The address that documents are sent to, and the token of the CI system."""

    url: str
    token: str = field(repr=False)

    def submit(self, document: str) -> str:
        """Send a document; its number there. It is checked there later. Raises KernelCIError if it is refused."""
        what = "sending the figures to KCIDB"
        answer: Any = asked("POST", self.url, what, token=self.token, document=json.loads(document))
        told = cast("dict[str, object]", answer) if isinstance(answer, dict) else {}
        if told.get("status") != "ok":
            raise KernelCIError(f"{what}: {self.url} does not answer as KCIDB does", hint="is the address right?")
        return str(told.get("id", ""))


def kcidb_of(written: str) -> Kcidb:
    """The database from https://TOKEN@HOST, as KernelCI's tools write it. Raises ConfigError."""
    found = _FORM.fullmatch(written)
    url = "" if found is None else f"{found['scheme']}{found['rest']}".rstrip("/").removesuffix("/submit") + "/submit"
    if found is None or not is_address(url):
        raise ConfigError(f"{KCIDB_VARIABLE} is not https://TOKEN@HOST", hint="https://TOKEN@staging.db.kernelci.org")
    return Kcidb(url, found["token"])
