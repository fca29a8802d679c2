"""Finds the run, kernel or branch that a user names as a side of a comparison."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePath
from typing import Final

from sqlalchemy import Connection, select

from fsjoule.errors import ConfigError
from fsjoule.model.kernel import Kernel
from fsjoule.model.series import Where
from fsjoule.store.index.catalogue import Catalogue
from fsjoule.store.index.database import Index
from fsjoule.store.index.queries import run_conditions
from fsjoule.store.index.schema import measurements, run_kernels, runs
from fsjoule.store.selection import Selection, UnknownNameError, last_of, newest_kernel

_KINDS: Final = ("run", "kernel", "branch")


def resolve(index: Index, text: str) -> Selection:
    """The run (by id or folder), kernel (by release, version or choice) or branch that `text` names.

    A kernel's version may be short: 6.1 is the newest 6.1 kernel in the index. A prefix names the kind: `kernel:6.1`.
    Raises ConfigError, which lists the choices, if nothing or more than one kind has this name.
    """
    kind, colon, name = text.partition(":")
    if not colon or kind not in _KINDS:
        kind, name = "", text
    with index.reading() as connection:
        found = [
            selection
            for selection in (_run(connection, name), _kernel(connection, name), _branch(connection, name))
            if selection is not None and kind in ("", selection.kind)
        ]
        if not found:
            what = f"the index has no {kind or 'run, kernel or branch'} {name!r}"
            raise UnknownNameError(what, hint=_known(connection))
    if len(found) > 1:
        written = " or ".join(f"{selection.kind}:{name}" for selection in found)
        raise ConfigError(f"{name!r} is the name of more than one thing", hint=f"write {written}")
    return found[0]


def booted(index: Index, where: Where) -> list[tuple[str, Kernel]]:
    """The kernels of the runs of some ids or branches, with their labels in the runs."""
    with index.reading() as connection:
        kernels = Catalogue(connection).kernels
        statement = select(run_kernels.c.label, run_kernels.c.kernel).join(runs, run_kernels.c.run == runs.c.id)
        statement = statement.where(*run_conditions(where))
        return [(label, kernels[number]) for label, number in connection.execute(statement)]


def kernels_named(index: Index, names: Iterable[str]) -> tuple[Kernel, ...]:
    """All kernels that these names mean, as `resolve` reads them: 6.1 is every 6.1 kernel.

    Raises ConfigError, which lists the kernels, for a name without one.
    """
    matching: dict[Kernel, None] = {}
    with index.reading() as connection:
        for name in names:
            called_so = _called(connection, name)
            if not called_so:
                known = sorted(Catalogue(connection).kernels.values(), key=lambda kernel: kernel.order)
                hint = f"it has {last_of([kernel.label for kernel in known])}"
                raise ConfigError(f"the index has no kernel {name!r}", hint=hint)
            matching |= dict.fromkeys(called_so)
    return tuple(matching)


def _run(connection: Connection, name: str) -> Selection | None:
    # A folder's name ends in the id of its run.
    ids = {name, PurePath(name).name.rpartition("-")[2]}
    statement = select(runs.c.run_id).where(runs.c.run_id.in_(ids))
    matching = sorted(connection.execute(statement).scalars(), key=lambda run_id: run_id != name)
    return Selection("run", f"run {matching[0]}", Where(runs=(matching[0],))) if matching else None


def _kernel(connection: Connection, name: str) -> Selection | None:
    found = _called(connection, name)
    return newest_kernel(found, name, Where()) if found else None


def _called(connection: Connection, name: str) -> set[Kernel]:
    """The measured kernels of this name."""
    catalogue = Catalogue(connection)
    statement = select(run_kernels.c.kernel).where(run_kernels.c.label == name).distinct()
    numbers = set(connection.execute(statement).scalars())
    named = {number for number, kernel in catalogue.kernels.items() if kernel.is_called(name)}
    return {catalogue.kernels[number] for number in numbers | named if _is_measured(connection, number)}


def _is_measured(connection: Connection, kernel: int) -> bool:
    statement = select(measurements.c.run).where(measurements.c.kernel == kernel).limit(1)
    return connection.execute(statement).first() is not None


def _branch(connection: Connection, name: str) -> Selection | None:
    statement = select(runs.c.branch).where(runs.c.branch == name).limit(1)
    exists = connection.execute(statement).first() is not None
    return Selection("branch", f"branch {name}", Where(branches=(name,))) if exists else None


def _known(connection: Connection) -> str:
    kernels = sorted(Catalogue(connection).kernels.values(), key=lambda kernel: kernel.order)
    branches = connection.execute(
        select(runs.c.branch).where(runs.c.branch.is_not(None)).distinct().order_by(runs.c.branch)
    )
    return (
        f"it has the kernels {last_of([kernel.label for kernel in kernels])} and the branches "
        f"{last_of([str(branch) for branch in branches.scalars()])}; is the run imported? fsjoule index import FOLDER"
    )
