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
# Where a processor with nothing to do is, or is found when an interrupt wakes it. A sample there is no work.
_IDLE: Final = re.compile(
    r"do_idle|cpu_startup_entry|default_idle(_call)?|arch_cpu_idle|cpu_(\w+_)?do_idle|cpuidle_(enter(_state)?|idle_call)"
    r"|acpi_(idle|safe)_\w+|(pv_)?native_safe_halt|intel_idle\w*|mwait_idle|psci_enter_idle_state"
    r"|(imx6|omap)\w*_enter_(wait|idle)\w*"
)


@dataclass(frozen=True, slots=True)
class Executed:
    """A window: the time of each function in ns, and the whole window's.

    `names` are those that the kernel has for each function that it has, whether executed or not, and `places` the
    folders of the kernel's source that they are from. All times together are `busy_ns` and that of what was repeated.
    `period_ns` is the time that a sample stands for, 0 where every instruction was counted.
    """

    times: Mapping[Function, int]
    names: Mapping[Function, tuple[str, ...]]
    places: Mapping[Function, str]
    window_ns: int
    busy_ns: int
    period_ns: int = 0


def executed(profile: Profile, symbols: Symbols, programs: Mapping[int, str] | None = None) -> Executed:
    """The profile by function; `programs` are known by their pages, and each is one function.

    Samples of a processor that had nothing to do are left out.
    """
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
    if profile.sampled:
        times = {function: time_ns for function, time_ns in times.items() if not _IDLE.fullmatch(function.name)}
    programs = {**(programs or {}), **profile.programs}
    pages, of = np.unique(profile.pages[~in_kernel], return_inverse=True)
    sums = np.zeros(len(pages), np.int64)
    np.add.at(sums, of, profile.executed[~in_kernel].astype(np.int64))
    for page, count in zip(pages.tolist(), sums.tolist(), strict=True):
        if count:
            program = Function(programs.get(page, _UNKNOWN), PROGRAMS)
            times[program] = times.get(program, 0) + count * profile.instruction_ns
            places[program] = PROGRAMS
    sorted_names = {function: tuple(sorted(found)) for function, found in names.items()}
    busy_ns = sum(times.values()) if profile.sampled else profile.busy_ns
    period_ns = profile.instruction_ns if profile.sampled else 0
    return Executed(times, sorted_names, places, profile.window_ns, busy_ns, period_ns)


def base_name(name: str) -> str:
    """`foo.isra.0.cold` -> `foo`, and `foo_noprof`, as the kernel itself calls allocating functions since 6.10."""
    return _ADDED.sub("", name).removesuffix("_noprof") or name


def is_whole(name: str) -> bool:
    """Whether a name is that of a function or a clone of it, not of a part that was split off."""
    return _SPLIT_OFF.search(name) is None
