"""A run that goes on in its folder, and the checks that board, kernels and programs are still the same."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

from fsjoule.errors import ConfigError, ResultError
from fsjoule.lab import EnvironmentFile
from fsjoule.model import (
    CARD,
    ImageFacts,
    KernelFacts,
    LabFacts,
    Measurement,
    Plan,
    Planned,
    Provision,
    Run,
    RunStatus,
)
from fsjoule.model.layer import NO_LAYERS, base_of, device_of, stack_of
from fsjoule.store.folder import RunFolder
from fsjoule.store.reader import load_run
from fsjoule.store.run_folders import named_run

_log: Final = logging.getLogger(__name__)

_NONE: Final = "none"
_MORE: Final = 4  # repetitions that a hint offers
_START_ANEW: Final = "old and new measurements would not be comparable: start a new run"


@dataclass(frozen=True, slots=True)
class Resumed:
    """A run that goes on, and its measurements so far."""

    path: Path
    run: Run
    kept: tuple[Measurement, ...]

    def check_options(self, given: Mapping[str, object]) -> None:
        """Raise ConfigError if given options contradict the run; None means not given."""
        plan = self.run.plan
        factors = set(plan.size_factors.values())
        devices = tuple(sorted(set(map(base_of, self.storages))))
        recorded: dict[str, object] = {
            "--suite": plan.suite,
            "--fs": plan.filesystems,
            "--kernel": self.kernels,
            "--seed": plan.seed,
            "--storage": devices if given.get("--storage") == devices else self.storages,
            "--stack": self.stacks,
            "--results": self.path.resolve().parent,
        }
        if factors:
            recorded["--size-factor"] = factors.pop() if len(factors) == 1 else tuple(sorted(factors))
        provisions = {entry.provision.value for entry in plan.entries}
        if given.get("--provision") not in provisions:
            recorded["--provision"] = tuple(sorted(provisions))
        wrong = [
            f"{option} {_shown(given[option])} was given, the run has {_shown(has)}"
            for option, has in recorded.items()
            if given.get(option) not in (None, has)
        ]
        if wrong:
            hint = "leave these options out: they are the run's own"
            raise ConfigError(f"cannot go on with {self.path}: {'; '.join(wrong)}", hint=hint)

    @property
    def begun(self) -> int:
        """How many repetitions have a measurement."""
        return max((each.repetition for each in self.kept), default=0)

    @property
    def provision(self) -> Provision | None:
        """How all filesystems got onto the board; None if the parts of the suite differ."""
        provisions = {entry.provision for entry in self.run.plan.entries}
        return provisions.pop() if len(provisions) == 1 else None

    def plan(self, repeat: int, plan_again: Callable[[tuple[str, ...] | None], Sequence[Planned]]) -> Plan:
        """The run's plan with so many repetitions. `plan_again` makes its entries anew, on these storage devices.

        Raises ConfigError if the suite's plan is no longer the run's.
        """
        plan = self.run.plan
        entries = tuple(each for each in plan.entries if each.repetition <= repeat)
        if repeat > plan.repeat:
            entries = self._extended(entries, plan_again)
        return dataclasses.replace(plan, repeat=entries[-1].repetition, entries=entries)

    def _extended(
        self, entries: tuple[Planned, ...], plan_again: Callable[[tuple[str, ...] | None], Sequence[Planned]]
    ) -> tuple[Planned, ...]:
        """More entries that begin with these: on the suite's storage devices, or on the run's, which the user chose."""
        refused: list[ConfigError] = []
        choices = tuple(dict.fromkeys((None, self.storages)))
        for storages in choices:
            try:
                longer = tuple(plan_again(storages))
            except ConfigError as error:  # the user may have chosen others because of it
                refused.append(error)
            else:
                if longer[: len(entries)] == entries:
                    return longer
        if len(refused) == len(choices):
            raise refused[-1]
        self._refuse([f"suite {self.run.plan.suite} is planned differently now, so nothing can be added to it"])
        return entries

    @property
    def kernels(self) -> tuple[str, ...]:
        """The user's names for the kernels."""
        return tuple(kernel.asked for kernel in self.run.kernels)

    @property
    def storages(self) -> tuple[str, ...]:
        """The storage devices under test. Workloads that boot do not count: a boot is always from the card."""
        entries = self.run.plan.entries
        return tuple(sorted({entry.storage for entry in entries if not entry.workload.is_boot})) or (CARD,)

    @property
    def stacks(self) -> tuple[str, ...]:
        """The layers above them."""
        return tuple(sorted({stack_of(name) or NO_LAYERS for name in self.storages}))

    def check_storages(self, further: Iterable[str]) -> None:
        """Raise ConfigError unless a board with these further storage devices has all of the plan's."""
        lacking = [name for name in map(device_of, self.storages) if name not in {CARD, *further}]
        self._refuse(f"the environment file has no storage device {name}" for name in lacking)

    def check_board(self, name: str, versions: Mapping[str, str]) -> None:
        """Raise ConfigError if the board or a program differs."""
        names = {board.name for board in self.run.boards.values()} | {each.series.board for each in self.kept}
        then = self.run.versions
        differs = [f"the board was {was}, it is {name} now" for was in sorted(names - {name})]
        differs += [
            f"{program} was {then[program]}, it is {now} now"
            for program, now in versions.items()
            # Which pipeline asks does not affect the figures.
            if program in then and then[program] != now and program != "pipeline"
        ]
        self._refuse(differs)

    def where_it_began(self, environment: EnvironmentFile) -> EnvironmentFile:
        """The environment, in which tags choose no other place than the run's."""
        if not environment.wanted.tags or self.run.lab is None:
            return environment
        return dataclasses.replace(environment, wanted=environment.wanted.named(self.run.lab.place))

    def check_boards(self, boards: int) -> None:
        """Raise ConfigError for boards in real time if one goes on where several began, or several where one did."""
        began = "several boards" if self.run.places else "one board"
        if bool(self.run.places) != (boards > 1):
            options = "--boards N and --place-tag" if self.run.places else "leave --boards out"
            self._refuse([f"it began on {began}"], hint=f"{options}; or start a new run")

    def check_lab(self, now: LabFacts | None, *, emulated: bool = False) -> None:
        """Raise ConfigError if the place or its lab differs: another board of this type is another board.

        But boards in guest time that are `emulated` by the same QEMU, which `check_board` has seen, are alike: a run on
        several records the lab that was up first. A run that does not record its lab goes on with a message about it.
        """
        if emulated and "qemu" in self.run.versions:
            return
        then = self.run.lab
        if then is None:
            _log.info("%s does not say in which lab it began, so the lab is not checked", self.path)
            return
        differs = [
            f"{name} was {was}, it is {current} now"
            for name, was, current in (
                ("the place", then.place, now.place if now else _NONE),
                ("its exporter", then.exporters_text, now.exporters_text if now else _NONE),
            )
            if was != current
        ]
        self._refuse(differs, hint="go on where it began, or start a new run")

    def check_kernels(self, kernels: Iterable[KernelFacts]) -> None:
        """Raise ConfigError unless the kernels, in the run's order, are identical byte for byte."""
        self._refuse(
            f"the kernel {then.label} was {_kernel(then)}, "
            f"{'it' if now.label == then.label else now.label} is {_kernel(now)} now"
            for then, now in zip(self.run.kernels, kernels, strict=True)
            if (now.label, now.digest) != (then.label, then.digest)
        )

    def check_images(self, images: Iterable[ImageFacts]) -> None:
        """Raise ConfigError unless the card images are the flashed ones."""
        then = {(image.kernel_choice, image.root_filesystem): image.card_sha256 for image in self.run.images}
        self._refuse(
            f"the card with kernel {now.kernel_choice} and root {now.root_filesystem} is not the run's"
            for now in images
            if then.get((now.kernel_choice, now.root_filesystem), now.card_sha256) != now.card_sha256
        )

    def going_on(self, utc: str, plan: Plan) -> Run:
        """The run's record from the time `utc` on."""
        return dataclasses.replace(
            self.run,
            plan=plan,
            status=RunStatus.RUNNING,
            abort_reason=None,
            finished_utc=None,
            resumed_utc=(*self.run.resumed_utc, utc),
        )

    def folder(self) -> RunFolder:
        """The run folder, open for writing. Raises ResultError if another process writes to it."""
        return RunFolder.reopened(self.path, {each.number for each in self.kept})

    def _refuse(self, differs: Iterable[str], *, hint: str = _START_ANEW) -> None:
        if differences := list(differs):
            raise ConfigError(f"cannot go on with {self.path}: {'; '.join(differences)}", hint=hint)


def resume(path: Path, *, finished: bool = False) -> Resumed:
    """Read a run that is to go on: an unfinished one, or with `finished` a complete one, too.

    Raises ResultError if it is running, damaged, or not a run of a bench.
    """
    loaded = load_run(named_run(path))
    run = loaded.run
    if run.status is RunStatus.COMPLETE and not finished:
        hint = f"--repeat {run.plan.repeat + _MORE} adds boots to it, --repeat auto as many as it takes"
        raise ResultError(f"{loaded.path} is complete: nothing is left to measure", hint=hint)
    if run.status is RunStatus.RUNNING:
        raise ResultError(f"{loaded.path} is being measured right now", hint="wait for it, or stop it")
    if not run.by_bench:
        by = " ".join(run.command[:2]) or "something else"
        raise ResultError(f"{loaded.path} was measured by `{by}`; only a bench can go on", hint="start it again")
    # A measurement cut short while being written does not count.
    if damaged := [f"{name}: {why}" for name, why in loaded.damaged.items() if RunFolder.holds(loaded.path, name)]:
        hint = "to measure them again, move their folders out of the run"
        raise ResultError(f"{loaded.path} has damaged measurements: {'; '.join(damaged)}", hint=hint)
    return Resumed(loaded.path, run, loaded.measurements)


def _shown(value: object) -> str:
    return ",".join(map(str, cast("tuple[object, ...]", value))) if isinstance(value, tuple) else str(value)


def _kernel(facts: KernelFacts) -> str:
    return f"{facts.release} ({facts.digest[:12]})"
