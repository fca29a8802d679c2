"""How a place is chosen and awaited, as a user writes it: `--place-tag soc=imx6ul --wait 30m --priority 10`."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import Final

from labgrid.remote.common import TAG_KEY

from fsjoule.errors import ConfigError
from fsjoule.model.labels import listed

_UNITS: Final = {"s": 1.0, "m": 60.0, "h": 3600.0}
_TIME: Final = re.compile(r"(\d{1,6}(?:\.\d*)?)([smh])")
_VALUE: Final = re.compile(r"\S+")
# In front of a reservation's token: LG_PLACE=+, LG_PLACE=+TOKEN.
RESERVED: Final = "+"


@dataclass(frozen=True, slots=True)
class Wanted:
    """Any place with all `tags`, or the named one without tags; awaited for at most `wait_s` seconds.

    Waiters are served by `priority`, the highest first, then by age.
    """

    tags: tuple[tuple[str, str], ...] = ()
    wait_s: float = 0.0
    priority: float = 0.0

    @property
    def reserves(self) -> bool:
        """Whether a reservation is needed."""
        return bool(self.tags or self.wait_s)

    def named(self, place: str) -> Wanted:
        """The same, and it must be this place."""
        return replace(self, tags=(*self.tags, ("name", place)))

    def __str__(self) -> str:
        return "a place with " + ", ".join(f"{key}={value}" for key, value in self.tags)


AT_ONCE: Final = Wanted()


def wanted_place(tags: str | None, wait: str | None, priority: float | None) -> Wanted:
    """The options --place-tag, --wait and --priority. Raises ConfigError."""
    found = Wanted(_tags(tags), seconds("--wait", wait) if wait is not None else 0.0, priority or 0.0)
    if not math.isfinite(found.priority):
        raise ConfigError(f"--priority {priority}: it is a number", hint="for example --priority 10")
    if priority is not None and not found.reserves:
        raise ConfigError(
            "--priority orders those who wait for a place, and this run does not wait",
            hint="add --wait 30m, or --place-tag KEY=VALUE",
        )
    return found


def seconds(option: str, text: str) -> float:
    """Seconds in `90s`, `30m` or `2h`. Raises ConfigError."""
    found = _TIME.fullmatch(text.strip())
    if found is None:
        raise ConfigError(f"{option} {text}: it is a number with s, m or h", hint=f"for example {option} 30m")
    return float(found[1]) * _UNITS[found[2]]


def _tags(text: str | None) -> tuple[tuple[str, str], ...]:
    if text is None:
        return ()
    pairs: dict[str, str] = {}
    for each in listed(text):
        key, _, value = each.partition("=")
        if TAG_KEY.fullmatch(key) is None or _VALUE.fullmatch(value) is None or pairs.get(key, value) != value:
            raise ConfigError(
                f"--place-tag {text}: {each!r} is not a tag of a place",
                hint="KEY=VALUE[,KEY=VALUE], for example soc=imx6ul; labgrid-client -p PLACE set-tags sets them",
            )
        pairs[key] = value
    if not pairs:
        raise ConfigError("--place-tag names no tag", hint="for example --place-tag soc=imx6ul")
    return tuple(pairs.items())
