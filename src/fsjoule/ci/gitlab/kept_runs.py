"""Run folders in a project's package registry, where they outlive the jobs that measured them.

Each run is a generic package (https://docs.gitlab.com/user/packages/generic_packages/) whose version is the folder's
name. A job's own token may upload, list and download packages.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, cast

import gitlab
import requests
from gitlab.exceptions import GitlabGetError
from gitlab.v4.objects import Project

from fsjoule.ci.gitlab.server import GitLabProject, needed, told_without_token
from fsjoule.errors import ResultError, StorageError
from fsjoule.store.archive import ARCHIVE_SUFFIX, digest_table, pack_run, unpack_run
from fsjoule.store.folder import RUN_NAME
from fsjoule.store.reader import load_run
from fsjoule.store.run_folders import check_folders, find_runs

PACKAGE: Final = "fsjoule-run"
_FILE: Final = f"run{ARCHIVE_SUFFIX}"
_TOKEN: Final = "CI_JOB_TOKEN"  # noqa: S105 - its name, not a token
_TIMEOUT_S: Final = 120.0
_MOST_BYTES: Final = 1 << 30
_PART_BYTES: Final = 1 << 20
_TOO_LARGE: Final = "it is too large for a run folder"
_AHEAD: Final = timedelta(days=1)  # clocks differ


@dataclass(frozen=True, slots=True)
class Pushed:
    """Counts of run folders uploaded and already known to the registry; `problems` names those left out, and why."""

    uploaded: int
    known: int
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FetchedRuns:
    """Counts of run folders fetched and already there; `problems` names those left out, and why."""

    fetched: int
    known: int
    problems: tuple[str, ...]


def registry_of(variables: Mapping[str, str]) -> GitLabProject | str:
    """The project of GitLab's variables and the job's token, for its package registry, or why there is none.

    Raises ConfigError if some are missing.
    """
    token = variables.get(_TOKEN, "").strip()
    if not token:
        return f"this is not a GitLab job ({_TOKEN} is not set)"
    return GitLabProject(needed(variables, "CI_SERVER_URL"), needed(variables, "CI_PROJECT_ID"), token)


def push_runs(where: GitLabProject, paths: Iterable[Path]) -> Pushed:
    """Upload the run folders at and below `paths` that the registry does not have.

    Raises ConfigError if there is no run folder, GitLabError when the server cannot be reached or refuses.
    """
    folders, faults = find_runs(check_folders(paths))
    problems = [f"{fault.path}: {fault.reason}" for fault in faults]
    uploaded = known_before = 0
    with _project(where, "the runs could not be kept in the package registry") as project:
        known = set(_versions(project))
        for folder in folders:
            if folder.name in known:
                known_before += 1
                continue
            with TemporaryDirectory() as work:
                packed = Path(work) / _FILE
                try:
                    pack_run(folder, digest_table(folder, problems), packed, most_bytes=_MOST_BYTES)
                except ResultError as error:
                    problems.append(f"{folder.name}: {error.what}")
                    continue
                project.generic_packages.upload(PACKAGE, folder.name, _FILE, path=packed)
            uploaded += 1
    return Pushed(uploaded, known_before, tuple(problems))


def pull_runs(where: GitLabProject, into: Path, *, most: int, most_bytes: int = _MOST_BYTES) -> FetchedRuns:
    """Download those of the `most` newest run folders that are not in the folder `into` yet.

    A folder that has more than `most_bytes`, cannot be unpacked or is not a run is named and left out. Raises
    StorageError if `into` cannot be written, GitLabError when the server cannot be reached or refuses.
    """
    fetched, problems = 0, list[str]()
    try:
        into.mkdir(parents=True, exist_ok=True)
        with _project(where, "the earlier runs could not be fetched from the package registry") as project:
            wanted = list(islice(_versions(project), most))
            missing = [name for name in wanted if not (into / name).exists()]
            for name in missing:
                try:
                    _pull(project, name, into, most_bytes)
                    fetched += 1
                except ResultError as error:
                    problems.append(f"{name}: {error.what}")
                except GitlabGetError as error:
                    if error.response_code != HTTPStatus.NOT_FOUND:
                        raise
                    problems.append(f"{name}: the registry has no {_FILE} of it")
    except OSError as error:
        raise StorageError(f"{into} could not be written: {error.strerror or error}") from error
    return FetchedRuns(fetched, len(wanted) - len(missing), tuple(problems))


def _pull(project: Project, name: str, into: Path, most_bytes: int) -> None:
    """Download one run; its folder appears only when it is complete."""
    with TemporaryDirectory(prefix=".pull-", dir=into) as work:
        packed = Path(work) / _FILE
        with packed.open("wb") as file:

            def write(part: bytes) -> None:
                if file.tell() + len(part) > most_bytes:
                    raise ResultError(_TOO_LARGE)
                file.write(part)

            project.generic_packages.download(PACKAGE, name, _FILE, streamed=True, action=write, chunk_size=_PART_BYTES)
        unpack_run(packed, name, Path(work), most_bytes=most_bytes)
        load_run(Path(work) / name)
        (Path(work) / name).rename(into / name)


def _versions(project: Project) -> Iterator[str]:
    """Names of the run folders in the registry, newest first: a name begins with the date."""
    found = project.packages.list(
        iterator=True, per_page=100, package_type="generic", package_name=PACKAGE, order_by="version", sort="desc"
    )
    latest = f"{datetime.now(UTC) + _AHEAD:%Y%m%dT%H%M%SZ}"
    for package in found:
        version = cast("str", package.version)
        # GitLab also finds names that contain this one. A run from the future would stay the newest.
        named = RUN_NAME.fullmatch(version)
        if package.name == PACKAGE and named is not None and named[1] <= latest:
            yield version


class _Session(requests.Session):
    """Withholds the job's token from an object storage to which GitLab redirects for packages."""

    def rebuild_auth(self, prepared_request: requests.PreparedRequest, response: requests.Response) -> None:
        super().rebuild_auth(prepared_request, response)
        if self.should_strip_auth(response.request.url or "", prepared_request.url or ""):
            prepared_request.headers.pop("JOB-TOKEN", None)


@contextmanager
def _project(where: GitLabProject, what: str) -> Generator[Project]:
    hint = "in Settings, CI/CD, Job token permissions: jobs of this project need its package registry (docs/ci.md)"
    with (
        told_without_token(where.token, f"{what} of {where.server}", hint),
        gitlab.Gitlab(where.server, job_token=where.token, timeout=_TIMEOUT_S, session=_Session()) as server,
    ):
        yield server.projects.get(where.project, lazy=True)
