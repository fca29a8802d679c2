"""What a run will do: the plan of a request on its board, the entries to be measured, and how often.

Boots go on until each statement about its filesystems is decided. What a plan costs is learned from the board's earlier
runs.
"""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, islice
from pathlib import Path
from typing import Final

from fsjoule import images, kernels, lab
from fsjoule.bench.boots import boot_key
from fsjoule.errors import ConfigError, ResultError
from fsjoule.host.inside import list_inside
from fsjoule.model import (
    MIB,
    BoardProfile,
    KernelFacts,
    Measurement,
    Plan,
    Planned,
    Provision,
    Reach,
    RunStatus,
)
from fsjoule.model.labels import counted
from fsjoule.report.answer import first_decided, progress_text
from fsjoule.report.oneline import plan_lines
from fsjoule.runs.held_lab import HeldLab, check_equipment
from fsjoule.runs.request import MOST_MEASUREMENTS, RunRequest, check_profiled, least_boots
from fsjoule.statistics.figures import Turn, interleaved
from fsjoule.statistics.superiority import SuperiorityRule
from fsjoule.store.files import check_writable
from fsjoule.store.reader import LoadedRun, load_run, load_run_file
from fsjoule.suites import (
    SCRATCH_ROOT,
    Arranged,
    BoardRates,
    Planning,
    StorageSpace,
    Suite,
    check_aged,
    check_fits,
    learned,
    packed,
    plan_entries,
)
from fsjoule.verdicts.filesystems import contests, rule_of

_log: Final = logging.getLogger(__name__)

# A board's newest runs predict it best.
_RUNS_LOOKED_AT: Final = 20
# Of an emulated board whose clock counts instructions, on an idle computer.
_AROUND_IN_GUEST_TIME_S: Final = 12.0
_SETUP_STARTED: Final = "FSJOULE_SETUP_STARTED"  # set by make: start of its set-up, in seconds of the epoch


@dataclass(frozen=True, slots=True)
class Repetition:
    """The repetitions of one run. `plan` has as many as there may be, `least` are measured whatever they show.

    `step` repetitions are added at once, one for each board. `until` is the last one to be measured, so far.
    """

    plan: Plan
    rule: SuperiorityRule
    least: int
    step: int = 1
    until: int = 0

    @classmethod
    def of(
        cls, plan: Plan, suite: Suite, *, guest_time: bool, boards: int, measured: Sequence[Measurement]
    ) -> Repetition:
        """The repetitions of a plan, of which some may be `measured`. Those that have begun are completed first."""
        rule = rule_of(guest_time=guest_time)
        least = min(least_boots(suite, rule), plan.repeat)
        begun = max((each.repetition for each in measured), default=0)
        return cls(plan, rule, least, boards, until=max(least, begun))

    def intent(self) -> str:
        """What will be measured, for the user: before it begins."""
        return (
            f"{self.least} to {counted(self.plan.repeat, 'boot')} of each: they go on until each figure of two "
            f"filesystems is decided, or equal within {100 * self.rule.equal_within:g} %"
        )

    def after(self, measured: Sequence[Measurement]) -> tuple[Repetition, str]:
        """Judge what is measured, after the last repetition so far, and add repetitions if something is open.

        Returns the repetitions from now on, and a line for the user; empty if there is nothing to judge.
        """
        judged = contests(measured, self.rule)
        if not judged:
            return self, ""
        text = progress_text(judged, self.until)
        if all(each.decided for each in judged):
            return self, text
        if self.until >= self.plan.repeat:
            return self, f"{text}; more boots are not measured (--repeat N measures N)"
        first, until = self.until + 1, min(self.until + self.step, self.plan.repeat)
        which = f"boot {first} follows" if first == until else f"boots {first} to {until} follow"
        return replace(self, until=until), f"{text} so far; {which}, of at most {self.plan.repeat}"

    def news(self, measured: Sequence[Measurement]) -> str:
        """The first statement that is decided, as soon as one is; else empty. It may still change: so far."""
        if max((each.repetition for each in measured), default=0) < self.rule.least_boots:
            return ""
        text = first_decided(contests(measured, self.rule))
        return f"so far: {text}" if text else ""

    def ended(self) -> Plan:
        """The plan as it was measured."""
        entries = tuple(each for each in self.plan.entries if each.repetition <= self.until)
        return replace(self.plan, repeat=self.until, entries=entries)


@dataclass(frozen=True, slots=True)
class RunPlan:
    """What will be done for a request: the plan, and which of its entries.

    The run has the entries of the numbers `selected` in the end. `to_do` are those to be measured, in the plan's order;
    of a resumed run that are missing ones, and those `again` that it has of a boot that is made again whole. With a
    `repetition` fewer may do. `taken` are the kernels, if they have been taken already; `planned_s` is the time that
    planning took, with make's set-up before it. `known` are measurements of earlier runs, by the plan's numbers, which
    stand for entries of this one.
    """

    request: RunRequest
    environment: lab.EnvironmentFile
    command: tuple[str, ...]
    plan: Plan
    to_do: tuple[Planned, ...]
    selected: frozenset[int]
    again: frozenset[int] = frozenset()
    repetition: Repetition | None = None
    taken: tuple[kernels.TakenKernel, ...] = ()
    planned_s: float = 0.0
    known: Mapping[int, Measurement] = field(default_factory=dict[int, Measurement])

    @property
    def profile(self) -> BoardProfile:
        return self.environment.profile

    @property
    def until(self) -> int:
        """The last repetition that is measured in any case."""
        return self.plan.repeat if self.repetition is None else self.repetition.until

    def expected(self, until: int) -> int:
        """How many measurements the run has after so many repetitions."""
        return sum(entry.number in self.selected and entry.repetition <= until for entry in self.plan.entries)

    def entries_until(self, until: int) -> list[Planned]:
        """The entries to be measured up to a repetition."""
        return [entry for entry in self.to_do if entry.repetition <= until]

    def selecting(self, numbers: Iterable[int]) -> RunPlan:
        """The same with these entries only, those of a resumed run apart.

        In guest time a boot of which something is left to measure is measured again whole. Raises ConfigError if what a
        resumed run has of it is not selected.
        """
        earlier, selected = {each.number for each in self.request.kept}, frozenset(numbers)
        missing = [entry for entry in self.plan.entries if entry.number in selected - earlier]
        again: frozenset[int] = frozenset()
        if self.profile.guest_time:
            boots = set(map(boot_key, missing))
            begun = [entry for entry in self.plan.entries if entry.number in earlier and boot_key(entry) in boots]
            if left_out := [entry.slug for entry in begun if entry.number not in selected]:
                raise ConfigError(
                    f"-k leaves out what was measured in a boot that is made again whole: {', '.join(left_out)}",
                    hint="select that as well, or leave -k out",
                )
            again = frozenset(entry.number for entry in begun)
        numbered = {entry.number for entry in missing} | again
        to_do = tuple(entry for entry in self.plan.entries if entry.number in numbered)
        return replace(self, to_do=to_do, selected=selected | earlier, again=again)


def plan_run(
    request: RunRequest,
    held: HeldLab,
    command: tuple[str, ...],
    *,
    taken: tuple[kernels.TakenKernel, ...] = (),
    earlier: Sequence[Path] = (),
) -> RunPlan:
    """Check the request against its board, find the place, and make the plan.

    Boots in guest time that the runs in the folders `earlier` have of the `taken` kernels are not made again.
    Raises ConfigError for an impossible plan, ResultError for a run that needs no more boots, and ConfigError or
    LabError for a missing or occupied place.
    """
    started_s = time.monotonic()
    environment = held.environment
    profile = environment.profile
    if request.profiled:
        check_profiled(environment)
    if request.resumed is None:
        check_writable(request.results, "--results")
    if held.find() and lab.wants_virtual_lab(environment):
        check_equipment(environment, request.boards)
    if request.resumed is not None:
        request.resumed.check_storages(profile.storages)
    labels = tuple(kernel.facts.label for kernel in taken)
    plan = plan_of(request, profile, labels or kernels.kernel_labels(request.kernels, profile.recipe))
    repetition = _repetition(request, profile, plan) if plan.until_decided else None
    for line in plan_lines(plan.left_out, plan.adjusted):
        _log.info("%s", line)
    run_plan = RunPlan(
        request,
        environment,
        command,
        plan,
        to_do=plan.entries,
        selected=frozenset(entry.number for entry in plan.entries),
        repetition=repetition,
        taken=taken,
        planned_s=time.monotonic() - started_s + make_setup_s(),
    )
    if not earlier or not profile.guest_time:
        return run_plan
    known = known_boots(plan, [kernel.facts for kernel in taken], earlier)
    selected = run_plan.selecting(entry.number for entry in plan.entries if entry.number not in known)
    return replace(selected, known=known)


def known_boots(plan: Plan, facts: Sequence[KernelFacts], earlier: Iterable[Path]) -> dict[int, Measurement]:
    """The measurements that earlier runs have of a plan's boots, by the plan's numbers; of whole, valid boots only.

    For a board in guest time, where a kernel's boots with one seed are equal to the digit. Raises ResultError for a
    folder that has no run.
    """
    boots: dict[tuple[str, tuple[Planned, ...]], list[Measurement]] = {}
    for folder in earlier:
        loaded = load_run(folder)
        theirs = loaded.run.plan
        if (theirs.seed, theirs.size_factors, theirs.files) == (plan.seed, plan.size_factors, plan.files):
            valid = {each.number: each for each in loaded.measurements if each.valid}
            for boot, entries in _boots(theirs, loaded.run.kernels):
                if all(entry.number in valid for entry in entries):
                    boots[boot] = [valid[entry.number] for entry in entries]
    return {
        entry.number: measurement
        for boot, entries in _boots(plan, facts)
        if boot in boots
        for entry, measurement in zip(entries, boots[boot], strict=True)
    }


def _boots(
    plan: Plan, facts: Iterable[KernelFacts]
) -> Iterator[tuple[tuple[str, tuple[Planned, ...]], tuple[Planned, ...]]]:
    """What each boot is, by its kernel's content and what is measured in it, with its entries in this plan."""
    digests = {each.label: each.digest for each in facts}
    for _, group in groupby(plan.entries, key=boot_key):
        entries = tuple(group)
        yield (digests[entries[0].kernel], tuple(replace(each, number=0, kernel="") for each in entries)), entries


def _repetition(request: RunRequest, profile: BoardProfile, plan: Plan) -> Repetition:
    """The repetitions of a plan that goes on until it is decided. Raises ResultError if it is."""
    resumed = request.resumed
    repetition = Repetition.of(
        plan, request.suite, guest_time=profile.guest_time, boards=request.boards, measured=request.kept
    )
    if resumed is not None and resumed.run.status is RunStatus.COMPLETE and repetition.until == resumed.begun:
        repetition, line = repetition.after(request.kept)
        if repetition.until == resumed.begun:
            hint = f"--repeat {resumed.begun + 1} adds a boot all the same"
            raise ResultError(f"{resumed.path} needs no more boots: {line or 'nothing is to be decided'}", hint=hint)
    _log.info("%s", repetition.intent())
    return repetition


def plan_of(request: RunRequest, profile: BoardProfile, labels: tuple[str, ...]) -> Plan:
    """The plan of a request on a board, with these labels of its kernels; a resumed run's. Raises ConfigError."""
    if request.resumed is not None:

        def plan_again(storages: tuple[str, ...] | None) -> tuple[Planned, ...]:
            again = replace(request, storages=storages)
            return planned(again, profile, request.resumed.run.plan.kernels if request.resumed else labels).entries

        return replace(request.resumed.plan(request.repeat, plan_again), until_decided=request.until_decided)
    arranged = planned(request, profile, labels)
    return Plan(
        suite=request.suite.name,
        filesystems=request.filesystems,
        kernels=labels,
        repeat=arranged.entries[-1].repetition,
        seed=request.seed,
        size_factors={
            part.name: request.factor_for(part.name, profile) for part in request.suite.leaves if part.scaled
        },
        entries=arranged.entries,
        left_out=arranged.left_out,
        adjusted=arranged.adjusted,
        until_decided=request.until_decided,
        files=packed(request.suite.contents),
    )


def planned(request: RunRequest, profile: BoardProfile, labels: tuple[str, ...]) -> Arranged:
    """The plan's entries (kernels by label), with notes. Raises ConfigError if one is impossible on this board."""

    def factor_for(name: str) -> float:
        return request.factor_for(name, profile)

    kernel_order = None
    if request.paired:
        # Baseline and candidate in boot order, pair by pair.
        label = dict(zip(Turn, labels, strict=True))
        order = interleaved(request.repeat, seed=request.seed)
        kernel_order = [(label[first], label[second]) for first, second in order]
    planning = Planning(
        filesystems=request.filesystems,
        kernels=labels,
        repeat=request.repeat,
        seed=request.seed,
        provision=request.provision,
        factor_for=factor_for,
        root_filesystems=images.root_filesystem_choices(profile.recipe),
        kernel_order=kernel_order,
        guest_time=profile.guest_time,
        memory_bytes=profile.memory_bytes,
        further=profile.storages,
        storages=request.storages,
        workloads=request.workloads,
        states=request.states,
        stacks=request.stacks,
    )
    arranged = plan_entries(request.suite, planning)
    if request.until_decided:
        first = sum(entry.repetition == 1 for entry in arranged.entries)
        most = max(1, MOST_MEASUREMENTS // first)
        arranged = replace(arranged, entries=tuple(each for each in arranged.entries if each.repetition <= most))
    if len(arranged.entries) > MOST_MEASUREMENTS:
        raise ConfigError(
            f"a plan of {len(arranged.entries)} measurements is too long: the limit is {MOST_MEASUREMENTS}",
            hint="choose fewer repetitions",
        )
    check_reach(profile, labels, root_filesystems(arranged.entries))
    further = {name: storage.size_bytes for name, storage in profile.storages.items()}
    scratch_bytes, root_free_bytes = images.card_space(profile.recipe)
    if profile.scratch_bytes > scratch_bytes:
        what = f"scratch_mib: the scratch partition has {scratch_bytes / MIB:.0f} MiB"
        raise ConfigError(what, hint="choose less in the environment file")
    space = StorageSpace(profile.scratch_bytes or scratch_bytes, root_free_bytes, further)
    check_aged(arranged.entries, space)
    check_fits(request.suite, arranged.entries, space, factor_for)
    return arranged


def root_filesystems(entries: Iterable[Planned]) -> tuple[str, ...]:
    """The root filesystems of the cards that a plan needs."""
    roots = (e.filesystem if e.provision is Provision.ROOT else SCRATCH_ROOT for e in entries)
    return tuple(dict.fromkeys(roots))


def check_reach(profile: BoardProfile, kernels: Sequence[str], roots: Sequence[str]) -> None:
    """Raise ConfigError if a plan changes more of the card than the board's flasher can."""
    if profile.reach is Reach.KERNEL and images.has_second_root(profile.recipe):
        return
    kinds = {
        "kernels": kernels if profile.reach is Reach.SCRATCH else (),
        "root filesystems": roots if profile.reach is not Reach.CARD else (),
    }
    second = "give the recipe's card a second root (card.second_root), " if profile.reach is Reach.KERNEL else ""
    other = f"{second}or use a flasher that writes the whole card (docs/flashing.md)"
    for kind, names in kinds.items():
        if len(names) > 1:
            raise ConfigError(
                f"the plan has {len(names)} {kind} ({', '.join(names)}), "
                f"but the flasher of {profile.name} changes only {profile.reach}",
                hint=f"choose one of them, {other}",
            )
    if profile.reach is Reach.KERNEL and (others := [name for name in roots if name != SCRATCH_ROOT]):
        raise ConfigError(
            f"the plan has the root filesystem {others[0]}, but the flasher of {profile.name} changes only "
            f"{profile.reach}: the root stays the card's own, {SCRATCH_ROOT}",
            hint=f"choose --provision scratch, {other}",
        )


def check_apart(entries: Iterable[Planned]) -> None:
    """Raise ConfigError for a plan whose boots several boards cannot share."""
    cut = next((each for each in entries if each.workload.cuts_power), None)
    if cut is not None:
        raise ConfigError(
            f"--boards: {cut.slug} cuts the power and goes on in the boot after the last cut, which is one board's",
            hint="leave --boards out, or this workload (-k)",
        )


def earlier_runs(results: Path, profile: BoardProfile) -> Generator[LoadedRun]:
    """The runs of this board below `results`, the newest first, read one by one; damaged ones are left out."""
    try:
        names = list_inside(results).folders
    except ResultError:
        return
    for name in sorted(names, reverse=True):
        if f"-{profile.name}-" not in name:
            continue
        try:
            run = load_run_file(results / name)
            # A folder name of the board `virtual-x86` contains `virtual` too.
            if {board.name for board in run.boards.values()} == {profile.name}:
                yield load_run(results / name)
        except ResultError:
            continue


def earlier_rates(results: Path, profile: BoardProfile) -> BoardRates:
    """The rates learned from the newest runs of this board below `results`; a guess if there are none."""
    runs = islice(earlier_runs(results, profile), _RUNS_LOOKED_AT)
    rates = learned((each.run, each.measurements) for each in runs)
    guest_time = profile.guest_time and not rates.runs
    return replace(rates, around_s=_AROUND_IN_GUEST_TIME_S) if guest_time else rates


def make_setup_s() -> float:
    """Seconds of make's set-up before it started this process; 0 without make."""
    try:
        seconds = time.time() - float(os.environ.pop(_SETUP_STARTED, ""))
    except ValueError:
        return 0.0  # a user may have set it to anything
    return seconds if 0 < seconds < math.inf else 0.0
