"""pyserial's network client, without the negotiation that it repeats whenever a read has another time limit.

labgrid sets a time limit before every read, and pyserial then sends all settings of the line to ser2net again and waits
at least 50 ms for the answers: a command on the console takes 0.3 s instead of 0.03 s. Nor does it close a connection
that the other side has closed.
"""

from __future__ import annotations

import serial.rfc2217
from labgrid.driver import SerialDriver


class SteadySerial(serial.rfc2217.Serial):
    """A port whose line settings are negotiated once, when it is opened."""

    def close(self) -> None:
        """Close the port, its socket too where the other side is gone: pyserial leaves that to Python's collector."""
        connection = self._socket
        super().close()
        if connection is not None:
            connection.close()

    @property
    def timeout(self) -> float | None:
        """Time limit of a read in seconds. It concerns this side only."""
        return self._timeout

    @timeout.setter
    def timeout(self, timeout: float | None) -> None:
        self._timeout = timeout


def steady(console: object) -> None:
    """Give a stock SerialDriver that is not active yet the steady client, if it has a network port."""
    if isinstance(console, SerialDriver) and type(console.serial) is serial.rfc2217.Serial:
        console.serial = SteadySerial()
