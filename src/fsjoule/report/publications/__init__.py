"""A run of a publication's suite in the publication's own form: sections, statements, and doubtful cells.

A publication can have sections of its own; `plain` gives those of the others. `suite_page` collects them for the
terminal and the page.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from dataclasses import dataclass, replace

from fsjoule.report.publications import plain
from fsjoule.report.publications.statements import NOTE, StatementLine, doubt_lines, statement_lines, tally_text
from fsjoule.report.publications.view import SuiteSection, View
from fsjoule.report.summary import Summary
from fsjoule.suites import SUITES
from fsjoule.suites.published.catalogue import PUBLICATIONS
from fsjoule.suites.published.measured import part_of

__all__ = ["NOTE", "SuitePage", "suite_page"]


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
        return tally_text(self.statements)


def suite_page(summary: Summary) -> SuitePage | None:
    """The publication's form of a run; None for a suite of our own."""
    if summary.suite is None:
        return None
    view = View(summary, summary.suite)
    remarks = _suite_remarks(summary)
    sections = [
        replace(section, notes=(*remarks.get(section.anchor, ()), *section.notes))
        for section in _form_of(summary.suite.publication)(view)
    ]
    return SuitePage(
        source=summary.suite.source,
        remarks=(*summary.suite.remarks, *remarks.get("", ())),
        sections=tuple(sections),
        statements=tuple(statement_lines(view)),
        doubts=tuple(doubt_lines(summary.suite.doubts)),
    )


def _form_of(publication: str) -> Callable[[View], list[SuiteSection]]:
    own = PUBLICATIONS[publication].sections
    return pkgutil.resolve_name(own) if own else plain.sections


def _suite_remarks(summary: Summary) -> dict[str, tuple[str, ...]]:
    """The suite's remarks for readers, by part."""
    suite = SUITES.get(summary.run.plan.suite.partition("/")[0])
    return {part_of(leaf.name): leaf.remarks for leaf in suite.leaves} if suite else {}
