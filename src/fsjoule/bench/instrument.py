"""Whether a run still has its board and its meter: a joule belongs to its instrument. Pure."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any, Final

from fsjoule.errors import InstrumentError, LabError
from fsjoule.model import BoardFacts, MeterInfo, Run, Trace
from fsjoule.model.meter import READ_S

_SAME_MEMORY: Final = 0.01
_BOARD_HINT: Final = "resume it on the board where it began, or start a new run"
_METER_HINT: Final = "put the run's meter back, with its old settings, and go on with --resume; or start a new run"
# Fields that read better with another name or unit: the name, the factor to the unit, and the unit.
_WORDS: Final[dict[str, tuple[str, float, str]]] = {
    "serial_number": ("serial", 1, ""),
    "rate_hz": ("rate", 1, " samples/s"),
    "shunt_uohm": ("shunt", 1e-6, " Ohm"),
    "shunt_range_mv": ("range", 1, " mV"),
}
# What the uncertainty takes from an instrument file.
_FILE: Final = (
    ("shunt", "tolerance_percent"),
    ("shunt", "drift_ppm_per_kelvin"),
    ("room", "least_celsius"),
    ("room", "most_celsius"),
    ("calibration", "celsius"),
)


def check_board(then: BoardFacts, now: BoardFacts) -> None:
    """Raise LabError unless a resumed run has the board on which it began."""
    # The root filesystem belongs to the card, and the usable memory may differ by a few pages per boot.
    same = replace(now, root_filesystem=then.root_filesystem)
    if abs(now.memory_bytes - then.memory_bytes) < then.memory_bytes * _SAME_MEMORY:
        same = replace(same, memory_bytes=then.memory_bytes)
    # A kernel may fail to tell its tick.
    if 0 in (then.tick_hz, now.tick_hz):
        same = replace(same, tick_hz=then.tick_hz)
    was, seen = asdict(then), asdict(same)
    differs = [f"{name} was {was[name]}, it is {seen[name]} now" for name in was if was[name] != seen[name]]
    if differs:
        raise LabError(f"this is not the board of the run: {'; '.join(differs)}", hint=_BOARD_HINT)


def check_kernel(run: Run, label: str, board: BoardFacts) -> None:
    """Whether the board runs the kernel that its card was made with. Raises LabError if not."""
    release = next((kernel.release for kernel in run.kernels if kernel.label == label), board.kernel_release)
    if board.kernel_release != release:
        raise LabError(
            f"the board runs kernel {board.kernel_release}, its card has {release}",
            hint="does its boot loader take the kernel from the card?",
        )


def meter_of(known: MeterInfo | None, trace: Trace | None) -> MeterInfo | None:
    """The run's meter: the `known` one, else the trace's. Raises InstrumentError if they differ."""
    if trace is None:
        return known
    if known is not None:
        check_meter(known, trace.info)
    return known or trace.info


def check_meter(then: MeterInfo, now: MeterInfo) -> None:
    """Raise InstrumentError unless it is the run's meter with the same settings, which all affect the joules."""
    was, seen = _flat(then), _flat(now)
    names = [name for name in was if name in seen] if then.kind == now.kind else ["instrument", "serial_number"]
    differs = [_change(name, was[name], seen[name]) for name in names if was[name] != seen[name]]
    if differs:
        raise InstrumentError(f"this is not the meter of the run: {'; '.join(differs)}", hint=_METER_HINT)


def _flat(info: MeterInfo) -> dict[str, Any]:
    flat: dict[str, Any] = {"instrument": info.kind} | asdict(info)
    calibration: dict[str, Any] = flat.pop("calibration", {})
    settings: dict[str, Any] = flat.pop("settings", {})
    file: dict[str, dict[str, Any] | None] | None = flat.pop("file", None)
    flat["instrument file"] = "absent" if file is None else "there"
    for table, name in _FILE:
        flat[f"instrument file's {name}"] = ((file or {}).get(table) or {}).get(name)
    if READ_S in settings:  # timed anew whenever it is opened, and each trace has its own
        del settings[READ_S], flat["rate_hz"]
    return flat | {f"calibration's {name}": value for name, value in calibration.items()} | settings


def _change(name: str, was: object, now: object) -> str:
    words, factor, unit = _WORDS.get(name, (name.replace("_", " "), 1, ""))

    def told(value: object) -> str:
        scaled = f"{value * factor:g}" if isinstance(value, int | float) and factor != 1 else str(value)
        return scaled + unit

    return f"{words} was {told(was)}, it is {told(now)} now"
