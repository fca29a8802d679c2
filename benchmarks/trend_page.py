"""How large the page of trends is, and how long a browser takes to show it: 200 series of 400 points, made up.

A page is shown when its map, or its first line, is drawn and the browser has nothing left to do. With `--beside`
Vega-Lite draws the same series as lines in a page of its own, for comparison; it has no changes, no search and no map.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Final

import altair as alt
import numpy as np
import typer
import vl_convert
from common import show

from fsjoule.model import Provision, SeriesKey
from fsjoule.model.kernel import Kernel
from fsjoule.model.metrics import Metric
from fsjoule.model.series import Order, Series
from fsjoule.report.forge import forge_of
from fsjoule.report.svg import specification
from fsjoule.report.template import uplot_script
from fsjoule.report.trend.page import trend_page
from fsjoule.statistics.finder import RupturesFinder
from fsjoule.store.trend_rows import RunNames
from fsjoule.verdicts.trend.changes import changes_of
from fsjoule.verdicts.trend.history import History, HistoryPoint
from fsjoule.verdicts.trend.trend import Trend, judged

# The browser is that of the tests.
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "helpers"))
from browser import DESK, PHONE, Browser, browser

_BEGIN: Final = datetime(2025, 1, 1, 2, tzinfo=UTC)
_KERNELS: Final = 40
_BOOTS: Final = 3
_STEP: Final = 0.92
_OPERATIONS: Final = ("read-16k", "randread-16k", "write-16k", "randwrite-16k", "randrw-4k")
_FILESYSTEMS: Final = ("ext4", "btrfs", "f2fs", "xfs", "ext4:nobarrier")
# Notes when the page's map, or its first line, is there, and the last long task before the browser rests.
_WATCH: Final = """
window.seen = {first: null, task: 0};
new MutationObserver(() => {
  if (seen.first === null && document.querySelector('canvas, #heat-table .open')) seen.first = performance.now();
}).observe(document, {childList: true, subtree: true});
new PerformanceObserver((list) => {
  for (const e of list.getEntries()) seen.task = Math.max(seen.task, e.startTime + e.duration);
}).observe({type: 'longtask', buffered: true});
"""


def main(
    *,
    series: Annotated[int, typer.Option(min=1, help="How many series.")] = 200,
    points: Annotated[int, typer.Option(min=10, help="How many points each.")] = 400,
    repeat: Annotated[int, typer.Option(min=1, help="How often each page is opened.")] = 5,
    beside: Annotated[bool, typer.Option("--beside", help="Vega-Lite, too.")] = False,
    keep: Annotated[Path | None, typer.Option(help="Keep the page in this file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable output.")] = False,
) -> None:
    """Make the page, and open it in Debian's Chromium in a window of a desk and of a phone."""
    trends = _trends(series, points)
    started = time.perf_counter()
    page = trend_page(*trends, forge=forge_of("https://forge.example/lab/linux"))
    result: dict[str, Any] = {
        "series": series,
        "points": series * points,
        "changes": sum(len(trend.changes) for trend in trends),
        "made_s": time.perf_counter() - started,
        "library_kib": len(uplot_script().encode()) / 1024,
    }
    with tempfile.TemporaryDirectory() as folder, browser() as opened:
        opened.chrome.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": _WATCH})
        file = keep or Path(folder) / "trends.html"
        file.write_text(page, encoding="utf-8")
        result |= _measured("", file, opened, repeat)
        if beside:
            other = Path(folder) / "vega.html"
            other.write_text(_vega(trends[0]), encoding="utf-8")
            result["vega_library_kib"] = len(_vega_library().encode()) / 1024
            result |= _measured("vega_", other, opened, repeat)
    show("the page of trends", result, as_json=as_json)


def _measured(name: str, file: Path, opened: Browser, repeat: int) -> dict[str, float]:
    """The page's size, and how long it takes until it is shown."""
    found: dict[str, float] = {f"{name}page_mib": file.stat().st_size / 1024**2}
    for window, size in (("desk", DESK), ("phone", PHONE)):
        clock, processor = zip(*(_shown_s(file, opened, size) for _ in range(repeat)), strict=True)
        found[f"{name}{window}_s"] = statistics.median(clock)
        found[f"{name}{window}_slowest_s"] = max(clock)
        found[f"{name}{window}_processor_s"] = statistics.median(processor)
    return found


def _shown_s(file: Path, opened: Browser, size: tuple[int, int]) -> tuple[float, float]:
    """Seconds by the clock, and of processor time in the page's main thread."""
    opened.chrome.execute_cdp_cmd("Performance.disable", {})
    opened.chrome.execute_cdp_cmd("Performance.enable", {"timeDomain": "threadTicks"})
    opened.open(file.absolute().as_uri(), size)
    opened.wait(
        lambda: opened.script("return window.seen && seen.first !== null && document.readyState === 'complete'")
    )
    opened.script("return new Promise((done) => requestIdleCallback(done))")
    clock = float(opened.script("return Math.max(seen.first, seen.task)")) / 1000
    metrics: list[dict[str, Any]] = opened.chrome.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
    return clock, float(next(each["value"] for each in metrics if each["name"] == "TaskDuration"))


# -------------------------------------------------------------------------------------------------- made-up trends


def _trends(series: int, points: int) -> tuple[Trend, Trend]:
    """Nights of boards that take every filesystem and operation; each third series loses a step somewhere."""
    rng = np.random.default_rng(18)
    kernels = {number: Kernel(f"6.12.{number}-armmp", f"6.12.{number}-1") for number in range(1, _KERNELS + 1)}
    runs = {number: _run(number) for number in range(points)}
    by_time = [_history(number, points, rng) for number in range(series)]
    by_kernel = [_over_kernels(history) for history in by_time]
    made: list[Trend] = []
    for order, found in ((Order.TIME, by_time), (Order.KERNEL, by_kernel)):
        histories = judged(found, RupturesFinder(), order, measurements=0, older=False).histories
        made.append(
            Trend(
                order,
                tuple(history for history, _ in histories),
                tuple(changes_of(histories, [], order, kernels)),
                kernels,
                runs,
                series=series,
                measurements=series * points * _BOOTS,
                cut_short=0,
                too_short=0,
            )
        )
    return made[0], made[1]


def _run(number: int) -> RunNames:
    return RunNames(f"{number:010x}", _utc(number), "main", f"{number * 7919:040x}", "/nowhere")


def _utc(number: int) -> str:
    return f"{_BEGIN + timedelta(hours=12 * number):%Y-%m-%dT%H:%M:%SZ}"


def _history(number: int, points: int, rng: np.random.Generator) -> History:
    cells = len(_FILESYSTEMS) * len(_OPERATIONS)
    metric = (Metric.THROUGHPUT, Metric.ENERGY)[number // cells % 2]
    key = SeriesKey(
        suite="quick",
        board=f"board{number // (2 * cells):02d}",
        storage="mmc1 SD16G 15 GiB",
        filesystem=_FILESYSTEMS[number % len(_FILESYSTEMS)],
        make_options=(),
        mount_options=("noatime",),
        provision=Provision.SCRATCH,
        workload=f"{_OPERATIONS[number // len(_FILESYSTEMS) % len(_OPERATIONS)]} 32768KiB",
    )
    levels = np.full(points, 20.0 + number % 50)
    if number % 3 == 0:
        levels[int(rng.integers(points // 4, 3 * points // 4)) :] *= _STEP
    figures = levels[:, None] * np.exp(rng.normal(0, 0.015, (points, _BOOTS)))
    found = [
        HistoryPoint(n, 1 + n * _KERNELS // points, _utc(n), float(np.median(boots)), tuple(map(float, boots)), 1)
        for n, boots in enumerate(figures)
    ]
    return History(Series(key, simulated=True), metric, tuple(found))


def _over_kernels(history: History) -> History:
    of: dict[int | None, list[HistoryPoint]] = {}
    for point in history.points:
        of.setdefault(point.kernel, []).append(point)
    merged = [
        HistoryPoint(
            points[-1].run,
            kernel,
            points[-1].started_utc,
            statistics.median(point.figure for point in points),
            tuple(boot for point in points for boot in point.boots),
            len(points),
        )
        for kernel, points in of.items()
    ]
    return History(history.series, history.metric, tuple(merged))


def _vega_library() -> str:
    return vl_convert.javascript_bundle()  # pyright: ignore[reportCallIssue] - its stub knows no default


def _vega(trend: Trend) -> str:
    """The same lines as a page of Vega-Lite's, with its library inside."""
    rows = [
        {"series": f"{number}", "at": point.started_utc, "figure": point.figure}
        for number, history in enumerate(trend.histories)
        for point in history.points
    ]
    line = alt.Chart(alt.NamedData("points")).mark_line(strokeWidth=1.25)
    line = line.encode(
        x=alt.X("at:T", axis=None),
        y=alt.Y("figure:Q", axis=None, scale=alt.Scale(zero=False)),
        tooltip=["at:T", "figure:Q"],
    )
    inner = specification(line, width=400, height=40)
    config = inner.pop("config")
    inner.pop("$schema")
    spec = {
        "facet": {"row": {"field": "series", "type": "nominal", "title": None}},
        "spec": inner,
        "resolve": {"scale": {"y": "independent"}},
        "data": {"name": "points"},
        "datasets": {"points": rows},
        "config": config,
    }
    version = ".".join(alt.SCHEMA_VERSION.removeprefix("v").split(".")[:2])
    return vl_convert.vegalite_to_html(json.dumps(spec), vl_version=version, bundle=True, renderer="canvas")


if __name__ == "__main__":
    typer.run(main)
