"""A whole lab looked at: its coordinator's places and queue, and the run folders of what was measured there."""

from __future__ import annotations

import ipaddress
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from fsjoule.errors import ResultError
from fsjoule.lab.coordinator import connected
from fsjoule.lab.reservation import Waiter, waiters
from fsjoule.lab.states import PlaceState, states
from fsjoule.model import Run, RunStatus
from fsjoule.model.places import (
    BUG,
    DAY_S,
    UNKNOWN_PART,
    WINDOWS_S,
    Lab,
    LabPlace,
    PlaceRun,
    Usage,
    Waiting,
)
from fsjoule.report.summary import MEASURING
from fsjoule.store.reader import load_run_file
from fsjoule.store.run_folders import runs_below

# Phases that are not spent at the board, or that others are part of.
_NOT_HELD: Final = ("setup", "board_on")
_STAMP: Final = re.compile(r"(\d{8}T\d{6}Z)-")
# Older runs than the week's are read only to name a place's last ones.
_MOST_OLDER: Final = 200
_LOOPBACK_NAMES: Final = ("localhost", "ip6-localhost")


def look(results: Sequence[Path], now_s: float, *, last: int) -> Lab:
    """The lab of LG_COORDINATOR's coordinator, with the `last` runs of each place among those below `results`.

    Raises ConfigError if one of the folders is missing, LabError if the coordinator does not answer.
    """
    with connected() as coordinator:
        address, place_states, queue = coordinator.address, states(coordinator), waiters(coordinator)
    runs, damaged, elsewhere = runs_of({each.name for each in place_states}, address, results, now_s, last=last)
    waiting = tuple(
        Waiting(each.owner, each.tags, each.priority, each.since_s, each.places) for each in queue if not each.place
    )
    places = tuple(_place(each, queue, runs.get(each.name, []), now_s, last) for each in place_states)
    return Lab(address, now_s, places, waiting, damaged, elsewhere)


def runs_of(
    names: set[str], coordinator: str, results: Sequence[Path], now_s: float, *, last: int
) -> tuple[dict[str, list[PlaceRun]], dict[str, str], int]:
    """The runs at these places by place, the newest first; damaged folders with reasons; the number of other runs.

    All of the longest window are read, and older ones until each place has the `last` ones, within reason.
    """
    folders, faults = runs_below(results)
    damaged = {str(fault.path): fault.reason for fault in faults}
    runs: dict[str, list[PlaceRun]] = {}
    elsewhere = older = 0
    begin_s = now_s - max(WINDOWS_S.values())
    for folder in reversed(folders):
        if (began_s := _stamp_s(folder.name)) is not None and began_s < begin_s:
            older += 1
            if older > _MOST_OLDER or all(len(runs.get(name, ())) >= last for name in names):
                break
        try:
            run = load_run_file(folder)
        except ResultError as error:
            damaged[str(folder)] = error.what
            continue
        at = [lab.place for lab in run.labs if lab.place in names and _same_lab(lab.coordinator, coordinator)]
        elsewhere += not at
        for place in at:
            runs.setdefault(place, []).append(place_run(run, folder, now_s, place))
    for each in runs.values():
        each.sort(key=lambda run: run.began_s, reverse=True)
    return runs, damaged, elsewhere


def place_run(run: Run, folder: Path, now_s: float, place: str = "") -> PlaceRun:
    """A run as its place sees it. A resumed run held its place for its phases only, not between them.

    Each place of a run on several has its own phases.
    """
    began_s = _seconds(run.started_utc)
    ended_s = None if run.finished_utc is None else max(_seconds(run.finished_utc), began_s)
    of_pool = next((each for each in run.places if each.lab.place == place), None)
    phases_s = run.phases_s if of_pool is None else of_pool.phases_s
    at_board_s = sum(seconds for name, seconds in phases_s.items() if name not in _NOT_HELD)
    span_s = (now_s if ended_s is None and run.status is RunStatus.RUNNING else ended_s or began_s) - began_s
    held_s = min(at_board_s, span_s) if run.resumed_utc else max(at_board_s, span_s)
    if of_pool is not None and of_pool.held_s:
        held_s = max(of_pool.held_s, at_board_s)
    measuring_s = sum(phases_s.get(name, 0.0) for name in MEASURING)
    faults = [each for each in run.faults if each.place in ("", place)]
    why = run.faults[-1].what if run.faults else run.abort_reason or ""
    return PlaceRun(
        run_id=run.run_id,
        folder=str(folder),
        status=run.status,
        simulated=run.simulated,
        suite=run.plan.suite,
        kernels=run.plan.kernels,
        user=run.lab.user if run.lab else "",
        began_s=began_s,
        ended_s=ended_s,
        held_s=max(held_s, 0.0),
        measuring_s=min(measuring_s, max(held_s, 0.0)),
        measured=len(run.measurements),
        planned=len(run.plan.entries),
        faults=Counter(BUG if each.bug else str(each.part or UNKNOWN_PART) for each in faults),
        reason=why.partition("\n")[0] if run.status is RunStatus.ABORTED else "",
    )


def usage(runs: Iterable[PlaceRun], window: str, now_s: float) -> Usage:
    """What the runs came to in the window that ends now."""
    begin_s = now_s - WINDOWS_S[window]
    held_s = measuring_s = 0.0
    faults = Counter[str]()
    statuses = Counter[RunStatus]()
    for run in runs:
        if run.began_s >= begin_s:
            faults.update(run.faults)
            statuses[run.status] += 1
        if run.ended_s is not None:
            # The part of the run that lies in the window.
            share = float(begin_s <= run.began_s <= now_s)
            if run.ended_s > run.began_s:
                inside_s = min(run.ended_s, now_s) - max(run.began_s, begin_s)
                share = max(0.0, inside_s) / (run.ended_s - run.began_s)
            held_s += share * run.held_s
            measuring_s += share * run.measuring_s
    complete, aborted = statuses[RunStatus.COMPLETE], statuses[RunStatus.ABORTED]
    return Usage(window, held_s, measuring_s, complete, aborted, dict(faults))


def _place(state: PlaceState, queue: Sequence[Waiter], runs: Sequence[PlaceRun], now_s: float, last: int) -> LabPlace:
    return LabPlace(
        name=state.name,
        health=state.state,
        since_s=_known_seconds(state.since),
        why=state.why,
        faults_in_a_row=state.faults,
        holder=state.holder,
        held_since_s=state.changed_s if state.holder else None,
        reserved_for=next((each.owner for each in queue if each.place == state.name), ""),
        tags=state.tags,
        usage=tuple(usage(runs, window, now_s) for window in WINDOWS_S),
        last_runs=tuple(runs[:last]),
        day_runs=tuple(run for run in runs if (run.ended_s or now_s) > now_s - DAY_S),
    )


def _same_lab(one: str, other: str) -> bool:
    """Whether two addresses may be one coordinator's. At a loopback address each computer has its own."""
    return one == other or not (_is_loopback(one) or _is_loopback(other))


def _is_loopback(address: str) -> bool:
    host = address.rpartition(":")[0].strip("[]") or address
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host in _LOOPBACK_NAMES


def _stamp_s(name: str) -> float | None:
    """The time with which a run folder's name begins."""
    found = _STAMP.match(name)
    try:
        return None if found is None else datetime.strptime(found[1], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None


def _known_seconds(utc: str) -> float | None:
    try:
        return _seconds(utc)
    except ValueError:
        return None


def _seconds(utc: str) -> float:
    return datetime.strptime(utc, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC).timestamp()
