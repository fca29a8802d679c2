"""The parts of "Filesystem considerations for embedded devices", each in its own section."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from fsjoule.model import FileFate, FioWorkload
from fsjoule.report.numbers import ABSENT, decimals_for, mean_text, sd_text
from fsjoule.report.publications.view import (
    Drawing,
    SuiteSection,
    View,
    bars,
    beside,
    drawn_by,
    heads,
    jobs_of,
    label_of,
    lines,
    measured,
    pattern_of,
    pivot,
    table,
    words,
)
from fsjoule.report.summary import OutcomeRow
from fsjoule.report.table import Cell, Column, Filled, Table, Tone
from fsjoule.suites.published.cells import Quantity
from fsjoule.suites.published.measured import RepetitionRow


def sections(view: View) -> list[SuiteSection]:
    return [_PARTS[part](view, view.part(part)) for part in view.suite.parts if part in _PARTS]


def _section(
    view: View,
    part: str,
    title: str,
    tables: Sequence[Table],
    *,
    charts: Sequence[Drawing] = (),
    notes: Sequence[str] = (),
) -> SuiteSection:
    shown = tuple(table for table in tables if table.rows)
    return SuiteSection(title, part, shown, tuple(charts), (*notes, view.footnote(part)))


def _columns(rows: Sequence[RepetitionRow], *quantities: Quantity) -> list[Filled]:
    """Columns of the quantities that any row has."""
    return [measured(rows, quantity) for quantity in quantities if any(row.spread(quantity) for row in rows)]


def _bandwidth(view: View, rows: Sequence[RepetitionRow]) -> SuiteSection:
    columns = _columns(rows, Quantity.THROUGHPUT, Quantity.BUS, Quantity.ENERGY)
    named = words(rows, "operation", lambda row: f"{pattern_of(row)} {_kind(row)}")
    shown = table(view, "Bandwidth", [*heads(view, rows, named), *columns])
    charts = drawn_by(
        rows, _kind, lambda kind, of: bars(view, f"Bandwidth, {kind}", of, Quantity.THROUGHPUT, pattern_of)
    )
    files = sorted({row.workload.files for row in rows if isinstance(row.workload, FioWorkload)})
    notes = (
        f"files here: {', '.join(map(str, files))}",
        "bus busy: the share of the window in which the device had a request",
        "32-bit Linux 6.1 does not count that in the first five minutes after a boot",
    )
    return _section(view, "bandwidth", "Bandwidth", [shown], charts=charts, notes=notes)


def _kind(row: RepetitionRow) -> str:
    """The common part of a chart's four patterns."""
    return row.workload.access


def _mixed(view: View, rows: Sequence[RepetitionRow]) -> SuiteSection:
    by_jobs = [
        pivot(
            view,
            title,
            rows,
            quantity,
            head=("operation", pattern_of),
            across=jobs_of,
            name=lambda jobs: "1 thread" if jobs == 1 else f"{jobs} threads",
            growth=growth,
        )
        for title, quantity, growth in (
            ("Bandwidth against threads", Quantity.THROUGHPUT, "scaling"),
            ("Energy against threads", Quantity.ENERGY, ""),
        )
    ]
    charts = drawn_by(
        rows,
        pattern_of,
        lambda pattern, of: lines(
            view, f"Bandwidth against threads, {pattern}", of, Quantity.THROUGHPUT, ("threads", jobs_of)
        ),
    )
    notes = ("scaling: the most threads over the fewest",)
    return _section(view, "mixed", "Several threads", by_jobs, charts=charts, notes=notes)


def _supports(view: View, rows: Sequence[RepetitionRow]) -> SuiteSection:
    def of_device(title: str, quantity: Quantity) -> Table:
        return pivot(
            view,
            title,
            rows,
            quantity,
            head=("operation", label_of),
            across=lambda row: row.series.storage,
            name=str,
            by_storage=True,
        )

    tables = [
        of_device("Bandwidth by storage device", Quantity.THROUGHPUT),
        of_device("Energy by storage device", Quantity.ENERGY),
    ]
    charts = drawn_by(
        rows,
        pattern_of,
        lambda pattern, of: bars(
            view, f"Bandwidth by storage device, {pattern}", of, Quantity.THROUGHPUT, lambda row: row.series.storage
        ),
    )
    return _section(view, "supports", "Storage devices", tables, charts=charts)


def _boot(view: View, rows: Sequence[RepetitionRow]) -> SuiteSection:
    columns = _columns(rows, Quantity.TIME, Quantity.VARIATION, Quantity.OPERATION_ENERGY)
    shown = table(view, "Boot", [*heads(view, rows), *columns], groups=[""] * len(rows))
    notes = (
        "time from the root mounted to the console's prompt",
        "maximum variation, as we read it: the longest less the shortest over the mean",
    )
    return _section(view, "boot", "Boot", [shown], charts=[_times(view, "Boot", rows)], notes=notes)


def _mount(view: View, rows: Sequence[RepetitionRow]) -> SuiteSection:
    columns = _columns(rows, Quantity.TIME, Quantity.OPERATION_ENERGY)
    shown = table(view, "Mount", [*heads(view, rows, words(rows, "operation", label_of)), *columns])
    return _section(view, "mount", "Mount", [shown], charts=[_times(view, "Mount", rows)])


def _times(view: View, title: str, rows: Sequence[RepetitionRow]) -> Drawing:
    return bars(view, f"{title}: time", rows, Quantity.TIME, label_of)


def _kthreads(view: View, rows: Sequence[RepetitionRow]) -> SuiteSection:
    named = [(row, name) for row in rows for name in sorted(row.threads_s, key=lambda name: -row.threads_s[name].mean)]
    those = [row for row, _ in named]
    spreads = [row.threads_s[name] for row, name in named]
    decimals = decimals_for(spreads)
    per_thread = [
        *heads(view, those, with_n=False),
        (Column("kernel thread", is_figure=False, head=True), [Cell(name) for _, name in named]),
        (Column("CPU time", "s"), [Cell(mean_text(s, decimals), sd_text(s, decimals)) for s in spreads]),
    ]
    of_job = [
        *heads(view, rows, words(rows, "operation", label_of)),
        *_columns(rows, Quantity.THROUGHPUT, Quantity.ENERGY),
    ]
    tables = [table(view, "CPU time of kernel threads", per_thread), table(view, "The work that they did", of_job)]
    notes = ("threads without CPU time are not shown",)
    return _section(view, "kthreads", "Kernel threads", tables, notes=notes)


def _cpu(view: View, rows: Sequence[RepetitionRow]) -> SuiteSection:
    columns = _columns(rows, Quantity.CPU, Quantity.PER_CPU_SECOND, Quantity.PER_JOULE, Quantity.THROUGHPUT)
    shown = table(view, "CPU and efficiency", [*heads(view, rows, words(rows, "operation", label_of)), *columns])
    notes = (
        "CPU: fio's own processes, user and system, over the duration of its I/O",
        "per CPU second: of all CPU time of the board meanwhile; per joule: of gross energy",
    )
    return _section(view, "cpu", "CPU", [shown], notes=notes)


def _mkfs(view: View, rows: Sequence[RepetitionRow]) -> SuiteSection:
    columns = [
        *heads(view, rows),
        *beside(view, rows, Quantity.TOTAL, most=0),
        *beside(view, rows, Quantity.USED, most=2),
        *beside(view, rows, Quantity.KERNEL_THREADS, most=0),
        *_columns(rows, Quantity.TIME, Quantity.OPERATION_ENERGY),
    ]
    notes = ("the publication's partition had about 1 GB: space compares only for partitions of similar size",)
    shown = table(view, "Space when empty, and kernel threads", columns, groups=[""] * len(rows))
    return _section(view, "mkfs", "mkfs", [shown], notes=notes)


def _fsck(view: View, rows: Sequence[RepetitionRow]) -> SuiteSection:
    columns = [
        *heads(view, rows),
        *(
            filled
            for quantity in (Quantity.REAL, Quantity.SYS, Quantity.USER)
            for filled in beside(view, rows, quantity)
        ),
        *_columns(rows, Quantity.OPERATION_ENERGY),
    ]
    shown = table(view, "fsck of a clean filesystem", columns, groups=[""] * len(rows))
    return _section(
        view, "fsck", "fsck", [shown], charts=[bars(view, "fsck: real time", rows, Quantity.REAL, label_of)]
    )


# Which promised files filesystems kept: after power cuts, and on a device that damages writes.
_HAZARD_NOTES: Final = (
    "failed: a file whose sync had returned is not intact, or the filesystem cannot be mounted for writing",
    "rate: where the share of failures lies (Clopper, Pearson; 95 %)",
    "kernel warned: it logged a message at level warning or above between mount and unmount",
    "unclean: checks that found faults; repaired: repairs after which the filesystem could be mounted",
    "detected: damaged, and reading it raises an error; refused: its filesystem cannot be mounted, even after a repair",
    "silent: damaged, but reading it raises no error; zeroed: silent, and mostly zeros or too short",
)

# Damage that a reader notices is less bad.
_TONES: Final = {FileFate.INTACT: Tone.PLAIN, FileFate.DETECTED: Tone.DOUBT, FileFate.REFUSED: Tone.DOUBT}


def power_loss(view: View, rows: Sequence[RepetitionRow]) -> SuiteSection:
    return _hazard(view, rows, "power-loss", "Power loss", "mounted")


def dm_flakey(view: View, rows: Sequence[RepetitionRow]) -> SuiteSection:
    return _hazard(view, rows, "dm-flakey", "Damaged data (dm-flakey)", "damage")


def _hazard(view: View, rows: Sequence[RepetitionRow], part: str, title: str, head: str) -> SuiteSection:
    found = {(outcome.series, outcome.kernel): outcome for outcome in view.summary.outcomes}
    outcomes = [found[row.series, row.kernel] for row in rows]
    heading = heads(view, rows, words(rows, head, lambda row: row.workload.slug.removeprefix(f"{part}-")))
    tables = (
        table(view, "Iterations: mounts and checks", [*heading, *_mount_columns(outcomes), *_effort(rows)]),
        table(view, "Files whose sync had returned", [*heading, *_file_columns(outcomes)]),
    )
    return SuiteSection(title, part, tables if rows else (), (), (*_HAZARD_NOTES, view.footnote(part)))


def _counts(rows: Sequence[OutcomeRow], name: str, get: Callable[[OutcomeRow], int], tone: Tone = Tone.PLAIN) -> Filled:
    return Column(name), [Cell(str(get(row)), tone=tone if get(row) else Tone.PLAIN) for row in rows]


def _shares(rows: Sequence[OutcomeRow], name: str, get: Callable[[OutcomeRow], tuple[int, int]]) -> Filled:
    return Column(name), [Cell(f"{get(row)[0]} of {get(row)[1]}" if get(row)[1] else ABSENT) for row in rows]


def _mount_columns(rows: Sequence[OutcomeRow]) -> list[Filled]:
    rates = [f"{100 * row.rate[0]:.1f} to {100 * row.rate[1]:.1f}" if row.valid else ABSENT for row in rows]
    return [
        _counts(rows, "failed", lambda row: row.failed, Tone.BAD),
        (Column("rate", "%", joins=True), [Cell(rate) for rate in rates]),
        _counts(rows, "unmountable", lambda row: row.unmountable, Tone.BAD),
        _counts(rows, "read-only", lambda row: row.read_only, Tone.BAD),
        _counts(rows, "kernel warned", lambda row: row.complained),
        _shares(rows, "unclean", lambda row: (row.unclean, row.checked)),
        _shares(rows, "repaired", lambda row: (row.repaired, row.repairs)),
    ]


def _effort(rows: Sequence[RepetitionRow]) -> list[Filled]:
    """Time and energy of the mount afterwards, where measured."""
    if not any(row.spread(Quantity.TIME) for row in rows):
        return []
    energy, energies = measured(rows, Quantity.OPERATION_ENERGY, "its energy", most=0)
    return [measured(rows, Quantity.TIME, "mount"), (replace(energy, joins=True), energies)]


def _file_columns(rows: Sequence[OutcomeRow]) -> list[Filled]:
    return [
        _counts(rows, "files", lambda row: row.promised),
        *(_counts(rows, fate.value, partial(_with_fate, fate), _TONES.get(fate, Tone.BAD)) for fate in FileFate),
    ]


def _with_fate(fate: FileFate, row: OutcomeRow) -> int:
    return row.files.get(fate, 0)


_PARTS: Final[dict[str, Callable[[View, Sequence[RepetitionRow]], SuiteSection]]] = {
    "bandwidth": _bandwidth,
    "mixed": _mixed,
    "supports": _supports,
    "boot": _boot,
    "mount": _mount,
    "kthreads": _kthreads,
    "cpu": _cpu,
    "mkfs": _mkfs,
    "fsck": _fsck,
    "power-loss": power_loss,
    "dm-flakey": dm_flakey,
}
