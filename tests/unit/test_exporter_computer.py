"""`fsjoule exporter check`: what an exporter lacks on a computer, and the file for what is there."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from command_line import command_line

from fsjoule.lab.boards.computer import Computer, check_computer, usb_devices
from fsjoule.lab.boards.files import TO_CHANGE, exporter_text

BRIDGE = {"idVendor": "0403", "idProduct": "6001", "manufacturer": "FTDI", "product": "FT232R USB UART"}
MUX = {"idVendor": "0424", "idProduct": "4041", "manufacturer": "Linux Automation GmbH", "product": "usb-sd-mux_rev3"}


def plug_in(root: Path, where: str, values: dict[str, str], serial: str, *parts: str) -> None:
    """A USB device as the kernel shows it: a folder below its hub's, and a link to it among all devices."""
    place = root / "sys" / "devices" / "pci0" / "usb1" / where
    place.mkdir(parents=True)
    for name, value in {**values, "serial": serial}.items():
        (place / name).write_text(f"{value}\n")
    for part in parts:
        (place / part.format(where)).mkdir(parents=True)
    links = root / "sys" / "bus" / "usb" / "devices"
    links.mkdir(parents=True, exist_ok=True)
    (links / where).symlink_to(place)


@pytest.fixture
def bench(tmp_path: Path) -> Path:
    """A computer with a hub, a console's adapter, a meter's adapter and a mux behind it."""
    plug_in(tmp_path, "1-1", {"idVendor": "05e3", "idProduct": "0608", "product": "USB2.0 Hub"}, "")
    plug_in(tmp_path, "1-1.1", BRIDGE, "A50285BI", "{0}:1.0/ttyUSB0/tty/ttyUSB0")
    plug_in(tmp_path, "1-1.2", BRIDGE, "FSJ0001", "{0}:1.0/ttyUSB1/tty/ttyUSB1")
    plug_in(tmp_path, "1-1.3", MUX, "000000001234", "{0}:1.0/host6/target6:0:0/6:0:0:0/scsi_generic/sg1")
    plug_in(tmp_path, "usb1", {"idVendor": "1d6b", "idProduct": "0002", "product": "xHCI Host Controller"}, "0000:00")
    (tmp_path / "lib" / "udev" / "rules.d").mkdir(parents=True)
    (tmp_path / "lib" / "udev" / "rules.d" / "60-usbsdmux.rules").write_text('ATTRS{product}=="usb-sd-mux*", GROUP="x"')
    return tmp_path


def checked(root: Path, *meters: str) -> Computer:
    return check_computer(root, listen=lambda: meters)


def test_devices_are_told_apart_by_what_they_are(bench: Path) -> None:
    devices = usb_devices(bench)
    assert [(each.bus_path, each.kind, each.ttys, each.sgs) for each in devices] == [
        ("1-1", "", (), ()),
        ("1-1.1", "serial", ("ttyUSB0",), ()),
        ("1-1.2", "serial", ("ttyUSB1",), ()),
        ("1-1.3", "usb-sd-mux", (), ("sg1",)),
    ]
    computer = checked(bench, "ttyUSB1")
    assert [computer.use_of(each) for each in computer.devices] == ["", "serial", "meter", "usb-sd-mux"]
    assert {part.name: part.there for part in computer.parts}["udev's rules for a USB-SD-Mux"]


def test_the_exporters_file_has_the_devices_that_were_found(bench: Path) -> None:
    text = exporter_text("bone7", "the board bone7", 1500000, checked(bench, "ttyUSB1").wired())
    group = yaml.safe_load(text)["bone7"]
    assert group["default"] == {"cls": "USBSerialPort", "match": {"ID_SERIAL_SHORT": "A50285BI"}, "speed": 1500000}
    assert group["meter"]["match"] == {"ID_SERIAL_SHORT": "FSJ0001"}
    assert group["USBSDMuxDevice"]["match"] == {"ID_SERIAL_SHORT": "000000001234"}
    assert group["NetworkPowerPort"]["host"] == TO_CHANGE


def test_what_is_not_clear_is_left_to_the_user(bench: Path) -> None:
    """Without a meter that speaks there are two adapters which may be the console's."""
    wired = checked(bench).wired()
    assert (wired.console, wired.meter, wired.mux) == (TO_CHANGE, TO_CHANGE, "000000001234")


def test_a_mux_without_its_module_and_equal_serial_numbers_are_named(bench: Path) -> None:
    plug_in(bench, "1-2", MUX, "000000009999", "{0}:1.0")
    plug_in(bench, "1-3", BRIDGE, "A50285BI", "{0}:1.0/ttyUSB2/tty/ttyUSB2")
    plug_in(bench, "1-4", {**BRIDGE, "idVendor": "1a86"}, "", "{0}:1.0/ttyUSB3/tty/ttyUSB3")
    missing = {part.name: part.remark for part in checked(bench).missing}
    assert missing["SCSI device of the mux 000000009999"] == "load the kernel's module: modprobe sg"
    assert "ID_PATH" in missing["2 adapters with the serial number 'A50285BI'"]
    assert "an adapter without serial number" in missing


def test_a_computer_with_nothing_says_so_and_listens_nowhere(tmp_path: Path) -> None:
    def never() -> Any:
        raise AssertionError

    computer = check_computer(tmp_path, listen=never, environment={"PATH": str(tmp_path)})
    assert computer.devices == ()
    missing = {part.name: part.remark for part in computer.missing}
    assert "apt-get install usbsdmux" in missing["udev's rules for a USB-SD-Mux"]
    assert "the console's and the meter's" in missing["a USB serial adapter"]
    assert "an SD mux" in missing
    assert "usbsdmux" in missing or (Path(sys.executable).parent / "usbsdmux").exists()


def test_the_command_says_what_is_missing_and_writes_only_a_new_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    run = command_line(monkeypatch, capfd)
    told = run("exporter", "check", "--json").document
    lacking = [part["name"] for part in told["parts"] if not part["there"]]
    file = tmp_path / "exporter.yaml"
    done = run("exporter", "check", "--write", file, "--name", "bone7", "--speed", "1500000")
    assert done.code == (4 if lacking else 0), done.err
    assert all(name in done.out for name in lacking)
    assert yaml.safe_load(file.read_text())["bone7"]["default"]["speed"] == 1500000
    again = run("exporter", "check", "--write", file)
    assert again.code == 2
    assert "already there" in again.err
