"""Charts to SVG: no browser, no network, and small."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import altair as alt
import vl_convert

from fsjoule.host.plaintext import plain, plain_line
from fsjoule.report.style import chart_config

# Rows of a chart's data. They bypass Altair, which would check each row against Vega-Lite's schema.
Rows = list[dict[str, str | float | None]]

_VEGA_LITE: Final = ".".join(alt.SCHEMA_VERSION.removeprefix("v").split(".")[:2])
_LONGEST: Final = 300  # a longer text fits into no chart
_GEOMETRY: Final = re.compile(r'(?<= d=")[^"]*|(?<= transform=")[^"]*')
_LONG_NUMBER: Final = re.compile(r"\d+\.\d{3,}")
# A mark without data, which would be an element with a meaning and no name.
_EMPTY: Final = re.compile(r'<g class="[^"]*" role="graphics-symbol" aria-roledescription="[^"]*"/>')


def specification(*layers: alt.Chart, width: int, height: int) -> dict[str, object]:
    """Layers over named data as a Vega-Lite specification without data."""
    return {**alt.layer(*layers).properties(width=width, height=height).to_dict(), "config": chart_config()}


def stacked(charts: Sequence[Mapping[str, object]]) -> dict[str, object]:
    """Specifications below each other in one picture."""
    inner = [{name: part for name, part in chart.items() if name not in ("config", "$schema")} for chart in charts]
    return {"vconcat": inner, "config": chart_config()}


def draw(spec: Mapping[str, object], data: Mapping[str, Rows], title: str, *, simulated: bool) -> str:
    """Draw a specification with its data as SVG; the title says if figures are simulated.

    Figures that are not finite are left out, and text is made plain, because a control character would abort the
    drawing library and this process.
    """
    full = {
        **_plain(spec, plain),
        "datasets": _plain(data, _short),
        "title": _short(f"{title} (simulated)" if simulated else title),
    }
    drawn = vl_convert.vegalite_to_svg(json.dumps(full, allow_nan=False), vl_version=_VEGA_LITE)
    return _GEOMETRY.sub(_rounded, _EMPTY.sub("", drawn))


def _plain(value: Any, text: Callable[[str], str]) -> Any:  # noqa: ANN401 - whatever JSON has
    if isinstance(value, str):
        return text(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {name: _plain(each, text) for name, each in value.items()}  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, list | tuple):
        return [_plain(each, text) for each in value]  # pyright: ignore[reportUnknownVariableType]
    return value


def _short(text: str) -> str:
    return plain_line(text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…")


def _rounded(geometry: re.Match[str]) -> str:
    """Coordinates rounded to 0.01 pixels."""
    return _LONG_NUMBER.sub(lambda number: f"{float(number[0]):.2f}", geometry[0])
