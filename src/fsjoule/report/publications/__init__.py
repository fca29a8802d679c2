"""A run of a publication's suite in the publication's own form: sections, statements, and doubtful cells.

A module gives a publication's own sections, `plain` those of the others. `suite_page` collects them for the terminal
and the page.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from fsjoule.report.publications import elc2015, energy_emmc, ext4_zfs, home_usage, plain
from fsjoule.report.publications.statements import NOTE, Line, doubt_lines, statement_lines, tally_text
from fsjoule.report.publications.view import Section, View
from fsjoule.report.summary import Summary
from fsjoule.suites import SUITES
from fsjoule.suites.published.measured import part_of

__all__ = ["NOTE", "SuitePage", "suite_page"]

_FORMS: Final[dict[str, Callable[[View], list[Section]]]] = {
    "energy-emmc-2025": energy_emmc.sections,
    "elc2015": elc2015.sections,
    "ext4-zfs-2023": ext4_zfs.sections,
    "home-usage-2016": home_usage.sections,
}


@dataclass(frozen=True, slots=True)
class SuitePage:
    """The suite's part of a page. `doubts` are cells, each with its explanation."""

    source: str
    remarks: tuple[str, ...]
    sections: tuple[Section, ...]
    statements: tuple[Line, ...]
    doubts: tuple[tuple[str, str], ...]

    @property
    def tally(self) -> str:
        """How many statements hold: `9 hold, 3 do not hold, 5 not decided`."""
        return tally_text(self.statements)


def suite_page(summary: Summary) -> SuitePage | None:
    """The publication's form of a run; None for a suite of our own."""
    if summary.suite is None:
        return None
    view = View(summary, summary.suite)
    remarks = _suite_remarks(summary)
    sections = [
        replace(section, notes=(*remarks.get(section.anchor, ()), *section.notes))
        for section in _FORMS.get(summary.suite.publication, plain.sections)(view)
    ]
    return SuitePage(
        source=summary.suite.source,
        remarks=(*summary.suite.remarks, *remarks.get("", ())),
        sections=tuple(sections),
        statements=tuple(statement_lines(view)),
        doubts=tuple(doubt_lines(summary.suite.doubts)),
    )


def _suite_remarks(summary: Summary) -> dict[str, tuple[str, ...]]:
    """The suite's remarks for readers, by part."""
    suite = SUITES.get(summary.run.plan.suite.partition("/")[0])
    return {part_of(leaf.name): leaf.remarks for leaf in suite.leaves} if suite else {}
