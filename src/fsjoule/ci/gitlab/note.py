"""The single note on a merge request: a hidden marker finds it again, and it is updated in place."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from fsjoule.ci.gitlab.server import TOKEN_VARIABLE, inert, needed, signed_in, text_of_a_job
from fsjoule.errors import ConfigError

_MARKER: Final = re.compile(r"<!-- fsjoule note(?: ([^,>]+))?, pipeline (\d+) -->")
_NAME: Final = re.compile(r"[\w.:/ -]{1,64}")
_JOB_FILE: Final = "job-url"
_JOB: Final = re.compile(r"https?://[\w.:/%-]+/-/jobs/\d+")


@dataclass(frozen=True, slots=True)
class MergeRequest:
    """Where the note belongs. `pipeline` counts up, so an earlier pipeline never overwrites a later one's note."""

    server: str
    project: str
    number: int
    pipeline: int
    token: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class GitLabJob:
    """Where a note comes from; empty where GitLab does not say."""

    url: str = ""
    pipeline_url: str = ""
    commit: str = ""


def merge_request_of(variables: Mapping[str, str]) -> MergeRequest | str:
    """The merge request and token of GitLab's variables, or why no note can be posted. Raises ConfigError."""
    if not variables.get("CI_MERGE_REQUEST_IID"):
        return "this is not a merge request's pipeline (CI_MERGE_REQUEST_IID is not set)"
    # Stray white space, for example from a file, would cause an error message that contains the token.
    token = variables.get(TOKEN_VARIABLE, "").strip()
    if not token:
        return f"no token ({TOKEN_VARIABLE} is not set)"
    return MergeRequest(
        server=needed(variables, "CI_SERVER_URL"),
        # A fork's merge request can run its pipeline in the target project or in the fork.
        project=variables.get("CI_MERGE_REQUEST_PROJECT_ID") or needed(variables, "CI_PROJECT_ID"),
        number=_number(variables, "CI_MERGE_REQUEST_IID"),
        pipeline=_number(variables, "CI_PIPELINE_ID"),
        token=token,
    )


def job_of(variables: Mapping[str, str], url: str, beside: Path) -> GitLabJob:
    """The pipeline that GitLab's variables name, and the job that measured.

    That is `url`, else what the job left beside its answer. Raises ConfigError, ResultError.
    """
    if not url and (left := text_of_a_job(beside.with_name(_JOB_FILE))) and _JOB.fullmatch(left.strip()):
        url = left.strip()
    return GitLabJob(url, variables.get("CI_PIPELINE_URL", ""), variables.get("CI_COMMIT_SHORT_SHA", ""))


def note_text(told: str | None, job: GitLabJob, annotations: str | None = None) -> str:
    """The note: the gate's text, or why there is none, and links; also those of the job's `annotations`.

    Raises ConfigError if they are damaged.
    """
    if told is None or not told.strip():
        # A job that has begun has a URL.
        why = "its job ended without one; its log says why" if job.url else "its job did not run"
        told = f"**fsjoule gate: no answer**: {why}\n"
    below = " · ".join([*_annotated(annotations), *links(job)])
    return told.rstrip() + "\n" + (f"\n{below}\n" if below else "")


def _annotated(annotations: str | None) -> Iterator[str]:
    if annotations is None:
        return
    try:
        for each in json.loads(annotations)["fsjoule"]:
            yield f"[{each['external_link']['label']}]({each['external_link']['url']})"
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError("the job's annotations are damaged", hint="fsjoule ci verdict writes them") from error


def links(job: GitLabJob) -> Iterator[str]:
    """Links to a commit, a pipeline and a job, as far as they are known."""
    if job.commit:
        yield f"commit {job.commit}"
    if job.pipeline_url:
        yield f"[pipeline]({job.pipeline_url})"
    if job.url:
        yield f"[job]({job.url})"
        yield f"[reports and run folders]({job.url}/artifacts/browse)"


def post_note(where: MergeRequest, text: str, *, name: str = "") -> str:
    """Post the note or update the existing one of this `name`; returns what was done.

    Raises ConfigError for a name that cannot be one, GitLabError, without the token.
    """
    if name and not _NAME.fullmatch(name):
        raise ConfigError(f"{name!r} is no name for a note", hint="letters, digits and .:/_- make one, 64 at most")
    body = f"<!-- fsjoule note{f' {name}' if name else ''}, pipeline {where.pipeline} -->\n{inert(text)}"
    what = f"the note of merge request !{where.number} at {where.server} could not be written"
    with signed_in(where.server, where.token, what) as (server, me):
        merge_request = server.projects.get(where.project, lazy=True).mergerequests.get(where.number, lazy=True)
        for note in merge_request.notes.list(iterator=True, order_by="created_at", sort="asc"):
            marker = _MARKER.match(note.body)
            # Other users' notes cannot be edited; renewing a project token changes its user.
            if marker is None or (marker[1] or "") != name or note.author["id"] != me:
                continue
            if int(marker[2]) > where.pipeline:
                return f"left alone: it belongs to a later pipeline, {marker[2]}"
            note.body = body
            note.save()
            return "updated"
        merge_request.notes.create({"body": body})
    return "posted"


def _number(variables: Mapping[str, str], name: str) -> int:
    text = needed(variables, name)
    if not (text.isascii() and text.isdigit()):
        raise ConfigError(f"{name} is {text!r}, which is not a number", hint="GitLab sets it in each job of a pipeline")
    return int(text)
