"""A plot of power over time in braille characters of two by four dots, with an axis that fits the data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

Range = tuple[float, float]

_ACROSS: Final = 2
_DOWN: Final = 4
_BRAILLE: Final = 0x2800
# Bits of the dots in a character (Unicode, Braille Patterns), by row from the top and column.
_DOTS: Final = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
# "-0.0025 W" is the longest label, because of _LEAST_SPAN_W.
_LABEL_WIDTH: Final = 9
# Smallest span, so that quantisation does not fill the plot: as a fraction of the largest value, and in watts.
_LEAST_SPAN: Final = 0.01
_LEAST_SPAN_W: Final = 0.002
_STEPS: Final = (1.0, 2.0, 2.5, 5.0, 10.0)


def dots_across(width: int) -> int:
    return max(1, width - _LABEL_WIDTH - 1) * _ACROSS


def plot(values: Sequence[Range | None], width: int, height: int) -> list[str]:
    """`height` lines of text, `width` wide. A value is (least, largest), None for a gap; the last is at the right."""
    shown = list(values[-dots_across(width) :])
    known = [value for value in shown if value is not None]
    low, high, step = axis(min((a for a, _ in known), default=0.0), max((b for _, b in known), default=1.0), height)
    columns = dots_across(width) // _ACROSS
    cells = [[0] * columns for _ in range(height)]
    first = columns * _ACROSS - len(shown)
    for at, value in enumerate(shown, start=first):
        if value is not None:
            bottom, top = (_row(v, low, high, height) for v in value)
            for row in range(top, bottom + 1):
                cells[row // _DOWN][at // _ACROSS] |= _DOTS[row % _DOWN][at % _ACROSS]
    labels = _labels(low, high, step, height)
    drawn = ["".join(chr(_BRAILLE + cell) for cell in line) for line in cells]
    return [
        f"{labels.get(row, ''):>{_LABEL_WIDTH}}{'┤' if row in labels else '│'}{line}" for row, line in enumerate(drawn)
    ]


def axis(low: float, high: float, height: int) -> tuple[float, float, float]:
    """(begin, end, step between labels): round numbers around the data."""
    span = max(high - low, _LEAST_SPAN * max(abs(low), abs(high)), _LEAST_SPAN_W)
    rough = span / max(1, min(height - 1, 4))
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * s for s in _STEPS if power * s >= rough * (1 - 1e-9))
    begin = math.floor(low / step + 1e-9) * step
    end = math.ceil(high / step - 1e-9) * step
    return begin, max(end, begin + step), step


def _row(value: float, low: float, high: float, height: int) -> int:
    rows = height * _DOWN - 1
    return rows - round(min(1.0, max(0.0, (value - low) / (high - low))) * rows)


def _labels(low: float, high: float, step: float, height: int) -> dict[int, str]:
    decimals = max(0, -math.floor(math.log10(step) + 1e-9) + (1 if _has_half(step) else 0))
    count = round((high - low) / step)
    return {
        _row(low + number * step, low, high, height) // _DOWN: f"{low + number * step:.{decimals}f} W"
        for number in range(count + 1)
    }


def _has_half(step: float) -> bool:
    digit = step / 10.0 ** math.floor(math.log10(step) + 1e-9)
    return abs(digit - 2.5) < 1e-6  # noqa: PLR2004 - the one step with two digits
