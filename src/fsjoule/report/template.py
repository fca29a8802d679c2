"""Self-contained pages from templates, with a common style sheet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import jinja2
from markupsafe import Markup

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
