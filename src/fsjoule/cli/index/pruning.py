"""The retention that a user asks for, and what it removes."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from fsjoule.cli.common import age, out, print_json
from fsjoule.errors import ConfigError
from fsjoule.model.labels import counted
from fsjoule.report.numbers import ABSENT
from fsjoule.store.index.retention import Kept, Pruning, Retention

_SHOWN: Final = 20


def retention(keep: str, branches: Sequence[str]) -> Retention:
    """The retention of the options --keep and --keep-branch, counted from now. Raises ConfigError."""
    since_utc = _since("--keep", keep)
    kept: dict[str, str] = {}
    for each in branches:
        branch, equals, kept_for = each.partition("=")
        if not branch:
            raise ConfigError(f"--keep-branch {each!r} names no branch", hint="write --keep-branch main or main=2y")
        kept[branch] = _since("--keep-branch", kept_for) if equals else ""
    return Retention(since_utc, kept)


def _since(option: str, text: str) -> str:
    try:
        begin = datetime.now(UTC) - age(option, text)
    except OverflowError as error:
        raise ConfigError(f"{option} {text!r} is too long ago", hint="leave it out: nothing is older") from error
    return begin.isoformat(timespec="seconds").replace("+00:00", "Z")


def show_pruning(found: Pruning, wanted: Retention, *, removed: bool, json_output: bool) -> None:
    """Say what was removed, or would be."""
    if json_output:
        runs = [run._asdict() for run in found.runs]
        print_json({"removed": removed, **dataclasses.asdict(wanted), **dataclasses.asdict(found), "runs": runs})
        return
    shown = [f"  {run.started_utc[:10]}  {run.run_id}  {run.branch or ABSENT}" for run in found.runs[:_SHOWN]]
    if len(found.runs) > _SHOWN:
        shown.append(f"  and {len(found.runs) - _SHOWN} more; --json lists all")
    fate = "removed" if removed else "would be removed"
    kept = ", ".join(
        (
            f"{found.kept[Kept.BRANCH]} of kept branches",
            counted(found.kept[Kept.REFERENCE], "reference"),
            f"{found.kept[Kept.CHANGE]} of changes",
        )
    )
    measured = counted(found.measurements, "measurement")
    lines = [
        f"{counted(len(found.runs), 'run')} from before {wanted.since_utc} {fate}, with {measured}",
        *shown,
        f"older runs that stay: {kept}",
    ]
    if found.runs and not removed:
        lines.append("nothing was removed; add --remove")
    elif found.runs:
        lines.append("run folders are untouched; imports leave these runs out from now on")
    out.print("\n".join(lines), highlight=False, markup=False)
