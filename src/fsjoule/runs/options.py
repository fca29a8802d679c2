"""What an option is, and the options of a bench: one field is one option, for pytest, `fsjoule bench` and `choose`.

A front end makes its own parameters from `rows`. Nothing is imported that help would wait for.
"""

from __future__ import annotations

import os
from argparse import ArgumentTypeError
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from inspect import get_annotations
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from fsjoule.lab.reservation import PlaceRequest

DEFAULT_SUITE: Final = "quick"
DEFAULT_KERNEL: Final = "6.1"
DEFAULT_RESULTS: Final = "results"
UNTIL_DECIDED: Final = "auto"

_KEY: Final = "option"
# Nearly all statements need two boots in guest time, and a pair has two.
_BOARDS: Final = 2


@dataclass(frozen=True, slots=True)
class Option:
    """How a field is declared on a command line.

    `name` is the option (`--place-tag`), `parse` makes its value of a word, `metavar` is the word in the help, which
    needs neither a capital nor a full stop. `settings` are a front end's own.
    """

    name: str
    metavar: str
    help: str
    parse: Callable[[str], object]
    argument: bool
    settings: Mapping[str, Any]


def option(
    metavar: str,
    text: str,
    default: Any = None,  # noqa: ANN401 - of the field's type
    *,
    name: str = "",
    parse: Callable[[str], object] = str,
    argument: bool = False,
    **settings: Any,  # noqa: ANN401 - of a front end
) -> Any:  # noqa: ANN401 - a dataclass's field, as `dataclasses.field` returns it
    """A dataclass's field that is an option. Its name is the field's, if none is given; `...` as default: required."""
    given = {} if default is ... else {"default": default}
    return field(**given, metadata={_KEY: Option(name, metavar, text, parse, argument, settings)})


def flag(text: str, *, name: str = "", **settings: Any) -> Any:  # noqa: ANN401 - as `option`
    """A dataclass's field that an option without a value makes true."""
    return option("", text, default=False, name=name, parse=bool, **settings)


def rows(of: type[Any]) -> Iterator[tuple[str, Option]]:
    """The options of a dataclass, by the names of their fields: its own first, then shared ones."""
    declared = {each.name: each.metadata.get(_KEY) for each in fields(of)}
    for owner in of.__mro__:
        for name in filter(declared.__contains__, get_annotations(owner)):
            row: Option = declared.pop(name) or option("", "").metadata[_KEY]
            yield name, replace(row, name=row.name or f"--{name.replace('_', '-')}")


def given_options(values: object, of: type[Any]) -> dict[str, object]:
    """The options of `of` that have another value than their default, by name."""
    defaults = {each.name: each.default for each in fields(of)}
    found = {row.name: (getattr(values, name), defaults[name]) for name, row in rows(of)}
    return {name: value for name, (value, default) in found.items() if value != default}


def boards_at_once() -> int:
    """How many boards in guest time boot at once if nobody says how many: none shares a CPU."""
    return min(_BOARDS, len(os.sched_getaffinity(0)))


def repetitions(text: str) -> int | str:
    """A number, or `auto`. Raises argparse's error."""
    try:
        return text if text == UNTIL_DECIDED else int(text)
    except ValueError as error:
        raise ArgumentTypeError(f"{text!r} is no number: for example 3, or {UNTIL_DECIDED}") from error


def path(text: str) -> Path:
    """A file or a folder. Raises argparse's error for an empty word, which would be the folder of the call."""
    if not text:
        raise ArgumentTypeError("it is empty: name a file or a folder")
    return Path(text)


@dataclass(frozen=True, kw_only=True)
class PlaceOptions:
    """Which place is taken, and how long it is awaited."""

    place_tag: str | None = option(
        "KEY=VALUE[,KEY=VALUE]", "any place with these tags, instead of the one that LG_PLACE names (docs/lab.md)"
    )
    wait: str | None = option(
        "TIME", "wait at most so long for a place that others use: 90s, 30m, 2h (default: do not wait)"
    )
    priority: float | None = option(
        "N", "who waits with the highest priority gets a place first (default: 0)", parse=float
    )

    def place_request(self) -> PlaceRequest:
        """The place, as the lab takes it. Raises ConfigError."""
        from fsjoule.lab import place_request  # noqa: PLC0415 - help must not wait for labgrid

        return place_request(self.place_tag, self.wait, self.priority)


@dataclass(frozen=True, kw_only=True)
class BenchOptions(PlaceOptions):
    """What a user asks of a run, and of its end. None: not given."""

    fs: str | None = option("NAME[,NAME]", "filesystems (default: the suite's)")
    age: str | None = option(
        "AGE[,AGE]", "ages at which each filesystem is measured: 0 (new), 30d, 1y (docs/suites.md; default: 0)"
    )
    age_profile: str | None = option("NAME", "what the device does in that time: a profile (docs/advice.md)")
    age_fill: int | None = option("PERCENT", "how full an aged filesystem is (default: 70)", parse=int)
    age_seed: int | None = option("N", "seed of the ages' random choices (default: 1)", parse=int)
    kernel: str | None = option(
        "KERNEL[,KERNEL]",
        f"kernels to boot: names, package files (.deb), build folders; several alternate (default: {DEFAULT_KERNEL})",
    )
    suite: str | None = option("NAME", f"what to measure (default: {DEFAULT_SUITE})")
    workload: str | None = option("NAME[,NAME]", "only these of the suite: read-16k, or all that read (default: all)")
    states: str | None = option(
        "'STATE STATE'", "of a suite of crash states only these, by their names: '17:0-3 12:-' (docs/crash.md)"
    )
    repeat: int | str | None = option(
        "N|auto",
        "repetitions, each a boot; auto goes on until each figure of two filesystems is decided, or equal within "
        "5 %, for at most 12 (default: auto). With --resume it adds repetitions, also to a complete run",
        parse=repetitions,
    )
    provision: str | None = option(
        "root|scratch",
        "where the filesystem lives: the board's root partition, or freshly made on the scratch partition "
        "(default: the suite's, or scratch)",
    )
    storage: str | None = option(
        "NAME[,NAME]",
        "storage devices of the board: card, or one of its environment file (default: the suite's)",
    )
    stack: str | None = option(
        "NAME[+NAME][,...]",
        "layers between filesystem and storage, lowest first: none, dm-crypt, dm-integrity+dm-crypt (docs/layers.md)",
    )
    size_factor: float | None = option(
        "F", "factor for the sizes of published suites (default: the environment file's)", parse=float
    )
    results: Path | None = option("DIR", f"where run folders go (default: {DEFAULT_RESULTS})", parse=path)
    resume: Path | None = option(
        "RUN",
        "go on with a run (its folder, the start of its id, or last), with its plan and seed: only what is missing",
        parse=path,
    )
    seed: int | None = option("N", "seed for the order and all random choices (default: new, recorded)", parse=int)
    boards: int | None = option(
        "N",
        "boards that boot at once: in guest time of virtual labs, or with --place-tag places of a pool (default: 1)",
        parse=int,
    )
    meter_program: Path | None = option(
        "FILE",
        "program that is the virtual lab's meter: firmware built for the host (default: the simulator)",
        parse=path,
    )
    full: bool = flag("published sizes and repetitions")
    profile: bool = flag(
        "keep with each measurement what was executed in it (docs/explain.md); for a board in guest time"
    )
    wide: bool = flag("show all columns of the tables at the end, however wide")
    allow_missing_energy: bool = flag(
        "exit with 0 even if measurements have no energy (default: 4, a fault of the lab)"
    )

    @property
    def factor(self) -> float | None:
        """The factor for the sizes of published suites; None: the environment file's."""
        return 1.0 if self.full else self.size_factor
