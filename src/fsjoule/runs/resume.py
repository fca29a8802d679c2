"""A run that ended before its plan did, and what has to be as it was for it to go on in the same folder."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

from fsjoule.errors import ConfigError, ResultError
from fsjoule.model import (
    CARD,
    ImageFacts,
    KernelFacts,
    LabFacts,
    Measurement,
    Run,
    RunStatus,
)
from fsjoule.store.folder import RunFolder
from fsjoule.store.reader import LoadedRun, load_run

_COMMAND: Final = "pytest"  # `fsjoule gate` and `fsjoule trend` decide on the way what they measure
_NONE: Final = "none"
_START_ANEW: Final = "what was measured is not comparable with what would be: start a new run"


@dataclass(frozen=True, slots=True)
class Resumed:
    """An unfinished run, with the measurements that it has already."""

    path: Path
    run: Run
    kept: tuple[Measurement, ...]

    def check_options(self, given: Mapping[str, object]) -> None:
        """Whether options that were given besides agree with the run; None stands for one that was not given.

        Raises ConfigError that names each option and what the run has.
        """
        plan = self.run.plan
        factors = set(plan.size_factors.values())
        recorded: dict[str, object] = {
            "--suite": plan.suite,
            "--fs": plan.filesystems,
            "--kernel": self.kernels,
            "--repeat": plan.repeat,
            "--seed": plan.seed,
            "--storage": self.storages,
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
    def kernels(self) -> tuple[str, ...]:
        """What the user called the kernels."""
        return tuple(kernel.asked for kernel in self.run.kernels)

    @property
    def storages(self) -> tuple[str, ...]:
        """The storage devices that the plan measures on; a boot is on the card, whichever those are."""
        entries = self.run.plan.entries
        return tuple(sorted({entry.storage for entry in entries if not entry.workload.is_boot})) or (CARD,)

    def check_storages(self, further: Iterable[str]) -> None:
        """Whether a board with these further storage devices has those of the plan. Raises ConfigError if not."""
        lacking = [name for name in self.storages if name not in {CARD, *further}]
        self._refuse(f"the environment file has no storage device {name}" for name in lacking)

    def check_board(self, name: str, versions: Mapping[str, str]) -> None:
        """Whether it is the same board and the same programs. Raises ConfigError that says what differs."""
        names = {board.name for board in self.run.boards.values()} | {each.series.board for each in self.kept}
        then = self.run.versions
        differs = [f"the board was {was}, it is {name} now" for was in sorted(names - {name})]
        differs += [
            f"{program} was {then[program]}, it is {now} now"
            for program, now in versions.items()
            # Whoever asks for it is no part of what is measured.
            if program in then and then[program] != now and program != "pipeline"
        ]
        self._refuse(differs)

    def check_lab(self, now: LabFacts | None, say: Callable[[str], None]) -> None:
        """Whether it is the same place of the same lab: another board of its type is another board.

        Raises ConfigError that says what differs. A run of an older schema does not say where it was; that is said.
        """
        then = self.run.lab
        if then is None:
            say(f"{self.path} does not say in which lab it began: that it is this one is not checked")
            return
        differs = [
            f"{name} was {was}, it is {found} now"
            for name, was, found in (
                ("the place", then.place, now.place if now else _NONE),
                ("its exporter", then.exporters_text, now.exporters_text if now else _NONE),
            )
            if was != found
        ]
        self._refuse(differs, hint="go on where it began, or start a new run")

    def check_kernels(self, kernels: Iterable[KernelFacts]) -> None:
        """Whether kernels, in the order of the run's, are the same, byte for byte.

        Raises ConfigError that says which is not.
        """
        self._refuse(
            f"the kernel {then.label} was {_kernel(then)}, "
            f"{'it' if now.label == then.label else now.label} is {_kernel(now)} now"
            for then, now in zip(self.run.kernels, kernels, strict=True)
            if (now.label, now.digest) != (then.label, then.digest)
        )

    def check_images(self, images: Iterable[ImageFacts]) -> None:
        """Whether card images are those that were flashed. Raises ConfigError that says which is not."""
        then = {(image.kernel_choice, image.root_filesystem): image.card_sha256 for image in self.run.images}
        self._refuse(
            f"the card with kernel {now.kernel_choice} and {now.root_filesystem} as its root is not the one of the run"
            for now in images
            if then.get((now.kernel_choice, now.root_filesystem), now.card_sha256) != now.card_sha256
        )

    def going_on(self, utc: str) -> Run:
        """The run as it is from now on."""
        return dataclasses.replace(
            self.run,
            status=RunStatus.RUNNING,
            abort_reason=None,
            finished_utc=None,
            resumed_utc=(*self.run.resumed_utc, utc),
        )

    def folder(self) -> RunFolder:
        """Its folder, to be written again. Raises ResultError if somebody else writes in it."""
        return RunFolder.reopened(self.path, {each.number for each in self.kept})

    def _refuse(self, differs: Iterable[str], *, hint: str = _START_ANEW) -> None:
        if found := list(differs):
            raise ConfigError(f"cannot go on with {self.path}: {'; '.join(found)}", hint=hint)


def resume(path: Path) -> Resumed:
    """Read an unfinished run. Raises ResultError if it is complete, goes on, is damaged, or was not pytest's."""
    loaded = load_run(path)
    run = loaded.run
    if run.status is RunStatus.COMPLETE:
        raise ResultError(f"{loaded.path} is complete: there is nothing to go on with", hint="start a new run")
    if run.status is RunStatus.RUNNING:
        raise ResultError(f"{loaded.path} is being measured right now", hint="wait for it, or stop it")
    if run.command[:1] != (_COMMAND,):
        by = " ".join(run.command[:2]) or "something else"
        raise ResultError(f"{loaded.path} was measured by `{by}`; only runs of pytest can go on", hint="start it anew")
    if damaged := _damaged(loaded):
        hint = "move their folders out of the run to have them measured again"
        raise ResultError(f"{loaded.path} has damaged measurements: {'; '.join(damaged)}", hint=hint)
    return Resumed(loaded.path, run, loaded.measurements)


def _damaged(loaded: LoadedRun) -> list[str]:
    """Those that are there and cannot be read. What was cut short while it was written does not count as measured."""
    return [f"{name}: {why}" for name, why in loaded.damaged.items() if RunFolder.holds(loaded.path, name)]


def _shown(value: object) -> str:
    return ",".join(map(str, cast("tuple[object, ...]", value))) if isinstance(value, tuple) else str(value)


def _kernel(facts: KernelFacts) -> str:
    return f"{facts.release} ({facts.digest[:12]})"
