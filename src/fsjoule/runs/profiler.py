"""The profiler of a board in a lab, and the check that a board can be profiled."""

from __future__ import annotations

from typing import Final

from fsjoule import lab
from fsjoule.errors import ConfigError
from fsjoule.kernels.recipe import load_recipe, recipes_folder
from fsjoule.model import Profile
from fsjoule.virtual.lab import board

_HINT: Final = "take a board in guest time, for example --lg-env env/deterministic.yaml"
# The emulator tells the pages of programs from the kernel by a 32-bit address.
_PROFILED: Final = "armhf"


class LabProfiler:
    """ports.Profiler for the board of the lab at a coordinator."""

    def __init__(self, coordinator: str) -> None:
        self._coordinator = coordinator

    def count_next(self) -> None:
        """See ports.Profiler."""
        board.profile_next(self._coordinator)

    def take(self, window: str) -> Profile | None:
        """See ports.Profiler."""
        return board.take_profile(self._coordinator, window)


def check_profiled(environment: lab.EnvironmentFile) -> None:
    """Raises ConfigError for a board whose instructions cannot be counted."""
    profile = environment.profile
    if not profile.guest_time:
        raise ConfigError(
            f"the board {profile.name} is not in guest time, and its instructions cannot be counted; "
            "sampling on a board in real time is not there yet",
            hint=_HINT,
        )
    architecture = load_recipe(recipes_folder(), profile.recipe).architecture
    if architecture != _PROFILED:
        raise ConfigError(
            f"the board {profile.name} is {architecture}: instructions can be counted on 32-bit ARM only", hint=_HINT
        )
