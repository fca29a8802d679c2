"""The board's state around a measurement: how fast it may work, how hot and busy it is, and what else ran on it."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class StatePolicy:
    """What the environment file asks of the board's state (`board_state`); "" and None ask for nothing.

    `governor` is set at each boot. A board that is not below `cool_below_c` (°C, its hottest thermal zone) or above
    `max_load` (load average of a minute) is waited for, `wait_s` at most. Then the measurement is refused, or with
    `measure_anyway` made and noted.
    """

    governor: str = ""
    cool_below_c: float | None = None
    max_load: float | None = None
    wait_s: float = 300.0
    measure_anyway: bool = False


@dataclass(frozen=True, slots=True)
class BoardState:
    """The board at one moment. A mapping is empty, and a figure None, if the board does not have it.

    Governors and frequencies go by cpufreq's policy; `cap_khz` is the highest one that is allowed at that moment.
    `throttle_counts` only rise; `throttle_levels` are above 0 while the board is held back. `firmware_flags` are those
    of a Raspberry Pi's firmware. `load` is the load average of a minute.
    """

    governors: dict[str, str] = field(default_factory=dict[str, str])
    current_khz: dict[str, int] = field(default_factory=dict[str, int])
    cap_khz: dict[str, int] = field(default_factory=dict[str, int])
    max_khz: dict[str, int] = field(default_factory=dict[str, int])
    hottest_c: float | None = None
    hottest_zone: str = ""
    throttle_counts: dict[str, int] = field(default_factory=dict[str, int])
    throttle_levels: dict[str, int] = field(default_factory=dict[str, int])
    firmware_flags: int | None = None
    load: float | None = None


@dataclass(frozen=True, slots=True)
class BoardStates:
    """Before the idle second in front of a window, and after the window.

    `at_khz_s` has the seconds in between by policy and frequency, `ran` the timers and programs that did something.
    """

    before: BoardState
    after: BoardState
    at_khz_s: dict[str, dict[str, float]] = field(default_factory=dict[str, dict[str, float]])
    ran: tuple[str, ...] = ()


def mhz_text(khz: int) -> str:
    return f"{khz / 1000:g} MHz"
