"""Suites as data: the workloads to measure, without filesystem, kernel or board.

For: suites, plans and estimates.
Called by: `bench`, `verdicts`, `report`, `runs`, `ci`, `pytest_plugin`, `cli`.
May call: `filesystems`, `statistics`, `host`, `model`, `errors`.

Entry points: `SUITES` and `suite` (by name), `plan_entries` (a suite becomes an ordered plan), `check_fits` and
`check_modules` (refuse impossible plans early), `estimate` (time, wear and energy). A suite is a TOML file of
`definitions/`, a user's own, or one that a package adds (`hooks.py`); `published/` compares a run with the publication
that its suite repeats. `profile.profile_of` reads a usage profile: what a device does, for advice.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Final

from fsjoule.errors import ConfigError
from fsjoule.hooks import Rows
from fsjoule.model.plan import Plan
from fsjoule.suites.estimate import BoardRates, Pace, PlanEstimate, estimate, learned, left_text
from fsjoule.suites.plan import (
    SCRATCH_ROOT,
    Arranged,
    Planning,
    StorageSpace,
    boot_seed,
    check_fits,
    check_modules,
    plan_entries,
    repetition_seed,
)
from fsjoule.suites.suite import Suite
from fsjoule.suites.suite_file import SUFFIX, read_suite, suites_in

__all__ = [
    "SCRATCH_ROOT",
    "SUITES",
    "Arranged",
    "BoardRates",
    "Pace",
    "PlanEstimate",
    "Planning",
    "StorageSpace",
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
    "suite_of",
]


_OURS: Final = Path(__file__).parent / "definitions"


def _read(offered: Suite | Path) -> Iterable[Suite]:
    """What a package offers: a suite, or a folder of suites."""
    return suites_in(offered) if isinstance(offered, Path) else (offered,)


SUITES: Final = Rows("suite", "fsjoule_suites", Suite, partial(suites_in, _OURS), _read)


def suite(name: str) -> Suite:
    """The suite or part (`elc2015/boot`) of this name, or of a file: `./own.toml`. Raises ConfigError."""
    if name.endswith(SUFFIX):
        own = read_suite(Path(name).expanduser())
        if own.name in SUITES:
            owner = SUITES.owner(own.name)
            raise ConfigError(f"{name}: {owner} has a suite {own.name!r}", hint="give the file another name")
        return own
    whole = SUITES.get(name.split("/", maxsplit=1)[0])
    if whole is None:
        choices = ", ".join(sorted(SUITES))
        raise ConfigError(
            f"unknown suite {name!r}", hint=f"choose from: {choices}; or name a file of yours: ./own{SUFFIX}"
        )
    found = {each.name: each for each in (whole, *whole.parts)}
    if name not in found:
        raise ConfigError.unknown(f"part of {whole.name}", name, found)
    return found[name]


def suite_of(plan: Plan) -> Suite:
    """The suite of a run that goes on. That of a user's file is made of what was planned: the file may have changed."""
    if plan.suite.partition("/")[0] in SUITES:
        return suite(plan.suite)
    workloads = {each.workload.slug: each.workload for each in plan.entries}
    return Suite(plan.suite, plan.suite, tuple(workloads.values()), filesystems=plan.filesystems, repeat=plan.repeat)
