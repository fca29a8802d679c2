#!/usr/bin/env python3
"""How far a mean power is off when the load is in step with the kernel's tick, by the meter's rate.

A board draws a pulse in each tick of its kernel (HZ). The meter's chip converts shunt and bus in turn, without a pause;
at the end of each tick of its own the meter takes the newest conversion. If the two ticks have a common multiple, the
conversions see the same few parts of the kernel's tick again and again, and the mean of seconds is wrong.

A trial draws: the pulse's length and height, the two crystals' difference, the chip's oscillator, and all phases. A
row is one rate and one HZ. `covered` is the share of trials within k=2 of what a calibrated meter would state (0.12 %
of the power, and what it makes of its samples' changes, docs/energy.md). With `--dither` the meter looks at a random
moment of each tick instead of its end. Left out: the meter waits up to two transfers (240 us) for a conversion that is
about to end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
from output import Report, arguments

HZ: Final = (100, 250, 300, 1000)
# The rates that the meter has, and the times of its chip's conversions of shunt and bus there (meter/lib/src/ina219.c).
CONVERSIONS_US: Final = {
    100: (8 * 532, 8 * 532),
    125: (4 * 532, 4 * 532),
    160: (4 * 532, 4 * 532),
    200: (4 * 532, 4 * 532),
    250: (2 * 532, 2 * 532),
    320: (2 * 532, 2 * 532),
    400: (2 * 532, 2 * 532),
    500: (532, 532),
    625: (532, 532),
    800: (532, 532),
    1000: (532, 276),
    1250: (532, 148),
    1600: (276, 148),
    2000: (276, 148),
}
CALIBRATED: Final = 0.0012
# The oscillator of the chip is within a tenth of its typical frequency (TI SBOS448G, 7.5).
_OSCILLATOR: Final = 0.1


@dataclass(frozen=True)
class Load:
    """A pulse in each tick of the kernel: `low_w`, and `height_w` more for `pulse_us` at the beginning."""

    period_us: float
    pulse_us: float
    low_w: float
    height_w: float

    @property
    def mean_w(self) -> float:
        return self.low_w + self.height_w * self.pulse_us / self.period_us

    def energy_uj(self, until_us: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """The energy from 0 to each of the times."""
        whole, rest = np.divmod(until_us, self.period_us)
        return self.low_w * until_us + self.height_w * (whole * self.pulse_us + np.minimum(rest, self.pulse_us))


def sampled_w(
    load: Load, rate_hz: int, seconds: float, rng: np.random.Generator, *, dither: bool = False
) -> npt.NDArray[np.float64]:
    """The samples of one window, with a drawn oscillator and drawn phases. Times are the meter's."""
    slow = 1 + rng.uniform(-_OSCILLATOR, _OSCILLATOR)
    shunt_us, bus_us = (us * slow for us in CONVERSIONS_US[rate_hz])
    cycle_us, tick_us = shunt_us + bus_us, 1e6 / rate_hz
    begin_us = 2 * cycle_us + load.period_us * rng.random()
    ticks = np.arange(round(seconds * rate_hz))
    looks_us = begin_us + tick_us * (ticks + rng.random(len(ticks)) if dither else ticks)
    # The newest cycle that has ended; its first part converted the shunt.
    phase_us = cycle_us * rng.random()
    start_us = np.floor((looks_us - phase_us) / cycle_us - 1) * cycle_us + phase_us
    return (load.energy_uj(start_us + shunt_us) - load.energy_uj(start_us)) / shunt_us


def trial(
    rate_hz: int, hz: int, seconds: float, rng: np.random.Generator, *, dither: bool = False
) -> tuple[float, float]:
    """The error of a window's mean power, and its standard uncertainty, both as fractions of the power."""
    ppm = rng.uniform(-200, 200)
    period_us = 1e6 / hz * (1 + ppm * 1e-6)
    load = Load(period_us, pulse_us=rng.uniform(20, min(500, 0.5 * period_us)), low_w=1.0, height_w=rng.uniform(0.1, 1))
    watts = sampled_w(load, rate_hz, seconds, rng, dither=dither)
    noise_w = float(np.sqrt(np.mean(np.diff(watts) ** 2) / 2 / len(watts)))
    return float(watts.mean()) / load.mean_w - 1, float(np.hypot(CALIBRATED, noise_w / load.mean_w))


def windows(
    rate_hz: int, hz: int, *, trials: int, seconds: float, seed: int, dither: bool = False
) -> npt.NDArray[np.float64]:
    """The trials of one rate and one HZ: error and standard uncertainty, shape (trials, 2)."""
    rng = np.random.default_rng([seed, rate_hz, hz])
    return np.array([trial(rate_hz, hz, seconds, rng, dither=dither) for _ in range(trials)])


def covered(rate_hz: int, hz: int, *, trials: int, seconds: float, seed: int) -> float:
    """The share of windows whose error is within k=2."""
    drawn = windows(rate_hz, hz, trials=trials, seconds=seconds, seed=seed)
    return float(np.mean(np.abs(drawn[:, 0]) <= 2 * drawn[:, 1]))


def main() -> None:
    parser = arguments(str(__doc__), trials=1000)
    parser.add_argument("--seconds", type=float, default=5.0, help="length of the window")
    parser.add_argument("--dither", action="store_true", help="look at a random moment of each tick")
    options = parser.parse_args()
    settings = {name: getattr(options, name) for name in ("trials", "seconds", "seed", "dither")}
    report = Report("Loads in step with the kernel's tick", settings)
    for rate_hz in CONVERSIONS_US:
        for hz in HZ:
            drawn = windows(rate_hz, hz, **settings)
            sizes = np.abs(drawn[:, 0])
            report.rows.append(
                {
                    "rate": rate_hz,
                    "HZ": hz,
                    "median %": round(100 * float(np.median(sizes)), 4),
                    "95 % point %": round(100 * float(np.quantile(sizes, 0.95)), 4),
                    "largest %": round(100 * float(sizes.max()), 3),
                    "covered %": round(100 * float(np.mean(sizes <= 2 * drawn[:, 1])), 1),
                }
            )
    report.show(as_json=options.json)


if __name__ == "__main__":
    main()
