"""What a gate tests, when it has seen enough, and what it then says."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import pytest

from fsjoule.errors import ConfigError
from fsjoule.model import Provision, SeriesKey
from fsjoule.model.metrics import Figure, Metric
from fsjoule.model.series import Point, Series
from fsjoule.statistics.outcome import Outcome
from fsjoule.statistics.policy import Policy
from fsjoule.store.gate import GateVerdict
from fsjoule.verdicts.gate import BootPair, Judge, Test, known_noise

POLICY = Policy(metrics=(Metric.THROUGHPUT, Metric.ENERGY), budget_pairs=8)
Sides = tuple[Figure, Figure]


def series(workload: str) -> Series:
    key = SeriesKey("quick", "board", "card", "ext4", (), (), Provision.SCRATCH, workload)
    return Series(key, simulated=True)


WRITE, READ, MKFS = series("write-16k 32768KiB"), series("read-16k 32768KiB"), series("mkfs")


def in_milliseconds(true_s: tuple[float, float], number: int) -> BootPair:
    """A pair of jobs of 32 MiB by a clock that rounds up to milliseconds."""
    rounded = [math.ceil(1e3 * each) / 1e3 for each in true_s]
    test = (READ, Metric.THROUGHPUT)
    return BootPair(number, {test: (32 / rounded[0], 32 / rounded[1])}, 1, steps={test: 1e-3 / min(rounded)})


@pytest.mark.parametrize(
    ("baseline_s", "candidate_s", "asked", "verdict"),
    [
        (0.2755, 0.2755, 0.001, GateVerdict.UNDECIDED),  # equal to the millisecond, which is 0.36 %
        (0.27595, 0.27605, 0.001, GateVerdict.UNDECIDED),  # 0.04 % look like 0.36 %
        (0.2755, 0.2955, 0.001, GateVerdict.REGRESSED),
        (0.2755, 0.2755, 0.01, GateVerdict.PASSED),
        (0.27595, 0.27605, 0.01, GateVerdict.PASSED),
        (0.2755, 0.2855, 0.01, GateVerdict.REGRESSED),
    ],
)
def test_a_gate_claims_no_more_than_the_clock_tells(
    baseline_s: float, candidate_s: float, asked: float, verdict: GateVerdict
) -> None:
    judge = Judge(Policy(metrics=(Metric.THROUGHPUT,), smallest_effect=asked, budget_pairs=12))
    reasons = [judge.see(in_milliseconds((baseline_s, candidate_s), number)) for number in range(1, 13)]
    judge.finish()
    assert judge.verdict is verdict
    [finding] = judge.findings
    assert (finding.basis.hidden_by == pytest.approx(1 / 276, rel=1e-3)) is (verdict is GateVerdict.UNDECIDED)
    if verdict is GateVerdict.UNDECIDED:
        assert finding.basis.pairs < 12, "more boots do not help"
        assert "throughput in steps of 0.36 %" in (reasons[-1] or "")


def pair(number: int, figures: Mapping[Test, Sides], *, of: int = 1, faults: tuple[str, ...] = ()) -> BootPair:
    return BootPair(number, figures, of, faults)


def judged(policy: Policy, figures: Callable[[int], Mapping[Test, Sides]], *, of: int = 1) -> tuple[Judge, str | None]:
    judge = Judge(policy)
    reason: str | None = None
    for number in range(1, policy.budget_pairs + 1):
        reason = judge.see(pair(number, figures(number), of=of))
        if reason is not None:
            break
    judge.finish()
    return judge, reason


def noisy(loss: float, sd: float = 0.005, seed: int = 1) -> Callable[[int], Mapping[Test, Sides]]:
    rng = np.random.default_rng(seed)

    def figures(_number: int) -> Mapping[Test, Sides]:
        factors = np.exp(rng.normal(0, sd, 4)).tolist()
        return {
            (WRITE, Metric.THROUGHPUT): (100 * factors[0], 100 * (1 - loss) * factors[1]),
            (WRITE, Metric.ENERGY): (20 * factors[2], 20 * factors[3]),
            (WRITE, Metric.IOPS): (1.0, 0.1),  # not of the policy
        }

    return figures


def test_no_loss_passes_early() -> None:
    judge, reason = judged(POLICY, noisy(0.0))
    assert (judge.verdict, reason) == (GateVerdict.PASSED, "decided")
    assert judge.pairs < POLICY.budget_pairs
    assert [one.metric for one in judge.findings] == list(POLICY.metrics)
    assert judge.verdict.exit_code == 0


def test_a_loss_that_matters_is_caught_early_and_named() -> None:
    judge, reason = judged(POLICY, noisy(0.06))
    assert (judge.verdict, reason) == (GateVerdict.REGRESSED, "decided")
    assert judge.verdict.exit_code == 1
    [worse] = [one for one in judge.findings if one.regressed]
    assert worse.metric is Metric.THROUGHPUT
    assert worse.interval is not None
    assert worse.interval.holds(0.94)
    assert worse.interval.high < 1
    assert worse.baseline == pytest.approx(100, rel=0.01)
    assert worse.candidate == pytest.approx(94, rel=0.01)


def counted(loss: float, sd: float, *, pairs: int = 4) -> Judge:
    """Eight figures in guest time, one of which has a loss: seeds move them by 1 %, boots of a pair lie `sd` apart."""
    rng = np.random.default_rng(5)
    judge = Judge(Policy(metrics=(Metric.INSTRUCTIONS,), smallest_effect=0.001, budget_pairs=pairs), guest_time=True)
    for number in range(1, pairs + 1):
        levels, noise = np.exp(rng.normal(0, 0.01, 8)), np.exp(rng.normal(0, sd, (2, 8)))
        noise[1, 0] *= 1 + loss
        both = (3.5e6 * levels * noise).T.tolist()
        figures = {(series(f"write-{at}"), Metric.INSTRUCTIONS): (one, other) for at, (one, other) in enumerate(both)}
        if judge.see(BootPair(number, figures, 8)) is not None:
            break
    judge.finish()
    return judge


def test_a_tenth_of_a_per_cent_of_instructions_is_found_soon() -> None:
    judge = counted(0.001, 0.0002)
    assert judge.verdict is GateVerdict.REGRESSED
    assert [one.subject.label for one in judge.findings if one.regressed] == ["ext4 write-0"]
    # Without what the other figures say of the noise it is not decided after four.
    assert judge.pairs == 3


def test_noise_of_a_tenth_of_a_per_cent_hides_as_much() -> None:
    assert counted(0.0, 0.001).verdict is GateVerdict.UNDECIDED
    assert counted(0.001, 0.001).verdict is GateVerdict.UNDECIDED


def test_a_gain_is_better_and_passes() -> None:
    judge, _ = judged(POLICY, noisy(-0.2))
    assert judge.verdict is GateVerdict.PASSED
    assert [one.metric for one in judge.findings if one.outcome is Outcome.IMPROVED] == [Metric.THROUGHPUT]


def test_noise_ends_with_the_budget() -> None:
    judge, reason = judged(POLICY, noisy(0.02, sd=0.2))
    assert (judge.verdict, reason) == (GateVerdict.UNDECIDED, "the budget was used up")
    assert judge.verdict.exit_code == 3
    assert judge.pairs == 8


@pytest.mark.parametrize("bad", [None, math.nan, math.inf, 0.0, -1.0])
@pytest.mark.parametrize("side", [0, 1])
def test_figures_that_cannot_be_used_are_no_verdict(bad: Figure, side: int) -> None:
    figures: list[Figure] = [100.0, 100.0]
    figures[side] = bad
    judge, reason = judged(POLICY, lambda _: {(WRITE, Metric.THROUGHPUT): (figures[0], figures[1])})
    assert judge.verdict is GateVerdict.UNDECIDED
    # Eight boots of each side would not mend it.
    assert reason == "no figures of throughput to decide the rest"
    assert judge.pairs == POLICY.least_pairs
    [one] = judge.findings
    assert len(one.basis.unusable) == POLICY.least_pairs
    assert (one.baseline, one.candidate, one.interval) == (None, None, None)


def test_one_figure_without_values_does_not_keep_another_from_failing_the_gate() -> None:
    def figures(number: int) -> Mapping[Test, Sides]:
        return {**noisy(0.08, seed=number)(number), (WRITE, Metric.ENERGY): (None, None)}

    judge, _ = judged(POLICY, figures)
    assert judge.verdict is GateVerdict.REGRESSED


def test_it_waits_until_every_series_is_known() -> None:
    """Alpha is split over all tests, so that none may come later; a boot that failed has only some."""
    judge = Judge(POLICY)
    whole = {(WRITE, Metric.THROUGHPUT): (100.0, 60.0), (READ, Metric.THROUGHPUT): (100.0, 100.0)}
    part = {(WRITE, Metric.THROUGHPUT): (100.0, 60.0)}
    for number in range(1, 4):
        assert judge.see(pair(number, part, of=2)) is None
        assert judge.findings == ()
        assert "not every series" in judge.progress()
    assert judge.see(pair(4, whole, of=2, faults=("candidate 4: hung",))) == "decided"
    assert judge.verdict is GateVerdict.REGRESSED
    assert {one.subject.label: one.basis.pairs for one in judge.findings}[WRITE.label] == 4
    assert judge.faults == ["candidate 4: hung"]


def test_a_series_that_has_none_of_the_metrics_is_not_waited_for() -> None:
    def figures(number: int) -> Mapping[Test, Sides]:
        return {**noisy(0.0, seed=number)(number), (MKFS, Metric.DURATION): (1.0, 1.0)}

    judge, _ = judged(POLICY, figures, of=2)
    assert judge.verdict is GateVerdict.PASSED
    assert {one.subject.label for one in judge.findings} == {WRITE.label}


def test_a_policy_without_anything_to_test_is_refused() -> None:
    with pytest.raises(ConfigError, match="no workload has throughput, energy"):
        judged(POLICY, lambda _: {(MKFS, Metric.DURATION): (1.0, 1.0)})


def test_nothing_at_all_is_undecided() -> None:
    judge = Judge(POLICY)
    judge.finish()
    assert (judge.verdict, judge.findings) == (GateVerdict.UNDECIDED, ())


def test_what_only_the_candidates_kernel_warns_of_is_told() -> None:
    judge = Judge(POLICY)
    for number in (1, 2):
        said = (("hung task fio",), ("hung task fio", "WARNING fs/a.c f") if number == 2 else ())
        judge.see(replace(pair(number, noisy(0.0)(number)), kernel_warnings=said))
    assert [str(each) for each in judge.kernel_warnings] == [
        "the candidate warns: WARNING fs/a.c f (in 1 of 2 boots; baseline: 0 of 2)",
        "both kernels warn: hung task fio (in 1 of 2 boots; baseline: 2 of 2)",
    ]


def test_progress_tells_the_evidence() -> None:
    judge = Judge(POLICY)
    judge.see(pair(1, noisy(0.06)(1)))
    line = judge.progress()
    assert line.startswith("pair 1: 0 of 2 figures decided; nearest to regressed: ext4 write-16k")
    assert "% of the evidence it takes; farthest from any decision: " in line


def point(run: str, boot: int, figure: float | None) -> Point:
    figures = {} if figure is None else {Metric.CPU: figure}
    return Point(run, boot, "2026-01-01T00:00:00Z", None, None, None, boot, boot, (), figures, {})


def test_history_is_the_spread_within_runs() -> None:
    """Runs lie far apart, their boots 1 %; a figure that cannot be used is none."""
    figures = {"a": (1.0, 1.01, 0.99), "b": (5.0, 5.05, 4.95), "c": (7.0,), "d": (None, 0.0)}
    group = [point(run, boot, each) for run, boots in figures.items() for boot, each in enumerate(boots)]
    found = known_noise({WRITE: group, READ: group[:1]}, (Metric.CPU, Metric.ENERGY))
    assert list(found) == [(WRITE, Metric.CPU)]
    assert found[WRITE, Metric.CPU].degrees == 4
    assert found[WRITE, Metric.CPU].relative_sd == pytest.approx(0.01, rel=0.01)
    assert known_noise({WRITE: [point("a", 1, math.nan)]}, (Metric.CPU,)) == {}
