"""The files of a real board: labgrid's environment file, the exporter's, the place's."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fsjoule.errors import ConfigError, StorageError
from fsjoule.kernels.recipe import LED_MODULE, MARK_LED, Recipe
from fsjoule.lab.boards.ways import CONSOLE, MUX_RESOURCE, SDMUX, CardAccess, ShellConfig, filled, regular, shell, way
from fsjoule.model import MarkLine

# Stands in a file until somebody writes the true value; `fsjoule board check` finds it.
TO_CHANGE: Final = "CHANGE-ME"
MANUAL: Final = "manual"  # the outlet's model where there is none
PROMPT: Final = "=> "  # U-Boot's own, of a recipe that names none

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_TEXT: Final = re.compile(r"[^'\"{}\s]+")  # between quotation marks of a template
_CONSOLE: Final = re.compile(r"console=(?P<device>tty\w+),(?P<speed>\d+)")
_PARTITION: Final = re.compile(r"/dev/(?P<disk>\w+?)(?P<p>p?)(?P<number>\d)")
_METER_SPEED: Final = 1_000_000
_MARK_SPEED: Final = 115200
_MARK_LINE: Final = "      MarkLineDriver:\n        bindings:\n          port: marks\n"


@dataclass(frozen=True, slots=True)
class Wired:
    """How a board is wired to its lab: the outlet, and serial numbers of USB devices (udev's ID_SERIAL_SHORT).

    With the outlet's model `manual` there is none: somebody switches the board when asked.
    `mux` is the serial number of the SD mux, for a U-Boot with the card the ID_PATH of its USB socket, or its address.
    With `ppk2_volts` the meter is a PPK2 in the board's supply of this voltage, with `instrument` the one at this
    address of `fsjoule meter`. `marks` is the serial number of the adapter at the board's mark line: a PPK2 hears a
    GPIO only, other instruments none.
    """

    outlet_model: str = "shelly_gen2"
    outlet_host: str = TO_CHANGE
    outlet_index: int = 0
    console: str = TO_CHANGE
    meter: str = TO_CHANGE
    mux: str = TO_CHANGE
    ppk2_volts: float | None = None
    instrument: str = ""
    marks: str = TO_CHANGE


@dataclass(frozen=True, slots=True)
class CardDevices:
    """The card as a recipe's kernel names it."""

    card: str
    scratch: str


@dataclass(frozen=True, slots=True)
class SerialConsole:
    device: str
    speed: int


def card_devices(recipe: Recipe) -> CardDevices:
    """The scratch partition is the one behind the root. Raises ConfigError for an unusual name of the root."""
    found = _PARTITION.fullmatch(recipe.boot.root_device)
    if found is None:
        raise ConfigError(
            f"{recipe.file}: {recipe.boot.root_device} is no partition of a card", hint="as /dev/mmcblk0p2"
        )
    return CardDevices(found["disk"], f"/dev/{found['disk']}{found['p']}{int(found['number']) + 1}")


def console_of(recipe: Recipe) -> SerialConsole:
    """The console that the recipe tells the kernel. Raises ConfigError without one."""
    found = next(filter(None, map(_CONSOLE.fullmatch, recipe.boot.arguments)), None)
    if found is None:
        raise ConfigError(
            f"{recipe.file}: boot.arguments name no console with its speed", hint="add console=ttyS0,115200"
        )
    return SerialConsole(found["device"], int(found["speed"]))


def board_files(
    name: str, recipe: Recipe, wired: Wired, flasher: str = SDMUX, reached: str = CONSOLE
) -> dict[str, str]:
    """Texts of a board's files by kind: environment, exporter, places. `reached`: the shell, console or ssh.

    Raises ConfigError for a wrong name, a recipe without a board, and a flasher or shell that the board cannot have.
    """
    if recipe.board is None:
        raise ConfigError(
            f"{recipe.file} describes no real board", hint="add [board] with title and memory_mib; docs/images.md"
        )
    flashed = way(flasher, recipe.board, card_devices(recipe).card)
    speed, on_gpio = console_of(recipe).speed, MarkLine(recipe.boot.mark_device).is_gpio
    deaf = wired.ppk2_volts is not None or bool(wired.instrument)
    if deaf and recipe.boot.mark_device == console_line(recipe):
        raise ConfigError(
            "only fsjoule's own meter hears the marks on the console",
            hint="a second UART for the marks" if wired.instrument else "--mark-gpio, or a second UART for the marks",
        )
    if wired.instrument and on_gpio:
        raise ConfigError("marks on a GPIO are for fsjoule's own meter and a PPK2", hint="a UART for the marks")
    return {
        "environment": _environment(name, recipe, flashed, shell(reached, recipe), wired),
        "exporter": exporter_text(
            name, recipe.board.title, speed, wired, flashed.resource, stamped=deaf and not on_gpio
        ),
        "places": _places(name, recipe),
    }


def console_recipe(name: str, base: Recipe) -> str:
    """The text of a recipe that differs from `base` in its mark line only: it is the console's. Raises ConfigError."""
    return f"""\
# {name}: the recipe {base.name}, with the marks on the console's line (docs/boards). Written by `fsjoule board new`.
base = "{base.name}"

[boot]
mark_device = "{console_line(base)}"
"""


def gpio_recipe(name: str, base: Recipe, pin: str) -> str:
    """The text of a recipe that differs from `base` in its mark line only: a GPIO.

    `pin` is the path of its controller in the device tree and the cells that name the pin there, as in
    `/soc/gpio@7e200000 17 0`. Raises ConfigError.
    """
    words = pin.split()
    controller, cells = " ".join(words[:1]), words[1:]
    if not cells or not all(cell.isdecimal() for cell in cells) or not controller.startswith("/"):
        hint = "--mark-gpio '/soc/gpio@7e200000 17 0', as a property `gpios` would have them"
        raise ConfigError(f"{pin!r} names no pin: it needs the path of a GPIO controller, and numbers", hint=hint)
    modules = [*base.modules.card, *([] if LED_MODULE in base.modules.card else [LED_MODULE])]
    return f"""\
# {name}: the recipe {base.name}, with the marks on a GPIO (docs/boards). Written by `fsjoule board new`.
base = "{base.name}"

[boot]
mark_device = "{MARK_LED}"

[boot.mark_gpio]
controller = "{controller}"
cells = [{", ".join(cells)}]

[modules]
card = {json.dumps(modules)}
"""


def console_line(recipe: Recipe) -> str:
    """The mark line of a board whose meter listens to the console. Raises ConfigError without a console."""
    return f"/dev/{console_of(recipe).device}"


def paths_of(name: str, folder: Path, *, part: str = "") -> dict[str, Path]:
    """Places of a board's files below `folder`, by kind; `part` is the folder of the catalogue, `boards`."""
    labgrid = folder / "labgrid" / part / name
    return {
        "environment": folder / "env" / part / f"{name}.yaml",
        "exporter": labgrid / "exporter.yaml",
        "places": labgrid / "places.yaml",
    }


def write_new(texts: dict[str, str], paths: dict[str, Path]) -> None:
    """Write files that do not exist yet. Raises ConfigError if one does, and then writes none; StorageError."""
    if there := [path for path in paths.values() if path.exists()]:
        raise ConfigError(
            f"already there: {', '.join(map(str, there))}", hint="choose another name, or remove them first"
        )
    try:
        for kind, path in paths.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x", encoding="utf-8") as file:
                file.write(texts[kind])
    except OSError as error:
        raise StorageError(
            f"{error.filename} cannot be written: {error.strerror}", hint="choose another folder"
        ) from error


def _meter(recipe: Recipe, wired: Wired) -> str:
    """The drivers of the meter, and of the mark line of an instrument that does not hear it."""
    if wired.instrument:
        return f"      InstrumentDriver:\n        address: '{wired.instrument}'\n{_MARK_LINE}"
    if wired.ppk2_volts is None:
        return "      MeterDriver:\n        bindings:\n          port: meter\n"
    driver = f"      Ppk2Driver:\n        bindings:\n          port: meter\n        volts: {wired.ppk2_volts:g}\n"
    if MarkLine(recipe.boot.mark_device).is_gpio:
        return f"{driver}        marks: D0\n"
    return f"{driver}{_MARK_LINE}"


def _environment(name: str, recipe: Recipe, flashed: CardAccess, reached: ShellConfig, wired: Wired) -> str:
    assert recipe.board is not None
    devices = card_devices(recipe)
    loader = "        boot_loader: true\n" if recipe.boot_loader.pieces else ""
    marks = f"        mark_device: {recipe.boot.mark_device}\n"
    if recipe.boot.mark_device == console_line(recipe):
        marks += "        marks_on_console: true\n"
    return f"""\
# {recipe.board.title}, a real board with its card {flashed.place} (docs/boards). Written by `fsjoule board new`.
# Set LG_COORDINATOR and LG_PLACE.
imports:
  - fsjoule.lab
targets:
  main:
    resources:
      RemotePlace:
        name: !template $LG_PLACE
{reached.resources}\
    drivers:
      {"ManualPowerDriver" if wired.outlet_model == MANUAL else "NetworkPowerDriver"}: {{}}
      SerialDriver:
        bindings:
          port: default
      ShellDriver:
        login_prompt: '{recipe.hostname} login: '
        username: root
        prompt: 'root@{recipe.hostname}:~# '
        login_timeout: 60
{reached.drivers}\
{filled(flashed.drivers, name, wired.mux)}\
{_meter(recipe, wired)}      BoardStrategy:
        board: {name}
        recipe: {recipe.name}
        simulated: false
{marks}\
        card_device: {devices.card}
        scratch_device: {devices.scratch}
        memory_mib: {recipe.board.memory_mib}
        size_factor: 1.0
        off_time: 3.0
        boot_timeout: 120
        # The boot loader says something within seconds of power-on.
        silence_timeout: 20
{loader}\
        # The boot loader shows its prompt if it finds nothing to boot.
        boot_failure: '\\r\\n{regular(recipe.board.prompt)}'
"""


def _outlet(wired: Wired) -> str:
    if wired.outlet_model == MANUAL:
        return ""
    return f"""\
  NetworkPowerPort:
    model: {wired.outlet_model}
    host: '{wired.outlet_host}'
    index: {wired.outlet_index}
"""


def _meter_ports(wired: Wired, *, stamped: bool) -> str:
    """The meter's port, and that of the mark line for a meter that hears none."""
    ports = ""
    if not wired.instrument:
        # Interface 3 of a PPK2's newer firmware is a shell.
        last = "      ID_USB_INTERFACE_NUM: '01'\n" if wired.ppk2_volts is not None else f"    speed: {_METER_SPEED}\n"
        ports = f"""\
  ## The meter is a named serial port, so that stock labgrid tools know its class.
  meter:
    cls: USBSerialPort
    match:
      ID_SERIAL_SHORT: '{wired.meter}'
{last}"""
    if not stamped:
        return ports
    return f"""\
{ports}\
  ## A serial adapter at the board's mark line, for a meter that hears none.
  marks:
    cls: USBSerialPort
    match:
      ID_SERIAL_SHORT: '{wired.marks}'
    speed: {_MARK_SPEED}
"""


def exporter_text(
    name: str, title: str, console_speed: int, wired: Wired, card: str = MUX_RESOURCE, *, stamped: bool = False
) -> str:
    """The exporter's file of one board, whose console has this speed; `card` are the lines of the card's device.

    With `stamped` an instrument's marks come from a serial adapter.

    Raises ConfigError for a name that cannot be one, and for text that a file must not have.
    """
    named = {"the name of a board and its place": name, "the name of an outlet's model": wired.outlet_model}
    for what, text in named.items():
        if not _NAME.fullmatch(text):
            raise ConfigError(f"{text!r} cannot be {what}", hint="letters, digits, dot, hyphen, underscore")
    for text in (wired.outlet_host, wired.console, wired.meter, wired.mux, wired.marks):
        if not _TEXT.fullmatch(text):
            raise ConfigError(f"{text!r} is no address or serial number", hint="it has no quotation marks and braces")
    return f"""\
## Exporter of a board: {title}. `fsjoule exporter check` shows the serial numbers of
## the devices on its computer.
{name}:
{_outlet(wired)}\
  ## The console is called default, so that a SerialDriver without a name and `labgrid-client console` find it.
  default:
    cls: USBSerialPort
    match:
      ID_SERIAL_SHORT: '{wired.console}'
    speed: {console_speed}
{_meter_ports(wired, stamped=stamped)}{filled(card, name, wired.mux)}"""


def _places(name: str, recipe: Recipe) -> str:
    assert recipe.board is not None
    return f"""\
# The board's place, for a new coordinator: put this file into its state directory before it starts.
# On a running coordinator use: labgrid-client -p {name} create, add-match '*/{name}/*', set-tags board={name}
{name}:
  aliases: []
  comment: {recipe.board.title}
  tags:
    board: {name}
  matches:
    - exporter: '*'
      group: {name}
      cls: '*'
  created: 0.0
  changed: 0.0
"""
