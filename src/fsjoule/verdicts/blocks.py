"""Whether a block of a test keeps its budget and its level: passed, failed or not decided. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from fsjoule.errors import ConfigError
from fsjoule.model.labels import counted
from fsjoule.statistics.figures import one_per_boot
from fsjoule.statistics.level import LevelRule, against_boots, against_budget
from fsjoule.statistics.outcome import Outcome

# Against a budget: how much more than it must be found. A board in guest time has no noise, and one boot of another
# board may be a per cent off.
_BUDGET_EFFECT: Final = 0.01
_BUDGET_NOISE: Final = 0.01
# What a repeated measurement cannot take away: the limit of the meter's own error, at 99 %.
_COVERAGE: Final = 2.576
_LEAST_RUNS: Final = 3
_MJ_PER_J: Final = 1e3
_CONFIRMED: Final = 2
_MOST: Final = 10
_JOULES: Final = {"J": 1e3, "mJ": 1.0, "uJ": 1e-3, "µJ": 1e-3, "kJ": 1e6, "Wh": 3.6e6, "mWh": 3.6e3}
_ENERGY: Final = re.compile(rf"\s*([0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?)\s*({'|'.join(_JOULES)})\s*")
_SHARE: Final = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?)\s*%\s*")


@dataclass(frozen=True, slots=True)
class BlockLimits:
    """What a test asks of its block. `effect` is a fraction: the smallest rise over its history that must be found.

    `most` is how often it may be repeated; `alpha` bounds the chance of a false failure, `beta` that of a missed one.
    """

    budget_mj: float | None = None
    effect: float | None = None
    most: int = _MOST
    alpha: float = 0.01
    beta: float = 0.01

    @classmethod
    def read(cls, words: dict[str, object], more: Sequence[object] = ()) -> BlockLimits:
        """From the words of `@pytest.mark.joules(budget="1.2 J", effect="5 %", most=10)`. Raises ConfigError.

        `more` are arguments without a name, which it does not take.
        """
        if more:
            raise ConfigError("the marker joules takes words only", hint='@pytest.mark.joules(budget="1.2 J")')
        for name in words.keys() - {"budget", "effect", "most"}:
            raise ConfigError.unknown("argument of the marker joules", name, ("budget", "effect", "most"))
        budget, effect, most = words.get("budget"), words.get("effect"), words.get("most", _MOST)
        if budget is None and effect is None:
            raise ConfigError(
                "the marker joules has neither a budget nor an effect",
                hint='@pytest.mark.joules(budget="1.2 J"), or effect="5 %" against the recorded history',
            )
        if not isinstance(most, int) or isinstance(most, bool) or most < _CONFIRMED:
            raise ConfigError(f"joules(most={most!r}) is not a number of repetitions", hint="most=10, at least 2")
        return cls(
            budget_mj=None if budget is None else _energy(budget),
            effect=None if effect is None else _share(effect),
            most=most,
        )


@dataclass(frozen=True, slots=True)
class BlockVerdict:
    """REGRESSED fails the test, NOT_REGRESSED passes it, UNDECIDED does neither. `more`: another repetition may decide.

    `text` says it with its numbers.
    """

    outcome: Outcome
    more: bool
    text: str


def judge_block(
    energies: Sequence[tuple[int, float]],
    repetitions: int,
    relative_uncertainty: float,
    limits: BlockLimits,
    *,
    history: Sequence[float] = (),
    runs: int = 0,
    blocks: int = 1,
) -> BlockVerdict:
    """Judge a block's energies in mJ, each with its boot; `history` are those of earlier boots, from so many `runs`.

    A budget is judged by all repetitions, and speaks of the boots that were measured. A history needs one figure of
    each boot; of several repetitions the highest is left out, as one in fifty stalls. `repetitions` counts invalid
    ones, too.

    `relative_uncertainty` (k=1) is the meter's, which all repetitions share: it counts against a budget, and not
    against the history of the same meter. The error rates are split over the test's `blocks` and its two questions.
    """
    questions = blocks * ((limits.budget_mj is not None) + (limits.effect is not None))
    alpha, beta = limits.alpha / questions, limits.beta / questions
    more = repetitions < limits.most
    if not energies:
        return BlockVerdict(Outcome.UNDECIDED, more, "has no valid energy")
    every = [energy for _, energy in energies]
    usual = sorted(energies, key=lambda each: each[1])[: max(1, len(energies) - 1)]
    boots = [each for each in one_per_boot(usual) if each is not None]
    outcomes: list[Outcome] = []
    texts: list[str] = []
    mean_mj = math.exp(sum(map(math.log, every)) / len(every))
    if limits.budget_mj is not None:
        outcomes.append(_against_budget(every, limits.budget_mj, relative_uncertainty, alpha, beta))
        said = {Outcome.REGRESSED: "exceeds", Outcome.NOT_REGRESSED: "keeps"}.get(outcomes[-1], "is not sure to keep")
        within = _COVERAGE * relative_uncertainty * 100
        texts.append(
            f"{said} its budget of {_joules(limits.budget_mj)}: {_joules(mean_mj)} ± {within:.1f} % by the meter"
        )
    if limits.effect is not None:
        state = against_boots(history, boots, LevelRule(limits.effect, alpha, beta)) if runs >= _LEAST_RUNS else None
        if state is None:
            outcomes.append(Outcome.UNDECIDED)
            texts.append(f"has a history of {counted(runs, 'run')}, and {_LEAST_RUNS} are needed: this one is recorded")
            more = more and Outcome.UNDECIDED in outcomes[:-1]
        else:
            outcomes.append(state.outcome)
            change = f"{100 * (state.ratio - 1):+.1f} % against {counted(runs, 'run')}"
            said = {Outcome.REGRESSED: "uses more energy", Outcome.NOT_REGRESSED: "uses no more energy"}
            texts.append(f"{said.get(state.outcome, 'may use more energy')}: {change}")
    outcome = _together(outcomes)
    if outcome is Outcome.REGRESSED and len(energies) < _CONFIRMED:
        outcome = Outcome.UNDECIDED  # a stall is no loss: what fails was measured twice
    text = f"{'; '.join(texts)} ({counted(repetitions, 'repetition')}, {counted(len(boots), 'boot')})"
    return BlockVerdict(outcome, more and outcome is Outcome.UNDECIDED, text)


def _against_budget(energies_mj: Sequence[float], budget_mj: float, u: float, alpha: float, beta: float) -> Outcome:
    """Kept or exceeded only beyond the meter's own error, which is on the unknown side."""
    rule = LevelRule(_BUDGET_EFFECT, alpha, beta, least_noise=_BUDGET_NOISE)
    margin = math.exp(_COVERAGE * u)
    if against_budget(energies_mj, budget_mj * margin, rule).outcome is Outcome.REGRESSED:
        return Outcome.REGRESSED
    # Kept is judged the other way round: the budget with its margin is more than the block uses.
    turned = [budget_mj / margin * budget_mj / margin / each for each in energies_mj]
    kept = against_budget(turned, budget_mj / margin, LevelRule(_BUDGET_EFFECT, beta, alpha, least_noise=_BUDGET_NOISE))
    return Outcome.NOT_REGRESSED if kept.outcome is Outcome.REGRESSED else Outcome.UNDECIDED


def _together(outcomes: Sequence[Outcome]) -> Outcome:
    if Outcome.REGRESSED in outcomes:
        return Outcome.REGRESSED
    return Outcome.UNDECIDED if Outcome.UNDECIDED in outcomes else Outcome.NOT_REGRESSED


def _energy(text: object) -> float:
    found = _ENERGY.fullmatch(text) if isinstance(text, str) else None
    if found is None or not float(found[1]) > 0:
        raise ConfigError(
            f"joules(budget={text!r}) is not an energy", hint=f'budget="1.2 J", or in {", ".join(_JOULES)}'
        )
    return float(found[1]) * _JOULES[found[2]]


def _share(text: object) -> float:
    found = _SHARE.fullmatch(text) if isinstance(text, str) else None
    share = float(found[1]) / 100 if found else text
    if not isinstance(share, float) or not 0 < share < 1:
        raise ConfigError(f"joules(effect={text!r}) is not a share", hint='effect="5 %", or 0.05')
    return share


def _joules(mj: float) -> str:
    return f"{mj / _MJ_PER_J:.4g} J" if mj >= _MJ_PER_J else f"{mj:.4g} mJ"
