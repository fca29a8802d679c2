"""Pairs of fresh boots over fakes of the ports, on which a kernel sets the speed; and kernels that can be booted."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import toy_kernel
from fake_bench import AFTER, COUNTERS, FIO_JSON, IMAGE, answer
from results_factory import BOARD

from fsjoule import kernels, lab
from fsjoule.bench.onboard import marks as onboard
from fsjoule.bench.run import BoardBench
from fsjoule.host import process
from fsjoule.kernels.recipe import load_recipe, recipes_folder
from fsjoule.model import Plan, Profile, Run, RunStatus
from fsjoule.model.run import LabFacts
from fsjoule.ports import CommandResult
from fsjoule.runs.open_run import Observer
from fsjoule.runs.pairs import PairedRun, known_of, run_pairs
from fsjoule.runs.plan import known_boots, planned
from fsjoule.runs.request import RunRequest
from fsjoule.store.folder import RunFolder
from fsjoule.testing import FakeBoard, FakeClock, FakeMeter, FakeProfiler, FakeShell
from fsjoule.verdicts.gate import Enough

_DURATION = b"1.00 1.02 1.02 1\n0m0.0s 0m0.0s\n0m0.01s 0m0.01s\n"
_BEGIN_S = datetime(2026, 3, 1, tzinfo=UTC).timestamp()
_SYMBOLS = ("bf000000 t btrfs_read [btrfs]", "c0000000 T vfs_read")


def kernel_folder(folder: Path, release: str, *, recipe: str = "x86") -> Path:
    """What a build of a kernel leaves, with all that the recipe's board needs built in."""
    needed = load_recipe(recipes_folder(), recipe)
    modules = folder / "lib" / "modules" / release
    modules.mkdir(parents=True)
    (folder / needed.boot.image).write_text(f"the kernel {release}")
    if needed.boot.dtb is not None:
        (folder / needed.boot.dtb).write_bytes(
            process.run(["dtc", "-q"], input_bytes=toy_kernel.DTS.encode(), timeout_s=10).stdout
        )
    (modules / "modules.builtin").write_text("".join(f"kernel/{name}.ko\n" for name in needed.modules.card))
    (modules / "modules.order").write_text("")
    return folder


def taken(folder: Path, *, recipe: str) -> kernels.TakenKernel:
    """The kernel of such a folder, ready for a card."""
    (kernel,) = kernels.take_kernels((str(folder),), recipe=recipe)
    return kernel


def _answer(argv: tuple[str, ...]) -> CommandResult:
    """Everything goes well; asked for symbols, the kernel has these."""
    return CommandResult(argv, 0, f"{len(_SYMBOLS)}\n") if "/proc/kallsyms" in argv[-1] else answer(argv)


@dataclass
class _Board(FakeBoard):
    """Its fio takes `runtime_ms`, and is `speeds` times as fast on kernels named there; `releases` are all kernels'."""

    runtime_ms: int = 1000
    speeds: Mapping[str, float] = field(default_factory=dict[str, float])
    releases: Mapping[str, str] = field(default_factory=dict[str, str])

    def boot(self, seed: int = 1) -> FakeShell:
        kernel, _ = self.prepared[-1]
        self.board_facts = replace(self.board_facts, kernel_release=self.releases[kernel])
        fio = json.loads(FIO_JSON)
        for side in ("read", "write", "mixed"):
            fio["jobs"][0][side]["runtime"] = round(self.runtime_ms / self.speeds.get(kernel, 1.0))
        self.shell.files[onboard.RESULT] = json.dumps(fio).encode()
        return super().boot(seed)


@dataclass
class FreshBoots:
    """Stands where the lab would be: all above the ports is real. The meter is silent, so that there is no energy.

    Each window of a profiled run has the same `profile`.
    """

    speeds: Mapping[str, float] = field(default_factory=dict[str, float])
    storage: str = BOARD.storage
    choices: list[RunRequest] = field(default_factory=list[RunRequest])
    profile: Profile | None = None
    runtime_ms: int = 1000
    lab: LabFacts | None = None

    def measure_pairs(
        self,
        choice: RunRequest,
        environment: lab.EnvironmentFile,
        *,
        taken: tuple[kernels.TakenKernel, ...] = (),
        enough: Enough,
        command: tuple[str, ...],
        observer: Observer | None = None,
        earlier: Sequence[Path] = (),
    ) -> PairedRun:
        """See `pairs.measure_pairs`; nobody hears of the run."""
        del observer
        self.choices.append(choice)
        profile = environment.profile
        taken = taken or kernels.take_kernels(choice.kernels, recipe=profile.recipe)
        labels = tuple(kernel.facts.label for kernel in taken)
        entries = planned(choice, profile, labels).entries
        plan = Plan(choice.suite.name, choice.filesystems, labels, choice.repeat, choice.seed, {}, entries)
        facts = tuple(kernel.facts for kernel in taken)
        run = Run("fresh", "2026-03-01T00:00:00Z", RunStatus.RUNNING, simulated=True, plan=plan, kernels=facts)
        run = replace(run, command=command, lab=self.lab)
        shell = FakeShell(_answer)
        shell.files |= {onboard.BEFORE: COUNTERS, onboard.AFTER: AFTER, onboard.DURATION: _DURATION}
        shell.files["/tmp/fsjoule-symbols"] = "\n".join(_SYMBOLS).encode()
        told = replace(BOARD, name=profile.name, storage=self.storage)
        releases = {each.label: each.release for each in facts}
        board = _Board(shell, told, IMAGE, runtime_ms=self.runtime_ms, speeds=self.speeds, releases=releases)
        folder = RunFolder(choice.results, board=profile.name)
        profiler = FakeProfiler(self.profile) if choice.profiled else None
        bench = BoardBench(
            run, profile, board, FakeMeter(), folder, FakeClock(_BEGIN_S), lambda _: None, profiler=profiler
        )
        bench.begin()
        known = known_boots(plan, facts, earlier)
        pairs, ended = run_pairs(bench, enough, known)
        bench.finish(expected=len(entries), ended_early=ended)
        return PairedRun(folder.path, pairs, ended, known_of(plan, known, pairs))
