"""The self-contained page of a run: one file, no network, no scripts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from markupsafe import Markup

from fsjoule.errors import ResultError
from fsjoule.model import Measurement, Planned, Run, RunStatus, Trace
from fsjoule.model.labels import counted
from fsjoule.report.advice import words as advice_words
from fsjoule.report.advice.tables import figures_table
from fsjoule.report.answer import answer
from fsjoule.report.charts import crash_chart, energy_chart, throughput_chart, timed_charts, times_chart
from fsjoule.report.crash import KeptCrashes, crash_causes, crash_costs, crash_footnote, crash_table
from fsjoule.report.facts import Fact, command_text, kernels_text, measurement_facts, no_trace, run_facts
from fsjoule.report.gate import GateView
from fsjoule.report.images import FOOTNOTE as IMAGES_FOOTNOTE
from fsjoule.report.images import image_rows, images_table
from fsjoule.report.layers import layers_table
from fsjoule.report.numbers import samples_text, seconds_text, share_text
from fsjoule.report.pareto_chart import NARROW, WIDE, pareto_chart
from fsjoule.report.publications import NOTE, suite_page
from fsjoule.report.site import Site
from fsjoule.report.summary import Summary, outcome_text
from fsjoule.report.tables import (
    FOOTNOTE,
    fio_footnote,
    fio_table,
    held_table,
    kernel_tables,
    projected_footnote,
    projected_table,
    published_table,
    timed_table,
)
from fsjoule.report.template import marked_up, render
from fsjoule.report.trace_chart import segments_of, trace_chart
from fsjoule.report.words import ALTERED
from fsjoule.store.gate import Gated
from fsjoule.suites.published.catalogue import PUBLICATIONS
from fsjoule.verdicts.advice.advise import Advice
from fsjoule.verdicts.filesystems import contests

# A trace is drawn twice, for a desk and for a phone, so that letters keep their size; the style sheet shows one.
_WIDE: Final = 860
_NARROW: Final = 270


@dataclass(frozen=True, slots=True)
class _MeasurementEntry:
    """One measurement on the page. `brief` is its closed line, `legend` explains its trace."""

    measurement: Measurement
    brief: tuple[str, ...]
    facts: list[Fact]
    charts: tuple[Markup, ...]
    legend: tuple[Fact, ...]
    problem: str
    segments: bool = False


def render_page(
    summary: Summary,
    measurements: Sequence[Measurement],
    trace_of: Callable[[int], Trace | None],
    gated: Gated | None = None,
    advice: Sequence[Advice] = (),
    *,
    crashes: Sequence[tuple[str, KeptCrashes]] = (),
    site: Site | None = None,
) -> str:
    """The page as HTML. `trace_of` returns a measurement's trace by number; its ResultError is shown instead.

    `gated` is the answer of the gate that measured the run, `advice` what the run can say alone. `crashes` are recorded
    runs whose states were checked, with their names.
    """
    run = summary.run
    suite = suite_page(summary)
    gate = None if gated is None else GateView(gated)
    in_order = sorted(measurements, key=lambda m: (m.repetition, m.number))
    groups = [
        (
            row,
            [
                _entry(m, trace_of, segments_of(m, in_order))
                for m in in_order
                if (m.series, m.kernel) == (row.series, row.kernel)
            ],
        )
        for row in (*summary.fio, *summary.timed, *summary.held, *summary.outcomes)
    ]
    return render(
        "page.html.j2",
        site=site,
        run=run,
        summary=summary,
        simulated=summary.simulated,
        board=run.board.name if run.board else "board",
        kernels=kernels_text(run),
        aborted=run.status is not RunStatus.COMPLETE,
        ended=ended_text(run, (m.number for m in measurements)),
        answer=answer(summary, contests(measurements)),
        layers=layers_table(summary),
        crashes=crash_table(summary),
        crash_footnote=crash_footnote(summary),
        crash_causes=crash_causes(summary),
        crash_costs=crash_costs(summary),
        crash_charts=[(name, _crash_charts(kept, simulated=summary.simulated)) for name, kept in crashes],
        gate=None if gate is None else {"headline": gate.headline, **gate.page_parts()},
        advice=[_advice(one) for one in advice],
        advice_rules=advice_words.rules(advice[0]) if advice else "",
        valid=summary.measured - len(summary.invalid),
        all_well=not (
            summary.invalid
            or summary.damaged
            or summary.altered
            or summary.samples.lost
            or run.status is not RunStatus.COMPLETE
        ),
        altered=ALTERED,
        samples=samples_text(summary.samples) if summary.samples.expected else "",
        fio=fio_table(summary),
        fio_footnote=fio_footnote(summary),
        suite=suite,
        suite_sections=[
            (section, marked_up([draw() for draw in section.charts])) for section in (suite.sections if suite else ())
        ],
        statements_note=NOTE,
        # A suite's page has its own charts, by part.
        fio_charts=marked_up(
            [throughput_chart(summary, card=True), energy_chart(summary, card=True)] if suite is None else []
        ),
        projected=projected_table(summary),
        projected_charts=marked_up(
            [chart(summary) for chart in (throughput_chart, energy_chart)] if suite is None else []
        ),
        projected_footnote=projected_footnote(summary),
        published=published_table(summary) if suite is None else None,
        source_remarks=[(p.source, p.remarks) for p in PUBLICATIONS.values() if p.source in summary.sources],
        timed=timed_table(summary),
        held=held_table(summary),
        timed_footnote=FOOTNOTE,
        kernel_tables=kernel_tables(summary),
        images=images_table(summary),
        images_charts=_images_charts(summary),
        images_footnote=IMAGES_FOOTNOTE,
        timed_charts=marked_up(
            [chart for _, charts in timed_charts(summary) for chart in charts] if suite is None else []
        ),
        groups=groups,
        # One boot of each kernel: the first that was cut into segments.
        boots=[
            (row, next(each for each in entries if each.segments))
            for row, entries in groups
            if any(e.segments for e in entries)
        ],
        facts=run_facts(run),
        command=command_text(run),
        seconds_text=seconds_text,
        share_text=share_text,
    )


def _crash_charts(kept: KeptCrashes, *, simulated: bool) -> list[Markup]:
    """The pictures of a recorded run and of its states' times, each for a desk and for a phone."""
    drawn = [crash_chart(kept.log, kept.losing_epochs, width=width, simulated=simulated) for width in (WIDE, NARROW)]
    times = kept.times_s
    drawn += [times_chart(times, width=width, simulated=simulated) for width in (WIDE, NARROW) if any(times.values())]
    return marked_up(drawn)


def _images_charts(summary: Summary) -> list[Markup]:
    """The picture of the run's read-only images, for a desk and for a phone."""
    rows = image_rows(summary)
    drawn = (pareto_chart(rows, width=width, simulated=summary.simulated) for width in (WIDE, NARROW))
    return marked_up(list(drawn)) if rows else []


def _advice(advice: Advice) -> dict[str, object]:
    name = advice.profile_name
    return {
        "name": name,
        "profile": advice.profile.title,
        "headline": advice_words.answer(advice),
        "figures": figures_table(advice),
        "missing": ", ".join(what for what, _ in advice_words.missing(advice)),
        "command": f"fsjoule advise . --profile {name} -o {name}.html",
    }


def _entry(
    measurement: Measurement, trace_of: Callable[[int], Trace | None], segments: Sequence[Measurement]
) -> _MeasurementEntry:
    charts: list[Markup] = []
    problem = ""
    try:
        trace = trace_of(measurement.number)
    except ResultError as error:
        trace, problem = None, error.what
    if trace is not None and len(trace.ticks):
        charts = marked_up(
            [trace_chart(measurement, trace, width=width, segments=segments) for width in (_WIDE, _NARROW)]
        )
    elif not problem:
        problem = no_trace(measurement)
    facts = measurement_facts(measurement)
    # Kinds of line (a class of the style sheet), each with its meaning.
    legend = [("mean", f"mean {measurement.energy.mean_power_w.value:.4f} W")] if measurement.energy else []
    legend += [("idle", f"idle {measurement.energy.idle_power_w.value:.4f} W")] if measurement.energy else []
    parts = [(m.workload.label.rpartition("/")[2], m.duration_s) for m in segments]
    legend += [("window", ", ".join(f"{name} {seconds:.3f} s" for name, seconds in parts if seconds))] if parts else []
    legend += [("window", f"window {measurement.window.duration_s:.4f} s")] if measurement.window else []
    legend += [("before", f"idle window {measurement.idle_window.duration_s:.3f} s")] if measurement.idle_window else []
    return _MeasurementEntry(
        measurement,
        _brief(measurement),
        facts,
        tuple(charts),
        (*legend, ("range", "least to greatest sample")),
        problem,
        bool(segments and charts),
    )


def _brief(m: Measurement) -> tuple[str, ...]:
    if m.outcome is not None:
        return (outcome_text(m.outcome),)
    if m.crash is not None:
        return (m.crash.text,)
    parts: list[str] = []
    if m.held is not None and m.energy is not None:
        return (f"{m.energy.mean_power_w.value:.4f} W",)
    if m.throughput_mib_per_s is not None:
        parts.append(f"{m.throughput_mib_per_s:.2f} MiB/s")
    elif m.duration_s is not None:
        parts.append(f"{m.duration_s:.3f} s")
    if m.energy_mj_per_mib is not None:
        parts.append(f"{m.energy_mj_per_mib.value:.1f} mJ/MiB")
    elif m.energy is not None:
        parts.append(f"{m.energy.gross_mj.value:.1f} mJ")
    else:
        parts.append("no energy")
    return tuple(parts)


# How the reason of a run ends that came to its end without all measurements: faults cost them, not the end.
NOT_TAKEN: Final = "were not taken"


def ended_text(run: Run, taken: Iterable[int]) -> str:
    """`It ended at measurement 05 of 12, btrfs-read-16k in repetition 1: interrupted.`; `taken` are those stored."""
    why = (run.abort_reason or "no reason was recorded").rstrip(".")
    if run.status is RunStatus.RUNNING:
        why = "it is still being measured"
    stored = set(taken)
    entry = None if why.endswith(NOT_TAKEN) else _last(run, stored)
    total = len(run.plan.entries)
    if entry is None:
        told = f"{len(stored)} of {counted(total, 'planned measurement')} are stored: {why}."
    else:
        told = f"It ended at measurement {entry.number:02d} of {total}, {_name(run, entry)}: {why}."
    return told + _last_fault(run, stored, entry)


def _name(run: Run, entry: Planned) -> str:
    kernel = f" on kernel {entry.kernel}" if len(run.plan.kernels) > 1 else ""
    return f"{entry.slug} in repetition {entry.repetition}{kernel}"


def _last_fault(run: Run, stored: set[int], ended_at: Planned | None) -> str:
    """The fault that cost the last measurement before the end; empty if it is the end itself, or if there was none."""
    lost = [fault for fault in run.faults if fault.number not in stored]
    if not lost or (ended_at is not None and lost[-1].number == ended_at.number):
        return ""
    named = [_name(run, entry) for entry in run.plan.entries if entry.number == lost[-1].number]
    what = lost[-1].what.partition("\n")[0].rstrip(".")
    return f" The last fault before, at {named[0]}: {what}." if named else ""


def _last(run: Run, stored: set[int]) -> Planned | None:
    """The entry that the run was at: the one with the last fault, if the run ended with it, else the next to come."""
    entries = run.plan.entries
    if run.faults:
        last = run.faults[-1]
        ended_it = bool(run.abort_reason) and run.abort_reason in last.what
        if ended_it and last.number not in stored:
            return next((entry for entry in entries if entry.number == last.number), None)
    tried = stored | {fault.number for fault in run.faults}
    reached = max((i for i, entry in enumerate(entries) if entry.number in tried), default=-1)
    return entries[reached + 1] if reached + 1 < len(entries) else None
