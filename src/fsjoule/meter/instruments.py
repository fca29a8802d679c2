"""The instruments beside fsjoule's own meter: one row each.

Each has two modules of its name. `links/NAME.py` opens, finds and decodes it (`Link`); `energy/NAME.py` states its
errors (`Errors`). Both are imported when they are needed: a command's help needs neither.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from types import TracebackType
from typing import TYPE_CHECKING, Final, Protocol, Self, cast

if TYPE_CHECKING:
    from fsjoule.meter.energy.instrument import Instrument
    from fsjoule.meter.links.found import Found
    from fsjoule.model import MarkSource, PlainInfo, PlainTrace


class InstrumentMeter(Protocol):
    """An open instrument, for a `with` statement. Errors are MeterError."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...

    def info(self) -> PlainInfo: ...

    def arm(self) -> None:
        """Start recording, and wait for the first sample."""
        ...

    def take(self, *, whole: bool = False) -> PlainTrace:
        """The ticks since `arm` or the last call, with their marks; `whole` waits for those up to now."""
        ...

    def disarm(self) -> PlainTrace:
        """Stop recording. Returns everything since `arm` that was not taken, up to now."""
        ...

    def mark_now(self, text: str) -> Callable[[], None]:
        """Mark this moment, without waiting. The result waits until the mark has arrived."""
        ...


class Link(Protocol):
    """What a module of `links/` has."""

    def meter(self, name: str) -> InstrumentMeter:
        """The instrument at an address, which comes without its prefix. Raises ConfigError, MeterError."""
        ...

    def find(self) -> list[Found]:
        """The instruments that this computer reaches. Nothing is disturbed that another program uses.

        Without the instrument's library there are none. Raises MeterError if the search itself fails.
        """
        ...


class Errors(Protocol):
    """What a module of `energy/` has."""

    def errors(self, info: PlainInfo, marks: MarkSource) -> Instrument:
        """The errors of an instrument with this info, for marks from one source."""
        ...


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of instrument. `name` is `PlainInfo.instrument`; `form` and `what` describe its addresses to people."""

    name: str
    prefix: str
    form: str
    what: str

    def link(self) -> Link:
        return cast("Link", import_module(f"fsjoule.meter.links.{self.name}"))

    def errors(self) -> Errors:
        return cast("Errors", import_module(f"fsjoule.meter.energy.{self.name}"))


KINDS: Final = (
    Kind("joulescope", "joulescope:", "joulescope:MODEL/SERIAL", "a Joulescope"),
    Kind("powercap", "powercap:", "powercap:ZONE", "this computer's processor"),
    Kind("iio", "iio:", "iio:URI/DEVICE", "a power monitor of the kernel's IIO"),
    Kind("ppk2", "ppk2:", "ppk2:PORT,volts=5", "Nordic's Power Profiler Kit II"),
    Kind("scpi", "visa:", "visa:RESOURCE", "an instrument that speaks SCPI"),
)
ADDRESSES: Final = ", ".join(f"{kind.form} for {kind.what}" for kind in KINDS)


def kind_at(address: str) -> Kind | None:
    """The kind of the instrument at an address; None for an address of fsjoule's own meter."""
    return next((kind for kind in KINDS if address.startswith(kind.prefix)), None)


def kind_named(name: str) -> Kind | None:
    """The kind that `PlainInfo.instrument` names; None for one that this version does not know."""
    return next((kind for kind in KINDS if kind.name == name), None)
