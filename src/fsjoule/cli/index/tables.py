"""Series and their figures, as tables and as JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Final

from fsjoule.cli.common import out, print_json
from fsjoule.model.metrics import Metric, Use, fio_metrics, timed_metrics
from fsjoule.model.series import Point, Series
from fsjoule.report.numbers import ABSENT
from fsjoule.store.index.queries import SeriesCount

_SHORT_KEY: Final = 8


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
    metrics_of = fio_metrics if any(Metric.THROUGHPUT in point.figures for point in found) else timed_metrics
    chosen, always = metrics or metrics_of(Use.POINTS), metrics_of(Use.MAIN)
    invalid = any(not point.valid for point in found)
    # Several boards of one type share a series; each figure then names its board.
    places = len({point.origin.board for point in found}) > 1
    heads = (word("day"), word("kernel"), word("run"), Column("boot"), *[word("place")] * places)
    figures = (Column(each.row.header or each.unit, optional=not metrics and each not in always) for each in chosen)
    rows: list[tuple[str, ...]] = []
    for point in found:
        kernel = point.kernel.release if point.kernel else ABSENT
        reasons = ["; ".join(point.invalid_reasons)] * invalid
        board = [point.origin.board or ABSENT] * places
        told = (_figure(point, each) for each in chosen)
        rows.append((point.started_utc[:10], kernel, point.run_id, str(point.boot), *board, *told, *reasons))
    print_table(out, listing((*heads, *figures, *[word("invalid")] * invalid), rows), wide=wide)


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
