"""A board as LAVA's helpers reach it, and the command lines that carry their settings.

LAVA gives a command neither a shell nor its caller's environment: the command line holds all that it needs.
"""

from __future__ import annotations

import os
import shlex
import socket
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fsjoule import lab
from fsjoule.errors import ConfigError
from fsjoule.host import process
from fsjoule.host.paths import cache_dir, state_dir
from fsjoule.lab.coordinator import connected
from fsjoule.lab.environment import missing_resources

WAIT_S: Final = 600.0
USER: Final = "lava"
# Variables that a helper needs from its caller. A name outside this list is never written to a device file, which
# everybody may read: FSJOULE_INDEX and GitLab's token hold secrets.
_CARRIED: Final = ("LG_COORDINATOR", "LG_PROXY", "PATH")


@dataclass(frozen=True, slots=True)
class LavaBoard:
    """A board as LAVA's helpers reach it: its place, its environment file, and the variables that they set."""

    place: str
    environment: Path
    variables: Mapping[str, str]
    wait_s: float = WAIT_S

    def command(self, helper: str, *more: str) -> str:
        """A helper's command line, as LAVA splits it."""
        words = [program(), "lava", helper, self.place, *more, "--lg-env", str(self.environment)]
        words += ["--wait", f"{self.wait_s:.0f}s"]
        words += [word for name, value in self.variables.items() for word in ("--set", f"{name}={value}")]
        return shlex.join(words)


def bench_of(
    place: str, environment_file: Path, *, user: str, wait_s: float, job: Mapping[str, str] | None = None
) -> LavaBoard:
    """The board of a place, with this process's settings. Raises ConfigError for a wrong file or place, LabError.

    A place that lacks a resource of the file is a wrong one.

    `job` are variables that tell a run of its job: FSJOULE_LAVA_DEVICE, FSJOULE_LAVA_WORKER, FSJOULE_LAVA_SERVER.
    """
    environment = lab.read_environment(environment_file)
    carried = {name: os.environ[name] for name in _CARRIED if name in os.environ} | environment.variables
    carried |= {"LG_HOSTNAME": socket.gethostname(), "LG_USERNAME": user}
    carried |= {"FSJOULE_CACHE_DIR": str(cache_dir()), "FSJOULE_STATE_DIR": str(state_dir())}
    carried |= job or {}
    with lab.variables(carried), connected() as coordinator:
        held = coordinator.place(place)
        # While an exporter of the place is away, nothing can be said of it.
        there = coordinator.unmatched(held) is None
        lacking = missing_resources(environment, coordinator.offered(held)) if there else ()
    if lacking:
        raise ConfigError(
            f"the place {place!r} lacks what {environment.path} uses: {'; '.join(lacking)}",
            hint="export it and add it to the place (labgrid-client add-match), or take the driver out of the file: "
            "docs/lava.md tells how a board without a meter or an SD mux is measured",
        )
    return LavaBoard(place, environment_file.resolve(), carried, wait_s)


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


def remarks(lines: Iterable[str]) -> str:
    """The lines as comments of a YAML file."""
    return "".join(f"# {line}\n" for line in lines)


def enter(bench: LavaBoard) -> None:
    """Take the bench's variables for this process and all that it starts."""
    os.environ.update(bench.variables)
    os.environ["LG_PLACE"] = bench.place
