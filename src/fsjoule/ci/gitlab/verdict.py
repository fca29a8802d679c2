"""A gate's verdict as the reports of a GitLab job: metrics in the merge request's widget, links on the job's page."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from fsjoule.errors import ResultError
from fsjoule.report.allure.documents import TRENDS
from fsjoule.store.folder import PAGE
from fsjoule.store.gate import Gated, gate_of
from fsjoule.store.reader import load_run
from fsjoule.store.run_folders import find_runs

METRICS: Final = "metrics.txt"
ANNOTATIONS: Final = "annotations.json"


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
    return "\n".join([*_metrics(gated), "# EOF"]) + "\n"


def _metrics(gated: Gated) -> Iterator[str]:
    yield f"fsjoule_gate_exit_code {gated.verdict.exit_code}"
    for one in gated.findings:
        labels = f'series="{_label(one.subject.name)}",metric="{_label(one.metric.value)}"'
        if one.candidate is not None:
            yield f'fsjoule_figure{{{labels},unit="{_label(one.metric.unit)}"}} {one.candidate:.6g}'
        if one.ratio is not None:
            yield f"fsjoule_change_percent{{{labels}}} {100 * (one.ratio - 1):.3f}"


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
