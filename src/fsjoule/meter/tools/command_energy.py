"""Joules of any command on this computer: `perf stat` for the energy of the circuit that the meter measures."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

from fsjoule.errors import FsjouleError, MeasurementInvalid, MeterError
from fsjoule.host import process
from fsjoule.meter.energy import energy, instrument_of, plausible, validity
from fsjoule.model import Energy, MarkSource, MeterInfo, Trace, Window

# Pauses between recording and idle power, and between idle power and the command: the computer is not quite idle then.
_MARGIN_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class Ran:
    """One run of a command: `seconds` by the host's clock, `window_s` by the meter's marks.

    Without `energy`, `remarks` has the reason; otherwise warnings. The net energy exists only with `has_net`.
    """

    exit_code: int
    seconds: float
    info: MeterInfo
    window_s: float | None = None
    energy: Energy | None = None
    has_net: bool = False
    remarks: tuple[str, ...] = ()
    trace: Trace | None = None


class DeskMeter(Protocol):
    """A meter that the host marks. Each raises MeterError if the meter does not answer."""

    def info(self) -> MeterInfo: ...

    def arm(self) -> None: ...

    def disarm(self) -> Trace: ...

    def mark_now(self, text: str) -> Callable[[], None]:
        """Mark this moment, without waiting. The result waits until the mark has arrived."""
        ...


def run_command(meter: DeskMeter, argv: Sequence[str], *, number: int, idle_s: float) -> Ran:
    """Run a command once, with `idle_s` seconds of idle power before it and marks at its start and end.

    Raises ConfigError if it cannot be run, MeterError if the meter is silent at the start. Later errors of the meter
    are remarks.
    """
    info = meter.info()
    meter.arm()
    time.sleep(idle_s + 2 * _MARGIN_S if idle_s else 0.0)
    marks = _Marks(meter, number)
    try:
        with marks:
            begin_s = time.monotonic()
            exit_code = process.to_its_end(argv)
            seconds = time.monotonic() - begin_s
    except FsjouleError:
        meter.disarm()
        raise
    ran = Ran(exit_code, seconds, info)
    try:
        marks.confirm()
        trace = meter.disarm()
    except MeterError as error:
        return replace(ran, remarks=(f"no energy: {error.what}",))
    return judged(replace(ran, trace=trace), trace, marks.texts, idle_s)


class _Marks:
    """The marks of one run, sent as it begins and ends. Replies are awaited after the run."""

    def __init__(self, meter: DeskMeter, number: int) -> None:
        self._meter = meter
        self._sent: list[Callable[[], None]] = []
        self._failed: MeterError | None = None
        self.texts = (f"run {number} begin", f"run {number} end")  # fit in 16 bytes up to number 999999

    def __enter__(self) -> None:
        self._send(self.texts[0])
        if self._failed is not None:
            raise self._failed

    def __exit__(self, *error: object) -> None:
        self._send(self.texts[1])

    def confirm(self) -> None:
        """Wait for the replies. Raises MeterError if a mark did not arrive."""
        if self._failed is not None:
            raise self._failed
        for arrived in self._sent:
            arrived()

    def _send(self, text: str) -> None:
        try:
            self._sent.append(self._meter.mark_now(text))
        except MeterError as error:
            self._failed = error


def judged(ran: Ran, trace: Trace, texts: tuple[str, str], idle_s: float) -> Ran:
    """The run with its energy, or with a remark why there is none; `texts` are those of its two marks."""
    window = _window(trace, texts)
    if window is None:
        return replace(ran, remarks=("no energy: the marks of begin and end did not both arrive",))
    idle = _idle_before(window, idle_s) if idle_s else window
    remarks = [
        *(each for each in trace.faults if each not in trace.clock_faults),
        *validity.sample_complaints(trace.counts),
    ]
    remarks += validity.clipping_complaints(trace, window, "the run")
    # The window is longer than the command by the delay of the marks.
    slack_s = max(0.0, window.duration_s - ran.seconds)
    wrong = list(trace.clock_faults)
    figures = None
    try:
        figures = energy(trace, window, idle, instrument_of(trace.info, MarkSource.HOST), slack_s=slack_s)
        wrong += plausible.swap_complaints(trace, window, "the run")
    except MeasurementInvalid as error:
        wrong += error.reasons
    ran = replace(ran, window_s=window.duration_s)
    if wrong:
        return replace(ran, remarks=(*remarks, *(f"no energy: {each}" for each in wrong)))
    return replace(ran, energy=figures, has_net=idle_s > 0, remarks=tuple(remarks))


def _window(trace: Trace, texts: tuple[str, str]) -> Window | None:
    ours = {mark.text: float(mark.time_us) for mark in trace.marks if mark.source is MarkSource.HOST}
    begin, end = texts
    return Window(ours[begin], ours[end]) if begin in ours and end in ours else None


def _idle_before(window: Window, idle_s: float) -> Window:
    stop_us = window.start_us - _MARGIN_S * 1e6
    return Window(stop_us - idle_s * 1e6, stop_us)
