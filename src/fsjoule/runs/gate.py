"""The gate on fresh boots: is the candidate worse than the baseline? Pairs are measured until the answer is clear."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fsjoule import kernels, lab
from fsjoule.errors import FsjouleError, KernelBuildError
from fsjoule.filesystems import modules_of
from fsjoule.model.series import Where
from fsjoule.report.gate import headline
from fsjoule.report.run import write_report
from fsjoule.runs.open_run import Observer
from fsjoule.runs.pairs import drift_notes, measure_pairs
from fsjoule.runs.request import RunRequest
from fsjoule.statistics.evidence import KnownNoise
from fsjoule.statistics.policy import Policy
from fsjoule.store.files import check_writable
from fsjoule.store.folder import PAGE
from fsjoule.store.gate import Gated, GateSide, GateVerdict, keep_gate
from fsjoule.store.index.database import open_index
from fsjoule.store.index.queries import points
from fsjoule.verdicts.gate import BootPair, Judge, Test, known_noise

_log: Final = logging.getLogger(__name__)

_DIGEST_SHOWN: Final = 12
_KNOWN: Final = "boots that another comparison of the series had made are not made again: they are equal to the digit"


@dataclass(frozen=True, slots=True)
class Sides:
    baseline: str
    candidate: str


def build_sides(sides: Sides, tree: Path, config: tuple[str, ...]) -> Sides:
    """Build two revisions of a tree; returns the kernels' folders. Raises KernelBuildError, which names the side."""
    folders: list[str] = []
    for side, revision in (("baseline", sides.baseline), ("candidate", sides.candidate)):
        try:
            folders.append(str(kernels.build_kernel(tree, revision, config)))
        except KernelBuildError as error:
            raise KernelBuildError(f"the {side}, {revision}: {error.what}", hint=error.hint) from error
    return Sides(*folders)


def gate_measured(
    sides: Sides,
    choice: RunRequest,
    environment: lab.EnvironmentFile,
    policy: Policy,
    *,
    allow_same: bool = False,
    history: str | None = None,
    command: tuple[str, ...],
    observer: Observer | None = None,
    earlier: Sequence[Path] = (),
) -> Gated:
    """Measure pairs of boots on the board of an environment file until the policy's rates are met.

    `sides` are the user's names for the choice's two kernels. Identical kernels are measured only with `allow_same`.
    `history` is an index whose earlier boots tell how noisy the series are; `observer` hears of the run. Boots in guest
    time that the runs in the folders `earlier` have are not made again. The run folder keeps the answer as `gate.json`.
    Raises as `pairs.measure_pairs` does.
    """
    check_writable(choice.results, "--results")  # before kernels are fetched
    lab.check_places(environment)
    modules = modules_of(choice.filesystems)
    taken = kernels.take_kernels(choice.kernels, recipe=environment.profile.recipe, modules=modules)
    baseline, candidate = taken
    named_sides = (_kernel(sides.baseline, baseline), _kernel(sides.candidate, candidate))
    ended = ""
    same = baseline.facts.digest == candidate.facts.digest
    if same and not allow_same:
        ended = "both kernels are the same, byte for byte; nothing was measured"
        return Gated(GateVerdict.IDENTICAL, *named_sides, policy, ended, command=command)
    guest_time = environment.profile.guest_time
    # There a kernel's boots differ by their seeds, which a pair's boots share: that spread is not a pair's noise.
    judge = Judge(policy, {} if guest_time else _known_noise(history, choice, policy), guest_time)

    lacking: dict[str, None] = {}

    def enough(pair: BootPair) -> str | None:
        nonlocal ended
        lacking.update(dict.fromkeys(sorted(series.label for series in pair.lacking)))
        reason = judge.see(pair)
        ended = reason or "the budget was used up"
        _log.info("%s", judge.progress())
        return reason

    run = measure_pairs(
        choice, environment, taken=taken, enough=enough, command=command, observer=observer, earlier=earlier
    )
    judge.finish()
    gated = Gated(
        verdict=judge.verdict,
        baseline=named_sides[0],
        candidate=named_sides[1],
        policy=policy,
        ended=ended,
        pairs=run.pairs,
        findings=judge.findings,
        notes=(
            *["both kernels are the same, byte for byte"] * same,
            *[_KNOWN] * bool(run.known_boots),
            *[f"not tested, because neither boot has it: {', '.join(lacking)}"] * bool(lacking),
            *drift_notes(run.folder),
        ),
        faults=tuple(judge.faults),
        kernel_warnings=judge.kernel_warnings,
        fresh=True,
        folder=str(run.folder),
        seed=choice.seed,
        command=command,
        folders={each.name: each for each in (run.folder, *(earlier if run.known_boots else ()))},
        known_boots=run.known_boots,
    )
    keep_gate(gated, headline(gated), run.folder)
    try:
        # The session wrote it before there was an answer.
        write_report(run.folder)
    except FsjouleError as error:
        _log.info("%s lacks the gate's answer: %s", PAGE, error.what)
    return gated


def _kernel(asked: str, taken: kernels.TakenKernel) -> GateSide:
    facts = taken.facts
    title = f"{asked}: kernel {facts.label}, {facts.release}, digest {facts.digest[:_DIGEST_SHOWN]}"
    return GateSide(facts.label, title, facts.digest)


def _known_noise(index: str | None, choice: RunRequest, policy: Policy) -> dict[Test, KnownNoise]:
    if index is None:
        return {}
    where = Where(suites=(choice.suite.name,), filesystems=choice.filesystems)
    with open_index(index) as opened:
        return known_noise(points(opened, where, metrics=policy.metrics), policy.metrics)
