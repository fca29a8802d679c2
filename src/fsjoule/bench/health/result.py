"""What a check found."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from fsjoule.errors import LabError, MeasurementInvalid


class Health(StrEnum):
    """A check's verdict. `doubtful`: the part works, but figures may suffer or it may soon fail."""

    OK = "ok"
    DOUBTFUL = "doubtful"
    BROKEN = "broken"
    NOT_TRIED = "not tried"  # because of another check
    NOT_HERE = "does not apply"


@dataclass(frozen=True, slots=True)
class Check:
    """A part of a place, what was seen of it in one line, and what to do if it is not well.

    `detail` has further lines, for example of the console. `because` names the check whose failure makes this one
    impossible.
    """

    name: str
    health: Health
    seen: str
    advice: str = ""
    detail: tuple[str, ...] = ()
    because: str = ""


@dataclass(frozen=True, slots=True)
class Complaint:
    """Something that is wrong with a part, and what to do about it."""

    health: Health
    what: str
    advice: str


_WORST_FIRST: Final = (Health.BROKEN, Health.DOUBTFUL)


def judged(name: str, seen: str, complaints: Iterable[Complaint] = ()) -> Check:
    """A check by its complaints; the worst gives verdict and advice, and all of them are told."""
    worst_first = sorted(complaints, key=lambda each: _WORST_FIRST.index(each.health))
    if not worst_first:
        return Check(name, Health.OK, seen)
    text = "; ".join([*(each.what for each in worst_first), *([seen] if seen else [])])
    return Check(name, worst_first[0].health, text, worst_first[0].advice)


def overall(checks: Iterable[Check]) -> Health:
    """The worst verdict."""
    verdicts = {check.health for check in checks}
    return next((health for health in _WORST_FIRST if health in verdicts), Health.OK)


def words(checks: Iterable[Check]) -> str:
    """The checks that are not well: `broken: boot; doubtful: marks, clock`. `all ok` if there is none."""
    made = list(checks)
    by_health = {health: ", ".join(each.name for each in made if each.health is health) for health in _WORST_FIRST}
    return "; ".join(f"{health}: {names}" for health, names in by_health.items() if names) or "all ok"


def exit_code(health: Health) -> int:
    """0; as after a fault of the lab if broken; as after a measurement that is invalid if doubtful."""
    codes = {Health.BROKEN: LabError.exit_code, Health.DOUBTFUL: MeasurementInvalid.exit_code}
    return codes.get(health, 0)
