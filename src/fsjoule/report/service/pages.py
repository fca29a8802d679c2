"""Pages by their keys: kept while what they depend on stays as it is, and made once however many ask for them."""

from __future__ import annotations

import asyncio
import hashlib
import math
import time
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Final, Protocol

from fsjoule.errors import FsjouleError
from fsjoule.report.service.asked import AskedPage, AskedPlaces, AskedRun
from fsjoule.report.service.jobs import Format, Job, Locate, Made, MissingError, SearchTask, Task, signature
from fsjoule.report.service.settings import Settings
from fsjoule.report.site import assets
from fsjoule.store.index.database import Index, state_of

MIB: Final = 1 << 20
_KEPT_BYTES: Final = 128 * MIB
_DIGEST_BYTES: Final = 12
# A server is asked for its state once in this time; a file at every request.
_ASK_AGAIN_S: Final = 1.0
# For so long a look at the lab's places holds.
_PLACES_S: Final = 15.0


class Making(Protocol):
    """Where pages come from."""

    async def make(self, job: Job) -> Made | str: ...


@dataclass(frozen=True, slots=True)
class Page:
    """A page and its entity tag, or only the tag of one that the reader has."""

    tag: str
    made: Made | None


@dataclass
class IndexState:
    """The state of the index, asked for no more often than necessary; the index is opened when it is there."""

    settings: Settings
    _index: Index | None = None
    _known: tuple[float, str] = (-_ASK_AGAIN_S, "")
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def now(self) -> str:
        """Raises ResultError if the index is gone or damaged, HostError if its server does not answer."""
        if self._index is not None and self._index.file is not None:
            return self._looked()
        async with self._lock:
            asked_s, state = self._known
            if time.monotonic() - asked_s >= _ASK_AGAIN_S:
                state = await asyncio.to_thread(self._looked)
                self._known = time.monotonic(), state
            return state

    def _looked(self) -> str:
        try:
            if self._index is None:
                self._index = self.settings.open()
            return state_of(self._index)
        except FsjouleError:
            self.close()
            # What was known holds no longer, however fresh it is.
            self._known = -_ASK_AGAIN_S, ""
            raise

    def close(self) -> None:
        if self._index is not None:
            self._index.close()
            self._index = None


class Pages:
    def __init__(self, settings: Settings, making: Making, *, kept_bytes: int = _KEPT_BYTES) -> None:
        self._settings = settings
        self._making = making
        self._state = IndexState(settings)
        self._kept: OrderedDict[Job, Made | str] = OrderedDict()
        self._kept_bytes = kept_bytes
        self._in_work: dict[Job, asyncio.Task[Made | str]] = {}
        self._salt = repr((version("fsjoule"), settings.root, [asset.name for asset in assets().values()]))
        # The look at the lab's places: its number, and how long it holds.
        self._looks, self._looked_until_s = 0, 0.0
        self._begun_ns = time.time_ns()
        self.size_bytes = 0
        self.counts: Counter[str] = Counter()

    async def state(self) -> str:
        return await self._state.now()

    async def page(self, asked: AskedPage, wanted: Format, *, run_id: str = "", known: Callable[[str], bool]) -> Page:
        """The page, unless the reader has it, which `known` says of its entity tag. Raises FsjouleError."""
        task = await self._task(asked, wanted, run_id)
        parts = (self._salt, task.asked.model_dump_json(), type(task.asked).__name__, task.format.value)
        text = repr((*parts, task.state, task.run_id, task.folder))
        tag = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_DIGEST_BYTES).hexdigest()
        if known(tag):
            self.counts["known"] += 1
            return Page(tag, None)
        made = await self._made(task)
        assert isinstance(made, Made)
        return Page(tag, made)

    async def search(self, text: str) -> str:
        """The address that some words lead to."""
        return str(await self._made(SearchTask(text, await self.state())))

    def close(self) -> None:
        self._state.close()

    async def _task(self, asked: AskedPage, wanted: Format, run_id: str) -> Task:
        if isinstance(asked, AskedPlaces):
            if self._settings.look is None:
                what = "this service does not show the lab's places"
                raise MissingError(what, hint="start it with LG_COORDINATOR=HOST:PORT")
            if time.monotonic() >= self._looked_until_s:
                self._looks += 1
                self._looked_until_s = math.inf  # at least until it is made
            return Task(asked, wanted, f"{self._begun_ns} {self._looks}")
        state = await self.state()
        if isinstance(asked, AskedRun):
            folder = str(await self._made(Locate(run_id, state)))
            files = await asyncio.to_thread(signature, folder)
            if files is not None:
                # It does not depend on other runs of the index.
                return Task(asked, wanted, files, run_id, folder)
        return Task(asked, wanted, state, run_id)

    async def _made(self, job: Job) -> Made | str:
        kept = self._kept.get(job)
        if kept is not None:
            self.counts["kept"] += 1
            self._kept.move_to_end(job)
            return kept
        work = self._in_work.get(job)
        if work is None:
            self.counts["made"] += 1
            work = self._in_work[job] = asyncio.ensure_future(self._keep(job, self._making.make(job)))
            work.add_done_callback(lambda done: self._over(job, done))
        # Whoever goes away does not take the page from the others.
        return await asyncio.shield(work)

    async def _keep(self, job: Job, coming: Awaitable[Made | str]) -> Made | str:
        made = await coming
        self._kept[job] = made
        self.size_bytes += _size_bytes(made)
        while self.size_bytes > self._kept_bytes and self._kept:
            _, oldest = self._kept.popitem(last=False)
            self.size_bytes -= _size_bytes(oldest)
        return made

    def _over(self, job: Job, done: asyncio.Task[Made | str]) -> None:
        self._in_work.pop(job, None)
        failed = done.cancelled() or done.exception() is not None
        if isinstance(job, Task) and isinstance(job.asked, AskedPlaces):
            self._looked_until_s = time.monotonic() + (0.0 if failed else _PLACES_S)


def _size_bytes(made: Made | str) -> int:
    return len(made.packed if isinstance(made, Made) else made) + 1000
