"""An emulated PPK2 as a program on pseudo terminals; `python -m fsjoule.virtual.instruments.ppk2 --help`.

It measures in real time what a virtual board draws, and goes no further than the newest record of the board's feed: a
busy computer delays samples and does not change them. What the host does not read in time is lost, as in a real one.
"""

from __future__ import annotations

import argparse
import select
import sys
import time
from collections import deque
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from fsjoule.host.clock import prefer_this_thread
from fsjoule.meter.protocol.ppk2 import FRAME_BYTES, Constants, parse_metadata
from fsjoule.virtual.board.config import BoardConfig
from fsjoule.virtual.instruments.emulator import Emulator, Program, feed, module_program
from fsjoule.virtual.instruments.load import ConstantLoad, FeedLoad, Load
from fsjoule.virtual.instruments.terminal import Terminal, end_asked

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
_NAME: Final = "ppk2"
_SAMPLE_NS: Final = 10_000
# USB brings samples in pieces, too.
_PERIOD_S: Final = 0.005
_MOST_SAMPLES: Final = 5000
# As much as the kernel keeps for the port of a real one.
_KEPT_BYTES: Final = 65536
# Turns of this program that are longer hold it up.
_LATE_NS: Final = 20_000_000
_WRITE_BYTES: Final = 4096
_HIGH: Final = ord("1")


class EmulatedPpk2:
    """What it says and does: it obeys commands, and encodes the current of its device. Without a clock.

    As an ampere meter, or with its output on as a source meter, the device draws what it draws.
    """

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


class Ppk2Program:
    """One instrument on its terminals."""

    def __init__(self, load: Load, stream: Terminal, pin: Terminal | None) -> None:
        self._load = load
        self._stream = stream
        self._pin = pin
        self._device = EmulatedPpk2()
        self._waiting = bytearray()
        self._next_ns = 0
        self._level = 0
        self._open = False
        self._edges: deque[tuple[int, int]] = deque()
        self._looked_ns = time.monotonic_ns()
        self._own_ns = 0
        self.lost = 0

    def run(self, ended: int) -> None:
        """Measure until the descriptor `ended` can be read."""
        ports = [ended, *([] if self._pin is None else [self._pin.fd])]
        while True:
            ready = select.select(ports, [], [], _PERIOD_S)[0]
            if ended in ready:
                return
            now_ns = time.monotonic_ns()
            if self._pin is not None:
                self._edges += _edges(self._pin.read(), self._looked_ns, now_ns)
            self._obey(now_ns)
            self._measure()
            self._flush()

    def _obey(self, now_ns: int) -> None:
        if not self._stream.is_open:
            if self._open:
                # As the real one: its output goes with its host, and it measures on.
                self._device.connected = self._open = False
                self._stream.discard()
            self._waiting.clear()
            return
        self._open = True
        commands = self._stream.read()
        if not commands:
            return
        was = self._device.measuring
        answer = self._device.obey(commands)
        if self._device.measuring and not was:
            self._next_ns = now_ns
            self._level = self._level_at(now_ns)
        if not self._device.measuring and was:
            self._waiting.clear()
        self._waiting += answer

    def _measure(self) -> None:
        if not self._device.measuring:
            self._level = self._level_at(time.monotonic_ns())
            return
        until_ns = self._load.known_until_ns()
        self._lose(until_ns)
        room = (_KEPT_BYTES - len(self._waiting)) // FRAME_BYTES
        count = min((until_ns - self._next_ns) // _SAMPLE_NS, _MOST_SAMPLES, room)
        if count <= 0:
            return
        times_ns = self._next_ns + np.arange(count, dtype=np.int64) * _SAMPLE_NS
        amperes = self._load.amperes(times_ns)
        inputs = np.full(count, self._level, dtype=np.uint8)
        self._next_ns += count * _SAMPLE_NS
        while self._edges and self._edges[0][0] <= int(times_ns[-1]):
            at_ns, self._level = self._edges.popleft()
            inputs[np.searchsorted(times_ns, at_ns) :] = self._level
        self._waiting += self._device.encoded(amperes, inputs)

    def _lose(self, until_ns: int) -> None:
        """Lose the samples that are late because the host does not read, and not because this program was held up."""
        now_ns = time.monotonic_ns()
        self._own_ns += max(0, now_ns - self._looked_ns - _LATE_NS)
        self._looked_ns = now_ns
        late_ns = until_ns - self._next_ns
        if late_ns < _LATE_NS:
            self._own_ns = 0
        samples = (late_ns - self._own_ns - _LATE_NS) // _SAMPLE_NS
        if samples > 0 and len(self._waiting) > _KEPT_BYTES - _LATE_NS // _SAMPLE_NS * FRAME_BYTES:
            self._device.skip(samples)
            self._next_ns += samples * _SAMPLE_NS
            self.lost += samples

    def _level_at(self, now_ns: int) -> int:
        level = self._level
        while self._edges and self._edges[0][0] <= now_ns:
            _, level = self._edges.popleft()
        return level

    def _flush(self) -> None:
        while self._waiting and (written := self._stream.write(bytes(self._waiting[:_WRITE_BYTES]))):
            del self._waiting[:written]


def _edges(levels: bytes, since_ns: int, now_ns: int) -> list[tuple[int, int]]:
    """Levels that were read at once, with their times.

    Each one wakes this program. If several have come, it was held up, and none may hide another: they are spread over
    the time since it last looked.
    """
    apart_ns = max((now_ns - since_ns) // max(len(levels), 1), _SAMPLE_NS)
    first_ns = now_ns - (len(levels) - 1) * apart_ns
    return [(first_ns + i * apart_ns, int(byte == _HIGH)) for i, byte in enumerate(levels)]


def _of_a_board(board: BoardConfig, devices: Path) -> Program:
    links = {"--stream-link": devices / _NAME, "--pin-link": board.ppk2_pin[0]}
    return module_program(_NAME, "ppk2", links, *feed(devices))


EMULATOR: Final = Emulator(program=_of_a_board, serial=True)


def main() -> int:
    parser = argparse.ArgumentParser(description="An emulated Power Profiler Kit II on pseudo terminals.")
    parser.add_argument("--stream-link", type=Path, required=True, help="link to the terminal of its USB port")
    parser.add_argument("--pin-link", type=Path, help="link to a terminal that takes the levels of D0, 0 and 1")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--feed", type=Path, help="ring file in which a virtual board says what it draws")
    source.add_argument("--amperes", type=float, help="a constant load instead of a feed")
    chosen = parser.parse_args()
    ended = end_asked()
    load = ConstantLoad(chosen.amperes) if chosen.feed is None else FeedLoad(chosen.feed)
    with ExitStack() as closing:
        pin = None if chosen.pin_link is None else Terminal(chosen.pin_link, closing, held=True)
        program = Ppk2Program(load, Terminal(chosen.stream_link, closing, held=False), pin)
        prefer_this_thread()
        program.run(ended)
        sys.stderr.write(f"samples that the host did not read in time: {program.lost}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
