"""A meter of protocol 2 works as before: it is read, and it gets commands that it understands."""

from __future__ import annotations

import queue
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any, Self

import meter_wire as wire
import pytest

from fsjoule.meter.links.client import MeterClient
from fsjoule.meter.links.receiver import Receiver
from fsjoule.model import Mark, MarkSource

_RATE = 1000


@dataclass
class _OldMeter:
    """The wire of a meter: an emulator of protocol 2 or 3 that answers each command in its own."""

    protocol: int
    reconnects: bool = False
    _arrived: queue.SimpleQueue[bytes] = field(default_factory=queue.SimpleQueue[bytes])
    _seq: int = 0
    _stream_id: int = 5
    _tick: int = 0

    def read(self, timeout_s: float) -> bytes:
        try:
            return self._arrived.get(timeout=timeout_s)
        except queue.Empty:
            self.say_samples()
            return b""

    def write(self, data: bytes) -> None:
        content = wire.uncobs(data[:-1])
        kind, request = content[0], int.from_bytes(content[2:6], "little")
        status = 0 if content[1] == self.protocol else 9
        if status == 0 and kind == 0x13:
            self._stream_id += 1
            self._tick = 0
            self.say_info()
        elif kind == 0x10:
            self.say_info()
        self._say(wire.reply(self._next(), request=request, command=kind, status=status, **self._of_stream()))

    def say_info(self) -> None:
        self._say(wire.info(self._next(), rate_hz=_RATE, **self._of_stream()))

    def say_samples(self) -> None:
        self._say(
            wire.samples(
                self._next(),
                first_tick=self._tick,
                first_time_us=self._tick * 1000,
                energy_raw=self._tick,
                bus_total=self._tick,
                missed_total=0,
                flags=0,
                values=[(1, 1)] * 20,
                **self._of_stream(),
            )
        )
        self._tick += 20

    def say_line(self, line: str) -> None:
        self._say(wire.mark(self._next(), time_us=self._tick * 1000, text=line, **self._of_stream()))

    def raise_if_shared(self) -> None:
        """Nobody else."""

    def close(self) -> None:
        """Nothing to close."""

    def __enter__(self) -> Self:
        self.say_info()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _of_stream(self) -> dict[str, Any]:
        return {"stream_id": self._stream_id, "protocol": self.protocol}

    def _next(self) -> int:
        self._seq += 1
        return self._seq - 1

    def _say(self, frame: bytes) -> None:
        self._arrived.put(frame)


@pytest.fixture(params=[2, 3])
def meter(request: pytest.FixtureRequest) -> _OldMeter:
    return _OldMeter(request.param)


@pytest.fixture
def receiver(meter: _OldMeter) -> Generator[Receiver]:
    receiver = Receiver(lambda: meter)
    yield receiver
    receiver.close()


def test_a_meter_gets_commands_of_its_own_protocol(meter: _OldMeter, receiver: Receiver) -> None:
    client = MeterClient(receiver)
    assert client.info().info.protocol == meter.protocol
    before = client.info().status.stream_id
    assert client.set_rate(_RATE).status.stream_id == before + 1


def test_a_recording_has_the_marks_of_its_board_with_and_without_checks(meter: _OldMeter, receiver: Receiver) -> None:
    receiver.arm()
    if meter.protocol == 2:
        meter.say_line("~S7~2287")
        meter.say_line("~E7~2148")
    meter.say_line("plain")
    for _ in range(5):
        meter.say_samples()
    meter.say_info()
    trace = receiver.disarm()
    checked = [mark for mark in trace.marks if mark.checked]
    assert [mark.text for mark in trace.marks] == (["S7", "plain"] if meter.protocol == 2 else ["plain"])
    assert checked == [Mark(mark.time_us, "S7", MarkSource.LINE, checked=True) for mark in checked]
    faults = ("1 mark damaged on the mark line: '~E7~2148'",) if meter.protocol == 2 else ()
    assert trace.faults == faults
    assert (trace.missed, trace.lost) == (0, 0)
