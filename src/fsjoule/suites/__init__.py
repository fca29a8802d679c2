"""Suites as data: the workloads to measure, without filesystem, kernel or board.

For: suites, plans and estimates.
Called by: `bench`, `verdicts`, `report`, `runs`, `ci`, `pytest_plugin`, `cli`.
May call: `filesystems`, `statistics`, `host`, `model`, `errors`.

Entry points: `SUITES` and `suite` (by name), `plan_entries` (a suite becomes an ordered plan), `check_fits` and
`check_modules` (refuse impossible plans early), `estimate` (time, wear and energy). A suite is a module of
`definitions/`, with the figures and statements of the publication that it repeats, if any; `published/` compares a run
with them. `profile.profile_of` reads a usage profile: what a device does, for advice.
"""

from __future__ import annotations

from typing import Final

from fsjoule.errors import ConfigError
from fsjoule.suites.discovery import defined
from fsjoule.suites.estimate import Estimate, Rates, estimate, learned
from fsjoule.suites.pace import Pace, left_text
from fsjoule.suites.plan import (
    SCRATCH_ROOT,
    Arranged,
    Planning,
    Space,
    boot_seed,
    check_fits,
    check_modules,
    plan_entries,
    repetition_seed,
)
from fsjoule.suites.suite import Suite

__all__ = [
    "SCRATCH_ROOT",
    "SUITES",
    "Arranged",
    "Estimate",
    "Pace",
    "Planning",
    "Rates",
    "Space",
    "Suite",
    "boot_seed",
    "check_fits",
    "check_modules",
    "estimate",
    "learned",
    "left_text",
    "plan_entries",
    "repetition_seed",
    "suite",
]


# Ours before those of publications.
SUITES: Final = {each.name: each for each in sorted(defined(Suite), key=lambda each: (bool(each.source), each.name))}


def suite(name: str) -> Suite:
    """The suite or part (`elc2015/boot`) of this name. Raises ConfigError with the choices."""
    whole = SUITES.get(name.split("/", maxsplit=1)[0])
    if whole is None:
        raise ConfigError.unknown("suite", name, SUITES)
    found = {each.name: each for each in (whole, *whole.parts)}
    if name not in found:
        raise ConfigError.unknown(f"part of {whole.name}", name, found)
    return found[name]
