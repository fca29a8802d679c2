"""`fsjoule ci`: what jobs of a GitLab pipeline call."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Final

import typer

from fsjoule.cli.common import progress
from fsjoule.errors import ConfigError, StorageError

_MATRIX: Final = Path(".ci/matrix.toml")
_MOST_RUNS: Final = 120
_PIPELINE: Final = Path(".gitlab-ci.yml")

app = typer.Typer(no_args_is_help=True, help="In a pipeline of GitLab CI (docs/ci.md).")


@app.command("note")
def note(
    file: Annotated[Path, typer.Argument(help="What `fsjoule gate --markdown FILE` wrote; it may be missing.")],
    job_url: Annotated[str, typer.Option(help="The job that measured: the note links its artifacts.")] = "",
) -> None:
    """Post the note on the merge request, or update the one that is there.

    The token comes from FSJOULE_GITLAB_TOKEN. Without one, or outside of a merge request, the note is printed instead.
    Exit code 7: GitLab cannot be reached, or refuses.

    Example: fsjoule ci note note.md --job-url "$GATE_JOB_URL"
    """
    from fsjoule.gitlab.note import job_of, merge_request_of, note_text, post_note

    text = note_text(_told(file), job_of(os.environ, job_url))
    where = merge_request_of(os.environ)
    if isinstance(where, str):
        progress(f"{where}: the note is printed instead")
        typer.echo(text, nl=False)
        return
    progress(f"note on merge request !{where.number}: {post_note(where, text)}")


@app.command("matrix")
def matrix(
    output: Annotated[Path, typer.Option(help="Where the child pipeline is written.")],
    file: Annotated[
        Path | None, typer.Option("--matrix", help="What it measures (default: the project's .ci/matrix.toml).")
    ] = None,
) -> None:
    """Write the child pipeline: a job for each board, kernel and filesystem. Boards without a place are left out.

    Example: fsjoule ci matrix --output matrix.yml
    """
    from fsjoule.gitlab.child_pipeline import child_pipeline, matrix_jobs, read_matrix
    from fsjoule.host.paths import project_dir

    ours = project_dir()
    project = Path(os.environ.get("CI_PROJECT_DIR", ours))
    if file is None:
        # A kernel's own repository need not have one.
        file = next((at for at in (project / _MATRIX, ours / _MATRIX) if at.exists()), ours / _MATRIX)
    wanted = read_matrix(file)
    jobs = matrix_jobs(wanted, os.environ, ours, file=file)
    text = child_pipeline(project / _PIPELINE, jobs, wanted)
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise StorageError(f"{output} cannot be written: {error.strerror}") from error
    progress(f"{len(jobs)} jobs: {', '.join(job.name for job in jobs)}")


@app.command("push")
def push(
    runs: Annotated[list[Path] | None, typer.Argument(help="Run folders, or folders that have some.")] = None,
) -> None:
    """Keep run folders in the project's package registry, for the history of later reports. Outside of GitLab: nothing.

    Exit code 7: GitLab cannot be reached, or refuses.

    Example: fsjoule ci push results
    """
    from fsjoule.gitlab.kept_runs import push_runs, registry_of

    where = registry_of(os.environ)
    if isinstance(where, str):
        progress(f"{where}: no run is kept")
        return
    pushed = push_runs(where, runs or [Path("results")])
    for problem in pushed.problems:
        progress(f"left out: {problem}")
    progress(f"{pushed.uploaded} runs kept in the package registry, {pushed.known} were there")


@app.command("pull")
def pull(
    folder: Annotated[
        Path, typer.Argument(help="Where the run folders go; those that are there are not fetched again.")
    ],
    most: Annotated[int, typer.Option("--runs", min=1, help="So many at most, the newest.")] = _MOST_RUNS,
) -> None:
    """Fetch the run folders that earlier pipelines have kept. Outside of GitLab: an empty folder.

    Exit code 7: GitLab cannot be reached, or refuses.

    Example: fsjoule ci pull history, then: fsjoule report build results --history history
    """
    from fsjoule.gitlab.kept_runs import pull_runs, registry_of

    where = registry_of(os.environ)
    if isinstance(where, str):
        folder.mkdir(parents=True, exist_ok=True)
        progress(f"{where}: no earlier run is fetched")
        return
    pulled = pull_runs(where, folder, most=most)
    for problem in pulled.problems:
        progress(f"left out: {problem}")
    progress(f"{pulled.fetched} earlier runs fetched from the package registry, {pulled.known} were there")


def _told(file: Path) -> str | None:
    """What the gate told; None if it did not come to that."""
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the note cannot be read: {error}", file=file) from error
