"""An emulated PPK2 at 100,000 samples a second for a long time beside a full load: is one lost, does memory grow?

The way is that of `fsjoule meter record`: pseudo terminal, receiving thread, decoder, ticks, a Parquet file.

Example: python benchmarks/ppk2_soak.py --minutes 30
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from common import show
from meter_soak import busy

from fsjoule.host import process
from fsjoule.meter.links import ppk2
from fsjoule.meter.tools.live import LiveReading
from fsjoule.meter.tools.recorder import record_instrument
from fsjoule.store.recordings import Recording

_REPORT_S: Final = 60.0
_VOLTS: Final = 5.0
_STATM: Final = Path("/proc/self/statm")


class _After:
    """Ends a recording after some seconds, and notes the memory meanwhile."""

    def __init__(self, seconds: float) -> None:
        self._end_s = time.monotonic() + seconds
        self._report_s = time.monotonic() + _REPORT_S
        self.memory_mib: list[float] = []

    def wait(self, timeout_s: float) -> bool:
        time.sleep(max(0.0, min(timeout_s, self._end_s - time.monotonic())))
        return time.monotonic() >= self._end_s

    def show(self, reading: LiveReading) -> None:
        if time.monotonic() >= self._report_s:
            self._report_s += _REPORT_S
            self.memory_mib.append(_memory_mib())
            sys.stderr.write(
                f"{reading.seconds / 60:5.1f} min: {reading.received} ticks, {reading.missed} missed, "
                f"{self.memory_mib[-1]:.1f} MiB\n"
            )


def _memory_mib() -> float:
    return int(_STATM.read_text().split()[1]) * resource.getpagesize() / (1 << 20)


def main() -> None:
    """Record, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--busy", type=int, default=os.cpu_count() or 1, help="processes that compute beside it")
    parser.add_argument("--amperes", type=float, default=0.22)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="fsjoule-soak-") as folder:
        link = Path(folder) / "ppk2"
        words = ["--stream-link", link, "--amperes", str(arguments.amperes)]
        emulator = process.start([sys.executable, "-m", "fsjoule.virtual.instruments.ppk2", *words])
        try:
            while not link.exists():
                time.sleep(0.05)
            with busy(arguments.busy), ppk2.meter(f"{link},volts={_VOLTS:g}") as meter:
                begin, cpu = time.monotonic(), time.process_time()
                after = _After(arguments.minutes * 60)
                done = record_instrument(meter, [Path(folder) / "trace.parquet"], Recording, after, show=after.show)
                took_s, cpu_s = time.monotonic() - begin, time.process_time() - cpu
                size_mib = done.files[0].stat().st_size / (1 << 20)
        finally:
            process.stop(emulator)
    reading = done.reading
    wanted_j = arguments.amperes * _VOLTS * reading.seconds
    result = {
        "minutes": arguments.minutes,
        "busy_processes": arguments.busy,
        "load_average": " ".join(f"{each:.1f}" for each in os.getloadavg()),
        "samples": reading.received * 100,
        "missed_ticks": reading.missed,
        "faults": "; ".join(done.faults) or "none",
        "energy_over_the_truth": reading.joules / wanted_j,
        "processor_time_share": cpu_s / took_s,
        "memory_after_a_minute_mib": after.memory_mib[0] if after.memory_mib else 0.0,
        "memory_at_the_end_mib": _memory_mib(),
        "parquet_mib": size_mib,
    }
    show("An emulated PPK2 beside a full load", result, as_json=arguments.json)


if __name__ == "__main__":
    main()
