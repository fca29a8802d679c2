"""`fsjoule report`: reports of runs, and a server for them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from fsjoule.cli.common import Run, check_whole, ending, out, output_file, output_folder, progress
from fsjoule.errors import ConfigError
from fsjoule.report.forge import VARIABLE as FORGE
from fsjoule.store.index.defaults import VARIABLE

app = typer.Typer(no_args_is_help=True, help="Make reports of runs: a page, Allure's report with trends; serve it.")

_RESULTS: Final = (Path("results"),)
_REPORT: Final = Path("report")
_MOST: Final = 60

_Runs = Annotated[
    list[Path] | None,
    typer.Argument(help="Runs, folders that contain some, or s3://BUCKET/PREFIX (default: results)."),
]
_Url = Annotated[str, typer.Option("--url", metavar="URL", help="Where the report will be read.")]
_History = Annotated[
    list[Path] | None,
    typer.Option("--history", metavar="DIR", help="Run folders that count as earlier builds, whatever their date."),
]
_Most = Annotated[int, typer.Option("--builds", min=1, help="Show at most this many builds, newest first.")]


@app.command("page")
def page(
    run: Run = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", metavar="FILE", callback=output_file, help="Write the page there instead."),
    ] = None,
) -> None:
    """Write report.html into a run folder again. The page of a run in an object store needs --output.

    Exit code: 2 if there is no such run, or if files of it are damaged; the page is written, and names them.

    Example: fsjoule report page; fsjoule report page abc123
    """
    from fsjoule.report.run import write_report
    from fsjoule.store.gate import gate_of
    from fsjoule.store.objects.address import is_address
    from fsjoule.store.reader import load_run
    from fsjoule.store.run_folders import named_run

    if output is None and run is not None and is_address(run):
        raise ConfigError("a run in an object store is never changed", hint="say where its page goes: --output FILE")
    folder = named_run(run)
    out.print(str(write_report(folder, output)), soft_wrap=True)
    loaded = load_run(folder)
    check_whole(loaded)
    gate_of(loaded)


@app.command("allure")
def allure(
    runs: _Runs = None,
    output: Annotated[
        Path,
        typer.Option("--output", metavar="DIR", callback=output_folder, help="A new folder for the result files."),
    ] = Path("allure-results"),
    url: _Url = "",
    most: _Most = _MOST,
) -> None:
    """Write Allure's result files of the newest run of each board and suite, for your own Allure.

    Example: fsjoule report allure results --output allure-results
    """
    from fsjoule.report.allure.builds import read_builds
    from fsjoule.report.allure.results import write_results
    from fsjoule.report.allure.site import loss_tests, trends_of
    from fsjoule.store.run_folders import named_folders

    builds = read_builds(named_folders(runs or _RESULTS), most=most)
    losses = loss_tests(trends_of(builds)[0])
    _tell(write_results(builds, output, url=url, losses=losses).problems)
    out.print(str(output), soft_wrap=True)


@app.command("build")
def build(  # noqa: PLR0917 - a command's options
    runs: _Runs = None,
    output: Annotated[
        Path, typer.Option("--output", metavar="DIR", callback=output_folder, help="Where the report goes.")
    ] = _REPORT,
    index: Annotated[
        str | None,
        typer.Option(
            "--index", metavar="URL", envvar=VARIABLE, help="Make the trends from this index instead of the runs."
        ),
    ] = None,
    history: _History = None,
    url: _Url = "",
    forge: Annotated[
        str | None,
        typer.Option("--forge", metavar="URL", envvar=FORGE, help="The commits' project on a forge, for the trends."),
    ] = None,
    most: _Most = _MOST,
) -> None:
    """Make Allure's report of the newest build of each board and suite, with history, and the page of trends.

    A build is all runs of one pipeline, or one run outside pipelines. The report names missing and damaged runs.

    Example: fsjoule report build results, then: fsjoule report serve
    """
    from fsjoule.host.extras import PAGES, need

    need("pages", *PAGES)
    from fsjoule.report.allure.site import make_site
    from fsjoule.store.run_folders import named_folders

    folders, earlier = named_folders(runs or _RESULTS), named_folders(history or ())
    made = make_site(folders, output, history=earlier, index=index, url=url, forge=forge, most=most)
    _tell(made.problems)
    out.print(str(made.folder / "index.html"), soft_wrap=True)


@app.command("serve")
def serve(
    report: Annotated[Path, typer.Argument(help="The folder of a report.")] = _REPORT,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port on 127.0.0.1; 0: any free port.")] = 8080,
) -> None:
    """Serve a report to browsers on this machine until Ctrl-C.

    Example: fsjoule report serve --port 8080
    """
    from fsjoule.report.allure.site import serving

    with serving(report, port) as address, ending() as ended:
        out.print(address, soft_wrap=True)
        while not ended.wait(3600.0):
            pass


def _tell(problems: tuple[str, ...]) -> None:
    for problem in problems:
        progress(f"missing: {problem}")
