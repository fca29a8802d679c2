"""A place and its board for programs that hold it one after the other: one acquires it, others use it, one releases it.

A run holds its place as one process (`fsjoule.lab.place`), and such a place counts as acquired beforehand.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from labgrid.remote.generated import labgrid_coordinator_pb2 as messages

from fsjoule.errors import ConfigError, ExporterError, LabError, PlaceHeldError
from fsjoule.lab.coordinator import Coordinator, RefusedError, connected, user
from fsjoule.lab.environment import EnvironmentFile, missing_resources
from fsjoule.lab.flashers import DiskImage
from fsjoule.lab.placenames import check_usable
from fsjoule.lab.strategy import BoardStrategy
from fsjoule.lab.target import labgrid_target
from fsjoule.lab.translate import lab_errors, time_limit

_LOOK_S: Final = 2.0
_POWER_TIMEOUT_S: Final = 30.0


def acquire(name: str, *, wait_s: float, say: Callable[[str], None]) -> None:
    """Acquire the place for this user. A place that this user has is left so.

    Waits up to `wait_s` for somebody else, or for a resource that an exporter has yet to offer.
    Raises PlaceHeldError or LabError after that; ConfigError if there is no such place.
    """
    _acquire_within(name, wait_s, say, lambda error: isinstance(error, PlaceHeldError) or error.transient)


def is_ours(name: str) -> bool:
    """Whether this user has acquired the place. Raises ConfigError if there is no such place, LabError."""
    with connected() as coordinator:
        return coordinator.place(name).acquired == user()


def check_equipped(name: str, environment: EnvironmentFile) -> None:
    """Raise ConfigError if a driver of the file needs a resource that the place does not have.

    While an exporter of the place is away, nothing can be said of it. Raises LabError without a coordinator.
    """
    with connected() as coordinator:
        place = coordinator.place(name)
        if coordinator.unmatched(place) is not None:
            return
        lacking = missing_resources(environment, coordinator.offered(place))
    if lacking:
        raise ConfigError(
            f"the place {name!r} lacks what {environment.path} uses: {'; '.join(lacking)}",
            hint="export it and add it to the place (labgrid-client add-match), or take the driver out of the file: "
            "docs/lava.md tells how a board without a meter or an SD mux is measured",
        )


def release(name: str) -> None:
    """Release the place, if this user has it. Raises LabError."""
    with connected() as coordinator:
        if coordinator.place(name).acquired == user():
            request = messages.ReleasePlaceRequest(placename=name, fromuser=user())
            coordinator.call(coordinator.stub.ReleasePlace, request, f"releasing {name!r}")


def complete(name: str, *, wait_s: float) -> None:
    """Acquire a place of ours again whose acquisition was cut off: labgrid names us, but has taken no resource.

    labgrid's coordinator frees what it had taken only when it looks for such resources, and the exporter may have to
    start anew: this waits up to `wait_s` for both. Call it only while no other program acquires the place. Raises
    PlaceHeldError if somebody else is faster, LabError.
    """
    with connected() as coordinator:
        place = coordinator.place(name)
        cut_off = place.acquired == user() and not place.acquired_resources
    if not cut_off:
        return
    release(name)

    def passes(error: LabError) -> bool:
        return error.transient and not isinstance(error, PlaceHeldError)

    _acquire_within(name, wait_s, lambda _: None, passes)


def switch_off(environment_file: Path) -> None:
    """Switch the board of an environment file off. This user must have its place. Raises LabError."""
    with labgrid_target(environment_file) as target:
        _strategy(target).transition("off")


def switch_on(environment_file: Path) -> None:
    """Switch the board on, whatever is on its card. This user must have its place. Raises LabError."""
    with labgrid_target(environment_file) as target:
        strategy = _strategy(target)
        doing = "switching the board on"
        with time_limit(_POWER_TIMEOUT_S, doing), lab_errors(doing):
            target.activate(strategy.power)
            strategy.power.on()


def restart(environment_file: Path) -> None:
    """Switch the board off, for as long as it needs, and on again. Raises LabError."""
    with labgrid_target(environment_file) as target:
        strategy = _strategy(target)
        strategy.transition("off")
        time.sleep(strategy.off_time)
        doing = "switching the board on"
        with time_limit(_POWER_TIMEOUT_S, doing), lab_errors(doing):
            strategy.power.on()


def flash(environment_file: Path, card: DiskImage) -> None:
    """Switch the board off and bring an image onto its card. Raises LabError."""
    with labgrid_target(environment_file) as target:
        strategy = _strategy(target)
        strategy.card = card
        strategy.transition("flashed")


def _acquire_within(name: str, wait_s: float, say: Callable[[str], None], passes: Callable[[LabError], bool]) -> None:
    """Acquire the place; an error that `passes` ends it only after `wait_s`."""
    deadline = time.monotonic() + wait_s
    told = ""
    while True:
        try:
            with connected() as coordinator:
                _acquire(coordinator, name)
        except LabError as error:
            if not passes(error):
                raise
            if time.monotonic() >= deadline:
                error.add_note(f"it was not free within {wait_s:.0f} s")
                raise
            if error.what != told:
                told = error.what
                say(f"{error.what}: waiting up to {deadline - time.monotonic():.0f} s")
            time.sleep(_LOOK_S)
        else:
            return


def _acquire(coordinator: Coordinator, name: str) -> None:
    place = coordinator.place(name)
    if place.acquired == user():
        return
    check_usable(coordinator, place)
    if place.acquired:
        # Its holder lets us use it, but it would not be ours to switch off and to release in the end.
        raise PlaceHeldError(name, place.acquired, hint="it is shared with you; a job needs a place of its own")
    if (missing := coordinator.unmatched(place)) is not None:
        raise ExporterError(name, missing)
    request = messages.AcquirePlaceRequest(placename=name)
    try:
        coordinator.call(coordinator.stub.AcquirePlace, request, f"acquiring {name!r}")
    except RefusedError:
        now = coordinator.place(name)
        check_usable(coordinator, now)  # another user was faster
        if now.acquired != user():  # or another helper of ours was
            raise


def _strategy(target: object) -> BoardStrategy:
    found: BoardStrategy = target.get_driver("BoardStrategy")
    return found
