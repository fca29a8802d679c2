"""`fsjoule place`: a board for a job. Thin: it reads arguments, calls one function, says what came back."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from fsjoule.cli.common import (
    Json,
    Page,
    PlaceTag,
    Priority,
    Wait,
    Wide,
    out,
    output_file,
    print_json,
    progress,
    replace_text,
)

if TYPE_CHECKING:
    from fsjoule.store.standards import CheckedPlace

app = typer.Typer(no_args_is_help=True, help="Hold a place of labgrid for one job, and show all places.")

Name = Annotated[str | None, typer.Option("--place", metavar="NAME", help="The place (hold's default: LG_PLACE).")]
Grace = Annotated[str, typer.Option("--grace", metavar="TIME", help="The command's own time to end, before SIGKILL.")]
_GRACE: Final = "2m"
_STANDARD: Final = "standard"
_MOST_FALSE_ALARMS: Final = 0.1
_PAIR: Final = 2


@app.command("hold")
def hold(
    command: Annotated[list[str], typer.Argument(metavar="COMMAND...", help="What runs meanwhile, after --.")],
    *,
    place: Name = None,
    place_tag: PlaceTag = None,
    wait: Wait = None,
    priority: Priority = None,
    grace: Grace = _GRACE,
) -> None:
    """Hold a place while a command runs; LG_PLACE names it. Then the board is off and the place is free.

    A place of a killed job of this computer is given back first. However this ends, the command and all programs of its
    process group are ended. Exit code: the command's; 2 wrong input, 4 the lab, 130, 143 or 129 after Ctrl-C, SIGTERM
    or SIGHUP.

    Example: fsjoule place hold --place evk-1 --wait 1h -- fsjoule bench --lg-env env/boards/imx6ul-evk.yaml
    """
    import os

    from fsjoule.errors import ConfigError
    from fsjoule.host import interrupts
    from fsjoule.lab import jobs
    from fsjoule.lab.reservation import place_request, seconds

    if place is not None and place_tag is not None:
        raise ConfigError("--place and --place-tag both choose the place", hint="leave one of them out")
    wanted = place_request(place_tag, wait, priority)
    end_s = seconds("--grace", grace)
    with interrupts.handled():
        code = jobs.hold(place or os.environ.get("LG_PLACE"), command, wanted, end_s=end_s)
    raise typer.Exit(code)


@app.command("drift")
def drift(
    place: Annotated[
        str | None, typer.Argument(help="Only this place, with its earlier charts; NAME or NAME@EXPORTER.")
    ] = None,
    *,
    results: Annotated[
        list[Path] | None,
        typer.Option("--results", metavar="DIR", help="Where the runs are; may be repeated (default: results)."),
    ] = None,
    suite: Annotated[str, typer.Option("--suite", metavar="NAME", help="The check standard.")] = _STANDARD,
    between: Annotated[
        str | None,
        typer.Option("--between", metavar="A,B", help="Also compare two places by E_n; NAME or NAME@EXPORTER."),
    ] = None,
    false_alarms: Annotated[
        float, typer.Option("--false-alarms", metavar="SHARE", help="Of a place's checks, this share alarms falsely.")
    ] = 0.001,
    chart: Annotated[
        Path | None,
        typer.Option("--chart", metavar="FILE", callback=output_file, help="Write an SVG of all charts to FILE."),
    ] = None,
    mark: Annotated[
        bool,
        typer.Option("--mark", help="Make places that are out of control doubtful, and good when they are in control."),
    ] = False,
    restart: Annotated[
        str | None,
        typer.Option("--restart", metavar="WHY", help="Begin new charts of PLACE from now on, after a repair."),
    ] = None,
    wide: Wide = False,
    json_output: Json = False,
) -> None:
    """Check whether places still measure what they did, by control charts of the runs of a fixed suite.

    A new chart begins with another meter, calibration, board or kernel, or with --restart.

    Exit code: 0 in control, 1 a place is out of control or two places do not agree, 2 wrong input.

    Example: fsjoule place drift --results /srv/results --between bench-3,bench-4 --chart drift.svg; fsjoule place drift
    bench-3 --restart "shunt replaced"
    """
    from fsjoule.errors import ConfigError
    from fsjoule.report.places.drift import agreement_table, drift_charts, drift_table, notes, to_document
    from fsjoule.report.terminal import print_table
    from fsjoule.runs.options import DEFAULT_RESULTS
    from fsjoule.store.run_folders import find_runs
    from fsjoule.store.standards import read_checks
    from fsjoule.store.states import read_restarts
    from fsjoule.verdicts.drift import Control, agreements, named_place, place_charts, place_states

    if not 0 < false_alarms <= _MOST_FALSE_ALARMS:
        raise ConfigError(f"--false-alarms {false_alarms:g} is not between 0 and {_MOST_FALSE_ALARMS:g}")
    pair = _pair(between)
    folders, faults = find_runs(results or [Path(DEFAULT_RESULTS)])
    checks, damaged = read_checks(folders, suite)
    if not checks:
        raise ConfigError(
            f"there is no run of the suite {suite} at a place",
            hint=f"measure one each night: fsjoule bench --suite {suite}",
        )
    only = named_place({check.place for check in checks}, place) if place is not None else None
    if restart is not None:
        _restart(only, restart.strip(), [each for each in folders if read_checks([each], suite)[0]])
    restarts, unreadable = read_restarts({each.parent for each in folders})
    charts = place_charts(checks, false_alarms, restarts)
    found = agreements(charts, *pair) if pair else []
    charts = [each for each in charts if only in (None, each.place)]
    restarts = [each for each in restarts if only in (None, (each.place, each.exporter))]
    if json_output:
        print_json(to_document(charts, found, restarts))
    else:
        tables = [drift_table(charts, history=only is not None)]
        tables += [agreement_table(found, *pair)] if pair else []
        for table in tables:
            print_table(out, table, wide=wide)
        for line in notes(restarts, found, history=only is not None):
            out.print(line, highlight=False, soft_wrap=True)
    broken = [*(f"{each.path}: {each.reason}" for each in faults), *(f"{path}: {why}" for path, why in damaged.items())]
    for text in (*broken, *unreadable):
        progress(f"warning: {text}")
    if chart is not None:
        replace_text(chart, drift_charts(charts))
    if mark:
        _mark([(at.name, "; ".join(each.headline for each in open_)) for at, _, open_ in place_states(charts)])
    states = {state for _, state, _ in place_states(charts)}
    raise typer.Exit(Control.OUT in states or not all(each.agree for each in found))


def _pair(between: str | None) -> list[str]:
    from fsjoule.errors import ConfigError

    pair = [] if between is None else [each.strip() for each in between.split(",")]
    if between is not None and len(pair) != _PAIR:
        raise ConfigError(f"--between {between!r} does not name two places", hint="write --between bench-3,bench-4")
    return pair


def _restart(place: CheckedPlace | None, why: str, checks: Sequence[Path]) -> None:
    """Keep beside the run folders of checks that charts of the place begin anew."""
    from fsjoule.errors import ConfigError
    from fsjoule.store.states import restart_place

    if place is None or not why:
        raise ConfigError("--restart needs a place and a reason", hint='fsjoule place drift PLACE --restart "why"')
    restart_place({each.parent for each in checks}, place.name, place.exporter, why)


def _mark(doubts: Sequence[tuple[str, str]]) -> None:
    """Note at the coordinator's places why they are out of control ("": they are not).

    Places of other labs are left alone, and so is a name that several labs have.
    """
    from fsjoule.lab.coordinator import connected
    from fsjoule.lab.states import note_drift

    with connected() as coordinator:
        for place, why in doubts:
            if place not in coordinator.places:
                continue
            if [name for name, _ in doubts].count(place) > 1:
                progress(f"warning: {place}: several labs have a place of this name, so its state was left alone")
            elif line := note_drift(coordinator, place, why):
                progress(line)


@app.command("list")
def list_places(*, wide: Wide = False, json_output: Json = False) -> None:
    """List the places of the coordinator: state and why, the lab's faults in a row, holder and tags."""
    from fsjoule.lab.coordinator import connected
    from fsjoule.lab.states import states
    from fsjoule.report.table import listing, word
    from fsjoule.report.terminal import print_table

    with connected() as coordinator:
        found = states(coordinator)
    if json_output:
        print_json(
            [
                {"place": each.name, "state": each.state, "since": each.since, "why": each.why}
                | {"faults": each.faults, "holder": each.holder, "tags": each.tags}
                for each in found
            ]
        )
        return
    rows = [
        (
            each.name,
            each.state.value,
            str(each.faults or ""),
            each.why,
            each.holder or "free",
            " ".join(f"{key}={value}" for key, value in sorted(each.tags.items())),
        )
        for each in found
    ]
    columns = (word("place"), word("state"), word("faults"), word("why", optional=True), word("holder"), word("tags"))
    print_table(out, listing(columns, rows), wide=wide)


@app.command("status")
def status(
    results: Annotated[
        list[Path] | None,
        typer.Argument(help="Run folders, or folders that contain some (default: results, if it is there)."),
    ] = None,
    *,
    page: Page = None,
    openmetrics: Annotated[
        Path | None,
        typer.Option(
            "--openmetrics",
            metavar="FILE",
            callback=output_file,
            help="Write OpenMetrics text to FILE, in one step.",
        ),
    ] = None,
    last: Annotated[int, typer.Option("--last", min=0, metavar="N", help="Show the last N runs of each place.")] = 5,
    wide: Wide = False,
    json_output: Json = False,
) -> None:
    """Show the whole lab: states, holders, queue, last runs, use, efficiency, and faults by part.

    Places and queue come from the coordinator, the rest from run folders.

    Example: fsjoule place status /srv/results --page lab.html --openmetrics /var/lib/node_exporter/fsjoule.prom
    """
    import time

    from fsjoule.report.places.openmetrics import to_openmetrics
    from fsjoule.report.places.tables import show, to_document
    from fsjoule.runs.options import DEFAULT_RESULTS
    from fsjoule.runs.places import look

    folders = results or [each for each in (Path(DEFAULT_RESULTS),) if each.is_dir()]
    lab = look(folders, time.time(), last=last)
    if page is not None:
        from fsjoule.report.places.page import render_page

        replace_text(page, render_page(lab, page))
    if openmetrics is not None:
        replace_text(openmetrics, to_openmetrics(lab))
    if json_output:
        print_json(to_document(lab))
    else:
        show(lab, out, wide=wide)


@app.command("maintenance")
def maintenance(
    place: Annotated[str, typer.Argument(help="The place, by its full name.")],
    *,
    end: Annotated[bool, typer.Option("--end", help="Its state is good again.")] = False,
    why: Annotated[str, typer.Option("--why", metavar="TEXT", help="The reason, for those who look at the lab.")] = "",
) -> None:
    """Keep a place out of its pool: who chooses by tags does not get it, and the doctor leaves its state alone.

    Whoever has the place keeps it. `fsjoule doctor PLACE --state` examines it after --end.

    Example: fsjoule place maintenance evk-1 --why "a new card"
    """
    from fsjoule.host.plaintext import plain_line
    from fsjoule.lab.coordinator import connected, user
    from fsjoule.lab.states import set_state
    from fsjoule.model.places import PlaceHealth

    state = PlaceHealth.GOOD if end else PlaceHealth.MAINTENANCE
    with connected() as coordinator:
        set_state(coordinator, place, state, f"{user()}: {plain_line(why)}" if why else f"set by {user()}")
    out.print(f"place {place!r}: {state}", soft_wrap=True, highlight=False)


@app.command("release")
def release(
    *,
    place: Name = None,
    end: Annotated[bool, typer.Option("--end", help="Also end a living job, which says by whom.")] = False,
    grace: Grace = _GRACE,
) -> None:
    """Give back the places of this job and of killed jobs on this computer. A second call does nothing.

    The job that CI_JOB_ID names is ended if it still lives. Other living jobs are named and left alone.

    Example: fsjoule place release --place evk-1
    """
    from fsjoule.errors import LabError
    from fsjoule.lab import jobs
    from fsjoule.lab.reservation import seconds

    if not jobs.release(place, end=end, end_s=seconds("--grace", grace)):
        raise typer.Exit(LabError.exit_code)
