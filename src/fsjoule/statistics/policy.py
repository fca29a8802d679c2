"""The policy of `fsjoule gate`: metrics, the smallest effect that matters, error rates and a budget."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar, Final

from pydantic import ConfigDict, Field

from fsjoule.errors import ConfigError
from fsjoule.host.toml_lines import config_text, line_of, only_table, validated
from fsjoule.model.metrics import JUDGED_METRICS, Metric

_TABLE: Final = "gate"
_HINT: Final = "docs/statistics.md explains every field of a policy"

# Strict: neither `true` nor "1" is a number.
Effect = Annotated[float, Field(strict=True, gt=0, le=0.5)]
ErrorRate = Annotated[float, Field(strict=True, gt=0, le=0.1)]
Pairs = Annotated[int, Field(strict=True, le=1000)]


@dataclass(frozen=True, slots=True)
class Policy:
    """The `[gate]` table of a policy file. Effects are fractions of the baseline, error rates hold for the whole gate.

    `effects` overrides `smallest_effect` by metric. A pair is one boot of each side.
    """

    metrics: Annotated[tuple[Metric, ...], Field(min_length=1)] = JUDGED_METRICS
    smallest_effect: Effect = 0.05
    effects: dict[Metric, Effect] = field(default_factory=dict[Metric, float])
    alpha: ErrorRate = 0.01
    beta: ErrorRate = 0.01
    budget_pairs: Annotated[Pairs, Field(ge=1)] = 20
    least_pairs: Annotated[Pairs, Field(ge=2)] = 3

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    def effect_of(self, metric: Metric) -> float:
        """The smallest effect on this metric that matters, as a fraction."""
        return self.effects.get(metric, self.smallest_effect)


def read_policy(file: Path | None) -> Policy:
    """The file's policy, or the default without a file. Raises ConfigError."""
    if file is None:
        return Policy()
    return parse_policy(config_text(file, "the policy", hint="see env/gate.toml"), file=file)


def parse_policy(text: str, *, file: Path) -> Policy:
    """Parse a policy from TOML; `file` is for messages. Raises ConfigError with file and line."""
    table = only_table(text, file, _TABLE, hint=_HINT)
    policy = validated(Policy, table, text, file, hint=_HINT, within=[_TABLE])
    if policy.least_pairs > policy.budget_pairs:
        raise ConfigError(
            f"least_pairs = {policy.least_pairs} is more than budget_pairs = {policy.budget_pairs}: there would "
            "never be a decision",
            file=file,
            line=max(line_of(text, [_TABLE, key]) for key in ("least_pairs", "budget_pairs")),
            hint=_HINT,
        )
    for metric in policy.effects:
        if metric not in policy.metrics:
            raise ConfigError(
                f"effects.{metric}: this metric is not among metrics = {[m.value for m in policy.metrics]}",
                file=file,
                line=line_of(text, [_TABLE, "effects", metric]),
                hint=_HINT,
            )
    return policy
