"""What GitLab shows of an answer: the note on a merge request, the issue of a bisection, the reports of a job.

A hidden marker finds the note of a merge request again, and the issue of a question: they are updated in place. A job's
reports are metrics in the merge request's widget, and links on the job's page.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from fsjoule.ci.gitlab.server import TOKEN_VARIABLE, GitLabProject, inert, needed, signed_in, text_of_a_job
from fsjoule.errors import ConfigError, ResultError
from fsjoule.report.allure.documents import TRENDS
from fsjoule.report.markdown import without_mentions
from fsjoule.store.folder import PAGE
from fsjoule.store.gate import Gated, gate_of
from fsjoule.store.reader import load_run
from fsjoule.store.run_folders import find_runs

_NOTE_MARKER: Final = re.compile(r"<!-- fsjoule note(?: ([^,>]+))?, pipeline (\d+) -->")
_NAME: Final = re.compile(r"[\w.:/ -]{1,64}")
_JOB_FILE: Final = "job-url"
_JOB: Final = re.compile(r"https?://[\w.:/%-]+/-/jobs/\d+")

LABEL: Final = "fsjoule"
_ISSUE_MARKER: Final = re.compile(r"<!-- fsjoule bisect [0-9a-f]+ -->")
_LONGEST_TITLE: Final = 200

METRICS: Final = "metrics.txt"
ANNOTATIONS: Final = "annotations.json"


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
            marker = _NOTE_MARKER.match(note.body)
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


@dataclass(frozen=True, slots=True)
class Issue:
    """`marker` is the hidden first line, by which the issue of the same question is found."""

    marker: str
    title: str
    text: str


def issues_of(variables: Mapping[str, str]) -> GitLabProject | str:
    """The project and token of GitLab's variables, or why no issue can be made. Raises ConfigError."""
    if not variables.get("CI_PROJECT_ID"):
        return "this is no job of GitLab (CI_PROJECT_ID is not set)"
    token = variables.get(TOKEN_VARIABLE, "").strip()
    if not token:
        return f"no token ({TOKEN_VARIABLE} is not set)"
    return GitLabProject(needed(variables, "CI_SERVER_URL"), needed(variables, "CI_PROJECT_ID"), token)


def issue_of(told: str, job: GitLabJob) -> Issue:
    """The issue of what `fsjoule bisect --markdown` wrote. Raises ConfigError for another text."""
    first, _, rest = told.partition("\n")
    if _ISSUE_MARKER.fullmatch(first) is None:
        raise ConfigError("this is no answer of a bisection", hint="fsjoule bisect --markdown FILE writes one")
    headline = rest.partition("\n")[0]
    title = re.sub(r"\\(.)", r"\1", headline.replace("**", ""))
    title = title.replace("&#8203;", "").replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
    below = " · ".join(links(job))
    return Issue(first, title[:_LONGEST_TITLE], inert(told.rstrip()) + "\n" + (f"\n{below}\n" if below else ""))


def post_issue(where: GitLabProject, issue: Issue) -> str:
    """Make the issue or update the question's own; returns what was done. Raises GitLabError, without the token."""
    what = f"the issue in project {where.project} at {where.server} could not be written"
    # GitLab looks for mentions in titles, too, but lists show them as they are written.
    title = without_mentions(issue.title).replace("&#8203;", "\N{ZERO WIDTH SPACE}")
    with signed_in(where.server, where.token, what) as (server, me):
        issues = server.projects.get(where.project, lazy=True).issues
        for known in issues.list(iterator=True, labels=LABEL, author_id=me, scope="all"):
            if not str(known.description or "").startswith(issue.marker):
                continue
            # Whoever closed it is done with it.
            if known.state != "opened":
                return f"#{known.iid} left alone: it is closed"
            known.title, known.description = title, issue.text
            known.save()
            return f"#{known.iid} updated"
        made = issues.create({"title": title, "description": issue.text, "labels": LABEL})
    return f"#{made.iid} opened"


def newest_gate(results: Path) -> tuple[Path, Gated] | None:
    """The run folder below `results` that a gate measured last, and its answer; None if there is none.

    Raises ConfigError without a run folder, ResultError if the answer is damaged.
    """
    runs = map(load_run, find_runs([results])[0])
    for run in sorted(runs, key=lambda run: run.run.started_utc, reverse=True):
        try:
            gated = gate_of(run)
        except ResultError as error:
            raise ResultError(f"{run.path}: {error.what}") from error
        if gated is not None:
            return run.path, gated
    return None


def metrics_text(gated: Gated) -> str:
    """OpenMetrics text: each figure of the candidate, and its change against the baseline in per cent."""
    lines = [f"fsjoule_gate_exit_code {gated.verdict.exit_code}"]
    for one in gated.findings:
        labels = f'series="{_label(one.subject.name)}",metric="{_label(one.metric.value)}"'
        if one.candidate is not None:
            lines.append(f'fsjoule_figure{{{labels},unit="{_label(one.metric.unit)}"}} {one.candidate:.6g}')
        if one.ratio is not None:
            lines.append(f"fsjoule_change_percent{{{labels}}} {100 * (one.ratio - 1):.3f}")
    return "\n".join([*lines, "# EOF"]) + "\n"


def _label(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def annotations_text(folder: Path, variables: Mapping[str, str]) -> str | None:
    """The links that GitLab shows beside the job: the verdict's page and the trends; None outside a job.

    `folder` is the gate's run folder, an artifact of the job.
    """
    job, project = variables.get("CI_JOB_URL"), variables.get("CI_PROJECT_DIR")
    links: list[tuple[str, str]] = []
    if job and project and folder.is_relative_to(Path(project).resolve()):
        inside = folder.relative_to(Path(project).resolve())
        links.append(("The verdict and its figures", f"{job}/artifacts/file/{inside.as_posix()}/{PAGE}"))
    if pages := variables.get("CI_PAGES_URL"):
        links.append(("Trends", f"{pages.rstrip('/')}/{TRENDS}"))
    if not links:
        return None
    return json.dumps({"fsjoule": [{"external_link": {"label": label, "url": url}} for label, url in links]}) + "\n"
