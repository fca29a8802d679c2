"""The age of a filesystem under test, a part of its name: `ext4@1y-logger`, `f2fs:noatime@30d-camera-fill60-seed2`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from fsjoule.errors import ConfigError

DEFAULT_FILL: Final = 70
NEW: Final = "0"
_DAYS: Final = {"d": 1, "y": 365}
_TIME: Final = re.compile(r"(?P<number>[1-9]\d{0,4})(?P<unit>[dy])", re.ASCII)
_AGE: Final = re.compile(
    rf"(?P<time>{_TIME.pattern})-(?P<profile>[a-z][a-z0-9]*(?:-[a-z0-9]+)*?)"
    r"(?:-fill(?P<fill>[1-9]\d?))?(?:-seed(?P<seed>[1-9]\d{0,8}))?",
    re.ASCII,
)
_MOST_DAYS: Final = 100 * 365
_SIGN: Final = "@"
_HINT: Final = "for example ext4@1y-logger, or --age 0,1y,5y --age-profile logger"


@dataclass(frozen=True, slots=True)
class Age:
    """So many `days` of a profile of use, with the device `fill` percent full. `seed` chooses sizes and life times."""

    days: int
    profile: str
    fill: int = DEFAULT_FILL
    seed: int = 1

    @property
    def name(self) -> str:
        """Its one name: `1y-logger`, `30d-logger-fill60-seed2`."""
        time = f"{self.days // _DAYS['y']}y" if self.days % _DAYS["y"] == 0 else f"{self.days}d"
        fill = "" if self.fill == DEFAULT_FILL else f"-fill{self.fill}"
        return f"{time}-{self.profile}{fill}" + ("" if self.seed == 1 else f"-seed{self.seed}")

    def aged(self, name: str) -> str:
        """The name of a filesystem at this age. A title of the user's gets the age, too."""
        title, equals, content = name.partition("=")
        if equals and ":" not in title:
            return f"{title}.{self.name}={content}{_SIGN}{self.name}"
        return f"{name}{_SIGN}{self.name}"


def parted(name: str) -> tuple[str, Age | None]:
    """A filesystem's name without its age, and the age. Raises ConfigError for a wrong age."""
    plain, sign, text = name.rpartition(_SIGN)
    match = _AGE.fullmatch(text) if sign else None
    if match is None:
        if _SIGN in name.partition(":")[0]:
            raise ConfigError(f"{name}: {text!r} is no age of a filesystem", hint=_HINT)
        return name, None  # an option of mkfs may have the sign
    return plain, Age(
        days_of(match["time"]), match["profile"], int(match["fill"] or DEFAULT_FILL), int(match["seed"] or 1)
    )


def days_of(text: str) -> int:
    """The days of `30d` or `1y`. Raises ConfigError."""
    match = _TIME.fullmatch(text)
    days = int(match["number"]) * _DAYS[match["unit"]] if match else 0
    if not 0 < days <= _MOST_DAYS:
        raise ConfigError(f"{text!r} is no age", hint=f"days or years, at most 100y: 30d, 1y; {NEW} is new. {_HINT}")
    return days
