"""What becomes of a nominated change point: fresh interleaved boots confirm it, or refute it."""

from __future__ import annotations

from fsjoule.statistics.changepoints import Nomination
from fsjoule.statistics.gate import Rates, SequentialTest, State
from fsjoule.statistics.outcome import Confirmed, Outcome


def confirming_test(nomination: Nomination, rates: Rates) -> SequentialTest:
    """The sequential test that a nomination has to pass, in the direction of its change.

    It is given pairs of fresh boots of the points `before` and `after`. `regressed` means that there is a change of
    that direction, be it better or worse.
    """
    return SequentialTest(rates, more_is_better=nomination.ratio < 1)


def outcome_of(state: State) -> Confirmed:
    """What a confirming test says of its nomination, as far as it has come."""
    return {
        Outcome.REGRESSED: Confirmed.CONFIRMED,
        Outcome.NOT_REGRESSED: Confirmed.REFUTED,
        Outcome.UNDECIDED: Confirmed.UNDECIDED,
    }[state.decision]
