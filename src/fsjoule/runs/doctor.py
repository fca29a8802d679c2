"""A place examined: held as by a bench, its parts checked, its board off at the end."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, redirect_stdout
from functools import partial
from pathlib import Path
from typing import Any, Final

from fsjoule import images, lab
from fsjoule.bench.health.checkup import Checkup, MeterTools
from fsjoule.bench.health.result import Check
from fsjoule.errors import ConfigError
from fsjoule.host.clock import HostClock, today
from fsjoule.host.paths import project_dir
from fsjoule.kernels.recipe import load_recipe, recipes_folder
from fsjoule.lab.wanted import Wanted
from fsjoule.meter.links.notices import complaints, file_notices, uncalibrated
from fsjoule.meter.tools.clock_fit import ClockFit, Drift
from fsjoule.model import MIB, BoardProfile
from fsjoule.ports import Clock
from fsjoule.runs.equipment import equipment
from fsjoule.runs.meter import KERNEL, environment_target
from fsjoule.suites import SCRATCH_ROOT

_FOLDERS: Final = ("env", "env/boards")


@contextmanager
def examined(
    environment_file: Path,
    say: Callable[[str], None],
    *,
    place: str | None = None,
    wanted: Wanted,
    kernel: str | None = None,
) -> Generator[tuple[BoardProfile, Iterator[Check]]]:
    """Hold the place of an environment file; the checks are made as they are taken. Afterwards the board is off.

    With a `kernel` its card is written, too. Raises ConfigError, PlaceHeldError, PlaceLostError, LabError.
    """
    held = environment_target(environment_file, say, kernel=kernel or KERNEL, place=place, wanted=wanted)
    with held as (target, profile), redirect_stdout(sys.stderr):  # labgrid prints the output of its tools
        cards: dict[tuple[str, str], images.CardImage] = {}
        if kernel is not None:
            card = images.build_card(kernel, SCRATCH_ROOT, progress=say, recipe=profile.recipe)
            cards[card.facts.kernel_choice, SCRATCH_ROOT] = card
        facts = lab.lab_facts(target)
        where = (os.environ.get("LG_COORDINATOR", ""), "" if facts is None else facts.place)
        board, meter, _ = equipment(target, cards, where, say)
        clock = HostClock()
        checkup = Checkup(
            *(board, board, MeterTools(meter, partial(_notices, target), partial(_drift, target, clock))),
            clock=clock,
            profile=profile,
            least_bytes=_card_bytes(profile),
            write=(lambda: board.prepare(*next(iter(cards)))) if cards else None,
        )
        if not lab.has_meter(target):
            checkup.meter = None
        try:
            yield profile, checkup.checks()
        finally:
            board.off()


def environment_of(place: str) -> Path:
    """The environment file that is named after a place: env/PLACE.yaml, env/boards/PLACE.yaml. Raises ConfigError."""
    tried = [project_dir() / folder / f"{place}.yaml" for folder in _FOLDERS]
    for file in tried:
        if file.is_file():
            return file
    raise ConfigError(
        f"no environment file is named after the place {place!r}", hint=f"--lg-env FILE, or write {tried[0]}"
    )


def _notices(target: Any) -> list[str]:  # noqa: ANN401 - a labgrid Target; labgrid is fsjoule.lab's
    """What fsjoule's own meter says against itself. An emulated one needs no calibration."""
    frame = lab.meter(target).client().info()
    said = [*complaints(frame.status), *file_notices(frame.info, today())]
    return said if frame.info.simulated else [*said, *uncalibrated(frame.info.calibration)]


def _drift(target: Any, clock: Clock, seconds: float) -> Drift | None:  # noqa: ANN401 - a labgrid Target
    """How the meter's clock drifts against the host's, heard for so many seconds. Raises MeterError."""
    receiver, fit = lab.meter(target).client().receiver, ClockFit()
    tick_us = receiver.wait_info().info.tick_us

    with receiver.listening(lambda frames, heard_s: fit.add_samples(frames, heard_s, tick_us)):
        clock.sleep(seconds)
    receiver.raise_if_over()
    return fit.drift()


def _card_bytes(profile: BoardProfile) -> int:
    """The size of the board's card images; 0 if its recipe is not there: the card was made elsewhere."""
    try:
        return load_recipe(recipes_folder(), profile.recipe).card.size_mib * MIB
    except ConfigError:
        return 0
