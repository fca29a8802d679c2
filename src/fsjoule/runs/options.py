"""The options of a bench, for pytest and for `fsjoule bench`. It imports nothing that help would wait for."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

DEFAULT_SUITE: Final = "quick"
DEFAULT_KERNEL: Final = "6.1"
DEFAULT_RESULTS: Final = "results"
UNTIL_DECIDED: Final = "auto"

PLACE_TAG: Final = "any place with these tags, instead of the one that LG_PLACE names (docs/lab.md)"
WAIT: Final = "wait at most so long for a place that others use: 90s, 30m, 2h (default: do not wait)"
PRIORITY: Final = "who waits with the highest priority gets a place first (default: 0)"


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


# By name: the type, the word for the value, and the help.
OPTIONS: Final[dict[str, tuple[Callable[[str], object], str, str]]] = {
    "--fs": (str, "NAME[,NAME]", "filesystems (default: the suite's)"),
    "--kernel": (
        *(str, "KERNEL[,KERNEL]"),
        f"kernels to boot: names, package files (.deb), build folders; several alternate (default: {DEFAULT_KERNEL})",
    ),
    "--suite": (str, "NAME", f"what to measure (default: {DEFAULT_SUITE})"),
    "--workload": (str, "NAME[,NAME]", "only these of the suite: read-16k, or all that read (default: all)"),
    "--repeat": (
        *(repetitions, "N|auto"),
        (
            "repetitions, each a boot; auto goes on until each figure of two filesystems is decided, or equal within "
            "5 %, for at most 12 (default: auto). With --resume it adds repetitions, also to a complete run"
        ),
    ),
    "--provision": (
        *(str, "root|scratch"),
        (
            "where the filesystem lives: the board's root partition, or freshly made on the scratch partition "
            "(default: the suite's, or scratch)"
        ),
    ),
    "--storage": (
        *(str, "NAME[,NAME]"),
        "storage devices of the board: card, or one of its environment file (default: the suite's)",
    ),
    "--size-factor": (float, "F", "factor for the sizes of published suites (default: the environment file's)"),
    "--results": (path, "DIR", f"where run folders go (default: {DEFAULT_RESULTS})"),
    "--resume": (
        *(path, "RUN"),
        "go on with a run (its folder, the start of its id, or last), with its plan and seed: only what is missing",
    ),
    "--seed": (int, "N", "seed for the order and all random choices (default: new, recorded)"),
    "--boards": (
        int,
        "N",
        "boards that boot at once: in guest time of virtual labs, or with --place-tag places of a pool (default: 1)",
    ),
    "--place-tag": (str, "KEY=VALUE[,KEY=VALUE]", PLACE_TAG),
    "--wait": (str, "TIME", WAIT),
    "--priority": (float, "N", PRIORITY),
    "--meter-program": (
        *(path, "FILE"),
        "program that is the virtual lab's meter: firmware built for the host (default: the simulator)",
    ),
}

# By name: argparse's settings, and the help.
FLAGS: Final[dict[str, tuple[dict[str, Any], str]]] = {
    "--full": (
        {"dest": "size_factor", "action": "store_const", "const": 1.0},
        "published sizes and repetitions",
    ),
    "--profile": (
        {"dest": "profiled", "action": "store_true"},
        "keep with each measurement what was executed in it (docs/explain.md); for a board in guest time",
    ),
    "--wide": ({"action": "store_true"}, "show all columns of the tables at the end, however wide"),
    "--allow-missing-energy": (
        {"action": "store_true"},
        "exit with 0 even if measurements have no energy (default: 4, a fault of the lab)",
    ),
}
