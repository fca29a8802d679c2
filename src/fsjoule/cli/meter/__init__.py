"""`fsjoule meter`: the power meter at a desk; it needs neither a board nor labgrid."""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from fsjoule.cli.common import Json, Wide, err, labelled, out, print_json
from fsjoule.cli.meter.calibrate import calibrate
from fsjoule.cli.meter.common import Amperes, Environment, MeterAddress, Volts
from fsjoule.cli.meter.record import record_command
from fsjoule.cli.meter.run import run
from fsjoule.cli.meter.selftest import selftest
from fsjoule.cli.meter.watch import watch
from fsjoule.errors import ConfigError, LabError
from fsjoule.host.clock import today
from fsjoule.model import PlainInfo

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fsjoule.meter.instruments import SearchResult
    from fsjoule.meter.protocol.frames import InfoFrame

app = typer.Typer(no_args_is_help=True, help="Read, record, calibrate and test the power meter.")


@app.command("list")
def list_meters(wide: Wide = False, json_output: Json = False) -> None:
    """List all meters that this computer reaches, and the benches whose files name them.

    It listens to each serial port and virtual lab for 1.5 s, and looks for instruments meanwhile: those of VISA and
    IIO, Joulescopes, PPK2s, and the processor's counters. Sends nothing to a serial port, and leaves alone what another
    program has open. Benches are those of the files in env/ and labgrid/ here. Exit code 4 if there is no meter.

    Example: fsjoule meter list
    """
    from fsjoule.runs.meter import find_meters, users

    found = find_meters()
    benches = users(found)
    if json_output:
        print_json([_found_document(each) | {"benches": benches[each.address]} for each in found])
    else:
        _show_meters(found, benches, wide=wide)
    raise typer.Exit(0 if any(each.name for each in found) else LabError.exit_code)


def _found_document(found: SearchResult) -> dict[str, Any]:
    from fsjoule.meter.tools.words import as_document

    meter = None if found.info is None else dataclasses.asdict(found.info)
    return {
        "address": found.address,
        "where": found.where,
        "name": found.name or None,
        "meter": as_document(found.frame, today()) if found.frame else meter,
        "why_not": found.why_not or None,
    }


app.command()(watch)
app.command("record")(record_command)
app.command()(run)
app.command()(calibrate)
app.command()(selftest)


def _show_meters(found: Sequence[SearchResult], benches: Mapping[str, Sequence[str]], *, wide: bool) -> None:
    from fsjoule.report.table import Cell, Column, Tone, listing, word
    from fsjoule.report.terminal import named_lines, print_table

    if meters := [each for each in found if each.name]:
        rows = [
            (
                each.address,
                each.name,
                Cell("simulated" if each.info and each.info.simulated else "", tone=Tone.DOUBT),
                *((each.info.firmware, str(each.info.rate_hz)) if each.info else ("", "")),
                each.where,
                ", ".join(benches[each.address]),
            )
            for each in meters
        ]
        columns = (
            *map(word, ("address", "meter", "", "firmware")),
            Column("samples/s"),
            word("where"),
            word("used by"),
        )
        print_table(out, listing(columns, rows), wide=wide)
    if others := [(each.address, f"{each.why_not} ({each.where})") for each in found if not each.name]:
        out.print(named_lines("Without a meter", others))
    if not found:
        out.print("there is no serial port, no virtual lab is up, and no instrument was found")


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
    from fsjoule.meter.links.client import ClientMeter
    from fsjoule.meter.links.notices import notices
    from fsjoule.meter.tools.words import as_document, expected
    from fsjoule.runs.meter import desk_meter

    with desk_meter(meter, lg_env) as instrument:
        told = instrument.client.info() if isinstance(instrument, ClientMeter) else instrument.info()
    if isinstance(told, PlainInfo):
        _show_plain(told, volts, amperes, json_output=json_output)
        return
    frame = told
    uncertainty = expected(frame.info, volts, amperes)
    if json_output:
        print_json(as_document(frame, today()) | {"expected_uncertainty": uncertainty.as_document(volts, amperes)})
        return
    _show_info(frame, ("uncertainty", uncertainty.text(volts, amperes)), ("", uncertainty.causes()))
    for notice in notices(frame, today()):
        out.print(labelled("note", "yellow", notice), soft_wrap=True)


def _show_plain(info: PlainInfo, volts: float, amperes: float, *, json_output: bool) -> None:
    from fsjoule.meter.tools.words import expected
    from fsjoule.report.terminal import named_lines

    uncertainty = expected(info, volts, amperes)
    if json_output:
        print_json(dataclasses.asdict(info) | {"expected_uncertainty": uncertainty.as_document(volts, amperes)})
        return
    rows = [
        ("meter", f"{info.serial_number}{'  simulated' if info.simulated else ''}"),
        ("instrument", f"{info.instrument}, {info.firmware}"),
        ("samples", f"{info.rate_hz} a second"),
        ("settings", ", ".join(f"{name} {value:g}" for name, value in info.settings.items()) or "none"),
        ("uncertainty", uncertainty.text(volts, amperes)),
        ("", uncertainty.causes()),
    ]
    out.print(named_lines("", [(Text(name, "bold"), text) for name, text in rows]))


def _show_info(frame: InfoFrame, *more: tuple[str, str]) -> None:
    from fsjoule.meter.tools import words
    from fsjoule.report.terminal import named_lines

    info, calibration, now_s = frame.info, frame.info.calibration, time.time()
    rows = [
        ("meter", f"{info.serial_number}{'  simulated' if info.simulated else ''}"),
        ("firmware", f"{info.firmware}, protocol {info.protocol}"),
        ("samples", f"{info.rate_hz} a second; {words.adc_text(info)}"),
        ("shunt", f"{info.shunt_uohm * 1e-6:g} Ohm, {info.shunt_range_mv} mV: up to {words.full_scale_a(info):.3g} A"),
        ("bus", words.bus_text(info)),
        ("zero", words.zero_text(calibration, now_s)),
        ("gain", words.gain_text(calibration, now_s)),
        ("mark line", words.inputs_text(frame.status.inputs)),
        ("last start", f"by {frame.status.reset_cause.value}; stream {frame.status.stream_id:08x}"),
    ]
    out.print(named_lines("", [(Text(name, "bold"), text) for name, text in (*rows, *more)]))


@app.command("set")
def set_(
    *,
    meter: MeterAddress = None,
    lg_env: Environment = None,
    rate: Annotated[int | None, typer.Option(help="Samples a second: 100 to 2000, a divisor of 1,000,000.")] = None,
    range_mv: Annotated[int | None, typer.Option("--range", help="Full scale in mV: 40, 80, 160 or 320.")] = None,
    bus_range: Annotated[
        int | None, typer.Option(help="Full scale of the supply in V: 16 or 32 (the chip takes 26).")
    ] = None,
    shunt: Annotated[int | None, typer.Option(help="The resistor in microohm; 0.1 Ohm is 100000.")] = None,
    sampling: Annotated[
        bool | None, typer.Option("--start/--stop", help="Start or stop sampling.", show_default=False)
    ] = None,
    save: Annotated[bool, typer.Option("--save", help="Keep the settings when the power is lost.")] = False,
    json_output: Json = False,
) -> None:
    """Change how the meter samples. Without --save the change lasts until the meter loses power.

    Example: fsjoule meter set --rate 800 --range 160 --save
    """
    from fsjoule.meter.tools.words import as_document
    from fsjoule.runs.meter import open_meter

    if all(setting is None for setting in (rate, range_mv, bus_range, shunt, sampling)) and not save:
        raise ConfigError("no setting is given", hint="fsjoule meter set --help lists them")
    with open_meter(meter, lg_env) as client:
        if shunt is not None:
            client.set_shunt(shunt)
        if range_mv is not None:
            client.set_range(range_mv)
        if bus_range is not None:
            client.set_bus_range(bus_range)
        if rate is not None:
            client.set_rate(rate)
        if sampling is not None:
            (client.start if sampling else client.stop)()
        if save:
            client.save()
        frame = client.info()
    if json_output:
        print_json(as_document(frame, today()))
    else:
        err.print("set and saved" if save else "set, not saved")
        _show_info(frame)
