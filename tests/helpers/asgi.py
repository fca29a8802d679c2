"""Requests to an ASGI application in this process, as a server would pass them on."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

from starlette.types import ASGIApp


@dataclass(frozen=True)
class Answer:
    """An answer; `body` is unpacked, `sent` is what went over the wire."""

    status: int
    headers: dict[str, str]
    sent: bytes

    @property
    def body(self) -> bytes:
        return gzip.decompress(self.sent) if self.headers.get("content-encoding") == "gzip" else self.sent

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def document(self) -> Any:
        return json.loads(self.body)

    @property
    def tag(self) -> str:
        return self.headers["etag"]


def ask(app: ASGIApp, address: str, *, method: str = "GET", **headers: str) -> Answer:
    """One request. Underscores in names of headers are dashes."""
    parts = urlsplit(address)
    told = {"host": "127.0.0.1", **{name.replace("_", "-"): text for name, text in headers.items()}}
    scope: dict[str, Any] = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote(parts.path),
        "raw_path": parts.path.encode(),
        "query_string": parts.query.encode(),
        "root_path": "",
        "headers": [(name.encode(), text.encode()) for name, text in told.items()],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 8090),
    }
    messages: list[MutableMapping[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: MutableMapping[str, Any]) -> None:
        messages.append(message)

    asyncio.run(_called(app, scope, receive, send))
    start = messages[0]
    found = {name.decode(): text.decode() for name, text in start["headers"]}
    return Answer(start["status"], found, b"".join(each.get("body", b"") for each in messages[1:]))


async def _called(app: ASGIApp, *arguments: Any) -> None:
    await app(*arguments)
