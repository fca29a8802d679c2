"""Whether a run still has the board and the meter that it names: a joule belongs to its instrument. Pure."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any, Final

from fsjoule.errors import InstrumentError, LabError
from fsjoule.model import BoardFacts, MeterInfo, Run, Trace

_SAME_MEMORY: Final = 0.01
_BOARD_HINT: Final = "go on with it on the board that it began on, or start a new run"
_METER_HINT: Final = (
    "put the run's meter back, with the settings that it had, and go on with --resume; or start a new run"
)
# Fields whose name or number is not what a person calls them: a name, and how many of its unit make up the field's 1.
_WORDS: Final[dict[str, tuple[str, float, str]]] = {
    "serial_number": ("serial", 1, ""),
    "rate_hz": ("rate", 1, " samples/s"),
    "shunt_uohm": ("shunt", 1e-6, " Ohm"),
    "shunt_range_mv": ("range", 1, " mV"),
}


def check_board(then: BoardFacts, now: BoardFacts) -> None:
    """Whether the board of a run that goes on is the one that it began on. Raises LabError if not."""
    # A root filesystem is the card's, and what is left of the memory may differ by a few pages from boot to boot.
    same = replace(now, root_filesystem=then.root_filesystem)
    if abs(now.memory_bytes - then.memory_bytes) < then.memory_bytes * _SAME_MEMORY:
        same = replace(same, memory_bytes=then.memory_bytes)
    was, found = asdict(then), asdict(same)
    differs = [f"{name} was {was[name]}, it is {found[name]} now" for name in was if was[name] != found[name]]
    if differs:
        raise LabError(f"this is not the board of the run: {'; '.join(differs)}", hint=_BOARD_HINT)


def check_kernel(run: Run, label: str, board: BoardFacts) -> None:
    """Whether the board runs the kernel that its card was made with. Raises LabError if not."""
    wanted = next((kernel.release for kernel in run.kernels if kernel.label == label), board.kernel_release)
    if board.kernel_release != wanted:
        raise LabError(
            f"the board runs kernel {board.kernel_release}, its card has {wanted}",
            hint="does its boot loader take the kernel from the card?",
        )


def meter_of(known: MeterInfo | None, trace: Trace | None) -> MeterInfo | None:
    """The run's meter once a trace was recorded: the `known` one, or else the trace's.

    Raises InstrumentError if the trace is another meter's.
    """
    if trace is None:
        return known
    if known is not None:
        check_meter(known, trace.info)
    return known or trace.info


def check_meter(then: MeterInfo, now: MeterInfo) -> None:
    """Whether this is the run's meter, with its settings and its calibration. Raises InstrumentError if not.

    All that a meter says of itself counts: each of its settings makes joules of raw samples, or says how sure they are.
    """
    was, found = _flat(asdict(then)), _flat(asdict(now))
    differs = [_change(name, was[name], found[name]) for name in was if was[name] != found[name]]
    if differs:
        raise InstrumentError(f"this is not the meter of the run: {'; '.join(differs)}", hint=_METER_HINT)


def _flat(info: dict[str, Any]) -> dict[str, Any]:
    calibration: dict[str, Any] = info.pop("calibration")
    return info | {f"calibration's {name}": value for name, value in calibration.items()}


def _change(name: str, was: object, now: object) -> str:
    words, factor, unit = _WORDS.get(name, (name.replace("_", " "), 1, ""))

    def told(value: object) -> str:
        scaled = f"{value * factor:g}" if isinstance(value, int | float) and factor != 1 else str(value)
        return scaled + unit

    return f"{words} was {told(was)}, it is {told(now)} now"
