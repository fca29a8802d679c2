"""`fsjoule meter calibrate`: zero, then two points of gain, by questions or by options."""

from __future__ import annotations

import dataclasses
import sys
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fsjoule.cli.common import Json, err, print_json, refuse
from fsjoule.cli.meter.common import Amperes, Environment, MeterAddress, Volts
from fsjoule.errors import ConfigError
from fsjoule.host.clock import today
from fsjoule.model.instrument_file import Certificate

if TYPE_CHECKING:
    from fsjoule.meter.links.client import MeterClient
    from fsjoule.meter.tools.calibration import CalibrationPoint, Reference, Zeroed
    from fsjoule.model import Ina219Info


def calibrate(
    *,
    meter: MeterAddress = None,
    lg_env: Environment = None,
    zero: Annotated[
        bool | None, typer.Option("--zero/--no-zero", help="Zero, with no load.", show_default=False)
    ] = None,
    low_ua: Annotated[int | None, typer.Option(help="True current of the low point, in uA.")] = None,
    low_uv: Annotated[int | None, typer.Option(help="True voltage of the low point, in uV.")] = None,
    high_ua: Annotated[int | None, typer.Option(help="True current of the high point, in uA.")] = None,
    high_uv: Annotated[int | None, typer.Option(help="True voltage of the high point, in uV.")] = None,
    reference_uncertainty: Annotated[
        int | None, typer.Option(min=0, help="Standard uncertainty (k=1) of the reference's power, in ppm.")
    ] = None,
    forget: Annotated[bool, typer.Option("--forget", help="First forget the present calibration.")] = False,
    save: Annotated[
        bool | None, typer.Option("--save/--no-save", help="Keep it when the power is lost.", show_default=False)
    ] = None,
    celsius: Annotated[float | None, typer.Option(help="The room's temperature now, for the instrument file.")] = None,
    certificate: Annotated[
        str | None, typer.Option(metavar="NUMBER", help="The reference's certificate, for the instrument file.")
    ] = None,
    issuer: Annotated[str | None, typer.Option(metavar="NAME", help="Who issued the certificate.")] = None,
    expires: Annotated[datetime | None, typer.Option(formats=["%Y-%m-%d"], help="The certificate's last day.")] = None,
    volts: Volts = 5.0,
    amperes: Amperes = 0.25,
    json_output: Json = False,
) -> None:
    """Calibrate the meter: zero without load, then gain with a low and a high load that a reference measures.

    Without options it asks for everything. With options it asks nothing, and the two points take two calls, because
    the load must be changed in between. What is saved on the meter is noted in its instrument file, too.

    Example: fsjoule meter calibrate

    Example: fsjoule meter calibrate --zero --save

    Example: fsjoule meter calibrate --low-ua 50000 --low-uv 5000000 --reference-uncertainty 300; (change the load)
    fsjoule meter calibrate --high-ua 700000 --high-uv 4990000 --reference-uncertainty 300 --save
    """
    from fsjoule.meter.tools.calibration import HIGH, LOW, noted
    from fsjoule.meter.tools.calibration import forget as forget_calibration
    from fsjoule.runs.meter import open_meter

    low = _reference("low", low_ua, low_uv, reference_uncertainty)
    high = _reference("high", high_ua, high_uv, reference_uncertainty)
    proof = _certificate(certificate, issuer, expires)
    if bool(zero) + bool(low) + bool(high) > 1:
        raise ConfigError(
            "zero and the two points need different loads", hint="one call for each, and change the load in between"
        )
    asked = not (zero or forget or low or high)
    if asked and not sys.stdin.isatty():
        raise ConfigError(
            "no calibration step is given", hint="without a terminal to ask at, give --zero, --low-ua, ..."
        )
    with open_meter(meter, lg_env) as client:
        before = client.info().info
        _tell("before", before, volts, amperes)
        done: list[Zeroed | CalibrationPoint] = []
        if forget:
            forget_calibration(client)
        if asked:
            _walk(client, reference_uncertainty, done)
            celsius = _asked_celsius(celsius)
        if zero:
            done.append(_zero(client))
        for number, reference in ((LOW, low), (HIGH, high)):
            if reference is not None:
                done.append(_gain(client, number, reference))
        after = client.info().info
        _tell("after", after, volts, amperes)
        saved = save if save is not None else asked and typer.confirm("Save it on the meter?", default=True, err=True)
        if saved:
            client.save()
    err.print("saved" if saved else "not saved: it is lost with the meter's power; to save: fsjoule meter set --save")
    file = noted(after, today(), celsius, proof) if saved and done else None
    _say(f"instrument file  {file}" if file else "the instrument file stays as it is")
    if json_output:
        told = {"saved": saved, "instrument_file": None if file is None else str(file)}
        print_json(_document(before, after, done, volts, amperes) | told)


def _walk(client: MeterClient, uncertainty_ppm: int | None, done: list[Zeroed | CalibrationPoint]) -> None:
    from fsjoule.meter.tools.calibration import HIGH, LOW, Reference

    if typer.confirm("Zero: disconnect the load and leave the supply on. Ready?", default=True, err=True):
        done.append(_zero(client))
    if not typer.confirm(
        "Gain: do you have a reference for current and voltage, and two loads?", default=True, err=True
    ):
        return
    if uncertainty_ppm is None:
        uncertainty_ppm = int(typer.prompt("Standard uncertainty (k=1) of its power, in ppm", type=int, err=True))
    for number, name in ((LOW, "low"), (HIGH, "high")):
        amperes = typer.prompt(f"Connect the {name} load. The reference's current, in A", type=float, err=True)
        volts = typer.prompt("The reference's voltage, in V", type=float, err=True)
        done.append(_gain(client, number, Reference(round(amperes * 1e6), round(volts * 1e6), uncertainty_ppm)))


def _asked_celsius(told: float | None) -> float | None:
    if told is not None or not typer.confirm("Is the room's temperature known?", default=True, err=True):
        return told
    return float(typer.prompt("The room's temperature, in degrees Celsius", type=float, err=True))


def _certificate(number: str | None, issuer: str | None, expires: datetime | None) -> Certificate | None:
    """The reference's certificate, if it is told. Raises ConfigError for a part of one."""
    if number is None:
        refuse("only --certificate takes", {"--issuer": issuer, "--expires": expires})
        return None
    return Certificate(number=number, issuer=issuer or "", expires=None if expires is None else expires.date())


def _reference(name: str, current_ua: int | None, bus_uv: int | None, uncertainty_ppm: int | None) -> Reference | None:
    """One of the two points; None if its options are not given. Raises ConfigError if one of them is missing."""
    from fsjoule.meter.tools.calibration import Reference

    if current_ua is None and bus_uv is None:
        return None
    if current_ua is None or bus_uv is None:
        raise ConfigError(f"the {name} point is incomplete", hint=f"give both --{name}-ua and --{name}-uv")
    if uncertainty_ppm is None:
        raise ConfigError("the reference's uncertainty is missing", hint="give --reference-uncertainty, in ppm")
    return Reference(current_ua, bus_uv, uncertainty_ppm)


def _zero(client: MeterClient) -> Zeroed:
    from fsjoule.meter.tools.calibration import zero

    found = zero(client)
    _say(f"offset {found.offset_uv:+.2f} uV, spread {found.spread_uv:.0f} uV, over {found.samples} samples")
    return found


def _gain(client: MeterClient, number: int, reference: Reference) -> CalibrationPoint:
    from fsjoule.meter.tools.calibration import LOW, gain

    found = gain(client, number, reference)
    _say(f"the meter reads {found.shunt_uv:.2f} uV and {found.bus_mv:.2f} mV, over {found.samples} samples")
    if number == LOW:
        _say("the low point is taken; the gains are computed with the high one")
    return found


def _tell(when: str, info: Ina219Info, volts: float, amperes: float) -> None:
    from fsjoule.meter.tools.words import expected

    calibration, uncertainty = info.calibration, expected(info, volts, amperes)
    _say(
        f"{when}: offset {calibration.shunt_offset_nv / 1e3:+.2f} uV, current {calibration.current_gain_ppm:+d} ppm, "
        f"bus {calibration.bus_gain_ppm:+d} ppm"
    )
    _say(f"  expected uncertainty {uncertainty.text(volts, amperes)}: {uncertainty.causes()}")


def _say(text: str) -> None:
    err.print(text, highlight=False, soft_wrap=True)


def _document(
    before: Ina219Info, after: Ina219Info, done: list[Zeroed | CalibrationPoint], volts: float, amperes: float
) -> dict[str, Any]:
    from fsjoule.meter.tools.words import calibration_document, expected

    def state(info: Ina219Info) -> dict[str, Any]:
        return {
            "calibration": calibration_document(info),
            "expected_uncertainty": expected(info, volts, amperes).as_document(volts, amperes),
        }

    return {
        "meter": after.serial_number,
        "simulated": after.simulated,
        "before": state(before),
        "after": state(after),
        "measured": [dataclasses.asdict(each) for each in done],
    }
