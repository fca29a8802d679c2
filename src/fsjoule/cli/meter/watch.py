"""`fsjoule meter watch`: live readings of the meter."""

from __future__ import annotations

import dataclasses
import json
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Annotated, Final, Protocol

import typer
from rich.text import Text

from fsjoule.cli.common import Ending, Json, ending, out
from fsjoule.cli.meter.common import Environment, MeterAddress, Seconds
from fsjoule.model import Mark, MarkSource

if TYPE_CHECKING:
    from rich.console import Group

    from fsjoule.meter.instruments import InstrumentMeter
    from fsjoule.meter.links.client import MeterClient
    from fsjoule.meter.links.receiver import Receiver
    from fsjoule.meter.protocol.frames import Frame
    from fsjoule.meter.protocol.sequence import StreamCounters
    from fsjoule.meter.tools.live import LiveReading

_SCREEN_PAUSE_S: Final = 0.1
_LINE_PAUSE_S: Final = 1.0
_PLOT_HEIGHT: Final = 12
_OTHER_LINES: Final = 9  # on the screen, besides the plot
_LEAST_HEIGHT: Final = 3
_SOURCES: Final = {MarkSource.LINE: "mark line", MarkSource.HOST: "host"}
_EDGES: Final = {MarkSource.RISING: "↑", MarkSource.FALLING: "↓"}


def watch(
    *,
    meter: MeterAddress = None,
    lg_env: Environment = None,
    seconds: Seconds = None,
    span: Annotated[float, typer.Option(min=1.0, max=3600.0, help="Seconds that the plot shows.")] = 30.0,
    json_output: Json = False,
) -> None:
    """Show live readings: watts, volts, amperes, joules since the start, marks and lost samples.

    It is a plot on a terminal, elsewhere one line per second; with --json one line of JSON per second. Ctrl-C ends it.

    Example: fsjoule meter watch --span 60
    """
    from fsjoule.meter.links.client import ClientMeter
    from fsjoule.runs.meter import desk_meter

    with desk_meter(meter, lg_env) as instrument, ending() as ended:
        if isinstance(instrument, ClientMeter):
            watching = _Stream(instrument.client, span)
        else:
            watching = _Instrument(instrument, span)
        if json_output:
            shower, pause_s = _json_line, _LINE_PAUSE_S
        elif out.is_terminal:
            _on_screen(watching, seconds, ended)
            return
        else:
            shower, pause_s = _text_line, _LINE_PAUSE_S
        with watching.listening():
            _repeat(watching, pause_s, seconds, ended, lambda: typer.echo(shower(watching)))


class _Watching(Protocol):
    """Live figures of a meter, while `listening`; the plot shows `span_s`."""

    span_s: float

    def listening(self) -> AbstractContextManager[object]: ...

    def look(self, columns: int = 0) -> _View:
        """The present readings, and the marks since the last look."""
        ...

    def raise_if_over(self) -> None:
        """Raise MeterError if the meter was given up."""
        ...


class _Instrument:
    """The live figures of an instrument, read when they are looked at."""

    def __init__(self, instrument: InstrumentMeter, span_s: float) -> None:
        from fsjoule.meter.tools.recorder import PieceFigures

        self.span_s = span_s
        self._meter = instrument
        self._figures = PieceFigures(span_s)

    def listening(self) -> AbstractContextManager[object]:
        self._meter.arm()
        return nullcontext()

    def look(self, columns: int = 0) -> _View:
        piece = self._meter.take()
        marks, info, figures = self._figures.take(piece), self._meter.info(), self._figures
        ranges = figures.ranges(columns, self.span_s) if columns else ()
        return _View(
            figures.reading(),
            info.serial_number,
            info.simulated,
            marks,
            tuple(figures.marks),
            ranges,
            trouble="; ".join(piece.clock_faults),
        )

    def raise_if_over(self) -> None:
        """An instrument that cannot be read any more raises in `look`."""


class _Stream:
    """The live figures of fsjoule's own meter; the receiving thread keeps them up to date."""

    def __init__(self, client: MeterClient, span_s: float) -> None:
        from fsjoule.meter.tools.live import Live

        self._receiver: Receiver = client.receiver
        self.span_s = span_s
        self._live = Live(self._receiver.wait_info(), span_s)
        self._lock = threading.Lock()
        self._new_marks: list[Mark] = []
        self._before = dataclasses.replace(self._receiver.counters)

    def listening(self) -> AbstractContextManager[object]:
        return self._receiver.listening(self._take)

    def raise_if_over(self) -> None:
        self._receiver.raise_if_over()

    def _take(self, frames: Sequence[Frame], _heard_s: float) -> None:
        with self._lock:
            self._new_marks += self._live.take(frames)

    def look(self, columns: int = 0) -> _View:
        """The present readings, and the marks since the last look."""
        line = self._receiver.counters.since(self._before)
        stray = str(self._receiver.stray) if self._receiver.stray else line.losses
        with self._lock:
            marks, self._new_marks = self._new_marks, []
            return _View(
                self._live.reading(),
                self._live.info.serial_number,
                self._live.info.simulated,
                tuple(marks),
                tuple(self._live.marks),
                self._live.ranges(columns, self.span_s) if columns else (),
                self._receiver.silence or stray,
                line,
            )


@dataclasses.dataclass(frozen=True, slots=True)
class _View:
    reading: LiveReading
    serial_number: str
    simulated: bool
    new_marks: tuple[Mark, ...]
    last_marks: tuple[tuple[float, Mark], ...]
    ranges: Sequence[tuple[float, float] | None]
    trouble: str
    line: StreamCounters | None = None


def _repeat(
    watching: _Watching, pause_s: float, seconds: float | None, ended: Ending, show: Callable[[], None]
) -> None:
    begin = time.monotonic()
    shown = 0
    over = False
    while not over:
        shown += 1
        until = begin + shown * pause_s if seconds is None else begin + min(shown * pause_s, seconds)
        over = ended.wait(max(0.0, until - time.monotonic()))
        show()
        watching.raise_if_over()
        if seconds is not None and time.monotonic() - begin >= seconds:
            return


def _json_line(watching: _Watching) -> str:
    view = watching.look()
    document = dataclasses.asdict(view.reading) | {
        "marks": [dataclasses.asdict(mark) for mark in view.new_marks],
        "trouble": view.trouble or None,
        "line": None if view.line is None else dataclasses.asdict(view.line),
        "meter": view.serial_number,
        "simulated": view.simulated,
    }
    return json.dumps(document)


def _text_line(watching: _Watching) -> str:
    view = watching.look()
    marks = "".join(f"  [{mark_text(mark)}]" for mark in view.new_marks)
    reading, word = view.reading, "  simulated" if view.simulated else ""
    gone = f"  {reading.missed} missed, {reading.lost} lost" if reading.missed or reading.lost else ""
    trouble = f"  {view.trouble}" if view.trouble else ""
    return f"{reading.seconds:8.1f} s  {_figures(reading)}{word}{marks}{gone}{trouble}"


def _figures(reading: LiveReading) -> str:
    if reading.watts is None:
        return "no samples"
    if reading.volts is None or reading.amperes is None:
        return f"{reading.watts:7.4f} W  {reading.joules:10.3f} J"
    return f"{reading.watts:7.4f} W  {reading.volts:6.3f} V  {reading.amperes:8.5f} A  {reading.joules:10.3f} J"


def mark_text(mark: Mark) -> str:
    """A mark in a few characters: its text, or an arrow for an edge."""
    return _EDGES.get(mark.source) or mark.text


def _on_screen(watching: _Watching, seconds: float | None, ended: Ending) -> None:
    from rich.live import Live as Screen

    with watching.listening(), Screen(console=out, auto_refresh=False, vertical_overflow="crop") as screen:
        _repeat(watching, _SCREEN_PAUSE_S, seconds, ended, lambda: screen.update(_picture(watching), refresh=True))


def _picture(watching: _Watching) -> Group:
    from rich.console import Group

    from fsjoule.meter.tools.live import dots_across, plot

    width = max(20, out.width - 1)
    height = max(_LEAST_HEIGHT, min(_PLOT_HEIGHT, out.height - _OTHER_LINES))
    view = watching.look(dots_across(width))
    reading = view.reading
    head = Text(f"meter {view.serial_number}", style="bold")
    if view.simulated:
        head.append("  simulated", style="yellow")
    lines = [head, Text(_figures(reading), style="bold cyan")]
    if reading.least_watts is not None and reading.mean_watts is not None and reading.largest_watts is not None:
        lines.append(
            Text(
                f"min {reading.least_watts:.4f}  mean {reading.mean_watts:.4f}  max {reading.largest_watts:.4f} W"
                f"  in {reading.seconds:.1f} s"
            )
        )
    lines += [Text(line) for line in plot(view.ranges, width, height)]
    lines.append(Text(f"{'':>8}└ the last {watching.span_s:g} s; Ctrl-C ends", style="dim"))
    marks = "  ".join(
        f"{at:.2f} s {mark_text(mark)} ({_SOURCES.get(mark.source, 'pin')})" for at, mark in view.last_marks
    )
    lines.append(Text(f"marks   {marks or 'none yet'}"))
    counts = f"samples {reading.received} received, {reading.missed} missed, {reading.lost} lost"
    lines.append(Text(counts, style="red" if reading.missed or reading.lost else ""))
    if view.trouble:
        lines.append(Text(view.trouble, style="bold red"))
    return Group(*lines)
