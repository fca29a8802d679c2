"""Writes the card from U-Boot itself, which fetches the image in pieces over the network. No hardware but a cable."""

from __future__ import annotations

import shlex
import tempfile
import zlib
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import attr
from labgrid.driver import Driver
from labgrid.factory import target_factory
from labgrid.step import step

from fsjoule.errors import BoardError, LabError
from fsjoule.host import process
from fsjoule.lab.disks import check_words
from fsjoule.lab.flashers import FlashedBoard, FlasherProtocol, check_file_name, check_unpacked
from fsjoule.lab.sparse_image import pieces
from fsjoule.lab.translate import lab_errors, time_limit
from fsjoule.lab.u_boot import UBootConsole, restarted, stop_u_boot, without_power
from fsjoule.model import MIB

_ATTEMPTS: Final = 3
_FETCH_TIMEOUT_S: Final = 120
_STAGE_TIMEOUT_S: Final = 120.0


@contextmanager
def staged(tftp: Any, name: str, content: bytes) -> Generator[str]:  # noqa: ANN401 - a TFTPProviderDriver
    """A file of this name and content at the TFTP server, by the path to fetch. It goes afterwards. Raises LabError."""
    check_words(tftp.provider)
    with tempfile.TemporaryDirectory(prefix="fsjoule-") as folder:
        file = Path(folder) / name
        # labgrid copies what the link leads to: equal content for another board gets another file of its cache.
        unique = file.with_name(Path(folder).name)
        unique.write_bytes(content)
        file.symlink_to(unique)
        doing = f"giving {name} to the TFTP server"
        try:
            with time_limit(_STAGE_TIMEOUT_S, doing), lab_errors(doing):
                path = tftp.stage(str(file))
            yield path
        finally:
            # With its copy in labgrid's cache. Without contact it stays there: what has failed is more important, and
            # the next flash says so, too.
            link = shlex.quote(f"{tftp.provider.internal}/{name}")
            script = f'file=$(readlink {link}) && rm -f {link} "$file"'
            with suppress(LabError), lab_errors(f"removing {name} from the TFTP server"):
                command = tftp.provider.wrap_command(["sh", "-c", script])
                process.run(command, timeout_s=_STAGE_TIMEOUT_S, check=False)


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
        check_unpacked(image)
        board.start()
        try:
            stop_u_boot(self.labgrid, self.uboot, board)
            board.recorder.clear()
            console = UBootConsole(self.uboot, board)
            address = console.find_card(self.device, image.stat().st_size)
            with lab_errors("reaching the TFTP server"):
                self.labgrid.activate(self.tftp)
            command = "setenv autoload no; setenv netretry no; dhcp"
            console.run(command, "gets no address by DHCP", timeout_s=_FETCH_TIMEOUT_S)
            if self.server:
                console.run(f"setenv serverip {self.server}", "does not take the server's address")
            for number, piece in enumerate(pieces(image, self.piece_mib * MIB)):
                content = piece.content(image)
                if console.holds(self.device, piece.ranges, content, address):
                    continue
                with staged(self.tftp, f"{image.stem}-{number}", content) as path:
                    self._fetch(console, path, address, len(content), f"{zlib.crc32(content):08x}")
                console.move(self.device, "write", piece.ranges, address)
        except LabError as error:
            error.blame(restarted(board))
            error.blame(without_power(board))
            raise

    def _fetch(self, console: UBootConsole, path: str, address: int, size_bytes: int, wanted: str) -> None:
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
