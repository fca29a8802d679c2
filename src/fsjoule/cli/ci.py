"""`fsjoule ci`: what jobs of a GitLab pipeline call."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from fsjoule.ci import job_of, merge_request_of, note_text, post_note
from fsjoule.cli.common import progress
from fsjoule.errors import ConfigError

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
    text = note_text(_told(file), job_of(os.environ, job_url))
    where = merge_request_of(os.environ)
    if isinstance(where, str):
        progress(f"{where}: the note is printed instead")
        typer.echo(text, nl=False)
        return
    progress(f"note on merge request !{where.number}: {post_note(where, text)}")


def _told(file: Path) -> str | None:
    """What the gate told; None if it did not come to that."""
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the note cannot be read: {error}", file=file) from error
