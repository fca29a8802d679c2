"""`fsjoule gate` over recorded boots."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from fsjoule.errors import ConfigError
from fsjoule.model.series import Side
from fsjoule.statistics.policy import Policy
from fsjoule.store.selection import UnknownNameError
from fsjoule.verdicts.gate import Judge
from fsjoule.verdicts.gated import Gated, GateSide, GateVerdict
from fsjoule.verdicts.recorded import recorded_pairs
from fsjoule.verdicts.remarks import single_notes


def gate_recorded(
    baseline_name: str,
    candidate_name: str,
    read: Callable[[str], Side],
    policy: Policy,
    *,
    drift_not_excluded: bool = False,
    across_boards: bool = False,
    command: tuple[str, ...],
) -> Gated:
    """The gate's answer from recorded boots, pair by pair in the order of time, until it is clear.

    `read` gives the side of a name. A baseline that the index does not know yet gives NO_BASELINE. Raises ConfigError
    for an unknown candidate, and for sides that cannot be compared.
    """
    candidate = read(candidate_name)
    try:
        baseline = read(baseline_name)
    except UnknownNameError as error:
        return Gated(
            GateVerdict.NO_BASELINE,
            GateSide(baseline_name, f"{error.what}"),
            _named(candidate),
            policy,
            f"{baseline_name} has no measurements yet",
            command=command,
        )
    damaged = {**candidate.damaged, **baseline.damaged}
    if not any(baseline.points.values()):
        hint = "fsjoule show RUN, or fsjoule index series, lists what was measured, and where"
        raise ConfigError(f"{baseline.title} has no matching measurement", hint=hint)
    pairs, notes = recorded_pairs(
        baseline, candidate, drift_not_excluded=drift_not_excluded, across_boards=across_boards
    )
    guest_time = baseline.guest_time and candidate.guest_time
    budget = min(policy.budget_pairs, max(len(pairs), 1))
    judge = Judge(replace(policy, budget_pairs=budget), guest_time=guest_time)
    reason: str | None = None
    for pair in pairs:
        reason = judge.see(pair)
        if reason is not None:
            break
    judge.finish()
    if judge.verdict is GateVerdict.UNDECIDED and len(pairs) < policy.budget_pairs:
        reason = "there is no more than 1 pair" if len(pairs) == 1 else f"there are no more than {len(pairs)} pairs"
    return Gated(
        verdict=judge.verdict,
        baseline=_named(baseline),
        candidate=_named(candidate),
        policy=policy,
        ended=reason or "the budget was used up",
        pairs=judge.pairs,
        findings=judge.findings,
        notes=(
            *notes,
            *single_notes(judge.findings),
            *(f"{path} was left out: {reason}" for path, reason in damaged.items()),
        ),
        faults=tuple(judge.faults),
        kernel_warnings=judge.kernel_warnings,
        command=command,
        folders={**baseline.folders, **candidate.folders},
    )


def _named(side: Side) -> GateSide:
    return GateSide(side.name, side.title)
