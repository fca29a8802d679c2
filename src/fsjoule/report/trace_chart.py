"""The power trace of one measurement as SVG: power over time, with window, idle window, mean and idle power.

That of a whole boot has its segments instead of the window, each with its name and its mean power.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Final

import altair as alt
import numpy as np
import numpy.typing as npt

from fsjoule.model import Measurement, Trace, Window
from fsjoule.report import style
from fsjoule.report.svg import Rows, draw, specification

_HEIGHT: Final = 190
_SHADE: Final = 0.10
_DASHES: Final = [5, 3]
_CHARACTER_PX: Final = 7
_AXIS_PX: Final = 40


def segments_of(whole: Measurement, measurements: Iterable[Measurement]) -> list[Measurement]:
    """The segments of a boot that was measured as a whole, in their order; none for other measurements."""
    rules = getattr(whole.workload, "rules", ())
    own = [m for m in measurements if rules and m.boot == whole.boot and getattr(m.workload, "rules", ()) == rules]
    return [m for m in sorted(own, key=lambda m: m.workload.order) if m.window and m.number != whole.number]


def trace_chart(measurement: Measurement, trace: Trace, *, width: int, segments: Sequence[Measurement] = ()) -> str:
    """Draw a trace `width` pixels wide, in a third as many points; time counts from the start of the window."""
    window = measurement.window
    start_us = window.start_us if window else float(trace.times_us[0]) if len(trace.ticks) else 0.0
    # The meter's time may step back a little between frames.
    seconds = (np.maximum.accumulate(trace.times_us).astype(np.float64) - start_us) / 1e6
    names = ("t", "mean", "min", "max")
    points: Rows = [
        {name: None if np.isnan(value) else round(float(value), 5) for name, value in zip(names, row, strict=True)}
        for row in binned(seconds, trace.power_w, width // 3)
    ]
    shades = [span for m in segments[::2] for span in _spans(m.window, start_us)] or _spans(window, start_us)
    edges = [span for m in (segments or [measurement]) for span in _spans(m.window, start_us)]
    levels = [level for m in segments for level in _levels(m, start_us)[:1]] or _levels(measurement, start_us)
    px_per_s = (width - _AXIS_PX) / max(float(np.ptp(seconds)), 1e-9) if len(seconds) else 0.0
    data = {
        "trace": points,
        "window": shades,
        "edges": [{"at": at} for row in edges for at in row.values()],
        "idle": _spans(measurement.idle_window, start_us),
        "levels": levels,
        "names": _names(segments, start_us, px_per_s),
    }
    title = f"{measurement.number:02d} {measurement.slug}: power"
    return draw(_specification(width), data, title, simulated=measurement.simulated)


def binned(seconds: npt.NDArray[np.float64], power_w: npt.NDArray[np.float64], bins: int) -> npt.NDArray[np.float64]:
    """Mean, least and greatest power of at most `bins` equal spans of time.

    Takes two arrays of shape (n,), times ascending. Returns shape (m, 4): centre of the span in s, mean, min and max in
    W. A span without samples has NaN, so that gaps in the trace stay visible.
    """
    if len(seconds) == 0:
        return np.empty((0, 4))
    end = float(np.nextafter(seconds[-1], np.inf))
    edges: npt.NDArray[np.float64] = np.linspace(float(seconds[0]), end, min(bins, len(seconds)) + 1)
    starts: npt.NDArray[np.intp] = np.searchsorted(seconds, edges[:-1])
    counts: npt.NDArray[np.intp] = np.diff(np.append(starts, len(seconds)))
    filled = counts > 0
    rows = np.full((len(counts), 4), np.nan)
    rows[:, 0] = (edges[:-1] + edges[1:]) / 2
    rows[filled, 1] = np.add.reduceat(power_w, starts[filled]) / counts[filled]
    rows[filled, 2] = np.minimum.reduceat(power_w, starts[filled])
    rows[filled, 3] = np.maximum.reduceat(power_w, starts[filled])
    return rows


@cache
def _specification(width: int) -> dict[str, object]:
    """Cached, because traces of one width differ only in data, and Altair's check takes longer than Vega's drawing."""

    def over(name: str) -> alt.Chart:
        return alt.Chart(alt.NamedData(name))

    seconds = alt.X(
        "t:Q", title="s from the start of the window", scale=alt.Scale(nice=False), axis=alt.Axis(tickCount=width // 80)
    )
    watts = alt.Y("min:Q", title="W", scale=alt.Scale(zero=False), axis=alt.Axis(tickCount=5, domain=False))
    colour = alt.Color("colour:N", scale=None)
    return specification(
        over("idle").mark_rect(color=style.IDLE, opacity=_SHADE).encode(x="from:Q", x2="to:Q"),
        over("window").mark_rect(color=style.BAND, opacity=_SHADE).encode(x="from:Q", x2="to:Q"),
        over("edges").mark_rule(color=style.TEXT, strokeWidth=1.2).encode(x="at:Q"),
        over("trace").mark_area(color=style.BAND, opacity=0.35).encode(x=seconds, y=watts, y2="max:Q"),
        over("trace").mark_line(color=style.BAND, strokeWidth=1.2).encode(x=seconds, y="mean:Q"),
        over("levels")
        .mark_rule(strokeWidth=1.5, strokeDash=_DASHES)
        .encode(x="from:Q", x2="to:Q", y="level:Q", color=colour),
        over("names").mark_text(color=style.TEXT, baseline="top", dy=3).encode(x="at:Q", y=alt.value(0), text="name:N"),
        width=width,
        height=_HEIGHT,
    )


def _names(segments: Sequence[Measurement], start_us: float, px_per_s: float) -> Rows:
    """The names of those segments that are wide enough for them."""
    rows: Rows = []
    for m in segments:
        name = m.workload.label.rpartition("/")[2]
        if m.window and m.window.duration_s * px_per_s >= len(name) * _CHARACTER_PX:
            rows.append({"at": ((m.window.start_us + m.window.stop_us) / 2 - start_us) / 1e6, "name": name})
    return rows


def _spans(window: Window | None, start_us: float) -> Rows:
    if window is None:
        return []
    return [{"from": (window.start_us - start_us) / 1e6, "to": (window.stop_us - start_us) / 1e6}]


def _levels(measurement: Measurement, start_us: float) -> Rows:
    """Mean power across the window, and idle power from the idle window to the window's end."""
    energy = measurement.energy
    window = _spans(measurement.window, start_us)
    if energy is None or not window:
        return []
    idle = _spans(measurement.idle_window, start_us) or window
    return [
        {**window[0], "level": energy.mean_power_w.value, "colour": style.MEAN},
        {**window[0], "from": idle[0]["from"], "level": energy.idle_power_w.value, "colour": style.TEXT},
    ]
