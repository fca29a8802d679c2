"""Advice from a board: what a profile needs and nobody has measured yet, its cost, the benches, and the answer.

Only complete runs count as measured when the benches are planned. So the same question has the same plan after an
interruption, and a bench that was begun for it goes on in its folder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from fsjoule.errors import ConfigError
from fsjoule.filesystems import filesystem
from fsjoule.lab import EnvironmentFile, read_environment
from fsjoule.layers import named_storages
from fsjoule.model import CARD, Run, RunStatus
from fsjoule.model.filesystem import content_of
from fsjoule.model.labels import listed
from fsjoule.model.layer import device_of, stack_of
from fsjoule.model.medium import Medium
from fsjoule.runs.options import BenchOptions
from fsjoule.runs.plan import earlier_rates, earlier_runs, planned
from fsjoule.runs.request import RunRequest, choose
from fsjoule.store.reader import LoadedRun
from fsjoule.suites import PlanEstimate, estimate, suite
from fsjoule.suites.profile import UsageProfile
from fsjoule.verdicts.advice.evidence import GUEST_TIME_CUTS, AdviceEvidence, evidence_of
from fsjoule.verdicts.advice.parts import POWER_LOSS, POWER_LOSS_SUITE, SUITE, parts_of
from fsjoule.virtual.board.config import Cache
from fsjoule.virtual.lab.lab import REAL_TIME
from fsjoule.virtual.lab.services import board_template

# Boots that decide most figures (docs/statistics.md).
_BOOTS_IN_GUEST_TIME: Final = 2
_BOOTS: Final = 3
_REFUSED: Final = ConfigError.exit_code
_ALL_VALID: Final = 0
_SOME_INVALID: Final = 1


@dataclass(frozen=True, slots=True)
class AdviceQuestion:
    """What is asked: a profile by name, on the board of an environment file; every name checked by `question`."""

    name: str
    profile: UsageProfile
    environment: EnvironmentFile
    filesystems: tuple[str, ...]
    kernel: str
    storage: str
    repeat: int
    results: Path
    boards: int = 1

    @property
    def storages(self) -> tuple[str, ...]:
        return listed(self.storage, option="--storage")

    @property
    def no_cuts(self) -> str:
        """Why power cuts are not measured there; empty if they are, or if the profile has none."""
        return no_cuts(self.environment, self.storage) if self.profile.power_cuts_per_year else ""


@dataclass(frozen=True, slots=True)
class Missing:
    """A bench to be run. `begun` is the unfinished run of it, if any; `cost` is that of the entries that are left."""

    suite: str
    filesystems: tuple[str, ...]
    workloads: tuple[str, ...]
    repeat: int
    cost: PlanEstimate
    begun: Path | None = None


@dataclass(frozen=True, slots=True)
class Benches:
    """What is missing, and how many earlier runs of the board its cost was learned from (0: a guess)."""

    missing: tuple[Missing, ...]
    learned_from: int

    @property
    def cost(self) -> PlanEstimate:
        parts = [one.cost for one in self.missing]
        return PlanEstimate(
            measurements=sum(one.measurements for one in parts),
            boots=sum(one.boots for one in parts),
            seconds=sum(one.seconds for one in parts),
            written_bytes=sum(one.written_bytes for one in parts),
            energy_j=sum(one.energy_j for one in parts),
        )


def question(
    name: str,
    profile: UsageProfile,
    environment: EnvironmentFile,
    *,
    filesystems: str | None,
    kernel: str,
    storage: str | None,
    repeat: int | None,
    results: Path,
    boards: int = 1,
) -> AdviceQuestion:
    """Check the options. Repetitions default to few boots. Raises ConfigError, which lists the choices."""
    times = repeat or (_BOOTS_IN_GUEST_TIME if environment.profile.guest_time else _BOOTS)
    devices = ",".join(named_storages(storage or CARD))
    asked = AdviceQuestion(name, profile, environment, (), kernel, devices, times, results, min(boards, times))
    measured = {workload.slug for leaf in suite(SUITE).leaves for workload in leaf.workloads}
    lacking = [part.slug for part in parts_of(profile) if part.slug not in measured]
    if lacking:
        raise ConfigError(
            f"no suite measures {', '.join(lacking)} of the profile {name}",
            hint="blocks of 4, 16, 64, 256 or 1024 KiB: reads.block_kib, writes.block_kib",
        )
    return replace(asked, filesystems=_choice(asked, SUITE, filesystems, None).filesystems)


def no_cuts(environment: EnvironmentFile, storage: str) -> str:
    """Why power cuts cannot show losses on one of these devices; empty if they can, or if that is not known."""
    if environment.profile.guest_time:
        return GUEST_TIME_CUTS
    if stack_of(storage):
        return "power cuts are not measured with layers"
    if environment.virtual_lab is None:
        return ""
    disks = board_template(environment.virtual_board or REAL_TIME).disks
    for each in listed(storage):
        if each in environment.profile.storages and environment.profile.storages[each].forgets:
            return f"{each} is simulated in the board's memory, and empty after each power-on"
        if each == CARD or each not in disks or disks[each].cache is Cache.KEPT:
            return f"the emulated {each} keeps all that has reached it, it has no volatile cache"
    return ""


def with_board(evidence: AdviceEvidence) -> AdviceEvidence:
    """Recorded evidence, with what its environment file, if it is still there, says of power cuts."""
    try:
        environment = read_environment(Path(evidence.environment))
    except ConfigError:
        return evidence
    known = environment.profile.name == evidence.board and not evidence.no_cuts
    return replace(evidence, no_cuts=no_cuts(environment, evidence.storage)) if known else evidence


def benches(asked: AdviceQuestion) -> Benches:
    """What is still to be measured, with its cost. Raises ConfigError for an impossible plan."""
    runs = list(_runs_of(asked))
    rates = earlier_rates(asked.results, asked.environment.profile)
    complete = [one for one in runs if one.run.status is RunStatus.COMPLETE]
    missing: list[Missing] = []
    for (name, filesystems, repeat), workloads in _lacking(asked, _evidence(asked, complete)).items():
        there = replace(asked, repeat=repeat, storage=",".join(_fitting(asked, filesystems)))
        choice = _choice(there, name, ",".join(filesystems), workloads)
        entries = planned(choice, asked.environment.profile, choice.kernels).entries
        begun = next((one for one in runs if _is_begun(one.run, choice, there)), None)
        if begun is not None:
            done = {each.number for each in begun.measurements}
            entries = tuple(entry for entry in begun.run.plan.entries if entry.number not in done)
        cost = estimate(entries, rates)
        missing.append(Missing(name, filesystems, tuple(workloads), repeat, cost, begun and begun.path))
    return Benches(tuple(missing), rates.runs)


def measure(asked: AdviceQuestion, missing: Iterable[Missing], bench: Callable[[Sequence[str]], int]) -> int:
    """Run the benches one after the other; `bench` takes the options of `fsjoule bench` and returns its exit code.

    Returns the exit code of the first one that ended early, else 0: invalid measurements are left out of the answer.
    An unfinished run that cannot go on, because its lab or fsjoule has changed, is measured anew.
    """
    board = ["--lg-env", str(asked.environment.path), *(["--boards", str(asked.boards)] if asked.boards > 1 else [])]
    for one in missing:
        code = _REFUSED
        if one.begun is not None:
            code = bench([*board, "--resume", str(one.begun)])
        if code == _REFUSED:
            words = ["--suite", one.suite, "--fs", ",".join(one.filesystems), "--workload", ",".join(one.workloads)]
            words += ["--kernel", asked.kernel, "--repeat", str(one.repeat), "--results", str(asked.results)]
            storages = ",".join(_fitting(asked, one.filesystems))
            words += [] if storages == CARD else ["--storage", storages]
            code = bench([*board, *words])
        if code not in (_ALL_VALID, _SOME_INVALID):
            return code
    return _ALL_VALID


def answered(asked: AdviceQuestion) -> AdviceEvidence:
    """What the board's runs have now. Raises ConfigError if there is nothing."""
    evidence = _evidence(asked, list(_runs_of(asked)))
    if evidence is None:
        raise ConfigError("no valid measurement: there is no answer", hint="see the lines above, and start again")
    return replace(evidence, no_cuts=asked.no_cuts, environment=str(asked.environment.path))


def _choice(asked: AdviceQuestion, name: str, filesystems: str | None, workloads: Iterable[str] | None) -> RunRequest:
    options = BenchOptions(
        suite=name,
        fs=filesystems,
        kernel=asked.kernel,
        repeat=asked.repeat,
        results=asked.results,
        seed=1,
        storage=asked.storage,
        boards=asked.boards,
        workload=None if workloads is None else ",".join(workloads),
    )
    return choose(options, asked.environment)


def _runs_of(asked: AdviceQuestion) -> Iterator[LoadedRun]:
    """The board's runs with this kernel alone, the newest first."""
    for one in earlier_runs(asked.results, asked.environment.profile):
        if [kernel.asked for kernel in one.run.kernels] == [asked.kernel]:
            yield one


def _evidence(asked: AdviceQuestion, runs: Sequence[LoadedRun]) -> AdviceEvidence | None:
    """What these runs have of the filesystems, on the newest one's place, meter and kernel; None if nothing."""
    there = _measured_storages(runs)
    storage = ",".join(each for each in asked.storages if each in there)
    if not storage:
        return None
    try:
        evidence = evidence_of(runs, storage=storage, like_newest=True)
    except ConfigError:
        return None
    filesystems = tuple(one for one in evidence.filesystems if one.name in map(content_of, asked.filesystems))
    return replace(evidence, filesystems=filesystems) if filesystems else None


def _fitting(asked: AdviceQuestion, filesystems: Iterable[str]) -> tuple[str, ...]:
    """The storage devices on which one of these filesystems is to be measured."""
    kinds = {name: each.medium for name, each in asked.environment.profile.storages.items()}
    media = {filesystem(name).medium for name in filesystems}
    return tuple(each for each in asked.storages if kinds.get(device_of(each), Medium.BLOCK) in media)


def _measured_storages(runs: Iterable[LoadedRun]) -> set[str]:
    """The storage devices of which these runs have a valid measurement."""
    there: set[str] = set()
    for one in runs:
        of = {entry.number: entry.storage for entry in one.run.plan.entries}
        there |= {of.get(m.number, CARD) for m in one.measurements if m.valid and not m.workload.is_boot}
    return there


def _lacking(
    asked: AdviceQuestion, evidence: AdviceEvidence | None
) -> Mapping[tuple[str, tuple[str, ...], int], list[str]]:
    """The workloads that were measured in too few boots, by suite, filesystems and boots to be made.

    A filesystem has as many boots of a part as on the storage device with the fewest.
    """
    known = {(one.name, one.storage): one for one in evidence.filesystems} if evidence else {}
    having = {
        name: [known.get((content_of(name), each)) for each in _fitting(asked, [name])] for name in asked.filesystems
    }
    lacking: dict[tuple[str, tuple[str, ...], int], list[str]] = {}
    for part in parts_of(asked.profile):
        boots = {
            name: asked.repeat - min((len(one.rows.get(part.slug, ())) if one else 0 for one in there), default=0)
            for name, there in having.items()
        }
        names = tuple(name for name, more in boots.items() if more > 0)
        if names:
            lacking.setdefault((SUITE, names, max(boots.values())), []).append(part.slug)
    if asked.profile.power_cuts_per_year and not asked.no_cuts:
        names = tuple(name for name, there in having.items() if not all(one and one.cuts for one in there))
        if names:
            lacking[POWER_LOSS_SUITE, names, suite(POWER_LOSS_SUITE).repeat] = [POWER_LOSS]
    return lacking


def _is_begun(run: Run, choice: RunRequest, asked: AdviceQuestion) -> bool:
    """Whether a run ended early that had this plan."""
    plan = run.plan
    return (
        run.status is RunStatus.ABORTED
        and (plan.suite, plan.filesystems, plan.repeat) == (choice.suite.name, choice.filesystems, choice.repeat)
        and {entry.storage for entry in plan.entries} == set(asked.storages)
        and {entry.workload.slug for entry in plan.entries} == set(choice.workloads or ())
    )
