"""A meter's line of any load, frame by frame, whose sums and times are right, and what may happen to it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import meter_wire as wire

BUS = 1250  # 5 V


@dataclass
class MeterLine:
    """The frames of a stream of 1000 samples a second, from one 5 V supply."""

    tick: int = 5000
    seq: int = 0
    sums: tuple[int, int] = 777, 99
    stream_id: int = 1
    frames: list[bytes] = field(default_factory=list[bytes])

    def info(self, **changed: Any) -> bytes:
        return self._sent(wire.info(self.seq, stream_id=self.stream_id, **changed))

    def samples(self, shunts: Sequence[int], bus: int = BUS, **changed: Any) -> bytes:
        """The next frame of samples, with some of its numbers changed."""
        raw, total = self.sums
        fields: dict[str, Any] = {
            "first_tick": self.tick,
            "first_time_us": self.tick * 1000,
            "energy_raw": raw,
            "bus_total": total,
            "missed_total": 0,
            "flags": 0,
            "stream_id": self.stream_id,
        }
        self.tick += len(shunts)
        self.sums = raw + sum(shunts) * bus, total + len(shunts) * bus
        return self._sent(wire.samples(self.seq, values=[(each, bus) for each in shunts], **(fields | changed)))

    def mark(self, text: str, *, time_us: int | None = None) -> bytes:
        at = self.tick * 1000 if time_us is None else time_us
        return self._sent(wire.mark(self.seq, time_us=at, text=text, flags=1, stream_id=self.stream_id))

    def _sent(self, frame: bytes) -> bytes:
        self.seq += 1
        self.frames.append(frame)
        return frame


@contextmanager
def served(frames: Iterable[bytes], *, pause_s: float = 0.01) -> Generator[str]:
    """The address of a meter in the network that sends these frames to whoever comes, one after the other."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        ended = threading.Event()

        def serve() -> None:
            try:
                with server.accept()[0] as client:
                    for frame in frames:
                        client.sendall(frame)
                        if ended.wait(pause_s):
                            return
            except OSError:
                return  # the client has gone, or nobody came

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield "{}:{}".format(*server.getsockname())
        ended.set()
    thread.join(timeout=5.0)
