"""Formats of verdicts: what compare, gate, trend and bisect print and write. One row each; packages add theirs.

A renderer decides nothing: it gets a `VerdictView`, which has the answer in words, as cases, and whole.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from email import policy
from email.message import EmailMessage
from enum import StrEnum
from io import StringIO
from pathlib import Path
from typing import ClassVar, Final
from xml.etree import ElementTree as ET

from rich.console import Console

from fsjoule.hooks import Rows

_WIDTH: Final = 200  # of text in a file
_SUBJECT: Final = 200
# What XML 1.0 cannot hold, escaped or not.
_NO_XML: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class CaseState(StrEnum):
    """JUnit's three answers. What is not decided is skipped: it neither passed nor failed."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class VerdictCase:
    """One finding: `ext4 randwrite-16k throughput` of a `group`, a board and suite; `text` is its change or reason."""

    group: str
    name: str
    state: CaseState
    text: str


class VerdictView(ABC):
    """The answer of one command, for renderers."""

    command: ClassVar[str]

    @property
    @abstractmethod
    def headline(self) -> str:
        """The answer in a line."""

    @property
    @abstractmethod
    def simulated(self) -> bool:
        """Whether its figures come from an emulated board, which each format must say."""

    @property
    @abstractmethod
    def cases(self) -> Sequence[VerdictCase]:
        """A case for each finding, or one for the whole answer."""

    @property
    def notes(self) -> Sequence[str]:
        """What a reader should know besides."""
        return ()

    @abstractmethod
    def document(self) -> dict[str, object]:
        """The whole answer as a JSON document that names its schema."""

    @abstractmethod
    def markdown(self) -> str:
        """GitLab's and GitHub's Markdown, ending in a newline."""

    @abstractmethod
    def page(self, place: Path) -> str:
        """A self-contained page of HTML; `place` is its file, from which it links to its runs."""

    @abstractmethod
    def print(self, console: Console) -> None:
        """Print it on a terminal."""


@dataclass(frozen=True, slots=True)
class Renderer:
    """A format by its name. `render` gets the view and the file that is to be written, and returns its text."""

    name: str
    render: Callable[[VerdictView, Path], str]


def _text(verdict: VerdictView, _file: Path) -> str:
    written = StringIO()
    verdict.print(Console(file=written, width=_WIDTH, highlight=False, markup=False))
    return written.getvalue()


def to_junit(verdict: VerdictView) -> str:
    """JUnit's XML, for GitLab and others: a testcase per finding, a failure per loss, skipped what is not decided."""
    cases = verdict.cases
    states = [case.state for case in cases]
    simulated = " (simulated)" if verdict.simulated else ""
    suites = ET.Element("testsuites", name="fsjoule")
    suite = ET.SubElement(
        suites,
        "testsuite",
        name=f"fsjoule {verdict.command}{simulated}",
        tests=str(len(cases)),
        failures=str(states.count(CaseState.FAILED)),
        skipped=str(states.count(CaseState.SKIPPED)),
        errors="0",
    )
    for case in cases:
        element = ET.SubElement(suite, "testcase", classname=_xml(case.group), name=_xml(case.name + simulated))
        if case.state is CaseState.PASSED:
            ET.SubElement(element, "system-out").text = _xml(case.text)
        else:
            tag = "failure" if case.state is CaseState.FAILED else "skipped"
            ET.SubElement(element, tag, message=_xml(case.text)).text = _xml(case.text)
    ET.SubElement(suite, "system-out").text = _xml("\n".join((verdict.headline, *verdict.notes)))
    ET.indent(suites)
    return ET.tostring(suites, encoding="unicode", xml_declaration=False) + "\n"


def _xml(text: str) -> str:
    return _NO_XML.sub("\N{REPLACEMENT CHARACTER}", text)


def to_github(verdict: VerdictView) -> str:
    """GitHub's workflow commands: an annotation per loss and per figure that is not decided, and the answer.

    GitHub shows ten of each kind in a step: the answer comes first.
    """
    title = f"fsjoule {verdict.command}{' (simulated)' * verdict.simulated}"
    lines = [_annotation("notice", title, "\n".join((verdict.headline, *verdict.notes)))]
    kinds = {CaseState.FAILED: "error", CaseState.SKIPPED: "warning"}
    lines += [
        _annotation(kinds[case.state], f"{title}: {case.group} {case.name}", case.text)
        for state in kinds
        for case in verdict.cases
        if case.state is state
    ]
    return "\n".join(lines) + "\n"


def _annotation(kind: str, title: str, text: str) -> str:
    # As GitHub's own toolkit escapes them: actions/toolkit, packages/core/src/command.ts.
    for sign in "%\r\n":
        title, text = (each.replace(sign, f"%{ord(sign):02X}") for each in (title, text))
    for sign in ":,":
        title = title.replace(sign, f"%{ord(sign):02X}")
    return f"::{kind} title={title}::{text}"


def to_mail(verdict: VerdictView) -> str:
    """A message (RFC 5322) without sender and receivers, which its sender knows: the answer, and the text."""
    message = EmailMessage(policy=policy.default.clone(cte_type="8bit"))
    simulated = " (simulated)" * verdict.simulated
    message["Subject"] = " ".join(f"fsjoule {verdict.command}{simulated}: {verdict.headline}".split())[:_SUBJECT]
    message["Auto-Submitted"] = "auto-generated"  # RFC 3834: no out-of-office note answers
    message.set_content("\n".join((verdict.headline, *verdict.notes, "", _text(verdict, Path()))), cte="8bit")
    return message.as_bytes().decode()


TEXT: Final = Renderer("text", _text)
_OURS: Final = (
    TEXT,
    Renderer("markdown", lambda verdict, _file: verdict.markdown()),
    Renderer("json", lambda verdict, _file: json.dumps(verdict.document(), indent=2, default=str) + "\n"),
    Renderer("page", lambda verdict, file: verdict.page(file)),
    Renderer("junit", lambda verdict, _file: to_junit(verdict)),
    Renderer("github", lambda verdict, _file: to_github(verdict)),
    Renderer("mail", lambda verdict, _file: to_mail(verdict)),
)
RENDERERS: Final = Rows("renderer", "fsjoule_renderers", Renderer, lambda: _OURS)
