"""Puts a run together from its parts: choices, lab, place, images, board, meter, run folder, report."""

from __future__ import annotations

import os
import secrets
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from fsjoule import images, lab, process, report, store
from fsjoule.bench import Bench
from fsjoule.clock import HostClock
from fsjoule.errors import ConfigError, FsjouleError, StorageError
from fsjoule.filesystems import filesystem
from fsjoule.model import BoardProfile, Measurement, Plan, Provision, Run, RunStatus
from fsjoule.suites import SCRATCH_ROOT, Suite, plan_entries, suite
from fsjoule.virtual import lab as virtual_lab

PAGE: Final = "report.html"
_SETUP_STARTED: Final = "FSJOULE_SETUP_STARTED"  # set by make: when its set-up began, in seconds of the epoch


@dataclass(frozen=True, slots=True)
class Choice:
    """What the user asked for, every name checked."""

    suite: Suite
    filesystems: tuple[str, ...]
    kernel: str
    repeat: int
    provision: Provision
    results: Path
    seed: int
    meter_program: Path | None = None

    @property
    def root_filesystems(self) -> tuple[str, ...]:
        """The root filesystems of the card images that the run needs."""
        return self.filesystems if self.provision is Provision.ROOT else (SCRATCH_ROOT,)


def choose(
    *,
    suite_name: str,
    filesystems: str,
    kernel: str,
    repeat: int,
    provision: str,
    results: Path,
    seed: int | None,
    meter_program: Path | None = None,
) -> Choice:
    """Check the options. Raises ConfigError with the choices for a name that is none of them."""
    names = tuple(dict.fromkeys(name.strip() for name in filesystems.split(",") if name.strip()))
    if not names:
        raise ConfigError("--fs names no filesystem", hint="for example --fs ext4,btrfs")
    for name in names:
        filesystem(name)
    if kernel not in images.kernel_choices():
        raise ConfigError.unknown("kernel", kernel, images.kernel_choices())
    if repeat < 1:
        raise ConfigError(f"--repeat {repeat}: at least one repetition is needed")
    if provision not in {p.value for p in Provision}:
        raise ConfigError.unknown("way to provision", provision, [p.value for p in Provision])
    choice = Choice(
        suite(suite_name),
        names,
        kernel,
        repeat,
        Provision(provision),
        results,
        secrets.randbits(32) if seed is None else seed,
        meter_program,
    )
    for root in choice.root_filesystems:
        if root not in images.root_filesystem_choices():
            raise ConfigError(
                f"no card image can have {root!r} as its root",
                hint=f"use --provision scratch, or one of {', '.join(images.root_filesystem_choices())}",
            )
    return choice


@dataclass
class Session:
    """One invocation. `open` and `close` bracket everything; `place` and `run` are entered within."""

    choice: Choice
    environment_file: Path
    say: Callable[[str], None]
    command: tuple[str, ...]
    profile: BoardProfile = field(init=False)
    plan: Plan = field(init=False)
    expected: int = field(default=0, init=False)
    interrupted: bool = field(default=False, init=False)
    _setup_s: float = field(default=0.0, init=False)
    _lab: virtual_lab.LabHandle | None = field(default=None, init=False)
    _emulator: str | None = field(default=None, init=False)
    _folder: Path | None = field(default=None, init=False)

    def open(self) -> None:
        """Read the environment file, make the plan, and bring the virtual lab up if the file asks for one.

        Raises ConfigError for a broken file, LabError if the lab cannot be brought up.
        """
        started_s = time.monotonic()
        environment = lab.read_environment(self.environment_file)
        self.profile = environment.profile
        choice = self.choice
        self.plan = Plan(
            suite=choice.suite.name,
            filesystems=choice.filesystems,
            kernel=choice.kernel,
            provision=choice.provision,
            repeat=choice.repeat,
            seed=choice.seed,
            size_factor=self.profile.size_factor,
            entries=plan_entries(
                choice.suite,
                choice.filesystems,
                provision=choice.provision,
                repeat=choice.repeat,
                seed=choice.seed,
                size_factor=self.profile.size_factor,
            ),
        )
        for root in choice.root_filesystems:
            images.build_card(choice.kernel, root, progress=self.say, recipe=self.profile.recipe)
        if environment.virtual_lab is not None and "LG_COORDINATOR" not in os.environ:
            virtual_board = environment.virtual_board or virtual_lab.REAL_TIME
            self._emulator = virtual_lab.emulator_for(virtual_board) or str(
                images.emulator(choice.kernel, progress=self.say)
            )
            handle = virtual_lab.up(
                environment.virtual_lab,
                owner_pid=os.getpid(),
                emulator=self._emulator,
                meter_program=choice.meter_program,
                board=virtual_board,
                progress=self.say,
            )
            os.environ.update(handle.environment)
            # One that somebody else brought up stays up.
            self._lab = handle if handle.started else None
        self._setup_s = time.monotonic() - started_s + _make_setup_s()

    def close(self) -> None:
        """Take down the lab that `open` brought up."""
        if self._lab is not None:
            self.say("virtual lab: going down")
            virtual_lab.down(self._lab.name)
            self._lab = None

    @contextmanager
    def place(self) -> Generator[None]:
        """Hold the board's place. Raises PlaceHeldError if somebody else does."""
        with lab.acquired_place(os.environ.get("LG_PLACE", ""), say=self.say):
            yield

    @contextmanager
    def run(self, target: Any) -> Generator[Bench]:  # noqa: ANN401 - a labgrid Target; labgrid is fsjoule.lab's
        """A run on the board of a labgrid target; it is closed and reported on however the body ends."""
        choice = self.choice
        cards = {
            root: images.build_card(choice.kernel, root, progress=self.say, recipe=self.profile.recipe)
            for root in choice.root_filesystems
        }
        board = lab.LabgridBoard(target, cards, self.say)
        meter = lab.board_meter(target)
        clock = HostClock()
        started_utc = clock.utc()
        run = Run(
            run_id=secrets.token_hex(3),
            started_utc=started_utc,
            status=RunStatus.RUNNING,
            simulated=self.profile.simulated,
            plan=self.plan,
            versions=_versions(self._emulator),
            command=self.command,
        )
        folder = store.RunFolder(choice.results, board=self.profile.name)
        bench = Bench(run, self.profile, board, meter, folder, clock, self.say, self._measured)
        bench.phases.add("setup", self._setup_s)
        bench.begin()
        self._folder = folder.path
        self.say(f"results go to {folder.path}")
        try:
            yield bench
        finally:
            # Also after Ctrl-C: what was measured is kept, and shown.
            bench.finish("interrupted" if self.interrupted else None, expected=self.expected)
            self._write_page(folder.path)

    def show(self, console: Console) -> None:
        """Print the tables of the run, if there was one."""
        if self._folder is not None:
            show_run(self._folder, console)

    def _measured(self, measurement: Measurement) -> None:
        self.say(f"[{measurement.number:>3}/{len(self.plan.entries)}] {report.one_line(measurement)}")

    def _write_page(self, folder: Path) -> None:
        try:
            path = write_report(folder)
        except FsjouleError as error:
            self.say(f"no report.html: {error.what}")
        else:
            self.say(f"report: {path}")


def write_report(folder: Path) -> Path:
    """Make `report.html` in a run folder, from what the folder holds. Raises ResultError if it cannot be read."""
    loaded = store.load_run(folder)
    path = loaded.path / PAGE
    page = report.render_page(summary_of(loaded), loaded.measurements, loaded.trace)
    try:
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        raise StorageError(f"{path} could not be written: {error.strerror}") from error
    return path


def show_run(folder: Path, console: Console) -> None:
    """Print the tables of a run folder. Raises ResultError if it cannot be read."""
    loaded = store.load_run(folder)
    page = loaded.path / PAGE
    report.print_summary(console, summary_of(loaded), folder=loaded.path, page=page if page.exists() else None)


def summary_of(loaded: store.LoadedRun) -> report.Summary:
    """The tables' figures of a run that was read back."""
    return report.summarise(loaded.run, loaded.measurements, loaded.damaged)


def _make_setup_s() -> float:
    """How long make's own set-up took before it started this process; 0 outside of make."""
    started = os.environ.pop(_SETUP_STARTED, None)
    return max(0.0, time.time() - float(started)) if started else 0.0


def _versions(emulator: str | None) -> dict[str, str]:
    """Versions of what takes part, apart from what is on the card."""
    found = {name: version(name) for name in ("fsjoule", "labgrid", "pytest", "numpy")}
    found["python"] = sys.version.split()[0]
    if emulator is not None:
        found["ser2net"] = _first_line("ser2net", "-v")
        found["qemu"] = _first_line(emulator, "--version")
    return found


def _first_line(*argv: str) -> str:
    done = process.run(argv, timeout_s=20.0, check=False)
    return ((done.stdout or done.stderr).decode(errors="replace").strip().splitlines() or ["unknown"])[0]
