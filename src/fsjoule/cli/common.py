"""What all commands share: where output goes, and how it is asked for as JSON."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.console import Console

out = Console()
err = Console(stderr=True)

Json = Annotated[bool, typer.Option("--json", help="Machine-readable output.")]


def progress(line: str) -> None:
    """Say what is going on, beside the output."""
    err.print(line, markup=False, highlight=False, soft_wrap=True)


def print_json(document: object) -> None:
    """Print a JSON document."""
    print(json.dumps(document, indent=2, default=str))  # noqa: T201 - rich would wrap it
