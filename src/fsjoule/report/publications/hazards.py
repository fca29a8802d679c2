"""Which promised files filesystems kept: after power cuts, and on a device that damages writes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from fsjoule.model import FileFate
from fsjoule.report.numbers import ABSENT
from fsjoule.report.publications.view import SuiteSection, View, heads, measured, table, words
from fsjoule.report.summary import OutcomeRow
from fsjoule.report.table import Cell, Column, Filled, Tone
from fsjoule.suites.published.cells import Quantity
from fsjoule.suites.published.measured import RepetitionRow

_NOTES: Final = (
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
    return _section(view, rows, "power-loss", "Power loss", "mounted")


def dm_flakey(view: View, rows: Sequence[RepetitionRow]) -> SuiteSection:
    return _section(view, rows, "dm-flakey", "Damaged data (dm-flakey)", "damage")


def _section(view: View, rows: Sequence[RepetitionRow], part: str, title: str, head: str) -> SuiteSection:
    found = {(outcome.series, outcome.kernel): outcome for outcome in view.summary.outcomes}
    outcomes = [found[row.series, row.kernel] for row in rows]
    heading = heads(view, rows, words(rows, head, lambda row: row.workload.slug.removeprefix(f"{part}-")))
    tables = (
        table(view, "Iterations: mounts and checks", [*heading, *_mount_columns(outcomes), *_effort(rows)]),
        table(view, "Files whose sync had returned", [*heading, *_file_columns(outcomes)]),
    )
    return SuiteSection(title, part, tables if rows else (), (), (*_NOTES, view.footnote(part)))


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
