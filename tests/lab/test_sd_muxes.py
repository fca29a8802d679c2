"""The SD muxes that labgrid has drivers for, each with a stand-in of its tool in front of the emulated mux."""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Generator
from pathlib import Path

import pytest
from lab_board import strategy_of

from fsjoule.host import process
from fsjoule.lab.flashers import NamedCard
from fsjoule.model import MIB, ImageFacts
from fsjoule.virtual.board.config import BoardReady
from fsjoule.virtual.lab import lab
from fsjoule.virtual.lab.files import LabPaths
from fsjoule.virtual.lab.services import beside_python

ENVIRONMENT = Path(__file__).parents[2] / "env" / "virtual.yaml"
NAME = "virtual"
SERIAL = "sdwire_11"
# The tools' own arguments: sd-mux-ctrl --dut -e SERIAL, sdwire switch -s SERIAL ts.
TOOL = """\
#!/bin/sh
echo "$(basename "$0") $*" >>{log}
case " $* " in
*" list "*) echo "{serial} [SDWire3::Badgerd]" ;;
*" --dut "*|*" dut "*) exec {python} -m fsjoule.virtual.lab.usbsdmux {control} dut ;;
*" --ts "*|*" ts "*) exec {python} -m fsjoule.virtual.lab.usbsdmux {control} host ;;
*) exit 2 ;;
esac
"""
RESOURCE = """\
  {name}:
    cls: {cls}
    host: 127.0.0.1
    busnum: 0
    devnum: 0
    vendor_id: 0
    model_id: 0
    path: {path}
    control_serial: {serial}
"""
_START_TIMEOUT_S = 60.0


@pytest.fixture(scope="module")
def place(module_state: Path) -> Generator[str]:
    """The virtual lab's place, with two more muxes of a second exporter; all of them move the same card."""
    handle = lab.up(NAME, owner_pid=os.getpid())
    ready = BoardReady.read(LabPaths.of(NAME).board_ready)
    assert ready is not None
    muxes = {"wire": "NetworkUSBSDWireDevice", "wire3": "NetworkUSBSDWire3Device"}
    described = (
        RESOURCE.format(name=name, cls=cls, path=ready.card_device, serial=SERIAL) for name, cls in muxes.items()
    )
    file, log = module_state / "exporter.yaml", module_state / "exporter.log"
    file.write_text("virtual:\n" + "".join(described))
    with pytest.MonkeyPatch.context() as monkeypatch:
        for name, value in handle.environment.items():
            monkeypatch.setenv(name, value)
        command = [beside_python("labgrid-exporter"), "--name", "muxes", "--hostname", "127.0.0.1", file]
        client = [beside_python("labgrid-client"), "-p", handle.place, "add-match", f"muxes/{handle.place}/*"]
        process.run(client, timeout_s=_START_TIMEOUT_S)
        exporter = process.start(command, log=log)
        deadline = time.monotonic() + _START_TIMEOUT_S
        while "Exporter ready" not in log.read_text() and time.monotonic() < deadline:
            time.sleep(0.1)
        yield handle.place
        process.stop(exporter, timeout_s=30)
    lab.down(NAME)


@pytest.mark.parametrize(
    ("driver", "storage", "calls"),
    [
        ("USBSDWireDriver", "wire", [f"sd-mux-ctrl --ts -e {SERIAL}", f"sd-mux-ctrl --dut -e {SERIAL}"]),
        (
            "USBSDWire3Driver",
            "wire3",
            ["sdwire list", f"sdwire switch -s {SERIAL} ts", f"sdwire switch -s {SERIAL} dut"],
        ),
    ],
)
def test_a_card_in_another_mux_is_written_and_is_the_boards_again(
    place: str, tmp_path: Path, driver: str, storage: str, calls: list[str]
) -> None:
    paths = LabPaths.of(NAME)
    ready = BoardReady.read(paths.board_ready)
    assert ready is not None
    log = tmp_path / "calls"
    words = {"log": log, "serial": SERIAL, "python": sys.executable, "control": ready.mux_control}
    program = paths.bin / calls[0].split()[0]
    program.write_text(TOOL.format_map({name: shlex.quote(str(value)) for name, value in words.items()}))
    program.chmod(0o755)
    text = ENVIRONMENT.read_text()
    for old, new in (
        ("USBSDMuxDriver: {}", f"{driver}: {{}}"),
        ("USBStorageDriver: {}", f"USBStorageDriver:\n        bindings:\n          storage: {storage}"),
    ):
        assert text.count(old) == 1
        text = text.replace(old, new)
    file = tmp_path / "env.yaml"
    file.write_text(text)
    image = tmp_path / "card.img"
    image.write_bytes(os.urandom(MIB))
    with strategy_of(file, place) as strategy:
        strategy.card = NamedCard(image, ImageFacts("", "card", "", "card", {}, {}))
        strategy.transition("flashed")
        strategy.transition("off")
    with paths.card.open("rb") as card:
        assert card.read(MIB) == image.read_bytes()
    assert log.read_text().splitlines() == calls
    status = lab.status(NAME).board
    assert status is not None
    assert status["card"]["position"] == "dut"
