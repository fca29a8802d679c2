"""Writes the card over USB while U-Boot's command `ums` offers it as a disk. No SD mux is needed."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

import attr
from labgrid.factory import target_factory
from labgrid.step import step

from fsjoule.errors import BoardError, LabError, also
from fsjoule.lab.disks import look
from fsjoule.lab.flashers import DiskFlasher, FlashedBoard, check_file_name
from fsjoule.lab.translate import lab_errors, time_limit
from fsjoule.lab.u_boot import UBootConsole, stop_u_boot, without_power

_GRACE_S: Final = 15.0
_LOOK_S: Final = 1.0
_SECTOR_BYTES: Final = 512
# To the end of the line: half a number may come first.
_OFFERED: Final = r"UMS: LUN \d+, [^\r\n]*count (0x[0-9a-fA-F]+)[\r\n]"
_HINT: Final = "build it with CONFIG_CMD_USB_MASS_STORAGE, or take another flasher"


@target_factory.reg_driver
@attr.s(eq=False)
class UmsFlasher(DiskFlasher):
    """Starts the board, stops U-Boot, and writes the card that U-Boot offers over USB.

    Its drivers are activated one by one: labgrid would wait for the prompt of a board that is off, and for a disk that
    is there only during `ums`.

    Args:
        command (str): U-Boot's command, with its own numbers of the USB port and of the card
        disk_timeout (int): seconds until the disk appears on the exporter
        write_timeout, disk_serial, disk_link, disk_max_mib, verify: see DiskFlasher; a real board's disk needs
            disk_serial or disk_link
    """

    starts_board = True
    without_mux = "the card is written over USB while U-Boot offers it"
    bindings = {"uboot": "UBootDriver", "storage": "USBStorageDriver"}  # noqa: RUF012 - labgrid's way
    command: str = attr.ib(default="ums 0 mmc 0", validator=attr.validators.matches_re(r"ums \d+ .+"))
    disk_timeout: int = attr.ib(default=30, validator=attr.validators.instance_of(int))

    @step(args=["image"])
    def flash(self, image: Path, board: FlashedBoard) -> None:
        """See FlasherProtocol. Raises LabError and BoardError, which say at which step it failed."""
        check_file_name(image)
        board.start()
        console, appeared = UBootConsole(self.uboot, board), False
        try:
            stop_u_boot(self.labgrid, self.uboot, board)
            offered = console.offer(self.command, _OFFERED, _HINT)
            assert offered is not None
            offered_bytes = int(offered[1], 16) * _SECTOR_BYTES
            self._await_disk(console, offered_bytes)
            appeared = True
            self._write(image, self._boards_disk(board, offered_bytes), lambda: self._causes(console))
        except LabError as error:
            if not isinstance(error, BoardError):
                with also(error, "looking for the cause"):
                    error.blame(self._causes(console))
                error.blame(self._gone() if appeared else ())
            error.blame(without_power(board))
            raise
        with lab_errors("ending ums"):
            self.labgrid.deactivate(self.storage)
        console.end(self.command)  # U-Boot writes before it answers the host, so nothing is lost

    def _await_disk(self, console: UBootConsole, offered_bytes: int) -> None:
        """Wait until the exporter has the disk. Raises LabError."""
        deadline = time.monotonic() + self.disk_timeout
        size_bytes = 0
        while (left_s := deadline - time.monotonic()) > 0:
            doing = "waiting for the board's USB disk"
            try:
                with time_limit(left_s + _GRACE_S, doing), lab_errors(doing):
                    self.labgrid.activate(self.storage)
                    size_bytes = look(self.storage.storage).size_bytes
            except LabError as error:
                if not error.transient or time.monotonic() > deadline:
                    raise
            # A wrong size is reported by the check before the write.
            if size_bytes == offered_bytes:
                return
            if causes := self._causes(console):
                error = LabError("the board's USB disk did not appear on the exporter", transient=True)
                error.blame(causes)
                raise error
            time.sleep(_LOOK_S)
        if not size_bytes:
            raise LabError(
                f"the board's USB disk did not appear on the exporter within {self.disk_timeout} s",
                transient=True,
                hint="is its USB device port plugged in, and is it USB port 0 for U-Boot? dmesg of the exporter tells",
            )

    def _causes(self, console: UBootConsole) -> tuple[str, ...]:
        """Why the disk may be gone, while or after it was there."""
        return (*console.causes(self.command), *console.board.health.faults())

    def _gone(self) -> tuple[str, ...]:
        """Whether the exporter has lost the disk."""
        try:
            with time_limit(_GRACE_S, "looking for the board's disk"), lab_errors("looking for the board's disk"):
                there = look(self.storage.storage).size_bytes > 0
        except LabError:
            return ()
        return () if there else (f"the exporter has lost the board's USB disk {self.storage.storage.path}",)
