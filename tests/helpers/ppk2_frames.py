"""What a PPK2 sends, written from the format alone: frames, the metadata of a real one, and the app's own arithmetic.

Nothing of fsjoule's decoder is used here, so that a mistake in it does not hide itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

# A real instrument's, as the documentation of the Rust crate ppk2 (types.rs) shows it, at the voltage of its test.
REAL = {
    "R": (1003.3506, 101.5865, 10.3027, 0.9636, 0.0564),
    "GS": (0.0, 112.7890, 18.0115, 2.4217, 0.0729),
    "GI": (1.0, 0.9695, 0.9609, 0.9519, 0.9582),
    "O": (112.9420, 75.4627, 64.6020, 50.4983, 87.2177),
    "S": (0.000000048, 0.000000596, 0.000005281, 0.000062577, 0.002940743),
    "I": (-0.000000104, -0.000001443, 0.000036439, -0.000374119, -0.009388455),
    "UG": (1.0, 1.0, 1.0, 1.0, 1.0),
}
# With these, and 3741 mV, range 0 and the converter's 27 the app's own result is this one (the crate's test).
GOLDEN_MV, GOLDEN_RAW, GOLDEN_UA = 3741, 27, 0.021454880761611544


def metadata(*, without: Sequence[str] = (), changed: dict[str, str] | None = None) -> bytes:
    """The reply of an instrument, without some of its lines or with others."""
    lines = {"Calibrated": "0"}
    lines |= {f"{name}{number}": repr(value) for name, values in REAL.items() for number, value in enumerate(values)}
    lines |= {"VDD": "3741", "HW": "9173", "mode": "2", "IA": "56"} | (changed or {})
    return "".join(f"{key}: {value}\n" for key, value in lines.items() if key not in without).encode() + b"END\n"


def frame(raw: int, measuring_range: int, counter: int, inputs: int = 0) -> bytes:
    """One sample: 14, 3, 1, 6 and 8 bits, from the lowest on."""
    bits = f"{inputs:08b}{counter % 64:06b}0{measuring_range:03b}{raw:014b}"
    return bytes(int(bits[at : at + 8], 2) for at in (24, 16, 8, 0))


def frames(count: int, *, raw: int = 400, measuring_range: int = 4, first: int = 0, inputs: int = 0) -> bytes:
    return b"".join(frame(raw, measuring_range, first + number, inputs) for number in range(count))


def amperes(raw: int, number: int, volts: float) -> float:
    """The current by the app's formula."""
    r, gs, gi, o, s, i, ug = (REAL[name][number] for name in ("R", "GS", "GI", "O", "S", "I", "UG"))
    x = (raw * 4 - o) * (1.8 / 163840 / r)
    return ug * (x * (gs * x + gi) + (s * volts + i))


@dataclass
class AppFilter:
    """The app's spike filter, sample by sample."""

    fast: float | None = None
    slow: float | None = None
    last: int | None = None
    left: int = 0
    same: int = 0
    out: list[float] = field(default_factory=list[float])

    def feed(self, samples: Iterable[tuple[float, int]]) -> list[float]:
        return [self._one(value, number) for value, number in samples]

    def _one(self, value: float, number: int) -> float:
        before = self.fast, self.slow
        self.fast = value if self.fast is None else 0.18 * value + 0.82 * self.fast
        self.slow = value if self.slow is None else 0.06 * value + 0.94 * self.slow
        if self.last is None:
            self.last = number
        if self.last != number or self.left > 0:
            if self.last != number:
                self.same, self.left = 0, 3
            else:
                self.same += 1
            if number == 4:
                if self.same < 2:
                    self.fast, self.slow = before
                assert self.slow is not None
                value = self.slow
            else:
                value = self.fast
            self.left -= 1
        self.last = number
        assert self.fast is not None
        return value
