"""Judges the board's state around a measurement: what makes it invalid, what is noted, what is waited for. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from fsjoule.bench.onboard.state import DISTURBING, StateReading
from fsjoule.model import BoardState, BoardStates, StatePolicy
from fsjoule.model.board_state import mhz_text

# These write much, read much or search whole disks; any other timer that fires is noted.
_DISTURBING_TIMERS: Final = re.compile(
    r"(apt-daily|fstrim|man-db|dpkg-db-backup|e2scrub|xfs_scrub|btrfs|mdcheck|raid-check|logrotate|updatedb|plocate|mlocate"
    r"|unattended-upgrades|dnf-|snapd|fwupd-refresh)"
)
# `vcgencmd get_throttled`, by bit: now, and 16 bits higher: since the boot.
_FLAGS: Final = {0: "under-voltage", 1: "a capped frequency", 2: "throttling", 3: "the soft temperature limit"}


def states_between(before: StateReading, after: StateReading) -> BoardStates | None:
    """Both states and what happened in between; None if the board tells nothing."""
    if before.state == after.state == BoardState():
        return None
    spent = {
        policy: {str(khz): round(end_s - begin_s.get(khz, 0.0), 2) for khz, end_s in after.at_khz_s[policy].items()}
        for policy, begin_s in before.at_khz_s.items()
        if policy in after.at_khz_s
    }
    return BoardStates(before.state, after.state, spent, tuple(dict.fromkeys(_ran(before, after))))


def _ran(before: StateReading, after: StateReading) -> Iterator[str]:
    for each in {**before.work, **after.work}:
        name, number = each
        earlier, later = before.work.get(each), after.work.get(each)
        if earlier != later and (number or None not in (earlier, later)):  # a timer may be told once only
            yield name


def complaints(states: BoardStates, policy: StatePolicy) -> list[str]:
    """Why the measurement between them is invalid."""
    before, after = states.before, states.after
    said: list[str] = []
    for name, governor in after.governors.items():
        earlier = before.governors.get(name, governor)
        if policy.governor and policy.governor not in (earlier, governor):
            said.append(f"the governor of {name} was {governor}, and the environment file wants {policy.governor}")
        elif earlier != governor:
            said.append(f"the governor of {name} changed from {earlier} to {governor}")
    said += [f"the board was throttled: {each}" for each in _throttled(states)]
    return said + _beside(states, disturbing=True)


def _throttled(states: BoardStates) -> Iterator[str]:
    before, after = states.before, states.after
    for name, count in after.throttle_counts.items():
        if (rise := count - before.throttle_counts.get(name, count)) > 0:
            yield f"{name} rose by {rise}"
    for name in before.throttle_levels | after.throttle_levels:
        if (level := max(before.throttle_levels.get(name, 0), after.throttle_levels.get(name, 0))) > 0:
            yield f"{name} was at level {level}"
    first, last = before.firmware_flags or 0, after.firmware_flags or 0
    bits = first | last | (last & ~first) >> 16
    if flags := [words for bit, words in _FLAGS.items() if bits >> bit & 1]:
        yield f"the firmware tells {', '.join(flags)}"
    for name, cap_khz in after.cap_khz.items():
        earlier_khz = before.cap_khz.get(name, cap_khz)
        spent_s = {int(khz): seconds for khz, seconds in states.at_khz_s.get(name, {}).items()}
        full_khz = max((khz for khz in spent_s if khz <= earlier_khz), default=0)
        below_s = sum(seconds for khz, seconds in spent_s.items() if khz < full_khz)
        if cap_khz < earlier_khz:
            yield f"the highest frequency of {name} fell from {mhz_text(earlier_khz)} to {mhz_text(cap_khz)}"
        elif {before.governors.get(name), after.governors.get(name)} == {"performance"} and below_s > 0.05:  # noqa: PLR2004 - ticks
            yield f"{name} ran below {mhz_text(full_khz)} for {below_s:.2f} s although its governor is performance"


def _beside(states: BoardStates, *, disturbing: bool) -> list[str]:
    return [
        f"{name} {'fired' if name.endswith('.timer') else 'ran'} in or just before the window"
        for name in states.ran
        if disturbing == (name in DISTURBING or _DISTURBING_TIMERS.match(name) is not None)
    ]


def notes(states: BoardStates, policy: StatePolicy) -> list[str]:
    """What a reader should know of a measurement that is valid nevertheless."""
    return _beside(states, disturbing=False) + [f"at the start {each}" for each in unmet(states.before, policy)]


def unmet(state: BoardState, policy: StatePolicy) -> list[str]:
    """What may pass by waiting: heat and load beyond the policy."""
    said: list[str] = []
    if policy.cool_below_c is not None and (state.hottest_c is None or state.hottest_c >= policy.cool_below_c):
        has = f"has {state.hottest_c:.1f} °C ({state.hottest_zone})" if state.hottest_zone else "tells no temperature"
        said.append(f"the board {has}, and has to be below {policy.cool_below_c:g} °C")
    if policy.max_load is not None and state.load is not None and state.load > policy.max_load:
        said.append(f"the board's load is {state.load:.2f}, above {policy.max_load:g}")
    return said
