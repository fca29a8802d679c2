"""What is kept of an attempt at a measurement that ended in an error. Pure."""

from __future__ import annotations

import traceback

from fsjoule.errors import FsjouleError, LabError
from fsjoule.model import Fault, LabStep, Planned


def fault_of(
    error: Exception, entry: Planned, *, started_utc: str, ended_utc: str, steps: tuple[LabStep, ...]
) -> Fault:
    """The fault. What is no error of the lab is a bug: everything that a user can get wrong was checked before."""
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
    )


def _traceback(error: Exception) -> str:
    """What went wrong in its first line, where in those below."""
    said = "".join(traceback.format_exception_only(error)).strip()
    return f"{said}\n{''.join(traceback.format_tb(error.__traceback__))}".rstrip()
