"""The service as an ASGI application, and what it counts of itself for /metrics."""

from __future__ import annotations

import logging
import re
import time
import traceback
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Annotated, Any, Final, NamedTuple

from fastapi import FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fsjoule.errors import ConfigError, FsjouleError
from fsjoule.report.service import answers
from fsjoule.report.service.asked import (
    LONGEST_NAME,
    NAME,
    AskedComparison,
    AskedPage,
    AskedPlaces,
    AskedRun,
    AskedRuns,
    AskedStart,
    AskedTrend,
)
from fsjoule.report.service.jobs import BugError, MissingError, UnmadeError, for_readers
from fsjoule.report.service.pages import Pages
from fsjoule.report.service.settings import Settings
from fsjoule.report.service.workers import Workers
from fsjoule.report.site import STATIC, assets

_log: Final = logging.getLogger(__name__)
_PORT: Final = re.compile(r":[0-9]*$")
_TOLD_AGAIN_S: Final = 60.0
_ABOUT: Final = (
    "The pages of an index as JSON: append `.json` to an address, or send `Accept: application/json`. Documents have "
    "the schemas of the command line's `--json`. Errors have the schema `fsjoule.error/1`."
)


class _Told(NamedTuple):
    """A page: its name, its paths for HTML and JSON, its title, and the schema of its document."""

    name: str
    paths: tuple[str, str]
    title: str
    schema: str


_PAGES: Final = {
    AskedStart: _Told(
        *("start", ("/", "/index.json")),
        *("What changed for the worse, the latest runs, the boards", "fsjoule.start/1"),
    ),
    AskedTrend: _Told(
        "trend", ("/trend", "/trend.json"), "Trends: series, their histories and changes", "fsjoule.trend/1"
    ),
    AskedRuns: _Told("runs", ("/runs", "/runs.json"), "Runs, newest first", "fsjoule.runs/1"),
    AskedComparison: _Told(
        "compare", ("/compare", "/compare.json"), "Two runs, kernels or branches compared", "fsjoule.compare/1"
    ),
    AskedPlaces: _Told("places", ("/places", "/places.json"), "The lab's places", "fsjoule.lab/1"),
}
# The address that ends in .json comes first: a run's id may have any signs.
_RUN: Final = _Told(
    *("run", ("/run/{run_id:path}.json", "/run/{run_id:path}")),
    *("One run, from its folder, else what the index knows of it (fsjoule.indexed-run/1)", "fsjoule.show/1"),
)


def application(settings: Settings, pages: Pages, workers: Workers | None, *, hosts: Sequence[str] = ("*",)) -> ASGIApp:
    """The service. `hosts` are the names by which it may be called; `say` is told of bugs."""
    counters = Counters()

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncGenerator[None]:
        yield
        pages.close()

    app = FastAPI(
        title="fsjoule",
        version=version("fsjoule"),
        description=_ABOUT,
        servers=[{"url": settings.root}] if settings.root else None,
        # They would load scripts from elsewhere.
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
        redirect_slashes=False,
    )
    for asked, told in _PAGES.items():
        _add(app, told, _page(pages, asked))
    _add(app, _RUN, _run(pages))
    _add_others(app, pages, workers, counters)
    _add_errors(app, settings)
    return _Outer(app, settings, counters, frozenset(each.lower() for each in hosts))


def _page(pages: Pages, kind: type[AskedPage]) -> Callable[..., Awaitable[Response]]:
    async def answer(request: Request, asked: AskedPage) -> Response:
        return await _shown(pages, request, asked)

    answer.__annotations__ = {"request": Request, "asked": Annotated[kind, Query()], "return": Response}
    return answer


def _run(pages: Pages) -> Callable[..., Awaitable[Response]]:
    async def answer(request: Request, run_id: str, asked: Annotated[AskedRun, Query()]) -> Response:
        if len(run_id) > LONGEST_NAME:
            raise MissingError("no run has so long a name", hint="/runs lists the runs of the index")
        return await _shown(pages, request, asked, run_id)

    answer.__annotations__ = {
        "request": Request,
        "run_id": str,
        "asked": Annotated[AskedRun, Query()],
        "return": Response,
    }
    return answer


async def _shown(pages: Pages, request: Request, asked: AskedPage, run_id: str = "") -> Response:
    wanted = answers.wanted_format(request)
    page = await pages.page(asked, wanted, run_id=run_id, known=lambda tag: answers.is_known(request, tag))
    return answers.page_answer(request, page, wanted)


def _add(app: FastAPI, page: _Told, answer: Callable[..., Any]) -> None:
    responses: dict[int | str, dict[str, Any]] = {
        200: {
            "description": page.title,
            "content": {
                "text/html": {},
                "application/json": {
                    "schema": {
                        "type": "object",
                        "required": ["schema"],
                        "properties": {"schema": {"type": "string", "const": page.schema}},
                    }
                },
            },
        },
        304: {"description": "The reader has it: If-None-Match names its ETag"},
        400: {"description": "The request asks for something unknown: `what` names it, `hint` says what there is"},
        404: {"description": "The index has no such run; /runs lists those that it has"},
        503: {"description": "The index cannot be read, or the page took too long; Retry-After says when to try again"},
    }
    for number, path in enumerate(page.paths):
        app.add_api_route(
            path,
            answer,
            methods=["GET"],
            name=f"{page.name}{number}",
            summary=page.title,
            responses=responses,
            response_class=Response,
            include_in_schema=not path.endswith(".json"),
        )
        app.add_api_route(path, answer, methods=["HEAD"], name=f"{page.name}{number}head", include_in_schema=False)


def _add_others(app: FastAPI, pages: Pages, workers: Workers | None, counters: Counters) -> None:
    by_name = {asset.name: asset for asset in assets().values()}

    async def static(request: Request, name: str) -> Response:
        if name not in by_name:
            raise MissingError("there is no such file", hint="reload the page: this fsjoule has others")
        return answers.asset_answer(request, by_name[name])

    async def search(request: Request) -> Response:
        text = request.query_params.get("q", "").strip()
        if len(text) > LONGEST_NAME or not re.match(NAME, text):
            raise ConfigError(f"more than {LONGEST_NAME} characters, and control characters, are not searched for")
        return RedirectResponse(await pages.search(text), 303, {"Cache-Control": "no-store"})

    async def health(request: Request) -> Response:
        state = await pages.state()
        return answers.text_answer(request, f"ok {state}\n", "text/plain; charset=utf-8")

    async def metrics(request: Request) -> Response:
        try:
            await pages.state()
            up = True
        except FsjouleError:
            up = False
        text = counters.text(
            up=up, pages=pages.counts, workers=workers.counts if workers else {}, kept_bytes=pages.size_bytes
        )
        return answers.text_answer(request, text, "text/plain; version=0.0.4; charset=utf-8")

    for path, answer in (
        (f"/{STATIC}/{{name}}", static),
        ("/search", search),
        ("/healthz", health),
        ("/metrics", metrics),
    ):
        answer.__annotations__ = {**answer.__annotations__, "request": Request, "return": Response}
        if "name" in answer.__annotations__:
            answer.__annotations__["name"] = str
        app.add_api_route(path, answer, methods=["GET", "HEAD"], name=path, include_in_schema=False)


def _add_errors(app: FastAPI, settings: Settings) -> None:
    site = settings.site()
    faults = _Faults()

    async def known(request: Request, error: Exception) -> Response:
        assert isinstance(error, FsjouleError)
        if isinstance(error, BugError):
            _log.info("%s", error.told)
        elif not isinstance(error, ConfigError | UnmadeError):
            faults.tell(str(error))
            error = for_readers(error, of_lab=request.url.path.startswith(_PAGES[AskedPlaces].paths[0]))
        return answers.error_answer(request, error, site)

    async def invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        told = [f"{'.'.join(map(str, each['loc'][1:]))}: {each['msg']}" for each in error.errors()]
        wrong = ConfigError("; ".join(told), hint=f"what may be asked for: {settings.root}/openapi.json")
        return answers.error_answer(request, wrong, site)

    async def http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        if error.status_code == answers.NOT_FOUND:
            wrong = MissingError(f"there is no {request.url.path!r} here", hint="all pages begin at the start page")
        else:
            wrong = ConfigError(f"{request.method}: {error.detail}", hint="this service only shows pages: GET and HEAD")
        return answers.error_answer(request, wrong, site, status=error.status_code)

    async def unexpected(request: Request, error: Exception) -> Response:
        del error  # `_Outer` tells of it
        return answers.error_answer(request, BugError(""), site)

    app.add_exception_handler(FsjouleError, known)
    app.add_exception_handler(Exception, unexpected)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, http)


class _Faults:
    """Tells each fault once a minute at most: while an index is gone, every request meets it."""

    def __init__(self) -> None:
        self._told_s: dict[str, float] = {}

    def tell(self, fault: str) -> None:
        now_s = time.monotonic()
        self._told_s = {each: at_s for each, at_s in self._told_s.items() if now_s - at_s < _TOLD_AGAIN_S}
        if fault not in self._told_s:
            self._told_s[fault] = now_s
            _log.info("%s", fault)


class _Outer:
    """Headers that all answers have, the count of requests, the path of a proxy, and what is told of bugs.

    A request that calls the service by another name than its `hosts` is refused.
    """

    def __init__(self, app: ASGIApp, settings: Settings, counters: Counters, hosts: frozenset[str]) -> None:
        self._app = app
        self._root = settings.root
        self._counters = counters
        self._hosts = hosts
        self._site = settings.site()
        self._headers = [(name.lower().encode(), text.encode()) for name, text in answers.SECURITY.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began_s = time.monotonic()
        # A proxy may pass the path on, or take it off.
        path: str = scope["path"]
        if self._root and (path == self._root or path.startswith(f"{self._root}/")):
            scope["path"] = path[len(self._root) :] or "/"

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *self._headers]
                page = getattr(scope.get("route"), "path", "") or "none"
                self._counters.count(page, message["status"], time.monotonic() - began_s)
            await send(message)

        request = Request(scope)
        host = _PORT.sub("", request.headers.get("host", ""))
        if not self._hosts & {"*", host.lower()}:
            what = f"this service is not called {host[:LONGEST_NAME]!r}"
            hint = "whoever runs it may add a name by which a proxy calls it: fsjoule serve --name HOST"
            refused = answers.error_answer(request, ConfigError(what, hint=hint), self._site)
            await refused(scope, receive, sent)
            return
        try:
            await self._app(scope, receive, sent)
        except Exception:  # noqa: BLE001 - it is answered already
            _log.info("%s", BugError(traceback.format_exc()).told)


_LIMITS_S: Final = (0.01, 0.05, 0.2, 1.0, 5.0, 20.0)


@dataclass
class Counters:
    """Requests by page and status, and the time until each answer began."""

    _requests: Counter[tuple[str, int]] = field(default_factory=Counter[tuple[str, int]])
    _within: Counter[float] = field(default_factory=Counter[float])
    _sum_s: float = 0.0

    def count(self, page: str, status: int, seconds: float) -> None:
        self._requests[page, status] += 1
        self._sum_s += seconds
        for limit_s in _LIMITS_S:
            self._within[limit_s] += seconds <= limit_s

    def text(self, *, up: bool, pages: Mapping[str, int], workers: Mapping[str, int], kept_bytes: int) -> str:
        """`pages` counts how pages were found, `workers` what became of worker processes."""
        total = sum(self._requests.values())
        lines = [
            *_head("index_up", "gauge", "1 if the index can be read."),
            f"fsjoule_serve_index_up {int(up)}",
            *_head("requests_total", "counter", "Requests by page and status."),
            *(
                f'fsjoule_serve_requests_total{{page="{page}",status="{status}"}} {count}'
                for (page, status), count in sorted(self._requests.items())
            ),
            *_head("request_seconds", "histogram", "Time until the answer."),
            *(
                f'fsjoule_serve_request_seconds_bucket{{le="{limit_s:g}"}} {self._within[limit_s]}'
                for limit_s in _LIMITS_S
            ),
            f'fsjoule_serve_request_seconds_bucket{{le="+Inf"}} {total}',
            f"fsjoule_serve_request_seconds_sum {self._sum_s:.6f}",
            f"fsjoule_serve_request_seconds_count {total}",
            *_head("pages_total", "counter", "Pages: known to the reader, kept here, or made."),
            *(f'fsjoule_serve_pages_total{{how="{how}"}} {pages.get(how, 0)}' for how in ("known", "kept", "made")),
            *_head("workers_total", "counter", "Worker processes that were started, or ended because of a time limit."),
            *(
                f'fsjoule_serve_workers_total{{what="{what}"}} {workers.get(what, 0)}'
                for what in ("started", "ended", "lost")
            ),
            *_head("kept_bytes", "gauge", "Size of the kept pages."),
            f"fsjoule_serve_kept_bytes {kept_bytes}",
        ]
        return "\n".join(lines) + "\n"


def _head(name: str, kind: str, told: str) -> tuple[str, str]:
    return f"# HELP fsjoule_serve_{name} {told}", f"# TYPE fsjoule_serve_{name} {kind}"
