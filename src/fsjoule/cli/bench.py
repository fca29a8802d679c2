"""`fsjoule bench`: the main job, which pytest runs without a word of its own."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from textwrap import indent, wrap
from typing import Final

import typer

from fsjoule.errors import ConfigError
from fsjoule.host.extras import need
from fsjoule.host.paths import main_job_folder, project_dir
from fsjoule.runs.options import BenchOptions, boards_at_once, rows

_INDENT: Final = " " * 6
_ENVIRONMENT: Final = "--lg-env"
_OWN: Final = (
    (
        f"{_ENVIRONMENT} FILE",
        "the board: an environment file of labgrid's (default: LG_ENV, or the virtual board in guest time)",
    ),
    ("-k WORDS", "only measurements whose names match, for example -k 'ext4 and read'"),
    ("--collect-only", "list the measurements, without a board"),
)
_ALL: Final[tuple[tuple[str, str], ...]] = (
    *_OWN,
    *((f"{row.name} {row.metavar}".rstrip(), row.help) for _, row in rows(BenchOptions)),
)
# Options without a value; the next word is not theirs. The last ones are pytest's.
_ALONE: Final = {
    *(row.name for _, row in rows(BenchOptions) if not row.metavar),
    "--collect-only",
    "--clean-alluredir",
    "-q",
    "-s",
    "-v",
    "-x",
}
# Neither plugins nor settings of the folder that the user happens to be in.
_PYTEST: Final = (
    *("-c", os.devnull, "--noconftest", "--import-mode=importlib", "--disable-plugin-autoload", "--tb=short"),
    *("-p", "no:cacheprovider", "-p", "labgrid.pytestplugin", "-p", "fsjoule.pytest_plugin"),
)

# Nor the user's settings for all of his tests.
_WITHOUT: Final = ("/usr/bin/env", "-u", "PYTEST_ADDOPTS", "-u", "PYTEST_PLUGINS")

_SUMMARY: Final = "Measure filesystems on a board: throughput, energy and more of each, in a run folder with a report."
_MORE: Final = """\
Without options the virtual board in guest time is measured, from any folder.

Exit codes: 0 all valid, 1 a measurement is invalid, 2 wrong input, 4 the lab failed.
"""

app = typer.Typer()


@app.command(
    "bench",
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": ["-h", "--help"]},
    short_help=_SUMMARY,
    help=f"Example: fsjoule bench --fs ext4,btrfs\n\n{_SUMMARY} {_MORE}",
    epilog="\b\n" + "\n".join(f"  {name}\n{indent(chr(10).join(wrap(told, 72)), _INDENT)}" for name, told in _ALL),
)
def bench(context: typer.Context) -> None:
    """Become pytest with the main job. Raises ConfigError for a word that is no option's."""
    for before, word in zip(("", *context.args), context.args, strict=False):
        if word.startswith("-") or (before.startswith("-") and "=" not in before and before not in _ALONE):
            continue
        # Neither an option nor its value: pytest would take it for a folder.
        raise ConfigError(f"fsjoule bench: {word!r} is not an option", hint=_meant(word))
    sys.stdout.flush()
    program = bench_program(context.args)
    # The same process: signals, exit code and terminal are pytest's.
    os.execv(program[0], program)  # noqa: S606


def bench_program(words: Sequence[str]) -> list[str]:
    """The program that is `fsjoule bench` with these options, and its arguments."""
    names = {word.partition("=")[0] for word in words}
    environment: list[str] = []
    if _ENVIRONMENT not in names and not os.environ.get("LG_ENV"):
        environment += [_ENVIRONMENT, str(project_dir() / "env" / "deterministic.yaml")]
        # A coordinator that is given has a lab that is up, with one board at the place.
        if "--lg-coordinator" not in names and not os.environ.get("LG_COORDINATOR"):
            environment += ["--boards", str(boards_at_once())]
    if any(word.startswith("--alluredir") for word in words):
        need("allure", "allure_pytest")
    allure = ("-p", "allure_pytest") if any(word.startswith("--alluredir") for word in words) else ()
    folder = main_job_folder()
    argv = [*_PYTEST, *allure, "--rootdir", str(folder.parents[1]), str(folder), *environment]
    # What follows the last option is what was typed.
    return [*_WITHOUT, sys.executable, "-P", "-m", "pytest", *argv, "--fsjoule-bench", *words]


def _meant(word: str) -> str:
    from fsjoule.filesystems import named_filesystems

    if word.endswith((".yaml", ".yml")):
        return f"{_ENVIRONMENT} {word}"
    try:
        named_filesystems(word)
    except ConfigError:
        return "fsjoule bench --help lists the options"
    return f"--fs {word}"
