"""A plot in characters: what is drawn, and what stands at its axis."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fsjoule.meter.tools.live import axis, dots_across, plot

_WATTS = st.floats(min_value=-50, max_value=50, allow_nan=False)
_RANGES = st.one_of(st.none(), st.tuples(_WATTS, _WATTS).map(lambda pair: (min(pair), max(pair))))


@example([(-0.001953125, 0.0)], 15, 5)
@given(st.lists(_RANGES, max_size=300), st.integers(15, 200), st.integers(2, 30))
def test_any_values_fill_exactly_the_space(values: list[tuple[float, float] | None], width: int, height: int) -> None:
    lines = plot(values, width, height)
    assert len(lines) == height
    assert {len(line) for line in lines} == {width}


def test_a_step_is_drawn_where_it_is() -> None:
    width, height = 30, 4
    across = dots_across(width)
    lines = plot([(1.0, 1.0)] * (across // 2) + [(2.0, 2.0)] * (across // 2), width, height)
    left, right = [[line[10:][:10] for line in lines], [line[10:][10:] for line in lines]]
    blank = "⠀" * 10
    assert [line != blank for line in left] == [False, False, False, True]
    assert [line != blank for line in right] == [True, False, False, False]
    assert lines[0].startswith("    2.0 W┤")
    assert lines[-1].startswith("    1.0 W┤")


def test_what_is_not_known_is_left_blank() -> None:
    assert not re.search("[\\u2801-\\u28ff]", "".join(plot([None] * 50, 40, 5)))


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (1.1, 1.32, (1.1, 1.4, 0.1)),
        (0.0, 10.0, (0.0, 10.0, 2.5)),
        (1.25, 1.25, (1.25, 1.255, 0.005)),
        (-3.0, 4.0, (-4.0, 4.0, 2.0)),
    ],
)
def test_the_axis_has_round_ends(low: float, high: float, expected: tuple[float, float, float]) -> None:
    assert axis(low, high, 8) == pytest.approx(expected)


@given(_WATTS, _WATTS, st.integers(2, 40))
def test_the_axis_always_holds_what_is_shown(a: float, b: float, height: int) -> None:
    low, high = min(a, b), max(a, b)
    begin, end, step = axis(low, high, height)
    assert begin <= low + 1e-9 * step
    assert end >= high - 1e-9 * step
    assert step > 0
