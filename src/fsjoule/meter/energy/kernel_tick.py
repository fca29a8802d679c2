"""Whether the meter's rate is in step with the tick of the board's kernel. docs/energy.md explains it."""

from __future__ import annotations

from typing import Final

from fsjoule.model import Ina219Info, MeterInfo

# By HZ: the meter's rates at which a calibrated meter's stated uncertainty covers a load that pulses with the tick in
# less than 95 % of windows, and the rate to set instead. tests/statistics/meter_rates.py simulates 1,000 windows of
# each pair of HZ and a rate that the meter has. With HZ 300 all rates are covered.
_IN_STEP_HZ: Final = {
    100: ((100, 200, 400, 500, 800, 1000, 1600), 625),
    250: ((125, 250, 500, 1000, 1250), 800),
    1000: ((500, 1000, 2000), 625),
}


def tick_notes(meter: MeterInfo, tick_hz: int) -> list[str]:
    """A note if the meter's rate is in step with the kernel's tick, `tick_hz` times a second; 0 is not known."""
    # Other instruments have other ways to sample.
    if not isinstance(meter, Ina219Info) or tick_hz not in _IN_STEP_HZ:
        return []
    in_step_hz, better_hz = _IN_STEP_HZ[tick_hz]
    if meter.rate_hz not in in_step_hz:
        return []
    said = (
        f"the meter's {meter.rate_hz} samples/s are in step with the kernel's tick (HZ {tick_hz}): a load that pulses "
        "with the tick can make joules wrong by percents, and their uncertainty does not tell. Before the next run: "
        f"fsjoule meter set --rate {better_hz} --save"
    )
    return [said]
