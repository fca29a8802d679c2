"""The answer of a comparison or a gate for renderers: its findings, and what else a reader should know."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar
from urllib.parse import quote

from rich.console import Console, ConsoleRenderable
from rich.text import Text

from fsjoule.report import markdown as md
from fsjoule.report.findings import (
    TONES,
    figure_text,
    more_text,
    most_important,
    notable,
    rest_text,
    shown_text,
)
from fsjoule.report.markdown import folded, named_list, plain
from fsjoule.report.numbers import signed
from fsjoule.report.renderers import CaseState, VerdictCase, VerdictView
from fsjoule.report.table import Table, Tone
from fsjoule.report.terminal import footnote, named_lines, room_of, table_lines
from fsjoule.report.words import means, metric_change
from fsjoule.store.finding import F, Finding, KernelWarning, important_first
from fsjoule.store.folder import PAGE

if TYPE_CHECKING:  # a page's charts take longer to import than an answer to print
    from fsjoule.report.site import Site
    from fsjoule.verdicts.explanation.changes import Explanation

Lines = Sequence[tuple[str, str]]
"""Texts by their names."""
_LISTED: Final = 20
_MOST_LINKS: Final = 100
_TILES: Final = 4  # what changed most
_STYLES: Final = {Tone.BAD: "bold red", Tone.GOOD: "bold green", Tone.DOUBT: "bold yellow", Tone.PLAIN: "bold"}


F_co = TypeVar("F_co", bound=Finding[object], covariant=True)


class Judgement(Protocol[F_co]):
    """What a comparison and a gate share: `notes` are what a reader should know, `folders` those of the runs, by id."""

    @property
    def simulated(self) -> bool: ...

    @property
    def findings(self) -> Sequence[F_co]: ...

    @property
    def kernel_warnings(self) -> Sequence[KernelWarning]: ...

    @property
    def notes(self) -> Sequence[str]: ...

    @property
    def folders(self) -> Mapping[str, Path]: ...


class FindingsView(VerdictView, Generic[F]):
    """A headline, findings in their order of importance, facts of both sides, remarks, and lists of what else counts.

    `everything` and `wide` are the terminal's: all findings, all columns.
    """

    everything: bool
    wide: bool

    @property
    @abstractmethod
    def judgement(self) -> Judgement[F]: ...

    @property
    @abstractmethod
    def tone(self) -> Tone:
        """The colour of the headline."""

    @property
    @abstractmethod
    def rules(self) -> str:
        """How to read the findings: order, intervals, error rates."""

    @property
    @abstractmethod
    def facts(self) -> Lines:
        """The two sides, and the run."""

    @property
    @abstractmethod
    def lists(self) -> Mapping[str, Lines]:
        """What stands outside the table, by title; an empty list is left out."""

    @property
    @abstractmethod
    def heading(self) -> str:
        """The page's."""

    @property
    @abstractmethod
    def page_lists(self) -> Mapping[str, Lines]:
        """The lists of the page, which has the facts among them."""

    @abstractmethod
    def table(self, title: str, findings: Sequence[F]) -> Table: ...

    @property
    def simulated(self) -> bool:
        return self.judgement.simulated

    @property
    def findings(self) -> Sequence[F]:
        """All of them."""
        return self.judgement.findings

    @property
    def asked(self) -> Sequence[F]:
        """The findings that text, Markdown and cases show."""
        return self.findings

    @property
    def page_headline(self) -> str:
        """The headline below the heading, which names the sides."""
        return self.headline

    @property
    def command_line(self) -> str:
        """The command that repeats it, quoted for a shell; may be empty."""
        return ""

    @property
    def notes(self) -> Sequence[str]:
        return self.warnings_and_remarks

    @property
    def warnings_and_remarks(self) -> Sequence[str]:
        return [*map(str, self.judgement.kernel_warnings), *self.judgement.notes]

    def print(self, console: Console) -> None:
        """Print the answer, the most important figures, both sides, and the boots and figures that do not count."""
        for renderable in self._renderables(room_of(console, wide=self.wide)):
            console.print(renderable, crop=False)

    def _renderables(self, room: int | None) -> Iterator[ConsoleRenderable]:
        yield Text(self.headline, style=_STYLES[self.tone])
        shown, rest = most_important(self.asked, everything=self.everything)
        if shown:
            yield from table_lines(self.table(shown_text(shown, rest), shown), room, more_text(rest))
            yield footnote(self.rules)
        yield Text("")
        for name, text in self.facts:
            yield Text(f"{name:<10}{text}")
        if self.command_line:
            yield Text(f"{'again':<10}{self.command_line}")
        for title, texts in self.paragraphs():
            if texts:
                yield Text(f"\n{title}", style="bold yellow")
                yield from map(Text, texts)
        for title, lines in self.lists.items():
            if lines:
                listed = lines if self.everything else lines[:_LISTED]
                more = len(lines) - len(listed)
                rows = [*listed, (f"and {more} more", "--all lists them")] if more else listed
                yield named_lines(title, rows, "yellow")

    def paragraphs(self) -> Iterator[tuple[str, Sequence[str]]]:
        """What the terminal says in sentences, by title."""
        yield "What the kernels reported", [str(each) for each in self.judgement.kernel_warnings]
        yield "To know", self.judgement.notes

    def markdown(self) -> str:
        return "\n".join(self._markdown()) + "\n"

    def _markdown(self) -> Iterator[str]:
        yield self.markdown_lead()
        shown, rest = notable(self.asked)
        if shown:
            yield ""
            yield from md.table_lines(self.markdown_table(shown))
        if rest:
            yield from folded(rest_text(rest), list(md.table_lines(self.markdown_table(rest))))
        yield ""
        yield from self.markdown_facts()
        yield from (f"- {plain(note)}" for note in self.warnings_and_remarks)
        for title, lines in self.markdown_lists().items():
            if lines:
                yield from folded(title, named_list(lines))
        yield from self.markdown_command()
        if self.findings:
            yield ""
            yield f"<sub>{plain(self.rules)}</sub>"

    def markdown_lead(self) -> str:
        return f"**{plain(self.headline)}**"

    def markdown_table(self, findings: Sequence[F]) -> Table:
        return self.table("", findings)

    def markdown_facts(self) -> Iterator[str]:
        yield from (f"- {name}: {plain(text)}" for name, text in self.facts)

    def markdown_lists(self) -> Mapping[str, Lines]:
        return self.lists

    def markdown_command(self) -> Iterator[str]:
        yield from ()

    def page(self, place: Path | Site) -> str:
        """The page as HTML: a file that links to the pages of its runs that are there, or a page of a site."""
        from fsjoule.report.explanation.section import section
        from fsjoule.report.template import render

        folders = self.judgement.folders
        changed = [one for one in important_first(self.findings) if one.changed][:_TILES]
        return render(
            "verdict.html.j2",
            site=None if isinstance(place, Path) else place,
            version=version("fsjoule"),
            heading=self.heading,
            headline=self.page_headline,
            simulated=self.simulated,
            tiles=[
                (
                    f"{one.subject.name}, {one.metric.value}",
                    signed(one.ratio, one.interval),
                    means(one),
                    TONES[one.outcome],
                )
                for one in changed
            ],
            notes=self.warnings_and_remarks,
            **self.page_parts(),
            explanations=[section(each) for each in self.page_explanations()],
            lists=self.page_lists.items(),
            links=run_links(folders, place)
            if isinstance(place, Path)
            # The newest runs only: a kernel may have been measured in thousands.
            else [(f"run {run_id}", place.run(run_id)) for run_id in islice(folders, _MOST_LINKS)],
            command=self.command_line,
        )

    def page_explanations(self) -> Sequence[Explanation]:
        """Why figures differ, as far as it is known."""
        return ()

    def page_parts(self) -> dict[str, object]:
        """The findings for a template: their tables, how to read them, and their charts."""
        from fsjoule.report.forest_chart import NOTE, forest_charts
        from fsjoule.report.template import marked_up

        shown, rest = notable(self.findings)
        return {
            "tone": self.tone,
            "shown": self.table("What matters", shown),
            "rest": self.table(rest_text(rest), rest),
            "rules": self.rules,
            "charts": marked_up(forest_charts(self.findings, simulated=self.simulated)),
            "chart_note": NOTE,
        }


def finding_case(one: Finding[object], reason: str) -> VerdictCase:
    """The case of a finding; `reason` is why it is open, if it is."""
    series = one.subject.series
    state = CaseState.FAILED if one.regressed else CaseState.SKIPPED if one.undecided else CaseState.PASSED
    sides = f"{figure_text(one.baseline)} to {figure_text(one.candidate)} {one.metric.unit}".rstrip()
    change = "" if one.ratio is None else f"{metric_change(one)}, {sides}"
    parts = (means(one), reason if one.undecided else "", change)
    return VerdictCase(f"{series.board}.{series.suite}", one.name, state, "; ".join(filter(None, parts)))


def run_links(folders: Mapping[str, Path], file: Path) -> Lines:
    """Each run's name and the address of its page, as seen from `file`; runs whose page is not there are left out."""
    return [
        (f"run {run_id}", quote(os.path.relpath(folder.resolve() / PAGE, file.resolve().parent)))
        for run_id, folder in folders.items()
        if (folder / PAGE).is_file()
    ]
