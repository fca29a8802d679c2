"""The profiler of a board in a lab, and which way a board can be profiled."""

from __future__ import annotations

import dataclasses
from typing import Final

from fsjoule import lab
from fsjoule.errors import ConfigError
from fsjoule.kernels.recipe import load_recipe, recipes_folder
from fsjoule.model import Profile
from fsjoule.runs.request import Request
from fsjoule.virtual.lab import board

_HINT: Final = "take a board in guest time (env/deterministic.yaml), or `fsjoule explain A B`, which takes samples"
# The emulator tells the pages of programs from the kernel by a 32-bit address.
_COUNTED: Final = "armhf"


class LabProfiler:
    """ports.Profiler for the board at a place of the lab at a coordinator."""

    def __init__(self, coordinator: str, place: str) -> None:
        self._at = (coordinator, place)

    def count_next(self) -> None:
        """See ports.Profiler."""
        board.profile_next(*self._at)

    def take(self, window: str) -> Profile | None:
        """See ports.Profiler."""
        return board.take_profile(*self._at, window)


def check_profiled(environment: lab.EnvironmentFile) -> None:
    """Raises ConfigError for a board whose instructions cannot be counted."""
    if why := _why_not_counted(environment):
        raise ConfigError(why, hint=_HINT)


def with_profiles(choice: Request, environment: lab.EnvironmentFile) -> Request:
    """The choice with profiles: exact if the board's instructions can be counted, or else samples.

    The figures of sampled boots do not count.
    """
    exact = not _why_not_counted(environment)
    return dataclasses.replace(choice, profiled=exact, sampled=not exact)


def _why_not_counted(environment: lab.EnvironmentFile) -> str:
    """Why no profile can be kept with what the board measures; empty if one can."""
    profile = environment.profile
    if not profile.guest_time:
        return f"the board {profile.name} is not in guest time: no profile can be kept with what it measures"
    architecture = load_recipe(recipes_folder(), profile.recipe).architecture
    if architecture != _COUNTED:
        return f"the board {profile.name} is {architecture}: instructions can be counted on 32-bit ARM only"
    return ""
