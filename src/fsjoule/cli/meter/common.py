"""What the meter's commands share: their options, and how a meter is named."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from fsjoule.meter.links.address import FORMS

if TYPE_CHECKING:
    from fsjoule.model import MeterInfo

MeterAddress = Annotated[
    str | None,
    typer.Option(
        "--meter",
        "-m",
        envvar="FSJOULE_METER",
        metavar="ADDRESS",
        help=f"{FORMS}, or lab:NAME for a virtual lab's. Not needed if there is only one meter.",
    ),
]
Environment = Annotated[
    Path | None, typer.Option("--lg-env", metavar="FILE", help="The meter of a labgrid environment file instead.")
]
Seconds = Annotated[
    float | None, typer.Option("--seconds", "-s", min=0.1, help="End after this long; else with Ctrl-C.")
]
Volts = Annotated[float, typer.Option(min=0.1, max=26.0, help="Bus voltage of the load that uncertainty is told for.")]
Amperes = Annotated[float, typer.Option(min=0.0, help="Current of the load that uncertainty is told for.")]


def with_simulated(text: str, info: MeterInfo) -> Text:
    """The text and, if the meter is emulated, the word that no figure of its goes without."""
    shown = Text(text)
    if info.simulated:
        shown.append("  simulated", style="yellow")
    return shown


def named(info: MeterInfo) -> Text:
    """The meter's serial number, with the same word."""
    return with_simulated(info.serial_number, info)
