"""Answers over HTTP: HTML or JSON, packed or not, entity tags, headers, errors in the look of the pages."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from importlib.metadata import version
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from fsjoule.errors import ConfigError, FsjouleError
from fsjoule.host.plaintext import plain
from fsjoule.report.service.jobs import BugError, Format, MissingError
from fsjoule.report.service.pages import Page
from fsjoule.report.site import Asset, Site
from fsjoule.report.template import render

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


def wanted_format(request: Request) -> Format:
    """JSON for an address that ends so, or for a reader who prefers it to HTML."""
    if request.url.path.endswith(_JSON_ENDING):
        return Format.JSON
    accepted = _weights(request.headers.get("accept", ""))
    html, document = (accepted.get(kind, 0.0) for kind in ("text/html", "application/json"))
    return Format.JSON if document > html else Format.HTML


def is_known(request: Request, tag: str) -> bool:
    """Whether the reader has the page with this entity tag."""
    told = request.headers.get("if-none-match", "")
    tags = [each.strip().removeprefix("W/").strip('"') for each in told.split(",")]
    return told.strip() == "*" or tag in tags


def page_answer(request: Request, page: Page, wanted: Format) -> Response:
    """A page, or that the reader has it."""
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


def asset_answer(request: Request, asset: Asset) -> Response:
    headers = {"Cache-Control": f"public, max-age={_YEAR_S}, immutable", "Vary": "Accept-Encoding"}
    content = asset.content
    if _takes_gzip(request):
        content = asset.packed
        headers["Content-Encoding"] = "gzip"
    return _response(request, content, 200, asset.media_type, headers)


def error_answer(request: Request, error: FsjouleError, site: Site, *, status: int | None = None) -> Response:
    """What went wrong, for whom it concerns: HTML or JSON."""
    code = status or _status(error)
    wanted = wanted_format(request)
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


def text_answer(request: Request, text: str, media_type: str, status: int = 200) -> Response:
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
