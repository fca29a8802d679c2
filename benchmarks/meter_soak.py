"""A virtual lab's meter received for a long time while every core of this machine is busy: is a sample lost?

The way is the whole one: emulated INA219, firmware core, pty, ser2net, labgrid's place and driver, frame decoder. The
power feed of the lab's board, which stays off, counts as load as well: without it the meter would wait for it.

Example: python benchmarks/meter_soak.py --minutes 30
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from labgrid import Environment
from labgrid.util.ssh import sshmanager

from fsjoule.host.messages import lines_to
from fsjoule.host.paths import project_dir
from fsjoule.lab import MeterDriver, acquired_place, meter
from fsjoule.meter.protocol.frames import Frame, InfoFrame, SamplesFrame
from fsjoule.meter.tools.clock_fit import ClockFit, Drift
from fsjoule.model import MeterInfo
from fsjoule.virtual.lab import lab

_U32: Final = 1 << 32
_REPORT_S: Final = 60.0


@dataclass
class Tally:
    """What arrived, by the meter's own tick numbers: samples, those it missed, those that were lost on the way."""

    info: MeterInfo
    received: int = 0
    missed: int = 0
    lost: int = 0
    clock: ClockFit = field(default_factory=ClockFit)
    _next_tick: int | None = None
    _missed_total: int = 0

    def take(self, frames: Sequence[Frame], heard_s: float) -> None:
        """Count frames that were heard at `heard_s` (monotonic)."""
        for frame in frames:
            if isinstance(frame, InfoFrame):
                self.info = frame.info
            elif isinstance(frame, SamplesFrame):
                self._count(frame, heard_s)

    def _count(self, frame: SamplesFrame, heard_s: float) -> None:
        if self._next_tick is not None:
            missed = (frame.missed_total - self._missed_total) % _U32
            self.missed += missed
            self.lost += frame.first_tick - self._next_tick - missed
        self.received += frame.count
        self._next_tick, self._missed_total = frame.first_tick + frame.count, frame.missed_total
        self.clock.add(frame.first_time_us + frame.count * self.info.tick_us, heard_s)


@dataclass(frozen=True)
class Result:
    """What a soak found. `drift` is the meter's clock against the host's."""

    minutes: float
    busy_processes: int
    received: int
    missed: int
    lost: int
    damaged_frames: int
    drift: Drift | None
    peak_memory_mib: float
    memory_growth_mib: float


def _burn() -> None:
    parent = multiprocessing.parent_process()
    # A soak that is killed ends nobody: whoever keeps a processor busy looks for it himself.
    while parent is not None and parent.is_alive():
        for _ in range(1_000_000):
            pass


@contextmanager
def busy(count: int) -> Generator[None]:
    """Keep `count` processors busy in the body."""
    # Not forked: gRPC has threads.
    burners = [multiprocessing.get_context("spawn").Process(target=_burn, daemon=True) for _ in range(count)]
    for burner in burners:
        burner.start()
    try:
        yield
    finally:
        for burner in burners:
            burner.kill()
            burner.join()


@contextmanager
def metered_lab(program: Path | None) -> Generator[MeterDriver]:
    """The meter's driver in a virtual lab of its own."""
    with tempfile.TemporaryDirectory(prefix="fsjoule-soak-") as state:
        os.environ["FSJOULE_STATE_DIR"] = state
        handle = lab.up("soak", owner_pid=os.getpid(), meter_program=program)
        os.environ.update(handle.environment)
        try:
            with acquired_place(handle.place):
                environment_class: Any = Environment
                labgrid = environment_class(config_file=str(project_dir() / "env" / "virtual.yaml"))
                yield meter(labgrid.get_target())
                labgrid.cleanup()
                sshmanager.close_all()
        finally:
            lab.down("soak")


def soak(driver: MeterDriver, minutes: float, count: int) -> Result:
    """Receive for so many minutes with `count` busy processes beside."""
    tally = Tally(driver.info())
    receiver = driver.client().receiver
    damaged_before = receiver.counters.damaged
    with busy(count), receiver.listening(tally.take):
        begin_s = next_s = time.monotonic()
        settled_mib: float | None = None
        while (elapsed_s := time.monotonic() - begin_s) < minutes * 60:
            if time.monotonic() >= next_s:
                next_s += _REPORT_S
                _say(f"{elapsed_s / 60:4.0f} min: {tally.received} samples, {tally.missed} missed, {tally.lost} lost")
            if settled_mib is None and elapsed_s > min(60.0, minutes * 6):
                settled_mib = _peak_mib()
            time.sleep(0.2)
    peak_mib = _peak_mib()
    return Result(
        minutes=minutes,
        busy_processes=count,
        received=tally.received,
        missed=tally.missed,
        lost=tally.lost,
        damaged_frames=receiver.counters.damaged - damaged_before,
        drift=tally.clock.drift(),
        peak_memory_mib=peak_mib,
        memory_growth_mib=peak_mib - (settled_mib or peak_mib),
    )


def _peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    """Run it; exit code 1 if a sample was missed or lost."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--busy", type=int, default=os.cpu_count() or 1, help="busy processes (default: one a core)")
    parser.add_argument("--meter-program", type=Path, help="for example the firmware built for the host")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with metered_lab(options.meter_program) as driver:
        result = soak(driver, options.minutes, options.busy)
    if options.json:
        print(json.dumps(asdict(result), indent=2))
    else:
        drift = result.drift
        clocks = "no drift known" if drift is None else f"drift {drift.ppm:+.2f} ± {drift.uncertainty_ppm:.2f} ppm"
        print(
            f"{result.minutes:g} min beside {result.busy_processes} busy processes: {result.received} samples "
            f"received, {result.missed} missed, {result.lost} lost, {result.damaged_frames} frames damaged; {clocks}; "
            f"memory grew by {result.memory_growth_mib:.1f} MiB after the first minute"
        )
    return 1 if result.missed or result.lost else 0


if __name__ == "__main__":
    with lines_to(_say):
        sys.exit(main())
