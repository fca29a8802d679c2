"""The ages that a user asks for: each filesystem is measured at each of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import Final

from fsjoule.errors import ConfigError
from fsjoule.filesystems import filesystem, named_filesystems
from fsjoule.model.age import DEFAULT_FILL, NEW, Age, days_of
from fsjoule.model.labels import listed
from fsjoule.runs.options import BenchOptions
from fsjoule.suites import suite
from fsjoule.suites.ageing import MOST_TURNS, turns, usage_of
from fsjoule.suites.profile import profile_names

_PREFIX: Final = "age"
_MOST_FILL: Final = 95
_LARGEST_SEED: Final = 999_999_999


def aged_filesystems(names: Iterable[str], options: BenchOptions) -> tuple[str, ...]:
    """The filesystems at the ages of `--age`. Raises ConfigError for a wrong age or profile, also of a name's own."""
    names = tuple(names)
    ages = _ages(options)
    if ages != (None,) and (already := [name for name in names if filesystem(name).age]):
        raise ConfigError(f"--age: {already[0]} has an age already", hint="give the one or the other")
    aged = tuple(filesystem(age.aged(name)).name if age else name for name in names for age in ages)
    _check([age for name in aged if (age := filesystem(name).age)])
    return aged


def filesystems_again(options: BenchOptions) -> tuple[str, ...] | None:
    """The filesystems that are given to a run which goes on, at their ages; None if none are. Raises ConfigError."""
    given = [each.name for each in fields(BenchOptions) if each.name.split("_")[0] == _PREFIX]
    if options.fs is None and all(getattr(options, name) is None for name in given):
        return None
    if options.fs is None and options.suite is None:
        raise ConfigError("--age: a run that goes on has its own ages", hint="leave --age out, or give --fs as well")
    names = suite(options.suite or "").filesystems if options.fs is None else options.fs
    return aged_filesystems(named_filesystems(names), options)


def _ages(options: BenchOptions) -> tuple[Age | None, ...]:
    texts = listed(options.age, option="--age") if options.age is not None else (NEW,)
    fill = DEFAULT_FILL if options.age_fill is None else options.age_fill
    seed = 1 if options.age_seed is None else options.age_seed
    if not texts:
        raise ConfigError("--age names no age", hint="for example --age 0,1y,5y")
    if all(text == NEW for text in texts):
        if (options.age_profile, options.age_fill, options.age_seed) != (None, None, None):
            raise ConfigError("--age-profile, --age-fill and --age-seed are of aged filesystems", hint="--age 0,1y,5y")
        return (None,)
    if options.age_profile is None:
        hint = f"--age-profile {' or '.join(profile_names())} says what the device does in that time"
        raise ConfigError("--age needs a profile of use", hint=hint)
    if not 1 <= fill <= _MOST_FILL:
        raise ConfigError(f"--age-fill {fill}: it is out of range", hint=f"choose 1 to {_MOST_FILL} percent")
    if not 1 <= seed <= _LARGEST_SEED:
        raise ConfigError(f"--age-seed {seed}: it is out of range", hint=f"choose 1 to {_LARGEST_SEED}")
    ages = (None if text == NEW else Age(days_of(text), options.age_profile, fill, seed) for text in texts)
    return tuple(dict.fromkeys(ages))


def _check(ages: Iterable[Age]) -> None:
    """Raise ConfigError for an unknown profile, and for two ages that are replayed as the same."""
    saturated: dict[tuple[str, int, int], Age] = {}
    for age in dict.fromkeys(ages):
        usage_of(age)
        if turns(age) < MOST_TURNS:
            continue
        other = saturated.setdefault((age.profile, age.fill, age.seed), age)
        if other != age:
            days = age.days * MOST_TURNS / turns(age)
            raise ConfigError(
                f"{other.name} and {age.name} are the same: {age.profile} writes its card {MOST_TURNS:g} times in "
                f"{days:.0f} days, and more is not replayed",
                hint=f"choose one of them, and ages below {days:.0f}d",
            )
