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

# Rows of a chart's data, by the name under which the chart asks for it. They go past Altair, which would check each of
# them against Vega-Lite's schema.
Rows = list[dict[str, str | float | None]]

_VEGA_LITE: Final = ".".join(alt.SCHEMA_VERSION.removeprefix("v").split(".")[:2])
# A longer text would not fit into any chart.
_LONGEST: Final = 300
_GEOMETRY: Final = re.compile(r'(?<= d=")[^"]*|(?<= transform=")[^"]*')
_LONG_NUMBER: Final = re.compile(r"\d+\.\d{3,}")


def specification(*layers: alt.Chart, width: int, height: int) -> dict[str, object]:
    """Layers over named data as a Vega-Lite specification, still without its data."""
    return {**alt.layer(*layers).properties(width=width, height=height).to_dict(), "config": chart_config()}


def stacked(charts: Sequence[Mapping[str, object]]) -> dict[str, object]:
    """Specifications below each other in one picture."""
    inner = [{name: part for name, part in chart.items() if name not in ("config", "$schema")} for chart in charts]
    return {"vconcat": inner, "config": chart_config()}


def draw(spec: Mapping[str, object], data: Mapping[str, Rows], title: str, *, simulated: bool) -> str:
    """Draw a specification over its data. A simulated figure is never shown without that word in the title.

    A figure that is not finite is left out, and text is made plain: a control character ends the drawing program, and
    this process with it.
    """
    full = {
        **_plain(spec, plain),
        "datasets": _plain(data, _short),
        "title": _short(f"{title} (simulated)" if simulated else title),
    }
    drawn = vl_convert.vegalite_to_svg(json.dumps(full, allow_nan=False), vl_version=_VEGA_LITE)
    return _GEOMETRY.sub(_rounded, drawn)


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
    """A hundredth of a pixel is enough."""
    return _LONG_NUMBER.sub(lambda number: f"{float(number[0]):.2f}", geometry[0])
