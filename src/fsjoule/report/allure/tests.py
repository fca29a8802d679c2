"""A run as Allure's tests: one per entry of its plan, measured or not, and one per fault.

A measurement's test has its files attached, its trace as a picture, the command that repeats it, and its
figures for the metrics tab, by a key that is the same in every build.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

from fsjoule.errors import ResultError
from fsjoule.host.inside import Listed
from fsjoule.host.plaintext import plain as plain_text
from fsjoule.model import REFERENCE_KERNEL, Fault, LabStep, Measurement, Planned, Run, RunStatus
from fsjoule.model.filesystem import content_of, title_of
from fsjoule.model.metrics import Metric, Use, figure_of, fio_metrics, held_metrics, timed_metrics
from fsjoule.model.series import Series
from fsjoule.report.allure.documents import (
    BUG,
    DAMAGED,
    INVALID,
    LAB,
    LAB_TRANSIENT,
    NOT_MEASURED,
    AllureMetric,
    AllureStatus,
    AllureStep,
    Attachment,
    Result,
)
from fsjoule.report.facts import measurement_facts, no_trace
from fsjoule.report.markdown import named_list, plain
from fsjoule.report.trace_chart import segments_of, trace_chart
from fsjoule.store.folder import CHECKSUMS_FILE, board_name, measurement_number
from fsjoule.store.profiles import PROFILE_FILE
from fsjoule.store.reader import LoadedRun
from fsjoule.store.schemas import STEPS_FILE, decode_steps

# A fio job's duration follows from its throughput, and its energy is shown per MiB.
_FIO: Final = fio_metrics(Use.ALLURE)
_HELD: Final = held_metrics(Use.ALLURE)
SHOWN: Final = (*_FIO, *timed_metrics(Use.ALLURE), *_HELD)

_SHORT: Final = 60  # the page cuts longer texts off
_LONGEST_ID: Final = 120

Keep = Callable[[str, bytes], None]
# Of the metrics tab: key -> title, unit, group, in the form of Allure's configuration. Not `better`: Allure would
# colour any change since the build before, and a colour without an error rate contradicts verdicts.
Legend = dict[str, dict[str, str]]


def run_tests(
    loaded: LoadedRun, keep: Keep | None = None, *, numbers: Container[int] | None = None
) -> Iterator[Result]:
    """The tests of a run, or of the plan's entries with certain numbers.

    `keep` takes their attachments, by name; without it, as for history, tests have none. A second attempt's measurement
    follows the first one's fault, which Allure then shows as a retry.
    """
    run = loaded.run
    measured = {measurement.number: measurement for measurement in loaded.measurements}
    damaged = {measurement_number(name): why for name, why in loaded.damaged.items()}
    faults_of: dict[int, list[Fault]] = {}
    for fault in run.faults:
        faults_of.setdefault(fault.number, []).append(fault)
    for entry in run.plan.entries:
        if numbers is not None and entry.number not in numbers:
            continue
        faults = faults_of.pop(entry.number, [])
        for number, fault in enumerate(faults, start=1):
            yield _fault_test(loaded, entry, fault, number)
        if entry.number in measured:
            yield _measured_test(loaded, entry, measured[entry.number], keep)
        elif entry.number in damaged:
            why = damaged[entry.number].replace(f"{loaded.path}/", "")
            yield _without(loaded, entry, AllureStatus.BROKEN, f"{DAMAGED}: {why}")
        elif not faults:
            yield _without(loaded, entry, AllureStatus.SKIPPED, f"{NOT_MEASURED}: {_why_not(run)}")


def kernel_label(run: Run, label: str) -> str:
    """The label of a kernel with its own history (one of several in a run, or a reference), else empty."""
    return label if len(run.plan.kernels) > 1 or run.versions.get("kernel_role") == REFERENCE_KERNEL else ""


def milliseconds(utc: str) -> int:
    """A run folder's time as milliseconds since 1970, for Allure."""
    return round(datetime.fromisoformat(utc).timestamp() * 1000)


def _measured_test(loaded: LoadedRun, entry: Planned, measurement: Measurement, keep: Keep | None) -> Result:
    m, run = measurement, loaded.run
    bare = _test(loaded, entry, m, uuid_of(run, f"{m.number:02d}"))
    start_ms = milliseconds(m.started_utc)
    attachments, steps, problems = (), (), ()
    if keep is not None:
        attached = attach(loaded, m, bare.uuid, keep)
        steps, step_problems = _lab_steps(loaded, m.number)
        attachments, problems = attached.attachments, (*attached.problems, *step_problems)
    ends_ms = [start_ms + round(1000 * (m.duration_s or m.window_s or 0.0)), *(step.stop_ms for step in steps)]
    series = m.series
    return replace(
        bare,
        status=AllureStatus.PASSED if m.valid else AllureStatus.BROKEN,
        message="" if m.valid else f"{INVALID}: {'; '.join(m.invalid_reasons)}",
        start_ms=start_ms,
        stop_ms=max(ends_ms),
        description=_description(m, problems),
        steps=steps,
        attachments=attachments,
        trend=urlencode({"board": series.board, "fs": series.filesystem, "workload": series.workload}),
        metrics=metrics_of(m, kernel_label(run, m.kernel)),
    )


def _fault_test(loaded: LoadedRun, entry: Planned, fault: Fault, attempt: int) -> Result:
    kind = BUG if fault.bug else LAB_TRANSIENT if fault.transient else LAB
    first, _, rest = fault.what.partition("\n")
    hint = f"\nhint: {fault.hint}" if fault.hint else ""
    return replace(
        _test(loaded, entry, None, uuid_of(loaded.run, f"{entry.number:02d}-fault-{attempt}")),
        status=AllureStatus.BROKEN,
        message=f"{kind}: {first}",
        trace=f"{rest}{hint}".strip("\n"),
        start_ms=milliseconds(fault.started_utc),
        stop_ms=milliseconds(fault.ended_utc),
        steps=nested(fault.steps),
    )


def _without(loaded: LoadedRun, entry: Planned, status: AllureStatus, message: str) -> Result:
    """The test of an entry without a measurement."""
    bare = _test(loaded, entry, None, uuid_of(loaded.run, f"{entry.number:02d}-none"))
    return replace(bare, status=status, message=message)


def _why_not(run: Run) -> str:
    if run.status is RunStatus.COMPLETE:
        return run.ended_early or "it was not chosen"
    return run.abort_reason or f"the run is {run.status.value}"


def _test(loaded: LoadedRun, entry: Planned, measurement: Measurement | None, uuid: str) -> Result:
    """The common part of all tests of an entry, which does not depend on whether the board has booted."""
    run = loaded.run
    board = measurement.series.board if measurement else board_name(run, loaded.path)
    releases = {kernel.label: kernel.release for kernel in run.kernels}
    releases |= {label: facts.kernel_release for label, facts in run.boards.items()}
    release = releases.get(entry.kernel, entry.kernel)
    several = kernel_label(run, entry.kernel)
    what = entry.workload.label
    storage = f" on {entry.storage}" if entry.storage != "card" else ""
    name = f"{title_of(entry.filesystem)} {what}{storage}" + (f", kernel {several}" if several else "")
    name += f", repetition {entry.repetition}" if run.plan.repeat > 1 else ""
    # The size belongs to the identity: it depends on board and size factor, and so do the figures.
    size = str(entry.workload.size_bytes or "")
    slug = replace(entry, filesystem=content_of(entry.filesystem)).slug
    identity = "/".join(filter(None, (board, entry.suite, entry.provision.value, slug, size, several)))
    labels = [
        ("board", board),
        ("kernel", release),
        ("filesystem", title_of(entry.filesystem)),
        ("suite", entry.suite),
        ("framework", "fsjoule"),
    ]
    if run.simulated:
        labels.append(("tag", "simulated"))
    start_ms = milliseconds(run.started_utc)
    return Result(
        uuid=uuid,
        identity=identity,
        name=name,
        status=AllureStatus.PASSED,
        start_ms=start_ms,
        stop_ms=start_ms,
        labels=tuple(labels),
        parameters=(("repetition", str(entry.repetition)),),
        about=(("kernel", release), ("run", run.run_id), ("number", str(entry.number))),
    )


def uuid_of(run: Run, rest: str) -> str:
    """A name that is the same in every report and can name a file."""
    name = f"{run.run_id}-{rest}"
    if len(name) > _LONGEST_ID:
        name = f"{name[: _LONGEST_ID // 2]}-{hashlib.sha256(name.encode()).hexdigest()[:16]}"
    return re.sub(r"[^A-Za-z0-9._-]", "_", name)


def _description(measurement: Measurement, problems: Sequence[str]) -> str:
    """Every known figure in Markdown: a table of short texts, and a list of longer ones."""
    key = Series(measurement.series, measurement.simulated).key
    facts = [("series", key), *measurement_facts(measurement)]
    rows = [f"| {plain(name)} | {plain(text)} |" for name, text in facts if len(text) <= _SHORT]
    rest = named_list([(name, text) for name, text in facts if len(text) > _SHORT])
    rest += [f"- {plain(text)}" for text in (*measurement.notes, *problems)]
    head = ["| figure | simulated |" if measurement.simulated else "| figure | |", "|---|---|"]
    return "\n".join([*head, *rows, "", *rest]) + "\n"


def _lab_steps(loaded: LoadedRun, number: int) -> tuple[tuple[AllureStep, ...], tuple[str, ...]]:
    """The steps of labgrid for a measurement, and problems of their record."""
    try:
        content = loaded.attachment(number, STEPS_FILE)
        return ((), ()) if content is None else (nested(decode_steps(content)), ())
    except ResultError as error:
        return (), (error.what,)


def nested(steps: Sequence[LabStep]) -> tuple[AllureStep, ...]:
    """A tree of steps from a flat list with levels."""
    found: list[AllureStep] = []
    at = 0
    while at < len(steps):
        first = steps[at]
        end = next((i for i in range(at + 1, len(steps)) if steps[i].level <= first.level), len(steps))
        found.append(
            AllureStep(
                name=_step_name(first),
                status=AllureStatus.BROKEN if first.error else AllureStatus.PASSED,
                start_ms=first.started_utc_ms,
                stop_ms=first.started_utc_ms + first.duration_ms,
                message=first.error,
                parameters=tuple(first.args.items()),
                steps=nested(steps[at + 1 : end]),
            )
        )
        at = end
    return tuple(found)


def _step_name(step: LabStep) -> str:
    """`LabgridShell: run: mount -t ext4 ...`, shortened to one line."""
    told = next(iter(step.args.values()), "")
    told = told if len(told) <= _SHORT else f"{told[: _SHORT - 1]}…"
    return ": ".join(filter(None, (step.source, step.title, told)))


_TYPES: Final = {".json": "application/json", ".log": "text/plain", ".txt": "text/plain"}
# The report shows these in its own way.
_NOT_ATTACHED: Final = frozenset({"measurement.json", "trace.parquet", PROFILE_FILE, STEPS_FILE, CHECKSUMS_FILE})
_TRACE_WIDTH: Final = 860
# The command for one measurement sets these options itself, or they name a path on the other machine.
_LEFT_OUT: Final = ("--seed", "--results", "--resume", "--alluredir", "-k")
_CLEAN: Final = "--clean-alluredir"


@dataclass(frozen=True, slots=True)
class Attached:
    attachments: tuple[Attachment, ...]
    problems: tuple[str, ...]


def attach(loaded: LoadedRun, measurement: Measurement, uuid: str, keep: Callable[[str, bytes], None]) -> Attached:
    """Pass all files of a measurement to `keep`, with their names in the results."""
    attachments: list[Attachment] = []
    problems: list[str] = []
    contents: dict[str, bytes] = {}

    def add(name: str, kind: str, content: bytes, *, own: bool = False) -> None:
        # A browser would run a run folder's .html or .svg as a page of the report's own address.
        suffix = Path(name).suffix if own or Path(name).suffix in _TYPES else ""
        source = f"{uuid}-{len(attachments)}-attachment{suffix}"
        keep(source, content)
        attachments.append(Attachment(name, kind, source))

    try:
        drawn = _trace(loaded, measurement)
    except ResultError as error:
        problems.append(f"no power trace: {error.what}")
    else:
        if drawn:
            add("power trace.svg", "image/svg+xml", drawn.encode(), own=True)
        else:
            problems.append(no_trace(measurement))
    try:
        listed = loaded.files(measurement.number)
    except ResultError as error:
        listed = Listed((), (), {"its files": error.what})
    problems += [f"{name} is not attached: {why}" for name, why in listed.refused.items()]
    for name in listed.files:
        if name in _NOT_ATTACHED:
            continue
        try:
            content = loaded.attachment(measurement.number, name) or b""
        except ResultError as error:
            problems.append(f"{name} is not attached: {error.what}")
            continue
        contents[name] = content
        add(name, _TYPES.get(Path(name).suffix, "application/octet-stream"), content)
    console = contents.get("console.log", b"")
    add(
        "repeat it.sh",
        "text/plain",
        _repeat_script(loaded.run, measurement, plain_text(console.decode(errors="replace"))).encode(),
        own=True,
    )
    return Attached(tuple(attachments), tuple(problems))


def _repeat_script(run: Run, measurement: Measurement, console: str) -> str:
    """How to repeat a measurement: the command on the host, and as comments the board's commands."""
    command = run.command
    if run.by_bench:
        entry = next((each for each in run.plan.entries if each.number == measurement.number), None)
        chosen = ("-k", run.plan.test_id(entry)) if entry else ()
        command = (*_without_options(command), "--seed", str(run.plan.seed), *chosen)
    lines = ["# On the host; the seed gives the same order, boots and data.", shlex.join(command)]
    asked = [line.removeprefix("# ") for line in console.splitlines() if line.startswith("# ")]
    if asked:
        lines += ["", "# The board's commands:", *(f"#   {line}" for line in asked)]
    return "\n".join(lines) + "\n"


def _without_options(command: tuple[str, ...]) -> Iterator[str]:
    words = iter(command)
    for word in words:
        if word in _LEFT_OUT:
            next(words, None)
        elif word != _CLEAN and not word.startswith(tuple(f"{option}=" for option in _LEFT_OUT)):
            yield word


def _trace(loaded: LoadedRun, measurement: Measurement) -> str:
    trace = loaded.trace(measurement.number)
    if trace is None or not len(trace.ticks):
        return ""
    # The chart is drawn for a light page, but Allure also has a dark one.
    drawn = trace_chart(measurement, trace, width=_TRACE_WIDTH, segments=segments_of(measurement, loaded.measurements))
    return drawn.replace("<svg ", '<svg style="background:#fff" ', 1)


def metrics_of(measurement: Measurement, label: str) -> tuple[AllureMetric, ...]:
    """The figures of a valid measurement; `label` is the kernel's if runs have several, else empty."""
    return tuple(AllureMetric(_key(measurement, metric, label), value) for metric, value in _figures(measurement))


def legend_of(measurement: Measurement, label: str) -> Legend:
    """How to read the same figures."""
    return {_key(measurement, metric, label): _row(measurement, metric, label) for metric, _ in _figures(measurement)}


def groups_of(legend: Legend) -> dict[str, dict[str, str]]:
    return {row["group"]: {"title": row["group"]} for row in legend.values()}


def _figures(measurement: Measurement) -> list[tuple[Metric, float]]:
    if not measurement.valid or measurement.outcome is not None:
        return []
    chosen = _HELD if measurement.held else SHOWN if measurement.throughput_mib_per_s is None else _FIO
    figures = [(metric, figure_of(measurement, metric)) for metric in chosen]
    return [(metric, figure * _scale(metric)[0]) for metric, figure in figures if figure is not None]


def _scale(metric: Metric) -> tuple[float, str]:
    return metric.row.small or (1.0, metric.unit)


def _key(measurement: Measurement, metric: Metric, label: str) -> str:
    """The series' key, also for `fsjoule trend --series`, with kernel and metric."""
    series = Series(measurement.series, measurement.simulated)
    return ".".join(filter(None, (series.key, label, metric.value)))


def _row(measurement: Measurement, metric: Metric, label: str) -> dict[str, str]:
    series = measurement.series
    filesystem = f"{series.filesystem_title}, kernel {label}" if label else series.filesystem_title
    simulated = " (simulated)" if measurement.simulated else ""
    better = "more is better" if metric.more_is_better else "less is better"
    return {
        "title": f"{series.filesystem_title} {measurement.workload.label}, {metric.row.name} ({better})",
        "unit": _scale(metric)[1],
        "group": f"{series.board}, {series.suite}{simulated}: {filesystem}",
    }
