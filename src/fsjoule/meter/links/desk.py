"""fsjoule's own meter at a desk: marked by the host, without labgrid."""

from __future__ import annotations

from collections.abc import Callable

from fsjoule.meter.links.client import MeterClient
from fsjoule.meter.protocol import commands
from fsjoule.meter.protocol.commands import Command
from fsjoule.model import Ina219Info, Ina219Trace


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
        sent = self.client.begin(Command.MARK, commands.mark(text))
        return lambda: _done(self.client.finish(sent))


def _done(_values: tuple[int, int, int]) -> None:
    """A mark's reply has no values to tell."""
