"""The service as an ASGI application, its answers over HTTP, and what it counts of itself for /metrics."""

from __future__ import annotations

import gzip
import json
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
from fsjoule.host.plaintext import plain
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
from fsjoule.report.service.jobs import BugError, Format, MissingError, UnmadeError, for_readers
from fsjoule.report.service.pages import Pages
from fsjoule.report.service.settings import Settings
from fsjoule.report.service.workers import Workers
from fsjoule.report.site import STATIC, Asset, Site, assets
from fsjoule.report.template import render

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
    wanted = _wanted_format(request)
    page = await pages.page(asked, wanted, run_id=run_id, known=lambda tag: _is_known(request, tag))
    headers = {"ETag": f'W/"{page.tag}"', "Cache-Control": "no-cache", **_VARY}
    if page.made is None:
        return Response(status_code=NOT_MODIFIED, headers=headers)
    packed, content = _takes_gzip(request), page.made.packed
    if packed:
        headers["Content-Encoding"] = "gzip"
    elif request.method == "HEAD":
        headers["Content-Length"] = str(page.made.size_bytes)
    else:
        content = gzip.decompress(content)
    return _response(request, content, 200, _MEDIA_TYPES[wanted], headers)


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
        return _asset_answer(request, by_name[name])

    async def search(request: Request) -> Response:
        text = request.query_params.get("q", "").strip()
        if len(text) > LONGEST_NAME or not re.match(NAME, text):
            raise ConfigError(f"more than {LONGEST_NAME} characters, and control characters, are not searched for")
        return RedirectResponse(await pages.search(text), 303, {"Cache-Control": "no-store"})

    async def health(request: Request) -> Response:
        state = await pages.state()
        return _text_answer(request, f"ok {state}\n", "text/plain; charset=utf-8")

    async def metrics(request: Request) -> Response:
        try:
            await pages.state()
            up = True
        except FsjouleError:
            up = False
        text = counters.text(
            up=up, pages=pages.counts, workers=workers.counts if workers else {}, kept_bytes=pages.size_bytes
        )
        return _text_answer(request, text, "text/plain; version=0.0.4; charset=utf-8")

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
        return _error_answer(request, error, site)

    async def invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        told = [f"{'.'.join(map(str, each['loc'][1:]))}: {each['msg']}" for each in error.errors()]
        wrong = ConfigError("; ".join(told), hint=f"what may be asked for: {settings.root}/openapi.json")
        return _error_answer(request, wrong, site)

    async def http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        if error.status_code == NOT_FOUND:
            wrong = MissingError(f"there is no {request.url.path!r} here", hint="all pages begin at the start page")
        else:
            wrong = ConfigError(f"{request.method}: {error.detail}", hint="this service only shows pages: GET and HEAD")
        return _error_answer(request, wrong, site, status=error.status_code)

    async def unexpected(request: Request, error: Exception) -> Response:
        del error  # `_Outer` tells of it
        return _error_answer(request, BugError(""), site)

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
        self._headers = [(name.lower().encode(), text.encode()) for name, text in SECURITY.items()]

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
            refused = _error_answer(request, ConfigError(what, hint=hint), self._site)
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


ERROR_SCHEMA: Final = "fsjoule.error/1"
NOT_FOUND, UNAVAILABLE, BUG, INPUT, NOT_MODIFIED = 404, 503, 500, 400, 304
_RETRY_S: Final = 5
_MEDIA_TYPES: Final = {Format.HTML: "text/html; charset=utf-8", Format.JSON: "application/json"}
_JSON_ENDING: Final = ".json"
_YEAR_S: Final = 365 * 86400
# Styles of single elements are those of charts and bars, made here; scripts and style sheets come from files only.
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; style-src-attr 'unsafe-inline'; img-src 'self' data:; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
SECURITY: Final = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
_VARY: Final = {"Vary": "Accept, Accept-Encoding"}
_TITLES: Final = {
    INPUT: "This request is not valid",
    NOT_FOUND: "There is no such page",
    405: "Nothing is written here",
    UNAVAILABLE: "This page cannot be made now",
    BUG: "This is a bug in fsjoule",
}


def _wanted_format(request: Request) -> Format:
    """JSON for an address that ends so, or for a reader who prefers it to HTML."""
    if request.url.path.endswith(_JSON_ENDING):
        return Format.JSON
    accepted = _weights(request.headers.get("accept", ""))
    html, document = (accepted.get(kind, 0.0) for kind in ("text/html", "application/json"))
    return Format.JSON if document > html else Format.HTML


def _is_known(request: Request, tag: str) -> bool:
    """Whether the reader has the page with this entity tag."""
    told = request.headers.get("if-none-match", "")
    tags = [each.strip().removeprefix("W/").strip('"') for each in told.split(",")]
    return told.strip() == "*" or tag in tags


def _asset_answer(request: Request, asset: Asset) -> Response:
    headers = {"Cache-Control": f"public, max-age={_YEAR_S}, immutable", "Vary": "Accept-Encoding"}
    content = asset.content
    if _takes_gzip(request):
        content = asset.packed
        headers["Content-Encoding"] = "gzip"
    return _response(request, content, 200, asset.media_type, headers)


def _error_answer(request: Request, error: FsjouleError, site: Site, *, status: int | None = None) -> Response:
    """What went wrong, for whom it concerns: HTML or JSON."""
    code = status or _status(error)
    wanted = _wanted_format(request)
    hint = "" if isinstance(error, BugError) else error.hint or ""
    if wanted is Format.JSON:
        document = {"schema": ERROR_SCHEMA, "status": code, "what": error.what, "hint": hint or None}
        text = json.dumps(document) + "\n"
    else:
        title = _TITLES.get(code, "This did not work")
        page = render(
            "error.html.j2",
            site=site,
            version=version("fsjoule"),
            simulated=False,
            title=title,
            what=error.what,
            hint=hint,
        )
        text = plain(page)
    headers = {"Cache-Control": "no-store", **_VARY}
    if code == UNAVAILABLE:
        headers["Retry-After"] = str(_RETRY_S)
    return _response(request, text.encode(), code, _MEDIA_TYPES[wanted], headers)


def _text_answer(request: Request, text: str, media_type: str, status: int = 200) -> Response:
    return _response(request, text.encode(), status, media_type, {"Cache-Control": "no-store"})


def _response(request: Request, content: bytes, status: int, media_type: str, headers: Mapping[str, str]) -> Response:
    told = {"Content-Type": media_type, "Content-Length": str(len(content)), **headers}
    # The answer to HEAD is the same without a body.
    return Response(b"" if request.method == "HEAD" else content, status, told)


def _status(error: FsjouleError) -> int:
    if isinstance(error, MissingError):
        return NOT_FOUND
    if isinstance(error, BugError):
        return BUG
    return INPUT if isinstance(error, ConfigError) else UNAVAILABLE


def _takes_gzip(request: Request) -> bool:
    accepted = _weights(request.headers.get("accept-encoding", ""))
    return accepted.get("gzip", accepted.get("*", 0.0)) > 0


def _weights(text: str) -> dict[str, float]:
    """The weights of an Accept header's entries; what cannot be read counts nothing."""
    found: dict[str, float] = {}
    for entry in text.split(","):
        name, *parameters = (part.strip().lower() for part in entry.split(";"))
        weight = next((each[2:] for each in parameters if each.startswith("q=")), "1")
        try:
            found[name] = float(weight)
        except ValueError:
            found[name] = 0.0
    return found
