"""The computer beside the board: whether an exporter with its devices can run there, and which devices it has."""

from __future__ import annotations

import grp
import os
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fsjoule.host.extras import how_to_install
from fsjoule.host.setup.needs import needed
from fsjoule.lab.boards.files import TO_CHANGE, Wired
from fsjoule.meter.links.finder import find, serial_ports

_EXTRA: Final = how_to_install("exporter")
# Program of Python's packages, what it is for, how to get it.
_PROGRAMS: Final = (
    ("labgrid-exporter", "exports the devices", _EXTRA),
    ("usbsdmux", "switches a USB-SD-Mux", _EXTRA),
)
_SETUP: Final = "fsjoule setup --for exporter"
# Folders where distributions keep daemons, which are not on every user's PATH.
_DAEMONS: Final = ("/usr/local/sbin", "/usr/sbin", "/sbin")
_GROUPS: Final = {"dialout": "serial ports", "plugdev": "a USB-SD-Mux", "disk": "cards in the mux's reader"}
_RULES: Final = ("etc/udev/rules.d", "usr/local/lib/udev/rules.d", "usr/lib/udev/rules.d", "lib/udev/rules.d")
_RULE: Final = "usb-sd-mux"
_MUX: Final = "usb-sd-mux"  # the product's name begins so (rules of usbsdmux)
# Vendor and product, as labgrid's USBSDMuxDevice, USBSDWireDevice and USBSDWire3Device have them.
_KINDS: Final = {
    ("0424", "4041"): _MUX,
    ("04e8", "6001"): "sdwire",
    ("0bda", "0316"): "sdwire3",
    ("1915", "c00a"): "ppk2",
}
_ROOT_HUB: Final = "1d6b"


@dataclass(frozen=True, slots=True)
class ExporterNeed:
    """Something that an exporter needs: whether it is there, and what to do if not."""

    name: str
    there: bool
    remark: str


@dataclass(frozen=True, slots=True)
class Computer:
    """Findings on this computer. `meters` are serial ports on which a meter was heard."""

    parts: tuple[ExporterNeed, ...]
    devices: tuple[UsbDevice, ...]
    meters: tuple[str, ...]

    @property
    def missing(self) -> list[ExporterNeed]:
        return [part for part in self.parts if not part.there]

    @property
    def consoles(self) -> list[UsbDevice]:
        """Serial adapters that are no meter's."""
        return [device for device in self.devices if device.kind == "serial" and not self._is_meter(device)]

    def wired(self) -> Wired:
        """The serial numbers of those devices of which there is only one; `CHANGE-ME` for others."""
        meters = [device for device in self.devices if self._is_meter(device)]
        muxes = [device for device in self.devices if device.is_mux]
        return Wired(console=_only(self.consoles), meter=_only(meters), mux=_only(muxes))

    def use_of(self, device: UsbDevice) -> str:
        return "meter" if self._is_meter(device) else device.kind

    def _is_meter(self, device: UsbDevice) -> bool:
        return any(tty in self.meters for tty in device.ttys)


def heard_meters() -> tuple[str, ...]:
    """Serial ports, without /dev/, on which a meter speaks. Nothing is sent."""
    return tuple(Path(found.address).name for found in find(serial_ports()) if found.info is not None)


def check_computer(
    root: Path = Path("/"),
    *,
    listen: Callable[[], Collection[str]] = heard_meters,
    environment: Mapping[str, str] = os.environ,
) -> Computer:
    """Look for programs, udev's rules, the user's groups and USB devices. Listens for meters for two seconds."""
    devices = usb_devices(root)
    meters = tuple(listen()) if any(device.ttys for device in devices) else ()
    return Computer((*_programs(environment), _rules(root), *_groups(), *_devices(devices)), tuple(devices), meters)


def _programs(environment: Mapping[str, str]) -> Iterator[ExporterNeed]:
    folders = [str(Path(sys.executable).parent), environment.get("PATH", os.defpath), *_DAEMONS]
    packaged = [(name, row.why, _SETUP) for row in needed("exporter") if not row.optional for name in row.programs]
    for name, purpose, install in (*_PROGRAMS, *packaged):
        found = shutil.which(name, path=os.pathsep.join(folders))
        yield ExporterNeed(name, found is not None, found or f"{purpose}: {install}")


def _rules(root: Path) -> ExporterNeed:
    files = [file for folder in _RULES for file in sorted((root / folder).glob("*.rules"))]
    found = next((file for file in files if _RULE in file.read_text(errors="replace")), None)
    hint = "without them only root may switch it: apt-get install usbsdmux"
    return ExporterNeed("udev's rules for a USB-SD-Mux", found is not None, str(found) if found else hint)


def _groups() -> Iterator[ExporterNeed]:
    if os.geteuid() == 0:
        yield ExporterNeed("groups", there=True, remark="you are root, who needs none")
        return
    own = {*os.getgroups(), os.getegid()}
    for name, purpose in _GROUPS.items():
        try:
            member = grp.getgrnam(name).gr_gid in own
        except KeyError:
            member = False
        yield ExporterNeed(
            f"group {name}", member, purpose if member else f"{purpose}: sudo usermod -aG {name} $USER, then log in"
        )


def _devices(devices: Collection[UsbDevice]) -> Iterator[ExporterNeed]:
    serial = [device for device in devices if device.kind == "serial"]
    yield ExporterNeed(
        "a USB serial adapter",
        bool(serial),
        ", ".join(tty for device in serial for tty in device.ttys) or "the console's and the meter's: plug them in",
    )
    card = [device for device in devices if device.kind not in ("", "serial")]
    yield ExporterNeed(
        "an SD mux", bool(card), ", ".join(device.kind for device in card) or "plug it in, if the board has one"
    )
    for device in card:
        if device.is_mux and not device.sgs:
            yield ExporterNeed(
                f"SCSI device of the mux {device.serial}", there=False, remark="load the kernel's module: modprobe sg"
            )
    for number, times in Counter(device.serial for device in serial).items():
        if not number or times > 1:
            what = (
                f"{times} adapters with the serial number {number!r}" if number else "an adapter without serial number"
            )
            yield ExporterNeed(
                what, there=False, remark="match it by its socket instead (ID_PATH, see labgrid-suggest)"
            )


def _only(devices: Collection[UsbDevice]) -> str:
    serials = [device.serial for device in devices]
    return serials[0] if len(serials) == 1 and serials[0] else TO_CHANGE


@dataclass(frozen=True, slots=True)
class UsbDevice:
    """One device. `ttys` and `sgs` are its serial ports and SCSI devices, without /dev/."""

    bus_path: str
    vendor: str
    product: str
    serial: str
    name: str
    ttys: tuple[str, ...] = ()
    sgs: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """Its use to fsjoule: usb-sd-mux, sdwire, sdwire3, ppk2, serial, or nothing."""
        if self.name.rpartition(", ")[2].startswith(_MUX):
            return _MUX
        return _KINDS.get((self.vendor, self.product)) or ("serial" if self.ttys else "")

    @property
    def is_mux(self) -> bool:
        return self.kind == _MUX


def usb_devices(root: Path = Path("/")) -> list[UsbDevice]:
    """All USB devices except the computer's own hubs, in the order of their sockets."""
    return sorted(_usb_devices(root / "sys" / "bus" / "usb" / "devices"), key=lambda device: device.bus_path)


def _usb_devices(folder: Path) -> Iterator[UsbDevice]:
    for link in folder.glob("*") if folder.is_dir() else ():
        vendor = _read(link / "idVendor")
        if not vendor or vendor == _ROOT_HUB:
            continue
        place = link.resolve()
        # Its own interfaces; further devices, behind a hub, are folders beside them.
        interfaces = sorted(place.glob(f"{link.name}:*"))
        words = [_read(link / "manufacturer"), _read(link / "product")]
        yield UsbDevice(
            link.name,
            vendor,
            _read(link / "idProduct"),
            _read(link / "serial"),
            ", ".join(filter(None, words)),
            tuple(sorted(tty.name for each in interfaces for tty in each.rglob("tty/tty*"))),
            tuple(sorted(sg.name for each in interfaces for sg in each.rglob("scsi_generic/sg*"))),
        )


def _read(file: Path) -> str:
    try:
        return file.read_text(errors="replace").strip()
    except OSError:
        return ""
