"""pyserial's network client, without the negotiation that it repeats for each new read timeout.

labgrid sets a timeout before every read. Then pyserial sends all line settings to ser2net again and waits at least
50 ms for the answers: a command on the console takes 0.3 s instead of 0.03 s. It also leaves dead connections open.
"""

from __future__ import annotations

import serial.rfc2217
from labgrid.driver import SerialDriver


class SteadySerial(serial.rfc2217.Serial):
    """A port that negotiates its line settings once, when it is opened."""

    def close(self) -> None:
        """Close the port and its socket, which pyserial leaves to the garbage collector if the other side is gone."""
        connection = self._socket
        super().close()
        if connection is not None:
            connection.close()

    @property
    def timeout(self) -> float | None:
        return self._timeout

    @timeout.setter
    def timeout(self, timeout: float | None) -> None:
        self._timeout = timeout


def steady(console: object) -> None:
    """Give an inactive SerialDriver the steady client, if it has a network port."""
    if isinstance(console, SerialDriver) and type(console.serial) is serial.rfc2217.Serial:
        console.serial = SteadySerial()
