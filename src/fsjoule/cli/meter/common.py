"""Options of the meter's commands, and the name of a meter."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from fsjoule.meter.instruments import addresses
from fsjoule.meter.links.streams import FORMS

if TYPE_CHECKING:
    from fsjoule.model import MeterInfo

MeterAddress = Annotated[
    str | None,
    typer.Option(
        "--meter",
        "-m",
        envvar="FSJOULE_METER",
        metavar="ADDRESS",
        help=(
            f"{FORMS}, lab:NAME for a virtual lab's, {addresses()}. Not needed with a single meter of fsjoule's own."
        ),
    ),
]
Environment = Annotated[
    Path | None, typer.Option("--lg-env", metavar="FILE", help="Use the meter of this labgrid environment file.")
]
Seconds = Annotated[
    float | None, typer.Option("--seconds", "-s", min=0.1, help="End after this long (default: at Ctrl-C).")
]
Volts = Annotated[float, typer.Option(min=0.1, max=26.0, help="Bus voltage for which to state the uncertainty.")]
Amperes = Annotated[float, typer.Option(min=0.0, help="Current for which to state the uncertainty.")]


def with_simulated(text: str, info: MeterInfo) -> Text:
    """The text, and the word "simulated" if the meter is emulated."""
    shown = Text(text)
    if info.simulated:
        shown.append("  simulated", style="yellow")
    return shown


def named(info: MeterInfo) -> Text:
    return with_simulated(info.serial_number, info)
