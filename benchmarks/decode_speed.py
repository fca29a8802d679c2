"""How many times faster than real time one core of the host decodes the meter's stream and builds a trace of it."""

from __future__ import annotations

import argparse
import statistics
import time

from common import meter_stream, show

from fsjoule.meter.protocol.frames import FrameDecoder
from fsjoule.meter.protocol.trace_builder import TraceBuilder

_CHUNK_BYTES = 4096  # what a serial port hands over at once, at most


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=600, help="length of the stream in the meter's time (600)")
    parser.add_argument("--rate-hz", type=int, default=1000, help="samples a second (1000)")
    parser.add_argument("--repeat", type=int, default=5, help="how often it is decoded (5)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    arguments = parser.parse_args()
    with meter_stream(arguments.seconds, rate_hz=arguments.rate_hz) as stream:
        data = stream.read()
    decoding, building = zip(*(_times(data) for _ in range(arguments.repeat)), strict=True)
    decoded_s, built_s = statistics.median(decoding), statistics.median(building)
    result = {
        "seconds_of_stream": arguments.seconds,
        "samples_a_second": arguments.rate_hz,
        "stream_bytes": len(data),
        "decoding_s": decoded_s,
        "decoding_and_building_s": built_s,
        "decoding_times_real_time": arguments.seconds / decoded_s,
        "decoding_and_building_times_real_time": arguments.seconds / built_s,
    }
    show("Decoding on one core, median processor time", result, as_json=arguments.json)


def _times(data: bytes) -> tuple[float, float]:
    """Processor time of this thread for decoding alone, and for decoding and building a trace."""
    begin = time.thread_time()
    decoder = FrameDecoder()
    for at in range(0, len(data), _CHUNK_BYTES):
        decoder.feed(data[at : at + _CHUNK_BYTES])
    decoded = time.thread_time()
    decoder, builder = FrameDecoder(), TraceBuilder()
    for at in range(0, len(data), _CHUNK_BYTES):
        builder.add(decoder.feed(data[at : at + _CHUNK_BYTES]))
    builder.build()
    return decoded - begin, time.thread_time() - decoded


if __name__ == "__main__":
    main()
