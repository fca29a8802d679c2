"""`fsjoule advise`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fsjoule.cli.common import Json, Wide, out, output_file, print_json, progress, write_text
from fsjoule.errors import ConfigError

app = typer.Typer()


@app.command("advise")
def advise(
    *,
    runs: Annotated[list[Path], typer.Argument(help="Run folders of one board, or folders that contain some.")],
    profile: Annotated[
        str,
        typer.Option(
            metavar="NAME|FILE", help="What the device does: logger, gateway, media-player, camera, desktop, or a file."
        ),
    ],
    fs: Annotated[str | None, typer.Option("--fs", metavar="NAME[,NAME]", help="Only these filesystems.")] = None,
    kernel: Annotated[str | None, typer.Option(help="This kernel, if the runs have several.")] = None,
    storage: Annotated[str | None, typer.Option(help="This storage device, if the runs have several.")] = None,
    weights: Annotated[
        str | None,
        typer.Option(metavar="AXIS=N[,AXIS=N]", help="Make a score: energy, loss, wait, wear, mount, with weights."),
    ] = None,
    wide: Wide = False,
    json_output: Json = False,
    page: Annotated[
        Path | None,
        typer.Option(
            "-o", "--page", metavar="FILE", callback=output_file, help="Write a self-contained HTML page to FILE."
        ),
    ] = None,
) -> None:
    """Which filesystem should this board run? A usage profile and what was measured become joules, losses and waits.

    Joules a day, hours of battery, years of the card, seconds of waiting and files lost a year, each with its 95 %
    interval. Filesystems that cannot be told apart are said to be so. What was not measured is named with the command
    that measures it.

    Exit code: 0 whatever the answer, 2 for wrong input: an unknown profile, runs of different boards, kernels or
    meters, runs without a valid measurement.

    Example: fsjoule advise results/20260101T120000Z-board-abc123 --profile logger -o advice.html
    """
    from fsjoule.model.labels import listed
    from fsjoule.suites.profile import profile_of
    from fsjoule.verdicts.advice.advise import advise as advised
    from fsjoule.verdicts.advice.advise import parse_weights
    from fsjoule.verdicts.advice.evidence import evidence, only

    name, usage = profile_of(profile)
    weighted = parse_weights(weights) if weights is not None else None
    found = evidence(runs, kernel=kernel, storage=storage)
    wanted = listed(fs)
    if fs is not None and not wanted:
        raise ConfigError("--fs names no filesystem", hint="for example --fs ext4,btrfs")
    advice = advised(only(found, wanted) if wanted else found, name, usage, weights=weighted)
    if json_output:
        from fsjoule.report.advice.document import to_document

        print_json(to_document(advice))
    else:
        from fsjoule.report.advice.text import print_advice

        print_advice(out, advice, wide=wide)
    if page:
        from fsjoule.report.advice.page import render_page

        write_text(page, render_page(advice, page))
        progress(f"page  {page}")
