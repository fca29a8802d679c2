"""`fsjoule kernelci`: a lab that takes its jobs from KernelCI."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fsjoule.cli.common import Filesystems, joined, progress

app = typer.Typer(no_args_is_help=True, help="Poll KernelCI for jobs (docs/lava.md#kernelci).")


@app.callback()
def _group() -> None:
    """Keep `poll` a command of its own."""


@app.command("poll")
def poll(
    api: Annotated[str, typer.Argument(help="KernelCI's API: https://api.kernelci.org/latest")],
    more: Annotated[
        list[str] | None, typer.Argument(help="Further options of `fsjoule bench`, after --: -k write.")
    ] = None,
    *,
    runtime: Annotated[str, typer.Option(help="The lab's name in KernelCI's pipeline.")],
    platform: Annotated[str, typer.Option(help="The board's name in KernelCI's pipeline.")],
    lg_env: Annotated[Path, typer.Option("--lg-env", envvar="LG_ENV", help="The board's environment file.")],
    suite: Annotated[str, typer.Option(help="What to measure.")] = "quick",
    fs: Filesystems = None,
    repeat: Annotated[int | None, typer.Option(help="Repetitions, each a boot (default: the suite's).")] = None,
    results: Annotated[Path, typer.Option(help="Where run folders go.")] = Path("results"),
    origin: Annotated[str, typer.Option(help="The lab's name in KCIDB: a-z, 0-9, _.")] = "fsjoule",
    hours: Annotated[float, typer.Option(min=0.1, help="A bench's time limit.")] = 5.0,
    every: Annotated[float, typer.Option(min=1, help="Seconds between two questions.")] = 60.0,
    once: Annotated[bool, typer.Option("--once", help="Do the jobs that wait now, and end.")] = False,
) -> None:
    """Take the lab's jobs from KernelCI (PULL_LABS), measure their kernels on a board, and send the figures to KCIDB.

    KCI_API_TOKEN is the token of KernelCI's API. KCIDB_REST=https://TOKEN@HOST is KCIDB; without it the figures stay
    here. Exit code 7: a server refuses, or (with --once) cannot be reached.

    Example: fsjoule kernelci poll https://api.kernelci.org/latest --runtime pull-mylab --platform imx6q-sabrelite
    --lg-env env/boards/imx6ul-evk.yaml --fs ext4,btrfs --origin mylab
    """
    import os
    import time

    from fsjoule.ci.kernelci.api import KCIDB_VARIABLE, TOKEN_VARIABLE, Api, kcidb_of
    from fsjoule.ci.kernelci.poll import KernelCILab, Poller
    from fsjoule.errors import KernelCIError
    from fsjoule.host import interrupts
    from fsjoule.kernels.recipe import load_recipe, recipes_folder
    from fsjoule.lab import read_environment
    from fsjoule.model.labels import counted
    from fsjoule.report.kcidb import check_origin
    from fsjoule.runs.options import BenchOptions
    from fsjoule.runs.plan import planned
    from fsjoule.runs.request import choose

    server = Api(api, os.environ.get(TOKEN_VARIABLE, "").strip())
    database = kcidb_of(written) if (written := os.environ.get(KCIDB_VARIABLE, "").strip()) else None
    check_origin(origin)
    environment = read_environment(lg_env)
    kernel = next(iter(load_recipe(recipes_folder(), environment.profile.recipe).kernels))
    choice = choose(BenchOptions(suite=suite, fs=joined(fs), kernel=kernel, repeat=repeat), environment)
    planned(choice, environment.profile, choice.kernels)
    given = (("--suite", suite), ("--fs", joined(fs)), ("--repeat", repeat))
    options = [word for name, value in given if value is not None for word in (name, str(value))]
    lab = KernelCILab(runtime, platform, environment, results, choice, (*options, *(more or ())), origin, hours * 3600)
    poller = Poller(server, lab, database)
    with interrupts.handled(), poller.alone():
        with interrupts.interruptible():
            user = server.user()
        progress(f"{server.url}: {user} takes jobs of {runtime} for {platform}")
        if database is None:
            progress(f"{KCIDB_VARIABLE} is not set: figures are not sent to KCIDB")
        while True:
            try:
                done = poller.once()
            except KernelCIError as error:
                if once or not error.transient:
                    raise
                progress(f"warning: {error.what}")
                done = 0
            if once:
                progress(f"{counted(done, 'job')} done")
                break
            if not done:
                with interrupts.interruptible():
                    time.sleep(every)
