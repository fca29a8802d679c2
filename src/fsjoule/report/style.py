"""Colours and the theme of charts.

Charts use the light colours, so that an SVG works alone; the page's style sheet maps each to its dark partner.
Therefore a colour has only one meaning.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from typing import Final

from fsjoule import filesystems

TEXT: Final = "#1c2430"
MUTED: Final = "#66707d"
GRID: Final = "#e3e7ec"
AXIS: Final = "#b6bec8"
BAND: Final = "#2f6fdf"
IDLE: Final = "#8a94a0"
MEAN: Final = "#c2410c"
# Colours of verdicts.
GOOD: Final = "#1b7a3d"
BAD: Final = "#b3261e"
DOUBT: Final = "#a16207"

# One colour per filesystem in all charts; they also differ in lightness, for readers who do not see the hue.
_COLOURS: Final = {row.name: row.colours for row in filesystems.FILESYSTEMS.values() if row.colours is not None}
FILESYSTEMS: Final = {name: light for name, (light, _) in _COLOURS.items()}
_OTHERS: Final = ("#7a5548", "#4d7f9e", "#a3623a", "#6d7f2e")

# Colours of kernels in a report on several; no filesystem has one of these.
KERNELS: Final = ("#0f766e", "#b45309", "#4f46e5", "#be185d", "#4d7c0f", "#0369a1", "#86198f", "#57534e")

DARK: Final[dict[str, str]] = {
    TEXT: "#e6eaf0",
    MUTED: "#98a3b1",
    GRID: "#2b3440",
    AXIS: "#4a5664",
    BAND: "#6ea1ff",
    IDLE: "#7f8b99",
    MEAN: "#fb9a5b",
    GOOD: "#6cc98a",
    BAD: "#ff8f87",
    DOUBT: "#e2b93b",
    **dict(_COLOURS.values()),
    "#7a5548": "#b98d7d",
    "#4d7f9e": "#86b8d8",
    "#a3623a": "#d5976e",
    "#6d7f2e": "#a9bd63",
    "#0f766e": "#3cc9ba",
    "#b45309": "#f0a04b",
    "#4f46e5": "#9d97ff",
    "#be185d": "#f277ac",
    "#4d7c0f": "#9ccc4a",
    "#0369a1": "#5fb8ea",
    "#86198f": "#d884e0",
    "#57534e": "#b3aca6",
}

_FONT: Final = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"


def filesystem_colours(labels: list[str]) -> dict[str, str]:
    """A colour for each label: the filesystem's own, or a spare one for its further variants (`btrfs (...)`)."""
    colours: dict[str, str] = {}
    spare = cycle(_OTHERS)
    for label in labels:
        own = FILESYSTEMS.get(label.split(" ", 1)[0])
        colours[label] = next(spare) if own is None or own in colours.values() else own
    return colours


def kernel_colours(labels: Sequence[str]) -> dict[str, str]:
    return dict(zip(labels, cycle(KERNELS), strict=False))


def chart_config() -> dict[str, object]:
    return {
        "font": _FONT,
        "background": "transparent",
        "view": {"stroke": None},
        "padding": 4,
        "title": {"color": TEXT, "fontSize": 13, "fontWeight": 600, "anchor": "start", "subtitleColor": MUTED},
        "axis": {
            "labelColor": TEXT,
            "titleColor": MUTED,
            "titleFontWeight": "normal",
            "labelFontSize": 11,
            "titleFontSize": 11,
            "gridColor": GRID,
            "domainColor": AXIS,
            "tickColor": AXIS,
            "ticks": False,
            "labelPadding": 6,
        },
        "legend": {"labelColor": TEXT, "titleColor": MUTED, "labelFontSize": 11, "symbolType": "square"},
    }
