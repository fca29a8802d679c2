from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from traces import trace_of

from fsjoule.meter.energy import energy, validity
from fsjoule.model import Mark, SampleCounts, Window


@pytest.mark.parametrize(("window_s", "valid"), [(10.0, True), (10.4, True), (10.5, False), (9.99, False)])
def test_the_window_brackets_the_work(window_s: float, *, valid: bool) -> None:
    complaints = validity.window_complaints(Window(0, window_s * 1e6), 10.0, 0.25)
    assert bool(complaints) is not valid


@pytest.mark.parametrize(("lost", "valid"), [(0, True), (1000, True), (1001, False)])
def test_lost_samples_are_bridged_up_to_a_limit(lost: int, *, valid: bool) -> None:
    complaints = validity.sample_complaints(SampleCounts(10_000, 10_000 - lost, 0, lost))
    assert complaints == ([] if valid else ["1001 of 10000 samples were lost between meter and host; allowed are 10%"])


def test_what_happened_to_a_trace_is_a_note() -> None:
    trace = trace_of(np.full(100, 2500))
    assert validity.trace_notes(trace) == []
    harmed = dataclasses.replace(trace, lost=20, missed=1, faults=("the INA219 did not answer (in 1 of 5 frames)",))
    assert validity.trace_notes(harmed) == [
        "the meter reported: the INA219 did not answer (in 1 of 5 frames)",
        "samples were lost between meter and host; the meter's own sums bridge the gaps",
        "the meter missed ticks; they are filled with the mean of their neighbours",
    ]


@pytest.mark.parametrize(("at", "shunt", "valid"), [(500, 7999, True), (500, 8000, False), (10, 8000, True)])
def test_clipped_samples_of_the_window(at: int, shunt: int, *, valid: bool) -> None:
    values = np.full(1000, 2500)
    values[at] = shunt
    complaints = validity.clipping_complaints(trace_of(values), Window(1_500_200, 1_600_000), "the window")
    assert complaints == (
        []
        if valid
        else [
            (
                "1 sample of the window reached the end of the meter's range of 80 mV: set a larger range, or use a "
                "smaller shunt"
            )
        ]
    )


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        (("S1", "E1"), ""),
        (("S1",), "the marks S1 and E1 did not both arrive (seen: S1)"),
        ((), "the marks S1 and E1 did not both arrive (seen: none)"),
        (("S1", "S1", "E1"), "the mark S1 was sent once and arrived 2 times"),
        (("S1", "E1", "E1"), "the mark E1 was sent once and arrived 2 times"),
    ],
)
def test_each_mark_arrives_once(texts: tuple[str, ...], words: str) -> None:
    trace = trace_of([1], marks=[Mark(time_us, text) for time_us, text in enumerate(texts)])
    complaints = validity.mark_complaints(trace, ("S1", "E1"))
    assert len(complaints) == bool(words)
    assert words in "".join(complaints)


def test_a_mark_that_is_missing_may_be_one_that_was_damaged() -> None:
    damaged = "1 mark damaged on the mark line: '~E1~15'"
    faults = ("the INA219 did not answer (in 1 of 5 frames)", damaged)
    trace = dataclasses.replace(trace_of([1], marks=[Mark(0, "S1")]), faults=faults)
    assert validity.mark_complaints(trace, ("S1", "E1")) == [
        f"the marks S1 and E1 did not both arrive (seen: S1); the meter reported: {damaged}"
    ]
    assert f"the meter reported: {damaged}" in validity.trace_notes(trace)


def test_samples_that_do_not_add_up() -> None:
    trace = trace_of(np.full(1000, 2500))
    idle, window = Window(1_000_000, 1_200_000), Window(1_300_000, 1_600_000)
    assert validity.energy_complaints(energy(trace, window, idle)) == []
    wrong = trace.shunt_raw.copy()
    wrong[400] += 1
    result = energy(dataclasses.replace(trace, shunt_raw=wrong), window, idle)
    (complaint,) = validity.energy_complaints(result)
    assert complaint.startswith("the samples add up to 375.000500 mJ, the meter accumulated 375.000000 mJ")
