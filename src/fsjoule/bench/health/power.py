"""The board's power: what the outlet says and the meter sees while it is off, on, and off again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from fsjoule.bench.health.result import Check, Complaint, Health, judged
from fsjoule.errors import LabError, MeterError
from fsjoule.ports import Board, BoardParts, Clock, Meter

POWER: Final = "power"
_SETTLE_S: Final = 0.5  # the outlet's relay, and the rest in the board's capacitors
_RECORD_S: Final = 1.0
# The smallest boards draw some 0.3 W at rest, and an INA219 at 0.1 Ohm errs by 6 mW.
_LEAST_RISE_W: Final = 0.03
_MOST_LEFT: Final = 0.1
_OUTLET: Final = "the exporter's file names the outlet and its socket: is it this board's?"
_SWAP: Final = "exchange the two leads in the board's supply line"
_FED: Final = "pull the console's and the meter's cables one by one: a powered UART or USB line can feed a board"


@dataclass(frozen=True, slots=True)
class Moment:
    """What the outlet says (None: it cannot tell), and the mean power by the meter, in W (None: no meter saw it)."""

    outlet: bool | None
    watts: float | None


def check_power(board: Board, parts: BoardParts, meter: Meter | None, clock: Clock) -> Check:
    """Switch the board off, on and off. A meter that is silent is the meter's own check. Raises LabError."""
    board.off()
    clock.sleep(_SETTLE_S)
    before = _moment(parts, meter, clock)
    parts.power_on()
    clock.sleep(_SETTLE_S)
    on = _moment(parts, meter, clock)
    board.off()
    clock.sleep(_SETTLE_S)
    return judge_power(before, on, _moment(parts, meter, clock))


def _moment(parts: BoardParts, meter: Meter | None, clock: Clock) -> Moment:
    try:
        outlet = parts.has_power()
    except LabError:
        outlet = None  # many outlets switch and do not tell
    if meter is None:
        return Moment(outlet, None)
    try:
        meter.arm()
        clock.sleep(_RECORD_S)
        watts = meter.disarm().power_w
    except MeterError:
        return Moment(outlet, None)
    return Moment(outlet, float(watts.mean()) if len(watts) else None)


def judge_power(before: Moment, on: Moment, after: Moment) -> Check:
    told = (before.outlet, on.outlet, after.outlet)
    knows = None not in told
    if before.watts is None or on.watts is None or after.watts is None:
        if not knows:
            return Check(POWER, Health.NOT_HERE, "neither the outlet nor a meter tells; the boot shows it")
        return judged(POWER, f"the outlet says {_said(told)}; no meter saw it", _by_outlet(told))
    seen = f"off {before.watts:.3f} W, on {on.watts:.3f} W, off {after.watts:.3f} W"
    seen += f"; the outlet says {_said(told)}" if knows else "; the outlet does not tell"
    left_w = max(before.watts, after.watts)
    complaints = _by_outlet(told)
    if on.watts < -_LEAST_RISE_W:
        complaints.append(Complaint(Health.BROKEN, "the leads of the meter are swapped: its power is negative", _SWAP))
    elif on.watts - left_w < _LEAST_RISE_W:
        what = "the meter sees no current that comes and goes with the outlet"
        complaints.append(
            Complaint(Health.BROKEN, what, f"is the meter in this board's supply, and is that supply on? {_OUTLET}")
        )
    elif left_w > _MOST_LEFT * on.watts:
        complaints.append(
            Complaint(Health.DOUBTFUL, f"{left_w / on.watts:.0%} of the power stays when it is off", _FED)
        )
    return judged(POWER, seen, complaints)


def _by_outlet(told: tuple[bool | None, ...]) -> list[Complaint]:
    wanted = (False, True, False)
    if all(each in {None, right} for each, right in zip(told, wanted, strict=True)):
        return []
    return [Complaint(Health.BROKEN, f"the outlet was switched {_said(wanted)} and does not follow", _OUTLET)]


def _said(told: tuple[bool | None, ...]) -> str:
    return ", ".join("nothing" if each is None else "on" if each else "off" for each in told)
