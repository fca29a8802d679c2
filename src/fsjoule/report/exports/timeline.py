"""When what happened in a run, on one clock, for exports: UTC in nanoseconds since 1970."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from fsjoule.model import LabStep, Measurement
from fsjoule.model.metrics import figure_of, metrics_told
from fsjoule.store.reader import LoadedRun
from fsjoule.store.schemas import STEPS_FILE, decode_steps

_MS_NS: Final = 1_000_000
_START: Final = "/start "  # a step's command that names the program which sends the start mark
_LONGEST: Final = 120


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of time with what is known about it; `level` 0 is outermost, and a span lies in the last lower one."""

    name: str
    level: int
    start_ns: int
    stop_ns: int
    facts: dict[str, str | float]
    error: str = ""


@dataclass(frozen=True, slots=True)
class Stretch:
    """A measurement with its steps. `offset_ns` + the meter's time is UTC, as exact as the step is that began the work.

    labgrid times its steps on the computer, the meter its samples itself: the two agree to about the time that a
    command takes to start on the board. A board in guest time is slower than both.
    """

    measurement: Measurement
    spans: tuple[Span, ...]
    offset_ns: int


def run_span(loaded: LoadedRun, stretches: tuple[Stretch, ...]) -> Span:
    run = loaded.run
    stops = [span.stop_ns for each in stretches for span in each.spans]
    start_ns = utc_ns(run.started_utc)
    stop_ns = utc_ns(run.finished_utc) if run.finished_utc else max([start_ns, *stops])
    facts: dict[str, str | float] = {
        "run": run.run_id,
        "suite": run.plan.suite,
        "board": run.board.name if run.board else "",
        "status": run.status.value,
        "simulated": str(run.simulated).lower(),
        "imported_from": run.imported.text if run.imported else "",
        **{f"version.{name}": version for name, version in run.versions.items()},
    }
    return Span(f"run {run.run_id}", 0, start_ns, stop_ns, facts, run.abort_reason or "")


def stretches_of(loaded: LoadedRun) -> tuple[Stretch, ...]:
    """All measurements in the order of time. Raises ResultError if the record of a measurement's steps is damaged."""
    return tuple(_stretch(loaded, each) for each in loaded.measurements)


def measurement_facts(m: Measurement) -> dict[str, str | float]:
    """Names and figures of a measurement, by the columns of the index; absent figures are left out."""
    key = m.series
    facts: dict[str, str | float] = {
        "number": m.number,
        "suite": key.suite,
        "board": key.board,
        "storage": key.storage,
        "filesystem": key.filesystem,
        "options": " ".join((*key.make_options, *key.mount_options)),
        "workload": key.workload,
        "kernel": m.kernel,
        "boot": m.boot,
        "repetition": m.repetition,
        "simulated": str(m.simulated).lower(),
        "valid": str(m.valid).lower(),
        "invalid_reasons": "; ".join(m.invalid_reasons),
        "notes": "; ".join(m.notes),
    }
    figures = ((metric.row.column, figure_of(m, metric)) for metric in metrics_told(m))
    return facts | {name: figure for name, figure in figures if figure is not None}


def _stretch(loaded: LoadedRun, m: Measurement) -> Stretch:
    content = loaded.attachment(m.number, STEPS_FILE)
    steps = () if content is None else decode_steps(content)
    start_ns = utc_ns(m.started_utc)
    lasted_ns = round(1e9 * (m.window_s or m.duration_s or 0.0))
    work = next((step for step in steps if any(_START in text for text in step.args.values())), None)
    begun_ns = start_ns if work is None else work.started_utc_ms * _MS_NS
    spans = tuple(_spans(steps))
    first_ns = min([start_ns, *(span.start_ns for span in spans)])
    stop_ns = max([begun_ns + lasted_ns, *(span.stop_ns for span in spans)])
    reasons = "; ".join(m.invalid_reasons)
    whole = Span(f"{m.number:02d} {m.slug}", 1, first_ns, stop_ns, measurement_facts(m), reasons)
    offset_ns = begun_ns - round(1000 * m.window.start_us) if m.window else begun_ns
    return Stretch(m, (whole, *spans), offset_ns)


def _spans(steps: tuple[LabStep, ...]) -> Iterator[Span]:
    for step in steps:
        start_ns = step.started_utc_ms * _MS_NS
        told = next(iter(step.args.values()), "")[:_LONGEST]
        name = ": ".join(filter(None, (step.source, step.title, told)))
        yield Span(name, step.level + 1, start_ns, start_ns + step.duration_ms * _MS_NS, {**step.args}, step.error)


def utc_ns(utc: str) -> int:
    return round(datetime.fromisoformat(utc).timestamp() * 1e9)
