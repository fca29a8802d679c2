"""Series and their figures, as tables and as JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Final

from fsjoule.cli.common import out, print_json
from fsjoule.model.metrics import Metric
from fsjoule.model.series import Point, Series
from fsjoule.report.numbers import ABSENT
from fsjoule.store.index.queries import SeriesCount

# Default columns of a list of points: for fio's jobs, and for operations that move no data.
_FIO_METRICS: Final = (Metric.THROUGHPUT, Metric.ENERGY, Metric.CPU, Metric.P99_LATENCY)
_TIMED_METRICS: Final = (Metric.DURATION, Metric.OPERATION_ENERGY, Metric.POWER)
_HEADERS: Final = {
    Metric.THROUGHPUT: "MiB/s",
    Metric.IOPS: "IOPS",
    Metric.ENERGY: "mJ/MiB",
    Metric.NET_ENERGY: "net mJ/MiB",
    Metric.OPERATION_ENERGY: "mJ",
    Metric.OPERATION_NET_ENERGY: "net mJ",
    Metric.POWER: "W",
    Metric.CPU: "CPU s/MiB",
    Metric.WRITE_AMPLIFICATION: "write ampl.",
    Metric.P99_LATENCY: "p99 ms",
    Metric.DURATION: "s",
}
_SHORT_KEY: Final = 8
_ALWAYS_SHOWN: Final = 2  # figures of a list of points, however narrow


def show_list(found: Sequence[SeriesCount], *, wide: bool, json_output: bool) -> None:
    if json_output:
        print_json([{**dataclasses.asdict(count), "series": count.series.document()} for count in found])
        return
    from fsjoule.report.table import Column, listing, word
    from fsjoule.report.terminal import print_table

    rows: list[tuple[str, ...]] = []
    for count in found:
        series = count.series
        names = (series.key[:_SHORT_KEY], series.series.filesystem, series.series.workload, series.series.board)
        numbers = (count.valid, count.measurements, count.kernels)
        rows.append((*names, "simulated" if series.simulated else "", *map(str, numbers)))
    words = (*map(word, ("key", "filesystem", "workload", "board", "")), Column("valid"))
    print_table(out, listing((*words, Column("of", optional=True), Column("kernels", optional=True)), rows), wide=wide)


def show_points(
    series: Series, found: Sequence[Point], metrics: Sequence[Metric], *, wide: bool, json_output: bool
) -> None:
    if json_output:
        print_json({"series": series.document(), "points": [_point(point) for point in found]})
        return
    from fsjoule.report.table import Column, listing, word
    from fsjoule.report.terminal import print_table

    out.print(f"{series.label} on {series.series.board}{'  simulated' if series.simulated else ''}", style="bold")
    chosen = metrics or _usual(found)
    invalid = any(not point.valid for point in found)
    # Several boards of one type share a series; each figure then names its board.
    places = len({point.origin.board for point in found}) > 1
    heads = (word("day"), word("kernel"), word("run"), Column("boot"), *[word("place")] * places)
    figures = (Column(_HEADERS[each], optional=not metrics and i >= _ALWAYS_SHOWN) for i, each in enumerate(chosen))
    rows: list[tuple[str, ...]] = []
    for point in found:
        kernel = point.kernel.release if point.kernel else ABSENT
        reasons = ["; ".join(point.invalid_reasons)] * invalid
        board = [point.origin.board or ABSENT] * places
        told = (_figure(point, each) for each in chosen)
        rows.append((point.started_utc[:10], kernel, point.run_id, str(point.boot), *board, *told, *reasons))
    print_table(out, listing((*heads, *figures, *[word("invalid")] * invalid), rows), wide=wide)


def _usual(found: Sequence[Point]) -> tuple[Metric, ...]:
    fio = any(Metric.THROUGHPUT in point.figures for point in found)
    return _FIO_METRICS if fio else _TIMED_METRICS


def _figure(point: Point, metric: Metric) -> str:
    if metric not in point.figures:
        return ABSENT
    uncertainty = point.uncertainties.get(metric)
    return f"{point.figures[metric]:.4g}" + ("" if uncertainty is None else f" ± {uncertainty:.2g}")


def _point(point: Point) -> dict[str, object]:
    from fsjoule.store.index.columns import COLUMNS

    kernel = dataclasses.asdict(point.kernel) if point.kernel else None
    figures, uncertainties = (
        {COLUMNS[metric]: value for metric, value in values.items()} for values in (point.figures, point.uncertainties)
    )
    told = {"kernel": kernel, "valid": point.valid, "figures": figures, "uncertainties": uncertainties}
    plain = {name: value for name, value in point._asdict().items() if name != "origin"}
    return {**plain, **told, **point.origin._asdict()}
