from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsjoule.model import MIB
from fsjoule.virtual.board.power import NO_ACTIVITY, Activity, PowerCoefficients, PowerModel, activity

MS_NS = 1_000_000
STEPS = st.lists(
    st.tuples(
        st.integers(MS_NS // 2, 50 * MS_NS),  # interval
        st.integers(0, 10 * MS_NS),  # busy time booked in it
        st.integers(0, MIB),
        st.integers(0, MIB),
    ),
    min_size=1,
    max_size=200,
)


def test_idle_is_idle() -> None:
    assert PowerModel(PowerCoefficients()).watts(NO_ACTIVITY, MS_NS) == PowerCoefficients().idle_w


def test_a_cpu_that_is_booked_in_scheduler_ticks_draws_steady_power() -> None:
    power = PowerCoefficients()
    model = PowerModel(power)
    # A 250 Hz host books 4 ms of running time every fourth millisecond.
    watts = [model.watts(Activity(step // 4 * 4 * MS_NS, 0, 0), MS_NS) for step in range(1, 101)]
    assert watts[:3] == [power.idle_w] * 3
    assert watts[3:] == [pytest.approx(power.idle_w + power.cpu_w)] * 97


def test_busy_cpus_add_up_and_leave_no_debt_for_a_board_that_is_idle() -> None:
    power = PowerCoefficients()
    model = PowerModel(power)
    busy = [model.watts(Activity(step * 4 * MS_NS, 0, 0, cpus=4), MS_NS) for step in range(1, 101)]
    assert busy == [pytest.approx(power.idle_w + 4 * power.cpu_w)] * 100
    assert model.watts(Activity(400 * MS_NS, 0, 0, cpus=4), MS_NS) == power.idle_w


def test_default_coefficients_span_a_boards_range() -> None:
    model = PowerModel(PowerCoefficients())
    assert 1.3 < model.watts(Activity(1_000 * MS_NS, 15 * MIB, 0), 1_000 * MS_NS) < 1.45


@given(STEPS)
def test_no_energy_is_lost(steps: list[tuple[int, int, int, int]]) -> None:
    power = PowerCoefficients()
    model = PowerModel(power)
    busy_ns = read_bytes = written_bytes = elapsed_ns = 0
    joules = 0.0
    for interval_ns, busy, read, written in steps:
        busy_ns, read_bytes, written_bytes = busy_ns + busy, read_bytes + read, written_bytes + written
        elapsed_ns += interval_ns
        joules += model.watts(Activity(busy_ns, read_bytes, written_bytes), interval_ns) * interval_ns * 1e-9
    # What is still owed of the CPU's time comes in an idle interval that is long enough.
    joules += (model.watts(Activity(busy_ns, read_bytes, written_bytes), 10**10) - power.idle_w) * 10
    card_j = (power.card_read_mj_per_mib * read_bytes + power.card_write_mj_per_mib * written_bytes) / MIB * 1e-3
    assert joules == pytest.approx((power.idle_w * elapsed_ns + power.cpu_w * busy_ns) * 1e-9 + card_j)


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**6))
def test_blocks_are_told_from_wake_ups(
    read_blocks: int, read_wakes: int, written_blocks: int, write_wakes: int
) -> None:
    io = (
        f"rchar: {512 * read_blocks + 8 * read_wakes}\nwchar: {512 * written_blocks + 8 * write_wakes}\n"
        f"syscr: {read_blocks + read_wakes}\nsyscw: {written_blocks + write_wakes}\n"
        "read_bytes: 1\nwrite_bytes: 2\ncancelled_write_bytes: 3\n"
    )
    assert activity([b"700 50 9\n"], io.encode()) == Activity(750, 512 * read_blocks, 512 * written_blocks)
    both = activity([b"700 50 9\n", b"30 1 1\n"], io.encode())
    assert (both.cpu_busy_ns, both.cpus) == (781, 2)
