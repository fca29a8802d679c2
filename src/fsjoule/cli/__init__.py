"""The command line. Thin: it reads arguments, calls one function, shows what came back."""

from __future__ import annotations

import logging
import sys

import typer

from fsjoule.cli import image, lab, meter, results
from fsjoule.cli.common import err
from fsjoule.errors import FsjouleError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Which filesystem should this board run, and did the last kernel make it slower or hungrier?",
    epilog="Example: pytest tests/bench --lg-env env/virtual.yaml --fs ext4,btrfs, then: fsjoule show results/<run>",
)
app.command()(results.version)
app.command()(results.show)
app.command(name="report")(results.report_command)
app.command()(results.choices)
app.command()(results.schema)
app.add_typer(image.app, name="image")
app.add_typer(lab.app, name="lab")
app.add_typer(meter.app, name="meter")


class _Warnings(logging.Handler):
    """Warnings of the library (a silent meter, a second reader) are said at once, beside the output."""

    def emit(self, record: logging.LogRecord) -> None:
        err.print("warning:", style="yellow", end=" ")
        err.print(record.getMessage(), markup=False, highlight=False, soft_wrap=True)


def main() -> None:
    """Run the command line; an error of ours ends with its message and exit code, without a traceback."""
    logging.getLogger("fsjoule").addHandler(_Warnings(logging.WARNING))
    try:
        app()
    except FsjouleError as error:
        err.print("error:", style="red", end=" ")
        err.print(str(error), markup=False, highlight=False, soft_wrap=True)
        sys.exit(error.exit_code)
