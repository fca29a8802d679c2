"""What is there of what a purpose needs, and what cannot work on this computer. Nothing is changed."""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from fsjoule.errors import HostError, MissingToolError
from fsjoule.host import process
from fsjoule.host.setup.install import by_hand, missing
from fsjoule.host.setup.needs import Need, System, find_program, needed, this_system

_TRY_S: Final = 20.0
_OLDEST_PYTHON: Final = (3, 11)
_TRIED: Final = ("x86_64", "aarch64")
_CONTAINERS: Final = {"/.dockerenv": "Docker", "/run/.containerenv": "Podman", "/dev/lxd/sock": "LXD"}
_LOOP: Final = Path("/dev/loop-control")
NOT_READY: Final = MissingToolError.exit_code


class State(StrEnum):
    PRESENT = "present"
    MISSING = "missing"
    TOO_OLD = "too old"
    UNUSABLE = "unusable here"


@dataclass(frozen=True, slots=True)
class SetupFinding:
    """One need, or a fact of the computer; what is `required` and not present keeps the purpose from working."""

    name: str
    state: State
    remark: str
    required: bool = True


@dataclass(frozen=True, slots=True)
class SetupState:
    """All findings for a purpose. `command` installs what is missing, as root; empty if nothing is."""

    purpose: str
    system: System
    findings: tuple[SetupFinding, ...]
    command: str

    @property
    def lacks(self) -> tuple[SetupFinding, ...]:
        return tuple(each for each in self.findings if each.required and each.state is not State.PRESENT)

    def document(self) -> dict[str, Any]:
        """It as JSON: `distribution` is the one whose packages this computer has, null if none is known."""
        return {
            "purpose": self.purpose,
            "ready": not self.lacks,
            "system": self.system.title,
            "distribution": None if self.system.like is None else self.system.like.key,
            "architecture": platform.machine(),
            "python": platform.python_version(),
            "install": self.command,
            "findings": [
                {"name": each.name, "state": each.state, "remark": each.remark, "required": each.required}
                for each in self.findings
            ],
        }

    def lines(self) -> Iterator[str]:
        """It as text, a finding a line."""
        width = max(len(each.name) for each in self.findings)
        for each in self.findings:
            weak = "" if each.required or each.state is State.PRESENT else " (not always needed)"
            yield f"{each.state:14} {each.name:{width}}  {each.remark}{weak}"
        if self.command:
            yield f"to install what is missing: fsjoule setup --for {self.purpose}, or as root: {self.command}"


def checked(purpose: str) -> SetupState:
    """Look at this computer. Raises ConfigError for an unknown purpose."""
    system = this_system()
    needs = needed(purpose)
    absent = missing(needs, system)
    findings = [*_computer(purpose, system), *(_found(need, system, absent) for need in needs)]
    return SetupState(purpose, system, tuple(findings), by_hand(absent, system) if absent else "")


def _found(need: Need, system: System, absent: tuple[Need, ...]) -> SetupFinding:
    name = " ".join(need.packages(system.like)) if system.like else need.title
    if (why := need.why_not(system.like)) and not need.is_here():
        return SetupFinding(need.name, State.UNUSABLE, why, required=False)
    if need in absent:
        return SetupFinding(name, State.MISSING, need.why, required=not need.optional)
    remark = need.why
    if need.at_least:
        version = version_of(need.programs[0])
        remark = f"{version or 'of an unknown version'}: {need.why}"
        if version and _numbers(version) < _numbers(need.at_least):
            return SetupFinding(name, State.TOO_OLD, f"{remark}; {need.at_least} or newer")
    return SetupFinding(name or need.name, State.PRESENT, remark)


def version_of(program: str) -> str:
    """The version that a program tells of itself; empty if it does not run, or not in time."""
    try:
        done = process.run([program, "--version"], timeout_s=_TRY_S, check=False)
    except (HostError, OSError):
        return ""
    said = done.stdout.decode(errors="replace")
    number = re.search(r"\d+\.\d+(?:\.\d+)?", said)
    return number[0] if number else ""


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def _computer(purpose: str, system: System) -> Iterator[SetupFinding]:
    like = "no table of its packages: it says programs instead" if system.like is None else "its packages are known"
    if not system.tried and system.like is not None:
        like = f"its packages are taken to be those of {system.like.title}, which was not tried"
    yield SetupFinding(system.title, State.PRESENT, like)
    yield _architecture()
    python = platform.python_version()
    enough = sys.version_info[:2] >= _OLDEST_PYTHON
    yield SetupFinding(f"Python {python}", State.PRESENT if enough else State.TOO_OLD, "fsjoule needs 3.11 or newer")
    yield _root()
    if container := _container():
        yield SetupFinding(container, State.PRESENT, "this is a container: it has the host's kernel and its modules")
    if purpose == "tests":
        loop = _loop_devices()
        yield SetupFinding(
            "loop devices",
            State.PRESENT if loop else State.UNUSABLE,
            "disks of an exporter, in tests",
            required=False,
        )
    if purpose in ("bench", "lava", "tests"):
        yield _namespaces()


def _namespaces() -> SetupFinding:
    state, remark = State.PRESENT, "card images without root"
    try:
        process.run(["unshare", "--user", "--map-root-user", "true"], timeout_s=_TRY_S)
    except HostError as error:
        state = State.UNUSABLE
        if error.transient:
            remark = f"not known, {error.what}: {remark}"
    return SetupFinding("user namespaces", state, remark, required=False)


def _architecture() -> SetupFinding:
    machine = platform.machine()
    if sys.maxsize < 1 << 32:
        why = "numpy, scipy and pyarrow have no packages for 32-bit systems: install a 64-bit one"
        return SetupFinding(f"{machine}, 32-bit", State.UNUSABLE, why)
    if machine == "aarch64":
        remark = "zfs for the board is built on x86-64 only; all else is the same"
    else:
        remark = "all works here" if machine in _TRIED else "it was not tried on this architecture"
    return SetupFinding(machine, State.PRESENT, remark)


def _root() -> SetupFinding:
    if os.geteuid() == 0:
        return SetupFinding("root", State.PRESENT, "you are root")
    if find_program("sudo"):
        return SetupFinding("root", State.PRESENT, "by sudo, which may ask for a password")
    why = "you are not root, and there is no sudo: an administrator installs packages"
    return SetupFinding("root", State.MISSING, why, required=False)


def _container() -> str:
    for file, name in _CONTAINERS.items():
        if Path(file).exists():
            return name
    kind = Path("/run/systemd/container")  # systemd.io/CONTAINER_INTERFACE
    return kind.read_text().strip() if kind.is_file() else ""


def _loop_devices() -> bool:
    try:
        os.close(os.open(_LOOP, os.O_RDWR | os.O_CLOEXEC))
    except OSError:
        return False
    return True
