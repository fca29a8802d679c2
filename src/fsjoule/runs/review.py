"""A patch series judged on the emulated board: the whole against its base, then each patch against the one before.

What does not change the kernel is not booted: documentation is known by its paths, other patches by what a build read
and by equal kernels. Neighbouring patches share kernels, so n patches need n + 1 builds at most.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Final

from fsjoule import kernels, lab
from fsjoule.errors import KernelBuildError
from fsjoule.filesystems import FILESYSTEMS
from fsjoule.host import interrupts
from fsjoule.kernels.configuration import board_configuration
from fsjoule.kernels.reads import is_documentation
from fsjoule.kernels.recipe import load_recipe, recipes_folder
from fsjoule.kernels.tree.builder import CommitBuilds
from fsjoule.kernels.tree.commits import Line
from fsjoule.kernels.tree.frozen import Frozen
from fsjoule.kernels.tree.patch_series import find_patch_series
from fsjoule.kernels.tree.pools import changes_of
from fsjoule.kernels.tree.repository import open_repository
from fsjoule.model.bisection import BuiltKernel, NoKernel, WantedKernel
from fsjoule.model.labels import counted
from fsjoule.model.medium import Medium
from fsjoule.model.metrics import Metric, metrics_of
from fsjoule.ports import KernelBuilds
from fsjoule.runs.bisect.bisection import TreeBuilds
from fsjoule.runs.gate import Sides, gate_measured
from fsjoule.runs.options import BenchOptions
from fsjoule.runs.request import RunRequest, choose
from fsjoule.statistics.policy import Policy
from fsjoule.store.files import check_writable
from fsjoule.store.finding import news
from fsjoule.store.gate import Gated, GateSide, GateVerdict
from fsjoule.store.review import PatchState, Review, ReviewedPatch

_log: Final = logging.getLogger(__name__)

GUEST_TIME_POLICY: Final = Policy(
    metrics=(Metric.INSTRUCTIONS, Metric.THROUGHPUT, Metric.ENERGY, Metric.WRITE_AMPLIFICATION),
    smallest_effect=0.02,
    effects={Metric.INSTRUCTIONS: 0.002, Metric.ENERGY: 0.05},
    budget_pairs=10,
    least_pairs=2,
)
"""For boots that hardly differ (docs/deterministic-figures.md)."""
_DEFAULT_FILESYSTEM: Final = "ext4"
_FOLDERS: Final = {"vfat": "fat"}  # where a filesystem's sources have another name

Gate = Callable[[Sides, Sides], Gated]
"""Judges two kernels: the names of baseline and candidate, and the folders of their kernels."""


@dataclass(frozen=True, slots=True)
class ReviewRequest:
    """`each` says whether each patch is judged; None: if the series changed something. `options` are of the boots."""

    environment: lab.EnvironmentFile
    tree: Path
    series: str
    options: BenchOptions
    policy: Policy
    command: tuple[str, ...]
    base: str | None = None
    each: bool | None = None
    config: tuple[str, ...] = ()
    jobs: int = 2
    index: str | None = None


def review(request: ReviewRequest) -> Review:
    """Judge a series. Nothing in the user's tree changes.

    Raises ConfigError for what is no series, or does not apply; KernelBuildError if the base does not build; what the
    gate raises.
    """
    repository = open_repository(request.tree)
    line = find_patch_series(repository, request.series, request.base)
    steps = changes_of(repository, line)
    paths = {change.path for step in steps for change in step or ()}
    options = replace(
        request.options,
        fs=request.options.fs or touched_filesystems(paths),
        seed=secrets.randbits(32) if request.options.seed is None else request.options.seed,
    )
    recipe = request.environment.profile.recipe
    any_kernel = kernels.kernel_choices(recipe)[0]
    choose(options, request.environment, pair=(any_kernel, any_kernel))  # a wrong name is found before two are built
    lab.check_places(request.environment)
    check_writable(options.results or Path(), "--results")
    configuration = board_configuration(load_recipe(recipes_folder(), recipe), request.config)
    base_name = repository.describe(line[0].id)
    _log.info("%s on %s: %s", request.series, base_name, counted(len(line) - 1, "patch", "patches"))
    command = request.command
    if request.options.seed is None:
        command = (*command, "--seed", str(options.seed))

    runs: list[Path] = []

    def gate(names: Sides, folders: Sides) -> Gated:
        chosen = choose(options, request.environment, pair=(folders.baseline, folders.candidate))
        gated = gate_measured(
            names,
            with_figures(chosen, request.policy),
            request.environment,
            request.policy,
            history=request.index,
            command=command,
            earlier=runs,
        )
        runs.extend([Path(gated.folder)] if gated.folder else [])
        return gated

    names = Sides(base_name, request.series)
    judge = LineJudge(line, names, request.policy, gate, command)
    if all(map(is_documentation, paths)):
        return judge.unchanged("only documentation changes; nothing was built")
    with ExitStack() as closing:
        closing.enter_context(interrupts.handled())
        plain = CommitBuilds(repository, Frozen(configuration, ()), request.jobs, recipe)
        builds = closing.enter_context(TreeBuilds(repository, plain, lambda: plain))
        builds.add(line)
        return replace(judge, compiler=plain.compiler).judged(builds, each=request.each)


def with_figures(request: RunRequest, policy: Policy) -> RunRequest:
    """The request without workloads that have none of the policy's figures (mkfs, mount): nobody looks at them."""
    workloads = (each for part in request.suite.leaves for each in part.workloads)
    slugs = {each.slug: None for each in workloads if not set(policy.metrics).isdisjoint(metrics_of(each))}
    return replace(request, workloads=tuple(slugs) or None)


def touched_filesystems(paths: Iterable[str]) -> str:
    """The filesystems whose sources are among the paths; the default one if there are none."""
    folders = {path.split("/")[1] for path in paths if path.startswith("fs/")}
    names = [
        name
        for name, row in FILESYSTEMS.items()
        if row.make and not row.read_only and row.medium is Medium.BLOCK and _FOLDERS.get(name, name) in folders
    ]
    return ",".join(names) or _DEFAULT_FILESYSTEM


def moved(gated: Gated) -> bool:
    """Whether a series has changed something: a figure, or what the kernel warns of."""
    return any(one.changed for one in gated.findings) or bool(news(gated.kernel_warnings))


@dataclass(frozen=True, slots=True)
class LineJudge:
    """Judges a line, whose position 0 is the base. `names` are the user's for its two ends."""

    line: Line
    names: Sides
    policy: Policy
    gate: Gate
    command: tuple[str, ...] = ()
    compiler: str = ""

    def unchanged(self, why: str) -> Review:
        """The review of a series that changes no kernel."""
        patches = [self._patch(at) for at in range(1, len(self.line))]
        return self._review(self._unmeasured(GateVerdict.IDENTICAL, why), patches)

    def judged(self, builds: KernelBuilds, *, each: bool | None = None) -> Review:
        """The whole is judged first, then each patch if `each` says so, or if the whole has moved.

        If the last patch does not build, nothing is measured, and patches are built up to the first that does not.
        Raises KernelBuildError if the base does not build.
        """
        commits = [commit.id for commit in self.line]
        base = builds.take(WantedKernel(commits[0]))
        if isinstance(base, NoKernel):
            raise KernelBuildError(f"the base, {self.names.baseline}, does not build: {base.why}")
        if len(set(builds.pools(commits))) == 1:
            return self.unchanged("this board's build reads no changed file; nothing was booted")
        tip = builds.take(WantedKernel(commits[-1]))
        if isinstance(tip, NoKernel):
            return self._broken(builds, tip)
        if each:  # while the board measures
            pools = builds.pools(commits)
            steps = zip(commits[1:], pairwise(pools), strict=True)
            firsts = [commit for commit, (one, two) in steps if two not in (one, pools[-1])]
            builds.expect([WantedKernel(commit) for commit in firsts])
        _log.info("review: the series as a whole")
        whole = self.gate(self.names, Sides(str(base.folder), str(tip.folder)))
        if not (moved(whole) if each is None else each):
            return self._review(whole, [])
        return self._review(whole, self._each(builds, base, tip, whole))

    def _each(self, builds: KernelBuilds, base: BuiltKernel, tip: BuiltKernel, whole: Gated) -> list[ReviewedPatch]:
        commits = [commit.id for commit in self.line]
        patches: list[ReviewedPatch] = []
        before, before_at = base, 0
        for at in range(1, len(commits)):
            pools = builds.pools(commits)
            if pools[at] == pools[before_at]:
                patches.append(self._patch(at))
                before_at = at
                continue
            _log.info("review: patch %s of %s, %s", at, len(commits) - 1, self.line[at].subject)
            kernel = tip if pools[at] == pools[-1] else builds.take(WantedKernel(commits[at]))
            if isinstance(kernel, NoKernel):
                patches.append(self._patch(at, PatchState.UNBUILT, kernel.why))
                continue
            gated = None
            if kernel.image != before.image:
                is_all = (before.image, kernel.image) == (base.image, tip.image)
                folders = Sides(str(before.folder), str(kernel.folder))
                gated = whole if is_all else self.gate(Sides(self._name(before_at), self._name(at)), folders)
            skipped = tuple(range(before_at + 1, at)) if gated else ()
            patches.append(replace(self._patch(at), gated=gated, includes=skipped))
            before, before_at = kernel, at
        return patches

    def _broken(self, builds: KernelBuilds, tip: NoKernel) -> Review:
        last = len(self.line) - 1
        patches: list[ReviewedPatch] = []
        for at in range(1, last + 1):
            kernel = tip if at == last else builds.take(WantedKernel(self.line[at].id))
            if isinstance(kernel, NoKernel):
                patches.append(self._patch(at, PatchState.UNBUILT, kernel.why))
                break
            patches.append(self._patch(at, PatchState.BUILT))
        why = f"patch {len(patches)} of {last} does not build; nothing was measured"
        return self._review(self._unmeasured(GateVerdict.UNDECIDED, why), patches)

    def _patch(self, at: int, state: PatchState = PatchState.SAME, why: str = "") -> ReviewedPatch:
        return ReviewedPatch(at, self.line[at].id, self.line[at].subject, state, why)

    def _name(self, at: int) -> str:
        return f"patch {at}" if at else self.names.baseline

    def _unmeasured(self, verdict: GateVerdict, ended: str) -> Gated:
        baseline, candidate = (GateSide(name, name) for name in (self.names.baseline, self.names.candidate))
        return Gated(verdict, baseline, candidate, self.policy, ended, command=self.command)

    def _review(self, whole: Gated, patches: Sequence[ReviewedPatch]) -> Review:
        return Review(
            series=self.names.candidate,
            base=self.line[0].id,
            base_name=self.names.baseline,
            length=len(self.line) - 1,
            whole=whole,
            patches=tuple(patches),
            compiler=self.compiler,
            command=self.command,
        )
