"""A kernel's tick is known from the board, and a meter's rate in step with it is told with each of its joules."""

from __future__ import annotations

import dataclasses
import math

import pytest
from fake_bench import FACTS, IMAGE, answer, bench_of, entry, traced
from plain_traces import PLAIN
from results_factory import make_run
from traces import INFO

from fsjoule.bench.instrument import check_board
from fsjoule.errors import LabError
from fsjoule.host.messages import lines_to
from fsjoule.lab.facts import tick_hz
from fsjoule.meter.energy.validity import tick_notes
from fsjoule.report.facts import run_facts
from fsjoule.testing import FakeBoard, FakeMeter, FakeShell

COUNT_WRAPS = 2**32


def _timers(hz: int, uptime_s: float, bits: int = 32) -> str:
    """As a kernel says it whose ticks began 40 ms after its time."""
    count = (COUNT_WRAPS - 300 * hz + math.floor((uptime_s - 0.04) * hz)) % 2**bits
    return f"now at {round(uptime_s * 1e9)} nsecs\njiffies: {count}\n"


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("uptime_s", [4.0, 45.7, 290.0, 320.0, 3600.0, 86_400.0, 400 * 86_400.0])
def test_a_kernel_tells_its_tick_by_its_count_of_ticks(bits: int, uptime_s: float) -> None:
    for hz in (100, 128, 250, 256, 300, 1000):
        assert tick_hz(_timers(hz, uptime_s, bits)) == hz


def test_a_tick_that_is_not_certain_is_not_known() -> None:
    """The count wraps 300 seconds after the start; some kernels have no count, or one that belongs to no HZ."""
    assert tick_hz(_timers(250, 300.05)) == 0
    assert tick_hz("now at 52929595064051 nsecs\n") == 0
    assert tick_hz("") == 0
    assert tick_hz(_timers(270, 100.0)) == 0


def test_a_host_of_months_tells_its_tick() -> None:
    """Recorded of a virtual machine whose ticks are 18 s behind its time after 15 hours."""
    assert tick_hz("now at 52929595064051 nsecs\njiffies: 4308129331\n") == 250


def _advised(rate_hz: int, tick_hz: int) -> int | None:
    """The rate that is advised instead of one; None if that one is as good."""
    notes = tick_notes(dataclasses.replace(INFO, rate_hz=rate_hz), tick_hz)
    return int(notes[0].partition("--rate ")[2].split()[0]) if notes else None


def test_a_rate_in_step_with_the_tick_gets_another_one_advised() -> None:
    assert [_advised(1000, hz) for hz in (100, 250, 300, 1000, 0)] == [625, 800, None, 625, None]
    assert [_advised(800, hz) for hz in (100, 250, 300, 1000)] == [625, None, None, None]
    for rate_hz in (100, 125, 500, 1000, 1600, 2000):
        for hz in (100, 250, 1000):
            advised = _advised(rate_hz, hz)
            assert advised is None or _advised(advised, hz) is None


def test_the_rate_of_another_instrument_is_its_own() -> None:
    assert tick_notes(PLAIN, 1000) == []


def test_each_joule_of_a_rate_in_step_has_the_note_and_the_run_the_tick() -> None:
    def measured(hz: int) -> tuple[tuple[str, ...], str]:
        shell = FakeShell(answer)
        bench = bench_of(shell=shell, meter=FakeMeter())
        wanted = entry(bench, "write-16k")
        said: list[str] = []
        board = FakeBoard(shell, dataclasses.replace(FACTS, tick_hz=hz), IMAGE)
        trace = traced(f"S{wanted.number}", f"E{wanted.number}")
        bench = dataclasses.replace(bench, board=board, meter=FakeMeter(trace))
        with lines_to(said.append):
            result = bench.measure(wanted)
        assert bench.run.boards["6.1"].tick_hz == hz
        return result.notes, "\n".join(said)

    notes, said = measured(250)
    assert [note for note in notes if "--rate 800 --save" in note and "HZ 250" in note]
    assert "warning: the meter's 1000 samples/s are in step" in said
    notes, said = measured(300)
    assert not [note for note in notes if "in step" in note]
    assert "in step" not in said


def test_a_resumed_run_of_an_older_version_did_not_know_the_tick() -> None:
    knows = dataclasses.replace(FACTS, tick_hz=250)
    check_board(FACTS, knows)
    check_board(knows, FACTS)
    with pytest.raises(LabError, match="tick_hz was 250, it is 1000 now"):
        check_board(knows, dataclasses.replace(FACTS, tick_hz=1000))


def test_the_page_names_the_tick() -> None:
    run = make_run().run
    assert run.board is not None
    ticking = dataclasses.replace(
        run, boards={label: dataclasses.replace(board, tick_hz=250) for label, board in run.boards.items()}
    )
    assert ("tick", "250 a second (HZ)") in [fact for _, facts in run_facts(ticking) for fact in facts]
    assert "tick" not in {name for _, facts in run_facts(run) for name, _ in facts}
