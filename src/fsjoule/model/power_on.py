"""What the lab knows of a boot from power-on: lines of the console, and when the power was switched on."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ConsoleLine:
    """A line of the console, without its end. Its first byte arrived at `at_s`, or up to `late_s` seconds before."""

    text: str
    at_s: float
    late_s: float = 0.0


@dataclass(frozen=True, slots=True)
class PowerOn:
    """The console since power-on.

    Times are of the host's monotonic clock, which switched the power on from `begin_s` to `end_s`. Those of a board in
    guest time are its own, from 0 on, and `marks` has the lines of its mark line, too; None for other boards.
    """

    begin_s: float
    end_s: float
    lines: tuple[ConsoleLine, ...]
    marks: tuple[ConsoleLine, ...] | None = None
