"""Takes a lab's jobs from KernelCI, one after the other: claim, kernel, bench, figures to KCIDB, result to KernelCI."""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from fsjoule import kernels
from fsjoule.ci.kernelci.api import EVENTS_AT_ONCE, KCIDB_VARIABLE, TOKEN_VARIABLE, Api, Kcidb
from fsjoule.ci.kernelci.job import KernelCIJob, bring_kernel, check, check_source, definition_of, job_of
from fsjoule.errors import ConfigError, FsjouleError, KernelCIError, LabError, ResultError, also
from fsjoule.filesystems import modules_of
from fsjoule.host import interrupts, process
from fsjoule.host.files import write_file
from fsjoule.host.paths import project_dir, state_dir
from fsjoule.host.plaintext import plain_line
from fsjoule.host.process_ref import ending
from fsjoule.kernels.recipe import load_recipe, recipes_folder
from fsjoule.lab import EnvironmentFile
from fsjoule.model import Run, RunStatus
from fsjoule.report.kcidb import to_kcidb
from fsjoule.runs.request import RunRequest
from fsjoule.store.reader import LoadedRun, load_run, load_run_file
from fsjoule.suites import check_modules

_log: Final = logging.getLogger(__name__)

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
# A job is ours from its claim until KernelCI knows its outcome.
_CLAIM: Final = "claim.json"
_OUTCOME: Final = "outcome.json"
_REFUSED: Final = "refused"
_KEY: Final = 16
_FAILED: Final = 1  # a bench's exit code: invalid measurements
# A bench runs what its lab has configured, and needs no token.
_NO_TOKENS: Final = {TOKEN_VARIABLE: None, KCIDB_VARIABLE: None}
_ERROR: Final = "ERROR: "
_LAST_BYTES: Final = 1 << 16
_PANIC: Final = "did not boot: Kernel panic"


@dataclass(frozen=True, slots=True)
class KernelCILab:
    """This lab in KernelCI's words (`runtime`, `platform`), and what it measures: `choice`, as options of the bench.

    `origin` is its name in KCIDB. A bench is ended after `limit_s`.
    """

    runtime: str
    platform: str
    environment: EnvironmentFile
    results: Path
    choice: RunRequest
    options: tuple[str, ...]
    origin: str
    limit_s: float


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """The end of a job, in KernelCI's words: `result`, and for an incomplete one `code` and `why`."""

    result: str
    code: str = ""
    why: str = ""


_ENDED: Final = JobOutcome("incomplete", "Canceled", "the lab ended the job")
_LOST: Final = JobOutcome("incomplete", "Infrastructure", "the lab's program ended while it did the job")


@dataclass
class Poller:
    """Without `kcidb` the figures stay in the job's folder. A job's end is told again after `again_s` if that fails."""

    api: Api
    lab: KernelCILab
    kcidb: Kcidb | None
    again_s: float = 30.0

    @contextmanager
    def alone(self) -> Generator[None]:
        """Raise LabError while another program of this computer takes the same jobs."""
        with (self.folder / "lock").open("wb") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise LabError(
                    f"another poll takes the jobs of {self.lab.runtime} for {self.lab.platform}",
                    hint="end it first, or poll for another platform",
                ) from None
            yield

    def once(self) -> int:
        """Do the jobs that wait now. How many they were. Raises KernelCIError."""
        self._tell_outcomes()
        self._send_figures()
        done, more = 0, True
        while more:
            before = self._since()
            with interrupts.interruptible():
                events = self.api.waiting(before)
            for event in events:
                job = job_of(event, self.lab.runtime, self.lab.platform)
                if job is not None and self._claim(job):
                    self._do(job)
                    done += 1
                if isinstance(stamp := event.get("timestamp"), str) and stamp > self._since():
                    write_file(self._cursor, json.dumps({"timestamp": stamp}).encode())
            more = len(events) >= EVENTS_AT_ONCE and self._since() > before
        return done

    def _since(self) -> str:
        try:
            return str(json.loads(self._cursor.read_bytes())["timestamp"])
        except (OSError, ValueError, KeyError, TypeError):
            return _START

    @property
    def _cursor(self) -> Path:
        return self.folder / "events.json"

    @property
    def folder(self) -> Path:
        """What is kept of this API's jobs for this platform: a cursor, and a folder for each job."""
        key = json.dumps([self.api.url.rstrip("/"), self.lab.runtime, self.lab.platform])
        folder = state_dir() / "kernelci" / hashlib.sha256(key.encode()).hexdigest()[:_KEY]
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def _claim(self, job: KernelCIJob) -> bool:
        """Write our number into the job. KernelCI has no lock: one poller for a platform of a lab, please."""
        node = self.api.node(job.node)
        data: dict[str, Any] = node.get("data") or {}
        if node.get("state") != "available" or data.get("job_id"):
            _log.info("job %s: somebody has taken it, or it has ended", job.node)
            return False
        if job.ends is not None and self._left_s(job) < _LEAST_S:
            _log.info("job %s: left, KernelCI ends it at %s UTC", job.node, f"{job.ends:%H:%M}")
            return False
        number = f"{self.lab.runtime}:{uuid.uuid4().hex}"
        folder = self.folder / job.node
        folder.mkdir(exist_ok=True)
        (folder / _OUTCOME).unlink(missing_ok=True)
        write_file(folder / _CLAIM, json.dumps({"job_id": number}).encode())
        node["data"] = data | {"job_id": number}
        self.api.update(node)
        return True

    def _left_s(self, job: KernelCIJob) -> float:
        if job.ends is None:
            return self.lab.limit_s
        return min(self.lab.limit_s, (job.ends - datetime.now(UTC)).total_seconds() - _BEFORE_S)

    def _do(self, job: KernelCIJob) -> None:
        _log.info("job %s: %s, kernel %s", job.node, job.name, job.revision or "unknown")
        folder = self.folder / job.node
        try:
            outcome = self._measured(job, folder)
        except BaseException as error:
            bug = JobOutcome("incomplete", "Infrastructure", f"the lab's program failed: {type(error).__name__}")
            with also(error, f"telling KernelCI the end of job {job.node}"):
                self._finish(job.node, _ENDED if isinstance(error, KeyboardInterrupt) else bug)
            raise
        finally:
            shutil.rmtree(folder / "kernel", ignore_errors=True)
        self._finish(job.node, outcome)
        self._send_figures()

    def _measured(self, job: KernelCIJob, folder: Path) -> JobOutcome:
        try:
            with interrupts.interruptible():
                check_source(self.api.url, job.definition, "definition")
                definition = definition_of(job)
                for part, url in definition.artifacts.items():
                    check_source(self.api.url, url, part, sha256=definition.integrity.sha256.get(part))
            (folder / "definition.json").write_text(definition.model_dump_json(indent=2), encoding="utf-8")
            recipe = load_recipe(recipes_folder(), self.lab.environment.profile.recipe)
            check(definition, self.lab.platform, recipe)
            with interrupts.interruptible():
                # Before the bench: what it has measured must not depend on the network.
                build = self._build(job)
                kernel = bring_kernel(job, definition, folder / "kernel")
                self._check_kernel(kernel)
        except ConfigError as error:
            return JobOutcome("incomplete", "invalid_job_params", error.what)
        except FsjouleError as error:
            return JobOutcome("incomplete", "Infrastructure", error.what)
        log = folder / "bench.log"
        code = self._bench(kernel, log, self._left_s(job))
        run = self._run_of(kernel)
        if run is not None and run.measurements:
            figures = to_kcidb(run.run, run.measurements, self.lab.origin, build)
            write_file(folder / _FIGURES, figures.encode())
            _log.info("job %s: the run is %s, its figures are %s", job.node, run.path, folder / _FIGURES)
        outcome = outcome_of(code, run and run.run, log)
        if outcome.result != "pass":
            _log.info("job %s: see %s", job.node, log)
        return outcome

    def _check_kernel(self, kernel: Path) -> None:
        """Raise ConfigError for a kernel that cannot boot, or lacks what the bench needs; LabError."""
        choice, recipe = self.lab.choice, self.lab.environment.profile.recipe
        needed = modules_of(choice.filesystems)
        for taken in kernels.take_kernels([str(kernel)], recipe=recipe, modules=needed):
            check_modules(choice.suite, choice.filesystems, taken.facts)

    def _bench(self, kernel: Path, log: Path, limit_s: float) -> int | None:
        """Measure; its exit code, None after `limit_s`. An interrupt ends the bench first."""
        # The program beside this Python: what its output tells to type is what a user types.
        program = str(Path(sys.executable).with_name("fsjoule"))
        words = [program, "bench", "--lg-env", str(self.lab.environment.path.resolve()), "--kernel", str(kernel)]
        words += ["--results", str(self.lab.results.resolve()), *self.lab.options]
        _log.info("measuring; the bench's output is in %s", log)
        bench = process.start(words, log=log, cwd=project_dir(), env=_NO_TOKENS)
        try:
            with interrupts.interruptible():
                return bench.wait(limit_s)
        except subprocess.TimeoutExpired:
            _log.info("the bench is ended: it took longer than %.0f min", limit_s / 60)
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

    def _build(self, job: KernelCIJob) -> str | None:
        """KCIDB's number of the kernel's build, from the job's ancestors; None if there is none among them."""
        number = job.node
        try:
            for _ in range(_HOPS):
                node = self.api.node(number)
                if node.get("kind") == "kbuild":
                    return f"{_BUILDS}:{number}"
                if not isinstance(parent := node.get("parent"), str):
                    break
                number = parent
        except KernelCIError as error:
            _log.warning("%s; the figures will have a build of their own", error.what)
        return None

    def _finish(self, number: str, outcome: JobOutcome) -> None:
        """Tell KernelCI the end of a job of ours. It is kept until KernelCI knows it. Raises KernelCIError."""
        why = f": {outcome.why}" if outcome.why else ""
        _log.info("job %s: %s%s", number, outcome.result, why)
        write_file(self.folder / number / _OUTCOME, json.dumps(asdict(outcome)).encode())
        for attempt in range(1, _TRIES + 1):
            try:
                self._tell(number, outcome)
            except KernelCIError as error:
                if _refused(error):
                    self._give_up(number, error)
                    return
                if attempt == _TRIES or not error.transient:
                    raise
                with interrupts.interruptible():
                    time.sleep(self.again_s)
            else:
                return

    def _tell(self, number: str, outcome: JobOutcome) -> None:
        claim = self.folder / number / _CLAIM
        ours = _kept(claim).get("job_id")
        node = self.api.node(number)
        data: dict[str, Any] = node.get("data") or {}
        if ours and data.get("job_id") == ours and node.get("state") != "done":
            node |= {"state": "done", "result": outcome.result}
            if outcome.code:
                node["data"] = data | {"error_code": outcome.code, "error_msg": outcome.why}
            self.api.update(node)
        claim.unlink(missing_ok=True)

    def _tell_outcomes(self) -> None:
        """Tell the ends that KernelCI does not know yet. A failure is said, and the next round tries again."""
        for claim in sorted(self.folder.glob(f"*/{_CLAIM}")):
            told = _kept(claim.with_name(_OUTCOME))
            outcome = JobOutcome(told["result"], told["code"], told["why"]) if told else _LOST
            number = claim.parent.name
            try:
                with interrupts.interruptible():
                    self._tell(number, outcome)
            except KernelCIError as error:
                if _refused(error):
                    self._give_up(number, error)
                else:
                    _log.warning("%s; the end of job %s (%s) is told later", error.what, number, outcome.result)

    def _give_up(self, number: str, error: KernelCIError) -> None:
        """The end of a job that KernelCI does not want to hear: its node was deleted, for example."""
        claim = self.folder / number / _CLAIM
        claim.replace(claim.with_name(f"{_CLAIM}.{_REFUSED}"))
        _log.warning("%s; the end of job %s is not told again", error.what, number)

    def _send_figures(self) -> None:
        """Send what has not been sent. A failure is said, and the next round tries again."""
        if self.kcidb is None:
            return
        for figures in sorted(self.folder.glob(f"*/{_FIGURES}")):
            if (sent := figures.with_name(_SENT)).exists():
                continue
            try:
                with interrupts.interruptible():
                    number = self.kcidb.submit(figures.read_text(encoding="utf-8"))
            except ValueError:
                self._set_aside(figures, "it is not JSON", "unreadable")
            except KernelCIError as error:
                if not _refused(error):
                    _log.warning("%s; %s is sent later", error.what, figures)
                    return
                self._set_aside(figures, error.what, _REFUSED)
            else:
                write_file(sent, json.dumps({"id": number, "url": self.kcidb.url}).encode())
                _log.info("figures of job %s: KCIDB has them as %s", figures.parent.name, number)

    def _set_aside(self, figures: Path, why: str, as_what: str) -> None:
        aside = figures.replace(figures.with_name(f"{figures.name}.{as_what}"))
        _log.warning("%s; the figures are kept as %s and not sent again", why, aside)


def _refused(error: KernelCIError) -> bool:
    """Whether what was sent is refused, whoever sends it and whenever."""
    return not (error.transient or error.denied)


def outcome_of(code: int | None, run: Run | None, log: Path) -> JobOutcome:
    """What a bench's end means for its job: exit code (None: ended by us at its limit), run, and the bench's output."""
    if run is not None and run.status is RunStatus.COMPLETE and code in (0, _FAILED):
        return JobOutcome("fail" if code else "pass")
    ended = "the bench took too long" if code is None else f"the bench {ending(code)}"
    why = (run and run.abort_reason) or _last_error(log) or ended
    if _PANIC in why:
        return JobOutcome("fail")
    wrong = run is None and code == ConfigError.exit_code
    return JobOutcome("incomplete", "invalid_job_params" if wrong else "Infrastructure", why)


def _last_error(log: Path) -> str:
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _LAST_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    found = [line.removeprefix(_ERROR) for line in lines if line.startswith(_ERROR)]
    return plain_line(found[-1]) if found else ""


def _kept(file: Path) -> dict[str, str]:
    """What was kept in a file; nothing if there is no such file."""
    try:
        return dict(json.loads(file.read_bytes()))
    except (OSError, ValueError):
        return {}
