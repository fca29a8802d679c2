"""What the uncertainty of fsjoule's own meter takes from its chip. Each chip has a file of its own beside this one."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ChipLimits:
    """Limits of a chip's errors at 25 degrees, each +-, and their drifts per kelvin.

    `shunt_step_v` and `bus_step_v` are the steps of its converters. The shunt's offset `offset_v` holds at
    `offset_at_v` on the bus and grows by `offset_per_volt` from there. Gains are fractions of a reading.
    `noise_v` is the standard deviation of a reading of the shunt by the chip's own noise; 0 is one below its step.
    """

    shunt_step_v: float
    bus_step_v: float
    noise_v: float
    offset_v: float
    offset_at_v: float
    offset_per_volt: float
    offset_per_kelvin_v: float
    bus_offset_v: float
    bus_offset_per_kelvin_v: float
    current_gain: float
    current_gain_per_kelvin: float
    bus_gain: float
    bus_gain_per_kelvin: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ChipTiming:
    """Typical times in s: a turn of all its conversions, and how long it looks at the shunt within a turn.

    `age_s` is how old the middle of that look is when the chip shows it. `read_s` is how long after the end of a tick
    a real meter reads the shunt: in the midst of its transfer, at 400 kHz.
    """

    turn_s: float
    shunt_s: float
    age_s: float
    read_s: float
