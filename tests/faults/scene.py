"""Where one fault happens: folders of its own, a lab of its own, and benches as a user starts them."""

from __future__ import annotations

import json
import os
import random
import re
import shlex
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from postgres_server import PostgresServer

from fsjoule.host.paths import cache_dir
from fsjoule.host.process_ref import ProcessRef, descendants
from fsjoule.virtual.lab import services
from fsjoule.virtual.lab.files import LabPaths, LabRecord

PROJECT: Final = Path(__file__).parents[2]
_BIN: Final = Path(sys.executable).parent
# Three measurements: two short ones, and one in whose middle a fault can be put.
CHOSEN: Final = "mkfs or umount or (read-16k and not randread)"
SHORTEST: Final = "mkfs"
# Limits of the bench itself, in its environment file: short, so that nobody waits minutes for a board that hangs.
_LIMITS: Final = {"window_excess": "10", "boot_timeout": "90", "write_timeout": "60"}
_COMMAND_LIMIT_S: Final = 300.0


@dataclass
class Bench:
    """A bench that was started. `output` is a file with what it has said so far."""

    process: subprocess.Popen[bytes]
    output: Path
    started_s: float = field(default_factory=time.monotonic)
    ended_s: float | None = None

    def text(self) -> str:
        return self.output.read_text(errors="replace")

    @property
    def running(self) -> bool:
        if self.process.poll() is None:
            return True
        self.ended_s = self.ended_s or time.monotonic()
        return False

    def wait(self, limit_s: float) -> int | None:
        """Its exit code; None if it still runs after so long."""
        until_s = time.monotonic() + limit_s
        while self.running:
            if time.monotonic() > until_s:
                return None
            time.sleep(0.02)
        return self.process.returncode

    def send(self, sig: signal.Signals) -> None:
        if self.running:
            self.process.send_signal(sig)

    def send_group(self, sig: signal.Signals) -> None:
        """As a terminal does with Ctrl-C, or when it closes: to all that the bench has in its foreground."""
        if self.running:
            os.killpg(self.process.pid, sig)


@dataclass
class Scene:
    """One fault's surroundings. What `mending` holds is undone before the next bench, what `closing` holds, last."""

    folder: Path
    rng: random.Random
    serial: str
    guest_time: bool = False
    standing: bool = False
    cache: Path = field(default_factory=cache_dir)
    mending: ExitStack = field(default_factory=ExitStack)
    closing: ExitStack = field(default_factory=ExitStack)
    stdout: int | None = None
    devices: set[Path] = field(default_factory=set[Path])
    reader: int = -1
    findings: list[str] = field(default_factory=list[str])
    # Looked at when the bench has ended, before anything is mended.
    afterwards: list[Callable[[], list[str]]] = field(default_factory=list[Callable[[], list[str]]])
    server: PostgresServer | None = None
    database: str = ""
    lab_variables: dict[str, str] = field(default_factory=dict[str, str])
    _started: int = 0

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True)
        self.results.mkdir()
        self.state.mkdir()
        self._write_environment_file()

    @property
    def results(self) -> Path:
        return self.folder / "results"

    @property
    def state(self) -> Path:
        return self.folder / "state"

    @property
    def environment_file(self) -> Path:
        return self.folder / "bench.yaml"

    @property
    def board_name(self) -> str:
        """Name of the environment file, and of the lab that it asks for."""
        return "deterministic" if self.guest_time else "virtual"

    def _write_environment_file(self) -> None:
        text = (PROJECT / "env" / f"{self.board_name}.yaml").read_text()
        for key, value in _LIMITS.items():
            text, count = re.subn(rf"\b{key}: [\d.]+", f"{key}: {value}", text)
            assert count == 1, f"{self.board_name}.yaml has no {key}"
        self.environment_file.write_text(text)

    def meter(self, serial: str, *options: str) -> Path:
        """A program that is the simulator with a serial number: a meter that can be told from every other one."""
        path = self.folder / f"meter-{serial}"
        simulator = services.simulator()
        path.write_text(f'#!/bin/sh\nexec {simulator} "$@" --serial-number {serial} {" ".join(options)}\n')
        path.chmod(0o755)
        return path

    def environment(self) -> dict[str, str]:
        """Variables of everything that is started here. A coordinator that a developer has at hand is not ours."""
        kept = {
            key: value for key, value in os.environ.items() if not key.startswith(("LG_", "FSJOULE_", "CI", "GITLAB_"))
        }
        own = {"FSJOULE_STATE_DIR": str(self.state), "FSJOULE_CACHE_DIR": str(self.cache)}
        return {**kept, **own, **self.lab_variables}

    def bench(self, *options: str, chosen: str = CHOSEN, serial: str = "", resume: Path | None = None) -> Bench:
        """Start a bench as a user does."""
        what = ("--resume", str(resume)) if resume else ("--fs", "ext4", "--repeat", "1", "--results", self.results)
        argv: list[str | Path] = ["fsjoule", "bench", "--lg-env", self.environment_file, *what]
        argv += ["-k", chosen, *options]
        if not (self.guest_time or self.standing):
            argv += ["--meter-program", self.meter(serial or self.serial)]
        return self.start(*argv)

    def start(self, *argv: str | Path) -> Bench:
        """Start a program of the environment in a session of its own, as from a terminal of its own."""
        self._started += 1
        output = self.folder / f"output-{self._started}.log"
        with output.open("wb") as log:
            process = subprocess.Popen(
                [_BIN / argv[0], *argv[1:]],
                cwd=PROJECT,
                env=self.environment(),
                stdin=subprocess.DEVNULL,
                stdout=log if self.stdout is None else self.stdout,
                stderr=log,
                start_new_session=True,
            )
        self.closing.callback(_reap, process)
        return Bench(process, output)

    def command(
        self, *argv: str | Path, limit_s: float = _COMMAND_LIMIT_S, variables: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment that the benches have: `fsjoule`, `labgrid-client`."""
        return subprocess.run(
            [_BIN / argv[0], *argv[1:]],
            cwd=PROJECT,
            env={**self.environment(), **(variables or {})},
            capture_output=True,
            text=True,
            timeout=limit_s,
            check=False,
        )

    def bring_up(self) -> None:
        """A lab that outlives its benches, as `fsjoule lab up` makes it."""
        self._checked("fsjoule", "lab", "up", "--meter-program", self.meter(self.serial))
        self.closing.callback(self.take_down)
        told = self._checked("fsjoule", "lab", "env")
        for line in shlex.split(told, comments=True):
            name, given, value = line.partition("=")
            if given:
                self.lab_variables[name] = value

    def take_down(self) -> None:
        self.lab_variables = {}
        self._checked("fsjoule", "lab", "down")

    def _checked(self, *argv: str | Path) -> str:
        done = self.command(*argv)
        assert done.returncode == 0, f"{argv}: {done.stdout}{done.stderr}"
        return done.stdout

    # ------------------------------------------------------------------------------------------ what is there now

    @property
    def lab(self) -> LabRecord | None:
        """The lab of this scene, if there is one. Its folder of devices is noted, for it must go with it."""
        record = LabPaths(self.state / "labs" / self.board_name).read()
        if record is not None:
            self.devices.add(Path(record.devices))
        return record

    @property
    def console_log(self) -> Path:
        return self.state / "labs" / self.board_name / "logs" / "console.log"

    def board(self) -> dict[str, Any] | None:
        """What the board's service says of itself; None if it does not answer."""
        record = self.lab
        if record is None or not record.boards[0].status_url:
            return None
        try:
            with urllib.request.urlopen(record.boards[0].status_url, timeout=2.0) as answer:
                return json.load(answer)
        except (OSError, ValueError):
            return None

    def emulator(self) -> ProcessRef | None:
        """The QEMU of the board, if it is on: seen from outside, for in guest time the board may be slow to answer."""
        record = self.lab
        below = descendants(record.guardian.pid) if record is not None and record.guardian is not None else []
        return next((each for each in below if b"qemu-system" in _program(each.pid)), None)

    def run_folder(self) -> Path | None:
        """The one run folder that there is."""
        found = [path for path in self.results.iterdir() if (path / "run.json").exists()]
        return found[0] if len(found) == 1 else None


def _program(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().partition(b"\0")[0]
    except OSError:
        return b""


def _reap(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.kill()
        process.wait()
