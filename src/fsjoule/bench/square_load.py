"""The square-load self-test: how late marks are against the steps of power that they mark.

The board loads its CPU in a known pattern and marks each edge on its mark line. The meter sees marks and steps of power
in one clock; their difference is the latency of the marks, with the board's software and wiring. The board needs only a
shell and `sleep`.
"""

from __future__ import annotations

import logging
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from fsjoule.bench.onboard.marks import DIRECTORY, start_mark, stop_mark
from fsjoule.errors import LabError, MeasurementInvalid
from fsjoule.meter.energy import instrument_of
from fsjoule.model import MarkLine, MarkSource, MeterInfo, Trace
from fsjoule.ports import Clock, Meter, Shell

_log: Final = logging.getLogger(__name__)

PULSES: Final = 20
BUSY_S: Final = 0.1
IDLE_S: Final = 0.4
_SCRIPT: Final = f"{DIRECTORY}/square"
# All sleeps start before the first pulse, so that no program starts at an edge; the shell itself waits for them.
_TEXT: Final = """#!/bin/sh
loops=$1; shift
pids=
for delay; do sleep "$delay" & pids="$pids $!"; done
n=0
for pid in $pids; do
 n=$((n+1)); wait "$pid"
 @START@
 i=0; while [ $i -lt "$loops" ]; do i=$((i+1)); done
 @STOP@
done
"""
# Times a number of rounds of the shell's loop by the board's clock.
_TIMING: Final = (
    'read a rest < /proc/uptime; i=0; while [ $i -lt "$0" ]; do i=$((i+1)); done; '
    "read b rest < /proc/uptime; echo $a $b"
)
_FIRST_LOOPS: Final = 2000
_LEAST_TIMED_S: Final = 0.5
_LEAD_S: Final = 2.0  # from the first sleep to the first pulse
_TAIL_S: Final = 0.3
_TIMEOUT_S: Final = 120.0
_ATTEMPTS: Final = 3
_LEAST_SAMPLES: Final = 4
_LEAST_HEIGHT_W: Final = 0.005
_LEAST_REST_S: Final = 0.08
_SD_OF_MAD: Final = 1.4826  # the standard deviation of a normal distribution over its median absolute deviation


@dataclass(frozen=True, slots=True)
class Latency:
    """Marks against steps, in seconds: positive if the mark comes after its step. `spread_s` is the SD."""

    steps: int
    median_s: float
    spread_s: float
    least_s: float
    largest_s: float

    @property
    def farthest_s(self) -> float:
        """The worst mark's distance from its step, early or late."""
        return max(abs(self.least_s), abs(self.largest_s))


@dataclass(frozen=True, slots=True)
class SquareLoad:
    """The results of a square load: power at rest and under load, in W, and the latency of start and stop marks."""

    pulses: int
    low_w: float
    high_w: float
    noise_w: float
    start: Latency
    stop: Latency


def square_load(shell: Shell, meter: Meter, clock: Clock, mark_line: MarkLine) -> tuple[SquareLoad, MeterInfo]:
    """Draw a square load and find its steps, in up to three tries. Raises LabError, MeasurementInvalid."""

    def attempt() -> tuple[SquareLoad, MeterInfo]:
        _log.info("the board draws a square load")
        trace = run_square_load(shell, meter, clock, mark_line)
        return analyse(trace, mark_line), trace.info

    for _ in range(_ATTEMPTS - 1):
        try:
            return attempt()
        except MeasurementInvalid as error:
            _log.info("%s", error.what)
    return attempt()


def mark_limit_s(info: MeterInfo, line: MarkLine, window_excess_s: float) -> float:
    """How far a mark may be from its step, because the energy's uncertainty includes so much; in seconds."""
    instrument = instrument_of(info, line.source)
    return instrument.mark_s + instrument.sample_s + window_excess_s


def run_square_load(shell: Shell, meter: Meter, clock: Clock, mark_line: MarkLine, *, pulses: int = PULSES) -> Trace:
    """Have a booted board draw a square load; returns the meter's trace. Raises LabError."""
    shell.run(("mkdir", "-p", DIRECTORY))
    text = _TEXT.replace("@START@", mark_line.send("S$n")).replace("@STOP@", mark_line.send("E$n"))
    shell.put(_SCRIPT, text.encode())
    loops = round(BUSY_S * _loops_per_s(shell))
    delays = [f"{_LEAD_S + number * (BUSY_S + IDLE_S):.3f}" for number in range(pulses)]
    meter.arm()
    done = shell.run(("sh", _SCRIPT, str(loops), *delays), timeout_s=_TIMEOUT_S)
    clock.sleep(_TAIL_S)
    trace = meter.disarm()
    if done.exit_code != 0:
        raise LabError(f"the square load failed on the board with exit code {done.exit_code}: {done.stdout.strip()}")
    return trace


def _loops_per_s(shell: Shell) -> float:
    loops = _FIRST_LOOPS
    while True:
        done = shell.run(("sh", "-c", _TIMING, str(loops)), timeout_s=_TIMEOUT_S)
        try:
            begin_s, end_s = (float(word) for word in done.stdout.split())
        except ValueError as error:
            raise LabError(f"the board's clock cannot be read: {shlex.quote(done.stdout.strip())}") from error
        if end_s - begin_s >= _LEAST_TIMED_S:
            return loops / (end_s - begin_s)
        loops *= 2


def analyse(trace: Trace, line: MarkLine, pulses: int = PULSES) -> SquareLoad:
    """Find the steps of a square load and compare its marks with them.

    A step is sought between the middle of a pulse and the middle of the rest beside it. A busy board may leave too
    short a rest for a step. Raises MeasurementInvalid if marks are missing, or too few steps are visible.
    """
    starts, stops = (_mark_times(trace, line, [text(n + 1) for n in range(pulses)]) for text in (start_mark, stop_mark))
    tops, rest_us = (starts + stops) / 2, starts[1:] - stops[:-1]
    rested = np.concatenate([[True], rest_us >= _LEAST_REST_S * 1e6, [True]])  # before each pulse, and after the last
    outer_us = IDLE_S * 1e6 / 2
    rests = np.concatenate([[starts[0] - outer_us], stops[:-1] + rest_us / 2, [stops[-1] + outer_us]])
    power = _Power(trace.times_us.astype(np.float64), trace.power_w, trace.info.tick_us)
    low_w, noise_w = power.level(rests[rested], _LEAST_REST_S * 1e6 / 4)
    high_w, _ = power.level(tops, float((stops - starts).mean()) / 4)
    if min(rested[:-1].sum(), rested[1:].sum()) < pulses / 2 or high_w - low_w < _LEAST_HEIGHT_W + 4 * noise_w:
        seen = f"{low_w:.4f} W at rest (noise {noise_w:.4f} W), {high_w:.4f} W under load"
        raise MeasurementInvalid("square load", [f"the steps are too few or too small: {seen}"])
    before, after = np.flatnonzero(rested[:-1]), np.flatnonzero(rested[1:])
    up = np.array([power.step(rests[n], tops[n], low_w, high_w) for n in before])
    down = np.array([power.step(tops[n], rests[n + 1], high_w, low_w) for n in after])
    return SquareLoad(
        pulses, low_w, high_w, noise_w, start=_latency(starts[before] - up), stop=_latency(stops[after] - down)
    )


_Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False, slots=True)
class _Power:
    """Samples: the begin and the power of each."""

    begin_us: _Floats
    watts: _Floats
    tick_us: float

    def level(self, middles: _Floats, reach_us: float) -> tuple[float, float]:
        """Median power around some moments, and its noise there (from the MAD, which a few steps do not affect)."""
        near = np.zeros(len(self.watts), dtype=np.bool_)
        for middle in middles:
            near |= (self.begin_us >= middle - reach_us) & (self.begin_us < middle + reach_us)
        if not near.any():
            raise MeasurementInvalid("square load", ["the trace does not reach over the pulses"])
        median = float(np.median(self.watts[near]))
        return median, _SD_OF_MAD * float(np.median(np.abs(self.watts[near] - median)))

    def step(self, first_us: float, last_us: float, before_w: float, after_w: float) -> float:
        """When the power went from one level to the other between two moments, in us.

        The cumulative sum of the power above the threshold, midway between the levels, turns there: the most likely
        moment under noise. Within a tick, the sample's share of the step tells the moment.
        """
        inside = np.flatnonzero((self.begin_us >= first_us) & (self.begin_us < last_us))
        if len(inside) < _LEAST_SAMPLES:
            raise MeasurementInvalid("square load", [f"{len(inside)} samples around a step are too few to find it"])
        # Grows at the level before, and falls at the level after.
        side = np.cumsum((self.watts[inside] - (before_w + after_w) / 2) * np.sign(before_w - after_w))
        at = inside[min(int(np.argmax(side)) + 1, len(inside) - 1)]
        # The last sample before may contain the step's beginning, or the first sample after its end.
        parts = np.clip((self.watts[[at - 1, at]] - before_w) / (after_w - before_w), 0.0, 1.0)
        return float(self.begin_us[at] + self.tick_us * (1 - parts.sum()))


def _mark_times(trace: Trace, line: MarkLine, texts: Sequence[str]) -> _Floats:
    if line.is_gpio:
        edges = [float(mark.time_us) for mark in trace.marks if mark.text == line.heard_as(texts[0])]
        if len(edges) != len(texts):
            what = f"{len(edges)} marks of the kind {line.heard_as(texts[0])!r} arrived, and {len(texts)} were sent"
            raise MeasurementInvalid("square load", [what])
        return np.array(edges)
    times = {mark.text: float(mark.time_us) for mark in trace.marks if mark.source is MarkSource.LINE}
    if missing := [text for text in texts if text not in times]:
        raise MeasurementInvalid("square load", [f"marks did not arrive: {', '.join(missing)}"])
    return np.array([times[text] for text in texts])


def _latency(late_us: _Floats) -> Latency:
    late_s = late_us * 1e-6
    spread_s = float(late_s.std(ddof=1))
    return Latency(len(late_s), float(np.median(late_s)), spread_s, float(late_s.min()), float(late_s.max()))
