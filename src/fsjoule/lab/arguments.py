"""BoardStrategy's arguments in an environment file, with their checks. Messages fit behind the file's line."""

from __future__ import annotations

from typing import Any, Final, cast

import attr

from fsjoule.model import CARD, MIB, Storage

_A_STORAGE: Final = "{device: sda, size_mib: 512}"


def storages_of(written: dict[str, dict[str, Any]]) -> dict[str, Storage]:
    return {name: Storage(each["device"], each["size_mib"] * MIB) for name, each in written.items()}


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
            if not _is_storage(each):
                raise ValueError(f"{name} needs its block device, without /dev/, and its size: {_A_STORAGE}")

    return attr.ib(factory=dict, validator=check)


def _is_storage(value: object) -> bool:
    match value:
        case {"device": str(device), "size_mib": int(size_mib), **rest}:
            return not rest and size_mib > 0 and "/" not in device
        case _:
            return False


def flag(default: object = attr.NOTHING) -> Any:  # noqa: ANN401 - like attrs
    return attr.ib(default=default, validator=attr.validators.instance_of(bool))


def whole(default: int) -> Any:  # noqa: ANN401 - like attrs
    return attr.ib(default=default, validator=[attr.validators.instance_of(int), attr.validators.ge(0)])


def seconds(default: int) -> Any:  # noqa: ANN401 - like attrs
    return attr.ib(default=default, validator=[attr.validators.instance_of(int), attr.validators.gt(0)])
