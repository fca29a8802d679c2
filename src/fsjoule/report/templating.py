"""Pages from templates: self-contained, with the style sheet of all of them."""

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


def render(template: str, **values: object) -> str:
    """A page; its template gets the style sheet as `css`."""
    # Our own style sheet.
    return _TEMPLATES.get_template(template).render(css=Markup(_css()), **values)  # noqa: S704


def part(template: str, **values: object) -> Markup:
    """A piece of a page that is a template of its own: a script, or rules for the style sheet."""
    return Markup(_TEMPLATES.get_template(template).render(**values))  # noqa: S704 - our own, as are the values


def marked_up(charts: Sequence[str | None]) -> list[Markup]:
    """Charts that are there, safe to stand in HTML: Vega escapes the text that it draws."""
    return [Markup(chart) for chart in charts if chart is not None]  # noqa: S704


def _css() -> str:
    """The style sheet, with the dark partner of every colour that a chart may use."""
    rules = [
        f'svg [{what}="{light}"] {{ {what}: {dark}; }}'
        for light, dark in style.DARK.items()
        for what in ("fill", "stroke")
    ]
    return _TEMPLATES.get_template("page.css.j2").render(dark_charts="\n  ".join(rules))
