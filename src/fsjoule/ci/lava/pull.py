"""Fetches a job's run from a LAVA server: the run folder where this computer can read it, else what the log kept."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Generator
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, cast

import yaml

from fsjoule.ci.lava.signals import LogContents, kept_in
from fsjoule.errors import ConfigError, LavaError, ResultError, StorageError
from fsjoule.host.plaintext import plain_line
from fsjoule.host.web import AnswerError, answered, is_address
from fsjoule.model import JobFacts, Run
from fsjoule.store.folder import FETCHED, RunFolder, folder_name
from fsjoule.store.reader import load_run

TOKEN_VARIABLE: Final = "FSJOULE_LAVA_TOKEN"  # noqa: S105 - its name, not a token
_API: Final = "api/v0.2"
_MOST_BYTES: Final = 1 << 28
_TRIED: Final = "2026.10 is the version that fsjoule was tried with"
# Lines of a job's programs; the second kind is read when the job has been cancelled.
_PRINTED: Final = ("target", "feedback")
# In a log: a list of maps, and the depth of their values.
_LISTED: Final = (yaml.SequenceStartEvent, yaml.MappingStartEvent)
_VALUE: Final = 2
_REFUSALS: Final = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)


@dataclass(frozen=True, slots=True)
class LavaServer:
    """A LAVA server by its address, and a user's token of it ("": only public jobs).

    `answer_limit_s` is how long one whole answer may take.
    """

    url: str
    token: str = field(default="", repr=False)
    answer_limit_s: float = 900.0

    def __post_init__(self) -> None:
        if not is_address(self.url):
            shown = re.sub(r"//[^/]*@", "//...@", plain_line(self.url))  # a password in it is not for logs
            raise ConfigError(
                f"{shown!r} is no address of a LAVA server",
                hint=f"https://lava.example.org, and the token in {TOKEN_VARIABLE}",
            )


@dataclass(frozen=True, slots=True)
class PulledRun:
    """`path` is the run folder. `whole` tells whether it has the traces, `known` whether it was there already."""

    path: Path
    measurements: int
    whole: bool
    known: bool = False


def pull(server: LavaServer, job: int, into: Path) -> PulledRun:
    """Bring the run of a finished job into the folder `into`.

    Raises LavaError if the server cannot be reached, refuses, has no such job or is of another kind; ResultError if
    the job has no measurements of fsjoule; StorageError if `into` cannot be written.
    """
    answer = _object(_get(server, "system/version/", "the version"), server, "")
    if not isinstance(version := answer.get("version"), str):
        raise _strange(server, "")
    version = plain_line(version)
    state = _object(_get(server, f"jobs/{job}/", f"job {job}"), server, version)
    if state.get("state") != "Finished":
        raise LavaError(
            f"job {job} of {server.url} is {plain_line(str(state.get('state')))}", hint="wait until it has ended"
        )
    where = f"the log of job {job} of {server.url}"
    log = _get(server, f"jobs/{job}/logs/", where)
    kept = kept_in(_log(log, where, version), where)
    if kept is None:
        raise ResultError(
            f"job {job} of {server.url} has no measurements of fsjoule",
            hint="`fsjoule lava job` writes jobs that have; a smoke job measures nothing",
        )
    url = f"{server.url.rstrip('/')}/scheduler/job/{job}"
    device = plain_line(str(state.get("actual_device") or ""))
    facts = kept.run.job or JobFacts(str(job), device, "", "")
    if facts.number == str(job):  # a resumed run is the job's that began it
        facts = replace(facts, url=url)
    try:
        into.mkdir(parents=True, exist_ok=True)
        return _stored(kept, facts, into)
    except OSError as error:
        raise StorageError(f"{into} cannot be written: {error.strerror or error}") from error


def _stored(kept: LogContents, facts: JobFacts, into: Path) -> PulledRun:
    name = folder_name(kept.run, "board")
    there = load_run(into / name) if (into / name).exists() else None
    known = None
    if there is not None:
        whole = there.run.job is None or not there.run.job.pulled
        known = PulledRun(there.path, len(there.measurements), whole, known=True)
    # Another job may have gone on with it since.
    if known is not None and known.measurements >= len(kept.measurements):
        return known
    with TemporaryDirectory(prefix=FETCHED, dir=into) as work:
        made = _copied(Path(kept.folder), kept.run, Path(work)) if kept.folder else None
        whole = made is not None
        if made is None:
            if known is not None and known.whole:
                return known  # a few measurements more are not worth its traces
            facts = replace(facts, pulled=True)
            folder = RunFolder(Path(work))  # of documents alone
            folder.begin(replace(kept.run, measurements=(), job=facts))
            for measurement in kept.measurements:
                folder.add(measurement, None, {})
            folder.finish(replace(kept.run, job=facts))
            made = folder.path
        measurements = len(load_run(made).measurements)
        if known is not None:
            known.path.rename(Path(work) / "before")
        made.rename(into / name)
    return PulledRun(into / name, measurements, whole)


def _copied(here: Path, run: Run, into: Path) -> Path | None:
    """A copy of the worker's run folder, if it is on this computer and the same run; else None."""
    try:
        if load_run(here).run.run_id != run.run_id:
            return None
        return shutil.copytree(here, into / "copy", ignore=_links)
    except (OSError, ValueError, ResultError):  # a path from a log may be none
        return None


def _links(folder: str, names: list[str]) -> list[str]:
    """No part of a run folder is a link."""
    return [name for name in names if Path(folder, name).is_symlink()]


def _object(content: bytes, server: LavaServer, version: str) -> dict[str, Any]:
    try:
        found: Any = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise _strange(server, version) from error
    if not isinstance(found, dict):
        raise _strange(server, version)
    return cast("dict[str, Any]", found)


def _strange(server: LavaServer, version: str) -> LavaError:
    of = f"LAVA {version} at {server.url}" if version else server.url
    return LavaError(f"{of} does not answer as LAVA's REST interface v0.2 does", hint=_TRIED)


def _log(content: bytes, where: str, version: str) -> list[str]:
    """The lines that the job's programs have printed."""
    try:
        return [each["msg"] for each in _entries(content) if each["lvl"] in _PRINTED and each["msg"] is not None]
    except (yaml.YAMLError, ValueError, TypeError, KeyError) as error:
        raise LavaError(f"{where} is not as LAVA writes it: LAVA {version}", hint=_TRIED) from error


def _entries(content: bytes) -> Generator[dict[str | None, str | None]]:
    """The entries of a list of maps, one after the other; a value that is no text is None.

    yaml.load would end the process with a signal for what is nested deep.
    """
    words: list[str | None] = []
    depth = 0
    for each in yaml.parse(content, yaml.CBaseLoader):
        if isinstance(each, yaml.CollectionEndEvent):
            depth -= 1
            if depth == 1:
                yield dict(zip(words[::2], words[1::2], strict=True))
                words = []
        elif isinstance(each, yaml.NodeEvent):
            if depth == _VALUE:
                words.append(each.value if isinstance(each, yaml.ScalarEvent) else None)
            elif depth < _VALUE and not isinstance(each, _LISTED[depth]):
                raise TypeError("no list of maps")
            depth += isinstance(each, yaml.CollectionStartEvent)


def _get(server: LavaServer, path: str, what: str) -> bytes:
    token = f"Token {server.token}" if server.token else ""
    url = f"{server.url.rstrip('/')}/{_API}/{path}"
    try:
        with answered("GET", url, most_bytes=_MOST_BYTES, limit_s=server.answer_limit_s, authorization=token) as answer:
            _check(answer.status, server, what)
            return answer.content()
    except AnswerError as error:
        raise LavaError(f"{server.url} {error}") from None


def _check(status: int, server: LavaServer, what: str) -> None:
    if status in _REFUSALS:
        token = "its token is wrong, or of a user who may not see it" if server.token else "it asks for a token"
        raise LavaError(
            f"{server.url} refuses {what}: {token}", hint=f"{TOKEN_VARIABLE}: a token of API, Authentication tokens"
        )
    if status == HTTPStatus.NOT_FOUND:
        if what == "the version":
            raise _strange(server, "")
        raise LavaError(f"{server.url} has no {what}, or does not show it", hint=f"private jobs need {TOKEN_VARIABLE}")
    if status != HTTPStatus.OK:
        raise LavaError(f"{server.url} refuses {what}: HTTP {status}")
