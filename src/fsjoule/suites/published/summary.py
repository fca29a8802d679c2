"""A run in comparison with a publication: its rows, and which statements hold. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fsjoule.model import Measurement, Plan
from fsjoule.model.filesystem import content_of
from fsjoule.suites.published.catalogue import publication_of
from fsjoule.suites.published.doubts import Doubt
from fsjoule.suites.published.measured import RepetitionRow, measured_figures, part_of, rows_of_run
from fsjoule.suites.published.publication import Publication
from fsjoule.suites.published.statements import Statement, StatementAnswer, StatementSource


@dataclass(frozen=True, slots=True)
class Told:
    """A run's answer on one kernel and storage device, and the answers of `published` figures by machine."""

    text: str
    origin: StatementSource
    part: str
    kernel: str
    storage: str
    finding: StatementAnswer
    published: dict[str, StatementAnswer]


@dataclass(frozen=True, slots=True)
class SuiteSummary:
    """A run of a publication's suite, or of some of its parts. `parts` are the planned ones, in order."""

    publication: str
    source: str
    remarks: tuple[str, ...]
    parts: tuple[str, ...]
    rows: tuple[RepetitionRow, ...]
    statements: tuple[Told, ...]
    doubts: tuple[Doubt, ...]


def suite_summary(plan: Plan, measurements: Sequence[Measurement]) -> SuiteSummary | None:
    """The comparison; None for a suite of our own. Rows are in the order of the measurements."""
    publication = publication_of(plan.suite)
    if publication is None:
        return None
    rows = rows_of_run(publication, plan, measurements)
    parts = tuple(dict.fromkeys(part_of(suite) for suite in plan.size_factors))
    return SuiteSummary(
        publication=publication.name,
        source=publication.source,
        remarks=publication.remarks,
        parts=parts,
        rows=rows,
        statements=tuple(_told(publication, plan, parts, rows)),
        doubts=tuple(doubt for doubt in publication.doubts if doubt.figure.cell.part in parts),
    )


def _is_about(statement: Statement, plan: Plan) -> bool:
    """Whether to ask a statement: our own expectations need one of their filesystems in the plan."""
    named = {cell.filesystem for cell in statement.rule.cells}
    return statement.origin is not StatementSource.OURS or not named.isdisjoint(map(content_of, plan.filesystems))


def _told(publication: Publication, plan: Plan, parts: Sequence[str], rows: Sequence[RepetitionRow]) -> Iterator[Told]:
    for statement in publication.statements:
        if statement.part not in parts or not _is_about(statement, plan):
            continue
        published = {
            hardware: statement.rule.tell(publication.on(hardware))
            for hardware in statement.hardware
            if statement.origin is not StatementSource.OURS
        }
        of_part = [row for row in rows if row.part == statement.part]
        for kernel in plan.kernels:
            for storage in dict.fromkeys(row.series.storage for row in of_part) or ("",):
                those = [row for row in of_part if (row.kernel, row.series.storage) == (kernel, storage)]
                finding = statement.rule.tell(measured_figures(plan, those))
                yield Told(statement.text, statement.origin, statement.part, kernel, storage, finding, published)
