"""Suites as TOML files: fsjoule's own in `definitions/`, those of packages, and the user's."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Final, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fsjoule.errors import ConfigError
from fsjoule.host.toml_lines import line_of, only_table, wrong_value
from fsjoule.model import KIB, MIB, FioWorkload, IoPattern, Provision, TimedKind, TimedWorkload, Workload
from fsjoule.model.operation import FlakeyModel, Hazard
from fsjoule.model.workload import FlakeyWorkload, PowerLossWorkload
from fsjoule.suites.suite import OUR_FILESYSTEMS, Suite

SUFFIX: Final = ".toml"
_HINT: Final = "docs/suites.md explains every field of a suite"
_TABLE: Final = "suite"
_WORKLOADS: Final = "workload"
# It names folders and series.
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9.-]{0,39}", re.ASCII)

# Strict: neither `true` nor "1" is a number.
_Count = Annotated[int, Field(strict=True, ge=1, le=1 << 20)]
_Size = Annotated[float, Field(strict=True, gt=0, le=1 << 30)]
_Seconds = Annotated[float, Field(strict=True, gt=0, le=24 * 3600)]
_Flag = Annotated[bool, Field(strict=True)]


class _TomlTable(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _SuiteTable(_TomlTable):
    title: Annotated[str, Field(min_length=1)]
    filesystems: Annotated[tuple[str, ...], Field(min_length=1)] = OUR_FILESYSTEMS
    repeat: _Count = 3
    provision: Provision | None = None
    remarks: tuple[str, ...] = ()
    workload: Annotated[list[dict[str, Any]], Field(min_length=1)]


class _FioTable(_TomlTable):
    """One fio job, in fio's words where it has them."""

    operation: IoPattern
    block_kib: _Count
    size_mib: _Size
    jobs: _Count = 1
    depth: _Count = 1
    direct: _Flag = False
    fsync_every: Annotated[int, Field(strict=True, ge=0)] = 0
    end_fsync: _Flag = True
    engine: Annotated[str, Field(pattern=r"^[a-z0-9_]+$")] = "psync"
    files: _Count = 1
    moved_mib: _Size | None = None
    seconds: _Seconds | None = None
    shared: _Flag = False
    kernel_threads: _Flag = False

    def workload(self) -> FioWorkload:
        block_bytes = self.block_kib * KIB
        size_bytes = _bytes(self.size_mib)
        if size_bytes < block_bytes * self.files:
            raise ValueError(f"size_mib {self.size_mib:g} is less than a block of {self.block_kib} KiB in each file")
        return FioWorkload(
            self.operation,
            block_bytes,
            size_bytes // block_bytes * block_bytes,  # whole blocks
            jobs=self.jobs,
            depth=self.depth,
            direct=self.direct,
            fsync_every=self.fsync_every,
            end_fsync=self.end_fsync,
            engine=self.engine,
            files=self.files,
            io_bytes=0 if self.moved_mib is None else _bytes(self.moved_mib),
            runtime_s=self.seconds or 0.0,
            shared=self.shared,
            kernel_threads=self.kernel_threads,
        )


class _TimedTable(_TomlTable):
    operation: TimedKind
    size_mib: _Size | None = None
    fill: Annotated[float, Field(strict=True, gt=0, lt=1)] | None = None
    from_root: _Flag = False

    def workload(self) -> TimedWorkload:
        sized = self.operation in (TimedKind.COPY, TimedKind.WRITE_FILES, TimedKind.HASH_FILES)
        if sized != (self.size_mib is not None):
            raise ValueError(f"{self.operation} {'needs' if sized else 'has no'} size_mib")
        return TimedWorkload(
            self.operation, _bytes(self.size_mib or 0), fill=self.fill or 0.0, from_root=self.from_root
        )


class _PowerLossTable(_TomlTable):
    operation: Literal[Hazard.POWER_LOSS]
    sync: _Flag

    def workload(self) -> PowerLossWorkload:
        return PowerLossWorkload(self.sync)


class _FlakeyTable(_TomlTable):
    operation: Literal[Hazard.DM_FLAKEY]
    model: FlakeyModel

    def workload(self) -> FlakeyWorkload:
        return FlakeyWorkload(self.model)


_TABLES: Final[dict[str, type[_FioTable | _TimedTable | _PowerLossTable | _FlakeyTable]]] = {
    **dict.fromkeys(IoPattern, _FioTable),
    **dict.fromkeys(TimedKind, _TimedTable),
    Hazard.POWER_LOSS: _PowerLossTable,
    Hazard.DM_FLAKEY: _FlakeyTable,
}


def suites_in(folder: Path) -> Iterator[Suite]:
    """The suites of a folder, by their files' names. Raises ConfigError."""
    files = sorted(folder.glob(f"*{SUFFIX}"))
    if not files:
        raise ConfigError(f"{folder} has no suite", hint=f"a suite is a file NAME{SUFFIX}")
    return map(read_suite, files)


def read_suite(file: Path) -> Suite:
    """The suite of a file, which is its name without `.toml`. Raises ConfigError with file and line."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the suite cannot be read: {error}", file=file, hint=_HINT) from error
    name = file.name.removesuffix(SUFFIX)
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"{name!r} cannot be a suite's name",
            file=file,
            hint="name the file with at most 40 small letters, digits, dots and hyphens: my-suite.toml",
        )
    table = only_table(text, file, _TABLE, hint=_HINT)
    try:
        read = _SuiteTable.model_validate(table)
    except ValidationError as error:
        raise wrong_value(error, text, file, hint=_HINT, within=[_TABLE]) from error
    workloads: dict[str, Workload] = {}
    for number, each in enumerate(read.workload):
        path = [_TABLE, _WORKLOADS, str(number)]
        for workload in _workloads(each, text, file, path):
            if workload.slug in workloads:
                raise ConfigError(
                    f"two workloads are called {workload.slug}", file=file, line=line_of(text, path), hint=_HINT
                )
            workloads[workload.slug] = workload
    return Suite(
        name,
        read.title,
        tuple(workloads.values()),
        filesystems=read.filesystems,
        repeat=read.repeat,
        provision=read.provision,
        remarks=read.remarks,
    )


def _workloads(table: dict[str, Any], text: str, file: Path, path: list[str]) -> Iterator[Workload]:
    """The workloads of a table: one for each of its block sizes and operations. Raises ConfigError."""
    for block_kib, operation in product(_each(table, "block_kib"), _each(table, "operation")):
        if not isinstance(operation, str) or operation not in _TABLES:
            raise ConfigError(
                f"operation: {operation!r} is no operation",
                file=file,
                line=line_of(text, [*path, "operation"]),
                hint=f"choose from {', '.join(_TABLES)}",
            )
        one = {**table, "operation": operation} | ({} if block_kib is None else {"block_kib": block_kib})
        try:
            yield _TABLES[operation].model_validate(one).workload()
        except ValidationError as error:
            raise wrong_value(error, text, file, hint=_HINT, within=path) from error
        except ValueError as error:
            raise ConfigError(str(error), file=file, line=line_of(text, path), hint=_HINT) from error


def _each(table: dict[str, Any], key: str) -> list[Any]:
    """The values of a key that may have several."""
    value = table.get(key)
    return cast("list[Any]", value) if isinstance(value, list) and value else [value]


def _bytes(mib: float) -> int:
    return round(mib * MIB / KIB) * KIB
