"""`fsjoule ci`: commands for the jobs of a GitLab pipeline."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Annotated, Final

import typer

from fsjoule.cli.common import output_file, output_folder, progress, write_text
from fsjoule.errors import ConfigError
from fsjoule.model.labels import counted
from fsjoule.store.index.defaults import VARIABLE

_MATRIX: Final = Path(".ci/matrix.toml")
_MOST_RUNS: Final = 120
_PREFIX: Final = "fsjoule"

app = typer.Typer(no_args_is_help=True, help="Report to GitLab from CI jobs, and keep runs there (docs/ci.md).")


@app.command("note")
def note(
    file: Annotated[Path, typer.Argument(help="Output of `fsjoule gate --markdown FILE`; may be missing.")],
    job_url: Annotated[str, typer.Option(help="The job that measured (default: the file `job-url` beside FILE).")] = "",
    name: Annotated[str, typer.Option(help="Name of a further note, for example a board's place.")] = "",
) -> None:
    """Post the note on the merge request, or update the existing one.

    The token comes from FSJOULE_GITLAB_TOKEN. Without a token or a merge request the note is printed instead.
    Exit code 7: GitLab cannot be reached, or refuses.

    Example: fsjoule ci note note.md
    """
    from fsjoule.ci.gitlab.notes import ANNOTATIONS, job_of, merge_request_of, note_text, post_note
    from fsjoule.ci.gitlab.server import text_of_a_job

    links = text_of_a_job(file.with_name(ANNOTATIONS))
    text = note_text(text_of_a_job(file), job_of(os.environ, job_url, file), links)
    where = merge_request_of(os.environ)
    if isinstance(where, str):
        progress(f"{where}: the note is printed instead")
        typer.echo(text, nl=False)
        return
    progress(f"note on merge request !{where.number}: {post_note(where, text, name=name)}")


@app.command("issue")
def issue(
    file: Annotated[Path, typer.Argument(help="Output of `fsjoule bisect --markdown FILE`; may be missing.")],
    job_url: Annotated[str, typer.Option(help="The job that bisected (default: the file `job-url` beside FILE).")] = "",
) -> None:
    """Open an issue with the answer of a bisection, or update the one about the same question.

    The token comes from FSJOULE_GITLAB_TOKEN. Without a token the issue is printed instead. A closed issue stays as it
    is. Exit code 7: GitLab cannot be reached, or refuses.

    Example: fsjoule ci issue bisect.md
    """
    from fsjoule.ci.gitlab.notes import issue_of, issues_of, job_of, post_issue
    from fsjoule.ci.gitlab.server import text_of_a_job

    told = text_of_a_job(file)
    if told is None:
        progress(f"there is no {file}: nothing was bisected")
        return
    made = issue_of(told, job_of(os.environ, job_url, file))
    where = issues_of(os.environ)
    if isinstance(where, str):
        progress(f"{where}: the issue is printed instead")
        typer.echo(f"{made.title}\n\n{made.text}", nl=False)
        return
    progress(f"issue {post_issue(where, made)}")


@app.command("confirmed")
def confirmed(
    lg_env: Annotated[Path, typer.Option("--lg-env", metavar="FILE", help="The board's environment file.")],
    tree: Annotated[Path, typer.Option("--tree", metavar="PATH", help="The kernel's git repository.")],
    states: Annotated[Path, typer.Option("--states", metavar="DIR", help="Folder of bisections, one folder each.")],
    kept: Annotated[Path, typer.Option("--confirmations", metavar="DIR", help="Folder of confirmations.")],
    index: Annotated[str, typer.Option("--index", metavar="URL", envvar=VARIABLE, help="The index of the trend.")],
) -> None:
    """Print the arguments with which `fsjoule bisect` searches the newest loss that `trend --confirm` has confirmed.

    Nothing is printed if there is none, or all of them are answered.

    Example: fsjoule ci confirmed --lg-env env/deterministic.yaml --tree . --states bisections
    """
    from fsjoule.lab import read_environment
    from fsjoule.runs.bisect.confirmed import next_question

    found = next_question(index, read_environment(lg_env), tree, kept=kept, states=states)
    if found:
        typer.echo(shlex.join(found))
    else:
        progress("no confirmed loss is without an answer")


@app.command("verdict")
def verdict(
    results: Annotated[Path, typer.Argument(help="The gate's --results folder.")],
    output: Annotated[Path, typer.Option(callback=output_folder, help="Folder for the reports.")] = Path(),
) -> None:
    """Write the newest gate's verdict as a job's reports: metrics.txt (OpenMetrics) and annotations.json (links).

    Example: fsjoule ci verdict results --output "$CI_PROJECT_DIR"
    """
    from fsjoule.ci.gitlab.notes import ANNOTATIONS, METRICS, annotations_text, metrics_text, newest_gate

    found = newest_gate(results)
    if found is None:
        progress(f"no gate has measured anything in {results}")
        return
    folder, gated = found
    texts = {METRICS: metrics_text(gated), ANNOTATIONS: annotations_text(folder, os.environ)}
    for name, text in texts.items():
        if text is not None:
            write_text(output / name, text)


@app.command("matrix")
def matrix(
    output: Annotated[Path, typer.Option(callback=output_file, help="File to write the child pipeline to.")],
    file: Annotated[
        Path | None, typer.Option("--matrix", help="What to measure (default: the project's .ci/matrix.toml).")
    ] = None,
    inputs: Annotated[
        list[str] | None,
        typer.Option("--input", metavar="NAME=VALUE", help="An input of the component's; may be repeated."),
    ] = None,
) -> None:
    """Write the child pipeline: one job per board, kernel and filesystem. Boards without a place are left out.

    Example: fsjoule ci matrix --output matrix.yml --input tag=fsjoule-virtual
    """
    from fsjoule.ci.gitlab.child_pipeline import child_pipeline, matrix_jobs, read_matrix
    from fsjoule.host.paths import project_dir

    ours = project_dir()
    project = Path(os.environ.get("CI_PROJECT_DIR", ours))
    if file is None:
        # A kernel's own repository may have no matrix.
        file = next((at for at in (project / _MATRIX, ours / _MATRIX) if at.exists()), ours / _MATRIX)
    wanted = read_matrix(file)
    jobs = matrix_jobs(wanted, os.environ, ours, file=file)
    given = {"prefix": _PREFIX}
    for word in inputs or []:
        name, equals, value = word.partition("=")
        if not equals:
            raise ConfigError(f"--input {word!r} is not NAME=VALUE", hint="for example --input tag=fsjoule-virtual")
        given[name] = value
    text = child_pipeline(ours, given, jobs, wanted)
    write_text(output, text)
    progress(f"{counted(len(jobs), 'job')}: {', '.join(job.name for job in jobs)}")


@app.command("push")
def push(
    runs: Annotated[list[Path] | None, typer.Argument(help="Run folders, or folders that contain some.")] = None,
) -> None:
    """Keep run folders in the project's package registry, as history for later reports. Outside GitLab it does nothing.

    Exit code 7: GitLab cannot be reached, or refuses.

    Example: fsjoule ci push results
    """
    from fsjoule.ci.gitlab.kept_runs import push_runs, registry_of

    where = registry_of(os.environ)
    if isinstance(where, str):
        progress(f"{where}: no runs are kept")
        return
    pushed = push_runs(where, runs or [Path("results")])
    for problem in pushed.problems:
        progress(f"left out: {problem}")
    progress(f"{counted(pushed.uploaded, 'run')} kept in the package registry, {pushed.known} already there")


@app.command("pull")
def pull(
    folder: Annotated[Path, typer.Argument(help="Where the run folders go; existing ones are not fetched again.")],
    most: Annotated[int, typer.Option("--runs", min=1, help="At most this many runs, newest first.")] = _MOST_RUNS,
) -> None:
    """Fetch the run folders that earlier pipelines have kept. Outside GitLab it makes an empty folder.

    Exit code 7: GitLab cannot be reached, or refuses.

    Example: fsjoule ci pull history, then: fsjoule report build results --history history
    """
    from fsjoule.ci.gitlab.kept_runs import pull_runs, registry_of

    where = registry_of(os.environ)
    if isinstance(where, str):
        folder.mkdir(parents=True, exist_ok=True)
        progress(f"{where}: no earlier runs are fetched")
        return
    pulled = pull_runs(where, folder, most=most)
    for problem in pulled.problems:
        progress(f"left out: {problem}")
    progress(
        f"{counted(pulled.fetched, 'earlier run')} fetched from the package registry, {pulled.known} already there"
    )
