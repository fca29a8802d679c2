"""The options of a bench in pytest's parser, where they collide with nobody's.

Each is `--fsjoule-NAME`, and `--NAME` too as long as no other plugin and no conftest.py has an option of that name.
Which plugins there are is known only when pytest parses, so the short name is translated then.
"""

from __future__ import annotations

import os
import sys
from argparse import SUPPRESS
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final, cast

import pytest

from fsjoule.host.paths import main_job_folder
from fsjoule.pytest_plugin.exit_code import tell_usage
from fsjoule.runs.options import BenchOptions, rows

_OWN: Final = "fsjoule_"
_LONG: Final = "--fsjoule-"
# What follows it on the command line is what was typed after `fsjoule bench`.
COMMAND: Final = f"{_LONG}bench"


def add_options(parser: pytest.Parser) -> None:
    group = parser.getgroup(
        "fsjoule",
        "fsjoule: throughput and energy of filesystems on a board (with --lg-env); --NAME is short for --fsjoule-NAME "
        "where no other plugin has it",
    )
    for _, row in rows(BenchOptions):
        value = {"type": row.parse, "metavar": row.metavar} if row.metavar else {"action": "store_true"}
        group.addoption(_long(row.name), **value, help=row.help.replace("%", "%%"))  # argparse formats it
    group.addoption(COMMAND, action="store_true", help=SUPPRESS)
    _translate(parser)


def options_of(config: pytest.Config) -> BenchOptions:
    """The values of the bench's options."""
    return BenchOptions(**{name: getattr(config.option, _OWN + name) for name, _ in rows(BenchOptions)})


def asks_for_bench(config: pytest.Config) -> bool:
    """Whether the command line is `fsjoule bench`, or names the folder of the main job."""
    return _ask_for_bench(config.invocation_params.args)


def typed_bench(config: pytest.Config) -> bool:
    """Whether `fsjoule bench` was typed."""
    return COMMAND in config.invocation_params.args


def command_of(config: pytest.Config) -> tuple[str, ...]:
    """The command that was typed."""
    words = tuple(map(str, config.invocation_params.args))
    return ("fsjoule", "bench", *words[words.index(COMMAND) + 1 :]) if COMMAND in words else ("pytest", *words)


def _ask_for_bench(words: Iterable[object]) -> bool:
    return any(str(word) == COMMAND or _is_main_job(str(word).partition("::")[0]) for word in words)


def _is_main_job(word: str) -> bool:
    return not word.startswith("-") and Path(os.path.realpath(word)).is_relative_to(main_job_folder())


def _long(name: str) -> str:
    return _LONG + name.removeprefix("--")


def _translate(parser: pytest.Parser) -> None:
    """Have the parser understand short names that are free, and end a bench with the exit code of wrong input.

    pytest has no hook for either.
    """
    short = {row.name: _long(row.name) for _, row in rows(BenchOptions)}

    def translating(parse: Callable[..., Any]) -> Callable[..., Any]:
        def translated_parse(args: Sequence[Any], *more: Any, **named: Any) -> Any:  # noqa: ANN401 - pytest's own
            words = _translated(list(map(str, args)), {name: short[name] for name in short.keys() - _taken(parser)})
            try:
                return parse(words, *more, **named)
            except pytest.UsageError as error:
                if not _ask_for_bench(words):
                    raise
                sys.exit(tell_usage(error))

        return translated_parse

    changed = cast("Any", parser)
    for name in ("parse", "parse_known_args", "parse_known_and_unknown_args"):
        setattr(changed, name, translating(getattr(changed, name)))


def _taken(parser: pytest.Parser) -> set[str]:
    """The names of all options that pytest knows."""
    private = cast("Any", parser)
    groups = {id(group): group for group in (*private._groups, private._anonymous)}  # noqa: SLF001 - it tells them nowhere else
    return {name for group in groups.values() for option in group.options for name in option.names()}


def _translated(words: list[str], free: dict[str, str]) -> list[str]:
    end = words.index("--") if "--" in words else len(words)
    return [
        free.get(name, name) + equals + value for name, equals, value in (w.partition("=") for w in words[:end])
    ] + (words[end:])
