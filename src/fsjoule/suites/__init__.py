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
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from fsjoule.errors import ConfigError
from fsjoule.hooks import Rows
from fsjoule.host.project_file import project_table
from fsjoule.model.plan import Plan
from fsjoule.suites import fio_file
from fsjoule.suites.ageing import check_aged
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
from fsjoule.suites.suite_file import (
    SUFFIX,
    is_suite_name,
    own_files,
    packed,
    read_suite,
    suite_name,
    suites_in,
    unpacked,
)

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
    "check_aged",
    "check_fits",
    "check_modules",
    "estimate",
    "learned",
    "left_text",
    "own_files",
    "packed",
    "plan_entries",
    "project_suites",
    "repetition_seed",
    "suite",
    "suite_of",
    "unpacked",
]


_OURS: Final = Path(__file__).parent / "definitions"


def _read(offered: Suite | Path) -> Iterable[Suite]:
    """What a package offers: a suite, or a folder of suites."""
    return suites_in(offered) if isinstance(offered, Path) else (offered,)


SUITES: Final = Rows("suite", "fsjoule_suites", Suite, partial(suites_in, _OURS), _read)


def suite(name: str) -> Suite:
    """The suite or part (`elc2015/boot`) of this name, or of a file: `./own.toml`, `./own.fio`. Raises ConfigError."""
    if name.endswith((SUFFIX, fio_file.SUFFIX)):
        return _of_file(Path(name).expanduser())
    whole = SUITES.get(name.split("/", maxsplit=1)[0])
    if whole is None:
        own = project_suites()
        if name in own:
            return _of_file(own[name], name)
        choices = ", ".join(sorted({*SUITES, *own}))
        raise ConfigError(
            f"unknown suite {name!r}", hint=f"choose from: {choices}; or name a file of yours: ./own{SUFFIX}"
        )
    found = {each.name: each for each in (whole, *whole.parts)}
    if name not in found:
        raise ConfigError.unknown(f"part of {whole.name}", name, found)
    return found[name]


def _of_file(file: Path, name: str = "") -> Suite:
    name = name or suite_name(file)
    if name in SUITES:
        raise ConfigError(f"{file}: {SUITES.owner(name)} has a suite {name!r}", hint="give the file another name")
    read = fio_file.read_job_file if file.name.endswith(fio_file.SUFFIX) else read_suite
    return replace(read(file, name), file=str(file))


def project_suites() -> dict[str, Path]:
    """The files of the project's suites by name: `[suites]` of fsjoule.toml. Raises ConfigError with file and line."""
    table = project_table("suites")
    suites: dict[str, Path] = {}
    if table is None:
        return suites
    for name, path in table.values.items():
        if not isinstance(path, str) or not path.endswith((SUFFIX, fio_file.SUFFIX)):
            raise table.error(
                f"{name}: {path!r} is no suite", name, hint=f"name a file: suites/own{SUFFIX}, fio/own.fio"
            )
        file = table.file.parent / path
        if not file.is_file():
            raise table.error(f"{name}: there is no {path}", name, hint="the path begins at the folder of fsjoule.toml")
        if not is_suite_name(name):
            raise table.error(f"{name!r} cannot be a suite's name", name, hint="small letters, digits, dots, hyphens")
        if name in SUITES:
            what = f"{name}: {SUITES.owner(name)} has a suite of that name"
            raise table.error(what, name, hint="choose another name")
        suites[name] = file
    return suites


def suite_of(plan: Plan) -> Suite:
    """The suite of a run that goes on. That of a user's file is made of what was planned: the file may have changed."""
    if plan.suite.partition("/")[0] in SUITES:
        return suite(plan.suite)
    workloads = {each.workload.slug: each.workload for each in plan.entries}
    made = Suite(plan.suite, plan.suite, tuple(workloads.values()), filesystems=plan.filesystems, repeat=plan.repeat)
    return replace(made, contents=unpacked(plan.files))
