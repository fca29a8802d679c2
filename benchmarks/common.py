"""What the benchmarks share: the meter's own stream over a made-up load, and how a result is shown."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import IO, Any, Final

import numpy as np

from fsjoule.host.messages import lines_to
from fsjoule.virtual.lab import services

_RECORD: Final = np.dtype([("time_ns", "<i8"), ("volts", "<f8"), ("amperes", "<f8")])
_CHUNK_S: Final = 10


@contextmanager
def meter_stream(seconds: int, *, rate_hz: int = 1000, seed: int = 1) -> Generator[IO[bytes]]:
    """What a meter sends over `seconds` of a noisy load, made by the firmware's core while it is read.

    Nothing of it is held in memory.
    """
    with lines_to(lambda text: print(text, file=sys.stderr)):
        program = services.simulator()
    arguments = [program, "--replay", "/dev/stdin", "--rate-hz", str(rate_hz), "--chip-noise-uv", "10"]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as meter:  # noqa: S603 - our own
        assert meter.stdin is not None
        assert meter.stdout is not None
        writer = threading.Thread(target=_write_load, args=(meter.stdin, seconds, rate_hz, seed), daemon=True)
        writer.start()
        yield meter.stdout
        writer.join()


def _write_load(sink: IO[bytes], seconds: int, rate_hz: int, seed: int) -> None:
    """A board: a slow wave, bursts and noise; one record a tick."""
    random = np.random.default_rng(seed)
    step_ns = 1_000_000_000 // rate_hz
    with sink:
        for begin_s in range(0, seconds, _CHUNK_S):
            # One tick more at the end, for what the first record does not hold.
            n = min(_CHUNK_S, seconds - begin_s) * rate_hz + (begin_s + _CHUNK_S >= seconds)
            records = np.zeros(n, dtype=_RECORD)
            ticks = begin_s * rate_hz + np.arange(n)
            records["time_ns"] = ticks * step_ns
            records["volts"] = 5.0
            busy = np.repeat(random.random(n // 50 + 1) > 0.5, 50)[:n]
            records["amperes"] = 0.25 + 0.05 * np.sin(ticks / rate_hz) + 0.04 * busy
            sink.write(records.tobytes())


def show(title: str, result: dict[str, Any], *, as_json: bool) -> None:
    """Print a result: as JSON, or as a short table."""
    if as_json:
        print(json.dumps(result, indent=2))
        return
    print(title)
    width = max(len(name) for name in result)
    for name, value in result.items():
        text = f"{value:,.3g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
        print(f"  {name.replace('_', ' '):<{width}}  {text}")
