"""Commands to a meter. A command that is not carried out raises an error with the reason; nothing is retried.

`ClientMeter` is fsjoule's own meter at a desk: marked by the host, without labgrid.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from fsjoule.errors import MeterError
from fsjoule.meter.links.receiver import Receiver
from fsjoule.meter.protocol import commands
from fsjoule.meter.protocol.commands import MeterCommand, ReplyStatus
from fsjoule.meter.protocol.frames import InfoFrame, ReplyFrame
from fsjoule.model import Ina219Info, Ina219Trace

_TIMEOUT_S: Final = 2.0
# A calibration samples for a second; erasing flash stops the meter for up to four seconds.
_LONG_S: Final = {MeterCommand.ZERO: 5.0, MeterCommand.GAIN: 5.0, MeterCommand.SAVE: 6.0, MeterCommand.SELF_TEST: 5.0}
_HINTS: Final[dict[int, str]] = {
    ReplyStatus.UNKNOWN_COMMAND: "the firmware is older than this command: update it",
    ReplyStatus.RATE: "use a divisor of 1,000,000 from 100 to 2000, for example 320, 625 or 800",
    ReplyStatus.BUSY: "a calibration takes a second: try again after it",
    ReplyStatus.CHIP_SILENT: "check the chip's supply and its two I2C wires; fsjoule meter selftest says more",
    ReplyStatus.NOT_STORED: "the settings hold until the meter loses power; fsjoule meter selftest says more",
}


class CommandRefusedError(MeterError):
    """The meter refused a command. `values` are its reply's values: the measurement, if it made one."""

    def __init__(self, command: MeterCommand, reply: ReplyFrame) -> None:
        super().__init__(
            f"the meter refuses the command {command.title!r}: {commands.status_text(reply.status)}",
            transient=reply.status == ReplyStatus.BUSY,
            hint=_HINTS.get(reply.status),
        )
        self.status = reply.status
        self.values = reply.values


@dataclass(frozen=True, slots=True)
class Sent:
    """A command on its way. Its reply repeats `request` as its seq; `sent_s` is monotonic."""

    command: MeterCommand
    request: int
    sent_s: float


@dataclass(frozen=True, slots=True)
class SelfTest:
    """Failures that the meter found (empty if all is well), and one reading."""

    failures: tuple[str, ...]
    shunt_mv: float
    bus_v: float


class MeterClient:
    """Sends commands to the meter behind a receiver."""

    def __init__(self, receiver: Receiver) -> None:
        self.receiver = receiver
        self._one_at_a_time = threading.Lock()

    def info(self) -> InfoFrame:
        """Ask the meter for its info now. Raises MeterError if it does not answer."""
        self.receiver.wait_info()  # refuses a meter of another protocol before anything is sent to it
        self.command(MeterCommand.INFO)
        return self.receiver.wait_info()

    def command(self, command: MeterCommand, payload: bytes = b"") -> tuple[int, int, int]:
        """Send a command and wait. Returns the three values of its reply (docs/meter-protocol.md).

        Raises CommandRefusedError with the meter's reason, MeterError if there is no reply in time.
        """
        with self._one_at_a_time:
            return self.finish(self.begin(command, payload))

    def begin(self, command: MeterCommand, payload: bytes = b"") -> Sent:
        """Send a command without waiting for its reply, to send it at an exact moment."""
        request = secrets.randbits(31) + 1
        data = commands.encode(command, request, payload)
        return Sent(command, request, self.receiver.send(data))

    def finish(self, sent: Sent) -> tuple[int, int, int]:
        """Wait for the reply to a command from `begin`. See `command`."""
        reply = self.receiver.reply(sent.request, sent.sent_s, _LONG_S.get(sent.command, _TIMEOUT_S))
        if reply.status != ReplyStatus.DONE:
            raise CommandRefusedError(sent.command, reply)
        return reply.values

    def change(self, command: MeterCommand, payload: bytes = b"") -> InfoFrame:
        """Send a command that begins a new stream. Returns the new stream's info frame."""
        before = self.receiver.wait_info().status.stream_id
        self.command(command, payload)
        return self.receiver.wait_info(other_than=before)

    def set_rate(self, rate_hz: int) -> InfoFrame:
        return self.change(MeterCommand.RATE, commands.rate(rate_hz))

    def set_range(self, range_mv: int) -> InfoFrame:
        return self.change(MeterCommand.RANGE, commands.measuring_range(range_mv))

    def set_bus_range(self, range_v: int) -> InfoFrame:
        return self.change(MeterCommand.BUS_RANGE, commands.bus_range(range_v))

    def set_shunt(self, shunt_uohm: int) -> InfoFrame:
        return self.change(MeterCommand.SHUNT, commands.shunt(shunt_uohm))

    def start(self) -> InfoFrame:
        return self.change(MeterCommand.START)

    def stop(self) -> InfoFrame:
        self.command(MeterCommand.STOP)
        return self.receiver.wait_info()

    def mark(self, text: str) -> None:
        self.command(MeterCommand.MARK, commands.mark(text))

    def save(self) -> int:
        """Keep settings and calibration over a loss of power. Returns the saved record's generation."""
        return self.command(MeterCommand.SAVE)[0]

    def self_test(self) -> SelfTest:
        """The meter's test of itself."""
        bits, shunt_raw, bus_raw = self.command(MeterCommand.SELF_TEST)
        info = self.receiver.wait_info().info
        failures = commands.self_test_failures(bits)
        return SelfTest(failures, shunt_raw * info.shunt_lsb_uv / 1e3, bus_raw * info.bus_lsb_mv / 1e3)


class ClientMeter:
    """ports.Meter behind a client, with marks of the host."""

    def __init__(self, client: MeterClient) -> None:
        self.client = client

    def info(self) -> Ina219Info:
        return self.client.receiver.wait_info().info

    def arm(self) -> None:
        self.client.receiver.arm()

    def disarm(self) -> Ina219Trace:
        return self.client.receiver.disarm()

    def mark_now(self, text: str) -> Callable[[], None]:
        """Send the mark at this moment; the result waits for the reply, and raises MeterError without one."""
        sent = self.client.begin(MeterCommand.MARK, commands.mark(text))
        return lambda: _done(self.client.finish(sent))


def _done(_values: tuple[int, int, int]) -> None:
    """A mark's reply has no values to tell."""
