"""Boots of one kernel after the other, each a run of its own with one repetition, on one board or its spares.

Each board has a level of its own in the statistics. A board is a function that opens it, so a pool can hand out its
own.
"""

from __future__ import annotations

import dataclasses
import logging
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from fsjoule import kernels, lab
from fsjoule.bench.measurer import lost_energy
from fsjoule.bench.run import Bench
from fsjoule.errors import BoardError, ConfigError, InfrastructureError, StorageError
from fsjoule.filesystems import modules_of
from fsjoule.host import interrupts
from fsjoule.host.cache.stages import drop, places
from fsjoule.kernels.tree.program_builds import recipe_in
from fsjoule.model import Measurement, Planned, Run
from fsjoule.model.bisection import KernelBoot
from fsjoule.model.metrics import Metric, figure_of, metrics_of, step_in
from fsjoule.ports import KernelBoots, LikelyBoots
from fsjoule.runs.held_lab import HeldLab
from fsjoule.runs.open_run import found_target, make_ready, run_at
from fsjoule.runs.plan import plan_run
from fsjoule.runs.request import RunRequest, matching, with_profiles
from fsjoule.store.reader import load_run_file

_log: Final = logging.getLogger(__name__)

# Both ends, the candidate and its parent, and some of the search, a card or two each.
_CARDS: Final = 12
# Many kernels of a bisection may hang; a boot that is silent for so long, and for much longer than others, does.
_HANG_AFTER_S: Final = 30.0


Opening = Callable[[], AbstractContextManager[KernelBoots]]


@dataclass
class BoardBoots:
    """ports.KernelBoots on the board of an environment file.

    The lab is brought up and the place held from the first boot until the end.

    `request` says what is measured, with any kernel; `select` (-k) names the measurements of it that count. `metrics`
    are the figures that are wanted. In `cards` the card images of the kernels that booted last are kept: of a hundred
    kernels they would fill the cache. Several boards may share the folder.
    """

    request: RunRequest
    environment: lab.EnvironmentFile
    metrics: tuple[Metric, ...]
    select: str
    cards: Path
    command: tuple[str, ...]
    _kept: list[Path] = field(default_factory=list[Path], init=False)
    _open: ExitStack = field(default_factory=ExitStack, init=False)
    _lab: HeldLab = field(init=False)
    _target: Any = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._lab = HeldLab(self.environment)

    def __enter__(self) -> Self:
        self._open.enter_context(interrupts.handled())
        self._open.enter_context(redirect_stdout(sys.stderr))  # labgrid shows what its tools say
        self._open.callback(self._lab.close)
        return self

    def __exit__(self, *error: object) -> None:
        interrupts.tell()
        self._open.close()

    def measure(self, kernel: Path, seed: int, *, profiled: bool = False) -> KernelBoot:
        """Boot the kernel in a build folder, or with the program there, and measure.

        `seed` gives the order and all chance. Raises InfrastructureError if the lab does not do its part, ConfigError
        if it cannot be put onto a card.
        """
        program = recipe_in(kernel)
        request = dataclasses.replace(
            self.request, kernels=self.request.kernels if program else (str(kernel),), seed=seed
        )
        if profiled:
            request = with_profiles(request, self.environment)
        recipe = program or self.environment.profile.recipe
        self._lab.environment = dataclasses.replace(
            self.environment, profile=dataclasses.replace(self.environment.profile, recipe=recipe)
        )
        with interrupts.interruptible():
            taken = kernels.take_kernels(request.kernels, recipe=recipe, modules=modules_of(request.filesystems))
        plan = plan_run(request, self._lab, self.command, taken=taken)
        entries = selected(plan.plan.entries, self.select, self.metrics)
        plan = plan.selecting(entry.number for entry in entries)
        ready = make_ready(plan, self._lab, cards=self.cards)
        self._keep_few([card.path.parent for card in ready.cards.values()])
        target = self._held_target()
        started_s = time.monotonic()
        with run_at(ready, target, paced=False) as opened:
            with interrupts.interruptible():
                measured, unfit = _measured(opened.bench, entries, self._lab)
            if unfit is not None:
                opened.stop(unfit)
        figures, absent, steps = figures_of_boot(entries, measured, self.metrics)
        run = load_run_file(opened.folder)
        return KernelBoot(
            run_id=run.run_id,
            folder=opened.folder,
            seconds=round(time.monotonic() - started_s, 1),
            figures=figures,
            absent=absent,
            unfit=unfit,
            booted=bool(measured) or bool(opened.bench.run.boards),
            board=board_of(run),
            steps=steps,
        )

    def expect(self, likely: LikelyBoots) -> None:
        """See ports.KernelBoots: the board is never free."""

    def give_up(self, why: str) -> bool:
        """See ports.KernelBoots: there is no other one."""
        del why
        return False

    def _held_target(self) -> Any:  # noqa: ANN401 - a labgrid Target
        """Labgrid's target in the lab, whose place is held from the first boot on."""
        if self._target is None:
            self._open.enter_context(self._lab.place())
            with self._lab.failing():
                target = found_target(self.environment, self._open)
            with lab.lab_errors("finding the board's parts"):
                target.get_driver("BoardStrategy").boot_watch.hang_after_s = _HANG_AFTER_S
            self._target = target
        return self._target

    def _keep_few(self, booting: list[Path]) -> None:
        self._kept = [*(folder for folder in self._kept if folder not in booting), *booting]
        doomed, self._kept = self._kept[:-_CARDS], self._kept[-_CARDS:]
        # Only a card is made of a partition. What another board uses, that one drops.
        for entry in (*doomed, *places(self.cards / "partition")):
            drop(entry, entry.name)


def board_of(run: Run) -> str:
    """Which board of its kind a run had, by its place; empty for emulated boards, which are all alike."""
    if run.simulated or run.lab is None or not run.lab.place:
        return ""
    return f"{run.lab.place} of {run.lab.exporter_names}".removesuffix(" of ")


def figures_of_boot(
    entries: Sequence[Planned], measured: Sequence[Measurement], metrics: Sequence[Metric]
) -> tuple[dict[str, float | None], dict[str, str], dict[str, float]]:
    """The figures of a boot by `<measurement> <metric>`; why some are lacking though their measurement is valid.

    And the shares by which a clock may have rounded some.
    """
    by_slug = {each.slug: each for each in measured if each.valid}
    figures: dict[str, float | None] = {}
    absent: dict[str, str] = {}
    steps: dict[str, float] = {}
    for entry in entries:
        measurement = by_slug.get(entry.slug)
        for metric in metrics:
            if metric not in metrics_of(entry.workload):
                continue
            name = f"{entry.slug} {metric.value}"
            figures[name] = None if measurement is None else figure_of(measurement, metric)
            if measurement is not None and figures[name] is None:
                absent[name] = lost_energy(measurement.notes) or "this board does not measure it"
            if measurement is not None and (step := step_in(measurement, metric)):
                steps[name] = step
    return figures, absent, steps


def selected(entries: Sequence[Planned], select: str, metrics: Sequence[Metric]) -> tuple[Planned, ...]:
    """The measurements of a plan that count: those whose names `select` (-k) matches, and with a metric.

    Raises ConfigError if there is none, or none with one of the metrics.
    """
    matches = matching(select)
    named = [each for each in entries if matches(each.slug)]
    if not named:
        names = ", ".join(dict.fromkeys(each.slug for each in entries))
        raise ConfigError(f"-k {select}: no measurement of the suite has a name that matches", hint=f"it has {names}")
    available = dict.fromkeys(metric for each in named for metric in metrics_of(each.workload))
    if lacking := [metric.value for metric in metrics if metric not in available]:
        raise ConfigError(
            f"--metric {','.join(lacking)}: no chosen measurement has it",
            hint=f"choose {', '.join(available)}, or other measurements (-k)",
        )
    return tuple(each for each in named if set(metrics_of(each.workload)) & set(metrics))


def _measured(bench: Bench, entries: tuple[Planned, ...], held: HeldLab) -> tuple[list[Measurement], str | None]:
    """The measurements of a boot, and the failures of its kernel if the lab was well meanwhile.

    A fault is given a second try by the bench. Raises InfrastructureError.
    """
    measured: list[Measurement] = []
    for entry in entries:
        try:
            measured.append(bench.measure(entry))
        except BoardError as error:
            if held.faults():
                raise
            return measured, error.what.splitlines()[0]
    return measured, None


@dataclass
class SpareBoards:
    """ports.KernelBoots on the first of `boards` that works; a board that was given up is not asked again."""

    boards: Sequence[Opening]
    _number: int = field(default=0, init=False)
    _present: KernelBoots | None = field(default=None, init=False)
    _open: ExitStack = field(default_factory=ExitStack, init=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._open.close()

    def measure(self, kernel: Path, seed: int, *, profiled: bool = False) -> KernelBoot:
        """See ports.KernelBoots. Raises the InfrastructureError of the last board; a full disk is no board's fault."""
        while True:
            if self._present is None:
                self._present = self._open.enter_context(self.boards[self._number]())
            try:
                return self._present.measure(kernel, seed, profiled=profiled)
            except StorageError:
                raise
            except InfrastructureError as error:
                if not self.give_up(error.what.splitlines()[0]):
                    raise

    def expect(self, likely: LikelyBoots) -> None:
        """See ports.KernelBoots: no board is free."""

    def give_up(self, why: str) -> bool:
        """See ports.KernelBoots."""
        if self._number + 1 >= len(self.boards):
            return False
        _log.info("board %s of %s is out: %s; going on with the next one", self._number + 1, len(self.boards), why)
        self._present = None
        self._open.close()
        self._number += 1
        return True
