"""How many times faster than real time one core decodes a PPK2's samples, and what the spike filter has in it.

The load is a board's, in the top range; with --changes it is a sleeping device, which changes its range all the time.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np
from common import show

from fsjoule.meter.protocol.ppk2 import SAMPLE_HZ, FrameReader, parse_metadata
from fsjoule.meter.protocol.ppk2_trace import RATE_HZ, Ppk2Trace
from fsjoule.model import PlainInfo
from fsjoule.virtual.instruments.ppk2 import METADATA, EmulatedPpk2

_CHUNK_BYTES = 4096  # what a serial port hands over at once, at most
_INFO = PlainInfo(
    instrument="ppk2",
    firmware="",
    serial_number="",
    rate_hz=RATE_HZ,
    measures_voltage=True,
    simulated=True,
    settings={},
)


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=60, help="length of the stream (60)")
    parser.add_argument("--repeat", type=int, default=5, help="how often it is decoded (5)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    arguments = parser.parse_args()
    result: dict[str, float | int | str] = {"seconds_of_stream": arguments.seconds}
    for name, amperes in (("board", _board), ("sleeping_device", _sleeper)):
        data = _stream(arguments.seconds, amperes)
        framing, whole = zip(*(_times(data) for _ in range(arguments.repeat)), strict=True)
        result[f"{name}_frames_times_real_time"] = arguments.seconds / statistics.median(framing)
        result[f"{name}_trace_times_real_time"] = arguments.seconds / statistics.median(whole)
    show("Decoding on one core, median processor time", result, as_json=arguments.json)


def _board(times_s: np.ndarray) -> np.ndarray:
    return 0.22 + 0.03 * np.sin(times_s) + 0.04 * (times_s % 0.1 > 0.05)


def _sleeper(times_s: np.ndarray) -> np.ndarray:
    """5 uA, and 80 mA for a millisecond of ten."""
    return np.where(times_s % 0.01 < 0.001, 80e-3, 5e-6)


def _stream(seconds: int, amperes: Callable[[np.ndarray], np.ndarray]) -> bytes:
    device = EmulatedPpk2()
    device.obey(bytes((0x0C, 1)))
    pieces: list[bytes] = []
    for second in range(seconds):
        times_s = second + np.arange(SAMPLE_HZ) / SAMPLE_HZ
        pieces.append(device.encoded(amperes(times_s), np.zeros(SAMPLE_HZ, dtype=np.uint8)))
    return b"".join(pieces)


def _times(data: bytes) -> tuple[float, float]:
    """Processor time of this thread for cutting frames alone, and for making a trace of them."""
    begin = time.thread_time()
    reader = FrameReader()
    for at in range(0, len(data), _CHUNK_BYTES):
        list(reader.feed(data[at : at + _CHUNK_BYTES]))
    framed = time.thread_time()
    trace = Ppk2Trace(_INFO, parse_metadata(METADATA).constants, 5.0, 0)
    for at in range(0, len(data), _CHUNK_BYTES):
        trace.feed(data[at : at + _CHUNK_BYTES], at * 10 // 4)
    taken = trace.take()
    # The last tick is not whole before the sample behind it has come.
    assert len(taken.ticks) == len(data) // 4 * RATE_HZ // SAMPLE_HZ - 1
    assert not taken.faults
    return framed - begin, time.thread_time() - framed


if __name__ == "__main__":
    main()
