"""The energy counter of the board's own processor (powercap), read over the board's shell.

A mark is a reading of the counter, by the command that sends it. Beside that a small program on the board reads it once
a second, so that a wrap-around between two marks is seen. The clock is the board's own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Final, Protocol

import attr
from labgrid.driver import Driver
from labgrid.factory import target_factory

from fsjoule.errors import MeterError
from fsjoule.lab.arguments import number
from fsjoule.meter.protocol.powercap import POWERCAP, RANGE_UJ, UPDATE_US, counted, is_package
from fsjoule.model import MarkLine, PlainInfo, PlainTrace
from fsjoule.model.mark_line import COUNTED
from fsjoule.ports import Shell

# The counter's own update interval (Intel SDM, volume 3B, 15.10.3); the trace has a tick for each.
_UPDATE_US: Final = 1000
_PROGRAM: Final = "/tmp/fsjoule-count"  # noqa: S108 - on the board, whose /tmp is ours alone
# No measurement is longer. The program ends with its recording, and with this limit if the recording is lost.
_LIMIT_S: Final = 6 * 3600
# After a failure a board may not answer any more.
_PATIENCE_S: Final = 10.0
_HINT: Final = "mark_device names the counter: /sys/class/powercap/ZONE/energy_uj, which root can read on the board"


class Simulate(Protocol):
    """Starts a simulated counter on a booted board, in the place of `MarkLine.device`."""

    def __call__(self, shell: Shell, device: str, watts: float) -> None: ...


@target_factory.reg_driver
@attr.s(eq=False)
class BoardCounterDriver(Driver):
    """The board measures itself: `BoardCounterDriver: {}`, and `mark_device` is the counter's file on the board.

    An emulated board has no counter: `simulated_watts` gets one that counts this power.
    """

    bindings = {}  # noqa: RUF012 - labgrid's way
    simulated_watts: float = number(0.0)


class BoardCounter:
    """ports.Meter of the counter that a board's mark line names. `board` is the board's name, for the serial number.

    `shell` gives the shell of the booted board, or None: before the end of its boot a board cannot be asked.
    """

    def __init__(
        self, line: MarkLine, board: str, shell: Callable[[], Shell | None], simulate: Callable[[Shell], None] | None
    ) -> None:
        self._line = line
        self._board = board
        self._shell = shell
        self._simulate = simulate
        self._known: tuple[Shell, PlainInfo] | None = None
        self._recording: tuple[Shell, str] | None = None
        self._faults: tuple[str, ...] = ()

    def info(self) -> PlainInfo:
        """The counter's info. Raises MeterError before the board has booted, and if it has no such counter."""
        shell = self._booted()
        if self._known is None or self._known[0] is not shell:
            if self._simulate is not None:
                self._simulate(shell)
            self._known = shell, self._info(shell)
        return self._known[1]

    def arm(self) -> None:
        """Read the counter from now on. Raises MeterError as `info`."""
        self.info()
        shell = self._booted()
        program = (
            f"left={_LIMIT_S}\n"
            'while [ "$left" -gt 0 ]; do\n'
            f"  {self._line.reading()}\n"
            "  sleep 1\n"
            "  left=$((left - 1))\n"
            "done\n"
        )
        shell.put(_PROGRAM, program.encode())
        command = f"rm -f {COUNTED}; {self._line.reading()}; sh {_PROGRAM} < /dev/null > /dev/null 2>&1 & echo $!"
        done = shell.run(("sh", "-c", command))
        self._recording = shell, done.stdout.strip()

    def disarm(self) -> PlainTrace:
        """Stop reading. Returns everything since `arm`, up to now.

        Raises MeterError if it was not armed, if the board has booted since, or if the counter was not read.
        """
        if self._recording is None:
            raise MeterError("the meter was not armed", hint="call arm() before disarm()")
        (shell, process), self._recording = self._recording, None
        if self._shell() is not shell or self._known is None:
            raise MeterError("the board has booted anew while its counter was being read", transient=True)
        # One that has ended, and for which nobody has waited yet, has no arguments any more.
        runs = f'read -r fsj_ < /proc/{process}/cmdline; [ -n "$fsj_" ] && kill {process}'
        done = shell.run(("sh", "-c", f"{runs} && {{ {self._line.reading()}; }}"), timeout_s=_PATIENCE_S)
        if done.exit_code != 0:
            raise MeterError("the program on the board that reads its counter has ended", transient=True)
        trace = counted(shell.get(COUNTED).decode(errors="replace"), self._known[1])
        return replace(trace, faults=(*trace.faults, *self._faults))

    def _booted(self) -> Shell:
        shell = self._shell()
        if shell is None:
            raise MeterError("the board's own energy counter is read over its shell, after its boot")
        return shell

    def _info(self, shell: Shell) -> PlainInfo:
        zone = PurePosixPath(self._line.device).parent
        wanted = (self._line.device, *(str(zone / name) for name in ("max_energy_range_uj", "name", "simulated")))
        count, largest, name, simulated = (each.decode(errors="replace").strip() for each in shell.get_all(wanted))
        if not count.isdecimal() or not largest.isdecimal():
            raise MeterError(f"the board has no energy counter {self._line.device} that can be read", hint=_HINT)
        if shell.run(("test", "-r", "/proc/timer_list")).exit_code != 0:
            raise MeterError("the board's kernel has no /proc/timer_list, which is the clock of its energy counter")
        named = shell.run(("sh", "-c", f"cat {zone.parent}/*/name")).stdout if is_package(name) else ""
        packages = {each.strip() for each in named.splitlines() if is_package(each.strip())}
        self._faults = (f"{name} is one of the board's {len(packages)} processors",) if len(packages) > 1 else ()
        return PlainInfo(
            instrument=POWERCAP,
            firmware="",
            serial_number=f"{self._board} {zone.name} {name}".rstrip(),
            rate_hz=1_000_000 // _UPDATE_US,
            measures_voltage=False,
            simulated=bool(simulated),
            # A simulated counter says how often it counts.
            settings={UPDATE_US: float(simulated or _UPDATE_US), RANGE_UJ: float(largest)},
        )
