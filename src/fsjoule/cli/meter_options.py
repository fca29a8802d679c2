"""Options that the meter's commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fsjoule.meter_access import ADDRESSES

MeterAddress = Annotated[
    str | None,
    typer.Option(
        "--meter",
        "-m",
        envvar="FSJOULE_METER",
        metavar="ADDRESS",
        help=f"{ADDRESSES}. Not needed if there is only one meter.",
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
