"""Tries that failed: the fault of each, and what a store has of a boot that begins again, of one try, never of two."""

from __future__ import annotations

import traceback
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass, field

from fsjoule.errors import FsjouleError, InfrastructureError
from fsjoule.model import Fault, LabStep, Measurement, Planned, Trace
from fsjoule.ports import ResultStore


@dataclass(frozen=True, slots=True)
class _Held:
    """A measurement as a store takes it."""

    measurement: Measurement
    trace: Trace | None
    attachments: dict[str, bytes]


@dataclass
class _Unit:
    numbers: list[int] = field(default_factory=list[int])  # in the store
    held: list[_Held] = field(default_factory=list[_Held])
    in_store: bool = False  # the store has the try that is under way


@dataclass
class Tries:
    """Stores each measurement at once, and of a unit (what is measured whole) only one try: the longest so far.

    The first try goes straight into the store. A later one is held back until it has more measurements, and then takes
    the other's place. If the process is killed at that moment, one unit is lost at most.
    """

    store: ResultStore
    _units: dict[Hashable, _Unit] = field(default_factory=dict[Hashable, _Unit], init=False)

    def again(self, unit: Hashable, there: Collection[int] = ()) -> None:
        """What comes now of the unit is another try. A resumed run has these measurements of it already."""
        known = self._units.setdefault(unit, _Unit(list(there)))
        known.held, known.in_store = [], False

    def add(
        self, unit: Hashable, measurement: Measurement, trace: Trace | None, attachments: dict[str, bytes]
    ) -> tuple[Sequence[int], Sequence[Measurement]]:
        """Add a measurement of the try under way; returns the numbers that were withdrawn, and what is stored now.

        Raises StorageError as the store does.
        """
        known = self._units.setdefault(unit, _Unit())
        known.held.append(_Held(measurement, trace, attachments))
        withdrawn: list[int] = []
        if not known.in_store:
            if len(known.held) <= len(known.numbers):
                return (), ()
            withdrawn, known.numbers, known.in_store = known.numbers, [], True
            if withdrawn:
                self.store.withdraw(withdrawn)
        new, known.held = known.held, []
        for each in new:
            self.store.add(each.measurement, each.trace, each.attachments)
            known.numbers.append(each.measurement.number)
        return withdrawn, [each.measurement for each in new]


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
        transient=isinstance(error, InfrastructureError) and error.transient,
        bug=not isinstance(error, InfrastructureError),
        hint=(known.hint or "") if known else "",
        steps=steps,
        part=error.part if isinstance(error, InfrastructureError) else None,
    )


def _traceback(error: Exception) -> str:
    """The error in the first line, its traceback below."""
    said = "".join(traceback.format_exception_only(error)).strip()
    return f"{said}\n{''.join(traceback.format_tb(error.__traceback__))}".rstrip()
