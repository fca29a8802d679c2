"""The web service that a page belongs to: its addresses, and the files that its pages share. Pure.

A page without a site is one file that loads nothing.
"""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final
from urllib.parse import quote, urlencode

from fsjoule.report.template import part, style_sheet, uplot_script, uplot_style_sheet

STATIC: Final = "static"
_DIGEST_BYTES: Final = 8
_TYPES: Final = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8"}


@dataclass(frozen=True, slots=True)
class Asset:
    """A file that pages share. Its name holds a digest of its content, so that it may be kept for ever."""

    name: str
    content: bytes
    packed: bytes  # by gzip

    @property
    def media_type(self) -> str:
        return _TYPES[self.name.rpartition(".")[2]]


@cache
def assets() -> Mapping[str, Asset]:
    """All of them, by the name under which pages ask for them. Raises FsjouleError if uPlot's package is not whole."""
    texts = {
        "page.css": (style_sheet(), part("site.css.j2")),
        "trends.css": (uplot_style_sheet(), part("trends.css.j2")),
        "trends.js": (uplot_script(), part("trends_chart.js"), part("trends.js")),
    }
    # Plain texts: markup would escape what it is joined with.
    return {name: _asset(name, "\n".join(map(str, parts))) for name, parts in texts.items()}


def _asset(name: str, text: str) -> Asset:
    content = text.encode()
    stem, _, ending = name.rpartition(".")
    digest = hashlib.blake2b(content, digest_size=_DIGEST_BYTES).hexdigest()
    return Asset(f"{stem}-{digest}.{ending}", content, gzip.compress(content, mtime=0))


@dataclass(frozen=True, slots=True)
class Pager:
    """Where one is in a list of pages, and the addresses of the neighbours; empty where there is none."""

    page: int
    pages: int
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Site:
    """A service behind the path `root` (`/fsjoule`, or empty). `here` is the page's own name in the menu."""

    root: str = ""
    here: str = ""
    has_places: bool = False

    def address(self, page: str, /, **asked: str | int | None) -> str:
        """The address of one of its pages, asked for something."""
        query = urlencode({name: value for name, value in asked.items() if value not in (None, "")})
        return f"{self.root}/{page}{'?' if query else ''}{query}"

    def asset(self, name: str) -> str:
        return f"{self.root}/{STATIC}/{assets()[name].name}"

    def run(self, run_id: str) -> str:
        return f"{self.root}/run/{quote(run_id, safe='')}"

    def series(self, key: str, metric: str) -> str:
        """The page of a series, with its chart open."""
        return f"{self.address('trend', series=key, metric=metric)}#{urlencode({'series': f'{key}.{metric}'})}"

    def pager(self, page: str, asked: Mapping[str, str], number: int, pages: int) -> Pager:
        """For page `number` of a list, from 1; `asked` is what its address asks for besides."""

        def address(other: int) -> str:
            return self.address(page, **asked, page=other if other > 1 else None) if 0 < other <= pages else ""

        return Pager(number, pages, address(number - 1), address(number + 1))

    @property
    def menu(self) -> list[tuple[str, str, bool]]:
        """Its entries: word, address, and whether it is the page itself."""
        pages = [("start", ""), ("trends", "trend"), ("runs", "runs"), ("compare", "compare")]
        pages += [("places", "places")] if self.has_places else []
        return [(word, f"{self.root}/{page}", word == self.here) for word, page in pages]
