"""Whether memory stays flat over an hour of the meter's stream: decoded, taken every second, written to two files."""

from __future__ import annotations

import argparse
import resource
import tempfile
from pathlib import Path

from common import meter_stream, show

from fsjoule.meter.protocol.frames import Frame, FrameDecoder, SamplesFrame
from fsjoule.meter.protocol.trace_builder import TraceBuilder
from fsjoule.store.recordings import Recording

_CHUNK_BYTES = 4096
_WARM_UP_S = 300.0  # buffers and libraries have their size by then


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=3600, help="length of the stream in the meter's time (3600)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        sizes = _sizes_mib(arguments.seconds, Path(folder))
        files = {path.suffix[1:] + "_bytes": path.stat().st_size for path in Path(folder).iterdir()}
    warm, rest = sizes[0], sizes[1:]
    result = {
        "seconds_of_stream": arguments.seconds,
        "resident_mib_after_5_minutes": warm,
        "resident_mib_at_most_later": max(rest, default=warm),
        "resident_mib_at_the_end": sizes[-1],
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        **files,
    }
    show("Memory of a recording", result, as_json=arguments.json)


def _sizes_mib(seconds: int, folder: Path) -> list[float]:
    """Resident memory after the first five minutes of the stream and after every minute that follows."""
    decoder, builder = FrameDecoder(), TraceBuilder()
    sizes: list[float] = []
    taken_s, measured_s = 0.0, min(_WARM_UP_S, seconds / 2) - 60
    with (
        meter_stream(seconds) as stream,
        Recording(folder / "trace.parquet") as parquet,
        Recording(folder / "trace.csv") as csv,
    ):
        while data := stream.read(_CHUNK_BYTES):
            frames = decoder.feed(data)
            builder.add(frames)
            now_s = _time_s(frames, taken_s)
            if now_s >= taken_s + 1:
                taken_s = now_s
                piece = builder.take()
                parquet.write(piece)
                csv.write(piece)
            if now_s >= measured_s + 60:
                measured_s = now_s
                sizes.append(_resident_mib())
        parquet.write(builder.take())
    sizes.append(_resident_mib())
    return sizes


def _time_s(frames: list[Frame], before_s: float) -> float:
    times = [frame.first_time_us * 1e-6 for frame in frames if isinstance(frame, SamplesFrame)]
    return max(times, default=before_s)


def _resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


if __name__ == "__main__":
    main()
