"""The web service over an index in this process: pages are made here, not by worker processes."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from asgi import Answer, ask
from index_runs import write_run

from fsjoule.report.forge import forge_of
from fsjoule.report.service.app import application
from fsjoule.report.service.jobs import Job, Made
from fsjoule.report.service.making import Maker
from fsjoule.report.service.pages import Pages
from fsjoule.report.service.settings import Settings
from fsjoule.store.index.database import open_index
from fsjoule.store.index.importer import import_runs

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
        self.app = application(self.settings, self.pages, None, hosts=hosts, say=self.said.append)

    def ask(self, address: str, *, method: str = "GET", **headers: str) -> Answer:
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
