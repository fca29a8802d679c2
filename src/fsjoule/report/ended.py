"""Where a run that was not completed ended, and why."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from fsjoule.model import Planned, Run, RunStatus
from fsjoule.model.labels import counted

# How the reason of a run ends that came to its end without all measurements: faults cost them, not the end.
NOT_TAKEN: Final = "were not taken"


def ended_text(run: Run, taken: Iterable[int]) -> str:
    """`It ended at measurement 05 of 12, btrfs-read-16k in repetition 1: interrupted.`; `taken` are those stored."""
    why = (run.abort_reason or "no reason was recorded").rstrip(".")
    if run.status is RunStatus.RUNNING:
        why = "it is still being measured"
    stored = set(taken)
    entry = None if why.endswith(NOT_TAKEN) else _last(run, stored)
    total = len(run.plan.entries)
    if entry is None:
        told = f"{len(stored)} of {counted(total, 'planned measurement')} are stored: {why}."
    else:
        told = f"It ended at measurement {entry.number:02d} of {total}, {_name(run, entry)}: {why}."
    return told + _last_fault(run, stored, entry)


def _name(run: Run, entry: Planned) -> str:
    kernel = f" on kernel {entry.kernel}" if len(run.plan.kernels) > 1 else ""
    return f"{entry.slug} in repetition {entry.repetition}{kernel}"


def _last_fault(run: Run, stored: set[int], ended_at: Planned | None) -> str:
    """The fault that cost the last measurement before the end; empty if it is the end itself, or if there was none."""
    lost = [fault for fault in run.faults if fault.number not in stored]
    if not lost or (ended_at is not None and lost[-1].number == ended_at.number):
        return ""
    named = [_name(run, entry) for entry in run.plan.entries if entry.number == lost[-1].number]
    what = lost[-1].what.partition("\n")[0].rstrip(".")
    return f" The last fault before, at {named[0]}: {what}." if named else ""


def _last(run: Run, stored: set[int]) -> Planned | None:
    """The entry that the run was at: the one with the last fault, if the run ended with it, else the next to come."""
    entries = run.plan.entries
    if run.faults:
        last = run.faults[-1]
        ended_it = bool(run.abort_reason) and run.abort_reason in last.what
        if ended_it and last.number not in stored:
            return next((entry for entry in entries if entry.number == last.number), None)
    tried = stored | {fault.number for fault in run.faults}
    reached = max((i for i, entry in enumerate(entries) if entry.number in tried), default=-1)
    return entries[reached + 1] if reached + 1 < len(entries) else None
