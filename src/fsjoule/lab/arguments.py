"""BoardStrategy's arguments in an environment file, with their checks. Messages fit behind the file's line."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, Final, cast

import attr

from fsjoule.model import CARD, MIB, CardModel, StatePolicy, Storage

_SIGNS: Final = frozenset("+:,")
_A_STORAGE: Final = "{device: sda, size_mib: 512}"
_STORAGE_KEYS: Final[dict[str, type]] = {"module": str, "model": str, "forgets": bool}
_MORE_KEYS: Final = f"further keys are {', '.join(_STORAGE_KEYS)}"


def storages_of(written: dict[str, dict[str, Any]], model: Callable[[str], CardModel]) -> dict[str, Storage]:
    """The storage devices by name; `model` reads the model of that name. Raises ConfigError."""
    return {
        name: Storage(
            each["device"],
            each["size_mib"] * MIB,
            module=each.get("module", ""),
            model=model(each["model"]) if "model" in each else None,
            forgets=each.get("forgets", False),
        )
        for name, each in written.items()
    }


def text(default: object = attr.NOTHING) -> Any:  # noqa: ANN401 - like attrs
    return attr.ib(default=default, validator=attr.validators.instance_of(str))


def number(default: object = attr.NOTHING) -> Any:  # noqa: ANN401 - like attrs
    return attr.ib(default=default, converter=float)


def factors() -> Any:  # noqa: ANN401 - like attrs
    def check(_owner: object, _attribute: object, value: object) -> None:
        if not isinstance(value, dict) or not all(
            isinstance(factor, (int, float)) and 0 < factor <= 1 for factor in cast("dict[str, object]", value).values()
        ):
            raise ValueError("it maps suite names to numbers above 0 and up to 1: {copy-2015: 0.01}")

    return attr.ib(factory=dict, validator=check)


def storages() -> Any:  # noqa: ANN401 - like attrs
    def check(_owner: object, _attribute: object, value: object) -> None:
        if not isinstance(value, dict):
            raise TypeError(f"it maps names to devices and their sizes: {{stick: {_A_STORAGE}}}")
        for name, each in cast("dict[object, object]", value).items():
            if name == CARD or not isinstance(name, str):
                raise ValueError(f"{name} cannot be the name of a further storage device: stick can, or nvme")
            if set(name) & _SIGNS:
                raise ValueError(f"{name}: a plus sign names layers, a colon a setting, and a comma ends a name")
            if not _is_storage(each):
                raise ValueError(f"{name} needs its device, without /dev/, and its size: {_A_STORAGE}; {_MORE_KEYS}")

    return attr.ib(factory=dict, validator=check)


def _number(value: object) -> float:
    """NaN, of which nothing is true, if it is no number."""
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else math.nan


# The keys of `board_state`: what each is, and whether a value can be that.
_CONDITIONS: Final[dict[str, tuple[str, Callable[[object], bool]]]] = {
    "governor": (
        "a governor of the kernel's: performance",
        lambda value: re.fullmatch("[a-z_]+", str(value)) is not None,
    ),
    "cool_below_c": ("a temperature in °C, above 0 and up to 150: 60", lambda value: 0 < _number(value) <= 150),  # noqa: PLR2004
    "max_load": ("a load average, above 0: 0.5", lambda value: 0 < _number(value) < math.inf),
    "wait_s": ("seconds, 0 or more: 300", lambda value: 0 <= _number(value) < math.inf),
    "else": ("what follows if waiting does not help: refuse, or measure", lambda value: value in ("refuse", "measure")),
}


def policy_of(written: dict[str, Any]) -> StatePolicy | None:
    asked = {name: value for name, value in written.items() if name != "else"}
    return StatePolicy(**asked, measure_anyway=written.get("else") == "measure") if written else None


def board_state() -> Any:  # noqa: ANN401 - like attrs
    def check(_owner: object, _attribute: object, value: object) -> None:
        if not isinstance(value, dict):
            raise TypeError("it maps conditions to values: {governor: performance, cool_below_c: 60}")
        for name, each in cast("dict[object, object]", value).items():
            if name not in _CONDITIONS:
                raise ValueError(f"{name} is no condition; there are {', '.join(_CONDITIONS)}")
            words, can_be = _CONDITIONS[str(name)]
            if not can_be(each):
                raise ValueError(f"{name} is {words}")

    return attr.ib(factory=dict, validator=check)


def _is_storage(value: object) -> bool:
    match value:
        case {"device": str(device), "size_mib": int(size_mib), **rest}:
            known = all(isinstance(each, _STORAGE_KEYS.get(str(key), ())) for key, each in rest.items())
            return known and size_mib > 0 and "/" not in device
        case _:
            return False


def flag(default: object = attr.NOTHING) -> Any:  # noqa: ANN401 - like attrs
    return attr.ib(default=default, validator=attr.validators.instance_of(bool))


def whole(default: int) -> Any:  # noqa: ANN401 - like attrs
    return attr.ib(default=default, validator=[attr.validators.instance_of(int), attr.validators.ge(0)])


def seconds(default: int) -> Any:  # noqa: ANN401 - like attrs
    return attr.ib(default=default, validator=[attr.validators.instance_of(int), attr.validators.gt(0)])
