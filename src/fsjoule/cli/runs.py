"""`fsjoule runs`: which runs are there?"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from fsjoule.cli.common import Json, Wide, out, print_json, progress
from fsjoule.errors import ResultError
from fsjoule.model.labels import counted

if TYPE_CHECKING:
    from fsjoule.store.run_folders import NamedRun

app = typer.Typer()

_AROUND: Final = 7  # a table's title and head, the line after it, and the next prompt
_COLUMNS: Final = ("id", "start (UTC)", "board", "filesystems", "kernels", "suite", "valid", "state")


@app.command("runs")
def runs(
    folders: Annotated[
        list[Path] | None, typer.Argument(metavar="[DIR]...", help="Folders of runs (default: results).")
    ] = None,
    *,
    every: Annotated[
        bool, typer.Option("--all", help="List all runs, not only as many as the terminal has lines.")
    ] = False,
    wide: Wide = False,
    json_output: Json = False,
) -> None:
    """List the runs, newest first: id, start, board, filesystems, kernels, suite, valid measurements.

    Other commands take the start of an id for a run, and `last` for the newest. Into a pipe, and as JSON, all are
    listed.

    Example: fsjoule runs; fsjoule show abc1
    """
    from fsjoule.report.table import listing, word
    from fsjoule.report.terminal import print_table
    from fsjoule.store.run_folders import RESULTS, newest_first

    found = newest_first(folders or [each for each in (RESULTS,) if each.is_dir()])
    fits = len(found) if every or json_output or not out.is_terminal else max(out.height - _AROUND, 1)
    listed = [_described(each) for each in found[:fits]]
    if json_output:
        print_json(listed)
        return
    if not found:
        progress(f"there is no run in {', '.join(map(str, folders or [RESULTS]))}; fsjoule bench measures one")
        return
    simulated = all(each.get("simulated", True) for each in listed)
    rows = [_row(each, simulated=simulated) for each in listed]
    used = len(_COLUMNS) - (not any(row[-1] for row in rows))
    table = listing([word(name) for name in _COLUMNS[:used]], [row[:used] for row in rows])
    print_table(out, replace(table, title="Runs", simulated=simulated), wide=wide)
    for each in listed:
        if "damaged" in each:
            progress(f"damaged: {each['path']}: {each['damaged']}")
    if more := len(found) - fits:
        progress(f"and {counted(more, 'earlier run')}: --all")


def _described(found: NamedRun) -> dict[str, Any]:
    from fsjoule.store.folder import board_name
    from fsjoule.store.reader import load_run

    folder = {"run": found.run_id, "path": str(found.path)}
    try:
        loaded = load_run(found.path)
    except ResultError as error:
        return {**folder, "damaged": error.what}
    run = loaded.run
    return {
        "run": run.run_id,
        "path": str(found.path),
        "started_utc": run.started_utc,
        "board": board_name(run, found.path),
        "simulated": run.simulated,
        "filesystems": list(run.plan.filesystems),
        "kernels": list(run.plan.kernels),
        "suite": run.plan.suite,
        "valid": sum(each.valid for each in loaded.measurements),
        "planned": len(run.plan.entries),
        "damaged_measurements": len(loaded.damaged),
        "status": run.status.value,
        "ended_early": run.ended_early,
    }


def _row(run: dict[str, Any], *, simulated: bool) -> tuple[str, ...]:
    """A line of the table; `simulated` says that all runs are, which its title tells."""
    if "damaged" in run:
        return (run["run"] or Path(run["path"]).name, "", "", "", "", "", "", "damaged")
    state = [] if run["status"] == "complete" else [run["status"]]
    state += ["ended early"] if run["ended_early"] else []
    state += [f"{run['damaged_measurements']} damaged"] if run["damaged_measurements"] else []
    state += ["simulated"] if run["simulated"] and not simulated else []
    return (
        run["run"],
        run["started_utc"].replace("T", " ")[:16],
        run["board"],
        ",".join(run["filesystems"]),
        ",".join(run["kernels"]),
        run["suite"],
        f"{run['valid']} of {run['planned']}",
        ", ".join(state),
    )
