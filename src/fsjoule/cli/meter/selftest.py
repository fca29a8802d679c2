"""`fsjoule meter selftest`: the meter's own test, and with a board the square load."""

from __future__ import annotations

import dataclasses
import sys
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from fsjoule.cli.common import Json, err, labelled, out, print_json
from fsjoule.cli.meter.common import Environment, MeterAddress, named
from fsjoule.errors import MeasurementInvalid
from fsjoule.host.clock import today

if TYPE_CHECKING:
    from fsjoule.bench.square_load import SquareLoad
    from fsjoule.meter.links.client import MeterClient
    from fsjoule.model import BoardProfile

_FAILED = 5


def selftest(
    *,
    meter: MeterAddress = None,
    lg_env: Environment = None,
    kernel: Annotated[str, typer.Option(help="With --lg-env: the kernel on the board's card.")] = "6.1",
    json_output: Json = False,
) -> None:
    """Have the meter test itself; with --lg-env also test its marks with a square load on the board.

    The board boots, loads its CPU in a known pattern and marks each edge; the steps in the meter's trace show how late
    the marks are. A mark may be late by as much as the energy's uncertainty includes: the meter's own part, and
    window_excess of the board's environment file. Exit code 5 if a test fails.

    Example: fsjoule meter selftest --lg-env env/virtual.yaml
    """
    from fsjoule.runs.meter import environment_target, open_meter

    if lg_env is None:
        with open_meter(meter, None) as client:
            passed, document = _own(client, json_output)
    else:
        with environment_target(lg_env, kernel=kernel) as (target, profile):
            from fsjoule import lab

            # Only fsjoule's own meter can test itself.
            passed, document = True, dict[str, Any]()
            if lab.instrument(target) is None:
                passed, document = _own(lab.meter(target).client(), json_output)
            if passed:
                square_passed, square = _square(target, profile, kernel, json_output)
                passed, document = passed and square_passed, document | {"square_load": square}
    if json_output:
        print_json(document | {"passed": passed})
    else:
        out.print("passed" if passed else "failed", style="green" if passed else "red")
    raise typer.Exit(0 if passed else _FAILED)


def _own(client: MeterClient, quiet: bool) -> tuple[bool, dict[str, Any]]:
    from fsjoule.meter.links.notices import notices

    test, frame = client.self_test(), client.info()
    told = notices(frame, today())
    if not quiet:
        meter = named(frame.info)
        out.print(Text.assemble("meter ", meter, f": it reads {test.shunt_mv:.3f} mV, {test.bus_v:.3f} V"))
        for failure in test.failures:
            out.print(labelled("failure", "red", str(failure)), soft_wrap=True)
        for notice in told:
            out.print(labelled("note", "yellow", notice), soft_wrap=True)
    document = {"meter": frame.info.serial_number, "simulated": frame.info.simulated} | dataclasses.asdict(test)
    return not test.failures, document | {"notices": told}


def _square(
    target: Any,  # noqa: ANN401 - a labgrid Target; labgrid is fsjoule.lab's
    profile: BoardProfile,
    kernel: str,
    quiet: bool,
) -> tuple[bool, dict[str, Any]]:
    from fsjoule import images, lab
    from fsjoule.bench.square_load import mark_limit_s, square_load
    from fsjoule.host.clock import HostClock
    from fsjoule.suites import SCRATCH_ROOT

    card = images.build_card(kernel, SCRATCH_ROOT, recipe=profile.recipe)
    wanted = (card.facts.kernel_choice, SCRATCH_ROOT)
    board = lab.LabgridBoard(target, {wanted: card})
    with redirect_stdout(sys.stderr):  # labgrid prints the output of its tools
        board.prepare(*wanted)
        shell = board.boot()
        try:
            found, info = square_load(shell, lab.board_meter(target), HostClock(), profile.mark_line)
        except MeasurementInvalid as error:
            err.print(labelled("failure", "red", error.what), soft_wrap=True)
            return False, {"failures": list(error.reasons)}
        finally:
            board.off()
    mark_s, limit_s = (mark_limit_s(info, profile.mark_line, more) for more in (0.0, profile.window_excess_s))
    if not quiet:
        out.print(_table(found))
        allowed = f"{mark_s * 1e3:.2f} ms, energy's mark term, and {profile.window_excess_s * 1e3:.0f} ms, the board's"
        out.print(f"a mark may be off by {allowed} window_excess", highlight=False, soft_wrap=True)
    passed = max(found.start.farthest_s, found.stop.farthest_s) <= limit_s
    terms = {"mark_term_s": mark_s, "window_excess_s": profile.window_excess_s, "limit_s": limit_s}
    return passed, dataclasses.asdict(found) | terms | {"within_limit": passed}


def _table(found: SquareLoad) -> Table:
    table = Table(
        "marks against steps", "steps", "median/ms", "SD/ms", "earliest/ms", "latest/ms", box=None, title_justify="left"
    )
    for name, latency in (("start", found.start), ("stop", found.stop)):
        median, spread, least, largest = (
            value * 1e3 for value in (latency.median_s, latency.spread_s, latency.least_s, latency.largest_s)
        )
        table.add_row(name, str(latency.steps), f"{median:+.2f}", f"{spread:.2f}", f"{least:+.2f}", f"{largest:+.2f}")
    table.title = (
        f"{found.pulses} pulses from {found.low_w:.4f} W to {found.high_w:.4f} W, "
        f"a step of {(found.high_w - found.low_w) * 1e3:.1f} mW"
    )
    return table
