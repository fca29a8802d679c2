"""USB devices of this computer, from /sys: what they are, and the serial numbers by which an exporter finds them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

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
    return sorted(_devices(root / "sys" / "bus" / "usb" / "devices"), key=lambda device: device.bus_path)


def _devices(folder: Path) -> Iterator[UsbDevice]:
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
