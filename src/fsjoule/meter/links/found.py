"""A meter that was found, or a place without one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fsjoule.meter.protocol.frames import InfoFrame
    from fsjoule.model import MeterInfo


@dataclass(frozen=True, slots=True)
class Found:
    """A place where a meter is: its `name`, and as much of its info as it tells without being opened.

    Without a meter `name` is empty, and `why_not` has the reason. `frame` is all that fsjoule's own meter told.
    `device` is what a labgrid file may know the meter by beside its address: a USB serial number, or a port.
    """

    address: str
    where: str
    name: str = ""
    info: MeterInfo | None = None
    why_not: str = ""
    frame: InfoFrame | None = None
    device: tuple[str, ...] = ()
