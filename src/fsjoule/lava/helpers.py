"""The programs that a device file names. LAVA calls each on its own, in any order, and more than once.

LAVA gives them neither a shell nor its own environment: a command line holds all that they need. The first one that
needs the board acquires its place; `power_off` switches the board off and releases it.
"""

from __future__ import annotations

import os
import shlex
import socket
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fsjoule import lab
from fsjoule.errors import ConfigError, LabError
from fsjoule.host import process
from fsjoule.host.paths import cache_dir, state_dir
from fsjoule.lab import handover
from fsjoule.lab.card import named_file
from fsjoule.lava.shell_record import await_guard

WAIT_S: Final = 600.0
USER: Final = "lava"
# What a helper needs of its caller's environment. A name outside this list is never written to a device file, which
# everybody may read: FSJOULE_INDEX and GitLab's token hold secrets.
_CARRIED: Final = ("LG_COORDINATOR", "LG_PROXY", "PATH")


@dataclass(frozen=True, slots=True)
class Bench:
    """A board as LAVA's helpers reach it: its place, its environment file, and the variables that they set."""

    place: str
    environment: Path
    variables: Mapping[str, str]
    wait_s: float = WAIT_S

    def command(self, helper: str, *more: str) -> str:
        """A helper's command line, as LAVA splits it."""
        words = [program(), "lava", helper, self.place, *more, "--lg-env", str(self.environment)]
        words += ["--wait", f"{self.wait_s:g}"]
        words += [word for name, value in self.variables.items() for word in ("--set", f"{name}={value}")]
        return shlex.join(words)


def bench_of(place: str, environment_file: Path, *, user: str, wait_s: float) -> Bench:
    """The board of a place, with this process's settings. Raises ConfigError for a wrong file or place, LabError."""
    environment = lab.read_environment(environment_file)
    carried = {name: os.environ[name] for name in _CARRIED if name in os.environ} | environment.variables
    carried |= {"LG_HOSTNAME": socket.gethostname(), "LG_USERNAME": user}
    carried |= {"FSJOULE_CACHE_DIR": str(cache_dir()), "FSJOULE_STATE_DIR": str(state_dir())}
    with lab.variables(carried):
        handover.is_ours(place)
    return Bench(place, environment_file.resolve(), carried, wait_s)


def program() -> str:
    """The full path of `fsjoule`: LAVA's PATH does not lead to it."""
    beside = Path(sys.executable).with_name("fsjoule")
    return str(beside) if beside.exists() else process.find_tool("fsjoule")


def parsed(settings: list[str]) -> dict[str, str]:
    """Variables from NAME=VALUE. Raises ConfigError."""
    pairs = [each.partition("=") for each in settings]
    if wrong := [name for name, equals, _ in pairs if not (name and equals)]:
        raise ConfigError(f"--set {wrong[0]}: it is not NAME=VALUE")
    return {name: value for name, _, value in pairs}


def enter(bench: Bench) -> None:
    """Take the bench's variables for this process and all that it starts."""
    os.environ.update(bench.variables)
    os.environ["LG_PLACE"] = bench.place


def take(bench: Bench, say: Callable[[str], None]) -> None:
    """Acquire the place, or wait for it. Raises PlaceHeldError with who has it."""
    await_guard(bench.place)
    handover.acquire(bench.place, wait_s=bench.wait_s, say=say)


def connect(bench: Bench, say: Callable[[str], None]) -> None:
    """Become a client of the board's console. Raises LabError if the place is not to be had."""
    take(bench, say)
    client = str(Path(sys.executable).with_name("labgrid-client"))
    os.execv(client, [client, "-p", bench.place, "console"])  # noqa: S606 - LAVA speaks to this process


def power_on(bench: Bench, say: Callable[[str], None]) -> None:
    take(bench, say)
    handover.switch_on(bench.environment)


def hard_reset(bench: Bench, say: Callable[[str], None]) -> None:
    take(bench, say)
    handover.restart(bench.environment)


def flash(bench: Bench, image: Path, say: Callable[[str], None]) -> None:
    """Bring an image onto the card. Raises ConfigError if it cannot be read, LabError."""
    card = named_file(image.resolve())
    take(bench, say)
    handover.flash(bench.environment, card)


def off_and_free(bench: Bench) -> None:
    """Switch the board off and release its place, if LAVA has it. Raises LabError."""
    if not handover.is_ours(bench.place):
        return
    try:
        handover.switch_off(bench.environment)
    except LabError as error:
        # A board that stays on is for the next holder to see; a place that stays acquired is for nobody.
        handover.release(bench.place)
        raise error from None
    handover.release(bench.place)
