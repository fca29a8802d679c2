"""Takes a lab's jobs from KernelCI, one after the other: claim, kernel, bench, figures to KCIDB, result to KernelCI."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from fsjoule import kernels
from fsjoule.errors import ConfigError, FsjouleError, KernelCIError, ResultError
from fsjoule.host import interrupts, process
from fsjoule.host.paths import project_dir, state_dir
from fsjoule.kernelci.api import Api
from fsjoule.kernelci.job import Job, bring_kernel, check, definition_of, job_of
from fsjoule.kernelci.kcidb import Kcidb
from fsjoule.kernels.recipe import load_recipe, recipes_folder
from fsjoule.lab import EnvironmentFile
from fsjoule.model import RunStatus
from fsjoule.report.kcidb import to_kcidb
from fsjoule.store.reader import LoadedRun, load_run, load_run_file

_START: Final = "1970-01-01T00:00:00.000000"
_HOPS: Final = 8
# The origin of KernelCI's own builds in KCIDB.
_BUILDS: Final = "maestro"
# A bench that is told to end switches its board off first.
_END_S: Final = 90.0
# KernelCI ends a job of its own accord at its time-out.
_BEFORE_S: Final = 120.0
_LEAST_S: Final = 600.0
_TRIES: Final = 5
_FIGURES: Final = "kcidb.json"
_SENT: Final = "submission.json"
_PANIC: Final = "did not boot: Kernel panic"


@dataclass(frozen=True, slots=True)
class Lab:
    """This lab in KernelCI's words (`runtime`, `platform`), and what it measures: options of the bench.

    `origin` is its name in KCIDB. A bench is ended after `limit_s`.
    """

    runtime: str
    platform: str
    environment: EnvironmentFile
    results: Path
    options: tuple[str, ...]
    origin: str
    limit_s: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of a job, in KernelCI's words: `result`, and for an incomplete one `code` and `why`."""

    result: str
    code: str = ""
    why: str = ""


_ENDED: Final = Outcome("incomplete", "Canceled", "the lab ended the job")


@dataclass
class Poller:
    """Without `kcidb` the figures stay in the job's folder. A job's end is told again after `again_s` if that fails."""

    api: Api
    lab: Lab
    kcidb: Kcidb | None
    say: Callable[[str], None]
    again_s: float = 30.0

    def once(self) -> int:
        """Do the jobs that wait now. How many they were. Raises KernelCIError."""
        self._send_figures()
        done = 0
        for event in self.api.waiting(self._since()):
            job = job_of(event, self.lab.runtime, self.lab.platform)
            if job is not None and self._claim(job):
                self._do(job)
                done += 1
            self._seen(event)
        return done

    def _since(self) -> str:
        try:
            return str(json.loads(self._cursor.read_bytes())["timestamp"])
        except (OSError, ValueError, KeyError, TypeError):
            return _START

    def _seen(self, event: dict[str, Any]) -> None:
        if isinstance(stamp := event.get("timestamp"), str):
            self._cursor.parent.mkdir(parents=True, exist_ok=True)
            self._cursor.write_text(json.dumps({"timestamp": stamp}), encoding="utf-8")

    @property
    def _cursor(self) -> Path:
        name = f"{self.lab.runtime}-{self.lab.platform}".replace("/", "_")
        return _folder() / f"{name}.json"

    def _claim(self, job: Job) -> bool:
        """Write our number into the job. KernelCI has no lock: one poller for a platform of a lab, please."""
        node = self.api.node(job.node)
        data: dict[str, Any] = node.get("data") or {}
        if node.get("state") != "available" or data.get("job_id"):
            self.say(f"job {job.node}: somebody has taken it, or it has ended")
            return False
        if job.ends is not None and self._left_s(job) < _LEAST_S:
            self.say(f"job {job.node}: left, KernelCI ends it at {job.ends:%H:%M} UTC")
            return False
        node["data"] = data | {"job_id": f"{self.lab.runtime}:{uuid.uuid4().hex}"}
        self.api.update(node)
        return True

    def _left_s(self, job: Job) -> float:
        if job.ends is None:
            return self.lab.limit_s
        return min(self.lab.limit_s, (job.ends - datetime.now(UTC)).total_seconds() - _BEFORE_S)

    def _do(self, job: Job) -> None:
        self.say(f"job {job.node}: {job.name}, kernel {job.revision or 'unknown'}")
        folder = _folder() / job.node
        folder.mkdir(parents=True, exist_ok=True)
        outcome = _ENDED
        try:
            outcome = self._measured(job, folder)
        finally:
            shutil.rmtree(folder / "kernel", ignore_errors=True)
            self._finish(job, outcome)
        self._send_figures()

    def _measured(self, job: Job, folder: Path) -> Outcome:
        try:
            definition = definition_of(job)
            (folder / "definition.json").write_text(definition.model_dump_json(indent=2), encoding="utf-8")
            recipe = load_recipe(recipes_folder(), self.lab.environment.profile.recipe)
            check(definition, self.lab.platform, recipe)
            kernel = bring_kernel(job, definition, folder / "kernel")
            kernels.take_kernels([str(kernel)], progress=self.say, recipe=self.lab.environment.profile.recipe)
        except ConfigError as error:
            return Outcome("incomplete", "invalid_job_params", error.what)
        except FsjouleError as error:
            return Outcome("incomplete", "Infrastructure", error.what)
        code = self._bench(kernel, folder / "bench.log", self._left_s(job))
        run = self._run_of(kernel)
        if run is not None and run.measurements:
            figures = to_kcidb(run.run, run.measurements, self.lab.origin, self._build(job))
            (folder / _FIGURES).write_text(figures, encoding="utf-8")
            self.say(f"job {job.node}: the run is {run.path}, its figures are {folder / _FIGURES}")
        if run is not None and run.run.status is RunStatus.COMPLETE:
            return Outcome("pass")
        self.say(f"job {job.node}: see {folder / 'bench.log'}")
        why = (run and run.run.abort_reason) or f"the bench ended with exit code {code}"
        return Outcome("fail") if _PANIC in why else Outcome("incomplete", "Infrastructure", why)

    def _bench(self, kernel: Path, log: Path, limit_s: float) -> int | None:
        """Measure; its exit code, None after `limit_s`. An interrupt ends the bench first."""
        words = ["tests/bench", "-p", "no:cacheprovider", "--lg-env", str(self.lab.environment.path.resolve())]
        words += ["--kernel", str(kernel), "--results", str(self.lab.results.resolve()), *self.lab.options]
        self.say(f"measuring; the bench's output is in {log}")
        bench = process.start([sys.executable, "-m", "pytest", *words], log=log, cwd=project_dir())
        try:
            with interrupts.interruptible():
                return bench.wait(limit_s)
        except subprocess.TimeoutExpired:
            self.say(f"the bench is ended: it took longer than {limit_s / 60:.0f} min")
            return None
        finally:
            process.stop(bench, timeout_s=_END_S)

    def _run_of(self, kernel: Path) -> LoadedRun | None:
        """The run of the job's kernel, whose folder is no other job's."""
        for folder in self.lab.results.resolve().glob("*/"):
            try:
                if any(each.asked == str(kernel) for each in load_run_file(folder).kernels):
                    return load_run(folder)
            except ResultError:
                continue
        return None

    def _build(self, job: Job) -> str | None:
        """KCIDB's number of the kernel's build, from the job's ancestors; None if there is none among them."""
        node = self.api.node(job.node)
        for _ in range(_HOPS):
            if node.get("kind") == "kbuild":
                return f"{_BUILDS}:{node['id']}"
            if not isinstance(parent := node.get("parent"), str):
                break
            node = self.api.node(parent)
        return None

    def _finish(self, job: Job, outcome: Outcome) -> None:
        why = f": {outcome.why}" if outcome.why else ""
        self.say(f"job {job.node}: {outcome.result}{why}")
        for attempt in range(1, _TRIES + 1):
            try:
                node = self.api.node(job.node)
                node |= {"state": "done", "result": outcome.result}
                if outcome.code:
                    node["data"] = (node.get("data") or {}) | {"error_code": outcome.code, "error_msg": outcome.why}
                self.api.update(node)
            except KernelCIError as error:
                if attempt == _TRIES or not error.transient:
                    raise
                time.sleep(self.again_s)
            else:
                return

    def _send_figures(self) -> None:
        """Send what has not been sent. A failure is said, and the next round tries again."""
        if self.kcidb is None:
            return
        for figures in sorted(_folder().glob(f"*/{_FIGURES}")):
            if (sent := figures.with_name(_SENT)).exists():
                continue
            try:
                number = self.kcidb.submit(figures.read_text(encoding="utf-8"))
            except KernelCIError as error:
                self.say(f"warning: {error.what}; {figures} is sent later")
                return
            sent.write_text(json.dumps({"id": number, "url": self.kcidb.url}), encoding="utf-8")
            self.say(f"figures of job {figures.parent.name}: KCIDB has them as {number}")


def _folder() -> Path:
    folder = state_dir() / "kernelci"
    folder.mkdir(exist_ok=True)
    return folder
