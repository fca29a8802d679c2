"""Writes the card from U-Boot itself, which fetches the image in pieces over the network. No hardware but a cable."""

from __future__ import annotations

import re
import tempfile
import zlib
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import attr
from labgrid.driver import Driver
from labgrid.factory import target_factory
from labgrid.step import step

from fsjoule.errors import BoardError, LabError
from fsjoule.lab.flashers import FlashedBoard, FlasherProtocol, check_file_name
from fsjoule.lab.sparse_image import SECTOR_BYTES, mapped
from fsjoule.lab.translate import lab_errors, time_limit
from fsjoule.lab.u_boot import UBootConsole, restarted, stop_u_boot, without_power
from fsjoule.model import MIB

_ATTEMPTS: Final = 3
_FETCH_TIMEOUT_S: Final = 120
_STAGE_TIMEOUT_S: Final = 120.0
_CRC: Final = re.compile(r"==> ([0-9a-f]{8})")


@dataclass(frozen=True, slots=True)
class Piece:
    """Ranges of an image, first sector and number of sectors, that fit into the board's memory one behind the other."""

    ranges: tuple[tuple[int, int], ...]

    def content(self, image: Path) -> bytes:
        with image.open("rb") as file:
            parts: list[bytes] = []
            for first, count in self.ranges:
                file.seek(first * SECTOR_BYTES)
                parts.append(file.read(count * SECTOR_BYTES).ljust(count * SECTOR_BYTES, b"\0"))
        return b"".join(parts)


def pieces(image: Path, piece_bytes: int) -> tuple[Piece, ...]:
    """The mapped ranges of an image's block map, or all of it without one, in pieces of at most `piece_bytes`."""
    most = piece_bytes // SECTOR_BYTES
    found: list[list[tuple[int, int]]] = []
    room = 0
    for begin, count in mapped(image):
        first, end = begin, begin + count
        while first < end:
            if not room:
                found.append([])
                room = most
            taken = min(end - first, room)
            found[-1].append((first, taken))
            first += taken
            room -= taken
    return tuple(Piece(tuple(ranges)) for ranges in found)


@contextmanager
def staged(tftp: Any, name: str, content: bytes) -> Generator[str]:  # noqa: ANN401 - a TFTPProviderDriver
    """A file of this name and content at the TFTP server, by the path to fetch. Raises LabError."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / name
        file.write_bytes(content)
        doing = f"giving {name} to the TFTP server"
        with time_limit(_STAGE_TIMEOUT_S, doing), lab_errors(doing):
            path = tftp.stage(str(file))
        yield path


@target_factory.reg_driver
@attr.s(eq=False)
class TftpFlasher(Driver, FlasherProtocol):
    """Starts the board, stops U-Boot, and lets it fetch the image and write it to its card.

    Before a piece is fetched, U-Boot reads the card and tells its CRC: what is there already is neither fetched nor
    written. So a flash that was interrupted goes on where it stopped, and another kernel is a small flash.

    Args:
        device (str): U-Boot's name of the card: interface and number
        server (str): the TFTP server's IP address, if DHCP does not tell it
        piece_mib (int): size of a piece, which must fit into the memory behind U-Boot's kernel_addr_r
    """

    bindings = {"uboot": "UBootDriver", "tftp": "TFTPProviderDriver"}  # noqa: RUF012 - labgrid's way
    starts_board = True
    without_mux = "U-Boot writes the card, from a TFTP server"
    device: str = attr.ib(default="mmc 0", validator=attr.validators.matches_re(r"mmc \d+"))
    server: str = attr.ib(default="", validator=attr.validators.matches_re(r"[0-9.]*"))
    piece_mib: int = attr.ib(default=16, validator=[attr.validators.instance_of(int), attr.validators.gt(0)])

    @step(args=["image"])
    def flash(self, image: Path, board: FlashedBoard) -> None:
        """See FlasherProtocol. Raises LabError and BoardError, which say at which step it failed."""
        check_file_name(image)
        board.start()
        try:
            stop_u_boot(self.labgrid, self.uboot, board)
            board.recorder.clear()
            console = _Console(self.uboot, board)
            address = console.find_card(self.device, image.stat().st_size)
            with lab_errors("reaching the TFTP server"):
                self.labgrid.activate(self.tftp)
            self._connect(console)
            for number, piece in enumerate(pieces(image, self.piece_mib * MIB)):
                self._bring(console, image, piece, f"{image.stem}-{number}", address)
        except LabError as error:
            error.blame(restarted(board))
            error.blame(without_power(board))
            raise

    def _connect(self, console: _Console) -> None:
        command = "setenv autoload no; setenv netretry no; dhcp"
        console.run(command, "gets no address by DHCP", timeout_s=_FETCH_TIMEOUT_S)
        if self.server:
            console.run(f"setenv serverip {self.server}", "does not take the server's address")

    def _bring(self, console: _Console, image: Path, piece: Piece, name: str, address: int) -> None:
        content = piece.content(image)
        wanted = f"{zlib.crc32(content):08x}"
        self._move(console, "read", piece, address)
        if console.crc(address, len(content)) == wanted:
            return
        with staged(self.tftp, name, content) as path:
            self._fetch(console, path, address, len(content), wanted)
        self._move(console, "write", piece, address)

    def _fetch(self, console: _Console, path: str, address: int, size_bytes: int, wanted: str) -> None:
        found = ""
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                console.run(f"tftpboot {address:x} {path}", f"cannot fetch {path}", timeout_s=_FETCH_TIMEOUT_S)
            except BoardError:
                if attempt == _ATTEMPTS:
                    raise
                continue
            found = console.crc(address, size_bytes)
            if found == wanted:
                return
        raise LabError(
            f"{path} arrived damaged {_ATTEMPTS} times: its CRC is {wanted}, on the board {found}", transient=True
        )

    def _move(self, console: _Console, verb: str, piece: Piece, address: int) -> None:
        interface = self.device.split()[0]
        for first, count in piece.ranges:
            console.run(f"{interface} {verb} {address:x} {first:x} {count:x}", f"cannot {verb} its card")
            address += count * SECTOR_BYTES


class _Console(UBootConsole):
    """Commands at U-Boot's prompt."""

    def crc(self, address: int, size_bytes: int) -> str:
        lines = self.run(f"crc32 {address:x} {size_bytes:x}", "cannot tell a CRC")
        found = _CRC.search(" ".join(lines))
        if found is None:
            raise self.board.error(f"cannot tell a CRC: {lines[-1]}")
        return found[1]
