"""A lab of several places as `model.places` has it, with one of everything that a page can show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from fsjoule.model import RunStatus
from fsjoule.model.places import WINDOWS_S, Lab, LabPlace, PlaceHealth, PlaceRun, Usage, Waiting
from fsjoule.runs.places import usage

NOW_S = 1_795_500_000.0
HOUR_S = 3600.0


def run_of(
    number: int,
    *,
    ago_h: float,
    took_h: float = 0.5,
    measuring: float = 0.7,
    status: RunStatus = RunStatus.COMPLETE,
    faults: Mapping[str, int] | None = None,
    reason: str = "",
) -> PlaceRun:
    running = status is RunStatus.RUNNING
    took_s = took_h * HOUR_S
    began_s = NOW_S - ago_h * HOUR_S
    return PlaceRun(
        run_id=f"run{number}",
        folder=f"/srv/results/run{number}",
        status=status,
        simulated=False,
        suite="energy-emmc-2025",
        kernels=("6.1", "6.12"),
        user="ci@runner-3",
        began_s=began_s,
        ended_s=None if running else began_s + took_s,
        held_s=NOW_S - began_s if running else took_s,
        measuring_s=0.0 if running else measuring * took_s,
        measured=24 if status is RunStatus.COMPLETE else 7,
        planned=24,
        faults=faults or {},
        reason=reason,
    )


def place_of(name: str, health: PlaceHealth, *runs: PlaceRun, why: str = "", in_a_row: int = 0) -> LabPlace:
    by_window: list[Usage] = [usage(runs, window, NOW_S) for window in WINDOWS_S]
    return LabPlace(
        name=name,
        health=health,
        since_s=None if health is PlaceHealth.UNKNOWN else NOW_S - 5.4 * HOUR_S,
        why=why,
        faults_in_a_row=in_a_row,
        holder="",
        held_since_s=None,
        reserved_for="",
        tags={"soc": "imx6ul", "board": "imx6ul-evk"},
        usage=tuple(by_window),
        last_runs=tuple(runs[:5]),
        day_runs=tuple(run for run in runs if run.began_s > NOW_S - 24 * HOUR_S),
    )


def lab_of_six() -> Lab:
    """Two good places, one of them held, a bad one, one in maintenance, one without a state, one reserved; a queue."""
    dead = "the outlet rack3-pdu:4 does not answer: switching the board off took longer than 30 s"
    aborted = [
        run_of(
            each,
            ago_h=6.0 + each,
            took_h=0.2,
            measuring=0.0,
            status=RunStatus.ABORTED,
            faults={"power": 2},
            reason=dead,
        )
        for each in range(3)
    ]
    good = place_of(
        "evk-1", PlaceHealth.GOOD, *(run_of(10 + n, ago_h=1.0 + 1.4 * n) for n in range(9)), why="the doctor: all ok"
    )
    held = place_of(
        "evk-2",
        PlaceHealth.GOOD,
        run_of(20, ago_h=0.4, status=RunStatus.RUNNING),
        run_of(21, ago_h=3.0, faults={"console": 1}),
        run_of(22, ago_h=30.0, took_h=9.0),
        why="the doctor: all ok",
    )
    bad = place_of("evk-3", PlaceHealth.BAD, *aborted, why="3 faults of the lab in a row, the last: power", in_a_row=3)
    repaired = place_of(
        "evk-4",
        PlaceHealth.MAINTENANCE,
        run_of(30, ago_h=90.0, faults={"flasher": 1, "unknown": 2}),
        why="lab/ada: a new card",
    )
    return Lab(
        coordinator="lab.example:20408",
        looked_s=NOW_S,
        places=(
            good,
            replace(held, holder="runner-3/ci", held_since_s=NOW_S - 0.4 * HOUR_S),
            bad,
            repaired,
            place_of("opi-1", PlaceHealth.UNKNOWN),
            replace(place_of("opi-2", PlaceHealth.GOOD), reserved_for="desk/ada"),
        ),
        queue=(
            Waiting("runner-1/ci", {"soc": "imx6ul", "state": "good"}, 10.0, NOW_S - 240, ("evk-1", "evk-2")),
            Waiting("desk/bob", {"soc": "am335x"}, 0.0, NOW_S - 4000, ()),
        ),
        damaged={"/srv/results/broken": "run.json is not JSON of ours"},
        elsewhere=4,
    )
