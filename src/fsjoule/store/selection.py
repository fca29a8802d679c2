"""A side of a comparison by its name: what names mean, whatever the runs were read from. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from fsjoule.errors import ConfigError
from fsjoule.model.kernel import Kernel
from fsjoule.model.series import Series, Where

_SHOWN: Final = 8
_PROPOSED: Final = 20  # names in a hint


class UnknownNameError(ConfigError):
    """The index has nothing of this name, or not yet."""


@dataclass(frozen=True, slots=True)
class Selection:
    """One side of a comparison: its kind, its title, and its measurements."""

    kind: str
    title: str
    where: Where


def newest_kernel(kernels: Collection[Kernel], name: str, within: Where) -> Selection:
    """The newest of the kernels of this name, and its measurements within the runs and branches."""
    newest = max(kernels, key=lambda kernel: kernel.order)
    several = f", the newest of {len(kernels)} that are {name}" if len(kernels) > 1 else ""
    where = Where(kernels=(newest,), runs=within.runs, branches=within.branches)
    return Selection("kernel", f"kernel {newest.label}{several}", where)


def kernel_within(name: str, within: Selection, booted: Collection[tuple[str, Kernel]]) -> Selection:
    """The kernel of this name within a run or a branch, and its measurements there; a prefix `kernel:` is allowed.

    `booted` are the kernels there with their labels. A run's label comes first: with kernels 6.1 and 6.1.9-mine in one
    run, 6.1 is the first. The newest of several kernels counts. Raises ConfigError, which lists the kernels.
    """
    short = name.removeprefix("kernel:")
    labelled = {kernel for label, kernel in booted if label == short}
    kernels = labelled or {kernel for _, kernel in booted if kernel.is_called(short)}
    if not kernels:
        known = sorted({(kernel.order, label, kernel.label) for label, kernel in booted})
        has = last_of([label if label == full else f"{label}: {full}" for _, label, full in known])
        raise ConfigError(f"{within.title} has no kernel {short!r}", hint=f"it has {has}")
    return newest_kernel(kernels, short, within.where)


def check_names(where: Where, title: str, series: Iterable[Series], branches: Iterable[str | None]) -> None:
    """Raises ConfigError if `where` names a board, filesystem, workload, suite, branch or series that is not there.

    Where there are no series, nothing is refused. `title` is what the message calls the place.
    """
    known = list(series)
    keys = [one.series for one in known]
    unknown = [name for name in where.filesystems if not any(key.has_filesystem(name) for key in keys)]
    for what, names, choices in (
        ("board", where.boards, {key.board for key in keys}),
        ("filesystem", unknown, {key.filesystem_title for key in keys}),
        ("workload", where.workloads, {key.workload for key in keys}),
        ("suite", where.suites, {key.suite for key in keys}),
        ("branch", where.branches, {branch for branch in branches if branch}),
    ):
        for name in names:
            if keys and name not in choices:
                near = difflib.get_close_matches(name, choices, n=3)
                meant = f"did you mean {' or '.join(near)}? " if near else ""
                few = sorted(choices)[:_PROPOSED]
                has = f"it has {', '.join(few) or 'none'}{', ...' if len(choices) > len(few) else ''}"
                raise ConfigError(f"{title} has no {what} {name!r}", hint=f"{meant}{has}")
    for start in where.series:
        if keys and not any(one.key.startswith(start) for one in known):
            raise ConfigError(f"{title} has no series {start!r}", hint="list them with: fsjoule index series")


def last_of(names: list[str]) -> str:
    """The last few of these names, and how many more there are."""
    more = f" and {len(names) - _SHOWN} older or other ones" if len(names) > _SHOWN else ""
    return (", ".join(names[-_SHOWN:]) or "(none)") + more
