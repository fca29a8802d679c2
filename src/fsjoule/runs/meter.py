"""Which meter to open: an address's, a virtual lab's, a labgrid environment's, or the only one; and who uses it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import yaml

from fsjoule import lab
from fsjoule.errors import ConfigError, FsjouleError, LabError, MeterError
from fsjoule.host import interrupts
from fsjoule.lab.reservation import AT_ONCE, PlaceRequest
from fsjoule.meter.instruments import INSTRUMENTS, InstrumentKind, InstrumentMeter, SearchResult, addresses, kind_at
from fsjoule.meter.links.client import ClientMeter, MeterClient
from fsjoule.meter.links.finder import Candidate, find, serial_ports
from fsjoule.meter.links.receiver import Receiver
from fsjoule.meter.links.streams import FORMS, Stream, is_terminal, opener
from fsjoule.model import BoardProfile
from fsjoule.runs.held_lab import emulator, virtual_lab_of
from fsjoule.virtual.lab import lab as virtual_lab
from fsjoule.virtual.lab.instruments import address, meter_opener

_log: Final = logging.getLogger(__name__)

KERNEL: Final = "6.1"
_LAB: Final = "lab:"
_SEARCH_S: Final = 8.0  # VISA asks the network for a second or more
_LIST: Final = "fsjoule meter list shows all meters"


_VIRTUAL_LAB: Final = "fsjoule_virtual_lab"
# Where a checkout has its environment files, and the configurations of its exporters.
_FOLDERS: Final = (("env", "**/*.yaml"), ("labgrid", "**/exporter.yaml"))


@contextmanager
def open_meter(address: str | None, environment_file: Path | None) -> Generator[MeterClient]:
    """The meter at an address or of an environment file, or else the only one present; its info has arrived.

    Raises ConfigError if both are given or the meter is ambiguous, MeterError if it is silent.
    """
    with ExitStack() as closing:
        if environment_file is not None:
            if address is not None:
                raise ConfigError("both a meter's address and an environment file are given", hint="give one of them")
            target, _ = closing.enter_context(environment_target(environment_file))
            client = lab.meter(target).client()
        else:
            receiver = Receiver(_opener(address or _only_one()))
            closing.callback(receiver.close)
            client = MeterClient(receiver)
        client.receiver.wait_info()
        yield client


@contextmanager
def desk_meter(address: str | None, environment_file: Path | None) -> Generator[ClientMeter | InstrumentMeter]:
    """A meter that the host arms and marks: as `open_meter`, or an instrument by its address."""
    if environment_file is not None and address is None:
        with environment_target(environment_file) as (target, _):
            other = lab.instrument(target)
            yield ClientMeter(lab.meter(target).client()) if other is None else other
        return
    kind = None if environment_file is not None or address is None else kind_at(address)
    if kind is not None and address is not None:
        with kind.link().meter(address.removeprefix(kind.prefix)) as instrument:
            yield instrument
        return
    with open_meter(address, environment_file) as client:
        yield ClientMeter(client)


@contextmanager
def environment_target(
    environment_file: Path, *, kernel: str = KERNEL, place: str | None = None, wanted: PlaceRequest = AT_ONCE
) -> Generator[tuple[Any, BoardProfile]]:
    """The labgrid target of an environment file, and its board's profile.

    The place is held in the body, which Ctrl-C, SIGTERM and SIGHUP end. It is the `place` of this name instead of the
    one that LG_PLACE names, and awaited as `wanted`. If the file asks for a virtual lab that is not up, it is brought
    up for `kernel`. Raises ConfigError, PlaceHeldError, LabError.
    """
    environment = lab.read_environment(environment_file, wanted)

    def chosen(board: str) -> str:
        with interrupts.interruptible():
            return emulator(board, kernel)

    with ExitStack() as closing:
        closing.enter_context(interrupts.handled())
        closing.enter_context(lab.variables(environment.variables))
        closing.enter_context(virtual_lab_of(environment, chosen, as_it_is=True))
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
        guard = closing.enter_context(lab.acquired_places(places, wanted=wanted))
        with interrupts.interruptible():
            target = closing.enter_context(lab.labgrid_target(environment_file))
        lab.guard(target, guard)
        with interrupts.interruptible():
            yield target, environment.profile


def find_meters() -> list[SearchResult]:
    """Every serial port, every running virtual lab and every instrument that this computer reaches, all at once.

    What is no meter is listed with the reason. The search ends after some seconds, whatever hangs.
    """
    searches = [_Search(kind) for kind in INSTRUMENTS.values()]
    deadline_s = time.monotonic() + _SEARCH_S
    others = (meter for search in searches for meter in search.result(deadline_s))
    return [*_own_meters(), *_emulated_instruments(), *others]


def _own_meters() -> list[SearchResult]:
    candidates = list(serial_ports())
    for record, _state in virtual_lab.running():
        for board in record.boards:
            name = record.name if board.number == 1 else f"{record.name}/{board.number}"
            with suppress(LabError):  # it has just ended
                candidates.append(Candidate(f"{_LAB}{name}", f"virtual lab {name!r}", meter_opener(name)))
    return find(candidates)


class _Search:
    """Looks for the instruments of one kind, in a thread that is abandoned if it hangs."""

    def __init__(self, kind: InstrumentKind) -> None:
        self._kind = kind
        self._found: list[SearchResult] | None = None
        self._thread = threading.Thread(target=self._run, name=f"fsjoule-search-{kind.name}", daemon=True)
        self._thread.start()

    def result(self, deadline_s: float) -> list[SearchResult]:
        self._thread.join(max(0.0, deadline_s - time.monotonic()))
        return self._nothing("the search takes too long") if self._found is None else self._found

    def _nothing(self, why: str) -> list[SearchResult]:
        return [SearchResult(self._kind.prefix, self._kind.what, why_not=why)]

    def _run(self) -> None:
        try:
            self._found = self._kind.link().find()
        except FsjouleError as error:
            self._found = self._nothing(error.what)
        except Exception as error:  # noqa: BLE001 - of any library, in a thread that nobody else looks at
            self._found = self._nothing(f"the search failed: {str(error) or type(error).__name__}")


def _opener(address: str) -> Callable[[], Stream]:
    if kind_at(address) is not None:
        raise ConfigError(
            f"{address} is an instrument without a stream of fsjoule's own: it has no settings here",
            hint="fsjoule meter info, watch, record and run take it",
        )
    if address.startswith("/") and not Path(address).exists():
        raise MeterError(f"there is no port {address}", hint=_LIST)
    if address.startswith("/") and not is_terminal(address):
        raise ConfigError(f"{address} is not a serial port", hint=_LIST)
    return meter_opener(address.removeprefix(_LAB)) if address.startswith(_LAB) else opener(address)


def _emulated_instruments() -> list[SearchResult]:
    """The instruments that virtual labs have beside their meters."""
    return [
        SearchResult(
            kind.prefix + where.removeprefix(kind.prefix),
            f"virtual lab {record.name!r}",
            f"SIM {kind.what}",
            device=(where,),
        )
        for record, _state in virtual_lab.running()
        for board in record.boards
        for kind in INSTRUMENTS.values()
        if (file := record.devices_of(board.number) / kind.name).exists()
        for where in [address(file)]
    ]


def _only_one() -> str:
    candidates = _own_meters()
    meters = [each for each in candidates if each.name]
    if len(meters) == 1:
        _log.info("meter at %s", meters[0].address)
        return meters[0].address
    if meters:
        raise ConfigError(
            "there is more than one meter", hint=f"--meter {', or --meter '.join(each.address for each in meters)}"
        )
    seen = "; ".join(f"{each.address}: {each.why_not}" for each in candidates) or "there is no serial port"
    raise ConfigError(
        f"no meter was found ({seen})",
        hint=f"name it: --meter with {FORMS}, lab:NAME for a virtual lab's, {addresses()}; or --lg-env FILE. {_LIST}",
    )


def users(meters: Iterable[SearchResult], root: Path = Path()) -> dict[str, tuple[str, ...]]:
    """By address: the files below `root` that name the meter, with the target, place or group that has it.

    A file names a meter by its address, its port or its USB serial number, or asks for its virtual lab. A file that
    cannot be read names none.
    """
    named = [
        (f"{path.relative_to(root)} ({top})" if top else str(path.relative_to(root)), key, value)
        for folder, pattern in _FOLDERS
        for path in sorted((root / folder).glob(pattern))
        for top, key, value in _scalars(path)
    ]
    return {each.address: tuple(dict.fromkeys(who for who, *fact in named if _is(each, *fact))) for each in meters}


def _is(meter: SearchResult, key: str, value: str) -> bool:
    if key == _VIRTUAL_LAB:
        return meter.address.partition("/")[0] == f"{_LAB}{value}"
    return value in (meter.address, *meter.device)


def _scalars(path: Path) -> Iterator[tuple[str, str, str]]:
    """Each scalar of a YAML file, with the key before it and the target or group that it stands in."""
    try:
        root = yaml.compose(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return
    if not isinstance(root, yaml.MappingNode):
        return
    for name, node in root.value:
        if name.value == "targets" and isinstance(node, yaml.MappingNode):
            for target, inner in node.value:
                yield from ((target.value, *each) for each in _inside(inner))
        else:
            top = "" if name.value == "options" else str(name.value)
            yield from ((top, *each) for each in _inside(node))


def _inside(node: yaml.Node, key: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(node, yaml.ScalarNode):
        yield key, str(node.value)
    elif isinstance(node, yaml.SequenceNode):
        for each in node.value:
            yield from _inside(each, key)
    elif isinstance(node, yaml.MappingNode):
        for name, value in node.value:
            yield from _inside(value, str(name.value))
