"""`fsjoule meter`: the power meter at a desk; it needs neither a board nor labgrid."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from fsjoule.cli.common import Json, err, labelled, out, print_json, progress
from fsjoule.cli.meter.calibrate import calibrate
from fsjoule.cli.meter.common import Amperes, Environment, MeterAddress, Volts, named
from fsjoule.cli.meter.record import record_command
from fsjoule.cli.meter.run import run
from fsjoule.cli.meter.selftest import selftest
from fsjoule.cli.meter.watch import watch
from fsjoule.errors import ConfigError

if TYPE_CHECKING:
    from fsjoule.meter.protocol.frames import InfoFrame

app = typer.Typer(no_args_is_help=True, help="The power meter: its state, its readings, its calibration and its tests.")


@app.command("list")
def list_meters(json_output: Json = False) -> None:
    """List the meters at this computer's serial ports and in its virtual labs, listening to each port for 1.5 s.

    It sends nothing, and leaves ports alone that another program has open. Exit code 3 if there is no meter.

    Example: fsjoule meter list
    """
    from fsjoule.meter.tools.words import as_document
    from fsjoule.runs.meter import find_meters

    found = find_meters()
    if json_output:
        print_json(
            [
                {
                    "address": each.address,
                    "where": each.where,
                    "meter": as_document(each.info) if each.info else None,
                    "why_not": each.why_not or None,
                }
                for each in found
            ]
        )
    else:
        table = Table("address", "meter", "firmware", "samples/s", "where", box=None)
        for each in found:
            table.add_row(each.address, *_found(each.info, each.why_not), each.where)
        out.print(table if found else "there is no serial port, and no virtual lab is up")
    raise typer.Exit(0 if any(each.info for each in found) else 3)


app.command()(watch)
app.command("record")(record_command)
app.command()(run)
app.command()(calibrate)
app.command()(selftest)


def _found(frame: InfoFrame | None, why_not: str) -> tuple[Text, str, str]:
    if frame is None:
        return Text(why_not, style="dim"), "", ""
    return named(frame.info), frame.info.firmware, str(frame.info.rate_hz)


@app.command()
def info(
    *,
    meter: MeterAddress = None,
    lg_env: Environment = None,
    volts: Volts = 5.0,
    amperes: Amperes = 0.25,
    json_output: Json = False,
) -> None:
    """Show a meter's description of itself, its calibration, the resulting uncertainty, and its problems.

    Example: fsjoule meter info --meter /dev/ttyUSB0 --volts 5 --amperes 0.25
    """
    from fsjoule.meter.links.notices import notices
    from fsjoule.meter.tools.expected import expected
    from fsjoule.meter.tools.words import as_document
    from fsjoule.runs.meter import open_meter

    with open_meter(meter, lg_env, progress) as client:
        frame = client.info()
    uncertainty = expected(frame.info, volts, amperes)
    if json_output:
        print_json(as_document(frame) | {"expected_uncertainty": uncertainty.as_document(volts, amperes)})
        return
    table = _info_table(frame)
    table.add_row("uncertainty", uncertainty.text(volts, amperes))
    table.add_row("", uncertainty.causes())
    out.print(table)
    for notice in notices(frame):
        out.print(labelled("note", "yellow", notice), soft_wrap=True)


def _info_table(frame: InfoFrame) -> Table:
    from fsjoule.meter.tools import words

    info, calibration, now_s = frame.info, frame.info.calibration, time.time()
    table = Table(box=None, show_header=False)
    table.add_column(style="bold")
    table.add_column()
    rows: list[tuple[str, Any]] = [
        ("meter", named(info)),
        ("firmware", f"{info.firmware}, protocol {info.protocol}"),
        ("samples", f"{info.rate_hz} a second; {words.adc_text(info)}"),
        ("shunt", f"{info.shunt_uohm * 1e-6:g} Ohm, {info.shunt_range_mv} mV: up to {words.full_scale_a(info):.3g} A"),
        ("zero", words.zero_text(calibration, now_s)),
        ("gain", words.gain_text(calibration, now_s)),
        ("last start", f"by {frame.status.reset_cause.value}; stream {frame.status.stream_id:08x}"),
    ]
    for row in rows:
        table.add_row(*row)
    return table


@app.command("set")
def set_(
    *,
    meter: MeterAddress = None,
    lg_env: Environment = None,
    rate: Annotated[int | None, typer.Option(help="Samples a second: 100 to 2000, a divisor of 1,000,000.")] = None,
    range_mv: Annotated[int | None, typer.Option("--range", help="Full scale in mV: 40, 80, 160 or 320.")] = None,
    shunt: Annotated[int | None, typer.Option(help="The resistor in microohm; 0.1 Ohm is 100000.")] = None,
    sampling: Annotated[
        bool | None, typer.Option("--start/--stop", help="Start or stop sampling.", show_default=False)
    ] = None,
    save: Annotated[bool, typer.Option("--save", help="Keep the settings when the power is lost.")] = False,
    json_output: Json = False,
) -> None:
    """Change how the meter samples. Without --save the change lasts until the meter loses power.

    Example: fsjoule meter set --rate 500 --range 160 --save
    """
    from fsjoule.meter.tools.words import as_document
    from fsjoule.runs.meter import open_meter

    if rate is None and range_mv is None and shunt is None and sampling is None and not save:
        raise ConfigError("no setting is given", hint="fsjoule meter set --help lists them")
    with open_meter(meter, lg_env, progress) as client:
        if shunt is not None:
            client.set_shunt(shunt)
        if range_mv is not None:
            client.set_range(range_mv)
        if rate is not None:
            client.set_rate(rate)
        if sampling is not None:
            (client.start if sampling else client.stop)()
        if save:
            client.save()
        frame = client.info()
    if json_output:
        print_json(as_document(frame))
    else:
        err.print("set and saved" if save else "set, not saved")
        out.print(_info_table(frame))
