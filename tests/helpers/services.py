"""The web service over an index in this process: pages are made here, not by worker processes."""

from __future__ import annotations

import asyncio
import gzip
import json
import shutil
from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from index_runs import write_run
from starlette.types import ASGIApp

from fsjoule.host.messages import lines_to
from fsjoule.report.forge import forge_of
from fsjoule.report.service.app import application
from fsjoule.report.service.jobs import Job, Made
from fsjoule.report.service.making import Maker
from fsjoule.report.service.pages import Pages
from fsjoule.report.service.settings import Settings
from fsjoule.store.index.database import open_index
from fsjoule.store.index.importer import import_runs


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


FORGE = "https://forge.example/lab/linux"


@dataclass
class Here:
    """Makes pages in this process, and counts them."""

    maker: Maker
    jobs: list[Job] = field(default_factory=list[Job])

    async def make(self, job: Job) -> Made | str:
        self.jobs.append(job)
        return self.maker.make(job)


class Service:
    def __init__(self, index: Path | str, *, hosts: Sequence[str] = ("127.0.0.1",), **settings: object) -> None:
        base = Settings(str(index), forge=forge_of(FORGE), confirmations=Path("/nonexistent"))
        self.settings = replace(base, **settings)  # pyright: ignore[reportArgumentType]
        self.making = Here(Maker(self.settings))
        self.said: list[str] = []
        self.pages = Pages(self.settings, self.making)
        self.app = application(self.settings, self.pages, None, hosts=hosts)

    def ask(self, address: str, *, method: str = "GET", **headers: str) -> Answer:
        with lines_to(self.said.append):
            return ask(self.app, address, method=method, **headers)

    @property
    def made(self) -> int:
        return len(self.making.jobs)


def imported(file: Path, folder: Path) -> None:
    with open_index(file, create=True) as opened:
        import_runs(opened, [folder])


def two_runs(here: Path) -> Path:
    """The folder, with two runs and their index."""
    for run_id, day in (("aaaaaa", "09"), ("bbbbbb", "10")):
        write_run(here / "results", run_id, started=f"2026-03-{day}T10:00:00Z", branch="main")
    imported(here / "index.sqlite", here / "results")
    return here


def copied(made: Path, into: Path) -> Path:
    """The index of a copy of these runs."""
    shutil.copytree(made / "results", into / "results")
    imported(into / "index.sqlite", into / "results")
    return into / "index.sqlite"
