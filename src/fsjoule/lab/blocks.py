"""What a block of anybody's labgrid test needs of its target: a meter, whatever the strategy, and a way for the marks.

An environment file may say what fsjoule cannot know of a board with a strategy of its own:

    targets:
      main:
        options:
          fsjoule: {board: pump-2, mark_device: /dev/ttymxc1}
"""

# labgrid ships no types: strict checking would only report their absence.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Final, cast

from labgrid import Target
from labgrid.binding import BindingState
from labgrid.protocol import CommandProtocol
from labgrid.resource.remote import RemotePlace

from fsjoule.errors import BoardError, ConfigError, MeterError
from fsjoule.lab.board_counter import BoardCounterDriver
from fsjoule.lab.energy_analyzer import AnalyzerMeter
from fsjoule.lab.instruments import MARK_LINE_DRIVER, HostMarked, InstrumentBase, MarkLineDriver
from fsjoule.lab.meterdriver import (
    METER_DRIVER,
    GuestTimeMeter,
    MarksOfBoard,
    MeterDriver,
    board_meter,
)
from fsjoule.lab.strategy import BoardStrategy
from fsjoule.lab.translate import lab_errors
from fsjoule.meter.links.client import ClientMeter
from fsjoule.model import MarkLine
from fsjoule.ports import Command, CommandResult, Meter, one_by_one

_OPTION: Final = "fsjoule"
_ANALYZER_METHODS: Final = ("get_statistics", "start", "stop")
_MARK_TIMEOUT_S: Final = 30.0
_READING_TIMEOUT_S: Final = 300.0
_QEMU: Final = "QEMUDriver"


@dataclass(frozen=True, slots=True)
class BlockSettings:
    """What is known of a target's board. `board` names its type in results; `mark_device` is "" without a mark line.

    `simulated`: it is emulated; `guest_time`: its clock and the meter's stop while it waits for input.
    `analyzer_percent` is the limit of error, of a reading, of an energy analyzer that is not fsjoule's.
    """

    board: str = ""
    mark_device: str = ""
    marks_on_console: bool = False
    simulated: bool = False
    guest_time: bool = False
    analyzer_percent: float = 5.0

    @property
    def mark_line(self) -> MarkLine:
        return MarkLine(self.mark_device, self.marks_on_console)


class BlockTarget:
    """A labgrid target as a block needs it. `meter` is None without one."""

    def __init__(self, target: Target) -> None:
        """Raises ConfigError for wrong options of the environment file."""
        self.target = target
        self.settings = _settings(target)
        self._mark_now: Callable[[str], Callable[[], None]] | None = None
        self.meter = self._meter()

    def shell(self) -> ActiveShell | None:
        """The shell of the board, if the test's strategy has one open; nothing is activated for it."""
        for driver in self.target.drivers:
            if isinstance(driver, CommandProtocol) and driver.state is BindingState.active:
                return ActiveShell(driver)
        return None

    def mark(self, text: str, shell: ActiveShell | None) -> Callable[[], None]:
        """Mark this moment: by the host, in guest time by the board, whose clock stands still while the host acts.

        A board's mark is a command of its shell, and takes up to half a second there and back; a host's mark takes
        milliseconds. The result waits until the mark has arrived. Raises MeterError.
        """
        if self._mark_now is not None:
            return self._mark_now(text)
        if shell is None or not self.settings.mark_device:
            raise MeterError(
                "the block cannot be marked: in guest time a board marks it over its shell and its mark line",
                hint="bring the board to its shell before the block, and name its mark_device",
            )
        shell.send_mark(self.settings.mark_line, text)
        return lambda: None

    @property
    def marked_by_host(self) -> bool:
        """Whether the host marks blocks."""
        return self._mark_now is not None

    @property
    def has_mark_line(self) -> bool:
        """Whether the board can mark a command of its own."""
        return bool(self.settings.mark_device)

    def _meter(self) -> Meter | None:
        target, settings = self.target, self.settings
        if any(isinstance(each, BoardCounterDriver) for each in target.drivers):
            strategy = next((each for each in target.drivers if isinstance(each, BoardStrategy)), None)
            if strategy is None:
                raise ConfigError("a board that measures itself needs BoardStrategy", hint="use another meter")
            return board_meter(target, None, lambda: strategy.board_shell)
        own = next((each for each in target.drivers if isinstance(each, MeterDriver)), None)
        other = next((each for each in target.drivers if isinstance(each, InstrumentBase)), None)
        if own is not None:
            with lab_errors("finding the meter", MeterError.part):
                driver: MeterDriver = target.get_driver(METER_DRIVER)
            if settings.guest_time:
                return MarksOfBoard(GuestTimeMeter(driver), settings.mark_line)
            desk = ClientMeter(driver.client())
            self._mark_now = desk.mark_now
            return MarksOfBoard(desk, settings.mark_line) if settings.mark_device else desk
        if other is not None:
            with lab_errors("finding the meter", MeterError.part):
                target.activate(other)
            if settings.guest_time:
                raise ConfigError("only fsjoule's own meter follows a board in guest time", hint="use MeterDriver")
            self._mark_now = other.mark_now
            if settings.mark_device and any(isinstance(each, MarkLineDriver) for each in target.drivers):
                return HostMarked(other, target.get_driver(MARK_LINE_DRIVER))
            self.settings = replace(settings, mark_device="")  # nobody listens to the line
            return other
        return self._analyzer()

    def _analyzer(self) -> Meter | None:
        """The energy analyzer of another package, by labgrid's protocol."""
        for driver in self.target.drivers:
            if all(callable(getattr(driver, name, None)) for name in _ANALYZER_METHODS):
                with lab_errors("finding the meter", MeterError.part):
                    self.target.activate(driver)
                device: Any = getattr(driver, "device", None)
                number = str(getattr(device, "serial", None) or driver.display_name)
                meter = AnalyzerMeter(
                    driver, self.settings.analyzer_percent, number, simulated=bool(getattr(driver, "simulated", False))
                )
                self._mark_now = meter.mark_now
                self.settings = replace(self.settings, mark_device="")
                return meter
        return None


class ActiveShell:
    """ports.Shell, as far as facts of a board need it, on the shell that a test's strategy has opened."""

    def __init__(self, driver: Any) -> None:  # noqa: ANN401 - labgrid's
        self._driver = driver

    def marked(self, line: MarkLine, begin: str, command: str, end: str, timeout_s: float) -> CommandResult:
        """Run a command between the board's own two marks, in one line of its shell."""
        done = f"fsj_status=$?; {line.send(end)}; (exit $fsj_status)"
        text = f"{line.send(begin)}; eval {shlex.quote(command)}; {done}"
        return replace(self._run(text, timeout_s), argv=(command,))

    def plainly(self, command: str, timeout_s: float) -> CommandResult:
        """Run a command of the board's shell."""
        return self._run(command, timeout_s)

    def send_mark(self, line: MarkLine, text: str) -> None:
        """Raises MeterError if the board cannot send it."""
        done = self._run(line.send(text), _MARK_TIMEOUT_S)
        if done.exit_code != 0:
            raise MeterError(
                f"the board cannot send its mark to {line.device}: {done.stdout.strip()[-200:]}",
                hint="mark_device, in the environment file's options, is the board's UART to the meter",
            )

    def run_all(self, commands: Sequence[Command]) -> tuple[CommandResult, ...]:
        """See ports.Shell."""
        return one_by_one(self, commands)

    def run(self, argv: Sequence[str], *, timeout_s: float = 30.0) -> CommandResult:
        """See ports.Shell."""
        return replace(self._run(shlex.join(argv), timeout_s), argv=tuple(argv))

    def get(self, path: str) -> bytes:
        """See ports.Shell; of a text."""
        return self.run(("cat", path), timeout_s=_READING_TIMEOUT_S).stdout.encode()

    def _run(self, command: str, timeout_s: float) -> CommandResult:
        with lab_errors(f"running {command[:80]!r} on the board", BoardError.part):
            lines, errors, exit_code = self._driver.run(command, timeout=timeout_s)
        return CommandResult((command,), exit_code, "\n".join([*lines, *errors]))


def place_of(target: Any) -> str:  # noqa: ANN401 - labgrid's Target
    """The place of a labgrid target; empty for one without."""
    return next((str(each.name) for each in target.resources if isinstance(each, RemotePlace)), "")


def _settings(target: Target) -> BlockSettings:
    config: Any = getattr(target.env, "config", None)
    file = Path(str(getattr(config, "filename", "") or getattr(target.env, "config_file", "") or "environment file"))
    emulated = any(_QEMU in {cls.__name__ for cls in type(each).__mro__} for each in target.drivers)
    strategy = next((each for each in target.drivers if isinstance(each, BoardStrategy)), None)
    known = BlockSettings(simulated=emulated)
    if strategy is not None:
        names = ("board", "mark_device", "marks_on_console", "simulated", "guest_time")
        known = BlockSettings(**{name: getattr(strategy, name) for name in names})
    options: Any = {}
    if config is not None:
        options = config.get_target_option(target.name, _OPTION, default={})
    kinds = {each.name: type(each.default) for each in fields(BlockSettings)}
    hint = f"options: {{fsjoule: {{{', '.join(kinds)}}}}}"
    if not isinstance(options, dict):
        raise ConfigError(f"options of {target.name}: fsjoule: must be a mapping", file=file, hint=hint)
    values = cast("dict[str, Any]", options)
    for name, value in values.items():
        if name not in kinds:
            raise ConfigError(f"options of {target.name}: fsjoule has no {name!r}", file=file, hint=hint)
        fits = isinstance(value, (int, float)) if kinds[name] is float else isinstance(value, kinds[name])
        if not fits or (kinds[name] is float and (isinstance(value, bool) or not value > 0)):
            what = f"options of {target.name}: fsjoule: {name}: {value!r} is wrong"
            raise ConfigError(what, file=file, hint=f"it is a {kinds[name].__name__}: {hint}")
    found = replace(known, **values)
    return found if found.board else replace(found, board=place_of(target) or target.name)
