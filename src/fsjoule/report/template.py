"""Self-contained pages from templates, with a common style sheet, and uPlot, the library that draws charts in a page.

docs/adr/0021-uplot-draws-trends.md says why this library.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import jinja2
from markupsafe import Markup

from fsjoule.errors import FsjouleError
from fsjoule.host.extras import need
from fsjoule.report import style

_TEMPLATES: Final = jinja2.Environment(
    loader=jinja2.PackageLoader("fsjoule.report", "templates"),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


def render(template: str, *, site: object = None, **values: object) -> str:
    """A page: one file with its style sheet, as `css`; or a page of a `site`, which has that in a file of its own.

    A `site` is a `site.Site`, which knows templates: only they ask it, so its type is not named here.
    """
    css = None if site else Markup(style_sheet())  # noqa: S704 - our own style sheet
    return _TEMPLATES.get_template(template).render(css=css, site=site, **values)


def part(template: str, **values: object) -> Markup:
    """A piece of a page with its own template: a script, or rules for the style sheet."""
    return Markup(_TEMPLATES.get_template(template).render(**values))  # noqa: S704 - our own, as are the values


def marked_up(charts: Sequence[str | None]) -> list[Markup]:
    """The charts as HTML, without None; Vega escapes all text."""
    return [Markup(chart) for chart in charts if chart is not None]  # noqa: S704


def style_sheet() -> str:
    """The style sheet of all pages, with the dark partners of all colours of charts."""
    rules = [
        f'svg [{what}="{light}"] {{ {what}: {dark}; }}'
        for light, dark in style.DARK.items()
        for what in ("fill", "stroke")
    ]
    return _TEMPLATES.get_template("page.css.j2").render(dark_charts="\n  ".join(rules))


def uplot_script() -> Markup:
    """The library's script, for the inside of a page's <script>. Raises FsjouleError if the package is not whole."""
    return _uplot_file("uPlot.iife.js")


def uplot_style_sheet() -> Markup:
    """The library's rules, for the inside of a page's <style>. Raises as `uplot_script` does."""
    return _uplot_file("uPlot.min.css")


def _uplot_file(name: str) -> Markup:
    need("pages", "uplot")
    # Importing the package would import numpy, and what shows plots in notebooks.
    found = importlib.util.find_spec("uplot")
    for folder in (found.submodule_search_locations or ()) if found else ():
        file = Path(folder) / "static" / name
        if file.is_file():
            return Markup(file.read_text(encoding="utf-8"))  # noqa: S704 - the library's own
    raise FsjouleError(f"the package uplot-python has no {name}", hint="install the package uplot-python again")
