"""The table of instruments beside fsjoule's own meter, one row each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, cast

from fsjoule.hooks import GROUP, Rows, loaded

if TYPE_CHECKING:
    from fsjoule.meter.energy.instrument import InstrumentErrors
    from fsjoule.meter.protocol.frames import InfoFrame
    from fsjoule.model import MarkSource, MeterInfo, PlainInfo, PlainTrace


@dataclass(frozen=True, slots=True)
class SearchResult:
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


class InstrumentMeter(Protocol):
    """An open instrument, for a `with` statement. Errors are MeterError."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: object) -> None: ...

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


class InstrumentLink(Protocol):
    """A module that opens, finds and decodes an instrument: `links/`."""

    def meter(self, name: str) -> InstrumentMeter:
        """The instrument at an address, which comes without its prefix. Raises ConfigError, MeterError."""
        ...

    def find(self) -> list[SearchResult]:
        """The instruments that this computer reaches. Nothing is disturbed that another program uses.

        Without the instrument's library there are none. Raises MeterError if the search itself fails.
        """
        ...


class Errors(Protocol):
    """A module that states an instrument's errors: `energy/`."""

    def errors(self, info: PlainInfo, marks: MarkSource) -> InstrumentErrors:
        """The errors of an instrument with this info, for marks from one source."""
        ...


@dataclass(frozen=True, slots=True)
class InstrumentKind:
    """A kind of instrument. `name` is `PlainInfo.instrument`; `form` and `what` describe its addresses to people.

    The rest are names of modules, which are imported when they are needed: a command's help needs none. A
    `InstrumentLink` opens it, an `Errors` states its limits, an `Emulator` (`virtual/instruments`) stands in for it; a
    package's need not have one.
    """

    name: str
    prefix: str
    form: str
    what: str
    link_module: str
    errors_module: str
    emulator_module: str = ""

    def link(self) -> InstrumentLink:
        return cast("InstrumentLink", self._loaded(self.link_module))

    def errors(self) -> Errors:
        return cast("Errors", self._loaded(self.errors_module))

    def emulator(self) -> Any:  # noqa: ANN401 - the virtual lab's, of which the meter knows nothing
        return self._loaded(f"{self.emulator_module}:EMULATOR")

    def _loaded(self, module: str) -> Any:  # noqa: ANN401 - a module
        owner = INSTRUMENTS.owner(self.name) if self.name in INSTRUMENTS else GROUP
        return loaded(module, f"instrument {self.name}", owner)


def _own(name: str, prefix: str, form: str, what: str, errors: str = "") -> InstrumentKind:
    """A kind of fsjoule's own: its modules have its name. `errors` is another module of `energy/` with its limits."""
    modules = {"meter.links": name, "meter.energy": errors or name, "virtual.instruments": name}
    return InstrumentKind(name, prefix, form, what, *(f"fsjoule.{room}.{module}" for room, module in modules.items()))


_TABLE: Final = (
    _own("joulescope", "joulescope:", "joulescope:MODEL/SERIAL", "a Joulescope"),
    _own("powercap", "powercap:", "powercap:ZONE", "this computer's processor"),
    _own("iio", "iio:", "iio:URI/DEVICE", "a power monitor of the kernel's IIO", errors="stated"),
    _own("ppk2", "ppk2:", "ppk2:PORT,volts=5", "Nordic's Power Profiler Kit II"),
    _own("scpi", "visa:", "visa:RESOURCE", "an instrument that speaks SCPI", errors="stated"),
)

INSTRUMENTS: Final = Rows("instrument", "fsjoule_instruments", InstrumentKind, lambda: _TABLE)


def addresses() -> str:
    """The forms of addresses, for people."""
    return ", ".join(f"{row.form} for {row.what}" for row in INSTRUMENTS.values())


def kind_at(address: str) -> InstrumentKind | None:
    """The kind of the instrument at an address; None for an address of fsjoule's own meter."""
    return next((row for row in INSTRUMENTS.values() if address.startswith(row.prefix)), None)
