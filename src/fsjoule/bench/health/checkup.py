"""All checks of one place, one after the other. A check that another one's failure makes impossible is not tried."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Final

from fsjoule.bench.health.board import BOOT, CARD, FLASHER, POWER, check_boot, check_card, check_flasher, check_power
from fsjoule.bench.health.meter import CLOCK, MARKS, METER, check_clock, check_counter, check_marks, check_meter
from fsjoule.bench.health.result import Check, Health
from fsjoule.errors import InfrastructureError
from fsjoule.meter.energy.validity import tick_notes
from fsjoule.meter.tools.clock_fit import Drift
from fsjoule.model import BoardProfile
from fsjoule.ports import Board, BoardParts, Clock, Meter, Shell

# Which checks cannot be made without which others.
_NEEDS: Final = {
    FLASHER: (POWER,),
    BOOT: (POWER,),
    CARD: (BOOT,),
    MARKS: (BOOT, METER),
    CLOCK: (BOOT,),
}
_ADVICE: Final = {
    POWER: "the outlet: its address, its socket, its own supply",
    METER: "is the meter plugged in? fsjoule meter list shows all, on the computer beside the board",
    FLASHER: "the mux or the flasher's cable, and its entry in the exporter's file (docs/flashing.md)",
    BOOT: "is a system of this board's recipe on its card? --kernel NAME writes one",
    CARD: "the console: labgrid-client -p PLACE console",
    MARKS: "the console: labgrid-client -p PLACE console",
    CLOCK: "the console: labgrid-client -p PLACE console",
}
_NO_METER: Final = "the environment file has no meter"


@dataclass(frozen=True, slots=True)
class MeterTools:
    """A meter, and what only its stream tells: its notices, and how its clock drifts in so many seconds."""

    meter: Meter
    notices: Callable[[], Sequence[str]] = tuple
    drift: Callable[[float], Drift | None] = lambda _seconds: None


@dataclass
class Checkup:
    """The checks of a place. Whoever makes it switches the board off at the end.

    `least_bytes` is the size of the board's card images; `write` writes one, if the user asked for that.
    """

    board: Board
    parts: BoardParts
    meter: MeterTools | None
    clock: Clock
    profile: BoardProfile
    least_bytes: int = 0
    write: Callable[[], None] | None = None
    _failed: dict[str, str] = field(default_factory=dict[str, str], init=False)
    _shell: Shell | None = field(default=None, init=False)

    def checks(self) -> Generator[Check]:
        """Make the checks. Raises PlaceLostError, and nothing else of the lab's."""
        looks: dict[str, Callable[[], Check]] = {
            POWER: self._power,
            METER: self._meter,
            FLASHER: lambda: check_flasher(self.parts, self.write, self.clock),
            BOOT: self._boot,
            CARD: lambda: check_card(self._booted, self.profile.card_device, self.least_bytes),
            MARKS: self._marks,
            CLOCK: self._clock,
        }
        if self._measures_itself:
            # It can be asked only while it runs.
            looks = {name: looks[name] for name in (POWER, FLASHER, BOOT, METER, CARD, MARKS, CLOCK)}
        for name, look in looks.items():
            yield self._checked(name, look)

    def _checked(self, name: str, look: Callable[[], Check]) -> Check:
        needs = (BOOT,) if name == METER and self._measures_itself else _NEEDS.get(name, ())
        because = next((self._failed[need] for need in needs if need in self._failed), "")
        if because:
            self._failed[name] = because  # the first cause
            return Check(name, Health.NOT_TRIED, f"needs {because}", because=because)
        try:
            check = look()
        except InfrastructureError as error:
            if error.ends_run:
                raise
            first, *rest = error.what.splitlines()
            check = Check(name, Health.BROKEN, first, error.hint or _ADVICE[name], tuple(line.strip() for line in rest))
        if check.health is Health.BROKEN:
            self._failed[name] = name
        return check

    def _power(self) -> Check:
        # While the board is off, the meter's clock stands still in guest time; a board that measures itself is silent.
        asked = None if self.profile.guest_time or self._measures_itself else self.meter
        return check_power(self.board, self.parts, None if asked is None else asked.meter, self.clock)

    def _meter(self) -> Check:
        if self.meter is None:
            return Check(METER, Health.NOT_HERE, _NO_METER)
        if self._measures_itself:
            return check_counter(self.meter.meter, self.clock)
        return check_meter(self.meter.meter, self.clock, self.meter.notices, guest_time=self.profile.guest_time)

    def _boot(self) -> Check:
        check, self._shell = check_boot(self.board, self.parts, self.clock)
        return check

    def _marks(self) -> Check:
        if self.meter is None:
            return Check(MARKS, Health.NOT_HERE, _NO_METER)
        return check_marks(self._booted, self.meter.meter, self.clock, self.profile)

    def _clock(self) -> Check:
        if self.profile.guest_time:
            return Check(CLOCK, Health.NOT_HERE, "the board's time and the meter's stand still while it waits")
        tools = None if METER in self._failed else self.meter
        if tools is None:
            return check_clock(self._booted, self.clock, None)
        notes = tick_notes(tools.meter.info(), self.board.facts().tick_hz)
        return check_clock(self._booted, self.clock, tools.drift, notes)

    @property
    def _measures_itself(self) -> bool:
        return self.profile.mark_line.is_counter

    @property
    def _booted(self) -> Shell:
        assert self._shell is not None
        return self._shell
