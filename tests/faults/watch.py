"""In which phase a bench is, seen from outside: by its lab's files, the board's console and its run folder."""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import StrEnum
from typing import Final

from faults.scene import Bench, Scene

# Looking costs the machine time that the bench needs.
_POLL_S: Final = 0.1
_LIMIT_S: Final = 400.0
# The board's shell says this, and the bench asks nothing of it before that.
_PROMPT: Final = b"root@fsjoule:~# "
# What starts fio with its marks; laying out its file does not write a report.
_WORKLOAD: Final = b"fio --output="


class Phase(StrEnum):
    """What a bench does when the fault comes. `BEFORE` is before it has been started."""

    BEFORE = "before"
    SET_UP = "set-up"
    FLASH = "flash"
    BOOT = "boot"
    PROVISIONING = "provisioning"
    MEASURING = "measuring"
    STORING = "storing"


# How long a phase is on a quiet machine: the fault comes at a random moment of it.
_SPAN_S: Final[dict[Phase, float]] = {
    Phase.BEFORE: 0.0,
    Phase.SET_UP: 1.5,
    Phase.FLASH: 3.0,
    Phase.BOOT: 5.0,
    Phase.PROVISIONING: 1.5,
    Phase.MEASURING: 2.0,
    Phase.STORING: 0.05,
}


class NotReachedError(Exception):
    """The bench ended before the phase, or the phase did not come."""


def await_phase(scene: Scene, bench: Bench, phase: Phase) -> float:
    """Return at a random moment of the phase; how many seconds into it."""
    await_condition(bench, _beginning(scene, bench, phase), f"the phase {phase}")
    into_s = scene.rng.uniform(0.0, _SPAN_S[phase])
    until_s = time.monotonic() + into_s
    while bench.running and time.monotonic() < until_s:
        time.sleep(min(_POLL_S, into_s))
    if not bench.running:
        raise NotReachedError(f"the bench ended within the phase {phase}")
    return into_s


def await_condition(bench: Bench, condition: Callable[[], bool], what: str) -> None:
    """Wait until it holds. Raises NotReachedError if the bench ends before."""
    until_s = time.monotonic() + _LIMIT_S
    while not condition():
        if not bench.running:
            raise NotReachedError(f"the bench ended before {what}")
        if time.monotonic() > until_s:
            raise NotReachedError(f"{what} did not come within {_LIMIT_S:.0f} s")
        time.sleep(_POLL_S)


def _beginning(scene: Scene, bench: Bench, phase: Phase) -> Callable[[], bool]:
    """What holds from the beginning of a phase on."""
    beginnings: dict[Phase, Callable[[], bool]] = {
        Phase.BEFORE: lambda: True,
        Phase.SET_UP: lambda: (record := scene.lab) is not None and bool(record.services),
        Phase.FLASH: lambda: "card with kernel" in bench.text(),
        Phase.BOOT: lambda: scene.emulator() is not None,
        Phase.PROVISIONING: lambda: _PROMPT in _console(scene),
        Phase.MEASURING: lambda: _WORKLOAD in _console(scene),
        Phase.STORING: lambda: any(scene.results.glob("*/measurements/*")),
    }
    return beginnings[phase]


def _console(scene: Scene) -> bytes:
    try:
        return scene.console_log.read_bytes()
    except FileNotFoundError:
        return b""
