"""Ways to write a real board's card, and to its shell: drivers in its environment file, resources in its exporter's."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from fsjoule.errors import ConfigError
from fsjoule.kernels.recipe import BoardKind, Recipe

SDMUX: Final = "sdmux"
UMS: Final = "ums"
TFTP: Final = "tftp"
FASTBOOT: Final = "fastboot"  # over USB
_FASTBOOT_UDP: Final = "fastboot-udp"
KEPT: Final = "kept"
IN_PLACE: Final = "in-place"
CONSOLE: Final = "console"
SSH: Final = "ssh"
SHELLS: Final = (CONSOLE, SSH)
SSH_SERVER: Final = "dropbear-bin"  # Debian's package, on a card of fsjoule's
_NAME: Final = "{card}"
_BOARD: Final = "{board}"


@dataclass(frozen=True, slots=True)
class CardAccess:
    """`place` completes "with its card ..."; `drivers` are lines of the environment file, `resource` the exporter's."""

    place: str
    drivers: str
    resource: str


def _mux(place: str, driver: str, resource: str) -> CardAccess:
    drivers = f"      {driver}: {{}}\n      USBStorageDriver: {{}}\n      SdMuxFlasher:\n        write_timeout: 900\n"
    return CardAccess(place, drivers, f"  {resource}:\n    match:\n      ID_SERIAL_SHORT: '{_NAME}'\n")


_MUXES: Final = {
    SDMUX: _mux("in a USB-SD-Mux", "USBSDMuxDriver", "USBSDMuxDevice"),
    "sdwire": _mux("in an SDWire", "USBSDWireDriver", "USBSDWireDevice"),
    "sdwire3": _mux("in an SDWire3", "USBSDWire3Driver", "USBSDWire3Device"),
}
_OF_ANY_BOARD: Final = {
    **_MUXES,
    KEPT: CardAccess("in the board, written by hand", "      KeptCard: {}\n", ""),
    IN_PLACE: CardAccess("in the board, written by hand once", "      InPlaceFlasher: {}\n", ""),
}
MUX_RESOURCE: Final = _MUXES[SDMUX].resource
WAYS: Final = (*_MUXES, UMS, FASTBOOT, _FASTBOOT_UDP, TFTP, IN_PLACE, KEPT)


def way(name: str, board: BoardKind, card: str) -> CardAccess:
    """The way of this name for a board, whose kernel calls its card `card` (mmcblk0).

    Raises ConfigError for an unknown one, or one that the board cannot do.
    """
    if name in _OF_ANY_BOARD:
        return _OF_ANY_BOARD[name]
    if name == TFTP:
        return _tftp(board, card)
    if name == FASTBOOT:
        told = "  ## The device that appears while U-Boot's fastboot runs; labgrid-suggest shows its ID_PATH then.\n"
        return _fastboot(board, "usb 0", f"{told}  AndroidUSBFastboot:\n    match:\n      ID_PATH: '{_NAME}'\n")
    if name == _FASTBOOT_UDP:
        told = "  ## The address that DHCP always gives the board.\n"
        return _fastboot(board, "udp", f"{told}  AndroidNetFastboot:\n    address: '{_NAME}'\n    protocol: udp\n")
    if name != UMS:
        raise ConfigError.unknown("flasher", name, WAYS)
    if not board.ums:
        raise ConfigError(
            f"the boot loader of a {board.title} has no command ums, as far as its recipe knows",
            hint="take an SD mux, or a recipe with board.ums: the command with U-Boot's number of the card",
        )
    drivers = f"""\
{_u_boot(board)}\
      USBStorageDriver:
        bindings:
          storage: usb
      UmsFlasher:
        command: {board.ums}
        write_timeout: 900
        disk_link: /dev/disk/by-path/{_NAME}
"""
    resource = "  ## The disk that appears while U-Boot offers the card; labgrid-suggest shows its ID_PATH then.\n"
    return CardAccess(
        "in the board, which offers it over USB", drivers,
        f"{resource}  usb:\n    cls: USBMassStorage\n    match:\n      ID_PATH: '{_NAME}'\n",
    )  # fmt: skip


def asked_of(name: str) -> str:
    """The question for the device through which this way writes the card; empty if there is none."""
    if name in _MUXES:
        return "Serial number of the SD mux (fsjoule exporter check shows it)"
    if name in {UMS, FASTBOOT}:
        return "ID_PATH of the board's USB device while its boot loader offers it (labgrid-suggest shows it)"
    return "The board's address" if name == _FASTBOOT_UDP else ""


def filled(resource: str, name: str, card: str) -> str:
    """The resource's lines with the board's name and the card's device: serial number, ID_PATH or network address."""
    return resource.replace(_BOARD, name).replace(_NAME, card)


def regular(prompt: str) -> str:
    """A regular expression for a boot loader's prompt."""
    return re.sub(r"([.^$*+?{}\[\]\\|()])", r"\\\1", prompt)


def _u_boot(board: BoardKind) -> str:
    return f"""\
      UBootDriver:
        prompt: '\\n{regular(board.prompt)}'
        login_timeout: 60
"""


def _tftp(board: BoardKind, card: str) -> CardAccess:
    drivers = f"""\
{_u_boot(board)}\
      TFTPProviderDriver: {{}}
      TftpFlasher:
        device: mmc {card.removeprefix("mmcblk")}  # as U-Boot counts: `mmc list`
"""
    resource = f"""\
  ## The folder of the TFTP server that is this board's, here and as the board asks for it.
  TFTPProvider:
    internal: /srv/tftp/{_BOARD}/
    external: {_BOARD}/
"""
    return CardAccess("in the board, whose U-Boot writes it", drivers, resource)


def _fastboot(board: BoardKind, line: str, resource: str) -> CardAccess:
    drivers = f"""\
{_u_boot(board)}\
      AndroidFastbootDriver: {{}}
      FastbootFlasher:
        command: fastboot {line}
"""
    return CardAccess("in the board, whose U-Boot writes it", drivers, resource)


@dataclass(frozen=True, slots=True)
class ShellConfig:
    """How programs are started on the board: lines of the environment file."""

    resources: str = ""
    drivers: str = ""


def shell(name: str, recipe: Recipe) -> ShellConfig:
    """The shell of this name. Raises ConfigError for an unknown one, and for ssh with a card that has no ssh server."""
    if name == CONSOLE:
        return ShellConfig()
    if name != SSH:
        raise ConfigError.unknown("shell", name, SHELLS)
    if lacking := lacks_ssh_server(recipe):
        raise ConfigError(f"{lacking}, over which its programs would be started", hint=ssh_advice(recipe))
    module = recipe.board.network if recipe.board else ""
    server = "" if recipe.userland.archive else f"      SshServer: {{driver: '{module}'}}\n"
    resources = """\
      # '': the address is learned after each login. Write it here if it never changes.
      NetworkService: {address: '', username: root}
"""
    return ShellConfig(resources, f"      SSHDriver: {{}}\n{server}")


def lacks_ssh_server(recipe: Recipe) -> str:
    """What is wrong with a card for ssh; empty if nothing, as far as the recipe tells."""
    userland = recipe.userland
    if userland.archive or SSH_SERVER in recipe.packages:
        return ""
    return f"the card of {recipe.file} has no ssh server"


def ssh_advice(recipe: Recipe) -> str:
    return (
        f'write a recipe with base = "{recipe.name}", more_packages = ["{SSH_SERVER}"] in [userland], '
        "and in [board] network: the module of the board's network (docs/boards/index.md)"
    )
