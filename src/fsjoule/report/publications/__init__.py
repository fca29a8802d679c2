"""A run of a publication's suite in the publication's own form: sections, statements, and doubtful cells.

A publication can have sections of its own; `plain_sections` gives those of the others: a section per part, published
figures beside measured ones. `suite_page` collects them for the terminal and the page.
"""

from __future__ import annotations

import pkgutil
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from fsjoule.model import FioWorkload, TimedWorkload
from fsjoule.report.numbers import decimals_for, mean_text, sd_text
from fsjoule.report.publications.view import SuiteSection, View, bars, beside, heads, label_of, table, words
from fsjoule.report.summary import Summary
from fsjoule.report.table import Tone
from fsjoule.statistics.spread import Proportion, Spread
from fsjoule.suites import SUITES
from fsjoule.suites.published.catalogue import PUBLICATIONS
from fsjoule.suites.published.cells import FigureCell, Found, Quantity
from fsjoule.suites.published.doubts import Doubt
from fsjoule.suites.published.measured import Told, part_of
from fsjoule.suites.published.statements import Holds, Reading, StatementAnswer, StatementSource

NOTE: Final = (
    "A statement holds if in each pair one figure is above the other at 5 % (Welch's t test, one-sided). It does not "
    "hold if one is below at 5 % over the number of pairs. Otherwise it is not decided. Single figures are compared as "
    "they are. Events that never or sometimes happen are counted, with the interval (95 %) of their share"
)
_WHOSE: Final = {
    StatementSource.SAID: "the publication says so",
    StatementSource.TABLE: "its tables say so",
    StatementSource.OURS: "our expectation; the publication's figures for it are not among our data",
}
_TONES: Final = {Holds.YES: Tone.GOOD, Holds.NO: Tone.BAD, Holds.UNDECIDED: Tone.DOUBT}
_MOST_MISSING: Final = 4


@dataclass(frozen=True, slots=True)
class StatementLine:
    """A statement for display. `details` are this run's findings and the published figures."""

    part: str
    holds: Holds
    tone: Tone
    text: str
    details: tuple[str, ...]


def _statement_lines(view: View) -> list[StatementLine]:
    """One line per statement, storage device and kernel, in the publication's order."""
    several_storages = len({told.storage for told in view.suite.statements}) > 1
    lines: list[StatementLine] = []
    for told in view.suite.statements:
        where = [told.storage] if several_storages and told.storage else []
        where += [told.kernel] if view.several_kernels else []
        text = f"{told.text} ({', '.join(where)})" if where else told.text
        details = (f"here: {_finding_text(told.finding, told.text)}", *_published(told))
        lines.append(StatementLine(told.part, told.finding.holds, _TONES[told.finding.holds], text, details))
    return lines


def _published(told: Told) -> list[str]:
    if not told.published:
        return [_WHOSE[told.origin]]
    texts = [
        f"{f'{hardware}: ' if hardware else ''}{'' if f.holds is Holds.YES else f'{f.holds.value}: '}"
        f"{_finding_text(f, told.text)}"
        for hardware, f in told.published.items()
    ]
    contradicted = any(finding.holds is Holds.NO for finding in told.published.values())
    whose = "the publication says so, but its tables do not" if contradicted else _WHOSE[told.origin]
    return [f"published: {'; '.join(texts)} ({whose})"]


def _finding_text(finding: StatementAnswer, statement: str) -> str:
    """The figures that decide: `3 of 12 pairs; randread 16 KiB: ext4 12.03 ± 0.33, btrfs 13.04 ± 0.82 MiB/s`."""
    if finding.lacking:
        missing = [reading for reading in finding.deciding if reading.found is None]
        named = ", ".join(_full(reading.cell) for reading in missing[:_MOST_MISSING])
        more = len(missing) - _MOST_MISSING
        return f"not measured: {named}{f' and {more} more' if more > 0 else ''}"
    several = finding.pairs > 1 and not any(isinstance(reading.found, Proportion) for reading in finding.deciding)
    agreeing = f"{finding.agreeing} of {finding.pairs} pairs; " if several else ""
    where = _where(finding.deciding, statement) if several else ""
    least = "closest: " if several and finding.holds is Holds.YES else ""
    single = ", single figures" if finding.single else ""
    return f"{agreeing}{least}{where}{_readings(finding.deciding)}{single}"


def _readings(readings: Sequence[Reading]) -> str:
    spreads = [reading.found for reading in readings if isinstance(reading.found, Spread)]
    counts = all(spread.sd is None and spread.mean.is_integer() for spread in spreads)
    decimals = 0 if counts else decimals_for(spreads)
    names = _short([reading.cell for reading in readings])
    parts = [f"{name} {_found(r.found, decimals)}".strip() for name, r in zip(names, readings, strict=True)]
    units = dict.fromkeys(reading.cell.quantity.unit for reading in readings if isinstance(reading.found, Spread))
    return f"{', '.join(parts)} {' '.join(units)}".rstrip()


def _where(readings: Sequence[Reading], statement: str) -> str:
    """The filesystem and workload that all cells share, unless the statement names them."""
    cells = [reading.cell for reading in readings]
    if len(cells) == 1:
        return ""
    filesystems, workloads = {cell.filesystem for cell in cells}, {cell.workload for cell in cells} - {cells[0].part}
    shared = [each.pop() for each in (filesystems, workloads) if len(each) == 1]
    named = [text for text in map(_workload, shared) if text not in statement]
    return f"{' '.join(named)}: " if named else ""


def _workload(name: str) -> str:
    """`read-16k` as `read 16 KiB`; the publication's own names unchanged."""
    return re.sub(r"^(\w+)-(\d+)k$", r"\1 \2 KiB", name)


def _found(found: Found | None, decimals: int) -> str:
    if found is None:
        return "none"
    if isinstance(found, Proportion):
        # `2 of 15 (2 to 40 %)`, with the interval of the share.
        low, high = found.interval()
        return f"{found.count} of {found.n} ({100 * low:.0f} to {100 * high:.0f} %)"
    return f"{mean_text(found, decimals)} {sd_text(found, decimals)}".rstrip()


def _short(cells: Sequence[FigureCell]) -> list[str]:
    """Each cell by the parts that differ between cells: filesystem, workload, quantity."""
    several = (
        len({cell.filesystem for cell in cells}) > 1 or len(cells) == 1,
        len({cell.workload for cell in cells}) > 1 or (len(cells) == 1 and cells[0].workload != cells[0].part),
        len({cell.quantity for cell in cells}) > 1,
    )
    return [
        " ".join(
            text
            for text, shown in zip(
                (cell.filesystem, _workload(cell.workload), cell.quantity.value), several, strict=True
            )
            if shown
        )
        for cell in cells
    ]


def _full(cell: FigureCell) -> str:
    workload = "" if cell.workload == cell.part else _workload(cell.workload)
    return " ".join(text for text in (cell.filesystem, workload, cell.quantity.value) if text)


def doubt_lines(doubts: Sequence[Doubt]) -> list[tuple[str, str]]:
    """Each doubtful cell with its printed value, the expected value, and the difference."""
    lines: list[tuple[str, str]] = []
    for doubt in doubts:
        cell, figure = doubt.figure.cell, doubt.figure
        name = ", ".join(text for text in (f"{figure.hardware} {_full(cell)}".strip(), doubt.what) if text)
        unit = f" {cell.quantity.unit}".rstrip()
        decimals = max(figure.decimals, 2) if figure.decimals else 0
        off = f"{100 * doubt.off:+.2f} %" if abs(doubt.off) < 1 else f"{1 + doubt.off:.1f} times that"
        expected = f"{doubt.bound or 'expected'} {doubt.expected:.{decimals}f}{unit}"
        said = f"printed {figure.printed}{unit}, {expected} ({off})"
        lines.append((name, f"{said}: {doubt.text}"))
    return lines


@dataclass(frozen=True, slots=True)
class SuitePage:
    """The suite's part of a page. `doubts` are cells, each with its explanation."""

    source: str
    remarks: tuple[str, ...]
    sections: tuple[SuiteSection, ...]
    statements: tuple[StatementLine, ...]
    doubts: tuple[tuple[str, str], ...]

    @property
    def tally(self) -> str:
        """How many statements hold: `9 hold, 3 do not hold, 5 not decided`."""
        counts = Counter(line.holds for line in self.statements)
        words = {Holds.YES: ("holds", "hold"), Holds.NO: ("does not hold", "do not hold")}
        return ", ".join(
            f"{counts[holds]} {words.get(holds, (holds.value, holds.value))[counts[holds] != 1]}"
            for holds in Holds
            if counts[holds]
        )


def suite_page(summary: Summary) -> SuitePage | None:
    """The publication's form of a run; None for a suite of our own."""
    if summary.suite is None:
        return None
    view = View(summary, summary.suite)
    suite = SUITES.get(summary.run.plan.suite.partition("/")[0])
    remarks = {part_of(leaf.name): leaf.remarks for leaf in suite.leaves} if suite else {}
    own = PUBLICATIONS[summary.suite.publication].sections
    sections = [
        replace(section, notes=(*remarks.get(section.anchor, ()), *section.notes))
        for section in (pkgutil.resolve_name(own) if own else plain_sections)(view)
    ]
    return SuitePage(
        source=summary.suite.source,
        remarks=(*summary.suite.remarks, *remarks.get("", ())),
        sections=tuple(sections),
        statements=tuple(_statement_lines(view)),
        doubts=tuple(doubt_lines(summary.suite.doubts)),
    )


_QUANTITIES: Final = (Quantity.TIME, Quantity.THROUGHPUT, Quantity.ENERGY)


def plain_sections(view: View) -> list[SuiteSection]:
    return [_section(view, part) for part in view.suite.parts]


def _section(view: View, part: str) -> SuiteSection:
    """A table of the figures that any row has; charts of the operations' times and of fio's throughput."""
    rows = view.part(part)
    title = part or "Figures"
    present = [quantity for quantity in _QUANTITIES if any(row.spread(quantity) for row in rows)]
    columns = heads(view, rows, words(rows, "operation", label_of))
    for quantity in present:
        columns += beside(view, rows, quantity)
    drawn = {
        Quantity.TIME: [row for row in rows if isinstance(row.workload, TimedWorkload)],
        Quantity.THROUGHPUT: [row for row in rows if isinstance(row.workload, FioWorkload)],
    }
    charts = tuple(bars(view, f"{title}: {name.value}", of, name, label_of) for name, of in drawn.items() if of)
    return SuiteSection(title, part or "figures", (table(view, title, columns),), charts, (view.footnote(part),))
