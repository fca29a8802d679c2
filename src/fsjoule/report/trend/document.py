"""A trend as a JSON document. Pure."""

from __future__ import annotations

from dataclasses import asdict
from typing import Final

from fsjoule.report.trend import words
from fsjoule.suites.published.catalogue import figure_of_slug
from fsjoule.verdicts.trend.causes import Cause
from fsjoule.verdicts.trend.changes import LevelChange
from fsjoule.verdicts.trend.history import History, HistoryPoint, interval
from fsjoule.verdicts.trend.trend import Trend

SCHEMA: Final = "fsjoule.trend/1"


def document(trend: Trend) -> dict[str, object]:
    """The whole trend, which must have the names of all its runs."""
    return {
        "schema": SCHEMA,
        "by": trend.order.value,
        "series": trend.series,
        "measurements": trend.measurements,
        "series_cut_short": trend.cut_short,
        "histories_too_short": trend.too_short,
        "histories_unchanged": trend.unchanged,
        "causes": [cause_document(cause, trend) for cause in trend.causes],
        "histories": [_history(history, changes, trend) for history, changes in trend.with_changes()],
    }


def cause_document(cause: Cause, trend: Trend) -> dict[str, object]:
    """A cause; `index` of its changes is their place in the points of the history of that series, metric and label."""
    return {
        "fate": cause.fate.value,
        "worse": cause.worse,
        "boards": list(cause.boards),
        "simulated": cause.simulated,
        "since": _names(cause.since, trend),
        "last": _names(cause.last, trend),
        "over_since_utc": cause.cured.started_utc if cause.cured else None,
        "changes": [
            {
                "series": change.history.series.key,
                "metric": change.history.metric.value,
                "kernel_label": change.history.label or None,
                "index": change.nomination.index,
                "ratio": change.ratio,
                "state": change.state.value,
                "still": any(change is one for one in cause.still),
            }
            for change in cause.changes
        ],
    }


def _history(history: History, changes: list[LevelChange], trend: Trend) -> dict[str, object]:
    return {
        "series": history.series.document(),
        "metric": history.metric.value,
        "unit": history.metric.unit,
        "more_is_better": history.metric.more_is_better,
        "kernel_label": history.label or None,
        "published": published_figure(history),
        "unusable_boots": dict(history.unusable or {}),
        "memory": asdict(history.memory) if history.memory else None,
        "points": [_point(point, trend) for point in history.points],
        "changes": [_change(change, trend) for change in changes],
    }


def _point(point: HistoryPoint, trend: Trend) -> dict[str, object]:
    low, high, confidence = interval(point.boots)
    return {
        **_names(point, trend),
        "figure": point.figure,
        "low": low,
        "high": high,
        "confidence": round(confidence, 4),
        "boots": len(point.boots),
        "runs": point.runs,
    }


def _names(point: HistoryPoint, trend: Trend) -> dict[str, object]:
    run, kernel = trend.runs[point.run], trend.kernels.get(point.kernel or 0)
    return {
        "run": run.run_id,
        "started_utc": point.started_utc,
        "kernel": asdict(kernel) if kernel else None,
        "branch": run.branch,
        "commit": run.commit,
        **run.origin._asdict(),
    }


def _change(change: LevelChange, trend: Trend) -> dict[str, object]:
    return {
        "index": change.nomination.index,
        "ratio": change.ratio,
        "worse": change.worse,
        "status": change.status.value,
        "state": change.state.value,
        "known": list(words.kept(change)),
        "since": _names(change.since, trend),
        "last": _names(change.last, trend),
        "before": _names(change.before, trend),
        "after": _names(change.after, trend),
        "verdict": asdict(change.verdict) if change.verdict else None,
        "confirmation": asdict(change.confirmation) if change.confirmation else None,
    }


def published_figure(history: History) -> float | None:
    """The published figure for this filesystem and workload, in the metric's unit."""
    key = history.series.series
    return figure_of_slug(key.suite, key.filesystem, key.workload, history.metric)
