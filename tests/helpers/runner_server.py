"""GitLab's side of gitlab-runner: runners ask for jobs, which are traced, cancelled and ended; artifacts are kept.

As gitlab-runner 19 asks for it (its packages `network` and `common/spec`); https://docs.gitlab.com/api/runners/ and
https://docs.gitlab.com/api/jobs/ have parts of it. A runner gets only its own jobs, the oldest first.
"""

from __future__ import annotations

import io
import json
import re
import threading
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from email.message import Message
from typing import Any, Final
from urllib.parse import parse_qs

# Seconds between two parts of a trace; GitLab asks for 3 while somebody looks at the job, 60 otherwise.
_TRACE_EVERY: Final = "1"
_ENDED: Final = ("success", "failed")


@dataclass
class RunnerJob:
    """A job as the server sees it: `status` is what GitLab tells the runner, `state` what the runner told GitLab."""

    number: int
    runner: str
    token: str
    document: dict[str, Any]
    status: str = "pending"
    state: str = "pending"
    failure_reason: str | None = None
    exit_code: int = 0
    trace: bytearray = field(default_factory=bytearray)
    artifacts: dict[str, bytes] = field(default_factory=dict[str, bytes])

    @property
    def log(self) -> str:
        return self.trace.decode(errors="replace")

    @property
    def ended(self) -> bool:
        return self.state in _ENDED

    @property
    def files(self) -> list[str]:
        """The names in its archive."""
        with zipfile.ZipFile(io.BytesIO(self.artifacts["archive"])) as archive:
            return archive.namelist()

    def cancel(self, *, force: bool = False) -> None:
        """As a person does in GitLab; with `force` the second time."""
        self.status = "canceled" if force else "canceling"

    @property
    def told(self) -> dict[str, str]:
        return {"Job-Status": self.status, "X-GitLab-Trace-Update-Interval": _TRACE_EVERY}


@dataclass(frozen=True)
class Asked:
    """A request, with its address below /api/v4."""

    method: str
    path: str
    query: str
    headers: Message
    sent: bytes


@dataclass(frozen=True)
class Answer:
    status: int
    document: object = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    content: bytes | None = None


class RunnerServer:
    """Jobs by their number. Runners are known by their token."""

    def __init__(self) -> None:
        self.runners: set[str] = set()
        self.jobs: dict[int, RunnerJob] = {}
        self._lock = threading.Lock()

    def add(self, runner: str, document: Callable[[int], dict[str, Any]]) -> RunnerJob:
        """A job for the runner with this token; its document is made for its number."""
        with self._lock:
            number = 1001 + len(self.jobs)
            job = RunnerJob(number, runner, f"glcbt-job_{number}", {})
            job.document = document(number) | {"id": number, "token": job.token}
            self.jobs[number] = job
            return job

    def takes(self, path: str) -> bool:
        return path.startswith(("/jobs/", "/runners/"))

    def answer(self, asked: Asked) -> Answer:
        with self._lock:
            if (asked.method, asked.path) == ("POST", "/runners/verify"):
                known = json.loads(asked.sent)["token"] in self.runners
                return Answer(200, {"id": 1}) if known else Answer(403, {"message": "403 Forbidden"})
            if (asked.method, asked.path) == ("POST", "/jobs/request"):
                return self._next(json.loads(asked.sent)["token"])
            of_job = re.fullmatch(r"/jobs/(\d+)(/trace|/artifacts|)", asked.path)
            job = None if of_job is None else self.jobs.get(int(of_job[1]))
            if of_job is None or job is None:
                return Answer(404, {"message": "404 Not found"})
            if asked.headers.get("JOB-TOKEN") != job.token:
                return Answer(403, {"message": "403 Forbidden"})
            return self._of_job(job, asked, of_job[2])

    def _next(self, token: str) -> Answer:
        if token not in self.runners:
            return Answer(403, {"message": "403 Forbidden"})
        for job in self.jobs.values():
            if job.runner == token and job.status == "pending":
                job.status = job.state = "running"
                return Answer(201, job.document)
        return Answer(204, content=b"")

    def _of_job(self, job: RunnerJob, asked: Asked, what: str) -> Answer:
        if asked.method == "PATCH" and what == "/trace":
            first = int(asked.headers["Content-Range"].partition("-")[0])
            if first != len(job.trace):
                return Answer(416, {}, {**job.told, "Range": f"0-{len(job.trace)}"})
            job.trace += asked.sent
            return Answer(202, {}, {**job.told, "Range": f"0-{len(job.trace)}"})
        if asked.method == "PUT" and not what:
            update = json.loads(asked.sent)
            job.state, job.failure_reason = update["state"], update.get("failure_reason")
            job.exit_code = update.get("exit_code", 0)
            return Answer(200, {}, job.told)
        if asked.method == "POST" and what == "/artifacts":
            (kind,) = parse_qs(asked.query)["artifact_type"]
            job.artifacts[kind] = _file_of_form(asked.headers["Content-Type"], asked.sent)
            return Answer(201, {})
        if asked.method == "GET" and what == "/artifacts" and "archive" in job.artifacts:
            return Answer(200, headers={"Content-Type": "application/zip"}, content=job.artifacts["archive"])
        return Answer(404, {"message": "404 Not found"})


def _file_of_form(content_type: str, sent: bytes) -> bytes:
    """The only file of a multipart form."""
    boundary = content_type.partition("boundary=")[2].strip('"').encode()
    _, part, _ = sent.split(b"--" + boundary)
    return part.partition(b"\r\n\r\n")[2].removesuffix(b"\r\n")
