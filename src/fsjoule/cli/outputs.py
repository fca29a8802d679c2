"""The formats in which a command shows its verdict: one is printed, any number go to files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from fsjoule.cli.common import check_file, out, progress, write_text
from fsjoule.errors import ConfigError, FsjouleError

if TYPE_CHECKING:
    from fsjoule.report.renderers import VerdictView

_TEXT: Final = "text"
_OWN: Final = "fsjoule"

Format = Annotated[
    list[str] | None,
    typer.Option(
        "--format",
        metavar="NAME[=FILE]",
        help="Print the answer as text, markdown, json, page, junit, github or mail, or a package's format, or write "
        "it to FILE; "
        "may be repeated.",
    ),
]


@dataclass(frozen=True, slots=True)
class Outputs:
    """The format that is printed, and the files with the names of their formats."""

    printed: str
    files: tuple[tuple[str, Path], ...]

    def has(self, name: str) -> bool:
        return name == self.printed or any(name == each for each, _ in self.files)

    @property
    def prints_text(self) -> bool:
        return self.printed == _TEXT

    def show(self, verdict: VerdictView, *, answers: bool = False) -> None:
        """Print and write a verdict. Raises ConfigError, StorageError.

        If the exit code `answers`, it stands whatever cannot be written: that is a warning.
        """
        if self.prints_text:
            verdict.print(out)
        elif (text := self._rendered(self.printed, verdict, Path.cwd() / "-", answers=answers)) is not None:
            typer.echo(text, nl=False)
        self.write(verdict, answers=answers)

    def write(self, verdict: VerdictView, *, answers: bool = False) -> None:
        """Write the files only."""
        for name, file in self.files:
            text = self._rendered(name, verdict, file, answers=answers)
            if text is None:
                continue
            try:
                write_text(file, text)
            except FsjouleError as error:
                if not answers:
                    raise
                progress(f"warning: {error.what}")
            else:
                progress(f"{name}  {file}")

    def _rendered(self, name: str, verdict: VerdictView, file: Path, *, answers: bool) -> str | None:
        """The text of a format. A failure of a package's renderer names the package, and loses no answer."""
        from fsjoule.report.renderers import RENDERERS

        owner = RENDERERS.owner(name)
        try:
            return RENDERERS[name].render(verdict, file)
        except Exception as error:
            if owner == _OWN:
                raise
            what = f"format {name} of package {owner} failed: {type(error).__name__}: {error}"
            if not answers:
                raise ConfigError(what, hint="upgrade or uninstall it; --format json has the whole answer") from error
            progress(f"warning: {what}")
            return None


def outputs(
    formats: list[str] | None,
    *,
    printed: Mapping[str, bool] | None = None,
    files: Mapping[str, Path | None] | None = None,
) -> Outputs:
    """What `--format` and a command's further options ask for, before any work. Raises ConfigError.

    `printed` are formats with the options that print them (`--json`), `files` those with an option's file (`--page`).
    """
    from fsjoule.report.renderers import RENDERERS

    here = [name for name, given in (printed or {}).items() if given]
    written = [(name, file) for name, file in (files or {}).items() if file is not None]
    for each in formats or ():
        name, equals, file = each.partition("=")
        if name not in RENDERERS:
            raise ConfigError.unknown("format", name, RENDERERS)
        if not equals:
            here.append(name)
            continue
        if not file:
            raise ConfigError(f"--format {each}: no file is named", hint=f"--format {name}={name}.txt, or {name} alone")
        written.append((name, Path(file)))
    if len(set(here)) > 1:
        raise ConfigError(
            f"{' and '.join(here)} are both to be printed", hint="write all but one to files: --format NAME=FILE"
        )
    for name, file in written:
        check_file(file, f"--format {name}")
    return Outputs(here[0] if here else _TEXT, tuple(written))
