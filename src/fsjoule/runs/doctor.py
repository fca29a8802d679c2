"""A place examined: held as by a bench, its parts checked, its board off at the end.

What of the lab is open to more people than need it is told beside the checks, because no figure suffers by it.
"""

from __future__ import annotations

import ipaddress
import json
import logging
import os
import socket
import sys
import tempfile
import time
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from fsjoule import images, lab
from fsjoule.bench.health.checkup import Checkup, MeterTools
from fsjoule.bench.health.result import Check, Health, overall
from fsjoule.errors import ConfigError, InfrastructureError, PlaceLostError
from fsjoule.host import interrupts, process
from fsjoule.host.clock import HostClock, today
from fsjoule.host.paths import environment_file
from fsjoule.host.process_ref import ending
from fsjoule.kernels.recipe import load_recipe, recipes_folder
from fsjoule.lab.coordinator import connected
from fsjoule.lab.reservation import PlaceRequest
from fsjoule.lab.states import states
from fsjoule.meter.links.notices import complaints, file_notices, uncalibrated
from fsjoule.meter.tools.clock_fit import ClockFit, Drift
from fsjoule.model import MIB, BoardProfile
from fsjoule.model.places import PlaceHealth
from fsjoule.ports import Board, Clock
from fsjoule.runs.held_lab import equipment
from fsjoule.runs.meter import KERNEL, environment_target
from fsjoule.suites import SCRATCH_ROOT

_log: Final = logging.getLogger(__name__)

_STDERR: Final = 2
_LOOK_S: Final = 0.2
_ENDING_S: Final = 120.0


_PROC: Final = Path("/proc")
_LISTENS: Final = "0A"  # TCP_LISTEN in /proc/net/tcp (Linux: include/net/tcp_states.h)
_WORKER: Final = "lava-worker"


@dataclass(frozen=True, slots=True)
class Examination:
    """A place, by its full name, its board, and the checks, which are made as they are taken."""

    place: str
    profile: BoardProfile
    checks: Iterator[Check]


@contextmanager
def examined(
    environment_file: Path, *, place: str | None = None, wanted: PlaceRequest, kernel: str | None = None
) -> Generator[Examination]:
    """Hold the place of an environment file. Afterwards the board is off.

    If a check has found a broken part, a board that cannot be switched off is only told.

    With a `kernel` its card is written, too. Raises ConfigError, PlaceHeldError, PlaceLostError, LabError.
    """
    held = environment_target(environment_file, kernel=kernel or KERNEL, place=place, wanted=wanted)
    with held as (target, profile), redirect_stdout(sys.stderr):  # labgrid prints the output of its tools
        cards: dict[tuple[str, str], images.CardImage] = {}
        if kernel is not None:
            card = images.build_card(kernel, SCRATCH_ROOT, recipe=profile.recipe)
            cards[card.facts.kernel_choice, SCRATCH_ROOT] = card
        facts = lab.lab_facts(target)
        where = (os.environ.get("LG_COORDINATOR", ""), "" if facts is None else facts.place)
        board, meter, _ = equipment(target, cards, where)
        clock = HostClock()
        checkup = Checkup(
            *(board, board, MeterTools(meter, partial(_notices, target), partial(_drift, target, clock))),
            clock=clock,
            profile=profile,
            least_bytes=_card_bytes(profile),
            write=(lambda: board.prepare(*next(iter(cards)))) if cards else None,
        )
        if not lab.has_meter(target):
            checkup.meter = None
        made: list[Check] = []
        try:
            yield Examination(where[1], profile, _kept(checkup.checks(), made))
        finally:
            switch_off(board, made)


def _kept(checks: Iterable[Check], made: list[Check]) -> Iterator[Check]:
    for check in checks:
        made.append(check)
        yield check


def switch_off(board: Board, checks: Iterable[Check]) -> None:
    """Switch the board off after its checks. A failure is only told if a part is broken: that is the answer then.

    Raises InfrastructureError otherwise.
    """
    try:
        board.off()
    except PlaceLostError:
        raise
    except InfrastructureError as error:
        if overall(checks) is not Health.BROKEN:
            raise
        _log.warning("the board could not be switched off: %s", error.what)


def environment_of(place: str, tags: Mapping[str, str] | None = None) -> Path:
    """The environment file of a place, in env/ or env/boards/. Raises ConfigError.

    Its name is that of the place's tag `environment`, its tag `kind` (of a virtual lab), the place, or its tag `board`.
    """
    tagged = tags or {}
    names = [tagged.get("environment"), tagged.get("kind"), place, tagged.get("board")]
    for name in filter(None, names):
        file = environment_file(Path(name))
        if file.is_file():
            return file
    raise ConfigError(
        f"no environment file is known for the place {place!r}",
        hint=f"--lg-env FILE, or name it: labgrid-client -p {place} set-tags environment=NAME, for env/NAME.yaml",
    )


def tags_of(place: str) -> Mapping[str, str] | None:
    """The tags of a place, if LG_COORDINATOR names a coordinator that has a place of this name. Raises LabError."""
    if "LG_COORDINATOR" not in os.environ:
        return None
    with connected() as coordinator:
        return next((each.tags for each in states(coordinator) if each.name == place), None)


@dataclass(frozen=True, slots=True)
class PlaceResult:
    """The exit code of `fsjoule doctor` for one place, and its document, or one that says why there is none."""

    code: int
    document: dict[str, Any]


def examined_places(
    program: Sequence[str], environment_file: Path | None, *, bad: bool = False
) -> Generator[PlaceResult]:
    """Run the program `fsjoule doctor --json`, with its options, for each place of the coordinator that is in use.

    `bad`: only for those whose state is bad.

    A process for each: labgrid keeps the resources of one place until its process ends. Raises LabError.
    """
    with connected() as coordinator:
        places = [each for each in states(coordinator) if each.state is PlaceHealth.BAD or not bad]
    for each in places:
        try:
            environment = environment_file or environment_of(each.name, each.tags)
        except ConfigError as error:
            yield _not_examined(each.name, error.what)
            continue
        if each.state is PlaceHealth.MAINTENANCE:
            yield _not_examined(each.name, "it is in maintenance")
            continue
        code, said = _run([*program, "--lg-env", str(environment), "--", each.name])
        why = f"exit code {code}" if code >= 0 else f"its process {ending(code)}"
        yield PlaceResult(code, json.loads(said)) if said else _not_examined(each.name, why, code)


def _not_examined(place: str, why: str, code: int = 0) -> PlaceResult:
    return PlaceResult(code, {"place": place, "not_examined": why})


def _run(argv: Sequence[str]) -> tuple[int, bytes]:
    """Run a program to its end; returns its exit code and output. Its errors are this program's.

    If this program is interrupted, the other one ends first, and switches its board off.
    """
    with tempfile.TemporaryFile() as output, interrupts.handled():
        program = process.start(argv, log=output, stderr=_STDERR)
        try:
            with interrupts.interruptible():
                while program.poll() is None:
                    time.sleep(_LOOK_S)
        finally:
            process.stop(program, timeout_s=_ENDING_S)
        output.seek(0)
        return program.returncode, output.read()


def _notices(target: Any) -> list[str]:  # noqa: ANN401 - a labgrid Target; labgrid is fsjoule.lab's
    """What fsjoule's own meter says against itself. An emulated one needs no calibration."""
    if _is_another(target):
        return []
    frame = lab.meter(target).client().info()
    said = [*complaints(frame.status), *file_notices(frame.info, today())]
    return said if frame.info.simulated else [*said, *uncalibrated(frame.info.calibration)]


def _drift(target: Any, clock: Clock, seconds: float) -> Drift | None:  # noqa: ANN401 - a labgrid Target
    """How the own meter's clock drifts against the host's, heard for so many seconds. Raises MeterError."""
    if _is_another(target):
        return None
    receiver, fit = lab.meter(target).client().receiver, ClockFit()
    tick_us = receiver.wait_info().info.tick_us

    with receiver.listening(lambda frames, heard_s: fit.add_samples(frames, heard_s, tick_us)):
        clock.sleep(seconds)
    receiver.raise_if_over()
    return fit.drift()


def _is_another(target: Any) -> bool:  # noqa: ANN401 - a labgrid Target
    """Whether the board is measured by another meter than fsjoule's own."""
    return lab.instrument(target) is not None or lab.board_counter(target) is not None


def _card_bytes(profile: BoardProfile) -> int:
    """The size of the board's card images; 0 if its recipe is not there: the card was made elsewhere."""
    try:
        return load_recipe(recipes_folder(), profile.recipe).card.size_mib * MIB
    except ConfigError:
        return 0


def open_doors(coordinator: str, proc: Path = _PROC) -> Iterator[str]:
    """A line for each. `coordinator` is HOST:PORT."""
    host, _, port = coordinator.rpartition(":")
    if not _is_own(host) or (port.isdecimal() and _listens_beyond(int(port), proc)):
        yield f"the coordinator at {coordinator} listens beyond its computer, and asks nobody for a password"
    for each in proc.glob("[0-9]*"):
        try:
            is_worker = (each / "comm").read_text().strip() == _WORKER
            if is_worker and each.stat().st_uid == 0:
                yield f"{_WORKER} (process {each.name}) is root: so is whoever may submit a job"
        except OSError:
            continue  # it has ended


def _is_own(host: str) -> bool:
    """Whether a host's name leads to this computer's loopback; a name that nobody knows leads nowhere."""
    try:
        addresses = {str(address[0]) for *_, address in socket.getaddrinfo(host.strip("[]"), None)}
    except OSError:
        return True
    return all(ipaddress.ip_address(each.partition("%")[0]).is_loopback for each in addresses)


def _listens_beyond(port: int, proc: Path) -> bool:
    for name in ("tcp", "tcp6"):
        try:
            lines = (proc / "net" / name).read_text().splitlines()[1:]
        except OSError:
            continue
        for _, local, _, state, *_ in map(str.split, lines):
            address, _, number = local.partition(":")
            if state == _LISTENS and int(number, 16) == port and not _is_loopback(bytes.fromhex(address)):
                return True
    return False


def _is_loopback(raw: bytes) -> bool:
    """The kernel writes words of 32 bits in the computer's own order."""
    words = (int.from_bytes(raw[at : at + 4], "little").to_bytes(4, "big") for at in range(0, len(raw), 4))
    address = ipaddress.ip_address(b"".join(words))
    # gRPC listens by IPv6 at the mapped 127.0.0.1, which ipaddress calls no loopback before Python 3.13.
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback
