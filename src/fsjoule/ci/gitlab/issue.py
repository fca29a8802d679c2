"""An issue of a project with the answer of a bisection: one per question, which is found again and updated."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from fsjoule.ci.gitlab.note import GitLabJob, links
from fsjoule.ci.gitlab.server import TOKEN_VARIABLE, inert, needed, signed_in
from fsjoule.errors import ConfigError
from fsjoule.report.markdown import without_mentions

LABEL: Final = "fsjoule"
_MARKER: Final = re.compile(r"<!-- fsjoule bisect [0-9a-f]+ -->")
_LONGEST_TITLE: Final = 200


@dataclass(frozen=True, slots=True)
class Issues:
    """Where issues belong."""

    server: str
    project: str
    token: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Issue:
    """`marker` is the hidden first line, by which the issue of the same question is found."""

    marker: str
    title: str
    text: str


def issues_of(variables: Mapping[str, str]) -> Issues | str:
    """The project and token of GitLab's variables, or why no issue can be made. Raises ConfigError."""
    if not variables.get("CI_PROJECT_ID"):
        return "this is no job of GitLab (CI_PROJECT_ID is not set)"
    token = variables.get(TOKEN_VARIABLE, "").strip()
    if not token:
        return f"no token ({TOKEN_VARIABLE} is not set)"
    return Issues(needed(variables, "CI_SERVER_URL"), needed(variables, "CI_PROJECT_ID"), token)


def issue_of(told: str, job: GitLabJob) -> Issue:
    """The issue of what `fsjoule bisect --markdown` wrote. Raises ConfigError for another text."""
    first, _, rest = told.partition("\n")
    if _MARKER.fullmatch(first) is None:
        raise ConfigError("this is no answer of a bisection", hint="fsjoule bisect --markdown FILE writes one")
    headline = rest.partition("\n")[0]
    title = re.sub(r"\\(.)", r"\1", headline.replace("**", ""))
    title = title.replace("&#8203;", "").replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
    below = " · ".join(links(job))
    return Issue(first, title[:_LONGEST_TITLE], inert(told.rstrip()) + "\n" + (f"\n{below}\n" if below else ""))


def post_issue(where: Issues, issue: Issue) -> str:
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
