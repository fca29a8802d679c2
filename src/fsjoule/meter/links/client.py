"""Commands to a meter. A command that is not carried out raises an error with the reason; nothing is retried."""

from __future__ import annotations

import secrets
import threading
from dataclasses import dataclass
from typing import Final

from fsjoule.errors import MeterError
from fsjoule.meter.links.receiver import Receiver
from fsjoule.meter.protocol import commands
from fsjoule.meter.protocol.commands import Command, ReplyStatus
from fsjoule.meter.protocol.frames import InfoFrame, ReplyFrame

_TIMEOUT_S: Final = 2.0
# A calibration samples for a second; erasing flash stops the meter for up to four seconds.
_LONG_S: Final = {Command.ZERO: 5.0, Command.GAIN: 5.0, Command.SAVE: 6.0, Command.SELF_TEST: 5.0}
_HINTS: Final[dict[int, str]] = {
    ReplyStatus.UNKNOWN_COMMAND: "the firmware is older than this command: update it",
    ReplyStatus.RATE: "use a divisor of 1,000,000 from 100 to 2000, for example 320, 625 or 800",
    ReplyStatus.BUSY: "a calibration takes a second: try again after it",
    ReplyStatus.CHIP_SILENT: "check the chip's supply and its two I2C wires; fsjoule meter selftest says more",
    ReplyStatus.NOT_STORED: "the settings hold until the meter loses power; fsjoule meter selftest says more",
}


class CommandRefusedError(MeterError):
    """The meter refused a command. `values` are its reply's values: the measurement, if it made one."""

    def __init__(self, command: Command, reply: ReplyFrame) -> None:
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

    command: Command
    request: int
    sent_s: float


class MeterClient:
    """Sends commands to the meter behind a receiver."""

    def __init__(self, receiver: Receiver) -> None:
        self.receiver = receiver
        self._one_at_a_time = threading.Lock()

    def info(self) -> InfoFrame:
        """Ask the meter for its info now. Raises MeterError if it does not answer."""
        self.receiver.wait_info()  # refuses a meter of another protocol before anything is sent to it
        self.command(Command.INFO)
        return self.receiver.wait_info()

    def command(self, command: Command, payload: bytes = b"") -> tuple[int, int, int]:
        """Send a command and wait. Returns the three values of its reply (docs/meter-protocol.md).

        Raises CommandRefusedError with the meter's reason, MeterError if there is no reply in time.
        """
        with self._one_at_a_time:
            return self.finish(self.begin(command, payload))

    def begin(self, command: Command, payload: bytes = b"") -> Sent:
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

    def change(self, command: Command, payload: bytes = b"") -> InfoFrame:
        """Send a command that begins a new stream. Returns the new stream's info frame."""
        before = self.receiver.wait_info().status.stream_id
        self.command(command, payload)
        return self.receiver.wait_info(other_than=before)

    def set_rate(self, rate_hz: int) -> InfoFrame:
        return self.change(Command.RATE, commands.rate(rate_hz))

    def set_range(self, range_mv: int) -> InfoFrame:
        return self.change(Command.RANGE, commands.measuring_range(range_mv))

    def set_bus_range(self, range_v: int) -> InfoFrame:
        return self.change(Command.BUS_RANGE, commands.bus_range(range_v))

    def set_shunt(self, shunt_uohm: int) -> InfoFrame:
        return self.change(Command.SHUNT, commands.shunt(shunt_uohm))

    def start(self) -> InfoFrame:
        return self.change(Command.START)

    def stop(self) -> InfoFrame:
        self.command(Command.STOP)
        return self.receiver.wait_info()

    def mark(self, text: str) -> None:
        self.command(Command.MARK, commands.mark(text))

    def save(self) -> int:
        """Keep settings and calibration over a loss of power. Returns the saved record's generation."""
        return self.command(Command.SAVE)[0]
