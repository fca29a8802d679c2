"""A window by function. What compilers make of one function has many names, which change from build to build.

There are clones (`foo.isra.0`, `foo.constprop.0`) and parts that were split off (`foo.part.0`, `foo.cold`): all of them
are one function here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from fsjoule.model import Profile, Symbols
from fsjoule.verdicts.explanation.subsystems import KERNEL, PROGRAMS, subsystems

_ADDED: Final = re.compile(r"\.(?:isra|constprop|part|cold|llvm|lto_priv|\d+)(?=\.|$)")
_SPLIT_OFF: Final = re.compile(r"\.(?:part|cold)(?=\.|$)")


@dataclass(frozen=True, slots=True, order=True)
class Function:
    """A function by its name, without what compilers add, and its module, empty for the kernel itself."""

    name: str
    module: str = ""


# Code of a page that is of no known program: what the kernel itself maps into them, for one.
_UNKNOWN: Final = "other code of programs"
_NAMELESS: Final = Function("without a name")


@dataclass(frozen=True, slots=True)
class Executed:
    """A window: the time of each function in ns, and the whole window's.

    `names` are those that the kernel has for each function that it has, whether executed or not, and `places` the
    folders of the kernel's source that they are from. All times together are `busy_ns` and that of what was repeated.
    """

    times: Mapping[Function, int]
    names: Mapping[Function, tuple[str, ...]]
    places: Mapping[Function, str]
    window_ns: int
    busy_ns: int


def executed(profile: Profile, symbols: Symbols, programs: Mapping[int, str] | None = None) -> Executed:
    """The profile by function; `programs` are known by their pages, and each is one function."""
    functions = [Function(base_name(name), module) for name, module in zip(symbols.names, symbols.modules, strict=True)]
    names: dict[Function, set[str]] = {}
    for function, name in zip(functions, symbols.names, strict=True):
        names.setdefault(function, set()).add(name)
    in_kernel = profile.pages == 0
    at = np.searchsorted(symbols.addresses, profile.addresses[in_kernel], side="right") - 1
    # Code below the first symbol is counted last: at -1.
    counts = np.zeros(len(functions) + 1, np.int64)
    np.add.at(counts, at, profile.executed[in_kernel].astype(np.int64))
    times: dict[Function, int] = {}
    places: dict[Function, str] = {}
    for function, place, count in zip(
        [*functions, _NAMELESS], [*subsystems(symbols), KERNEL], counts.tolist(), strict=True
    ):
        if count:
            times[function] = times.get(function, 0) + count * profile.instruction_ns
            places.setdefault(function, place)
    pages, of = np.unique(profile.pages[~in_kernel], return_inverse=True)
    sums = np.zeros(len(pages), np.int64)
    np.add.at(sums, of, profile.executed[~in_kernel].astype(np.int64))
    for page, count in zip(pages.tolist(), sums.tolist(), strict=True):
        if count:
            program = Function((programs or {}).get(page, _UNKNOWN), PROGRAMS)
            times[program] = times.get(program, 0) + count * profile.instruction_ns
            places[program] = PROGRAMS
    sorted_names = {function: tuple(sorted(found)) for function, found in names.items()}
    return Executed(times, sorted_names, places, profile.window_ns, profile.busy_ns)


def base_name(name: str) -> str:
    """`foo.isra.0.cold` -> `foo`, and `foo_noprof`, as the kernel itself calls allocating functions since 6.10."""
    return _ADDED.sub("", name).removesuffix("_noprof") or name


def is_whole(name: str) -> bool:
    """Whether a name is that of a function or a clone of it, not of a part that was split off."""
    return _SPLIT_OFF.search(name) is None
