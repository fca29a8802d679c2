from __future__ import annotations

from pathlib import Path

import pytest

from fsjoule.errors import ConfigError
from fsjoule.model.metrics import Metric
from fsjoule.statistics.policy import Policy, parse_policy

FILE = Path("policy.toml")
GOOD = """\
# what a merge request must not break
[gate]
metrics = ["throughput", "energy", "p99-latency"]
smallest_effect = 0.03
alpha = 0.02
beta = 0.05
budget_pairs = 30
least_pairs = 4

[gate.effects]
p99-latency = 0.2
"""


def test_a_policy_is_read() -> None:
    policy = parse_policy(GOOD, file=FILE)
    assert policy == Policy(
        metrics=(Metric.THROUGHPUT, Metric.ENERGY, Metric.P99_LATENCY),
        smallest_effect=0.03,
        effects={Metric.P99_LATENCY: 0.2},
        alpha=0.02,
        beta=0.05,
        budget_pairs=30,
        least_pairs=4,
    )
    assert policy.effect_of(Metric.P99_LATENCY) == 0.2
    assert policy.effect_of(Metric.ENERGY) == 0.03


def test_an_empty_table_means_the_defaults() -> None:
    assert parse_policy("[gate]\n", file=FILE) == Policy()


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("smallest_effect = 0.03", "smallest_effect = 0.0", 4, "greater than 0 (given: 0.0)"),
        ("smallest_effect = 0.03", "smallest_effect = nan", 4, "given: nan"),
        ("alpha = 0.02", "alpha = 0.5", 5, "less than or equal to 0.1 (given: 0.5)"),
        ("beta = 0.05", 'beta = "little"', 6, "given: 'little'"),
        ("beta = 0.05", "betta = 0.05", 6, "betta: Unexpected keyword argument"),
        ("budget_pairs = 30", "budget_pairs = true", 7, "given: True"),
        ("budget_pairs = 30", "budget_pairs = 2.5", 7, "given: 2.5"),
        ("budget_pairs = 30", "budget_pairs = 3", 8, "never be a decision"),
        ("least_pairs = 4", "least_pairs = 1", 8, "greater than or equal to 2"),
        ('"energy"', '"speed"', 3, "metrics.1: Input should be 'throughput'"),
        ('["throughput", "energy", "p99-latency"]', "[]", 3, "at least 1 item"),
        ('"p99-latency"]', '"cpu"]', 11, "not among metrics"),
        ("p99-latency = 0.2", "p99-latency = 2", 11, "less than or equal to 0.5"),
        ("p99-latency = 0.2", "latency = 0.2", 11, "effects.latency: Input should be"),
        ("[gate.effects]", "[effects]", 10, "unknown table or key 'effects'"),
        ("alpha = 0.02", "alpha = ", 5, "not valid TOML"),
    ],
)
def test_mistakes_are_named_with_their_line(old: str, new: str, line: int, message: str) -> None:
    with pytest.raises(ConfigError, match=r"^policy\.toml:") as error:
        parse_policy(GOOD.replace(old, new), file=FILE)
    assert error.value.line == line
    assert message in error.value.what
    assert error.value.exit_code == 2


@pytest.mark.parametrize("text", ["", "gate = 3\n", "[[gate]]\n"])
def test_a_policy_without_its_table_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"policy\.toml:1: no table \[gate\]"):
        parse_policy(text, file=FILE)
