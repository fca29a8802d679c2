"""Marks on the console's line: how they are sent, and how they are told from all else on that line."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from traces import trace_of

from fsjoule.bench.onboard.marks import start_mark, stop_mark
from fsjoule.lab.guestmeter import MarksOfBoard
from fsjoule.model import Mark, MarkLine, MarkSource
from fsjoule.testing import FakeMeter

OWN, CONSOLE = MarkLine("/dev/ttyS1"), MarkLine("/dev/ttyS0", on_console=True)
# Lines as the meter cuts them, at 16 bytes: U-Boot, kernel, a typed command, labgrid's markers, and looks of marks.
OTHERS = (
    "U-Boot 2025.01-3", "[    1.234567] m", "root@fsjoule:~# ", "<QWERTYUIOP:0>", "fsjoule login: ", "S7", "E7",
    "fsj:S7", "(fsj:S7)", "x{fsj:S7}x",
)  # fmt: skip


def heard(*texts: str) -> list[Mark]:
    return [Mark(1000 * n, text) for n, text in enumerate(texts)]


@pytest.mark.parametrize(("on_console", "line"), [(False, "S12\n"), (True, "{fsj:S12}\n")])
def test_a_shell_sends_a_mark(on_console: bool, line: str, tmp_path: Path) -> None:
    uart = tmp_path / "a uart"
    command = MarkLine(str(uart), on_console).send("S$number")
    subprocess.run(["sh", "-c", f"number=12; {command}"], check=True, timeout=30)
    assert uart.read_text() == line
    assert len(MarkLine("", on_console).send(stop_mark(99999)).split('"')[1]) <= 16


def test_a_line_of_its_own_has_marks_only() -> None:
    lines = heard("S7", "{fsj:S8}", "noise")
    assert OWN.marks(lines) == tuple(lines)


def test_marks_are_found_among_the_lines_of_a_console() -> None:
    lines = heard(*OTHERS, "{fsj:Sboot}", "[    2.000000] m", "{fsj:S7}", *OTHERS, "{fsj:E7}")
    found = CONSOLE.marks(lines)
    assert [mark.text for mark in found] == ["Sboot", start_mark(7), stop_mark(7)]
    assert [mark.time_us for mark in found] == [mark.time_us for mark in lines if mark.text.startswith("{fsj")]


@pytest.mark.parametrize(
    "damaged", [("{fsj:E[    1.234", "7}"), ("{[    1.2345678 m", "fsj:E7}"), ("{fsj:E7[    1.23", "}"), ("{fsj:E7 }",)]
)
def test_a_mark_that_a_message_came_into_is_none_and_is_told(damaged: tuple[str, ...]) -> None:
    found = CONSOLE.marks(heard("{fsj:S7}", *OTHERS, *damaged))
    assert [mark.text for mark in found] == ["S7", *damaged]


def test_edges_and_marks_of_the_host_stay() -> None:
    edge, host = Mark(1, "", MarkSource.RISING), Mark(2, "S1", MarkSource.HOST)
    assert CONSOLE.marks([edge, host]) == (edge, host)


def test_a_board_whose_meter_listens_to_its_console_has_traces_with_its_marks() -> None:
    trace = trace_of([1, 2, 3], marks=heard("login", "{fsj:S1}", "S1", "{fsj:E1}"))
    meter = MarksOfBoard(FakeMeter(trace), CONSOLE)
    meter.arm()
    assert [mark.text for mark in meter.disarm().marks] == ["S1", "E1"]
    assert meter.info() == trace.info
