"""Marks on a UART, on the console's line and on a GPIO: how they are sent, and told from all else on that line."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import meter_wire as wire
import numpy as np
import pytest
from traces import trace_of

from fsjoule.lab.instruments import HostMarked
from fsjoule.lab.meterdriver import MarksOfBoard
from fsjoule.meter.energy.validity import mark_complaints
from fsjoule.model import Mark, MarkLine, MarkSource
from fsjoule.model.mark_line import read_line
from fsjoule.testing import FakeMeter

GPIO = MarkLine("/sys/class/leds/fsjoule-mark/brightness")
OWN, CONSOLE = MarkLine("/dev/ttyS1"), MarkLine("/dev/ttyS0", on_console=True)
# Lines as the meter cuts them, at 16 bytes: U-Boot, kernel, a typed command, labgrid's markers, and looks of marks.
OTHERS = (
    "U-Boot 2025.01-3", "[    1.234567] m", "root@fsjoule:~# ", "<QWERTYUIOP:0>", "fsjoule login: ", "S7", "E7",
    "{fsj:S7}",
)  # fmt: skip


def heard(*texts: str) -> list[Mark]:
    return [Mark(1000 * n, text) for n, text in enumerate(texts)]


@pytest.mark.parametrize("on_console", [False, True])
@pytest.mark.parametrize("shell", [["sh"], ["bash"], ["busybox", "sh"]], ids=" ".join)
def test_a_shell_sends_a_mark_with_its_check(shell: list[str], on_console: bool, tmp_path: Path) -> None:
    """The shell computes it without a program, also with the numbers of 32 bits that some shells have."""
    if shutil.which(shell[0]) is None:
        pytest.skip(f"{shell[0]} is not installed")
    uart = tmp_path / "a uart"
    send = MarkLine(str(uart), on_console).send
    for letter, numbers in (("S", (0, 7, 10, 12, 999, 99999)), ("E", (1, 99999))):
        for number in numbers:
            command = send(f"{letter}$number")
            done = subprocess.run([*shell, "-c", f"PATH=; number={number}; {command}"], check=False, timeout=30)
            assert done.returncode == 0
            assert uart.read_text() == wire.checked(f"{letter}{number}") + "\n"
            assert len(uart.read_text()) <= 17
            assert int(f"{28}{number}") < 2**31
    subprocess.run([*shell, "-c", send("Sboot")], check=True, timeout=30)
    assert uart.read_text() == "~Sboot~5184\n"


def test_a_mark_that_no_shell_could_check_is_refused() -> None:
    for text in ("7$n", "$n", "S 1", "S$n x", "S-1", ""):
        with pytest.raises(ValueError, match="letters, digits and a variable"):
            OWN.send(text)


# As the core judges them (meter/tests/test_core_mark_line.c).
@pytest.mark.parametrize(
    ("line", "read"),
    [
        ("~S12~3818", ("S12", True, False)),
        ("~E999~4044", ("E999", True, False)),
        ("~0~1000", ("0", True, False)),
        ("~012345678~9824", ("012345678", True, False)),
        *((line, (line, False, True)) for line in (
            "~S12~3817", "~S12~2818", "~S12~03818", "~S12~38181", "~0~0", "~S1~4281", "~S12~", "~S12", "S12~3818",
            "~~0", "~0", "~", "~S1 2~4818", "~S12~3818~E12~34", "~0123456789~2730", "~0123456789~1027",
        )),
        *((line, (line, False, False)) for line in ("S12", "root@board:~# ", "a ~ 12", "12")),
    ],
)  # fmt: skip
def test_what_a_line_is(line: str, read: tuple[str, bool, bool]) -> None:
    assert read_line(line) == read


def test_no_hit_makes_another_mark_of_one_with_a_check() -> None:
    """Any byte changed to any other, any loss of neighbours, any byte or repetition too many."""
    random = np.random.default_rng(20)
    others = [*range(1, 200), *random.integers(200, 100_000, 50).tolist()]
    for text in (*(f"{letter}{number}" for letter in "SE" for number in others), "Sboot", "Eboot"):
        whole = wire.checked(text)
        hit = {whole[:at] + chr(byte) + whole[at + 1 :] for at in range(len(whole)) for byte in range(0x20, 0x7F)}
        hit |= {whole[:at] + whole[end:] for at in range(len(whole)) for end in range(at + 1, len(whole) + 1)}
        hit |= {whole[:at] + chr(byte) + whole[at:] for at in range(len(whole) + 1) for byte in range(0x20, 0x7F)}
        hit |= {whole[:end] + whole[at:] for at in range(len(whole)) for end in range(at + 1, len(whole) + 1)}
        for line in hit - {whole, ""}:
            read, _, damaged = read_line(line[:16])
            assert damaged or not re.fullmatch(r"[SE](\d+|boot)", read), (whole, line)


def test_a_line_of_its_own_has_marks_only() -> None:
    lines = heard("S7", "S8", "noise")
    assert OWN.marks(lines) == tuple(lines)


def test_where_marks_have_checks_one_without_is_what_is_left_of_another() -> None:
    """Two hits can leave S1 of ~S12~3818. The board's own lines stay."""
    checked, rest = Mark(1, "S12", checked=True), heard("S1", "E1", "Eboot", "phase 2", "Start")
    edge = Mark(5, "", MarkSource.RISING)
    assert OWN.marks([checked, *rest, edge]) == (checked, *rest[3:], edge)
    assert OWN.marks([*rest, edge]) == (*rest, edge)


def test_on_the_console_a_line_with_a_check_is_a_mark() -> None:
    checked = Mark(1, "S7", checked=True)
    assert CONSOLE.marks([*heard(*OTHERS), checked]) == (checked,)


def test_edges_and_marks_of_the_host_stay() -> None:
    edge, host = Mark(1, "", MarkSource.RISING), Mark(2, "S1", MarkSource.HOST)
    assert CONSOLE.marks([edge, host]) == (edge, host)


def test_a_board_whose_meter_listens_to_its_console_has_traces_with_its_marks() -> None:
    start, stop = Mark(1, "S1", checked=True), Mark(3, "E1", checked=True)
    trace = trace_of([1, 2, 3], marks=[Mark(0, "login"), start, Mark(2, "S1"), stop])
    meter = MarksOfBoard(FakeMeter(trace), CONSOLE)
    meter.arm()
    assert [mark.text for mark in meter.disarm().marks] == ["S1", "E1"]
    assert meter.info() == trace.info


def test_the_host_reads_checks_like_a_meter() -> None:
    """An instrument without an input for marks has the lines as the host stamped them."""
    lines = (wire.checked("S1"), "phase 2", "~S2~2288", wire.checked("E1"))
    host = [Mark(n, text, MarkSource.HOST) for n, text in enumerate(lines)]
    instrument: Any = FakeMeter(trace_of([1, 2, 3], marks=[*host, Mark(9, "", MarkSource.RISING)]))
    instrument.mark_now = None

    def start(_heard: object) -> None: ...

    line: Any = SimpleNamespace(start=start, stop=lambda: None)
    meter = HostMarked(instrument, line)
    meter.arm()
    trace = meter.disarm()
    assert trace.marks == (Mark(0, "S1", checked=True), Mark(1, "phase 2"), Mark(3, "E1", checked=True))
    assert trace.mark_faults == ("1 mark damaged on the mark line: '~S2~2288'",)
    assert mark_complaints(trace, ("S1", "E1")) == []


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
