"""A virtual lab's place that is LAVA's, for tests with lava-run alone and with a server."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

from bench_runs import PROJECT
from waiting import wait_for

from fsjoule.host import process
from fsjoule.model import Measurement
from fsjoule.model.metrics import figure_of, metrics_told
from fsjoule.store.reader import LoadedRun, load_run
from fsjoule.virtual.lab import lab

FSJOULE = Path(sys.executable).with_name("fsjoule")
# What the issue of a cancelled or killed job allows.
FREE_WITHIN_S = 60.0
LIMIT_S = 900.0


@dataclass
class LavaPlace:
    """A virtual lab's place. Its runs are below `folder`; programs are called with the variables `environment`."""

    name: str
    folder: Path
    environment: dict[str, str]

    @property
    def lg_env(self) -> str:
        return str(PROJECT / "env" / f"{self.name}.yaml")

    def state(self) -> tuple[str | None, object]:
        """Who holds it, and whether its board is on. It asks again if it is not told, on a machine that is busy."""
        deadline = time.monotonic() + FREE_WITHIN_S
        while True:
            status = lab.status(self.name)
            if status.holder_known and status.board is not None:
                return status.holder, status.board["power"]
            assert time.monotonic() < deadline, status

    def fsjoule(self, *words: str) -> str:
        done = process.run([FSJOULE, "lava", *words], timeout_s=LIMIT_S, env=self.environment)
        return done.stdout.decode()

    def told(self, *words: str, **variables: str) -> str:
        """What `fsjoule lava` tells on stderr. Raises HostError with it if it fails."""
        done = process.run([FSJOULE, "lava", *words], timeout_s=LIMIT_S, env=self.environment | variables)
        return done.stderr.decode()

    def device(self, *options: str) -> str:
        results = ["--results", str(self.folder / "results")]
        return self.fsjoule("device", "virtual", "--lg-env", self.lg_env, *results, *options)

    def job(self, *options: str) -> str:
        words = ["--suite", "quick", "--fs", "ext4", "--repeat", "1", "--seed", "5", "--lg-env", self.lg_env]
        return self.fsjoule("job", *words, *options)

    def newest(self) -> LoadedRun:
        return load_run(max((self.folder / "results").iterdir(), key=lambda run: run.stat().st_mtime))

    def as_somebody_else(self, *words: str) -> None:
        environment = {**self.environment, "LG_HOSTNAME": "desk", "LG_USERNAME": "somebody"}
        client = FSJOULE.with_name("labgrid-client")
        process.run([client, "-p", "virtual", *words], timeout_s=LIMIT_S, env=environment)

    def assert_nothing_left(self) -> None:
        """Wait until nothing of a job is there any more: its guard may still be at work."""
        kept = Path(self.environment["FSJOULE_STATE_DIR"])

        def left() -> list[str]:
            files = [
                each.name
                for each in (*kept.glob("lava/*.json"), *kept.glob("job-*"), *self.folder.glob("*/lava/fsjoule-*"))
            ]
            ours = f"FSJOULE_STATE_DIR={kept}".encode()
            for entry in Path("/proc").iterdir():
                with contextlib.suppress(OSError):
                    if entry.name.isdecimal() and ours in (entry / "environ").read_bytes().split(b"\0"):
                        line = (entry / "cmdline").read_bytes()
                        files += [line.decode()] if b"fsjoule\0lava" in line or b"tests/bench" in line else []
            return files

        wait_for(lambda: not left(), lambda: str(left()), FREE_WITHIN_S)
        said = (kept / "lava/virtual.log").read_text()
        assert not said, said


def figures_of(measurement: Measurement) -> Generator[tuple[str, tuple[float, str]]]:
    assert measurement.valid
    for metric in metrics_told(measurement):
        figure = figure_of(measurement, metric)
        assert figure is not None
        yield f"{measurement.slug}.{metric}", (figure, metric.unit)
