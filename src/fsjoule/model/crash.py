"""What every power cut in a recorded run would leave behind."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from fsjoule.errors import ConfigError

# `17:0-4,6`, `17.2:-`, `17:0-4+5/-8`: `model/write_log.py` explains it.
STATE_NAME: Final = re.compile(
    r"(?P<epoch>\d{1,9})(\.(?P<events>\d{1,9}))?:(?P<writes>-|\d[\d,-]*)(\+(?P<torn>\d{1,9})/(?P<sectors>-?\d{1,9}))?"
)


_LOG: Final = re.compile(r"(?P<log>[0-9a-f]{8,16})/(?P<state>.*)")


def log_and_state(name: str) -> tuple[str, str]:
    """`3f9a1c2e/17:0-3` is a state of one log: the begin of the log's digest, "" if it is not named, and the state."""
    named = _LOG.fullmatch(name)
    return ("", name) if named is None else (named["log"], named["state"])


def check_state_name(name: str) -> None:
    """Raise ConfigError for what is no name of a state."""
    if STATE_NAME.fullmatch(log_and_state(name)[1]) is None:
        raise ConfigError(f"{name!r} is no name of a crash state", hint="for example 17:0-4,6 or 17:- (docs/crash.md)")


class CrashFate(StrEnum):
    """What becomes of a filesystem in one state that a power cut can leave behind. The later ones are losses."""

    OK = "ok"
    UNCLEAN = "unclean"  # all is there, but the checker finds faults
    LOST = "lost"  # a promise is broken
    UNWRITABLE = "unwritable"  # nothing can be written, or read again
    REFUSED = "refused"  # it cannot be mounted
    CRASHED = "crashed"  # the kernel panics, or does not answer any more

    @property
    def is_loss(self) -> bool:
        return self not in (CrashFate.OK, CrashFate.UNCLEAN)


@dataclass(frozen=True, slots=True)
class StateTimes:
    """What a mount or a check took in the checked states, in s by the board's clock, and the slowest state's name."""

    median: float
    p95: float
    most: float
    slowest: str

    @classmethod
    def of(cls, seconds: Mapping[str, float]) -> StateTimes | None:
        """From the times by state; 0 is none: a filesystem that is refused is not checked. None without any."""
        times = sorted((each, name) for name, each in seconds.items() if each)
        if not times:
            return None
        median, p95 = statistics.median(each for each, _ in times), times[math.ceil(0.95 * len(times)) - 1][0]
        return cls(median, p95, *times[-1])

    @property
    def text(self) -> str:
        """`21.3 ms, 95 % up to 30.1 ms, at most 41 ms (0:0-43)`."""
        median, p95, most = (f"{1e3 * each:.3g} ms" for each in (self.median, self.p95, self.most))
        return f"{median}, 95 % up to {p95}, at most {most} ({self.slowest})"


@dataclass(frozen=True, slots=True)
class StateEnergies:
    """The energies of all mounts or all checks, in mJ, gross: that of the whole board meanwhile.

    `uncertainty` (k=1) is the median of a single state's. The `total` has the sum of them all: their causes, such as
    the shunt, are common.
    """

    median: float
    uncertainty: float
    p95: float
    most: float
    hungriest: str
    total: float
    total_uncertainty: float

    @classmethod
    def of(cls, energies: Mapping[str, tuple[float, float]]) -> StateEnergies | None:
        """From value and uncertainty by state; None without any."""
        spread = StateTimes.of({name: value for name, (value, _) in energies.items()})
        if spread is None:
            return None
        values, uncertainties = zip(*energies.values(), strict=True)
        median = spread.median, statistics.median(uncertainties)
        return cls(*median, spread.p95, spread.most, spread.slowest, sum(values), sum(uncertainties))

    @property
    def text(self) -> str:
        """`9.1 mJ ± 0.2 mJ, 95 % up to 12 mJ, at most 14 mJ (0:0-43); 355 mJ ± 8 mJ in all`."""
        one = f"{self.median:.3g} mJ ± {self.uncertainty:.2g} mJ, 95 % up to {self.p95:.3g} mJ"
        most = f"at most {self.most:.3g} mJ ({self.hungriest})"
        return f"{one}, {most}; {self.total:.4g} mJ ± {self.total_uncertainty:.2g} mJ in all"


@dataclass(frozen=True, slots=True)
class CrashFacts:
    """The states of one recorded run, and what became of them.

    The log has so many `writes` in `epochs` (between two flushes), with so many `promises`; `log_sha256` is its digest.
    Of `states` up to the bound, `different` ones by content and promises were to be checked; `checked` counts by fate
    those that were. `torn` counts the losses in which a write was torn. `first_losses` tell the first ones, `cause` why
    the first happens. `mount_s` and `check_s` are the times of all mounts, refused ones too, and of all checks;
    `mount_mj` and `check_mj` their energies, where a meter was.
    """

    log_sha256: str
    writes: int
    epochs: int
    promises: int
    states: int
    different: int
    checked: dict[CrashFate, int]
    torn: int = 0
    first_losses: tuple[str, ...] = ()
    cause: str = ""
    mount_s: StateTimes | None = None
    check_s: StateTimes | None = None
    mount_mj: StateEnergies | None = None
    check_mj: StateEnergies | None = None

    @property
    def count(self) -> int:
        """The states that were checked."""
        return sum(self.checked.values())

    @property
    def losses(self) -> int:
        return sum(count for fate, count in self.checked.items() if fate.is_loss)

    @property
    def text(self) -> str:
        """`0 of 1,234 states are a loss; 12 unclean`, with what was not checked."""
        more = [f"{count:,} {fate.value}" for fate, count in self.checked.items() if fate is not CrashFate.OK]
        missing = self.different - self.count
        more += [f"{missing:,} not checked"] if missing else []
        return "; ".join([f"{self.losses:,} of {self.count:,} states are a loss", *more])
