"""A run folder for people and scripts: its tables in the terminal, its page, and one JSON document."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rich.console import Console, ConsoleRenderable
from rich.text import Text

from fsjoule.errors import FsjouleError, ResultError, not_written
from fsjoule.host.extras import PAGES, need
from fsjoule.host.files import write_file
from fsjoule.model import FioWorkload, HeldWorkload, Measurement, OperationWorkload, RunStatus, Trace
from fsjoule.model.metrics import metrics_of
from fsjoule.report.answer import RULE, RunAnswer, answer, answer_document, answer_table
from fsjoule.report.crash import KeptCrashes, crash_causes, crash_costs, crash_footnote, crash_table
from fsjoule.report.facts import emmc_facts, kernels_text
from fsjoule.report.images import FOOTNOTE as IMAGES_FOOTNOTE
from fsjoule.report.images import images_table
from fsjoule.report.layers import layers_table
from fsjoule.report.numbers import samples_text, seconds_text, share_text
from fsjoule.report.summary import Summary, SummaryRow, summarise
from fsjoule.report.tables import (
    FOOTNOTE,
    fio_footnote,
    fio_table,
    held_table,
    kernel_tables,
    projected_footnote,
    projected_table,
    published_table,
    time_table,
    timed_table,
)
from fsjoule.report.terminal import TONES, footnote, named_lines, room_of, table_lines
from fsjoule.report.words import ALTERED
from fsjoule.store.folder import GATE_FILE, PAGE
from fsjoule.store.gate import gate_of
from fsjoule.store.reader import LoadedRun, load_run
from fsjoule.verdicts.filesystems import contests

if TYPE_CHECKING:
    from fsjoule.report.publications import SuitePage
    from fsjoule.report.site import Site

SHOW_SCHEMA: Final = "fsjoule.show/1"

# Drawing one takes 0.1 s, and whoever asks a service for a page waits for it.
_MOST_TRACES: Final = 60


def write_report(folder: Path, file: Path | None = None) -> Path:
    """Write `report.html` into a run folder, or its page into `file`.

    Raises ResultError if the folder cannot be read, ConfigError or StorageError if the page cannot be made or written.
    """
    need("pages", *PAGES)
    loaded = load_run(folder)
    path = file or loaded.path / PAGE
    page = run_page(loaded)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # It replaces the old file, which may be a link to another place.
        write_file(path, page.encode())
    except OSError as error:
        raise not_written(f"{path} could not be written", error, hint="name another file: --output FILE") from error
    return path


def run_page(loaded: LoadedRun, *, site: Site | None = None) -> str:
    """The page of a run as HTML, with the answer of its gate, if a gate measured it."""
    from fsjoule.report.page import render_page  # noqa: PLC0415 - charts take long to import
    from fsjoule.verdicts.advice.advise import advice_of  # noqa: PLC0415 - as above

    damaged = dict(loaded.damaged)
    gated = None
    try:
        gated = gate_of(loaded)
    except ResultError as error:
        damaged[GATE_FILE] = error.what
    summary = summarise(loaded.run, loaded.measurements, damaged, loaded.altered())
    few = site is None or len(loaded.measurements) <= _MOST_TRACES
    trace_of = loaded.trace if few else _not_drawn
    return render_page(
        summary, loaded.measurements, trace_of, gated, advice_of(loaded), crashes=_crashes(loaded), site=site
    )


def _crashes(loaded: LoadedRun) -> list[tuple[str, KeptCrashes]]:
    """The recorded runs whose crash states were checked; a damaged one is told with the measurement."""
    kept: list[tuple[str, KeptCrashes]] = []
    for m in loaded.measurements:
        if m.crash is not None:
            with suppress(FsjouleError):
                read = KeptCrashes.read(lambda name, number=m.number: loaded.attachment(number, name))
                read = replace(read, timed=m.crash.mount_s is not None)
                kept.append((f"{m.series.filesystem_title}, {m.workload.label}", read))
    return kept


def _not_drawn(_number: int) -> Trace | None:
    raise ResultError(
        f"traces of runs of more than {_MOST_TRACES} measurements are not drawn here; fsjoule report page draws them"
    )


def show_run(loaded: LoadedRun, console: Console, *, wide: bool = False) -> None:
    """Print the tables of a run."""
    page = loaded.path / PAGE
    summary = summary_of(loaded)
    found = answer(summary, contests(loaded.measurements))
    page = page if page.exists() else None
    print_summary(console, summary, found, folder=loaded.path, page=page, wide=wide)


def summary_of(loaded: LoadedRun) -> Summary:
    return summarise(loaded.run, loaded.measurements, loaded.damaged, loaded.altered())


def print_summary(
    console: Console,
    summary: Summary,
    answer: RunAnswer | None = None,
    *,
    folder: Path | None = None,
    page: Path | None = None,
    wide: bool = False,
) -> None:
    """Print the answer, the tables of a run, what was left out and why, the paths of folder and page, and the answer.

    `wide` shows all columns, and what is about the run: the kernel's path without the card, published figures, times.
    """
    for renderable in _renderables(summary, answer, room_of(console, wide=wide)):
        console.print(renderable, crop=False)
    for name, path in (("run folder", folder), ("report", page)):
        if path is not None:
            # Paths are for copying: neither wrapped nor coloured.
            console.print(f"{name:<11} {path}", soft_wrap=True, markup=False, highlight=False)
    if answer is not None and answer.lines:
        console.print(_headline_of(answer, summary))  # the tables may have scrolled the first one away


def _renderables(summary: Summary, answer: RunAnswer | None, room: int | None) -> Iterator[ConsoleRenderable]:
    if answer is not None:
        yield from _answer(answer, summary, room)
    yield from _layers(summary, room)
    yield from _head(summary)
    if summary.suite is not None:
        # Its charts take longer to import than most runs to show.
        from fsjoule.report.publications import suite_page  # noqa: PLC0415

        if (suite := suite_page(summary)) is not None:
            yield from _suite(suite, room)
    if summary.fio:
        yield from table_lines(fio_table(summary), room)
        yield footnote(fio_footnote(summary))
    if summary.timed:
        yield from table_lines(timed_table(summary), room)
    yield from _states_and_images(summary, room)
    if kernels := kernel_tables(summary):
        for table in kernels:
            yield from table_lines(table, room)
        yield footnote(FOOTNOTE)
    if room is None:
        yield from _about(summary)
    yield from _left_out(summary)


def _answer(answer: RunAnswer, summary: Summary, room: int | None) -> Iterator[ConsoleRenderable]:
    if answer.headline:
        yield _headline_of(answer, summary)
    if answer.lines:
        yield from table_lines(answer_table(answer, simulated=summary.simulated), room)
        yield footnote(RULE)


def _states_and_images(summary: Summary, room: int | None) -> Iterator[ConsoleRenderable]:
    for table, note in ((held_table(summary), FOOTNOTE), (images_table(summary), IMAGES_FOOTNOTE)):
        if table is not None:
            yield from table_lines(table, room)
            yield footnote(note)


def _layers(summary: Summary, room: int | None) -> Iterator[ConsoleRenderable]:
    if (layers := layers_table(summary)) is not None:
        yield from table_lines(layers, room)
    if (crashes := crash_table(summary)) is not None:
        yield from table_lines(crashes, room)
        yield footnote(crash_footnote(summary))
        if causes := crash_causes(summary):
            yield named_lines("First losses", causes)
        if costs := crash_costs(summary):
            yield named_lines("Median of a mount and of a check of all states", costs)


def _headline_of(answer: RunAnswer, summary: Summary) -> Text:
    text = Text(f"\n{answer.headline}", style="bold green")
    if summary.simulated:
        text.append("  simulated", style="bold yellow")
    return text


def _about(summary: Summary) -> Iterator[ConsoleRenderable]:
    """What is about the run, and not the answer."""
    projected = projected_table(summary)
    if projected is not None:
        yield from table_lines(projected, None)
        yield footnote(projected_footnote(summary))
    published = published_table(summary)
    if published is not None and summary.suite is None:
        yield from table_lines(published, None)
        yield footnote(f"published: {'; '.join(summary.sources)}. Ratio: measured over published.")
    if not summary.phases:
        return
    yield from table_lines(time_table(summary), None)
    if summary.board_on_s:
        on, share = seconds_text(summary.board_on_s), share_text(summary.utilisation)
        yield footnote(f"board utilisation: board on for {on}, measuring for {share} of it")


def _suite(suite: SuitePage, room: int | None) -> Iterator[ConsoleRenderable]:
    yield Text(f"\n{suite.source}", style="italic")
    for remark in suite.remarks:
        yield footnote(remark)
    for section in suite.sections:
        for table in section.tables:
            yield from table_lines(table, room)
        for note in section.notes if section.tables else ():
            yield footnote(note)
    if suite.statements:
        lines = [
            (Text(line.holds.value, TONES[line.tone]), "\n".join((line.text, *line.details)))
            for line in suite.statements
        ]
        yield named_lines(f"Statements: {suite.tally}", lines)
        from fsjoule.report.publications import NOTE  # noqa: PLC0415 - as above

        yield footnote(NOTE)
    if suite.doubts:
        yield named_lines("Published cells that do not follow from others", list(suite.doubts))


def _head(summary: Summary) -> Iterator[ConsoleRenderable]:
    yield _headline(summary)
    for name, said in emmc_facts(summary.run):
        yield footnote(f"{name}: {said}")


def _headline(summary: Summary) -> Text:
    run = summary.run
    board = run.board.name if run.board else "board"
    text = Text(f"\n{run.plan.suite} on {board}, {kernels_text(run)}", style="bold")
    if summary.simulated:
        text.append("  simulated", style="bold yellow")
    valid = summary.measured - len(summary.invalid)
    text.append(f"\n{summary.measured} of {len(run.plan.entries)} measurements taken, {valid} valid", style="not bold")
    if summary.damaged:
        text.append(f", {len(summary.damaged)} damaged and left out", style="red")
    if summary.samples.expected:
        text.append(f"; {samples_text(summary.samples)}", style="not bold")
    if run.labs:
        place, meters = ("places", "meters") if run.places else ("place", "meter")
        meter = f"; {meters} {run.meter_names}" if run.meters else ""
        mixed = "; figures are means over all places" if len(run.places) > 1 and run.meter is None else ""
        text.append(f"\n{place} {run.place_names}, exporter {run.exporter_names}{meter}{mixed}", style="not bold")
    if run.imported is not None:
        text.append(f"\n{run.imported.text}", style="bold yellow")
    if run.job is not None:
        pulled = "; pulled from its log, without traces" if run.job.pulled else ""
        text.append(f"\nLAVA {run.job.text}{pulled}", style="not bold")
    if run.status is RunStatus.ABORTED:
        text.append(f"\naborted: {run.abort_reason or 'no reason was recorded'}", style="bold red")
    if run.resumed_utc:
        text.append(f"\nresumed: {', '.join(run.resumed_utc)}", style="not bold")
    if run.ended_early:
        text.append(f"\nended early: {run.ended_early}", style="not bold")
    return text


def _left_out(summary: Summary) -> Iterator[ConsoleRenderable]:
    lines = [(f"{m.number:02d} {m.slug}", "; ".join(m.invalid_reasons)) for m in summary.invalid]
    if lines:
        yield named_lines(f"{len(lines)} invalid, not in any mean", lines, "red")
    if summary.damaged:
        yield named_lines(f"{len(summary.damaged)} damaged, left out", list(summary.damaged.items()), "red")
    if summary.altered:
        yield named_lines(ALTERED, list(summary.altered.items()), "red")
    if summary.remarks:
        numbers = [(", ".join(map(str, remark.numbers)), remark.text) for remark in summary.remarks]
        yield named_lines("Remarks", numbers, "yellow")


def to_json(summary: Summary, measurements: Sequence[Measurement]) -> str:
    """`run`, `answer` (which filesystem is better), `summary` (fio, timed, phases and so on) and `measurements`.

    Absent figures are null, never zero.
    """
    shown = asdict(summary)
    run = shown.pop("run")
    del shown["layers"]  # a script has the series
    shown["fio"] = [_row(row) for row in summary.fio]
    shown["timed"] = [_row(row) for row in summary.timed]
    shown["held"] = [_row(row) for row in summary.held]
    shown["invalid"] = [
        {"number": m.number, "slug": m.slug, "reasons": list(m.invalid_reasons)} for m in summary.invalid
    ]
    document: dict[str, object] = {
        "schema": SHOW_SCHEMA,
        "simulated": summary.simulated,
        "run": run,
        "answer": answer_document(summary, contests(measurements)),
        "summary": shown,
        "measurements": [{**asdict(m), "valid": m.valid} for m in measurements],
    }
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def _row(row: SummaryRow[FioWorkload] | SummaryRow[OperationWorkload] | SummaryRow[HeldWorkload]) -> dict[str, object]:
    """Figures have the names of the index's columns; those that the workload does not have are left out."""
    projected = row.projected and asdict(replace(row.projected, figures={}))
    if row.projected and projected:
        projected["figures"] = {metric.row.column: asdict(value) for metric, value in row.projected.figures.items()}
    document: dict[str, object] = asdict(replace(row, figures={}, uncertainties={}, projected=None))
    document["projected"] = projected
    del document["figures"], document["uncertainties"]
    for metric in metrics_of(row.workload):
        spread = row.figures.get(metric)
        document[metric.row.column] = spread and asdict(spread)
        if metric.row.uncertain:
            document[f"{metric.row.column}_uncertainty"] = row.uncertainties.get(metric)
    return document
