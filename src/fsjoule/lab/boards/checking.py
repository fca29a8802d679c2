"""Mistakes in a board's files, found before anything runs: drivers, devices, prompts, values that nobody filled in."""

from __future__ import annotations

import io
import os
import re
import socket
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import jinja2
import yaml
from labgrid.exceptions import NoConfigFoundError
from labgrid.remote.config import ResourceConfig

from fsjoule.errors import ConfigError
from fsjoule.kernels.recipe import BOARDS, Recipe, load_recipe, recipes_folder
from fsjoule.lab import EnvironmentFile, missing_drivers, read_environment
from fsjoule.lab.boards.abilities import Abilities
from fsjoule.lab.boards.files import TO_CHANGE, SerialConsole, card_devices, console_of, paths_of
from fsjoule.lab.boards.ways import lacks_ssh_server, ssh_advice
from fsjoule.lab.instruments import MARK_LINE_DRIVER
from fsjoule.model import MIB

_MARK_SPEED: Final = 115200
# The beginning of the names of a flasher's ways in `abilities`. One of them is enough.
_WAY_OF: Final = {
    "UmsFlasher": "USB mass storage",
    "FastbootFlasher": "fastboot",
    "TftpFlasher": "network",
    "InPlaceFlasher": "in place",
}
_UMS: Final = "UmsFlasher"
_SSH_SERVER: Final = "SshServer"
_PPK2_DRIVER: Final = "Ppk2Driver"
_INSTRUMENT_DRIVER: Final = "InstrumentDriver"
_COUNTER_DRIVER: Final = "BoardCounterDriver"
_UNREADABLE: Final = (NoConfigFoundError, OSError, UnicodeDecodeError)


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong: in which file, what, and what to do."""

    file: Path
    what: str
    hint: str
    line: int | None = None

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else str(self.file)
        return f"{place}: {self.what}\n  hint: {self.hint}"


@dataclass(frozen=True, slots=True)
class Checked:
    """A board's files after their check. `exporter` is None if there is no such file to read."""

    environment: EnvironmentFile
    recipe: Recipe
    exporter: Path | None
    problems: tuple[Problem, ...]


def check_board(file: Path, *, exporter: Path | None = None) -> Checked:
    """Check an environment file, its recipe, and the exporter's file of the board (default: `labgrid/<file's name>`).

    Raises ConfigError for a file that cannot be read, and for a recipe that there is not.
    """
    environment = read_environment(file)
    recipe = load_recipe(recipes_folder(), environment.profile.recipe)
    if exporter is None:
        # `fsjoule board new` writes it beside the environment file.
        folder = file.resolve().parent
        part = BOARDS if folder.name == BOARDS else ""
        usual = paths_of(file.stem, folder.parents[1] if part else folder.parent, part=part)["exporter"]
        exporter = usual if usual.is_file() else None
    problems = [*_drivers(environment, recipe), *_board(environment, recipe)]
    if exporter is not None:
        problems += _exporter(exporter, recipe)
    return Checked(environment, recipe, exporter, tuple(problems))


def unable(checked: Checked, abilities: Abilities) -> Iterator[Problem]:
    """Flashers of the environment file for which the board's boot loader lacks something."""
    for driver in checked.environment.drivers:
        ways = [way for way in abilities.ways if way.name.startswith(_WAY_OF.get(driver.cls, "\0"))]
        if ways and all(way.lacks for way in ways):
            lacks = " or ".join(", ".join(way.lacks) for way in ways)
            what = f"{driver.cls} cannot write this card: the boot loader is without {lacks}"
            hint = "take another flasher (docs/flashing.md), or a boot loader with it"
            yield Problem(checked.environment.path, what, hint, driver.line)


def _drivers(environment: EnvironmentFile, recipe: Recipe) -> Iterator[Problem]:
    for driver, what, advice in missing_drivers(environment):
        yield Problem(environment.path, what, advice, driver.line)
    if not environment.has_meter:
        what = "there is no meter: no measurement will have an energy"
        yield Problem(environment.path, what, "add MeterDriver with bindings: {port: meter}")
    for driver in environment.drivers:
        if driver.cls == _UMS and not driver.arguments & {"disk_serial", "disk_link"}:
            what = "UmsFlasher may get any USB disk of the right size, and refuses to write"
            yield Problem(environment.path, what, "add disk_link: /dev/disk/by-path/..., or disk_serial", driver.line)
    yield from _instruments(environment)
    yield from _own_counter(environment)
    servers = [driver for driver in environment.drivers if driver.cls == _SSH_SERVER]
    if servers and (lacking := lacks_ssh_server(recipe)):
        what = f"{lacking}, which SshServer would start"
        yield Problem(environment.path, what, ssh_advice(recipe), servers[0].line)


def _instruments(environment: EnvironmentFile) -> Iterator[Problem]:
    """Instruments that nothing tells the board's marks."""
    is_gpio = environment.profile.mark_line.is_gpio
    stamped = any(driver.cls == MARK_LINE_DRIVER for driver in environment.drivers)
    for driver in environment.drivers:
        has_input = driver.cls == _PPK2_DRIVER and "marks" in driver.arguments
        if driver.cls not in (_PPK2_DRIVER, _INSTRUMENT_DRIVER) or (stamped and not is_gpio and not has_input):
            continue
        if has_input and not stamped:
            if not is_gpio:
                what = f"a PPK2 hears edges of a GPIO and no marks of a UART, as on {environment.profile.mark_device}"
                hint = "wire a GPIO and set mark_device; or leave marks out, and add MarkLineDriver"
                yield Problem(environment.path, what, hint, driver.line)
            continue
        if is_gpio:
            what = f"nothing tells {driver.cls} the edges of the marks' GPIO"
            hint = "a PPK2's marks: D0 names the input; others need marks over a UART, and MarkLineDriver"
        elif has_input:
            what, hint = "the marks come from an input and from MarkLineDriver", "keep one of them"
        else:
            what = f"nothing tells {driver.cls} the board's marks"
            hint = "add MarkLineDriver with bindings: {port: marks}, a serial adapter at the board's mark line"
        yield Problem(environment.path, what, hint, driver.line)


def _own_counter(environment: EnvironmentFile) -> Iterator[Problem]:
    """A board that measures itself has both: the driver, and its counter as the mark line."""
    file, profile = environment.path, environment.profile
    driver = next((each for each in environment.drivers if each.cls == _COUNTER_DRIVER), None)
    name = "mark_device: /sys/class/powercap/ZONE/energy_uj"
    if driver is None:
        if profile.mark_line.is_counter:
            what = f"mark_device is {profile.mark_device}, a counter of the board's own, and no driver reads it"
            yield Problem(file, what, "add BoardCounterDriver: {}", _line(file, "mark_device"))
        return
    if not profile.mark_line.is_counter:
        what = f"{_COUNTER_DRIVER} reads the counter that mark_device names, and {profile.mark_device} is none"
        yield Problem(file, what, f"write {name}", driver.line)
    if "simulated_watts" in driver.arguments and not profile.simulated:
        yield Problem(file, "simulated_watts is for emulated boards only", "remove it: the board counts", driver.line)


def _board(environment: EnvironmentFile, recipe: Recipe) -> Iterator[Problem]:
    profile, file = environment.profile, environment.path
    devices = card_devices(recipe)
    pairs = {
        # The card's own marks, of its boot, need no counter.
        "mark_device": (
            profile.mark_device,
            profile.mark_device if profile.mark_line.is_counter else recipe.boot.mark_device,
        ),
        "card_device": (profile.card_device, devices.card),
        "scratch_device": (profile.scratch_device, devices.scratch),
    }
    for name, (own, wanted) in pairs.items():
        if own != wanted:
            yield Problem(
                file,
                f"{name} is {own}, but the card of {recipe.file} has {wanted}",
                f"write {name}: {wanted}, or correct the recipe",
                _line(file, name),
            )
    yield from _marks(environment, console_of(recipe))
    login = environment.login
    if login is not None and not _matches(login.login_prompt, f"{recipe.hostname} login: "):
        yield Problem(
            file,
            f"login_prompt {login.login_prompt!r} does not match the card's, '{recipe.hostname} login: '",
            f"write login_prompt: '{recipe.hostname} login: '",
            _line(file, "login_prompt"),
        )
    if recipe.boot_loader.pieces and not environment.boot_loader:
        yield Problem(
            file,
            f"the card of {recipe.file} has the board's boot loader, and boot_loader is not set: a card without one "
            "would not be refused",
            "write boot_loader: true",
        )
    if environment.boot_loader and not recipe.boot_loader.pieces:
        what = f"boot_loader is true, but the recipe {recipe.file} puts none on the card: each flashing is refused"
        yield Problem(
            file, what, "add [boot_loader] to the recipe, or write boot_loader: false", _line(file, "boot_loader")
        )
    if recipe.board is not None and environment.virtual_lab is None:
        if profile.simulated:
            yield Problem(
                file, "a real board's figures are not simulated", "write simulated: false", _line(file, "simulated")
            )
        if profile.memory_bytes > recipe.board.memory_mib * MIB:
            what = f"memory_mib is more than the {recipe.board.memory_mib} MiB that a {recipe.board.title} has at least"
            yield Problem(file, what, "correct it if the board has less", _line(file, "memory_mib"))


def _marks(environment: EnvironmentFile, console: SerialConsole) -> Iterator[Problem]:
    profile, file = environment.profile, environment.path
    on_console = profile.mark_device == f"/dev/{console.device}"
    if on_console and not profile.marks_on_console:
        what = f"{console.device} is the console and the mark line: marks would be taken for output"
        hint = "wire a second UART to the meter; or the console's output, too, and write marks_on_console: true"
        yield Problem(file, what, hint, _line(file, "mark_device"))
    if profile.marks_on_console and not on_console:
        what = f"marks_on_console is true, but the console is {console.device}, and the mark line {profile.mark_device}"
        hint = f"write mark_device: /dev/{console.device}, or remove marks_on_console"
        yield Problem(file, what, hint, _line(file, "marks_on_console"))
    if profile.marks_on_console and console.speed != _MARK_SPEED:
        what = f"the meter's mark input has {_MARK_SPEED} baud, but the console {console.speed}"
        hint = "set the console's speed in boot.arguments of the recipe and in the boot loader, or wire a second UART"
        yield Problem(file, what, hint, _line(file, "marks_on_console"))


def _exporter(file: Path, recipe: Recipe) -> Iterator[Problem]:
    groups = exporter_groups(file)
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        if TO_CHANGE in line and not line.lstrip().startswith("##"):
            key = line.strip().partition(":")[0]
            serial = "`fsjoule exporter check` on the exporter's computer shows the serial numbers"
            yield Problem(file, f"{key} is not filled in", "the outlet's address" if key == "host" else serial, number)
    for group, resources in groups.items():
        if "default" not in resources:
            yield Problem(file, f"{group} has no console", "add default: {cls: USBSerialPort, match: ...}")
        elif (speed := resources["default"].get("speed", 115200)) != (wanted := console_of(recipe).speed):
            what = f"the console has {speed} baud, but the kernel and boot loader of {recipe.file} use {wanted}"
            yield Problem(file, what, f"write speed: {wanted}", _line(file, "speed"))


def _matches(pattern: str, text: str) -> bool:
    try:
        return bool(re.search(pattern, text))
    except re.error:
        return False


def _line(file: Path, key: str) -> int | None:
    lines = file.read_text(encoding="utf-8").splitlines()
    return next((number for number, line in enumerate(lines, 1) if re.match(rf"\s*{key}:", line)), None)


def exporter_groups(file: Path) -> dict[str, dict[str, dict[str, Any]]]:
    """Resources by group and name, with their arguments. Raises ConfigError for what the exporter would not take."""
    values = {"env": os.environ, "isolated": False, "hostname": socket.gethostname(), "name": socket.gethostname()}
    config: Any = ResourceConfig  # attrs without types
    try:
        with redirect_stdout(io.StringIO()):  # it prints the file
            document: object = config(str(file.absolute()), values).data
    except _UNREADABLE as error:
        raise ConfigError(f"cannot be read: {error}", file=file, hint="give the exporter's file") from error
    except jinja2.TemplateError as error:
        raise ConfigError(f"not a template: {error}", file=file, hint="labgrid/virtual has an example") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"not YAML: {error}", file=file, hint="indent with spaces, close quotes") from error
    groups = _mapping(document, "the file", file)
    return {name: _resources(name, group, file) for name, group in groups.items()}


def _resources(group: str, written: object, file: Path) -> dict[str, dict[str, Any]]:
    resources = {name: value for name, value in _mapping(written, group, file).items() if name != "location"}
    return {name: _mapping(value, f"{group}: {name}", file) for name, value in resources.items() if value is not None}


def _mapping(value: object, what: str, file: Path) -> dict[str, Any]:
    if not isinstance(value, dict):
        hint = "a file maps groups to resources, a resource its arguments to values; labgrid/boards has examples"
        raise ConfigError(f"{what} must be a mapping (key: value)", file=file, hint=hint)
    return {str(key): each for key, each in cast("dict[object, Any]", value).items()}
