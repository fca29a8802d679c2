"""What an emulated PPK2 says and does: it obeys commands, and encodes the current of its device. Without a clock."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from fsjoule.meter.protocol.ppk2 import Constants, parse_metadata

Floats = npt.NDArray[np.float64]

_COMMAND_BYTES: Final = {0x06: 1, 0x07: 1, 0x0C: 2, 0x0D: 3, 0x11: 2, 0x19: 1}
_COUNTERS: Final = 64
_MOST_RAW: Final = 0x3FFF
# The currents from which on the next range measures.
_RANGE_FROM_A: Final = np.array([50e-6, 500e-6, 5e-3, 50e-3])
# Of one conversion, in steps of the converter.
_NOISE: Final = 0.5

# The calibration of a real PPK2, as the documentation of the Rust crate `ppk2` shows it; only the last lines are ours.
METADATA: Final = b"""\
Calibrated: 0
R0: 1003.3506
R1: 101.5865
R2: 10.3027
R3: 0.9636
R4: 0.0564
GS0: 0.0000
GS1: 112.7890
GS2: 18.0115
GS3: 2.4217
GS4: 0.0729
GI0: 1.0000
GI1: 0.9695
GI2: 0.9609
GI3: 0.9519
GI4: 0.9582
O0: 112.9420
O1: 75.4627
O2: 64.6020
O3: 50.4983
O4: 87.2177
VDD: 3000
HW: 9173
mode: 2
S0: 0.000000048
S1: 0.000000596
S2: 0.000005281
S3: 0.000062577
S4: 0.002940743
I0: -0.000000104
I1: -0.000001443
I2: 0.000036439
I3: -0.000374119
I4: -0.009388455
UG0: 1.00
UG1: 1.00
UG2: 1.00
UG3: 1.00
UG4: 1.00
IA: 56
Simulated: 1
END
"""


class EmulatedPpk2:
    """Its state. As an ampere meter, or with its output on as a source meter, the device draws what it draws."""

    def __init__(self, seed: int = 0) -> None:
        self._constants: Constants = parse_metadata(METADATA).constants
        self._random = np.random.default_rng(seed)
        self._counter = 0
        self._commands = b""
        self.volts = 3.0
        self.measuring = False
        self.connected = False

    def obey(self, data: bytes) -> bytes:
        """Take bytes from the host. Returns the answer. Unknown commands are ignored, as a byte each."""
        self._commands += data
        answer = b""
        while self._commands:
            size = _COMMAND_BYTES.get(self._commands[0], 1)
            if len(self._commands) < size:
                break
            command, self._commands = self._commands[:size], self._commands[size:]
            match command[0]:
                case 0x06:
                    self.measuring, self._counter = True, 0
                case 0x07:
                    self.measuring = False
                case 0x0C:
                    self.connected = command[1] == 1
                case 0x0D:
                    self.volts = int.from_bytes(command[1:], "big") / 1e3
                case 0x19:
                    answer += METADATA
                case _:
                    pass
        return answer

    def encoded(self, amperes: Floats, inputs: npt.NDArray[np.uint8]) -> bytes:
        """The frames of the next samples: their currents, and the levels of the logic inputs, a bit each."""
        drawn = amperes if self.connected else np.zeros(len(amperes))
        ranges = np.searchsorted(_RANGE_FROM_A, drawn, side="right")
        raw = self._constants.raw_of(drawn, ranges, self.volts) + self._random.normal(0.0, _NOISE, len(drawn))
        words = np.clip(np.rint(raw), 0, _MOST_RAW).astype(np.uint32)
        words |= ranges.astype(np.uint32) << 14
        words |= ((np.arange(len(drawn), dtype=np.uint32) + self._counter) % _COUNTERS) << 18
        words |= inputs.astype(np.uint32) << 24
        self.skip(len(drawn))
        return words.astype("<u4").tobytes()

    def skip(self, samples: int) -> None:
        """Count samples that are not sent."""
        self._counter = (self._counter + samples) % _COUNTERS
