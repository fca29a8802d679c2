"""Where a run that was not completed ended, and why."""

from __future__ import annotations

from collections.abc import Iterable

from fsjoule.model import Planned, Run, RunStatus
from fsjoule.model.labels import counted


def ended_text(run: Run, taken: Iterable[int]) -> str:
    """`It ended at measurement 05 of 12, btrfs-read-16k in repetition 1: interrupted.`; `taken` are those stored."""
    why = (run.abort_reason or "no reason was recorded").rstrip(".")
    if run.status is RunStatus.RUNNING:
        why = "it is still being measured"
    stored = set(taken)
    entry = _last(run, stored)
    total = len(run.plan.entries)
    if entry is None:
        return f"All {counted(total, 'planned measurement')} had been tried: {why}."
    kernel = f" on kernel {entry.kernel}" if len(run.plan.kernels) > 1 else ""
    where = f"{entry.slug} in repetition {entry.repetition}{kernel}"
    return f"It ended at measurement {entry.number:02d} of {total}, {where}: {why}."


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
