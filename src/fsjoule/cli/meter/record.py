"""`fsjoule meter record`: samples into files."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.text import Text

from fsjoule.cli.common import Ending, Json, ending, err, labelled, out, output_files, print_json
from fsjoule.cli.meter.common import Environment, MeterAddress, Seconds, with_simulated
from fsjoule.errors import MeterError

if TYPE_CHECKING:
    from collections.abc import Callable

    from fsjoule.meter.instruments import InstrumentMeter
    from fsjoule.meter.links.client import ClientMeter
    from fsjoule.meter.tools.live import LiveReading
    from fsjoule.meter.tools.recorder import RecordedTrace

_MIB: Final = 1024 * 1024


def record_command(
    *,
    output: Annotated[
        list[Path],
        typer.Option(
            "--output",
            "-o",
            callback=output_files,
            help="FILE.parquet, or FILE.csv in devlib's format; may be repeated.",
        ),
    ],
    meter: MeterAddress = None,
    lg_env: Environment = None,
    seconds: Seconds = None,
    json_output: Json = False,
) -> None:
    """Record samples and marks until Ctrl-C, SIGTERM or --seconds; hours need no more memory than seconds.

    Parquet keeps the meter's raw samples; CSV has volts, amperes and watts. At the end it prints how many samples were
    missed and lost, and the drift of the meter's clock against this computer's. It exits with 4 if frames were lost or
    damaged, because marks may be among them.

    Example: fsjoule meter record --seconds 60 -o trace.parquet -o trace.csv
    """
    from fsjoule.runs.meter import desk_meter

    with desk_meter(meter, lg_env) as instrument, ending() as ended:
        if err.is_terminal and not json_output:
            from rich.live import Live as Screen

            with Screen(console=err, auto_refresh=False, transient=True) as screen:
                done = _record(
                    instrument, output, ended, seconds, lambda r: screen.update(Text(_line(r)), refresh=True)
                )
        else:
            done = _record(instrument, output, ended, seconds, lambda _reading: None)
    if json_output:
        print_json(_document(done))
    else:
        _show(done)
    if done.failures:
        raise done.failures[0]
    if done.losses:
        raise MeterError(f"the recording is not whole: {done.losses}", hint="the files hold all that came")


def _record(
    instrument: ClientMeter | InstrumentMeter,
    output: list[Path],
    ended: Ending,
    seconds: float | None,
    show: Callable[[LiveReading], None],
) -> RecordedTrace:
    from fsjoule.meter.links.client import ClientMeter
    from fsjoule.meter.tools.recorder import record, record_instrument
    from fsjoule.store.recordings import Recording

    if isinstance(instrument, ClientMeter):
        return record(instrument.client, output, Recording, ended, seconds=seconds, show=show)
    return record_instrument(instrument, output, Recording, ended, seconds=seconds, show=show)


def _line(reading: LiveReading) -> str:
    watts = "no samples" if reading.watts is None else f"{reading.watts:.4f} W, {reading.joules:.3f} J"
    return f"{reading.seconds:.0f} s: {watts}; {_counts(reading)}; Ctrl-C ends"


def _counts(reading: LiveReading) -> str:
    return f"{reading.received} samples, {reading.missed} missed, {reading.lost} lost"


def _show(done: RecordedTrace) -> None:
    reading, drift = done.reading, done.drift
    mean = "" if reading.mean_watts is None else f", {reading.mean_watts:.4f} W on average, {reading.joules:.3f} J"
    out.print(with_simulated(f"{reading.seconds:.1f} s{mean}", done.info))
    out.print(_counts(reading), highlight=False)
    if drift is not None:
        out.print(
            f"the meter's clock against this computer's: {drift.ppm:+.2f} ± {drift.uncertainty_ppm:.2f} ppm",
            highlight=False,
        )
    for fault in done.faults:
        out.print(labelled("note", "yellow", fault), soft_wrap=True)
    for path in done.files:
        out.print(f"{path}  {path.stat().st_size / _MIB:.2f} MiB", highlight=False, soft_wrap=True)


def _document(done: RecordedTrace) -> dict[str, Any]:
    return {
        "meter": done.info.serial_number,
        "simulated": done.info.simulated,
        "drift": None if done.drift is None else dataclasses.asdict(done.drift),
        "faults": list(done.faults),
        "files": [str(path) for path in done.files],
        "line": None if done.line is None else dataclasses.asdict(done.line),
        "failures": [failure.what for failure in done.failures],
    } | dataclasses.asdict(done.reading)
