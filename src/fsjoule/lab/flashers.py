"""Drivers that bring a card image onto the board's card. The strategy knows only their common protocol."""

from __future__ import annotations

import abc
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Final

import attr
from labgrid.driver import Driver
from labgrid.factory import target_factory
from labgrid.step import step
from labgrid.util.helper import processwrapper

from fsjoule.errors import LabError, also
from fsjoule.lab.cardwriter import StillWritingError, write_card
from fsjoule.lab.translate import lab_errors, time_limit

_MUX_TIMEOUT_S: Final = 30.0
_FLUSH_TIMEOUT_S: Final = 120.0
_NOT_FOUND: Final = 127  # a shell's exit code


class FlasherProtocol(abc.ABC):
    """Writes a card image while the board does not run."""

    @abc.abstractmethod
    def flash(self, image: Path) -> None:
        """Bring `image` onto the card and leave the card to the board, which is off before and after."""


@target_factory.reg_driver
@attr.s(eq=False)
class SdMuxFlasher(Driver, FlasherProtocol):
    """Writes the card through an SD mux, on the exporter's side of it.

    Args:
        write_timeout (int): seconds that writing an image may take
    """

    bindings = {"mux": "USBSDMuxDriver", "storage": "USBStorageDriver"}  # noqa: RUF012 - labgrid's way
    write_timeout: int = attr.ib(default=900, validator=attr.validators.instance_of(int))

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        # Lists the dead programs that prevent writing the card. LabgridBoard sets it.
        self.diagnose: Callable[[], tuple[str, ...]] = tuple

    @Driver.check_active
    @step(args=["image"])
    def flash(self, image: Path) -> None:
        """See FlasherProtocol. The board must be off: switching the mux under power pulls the card out."""
        if any(c.isspace() or c in "'\"\\$`;&|<>()*?" for c in str(image)):
            raise LabError(f"labgrid cannot write {str(image)!r}: it passes file names to a shell unquoted")
        self._switch("host")
        try:
            write_card(self.storage, image, self.write_timeout, self.diagnose)
            self._flush()
        except StillWritingError:
            # The board must not get a card that is still being written.
            raise
        except BaseException as error:
            with also(error, "giving the card back to the board"):
                self._switch("dut")
            raise
        self._switch("dut")

    def _switch(self, mode: str) -> None:
        doing = f"switching the SD mux to {mode}"
        with time_limit(_MUX_TIMEOUT_S, doing, self.diagnose), lab_errors(doing):
            self.mux.set_mode(mode)

    def _flush(self) -> None:
        """The exporter's kernel reads the partition table after the write: an immediate switch causes I/O errors."""
        resource = self.storage.storage
        doing = "flushing the card"
        with time_limit(_FLUSH_TIMEOUT_S, doing, self.diagnose), lab_errors(doing):
            try:
                processwrapper.check_output(resource.wrap_command(["udevadm", "settle", "--timeout=30"]))
            except subprocess.CalledProcessError as error:
                if error.returncode != _NOT_FOUND:  # without udev nothing else reads the card
                    raise
            processwrapper.check_output(resource.wrap_command(["blockdev", "--flushbufs", resource.path]))
