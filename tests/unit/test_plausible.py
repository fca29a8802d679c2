"""A meter that cannot have measured the running board: its figures are never valid."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from fake_bench import PROFILE, answer, bench_of, entry, runtime_s, traced
from meter_faults import FAULTS, trials
from plain_traces import plain_trace_of
from traces import trace_of

from fsjoule.meter.energy import plausible
from fsjoule.meter.tools.command_energy import Ran, judged
from fsjoule.model import Mark, MarkSource, Measurement, Window
from fsjoule.model.trace import BY_THE_CLOCK
from fsjoule.testing import FakeBoard, FakeMeter, FakeShell

_WINDOW = Window(1_300_000, 1_900_000)


def _measured(shunt_raw: int) -> Measurement:
    bench = bench_of(shell=FakeShell(answer), meter=FakeMeter())
    wanted = entry(bench, "write-16k")
    texts = f"S{wanted.number}", f"E{wanted.number}"
    return replace(bench, meter=FakeMeter(traced(*texts, runtime_s=runtime_s() + 0.01, shunt_raw=shunt_raw))).measure(
        wanted
    )


def test_swapped_leads_make_a_measurement_invalid() -> None:
    reasons = _measured(-2500).invalid_reasons
    assert any("-1.250 W: the leads of the meter are swapped" in each for each in reasons)


def test_a_meter_beside_the_boards_supply_makes_it_invalid() -> None:
    reasons = _measured(3).invalid_reasons
    assert any("mW flowed: is the meter in this board's supply" in each for each in reasons), reasons


def test_samples_that_are_missing_by_the_clock_make_it_invalid() -> None:
    fault = f"66 ms of samples are missing {BY_THE_CLOCK}"
    bench = bench_of(shell=FakeShell(answer), meter=FakeMeter())
    wanted = entry(bench, "write-16k")
    trace = traced(f"S{wanted.number}", f"E{wanted.number}", runtime_s=runtime_s() + 0.01)
    measured = replace(bench, meter=FakeMeter(replace(trace, faults=(fault,)))).measure(wanted)
    assert measured.invalid_reasons == (f"the meter reported: {fault}",)
    assert fault not in " ".join(measured.notes)


@pytest.mark.parametrize(("ticks", "said"), [(4, False), (5, True)])
def test_a_supply_is_missing_for_longer_than_a_converter_rests(ticks: int, *, said: bool) -> None:
    shunt = np.full(1000, 2500)
    shunt[500 : 500 + ticks] = 0
    assert bool(plausible.flow_complaints(trace_of(shunt), _WINDOW, "the window")) is said


@pytest.mark.parametrize(("ticks", "said"), [(4, False), (5, True), (300, True)])
def test_leads_that_are_swapped_for_a_while_are_told_as_that(ticks: int, *, said: bool) -> None:
    shunt = np.full(1000, 2500)
    shunt[500 : 500 + ticks] = -2500
    (told,) = plausible.flow_complaints(trace_of(shunt), _WINDOW, "the window") or [""]
    assert told.startswith(f"for {ticks} ms of the window the current flowed back: the leads" if said else "")
    assert bool(told) is said


def test_a_processors_counter_may_rest() -> None:
    trace = plain_trace_of(trace_of(np.zeros(1000)))
    counter = replace(trace, info=replace(trace.info, measures_voltage=False))
    assert plausible.flow_complaints(counter, _WINDOW, "the window") == []


def test_a_command_has_no_negative_joules() -> None:
    marks = Mark(1_300_000, "begin", MarkSource.HOST), Mark(1_900_000, "end", MarkSource.HOST)
    trace = trace_of(np.full(1000, -2500), marks=marks)
    ran = judged(Ran(0, 0.6, trace.info), trace, ("begin", "end"), 0.2)
    assert ran.energy is None
    assert "no energy: the run has a mean power of -1.250 W" in " ".join(ran.remarks)


@pytest.mark.parametrize(("off_raw", "valid"), [(0, True), (500, True), (900, False)])
def test_a_meter_that_reads_power_without_the_board_is_another_boards(off_raw: int, *, valid: bool) -> None:
    """The meter is asked before the first boot of a board that somebody has wired."""
    meter = FakeMeter(traced(shunt_raw=off_raw))
    bench = replace(bench_of(shell=FakeShell(answer), meter=meter), profile=replace(PROFILE, simulated=False))
    wanted = entry(bench, "write-16k")
    board = bench.board
    assert isinstance(board, FakeBoard)
    texts = f"S{wanted.number}", f"E{wanted.number}"
    running, resting = traced(*texts, runtime_s=runtime_s() + 0.01), meter.trace
    meter.now = lambda: running if board.powered else resting
    reasons = bench.measure(wanted).invalid_reasons
    assert [each[:40] for each in reasons] == ([] if valid else ["with the board off the meter read 0.450 W"[:40]])


@pytest.mark.parametrize("fault", FAULTS)
def test_no_joules_of_a_faulty_meter_are_wrong_and_silent(fault: str) -> None:
    """The campaign's first trials: each fault of each instrument."""
    assert {name: (each.silent, each.trials) for name, each in trials(fault, 6, seed=1).items() if each.silent} == {}
