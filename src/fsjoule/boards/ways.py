"""Ways to write a real board's card: the drivers in its environment file, the resource in its exporter's."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from fsjoule.errors import ConfigError
from fsjoule.kernels.recipe import BoardKind

SDMUX: Final = "sdmux"
UMS: Final = "ums"
KEPT: Final = "kept"
IN_PLACE: Final = "in-place"
_NAME: Final = "{card}"


@dataclass(frozen=True, slots=True)
class Way:
    """`place` completes "with its card ..."; `drivers` are lines of the environment file, `resource` the exporter's."""

    place: str
    drivers: str
    resource: str


def _mux(place: str, driver: str, resource: str) -> Way:
    drivers = f"      {driver}: {{}}\n      USBStorageDriver: {{}}\n      SdMuxFlasher:\n        write_timeout: 900\n"
    return Way(place, drivers, f"  {resource}:\n    match:\n      ID_SERIAL_SHORT: '{_NAME}'\n")


_MUXES: Final = {
    SDMUX: _mux("in a USB-SD-Mux", "USBSDMuxDriver", "USBSDMuxDevice"),
    "sdwire": _mux("in an SDWire", "USBSDWireDriver", "USBSDWireDevice"),
    "sdwire3": _mux("in an SDWire3", "USBSDWire3Driver", "USBSDWire3Device"),
}
MUX_RESOURCE: Final = _MUXES[SDMUX].resource
WAYS: Final = (*_MUXES, UMS, IN_PLACE, KEPT)


def way(name: str, board: BoardKind) -> Way:
    """The way of this name for a board. Raises ConfigError for an unknown one, or one that the board cannot do."""
    if name in _MUXES:
        return _MUXES[name]
    if name == KEPT:
        return Way("in the board, written by hand", "      KeptCard: {}\n", "")
    if name == IN_PLACE:
        return Way("in the board, written by hand once", "      InPlaceFlasher: {}\n", "")
    if name != UMS:
        raise ConfigError.unknown("flasher", name, WAYS)
    if not board.ums:
        raise ConfigError(
            f"the boot loader of a {board.title} has no command ums, as far as its recipe knows",
            hint="take an SD mux, or a recipe with board.ums: the command with U-Boot's number of the card",
        )
    drivers = f"""\
      UBootDriver:
        prompt: '\\n{regular(board.prompt)}'
        login_timeout: 60
      USBStorageDriver:
        bindings:
          storage: usb
      UmsFlasher:
        command: {board.ums}
        write_timeout: 900
"""
    resource = "  ## The disk that appears while U-Boot offers the card; labgrid-suggest shows its ID_PATH then.\n"
    return Way(
        "in the board, which offers it over USB", drivers,
        f"{resource}  usb:\n    cls: USBMassStorage\n    match:\n      ID_PATH: '{_NAME}'\n",
    )  # fmt: skip


def with_card(resource: str, card: str) -> str:
    """The resource's lines with the serial number, or for `ums` the path, of the card's device."""
    return resource.replace(_NAME, card)


def regular(prompt: str) -> str:
    """A regular expression for a boot loader's prompt."""
    return re.sub(r"([.^$*+?{}\[\]\\|()])", r"\\\1", prompt)
