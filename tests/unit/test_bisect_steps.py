"""A bisection of jobs whose clock rounds up to milliseconds claims no more than the clock tells."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from bisections import COMMITS, Bisection, asked

from fsjoule.report.bisection.words import headline
from fsjoule.statistics.bisection.answer import AnswerKind
from fsjoule.testing import FakeKernelBoots

THROUGHPUT, CPU = asked(1).figures  # 3 % matters
FIRST_BAD = COMMITS[41]


def in_milliseconds(good_ms: float, bad_ms: float, bad_cpu: float) -> Callable[[str, int], dict[str, float | None]]:
    """A board on which jobs of 32 MiB take longer from one commit on, and `bad_cpu` times as much CPU time."""

    def on_board(kernel: str, seed: int) -> dict[str, float | None]:
        commit, *variant = kernel.split("-")
        bad = commit >= FIRST_BAD and FIRST_BAD not in variant
        noise = np.random.default_rng([seed, int(commit, 16), len(variant)]).normal(1, 1e-4)
        rounded_ms = math.ceil((bad_ms if bad else good_ms) * noise)
        return {THROUGHPUT: 32e3 / rounded_ms, CPU: 0.012 * (bad_cpu if bad else 1.0) * noise}

    return on_board


@pytest.mark.parametrize(
    ("good_ms", "bad_ms", "bad_cpu", "kind"),
    [
        (15.5, 15.5, 1.0, AnswerKind.UNDECIDED),  # equal to the millisecond, which is 6 %
        (15.95, 16.05, 1.0, AnswerKind.UNDECIDED),  # 0.6 % look like 6 %
        (15.95, 16.05, 1.06, AnswerKind.CULPRIT),  # the CPU time shows it
        (15.5, 19.5, 1.0, AnswerKind.CULPRIT),
        (155.5, 155.5, 1.0, AnswerKind.NO_REGRESSION),
        (155.95, 156.05, 1.0, AnswerKind.NO_REGRESSION),
        (155.5, 165.5, 1.0, AnswerKind.CULPRIT),
    ],
)
def test_no_culprit_is_made_by_a_step_of_the_clock(
    good_ms: float, bad_ms: float, bad_cpu: float, kind: AnswerKind, tmp_path: Path
) -> None:
    boots = FakeKernelBoots(in_milliseconds(good_ms, bad_ms, bad_cpu), steps={THROUGHPUT: 1 / math.ceil(good_ms)})
    bisection = Bisection(tmp_path, boots)
    answer = bisection.answer()
    assert answer.kind is kind
    if kind is AnswerKind.UNDECIDED:
        assert headline(bisection.run(), answer) == "not decided: hidden by steps of 6.2 %; measure longer jobs"
        assert len(boots.booted) < 20, "more boots do not help"
