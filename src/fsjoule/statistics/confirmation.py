"""Fresh interleaved boots confirm or refute a nominated change point."""

from __future__ import annotations

from fsjoule.statistics.changepoints import Nomination
from fsjoule.statistics.gate import ErrorRates, SequentialState, SequentialTest
from fsjoule.statistics.outcome import Confirmed, Outcome


def confirming_test(nomination: Nomination, rates: ErrorRates) -> SequentialTest:
    """The sequential test for a nomination, in the direction of its change.

    It takes pairs of fresh boots of the points `before` and `after`. `regressed` means a change in this direction,
    better or worse.
    """
    return SequentialTest(rates, more_is_better=nomination.ratio < 1)


def outcome_of(state: SequentialState) -> Confirmed:
    """A confirming test's present answer about its nomination."""
    return {
        Outcome.REGRESSED: Confirmed.CONFIRMED,
        Outcome.NOT_REGRESSED: Confirmed.REFUTED,
        Outcome.UNDECIDED: Confirmed.UNDECIDED,
    }[state.decision]
