"""Writes the card by fastboot: U-Boot takes the image over USB or a network, and writes it. No SD mux is needed."""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import attr
from labgrid.driver import Driver
from labgrid.factory import target_factory
from labgrid.step import step
from labgrid.util import gen_marker

from fsjoule.errors import LabError, also
from fsjoule.lab.cardwriter import end_writers, on_exporter, run_writer
from fsjoule.lab.disks import check_words
from fsjoule.lab.flashers import FlashedBoard, FlasherProtocol, check_file_name, check_unpacked
from fsjoule.lab.sparse_image import SECTOR_BYTES, Piece, pieces, write_sparse
from fsjoule.lab.translate import lab_errors, time_limit
from fsjoule.lab.u_boot import UBootConsole, restarted, stop_u_boot, without_power
from fsjoule.model import MIB

_LOOK_S: Final = 1.0
_MARK_TIMEOUT_S: Final = 30.0
_COPY_TIMEOUT_S: Final = 600.0
# Over USB U-Boot says nothing when it listens.
_SILENT_S: Final = 3.0
_LISTENS: Final = r"Listening for fastboot command on (?:tcp )?([0-9.]+)"
_HINT: Final = "build it with CONFIG_USB_FUNCTION_FASTBOOT or CONFIG_UDP_FUNCTION_FASTBOOT, or take another flasher"
_REFUSED: Final = re.compile(r"FAILED \((?:remote: )?'?(.*?)'?\)\s*$", re.MULTILINE)
# A name for the whole card, which U-Boot looks up in its environment before it looks for a partition.
_CARD: Final = "fsjoule"
_ADDRESS: Final = 'setenv autoload no; setenv netretry no; test -n "${ipaddr}" || dhcp'
_DHCP_TIMEOUT_S: Final = 120


@target_factory.reg_driver
@attr.s(eq=False)
class FastbootFlasher(Driver, FlasherProtocol):
    """Starts the board, stops U-Boot, and sends it the mapped blocks of the image by the program `fastboot`.

    Its drivers are activated one by one: labgrid would wait for the prompt of a board that is off, and for a USB device
    that is there only while U-Boot listens. `fastboot` cuts the image into parts that fit into U-Boot's memory; where
    U-Boot promises more memory than it has, AndroidFastbootDriver's `sparse_size` limits them.

    Args:
        command (str): U-Boot's command: `fastboot usb 0`, `fastboot udp`, `fastboot tcp`
        partition (str): U-Boot's name of the whole card; empty: one that is defined for the flash
        device (str): the card as U-Boot counts (`mmc 0`); with it U-Boot reads the card before and after, and only what
            differs is sent
        piece_mib (int): how much it reads at once, into the memory behind its kernel_addr_r
        device_timeout (int): seconds until U-Boot answers
        write_timeout (int): seconds that sending and writing may take
    """

    bindings = {"uboot": "UBootDriver", "fastboot": "AndroidFastbootDriver"}  # noqa: RUF012 - labgrid's way
    starts_board = True
    without_mux = "U-Boot writes the card, which it gets by fastboot"
    command: str = attr.ib(
        default="fastboot usb 0", validator=attr.validators.matches_re(r"fastboot (usb \d+|udp|tcp)")
    )
    partition: str = attr.ib(default="", validator=attr.validators.matches_re(r"[\w.-]*"))
    device: str = attr.ib(default="", validator=attr.validators.matches_re(r"(mmc \d+)?"))
    piece_mib: int = attr.ib(default=16, validator=[attr.validators.instance_of(int), attr.validators.gt(0)])
    device_timeout: int = attr.ib(default=30, validator=attr.validators.instance_of(int))
    write_timeout: int = attr.ib(default=900, validator=attr.validators.instance_of(int))

    @step(args=["image"])
    def flash(self, image: Path, board: FlashedBoard) -> None:
        """See FlasherProtocol. Raises LabError and BoardError, which say at which step it failed."""
        check_file_name(image)
        check_unpacked(image)
        board.start()
        console = UBootConsole(self.uboot, board)
        try:
            stop_u_boot(self.labgrid, self.uboot, board)
            lacking = self._lacking(console, image, pieces(image, self.piece_mib * MIB))
            if lacking:
                self._bring(console, image, lacking)
            if self.device and (wrong := self._lacking(console, image, lacking)):
                raise board.error(
                    f"has another content on its card than was sent, in {len(wrong)} of {len(lacking)} pieces"
                )
        except LabError as error:
            error.blame(restarted(board))
            error.blame(without_power(board))
            raise

    def _lacking(self, console: UBootConsole, image: Path, parts: Sequence[Piece]) -> list[Piece]:
        """The pieces that the card does not hold; all of them if U-Boot is not told its `device`. Raises LabError."""
        if not self.device or not parts:
            return list(parts)
        address = console.find_card(self.device, image.stat().st_size)
        return [each for each in parts if not console.holds(self.device, each.ranges, each.content(image), address)]

    def _bring(self, console: UBootConsole, image: Path, parts: Sequence[Piece]) -> None:
        """Have U-Boot listen, send it these pieces, and come back to its prompt. Raises LabError."""
        if not self.partition:
            sectors = image.stat().st_size // SECTOR_BYTES
            console.run(f"setenv fastboot_raw_partition_{_CARD} 0x0 {sectors:#x}", "does not take a name for its card")
        mark = gen_marker()
        # In the board's memory only. U-Boot answers `getvar NAME` with its variable `fastboot.NAME`.
        console.run(f"setenv fastboot.{_CARD} {mark}", "takes no mark, to be known by fastboot")
        if "usb" not in self.command:
            console.run(_ADDRESS, "gets no address by DHCP", timeout_s=_DHCP_TIMEOUT_S)
        console.offer(self.command, _LISTENS, _HINT, silent_s=_SILENT_S if "usb" in self.command else 0.0)
        try:
            self._await_device(console)
            self._check_same_board(console, mark)
            with tempfile.TemporaryDirectory(prefix="fsjoule-") as folder:
                sparse = Path(folder) / f"{image.stem}.simg"
                write_sparse(image, sparse, [each for part in parts for each in part.ranges])
                self._send(sparse, console)
        except LabError as error:
            with also(error, "looking for the cause"):
                error.blame(console.causes(self.command))
            raise
        console.end(self.command)

    def _await_device(self, console: UBootConsole) -> None:
        """Wait until U-Boot answers `fastboot`. Raises LabError."""
        deadline = time.monotonic() + self.device_timeout
        doing = f"waiting for U-Boot's answer to fastboot ({self.command})"
        while True:
            left_s = deadline - time.monotonic()
            try:
                with time_limit(max(left_s, _LOOK_S), doing), lab_errors(doing):
                    check_words(self._resource)
                    self.labgrid.activate(self.fastboot)
                    # A program that an interrupted flash has left would speak between us and the board.
                    end_writers(self._resource, self._address)
                    self.fastboot.getvar("max-download-size")
            except LabError as error:
                if causes := console.causes(self.command):
                    error.blame(causes)
                    raise
                if not error.transient:
                    raise
                if left_s <= 0:
                    raise LabError(
                        f"U-Boot did not answer fastboot within {self.device_timeout} s: {error.what}",
                        transient=True,
                        hint="the exporter's AndroidUSBFastboot or AndroidNetFastboot must be this board's; "
                        "is the cable plugged in?",
                    ) from error
            else:
                return
            time.sleep(_LOOK_S)

    def _check_same_board(self, console: UBootConsole, mark: str) -> None:
        """Raise BoardError unless fastboot reaches the board of the console: another one's card would be written."""
        doing = "asking for the board's mark by fastboot"
        told = ""
        with suppress(LabError), time_limit(_MARK_TIMEOUT_S, doing), lab_errors(doing):
            told = self.fastboot.getvar(_CARD).strip()
        if told != mark:
            error = console.board.error(f"is not the board that fastboot reaches at {self._address}: nothing was sent")
            error.transient = False
            error.hint = "the exporter's AndroidUSBFastboot or AndroidNetFastboot must be this board's"
            raise error

    def _send(self, sparse: Path, console: UBootConsole) -> None:
        doing = f"copying {sparse.name} to the exporter"
        with time_limit(_COPY_TIMEOUT_S, doing), lab_errors(doing):
            there = on_exporter(sparse, self._resource)
        part = self.partition or _CARD
        limited = [] if self.fastboot.sparse_size is None else ["-S", self.fastboot.sparse_size]
        argv = [self.fastboot.tool, "-s", self._address, *limited, "flash", part, there]
        try:
            run_writer(
                *(self._resource, self._address, argv),
                limit_s=self.write_timeout,
                doing="sending the card's content",
                diagnose=lambda: console.causes(self.command),
            )
        except LabError as error:
            if refused := _REFUSED.search(error.what):
                raise console.board.error(f"refused the card's content: {refused[1]}") from error
            raise

    @property
    def _resource(self) -> Any:  # noqa: ANN401 - a labgrid resource
        return self.fastboot.fastboot

    @property
    def _address(self) -> str:
        """The board in `fastboot`'s words."""
        resource = self._resource
        if hasattr(resource, "protocol"):
            return f"{resource.protocol}:{resource.address}:{resource.port}"
        return f"usb:{resource.path}"
