"""The record of a measurement's attempt that ended in an error. Pure."""

from __future__ import annotations

import traceback

from fsjoule.errors import FsjouleError, LabError
from fsjoule.model import Fault, LabStep, Planned


def fault_of(
    error: Exception, entry: Planned, *, started_utc: str, ended_utc: str, steps: tuple[LabStep, ...]
) -> Fault:
    """The fault. Any error but the lab's is a bug: a user's mistakes were found before."""
    known = error if isinstance(error, FsjouleError) else None
    return Fault(
        number=entry.number,
        started_utc=started_utc,
        ended_utc=ended_utc,
        what=known.what if known else _traceback(error),
        transient=isinstance(error, LabError) and error.transient,
        bug=not isinstance(error, LabError),
        hint=(known.hint or "") if known else "",
        steps=steps,
        part=error.part if isinstance(error, LabError) else None,
    )


def _traceback(error: Exception) -> str:
    """The error in the first line, its traceback below."""
    said = "".join(traceback.format_exception_only(error)).strip()
    return f"{said}\n{''.join(traceback.format_tb(error.__traceback__))}".rstrip()
