"""Which meter to open: an address's, a virtual lab's, a labgrid environment's, or the only one present."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from fsjoule import lab
from fsjoule.errors import ConfigError, LabError, MeterError
from fsjoule.host import interrupts
from fsjoule.lab.wanted import AT_ONCE, Wanted
from fsjoule.meter.links.address import FORMS, opener
from fsjoule.meter.links.client import MeterClient
from fsjoule.meter.links.desk import ClientMeter
from fsjoule.meter.links.finder import Candidate, Found, find, serial_ports
from fsjoule.meter.links.holders import is_terminal
from fsjoule.meter.links.polled import PolledMeter
from fsjoule.meter.links.powercap import PREFIX as POWERCAP_PREFIX
from fsjoule.meter.links.powercap import PowercapMeter
from fsjoule.meter.links.receiver import Receiver
from fsjoule.meter.links.scpi import PREFIX as VISA_PREFIX
from fsjoule.meter.links.scpi import ScpiMeter
from fsjoule.meter.links.streams import Stream
from fsjoule.model import BoardProfile
from fsjoule.runs.virtual import emulator, virtual_lab_of
from fsjoule.virtual.lab import lab as virtual_lab
from fsjoule.virtual.lab.meter import meter_opener

KERNEL: Final = "6.1"
_LAB: Final = "lab:"
_LIST: Final = "fsjoule meter list shows all meters"


@contextmanager
def open_meter(
    address: str | None, environment_file: Path | None, say: Callable[[str], None]
) -> Generator[MeterClient]:
    """The meter at an address or of an environment file, or else the only one present; its info has arrived.

    Raises ConfigError if both are given or the meter is ambiguous, MeterError if it is silent.
    """
    with ExitStack() as closing:
        if environment_file is not None:
            if address is not None:
                raise ConfigError("both a meter's address and an environment file are given", hint="give one of them")
            target, _ = closing.enter_context(environment_target(environment_file, say))
            client = lab.meter(target).client()
        else:
            receiver = Receiver(_opener(address or _only_one(say)))
            closing.callback(receiver.close)
            client = MeterClient(receiver)
        client.receiver.wait_info()
        yield client


@contextmanager
def desk_meter(
    address: str | None, environment_file: Path | None, say: Callable[[str], None]
) -> Generator[ClientMeter | PolledMeter]:
    """A meter that the host arms and marks: as `open_meter`, or a polled one by `powercap:ZONE` or `visa:RESOURCE`."""
    polled = None if environment_file is not None else _polled(address or "")
    if polled is not None:
        with polled:
            yield polled
        return
    with open_meter(address, environment_file, say) as client:
        yield ClientMeter(client)


@contextmanager
def environment_target(
    environment_file: Path,
    say: Callable[[str], None],
    *,
    kernel: str = KERNEL,
    place: str | None = None,
    wanted: Wanted = AT_ONCE,
) -> Generator[tuple[Any, BoardProfile]]:
    """The labgrid target of an environment file, and its board's profile.

    The place is held in the body, which Ctrl-C, SIGTERM and SIGHUP end. It is the `place` of this name instead of the
    one that LG_PLACE names, and awaited as `wanted`. If the file asks for a virtual lab that is not up, it is brought
    up for `kernel`. Raises ConfigError, PlaceHeldError, LabError.
    """
    environment = lab.read_environment(environment_file, wanted)

    def chosen(board: str) -> str:
        with interrupts.interruptible():
            return emulator(board, kernel, say=say)

    with ExitStack() as closing:
        closing.enter_context(interrupts.handled())
        closing.enter_context(lab.variables(environment.variables))
        closing.enter_context(virtual_lab_of(environment, chosen, say, as_it_is=True))
        if place is not None:
            closing.enter_context(lab.variables({"LG_PLACE": place}))
        with interrupts.interruptible():
            places = lab.find_places(environment.places, wanted)
        if place is not None and not all(map(lab.is_name, places)):
            raise ConfigError(f"{place} is no name of a place", hint="labgrid-client places lists them")
        left_open = lab.place_variables(environment.places, places)
        if place is not None and places and not left_open and place not in places:
            raise ConfigError(f"{environment_file} is for {', '.join(places)}", hint="leave out the place, or --lg-env")
        closing.enter_context(lab.variables(left_open))
        guard = closing.enter_context(lab.acquired_places(places, say=say, wanted=wanted))
        with interrupts.interruptible():
            target = closing.enter_context(lab.labgrid_target(environment_file))
        lab.guard(target, guard)
        with interrupts.interruptible():
            yield target, environment.profile


def find_meters() -> list[Found]:
    """Every serial port of this computer and every running virtual lab, each with its meter if it has one."""
    return find([*serial_ports(), *_labs()])


def _polled(address: str) -> PolledMeter | None:
    """The meter at an address of one that is asked again and again; None for another address."""
    if address.startswith(POWERCAP_PREFIX):
        return PowercapMeter(address.removeprefix(POWERCAP_PREFIX))
    if address.startswith(VISA_PREFIX):
        return ScpiMeter(address.removeprefix(VISA_PREFIX))
    return None


def _opener(address: str) -> Callable[[], Stream]:
    if address.startswith((POWERCAP_PREFIX, VISA_PREFIX)):
        raise ConfigError(
            f"{address} is an instrument that is read again and again: it has neither settings nor a stream",
            hint="fsjoule meter watch, record and run take it",
        )
    if address.startswith("/") and not Path(address).exists():
        raise MeterError(f"there is no port {address}", hint=_LIST)
    if address.startswith("/") and not is_terminal(address):
        raise ConfigError(f"{address} is not a serial port", hint=_LIST)
    return meter_opener(address.removeprefix(_LAB)) if address.startswith(_LAB) else opener(address)


def _labs() -> list[Candidate]:
    found: list[Candidate] = []
    for record, _state in virtual_lab.running():
        for board in record.boards:
            name = record.name if board.number == 1 else f"{record.name}/{board.number}"
            with suppress(LabError):  # it has just ended
                found.append(Candidate(f"{_LAB}{name}", f"virtual lab {name!r}", meter_opener(name)))
    return found


def _only_one(say: Callable[[str], None]) -> str:
    found = find_meters()
    meters = [each for each in found if each.info is not None]
    if len(meters) == 1:
        say(f"meter at {meters[0].address}")
        return meters[0].address
    if meters:
        raise ConfigError(
            "there is more than one meter", hint=f"--meter {', or --meter '.join(each.address for each in meters)}"
        )
    seen = "; ".join(f"{each.address}: {each.why_not}" for each in found) or "there is no serial port"
    raise ConfigError(
        f"no meter was found ({seen})",
        hint=f"name it: --meter with {FORMS}, or lab:NAME for a virtual lab's; or --lg-env FILE",
    )
