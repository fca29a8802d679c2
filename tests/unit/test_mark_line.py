"""Marks on the console's line and on a GPIO: how they are sent, and how they are told from all else on that line."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from traces import trace_of

from fsjoule.bench.onboard.marks import start_mark, stop_mark
from fsjoule.lab.guestmeter import MarksOfBoard
from fsjoule.meter.energy.validity import mark_complaints
from fsjoule.model import Mark, MarkLine, MarkSource
from fsjoule.testing import FakeMeter

GPIO = MarkLine("/sys/class/leds/fsjoule-mark/brightness")
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


def test_a_gpio_is_high_from_a_start_mark_to_a_stop_mark() -> None:
    """A start mark is an edge even after work that sent no stop mark: the line is low before it."""
    high, low = (f"echo {level} > {GPIO.device}" for level in (1, 0))
    assert GPIO.send("S$number") == f"{low}; {high}"
    assert GPIO.send("E$number") == low


def test_edges_are_the_marks_of_a_gpio() -> None:
    edges = [Mark(1, "", MarkSource.RISING), *heard("S7", "U-Boot 2025.01-3"), Mark(2, "", MarkSource.FALLING)]
    assert [mark.text for mark in GPIO.marks(edges)] == [GPIO.heard_as("S7"), GPIO.heard_as("E7")]
    assert [mark.time_us for mark in GPIO.marks(edges)] == [1, 2]
    assert (OWN.heard_as("S7"), CONSOLE.heard_as("E7")) == ("S7", "E7")


def test_a_fall_before_the_first_start_mark_is_none() -> None:
    falling, rising = (Mark(time, "", source) for time, source in ((1, MarkSource.FALLING), (2, MarkSource.RISING)))
    stop = Mark(3, "", MarkSource.FALLING)
    assert [mark.time_us for mark in GPIO.marks([falling, rising, stop])] == [2, 3]
    assert GPIO.marks([falling]) == ()


@pytest.mark.parametrize(
    ("edges", "complaint"),
    [
        ([MarkSource.RISING], "the marks rising edge and falling edge did not both arrive (seen: rising edge)"),
        ([], "the marks rising edge and falling edge did not both arrive (seen: none)"),
        (
            [MarkSource.RISING, MarkSource.FALLING, MarkSource.RISING],
            "the mark rising edge was sent once and arrived 2 times: where the window ends is not certain",
        ),
    ],
)
def test_a_lost_edge_and_one_too_many_are_told(edges: list[MarkSource], complaint: str) -> None:
    trace = trace_of([1, 2, 3], marks=GPIO.marks(Mark(n, "", source) for n, source in enumerate(edges)))
    assert mark_complaints(trace, (GPIO.heard_as("S7"), GPIO.heard_as("E7"))) == [complaint]
