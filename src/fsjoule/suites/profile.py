"""Usage profiles: what a device does in a day and a year. Each is a TOML file of `profiles/`, or the user's own."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Annotated, ClassVar, Final

from pydantic import ConfigDict, Field

from fsjoule.errors import ConfigError
from fsjoule.host.toml_lines import config_text, line_of, only_table, validated

HOURS_PER_DAY: Final = 24
_TABLE: Final = "profile"
_SUFFIX: Final = ".toml"
_HINT: Final = "docs/advice.md explains every field of a profile"
_KIB_PER_MIB: Final = 1024

# Strict: neither `true` nor "1" is a number.
Amount = Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)]
Positive = Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False)]
Share = Annotated[float, Field(strict=True, ge=0, le=1)]
BlockKib = Annotated[int, Field(strict=True, ge=1, le=1 << 20)]


@dataclass(frozen=True, slots=True)
class Traffic:
    """Reads or writes: `random_share` of their bytes at random places, the rest one after the other."""

    mib_per_day: Amount
    block_kib: BlockKib
    random_share: Share = 0.0

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")


@dataclass(frozen=True, slots=True)
class Battery:
    wh: Positive

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")


@dataclass(frozen=True, slots=True)
class RatedCard:
    """The card's size, and the bytes that its vendor lets be written to it."""

    size_gib: Positive
    endurance_tib: Positive

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")


@dataclass(frozen=True, slots=True)
class UsageProfile:
    """The `[profile]` table. Without `battery` or `card` there are no hours and no years.

    `flash_erasures` are those that each block of raw flash is rated for; the default is that of SLC.

    Each fsync follows the write of one block, so there are at most as many as blocks are written. `files_per_day`
    counts small files that are made. `idle_share` is the share of the time without I/O in which the board is on and
    idle; the rest of that time it is off.
    """

    title: str
    reads: Traffic
    writes: Traffic
    fsyncs_per_hour: Amount
    files_per_day: Amount
    idle_share: Share
    power_cuts_per_year: Amount
    battery: Battery | None = None
    card: RatedCard | None = None
    flash_erasures: Positive = 100_000.0

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    @property
    def fsynced_mib_per_day(self) -> float:
        """MiB a day that are written in blocks with an fsync each."""
        return HOURS_PER_DAY * self.fsyncs_per_hour * self.writes.block_kib / _KIB_PER_MIB


def profile_names() -> tuple[str, ...]:
    """The names of the profiles that come with fsjoule."""
    return tuple(sorted(each.name.removesuffix(_SUFFIX) for each in _folder().iterdir() if each.name.endswith(_SUFFIX)))


def profile_of(name: str) -> tuple[str, UsageProfile]:
    """A profile by name, or from a file (`own.toml`, `./own`), with its name. Raises ConfigError."""
    if name.endswith(_SUFFIX) or "/" in name:
        file = Path(name)
        return file.name.removesuffix(_SUFFIX), _parse_profile(config_text(file, "the profile", hint=_HINT), file=file)
    if name not in profile_names():
        raise ConfigError(
            f"unknown profile {name!r}", hint=f"choose from {', '.join(profile_names())}, or name a file: own.toml"
        )
    found = _folder() / f"{name}{_SUFFIX}"
    return name, _parse_profile(found.read_text(encoding="utf-8"), file=Path(found.name))


def _parse_profile(text: str, *, file: Path) -> UsageProfile:
    """Parse a profile; `file` is for messages. Raises ConfigError with file and line."""
    table = only_table(text, file, _TABLE, hint=_HINT)
    profile = validated(UsageProfile, table, text, file, hint=_HINT, within=[_TABLE])
    if profile.fsynced_mib_per_day > profile.writes.mib_per_day:
        raise ConfigError(
            f"fsyncs_per_hour: {profile.fsyncs_per_hour:g} fsyncs of {profile.writes.block_kib} KiB are "
            f"{profile.fsynced_mib_per_day:.4g} MiB a day, but only {profile.writes.mib_per_day:g} MiB are written",
            file=file,
            line=line_of(text, [_TABLE, "fsyncs_per_hour"]),
            hint="an fsync follows the write of one block: fewer fsyncs, or more MiB in writes.mib_per_day",
        )
    return profile


def _folder() -> Path:
    return Path(str(files("fsjoule.suites"))) / "profiles"
