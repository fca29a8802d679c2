"""Which disk of an exporter may be written; the disks of this machine are looked at for real."""

from __future__ import annotations

import gzip
import re
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from fsjoule.errors import LabError
from fsjoule.lab import disk_program
from fsjoule.lab.disks import BoardsDisk, Disk, check_words, look
from fsjoule.lab.flashers import check_unpacked
from fsjoule.model import MIB

READER = Disk(
    "/dev/sdb", "disk", 1024 * MIB, "usb", "000000001234", ("/dev/disk/by-path/pci-usb-1",), (), claimed=False
)
REAL = BoardsDisk(simulated=False, serial="000000001234", link="/dev/disk/by-path/pci-usb-1")
CARD = replace(READER, path="/dev/shm/1/card", kind="file", bus="", serial="", links=(), backing="/s/labs/v/card.img")


def objection(boards: BoardsDisk, disk: Disk, image_bytes: int) -> str:
    return disk_program.objection(asdict(disk), asdict(boards), image_bytes)


@dataclass(frozen=True)
class _Resource:
    """A labgrid resource of this computer."""

    path: str

    def wrap_command(self, command: list[str]) -> list[str]:
        return command


def test_the_boards_own_disk_may_be_written() -> None:
    assert objection(REAL, READER, 1024 * MIB) == ""
    assert objection(replace(REAL, offered_bytes=1024 * MIB, named=True), READER, MIB) == ""
    assert objection(BoardsDisk(simulated=True), CARD, MIB) == ""


def test_a_simulated_boards_card_is_a_labs() -> None:
    """Not a USB disk that is plugged into the computer, and not another file."""
    simulated = BoardsDisk(simulated=True)
    assert objection(simulated, READER, MIB) == "is not the card of a virtual lab, and the board is simulated"
    for path in ("/home/ada/disk.img", "/home/ada/card.img", ""):
        assert objection(simulated, replace(CARD, backing=path), MIB) == "is not a disk"
    assert objection(simulated, replace(CARD, backing="/s/labs/v-1/board-12/card.img"), MIB) == ""


def test_a_disk_that_only_its_size_names_is_told() -> None:
    anybodys = BoardsDisk(simulated=False)
    assert objection(anybodys, READER, MIB) == ""
    assert anybodys.unnamed(READER).endswith("passes for it: name it by disk_link: /dev/disk/by-path/pci-usb-1")
    assert [each.unnamed(READER) for each in (REAL, BoardsDisk(simulated=True))] == ["", ""]


def test_what_a_board_offers_has_to_be_named() -> None:
    """Another board's stick of the same size would be written; the message has what to copy."""
    offered = BoardsDisk(simulated=False, offered_bytes=READER.size_bytes, named=True)
    assert "it has the serial number 000000001234 and the names /dev/disk/by-path/" in objection(offered, READER, MIB)
    assert objection(replace(offered, serial=READER.serial), READER, MIB) == ""
    assert objection(replace(offered, link=READER.links[0]), READER, MIB) == ""


@pytest.mark.parametrize(
    ("disk", "says"),
    [
        (replace(READER, kind="missing"), "does not exist"),
        (replace(READER, kind="file"), "is not a disk"),
        (replace(READER, kind="partition"), "is a partition, no disk"),
        (replace(READER, uses=("sdb1 is mounted on /boot", "sdb2 is swap space")), "sdb1 is mounted on /boot, sdb2 is"),
        (replace(READER, size_bytes=0), "has no medium"),
        (replace(READER, claimed=True), "another program has it for itself"),
        (replace(READER, denied="Permission denied"), "cannot be opened: Permission denied"),
        (replace(READER, bus="other"), "is not a USB disk"),
        (CARD, "is not a disk"),
        (replace(READER, serial=""), r"has the serial number \(none\), not 000000001234"),
        (replace(READER, links=("/dev/disk/by-path/pci-usb-2",)), "is not /dev/disk/by-path/pci-usb-1"),
        (replace(READER, size_bytes=64 * MIB), "has 67108864 bytes, but the image has 134217728"),
        (replace(READER, size_bytes=2**42), "more than the largest card"),
    ],
)
def test_another_disk_is_refused_with_the_reason(disk: Disk, says: str) -> None:
    assert re.search(says, objection(REAL, disk, 128 * MIB))


def test_a_disk_of_another_size_than_the_board_tells_is_not_the_boards() -> None:
    boards = replace(REAL, offered_bytes=1023 * MIB)
    assert objection(boards, READER, MIB) == "has 1073741824 bytes, but the board offers 1072693248: it is another disk"


def test_no_disk_in_use_on_this_machine_passes() -> None:
    """Not even for a simulated board, which writes a file."""
    mounted = {words[2] for line in Path("/proc/self/mountinfo").read_text().splitlines() if (words := line.split())}
    disks = [each.name for each in Path("/sys/class/block").iterdir() if (each / "dev").read_text().strip() in mounted]
    for name in disks:
        disk = look(_Resource(f"/dev/{name}"))
        assert objection(BoardsDisk(simulated=True), disk, 0), disk


def test_a_file_and_nothing_are_no_disks(tmp_path: Path) -> None:
    card = tmp_path / "card.img"
    with pytest.raises(LabError, match=r"card.img does not exist; nothing was written") as caught:
        BoardsDisk(simulated=True).check(_Resource(str(card)), 1)
    assert caught.value.transient
    card.write_bytes(b"x")
    with pytest.raises(LabError, match=r"card.img is not a disk; nothing was written") as caught:
        BoardsDisk(simulated=True).check(_Resource(str(card)), 1)
    assert not caught.value.transient


@pytest.mark.parametrize("packed", [gzip.compress(b"card", mtime=0), b"PK\x03\x04 zip", b"\x3a\xff\x26\xed sparse"])
def test_flashers_that_do_not_unpack_refuse_what_is_packed(tmp_path: Path, packed: bytes) -> None:
    image = tmp_path / "card.img"
    image.write_bytes(b"\xfa\xb8 boot code")
    check_unpacked(image)
    image.write_bytes(packed)
    with pytest.raises(LabError, match=r"card.img is packed"):
        check_unpacked(image)


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("control_path", "/dev/sg0; id >/tmp/root"),
        ("path", "/dev/sdb\n"),
        ("control_serial", "$(id)"),
        ("host", "-oProxyCommand=id"),
        ("internal", "/srv/tftp/$(id)"),
        ("external", "x; mmc erase 0 1000;"),
    ],
)
def test_an_exporters_words_that_a_shell_would_run_are_refused(name: str, word: str) -> None:
    plain = {"host": "lab-pc", "path": "/dev/sdb", "control_path": "/dev/usb-sd-mux/id-00048.00636", "address": None}
    check_words(SimpleNamespace(**plain))
    with pytest.raises(LabError, match=f"has the {name} .*no command is given that"):
        check_words(SimpleNamespace(**plain | {name: word}))
