"""A board's own energy counter, read over a shell: real shells and programs, and a counter of a known power."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from fsjoule.errors import MeterError
from fsjoule.lab.board_counter import BoardCounter
from fsjoule.meter.energy import energy
from fsjoule.meter.protocol.powercap import POWERCAP, RANGE_UJ, UPDATE_US, counted
from fsjoule.model import MarkLine, PlainInfo, Window
from fsjoule.model.mark_line import COUNTED
from fsjoule.ports import Command, CommandResult
from fsjoule.virtual.lab.board import start_simulated_counter

_BOARDS = "/tmp/fsjoule"


@dataclass
class LocalShell:
    folder: Path

    def here(self, text: str) -> str:
        return text.replace(_BOARDS, f"{self.folder}/fsjoule")

    def run(self, argv: Sequence[str], *, timeout_s: float = 30.0) -> CommandResult:
        command = [self.here(word) for word in argv]
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=timeout_s, check=False
        )
        return CommandResult(tuple(argv), done.returncode, done.stdout)

    def run_all(self, commands: Sequence[Command]) -> tuple[CommandResult, ...]:
        return tuple(self.run(each.argv, timeout_s=each.timeout_s) for each in commands)

    def start(self, argv: Sequence[str]) -> None:
        raise AssertionError(f"nothing is left running: {argv}")

    def put(self, path: str, content: bytes) -> None:
        Path(self.here(path)).write_text(self.here(content.decode()))

    def get(self, path: str) -> bytes:
        return Path(self.here(path)).read_bytes()

    def get_all(self, paths: Sequence[str]) -> tuple[bytes, ...]:
        there = [Path(self.here(path)) for path in paths]
        return tuple(path.read_bytes() if path.exists() else b"" for path in there)


WATTS = 5.0
RANGE = 1_000_000
INFO = PlainInfo(
    instrument=POWERCAP,
    firmware="",
    serial_number="board zone",
    rate_hz=1000,
    measures_voltage=False,
    simulated=True,
    settings={UPDATE_US: 1000.0, RANGE_UJ: float(RANGE)},
)


def _processes(folder: Path) -> list[int]:
    """The processes whose command names the folder."""
    found: list[int] = []
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if str(folder).encode() in each.read_bytes():
                found.append(int(each.parent.name))
    return found


@pytest.fixture
def shell(tmp_path: Path) -> Generator[LocalShell]:
    yield LocalShell(tmp_path)
    for each in _processes(tmp_path):
        with contextlib.suppress(ProcessLookupError):  # it has just ended by itself
            os.kill(each, signal.SIGKILL)


@pytest.fixture
def line(tmp_path: Path) -> MarkLine:
    return MarkLine(str(tmp_path / "zone" / "energy_uj"))


def _counter(line: MarkLine, shell: Callable[[], LocalShell | None]) -> BoardCounter:
    return BoardCounter(line, "pc", shell, lambda here: start_simulated_counter(here, line.device, WATTS))


def _zone(line: MarkLine, count: str = "17") -> None:
    zone = Path(line.device).parent
    zone.mkdir()
    for name, text in {"energy_uj": count, "max_energy_range_uj": str(RANGE), "name": "package-0"}.items():
        (zone / name).write_text(f"{text}\n")


def test_the_joules_between_two_marks_are_those_of_the_counter(line: MarkLine, shell: LocalShell) -> None:
    meter = _counter(line, lambda: shell)
    info = meter.info()
    assert (info.kind, info.serial_number, info.simulated) == (POWERCAP, "pc zone simulated", True)
    meter.arm()
    time.sleep(1.3)
    begun = time.monotonic()
    shell.run(("sh", "-c", f"number=7; {line.send('S$number')}; sleep 1; {line.send('E$number')}"))
    took_s = time.monotonic() - begun
    trace = meter.disarm()
    start, stop = trace.marks
    assert (start.text, stop.text) == ("S7", "E7")
    window_s = (stop.time_us - start.time_us) / 1e6
    assert 1.0 <= window_s <= took_s
    found = energy(trace, Window(start.time_us, stop.time_us), Window(start.time_us - 1e6, start.time_us))
    assert found.lost_ticks == 0
    lines = [line.split() for line in shell.get(COUNTED).decode().splitlines()]
    assert len(lines) >= 5  # begin, end, marks, and each second
    count = {mark: int(uj) for _, uj, *marks in lines for mark in marks}
    # Exact but for the ticks of 1 ms at both marks.
    assert found.gross_mj.value == pytest.approx((count["E7"] - count["S7"]) / 1000, abs=4 * WATTS)
    # How old a count is depends on this computer's load.
    assert found.gross_mj.value == pytest.approx(1000 * WATTS * window_s, rel=0.5)


def test_a_processor_of_several_says_that_it_is_a_part(line: MarkLine, shell: LocalShell, tmp_path: Path) -> None:
    _zone(line)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "name").write_text("package-1\n")
    meter = BoardCounter(line, "pc", lambda: shell, None)
    meter.arm()
    _count(line, 8017)
    assert meter.disarm().faults == ("package-0 is one of the board's 2 processors",)


def _count(line: MarkLine, count: int) -> None:
    Path(line.device).write_text(f"{count}\n")


def test_nothing_reads_on_after_the_end(line: MarkLine, shell: LocalShell, tmp_path: Path) -> None:
    meter = _counter(line, lambda: shell)
    meter.arm()
    time.sleep(0.3)
    meter.disarm()
    lines = len(shell.get(COUNTED).splitlines())
    time.sleep(1.5)
    assert len(shell.get(COUNTED).splitlines()) == lines
    assert not [each for each in _processes(tmp_path) if "fsjoule-count " in f"{_command(each)} "]


def _command(process: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    return ""


def test_before_its_boot_and_after_another_one_the_board_cannot_be_asked(line: MarkLine, shell: LocalShell) -> None:
    shells: list[LocalShell | None] = [None]
    meter = _counter(line, lambda: shells[-1])
    for use in (meter.info, meter.arm):
        with pytest.raises(MeterError, match="over its shell, after its boot"):
            use()
    with pytest.raises(MeterError, match="was not armed"):
        meter.disarm()
    shells.append(shell)
    meter.arm()
    shells.append(LocalShell(shell.folder))
    with pytest.raises(MeterError, match="has booted anew"):
        meter.disarm()


def test_a_reader_that_ended_is_named(line: MarkLine, shell: LocalShell, tmp_path: Path) -> None:
    meter = _counter(line, lambda: shell)
    meter.arm()
    for each in _processes(tmp_path):
        if re.search(r"fsjoule-count\b", _command(each)):
            os.kill(each, signal.SIGKILL)
            deadline = time.monotonic() + 20
            while _command(each) and time.monotonic() < deadline:
                time.sleep(0.01)
    with pytest.raises(MeterError, match="the program on the board that reads its counter has ended"):
        meter.disarm()


@pytest.mark.parametrize("count", [None, "", "no number"])
def test_a_board_without_such_a_counter_says_so(line: MarkLine, shell: LocalShell, count: str | None) -> None:
    if count is not None:
        _zone(line, count)
    meter = BoardCounter(line, "pc", lambda: shell, None)
    with pytest.raises(MeterError, match=r"no energy counter .*zone/energy_uj that can be read") as error:
        meter.arm()
    assert error.value.hint is not None
    assert "mark_device names the counter" in error.value.hint


def test_a_counter_that_stands_still_gives_no_joules(line: MarkLine, shell: LocalShell) -> None:
    _zone(line)
    meter = BoardCounter(line, "pc", lambda: shell, None)
    meter.arm()
    with pytest.raises(MeterError, match="stands still"):
        meter.disarm()


def test_a_counter_that_begins_again_is_counted_on_and_readings_of_two_programs_may_cross() -> None:
    """5 W, a reading each 10 ms. Two programs read at once: the later time has the earlier count."""
    readings = [(10_000_000 * n, (RANGE - 400_000 + 50_000 * n) % RANGE) for n in range(100)]
    lines = [f"{ns} {uj}" for ns, uj in readings]
    lines[30], lines[31] = f"{readings[31][0]} {readings[30][1]} S1", f"{readings[30][0]} {readings[31][1]} "
    trace = counted("\n".join(lines), INFO)
    assert trace.energy_nj.sum() == 99 * 50_000 * 1000
    assert [(mark.time_us, mark.text) for mark in trace.marks] == [(310_000, "S1")]


@pytest.mark.parametrize("text", ["", "1 2\nx", "1\n", "1 2 S1 E1\n", " 5 S1\n", "1 2\n3 \n"])
def test_damaged_readings_are_refused(text: str) -> None:
    with pytest.raises(MeterError, match=r"is damaged|stands still"):
        counted(text, INFO)
