"""Suites as TOML files: fsjoule's own in `definitions/`, those of packages, and the user's.

A user's suite also goes where its file is not: into a plan, and to another computer.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import re
import tomllib
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Final, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fsjoule.errors import ConfigError
from fsjoule.host.toml_lines import config_text, line_of, only_table, validated, wrong_value
from fsjoule.model import KIB, MIB, FioWorkload, IoPattern, Provision, TimedKind, TimedWorkload, Workload
from fsjoule.model.operation import FlakeyModel, Hazard, HeldState, StateKind
from fsjoule.model.workload import (
    CrashWorkload,
    FlakeyWorkload,
    HeldWorkload,
    OwnCommand,
    PowerLossWorkload,
    SegmentRule,
)
from fsjoule.suites import fio_options
from fsjoule.suites.suite import OUR_FILESYSTEMS, Suite

_GZIP: Final = 31  # zlib's number for it
SUFFIX: Final = ".toml"
_HINT: Final = "docs/suites.md explains every field of a suite"
_TABLE: Final = "suite"
_WORKLOADS: Final = "workload"
# It names folders and series.
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9.-]{0,39}", re.ASCII)
_COMMAND: Final = "command"
# They go over a console, at 9 KB/s packed.
MOST_FILE_BYTES: Final = MIB
_PLACEHOLDERS: Final = ("directory", "size_kib", "size_mib")

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
    fio: dict[str, str | int | bool | float] = {}

    def _options(self) -> tuple[tuple[str, str], ...]:
        """Further options of fio, and what makes another series of a job without being in its name."""
        options = {"ioengine": self.engine} if self.engine != "psync" else {}
        if not self.end_fsync and self.operation.writes:
            options["end_fsync"] = "0"
        for written, value in self.fio.items():
            name = fio_options.canonical(written)
            if field := fio_options.FIELDS.get(name):
                raise ValueError(f"fio.{written} is refused: {field} is its name here")
            if why := fio_options.OURS.get(name):
                raise ValueError(f"fio.{written} is refused: {why}")
            try:
                options[name] = fio_options.checked_option(name, str(int(value) if isinstance(value, bool) else value))
            except ValueError as error:
                raise ValueError(f"fio.{error}") from error
        return fio_options.checked_together(options, reads=self.operation.reads, writes=self.operation.writes)

    def workload(self) -> FioWorkload:
        if self.engine not in fio_options.ENGINES:
            raise ValueError(
                f"engine {self.engine!r} does not work on files: choose from {', '.join(fio_options.ENGINES)}"
            )
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
            files=self.files,
            io_bytes=0 if self.moved_mib is None else _bytes(self.moved_mib),
            runtime_s=self.seconds or 0.0,
            shared=self.shared,
            kernel_threads=self.kernel_threads,
            options=self._options(),
        )


class _TimedTable(_TomlTable):
    operation: TimedKind
    size_mib: _Size | None = None
    fill: Annotated[float, Field(strict=True, gt=0, lt=1)] | None = None
    from_root: _Flag = False

    def workload(self) -> TimedWorkload:
        if self.operation is TimedKind.COMMAND:
            raise ValueError('a command has no operation: command = ["./logger", "{directory}"]')
        sized = self.operation in (TimedKind.COPY, TimedKind.WRITE_FILES, TimedKind.HASH_FILES)
        if sized != (self.size_mib is not None):
            raise ValueError(f"{self.operation} {'needs' if sized else 'has no'} size_mib")
        return TimedWorkload(
            self.operation, _bytes(self.size_mib or 0), fill=self.fill or 0.0, from_root=self.from_root
        )


_Argument = Annotated[str, Field(min_length=1, max_length=4096)]
_Argv = Annotated[tuple[_Argument, ...], Field(min_length=1, max_length=64)]


class _CommandTable(_TomlTable):
    """A user's program; with an `operation` its crash states are checked, with `confirm` those of an update.

    `files` are beside the suite's file, and so on the board beside each other.
    """

    command: _Argv
    operation: Literal[Hazard.CRASH_STATES] | None = None
    confirm: _Argv | None = None
    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.-]{0,39}$")] = ""
    files: tuple[_Argument, ...] = ()
    prepare: tuple[_Argv, ...] = ()
    size_mib: _Size | None = None
    seconds: _Seconds = 300.0
    sync: _Flag = True
    moved: Annotated[str, Field(max_length=200)] = ""
    moved_mib: _Size | None = None

    def workload(self) -> TimedWorkload | CrashWorkload:
        name = self.name or Path(self.command[0]).name
        if not _NAME.fullmatch(name):
            raise ValueError(
                f"command: {name!r} cannot be a workload's name: give it one with small letters, name = ..."
            )
        if self.confirm and not self.operation:
            raise ValueError('confirm is for crash states of an update: operation = "crash-states"')
        for word in (each for argv in (self.command, *self.prepare, self.confirm or ()) for each in argv):
            _check_word(word, self.files, size_mib=self.size_mib)
            if "{size_mib}" in word and self.size_mib != round(self.size_mib or 0):
                raise ValueError(f"command: {word} is whole MiB, and size_mib is {self.size_mib:g}: take size_kib")
        if self.moved and self.moved_mib:
            raise ValueError("moved and moved_mib are two answers to one question")
        try:
            groups = re.compile(self.moved).groups if self.moved else 1
        except re.error as error:
            raise ValueError(f"moved: {self.moved!r} is no pattern: {error}") from error
        if groups != 1:
            raise ValueError(f"moved: {self.moved!r} needs one group, the number of bytes: 'wrote (\\d+) bytes'")
        command = OwnCommand(
            name,
            self.command,
            self.prepare,
            limit_s=self.seconds,
            sync=self.sync,
            moved=self.moved,
            moved_bytes=_bytes(self.moved_mib or 0),
        )
        if self.operation:
            return CrashWorkload(command, self.confirm or ())
        return TimedWorkload(TimedKind.COMMAND, _bytes(self.size_mib or 0), command=command)


def _check_word(word: str, files: Sequence[str], *, size_mib: float | None) -> None:
    """Raise ValueError for an argument that would not arrive as it is written."""
    for place in re.findall(r"\{([a-z_]+)\}", word):
        if place not in _PLACEHOLDERS:
            raise ValueError(f"command: {{{place}}} stands for nothing: choose from {', '.join(_PLACEHOLDERS)}")
        if place.startswith("size") and size_mib is None:
            raise ValueError(f"command: {{{place}}} needs size_mib")
    if not word.isprintable():
        raise ValueError(f"command: {word!r} has a character that a console does not take")
    if word.startswith("./") and word[2:] not in (Path(each).name for each in files):
        raise ValueError(f"command: {word} is not among files: files = [{word[2:]!r}] puts it on the board")


class _HeldTable(_TomlTable):
    """A state that the board is held in. `command` runs beside; with `each_cpu` once on each processor."""

    operation: Literal[StateKind.STATE]
    state: HeldState = HeldState.IDLE
    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.-]{0,39}$")] = ""
    seconds: Annotated[float, Field(strict=True, ge=3, le=24 * 3600)] = 120.0
    command: tuple[_Argument, ...] = ()
    each_cpu: _Flag = False
    mounted: _Flag = False
    files: tuple[_Argument, ...] = ()
    prepare: tuple[_Argv, ...] = ()

    def workload(self) -> HeldWorkload:
        if self.state is not HeldState.IDLE and (self.command or self.mounted):
            raise ValueError(f"command and mounted are for a board that is idle: nothing runs while it is {self.state}")
        if self.state is HeldState.OFF and self.prepare:
            raise ValueError("prepare is for a board that runs: the state is off")
        if self.each_cpu and not self.command:
            raise ValueError("command: each_cpu needs one, to run it on each processor")
        for word in (each for argv in (self.command, *self.prepare) for each in argv):
            _check_word(word, self.files, size_mib=None)
        command = OwnCommand(self.name or self.state.value, self.command, self.prepare, sync=False)
        return HeldWorkload(self.state, self.seconds, command, copies=0 if self.each_cpu else 1, mounted=self.mounted)


class _RuleTable(_TomlTable):
    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.-]{0,39}$")]
    line: Annotated[str, Field(max_length=200)] = ""
    mark: Annotated[str, Field(pattern=r"^[A-Za-z0-9]{0,9}$")] = ""
    optional: _Flag = False


class _PowerOnTable(_TomlTable):
    """A boot from power-on: where each of its segments begins, and last what ends it."""

    operation: Literal[TimedKind.POWER_ON]
    segments: Annotated[tuple[_RuleTable, ...], Field(min_length=2)]

    def workload(self) -> TimedWorkload:
        first, *others = self.segments
        if first.line or first.mark or first.optional:
            raise ValueError(f"segments: {first.name!r} is the first and begins at power-on: it has its name only")
        for rule in others:
            if not (rule.line or rule.mark):
                raise ValueError(f"segments: {rule.name!r} needs a line, a mark, or both")
            try:
                re.compile(rule.line)
            except re.error as error:
                raise ValueError(f"segments: {rule.name!r}: {rule.line!r} is no pattern: {error}") from error
        if others[-1].optional:
            raise ValueError(f"segments: {others[-1].name!r} is the last and ends the boot: it cannot be optional")
        names = [rule.name for rule in self.segments]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise ValueError(f"segments: two are called {twice!r}")
        rules = tuple(SegmentRule(**dict(rule)) for rule in self.segments)
        return TimedWorkload(TimedKind.POWER_ON, rules=rules)


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


_WorkloadTable = _FioTable | _TimedTable | _CommandTable | _PowerOnTable | _HeldTable | _PowerLossTable | _FlakeyTable
_TABLES: Final[
    dict[str, type[_FioTable | _TimedTable | _PowerOnTable | _HeldTable | _PowerLossTable | _FlakeyTable]]
] = {
    **dict.fromkeys(IoPattern, _FioTable),
    **dict.fromkeys(TimedKind, _TimedTable),
    TimedKind.POWER_ON: _PowerOnTable,
    StateKind.STATE: _HeldTable,
    Hazard.POWER_LOSS: _PowerLossTable,
    Hazard.DM_FLAKEY: _FlakeyTable,
}


def suites_in(folder: Path) -> Iterator[Suite]:
    """The suites of a folder, by their files' names. Raises ConfigError."""
    files = sorted(folder.glob(f"*{SUFFIX}"))
    if not files:
        raise ConfigError(f"{folder} has no suite", hint=f"a suite is a file NAME{SUFFIX}")
    return map(read_suite, files)


def is_suite_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def suite_name(file: Path) -> str:
    """The name of a file's suite: the file's without its ending. Raises ConfigError."""
    if not is_suite_name(file.stem):
        raise ConfigError(
            f"{file.stem!r} cannot be a suite's name",
            file=file,
            hint="name the file with at most 40 small letters, digits, dots and hyphens: my-suite.toml",
        )
    return file.stem


def read_suite(file: Path, name: str = "") -> Suite:
    """The suite of a TOML file, by default of its name. Raises ConfigError with file and line."""
    text = config_text(file, "the suite", hint=_HINT)
    name = name or suite_name(file)
    table = only_table(text, file, _TABLE, hint=_HINT)
    read = validated(_SuiteTable, table, text, file, hint=_HINT, within=[_TABLE])
    workloads: dict[str, Workload] = {}
    contents: dict[str, bytes] = {}
    for number, each in enumerate(read.workload):
        path = [_TABLE, _WORKLOADS, str(number)]
        files = _files(each, text, file, path) if _has_files(each) else {}
        contents |= {hashlib.sha256(content).hexdigest(): content for content in files.values()}
        for workload in _workloads(each, text, file, path):
            if isinstance(workload, TimedWorkload | CrashWorkload | HeldWorkload) and workload.command:
                sums = tuple((place, hashlib.sha256(content).hexdigest()) for place, content in files.items())
                workload = replace(workload, command=replace(workload.command, files=sums))  # noqa: PLW2901
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
        contents=contents,
    )


def _has_files(table: dict[str, Any]) -> bool:
    """Whether it runs a user's programs, so that `files` are what they need."""
    return _COMMAND in table or table.get("operation") == StateKind.STATE


def _files(table: dict[str, Any], text: str, file: Path, path: list[str]) -> dict[str, bytes]:
    """The contents of a command's files, by their names on the board. Raises ConfigError."""

    def error(what: str) -> ConfigError:
        return ConfigError(what, file=file, line=line_of(text, [*path, "files"]), hint=_HINT)

    contents: dict[str, bytes] = {}
    names = cast("list[object]", table["files"]) if isinstance(table.get("files"), list) else []
    for name in names:
        if not isinstance(name, str) or Path(name).is_absolute() or ".." in Path(name).parts:
            raise error(f"files: {name!r} is refused: a file is beside the suite's, or below it")
        if not re.fullmatch(r"[\w.-]{1,100}", place := Path(name).name, re.ASCII) or place in contents:
            raise error(f"files: {place!r} cannot be its name on the board, or is there twice")
        try:
            with (file.parent / name).open("rb") as opened:
                contents[place] = opened.read(MOST_FILE_BYTES + 1)
        except OSError as wrong:
            raise error(f"files: {name} cannot be read: {wrong.strerror}") from wrong
    if sum(map(len, contents.values())) > MOST_FILE_BYTES:
        raise error("files: they are larger than 1 MiB, which takes too long over a console: put them on the card")
    return contents


def _workloads(table: dict[str, Any], text: str, file: Path, path: list[str]) -> Iterator[Workload]:
    """The workloads of a table: one for each of its block sizes and operations. Raises ConfigError."""
    if _has_files(table):
        held = table.get("operation") == StateKind.STATE
        yield _workload(_HeldTable if held else _CommandTable, table, text, file, path)
        return
    for block_kib, operation in product(_each(table, "block_kib"), _each(table, "operation")):
        if not isinstance(operation, str) or operation not in _TABLES:
            raise ConfigError(
                f"operation: {operation!r} is no operation",
                file=file,
                line=line_of(text, [*path, "operation"]),
                hint=f"choose from {', '.join(_TABLES)}",
            )
        one = {**table, "operation": operation} | ({} if block_kib is None else {"block_kib": block_kib})
        yield (workload := _workload(_TABLES[operation], one, text, file, path))
        if isinstance(workload, TimedWorkload):
            yield from (replace(workload, segment=rule.name) for rule in workload.rules[:-1])


def _workload(kind: type[_WorkloadTable], table: dict[str, Any], text: str, file: Path, path: list[str]) -> Workload:
    try:
        return kind.model_validate(table).workload()
    except ValidationError as error:
        raise wrong_value(error, text, file, hint=_HINT, within=path) from error
    except ValueError as error:
        # It begins with the key that it is about, if there is one.
        key = re.match("fio|moved|engine|command|name|segments", str(error))
        line = line_of(text, [*path, *([key[0]] if key else [])])
        raise ConfigError(str(error), file=file, line=line, hint=_HINT) from error


def _each(table: dict[str, Any], key: str) -> list[Any]:
    """The values of a key that may have several."""
    value = table.get(key)
    return cast("list[Any]", value) if isinstance(value, list) and value else [value]


def _bytes(mib: float) -> int:
    return round(mib * MIB / KIB) * KIB


def own_files(chosen: Suite) -> dict[str, bytes]:
    """A user's suite for another computer: its file by the suite's name, and the files of its commands beside it."""
    file = Path(chosen.file)
    text = file.read_bytes()
    names: list[str] = []
    if file.name.endswith(SUFFIX):
        table = tomllib.loads(text.decode())["suite"]
        names = [name for workload in table["workload"] for name in workload.get("files", ())]
    return {chosen.name + file.suffix: text} | {name: (file.parent / name).read_bytes() for name in names}


def packed(contents: Mapping[str, bytes]) -> dict[str, str]:
    """Files as a plan keeps them."""
    return {key: base64.b64encode(gzip.compress(each, mtime=0)).decode() for key, each in contents.items()}


def unpacked(files: Mapping[str, str]) -> dict[str, bytes]:
    """The files of a plan by their SHA-256. Raises ConfigError if one is not what its name says."""
    contents: dict[str, bytes] = {}
    for key, text in files.items():
        try:
            contents[key] = zlib.decompressobj(_GZIP).decompress(base64.b64decode(text, validate=True), MOST_FILE_BYTES)
        except (ValueError, zlib.error) as error:
            raise ConfigError(f"the plan's file {key[:12]} is damaged: {error}") from error
        if hashlib.sha256(contents[key]).hexdigest() != key:
            raise ConfigError(f"the plan's file {key[:12]} is damaged: it has another checksum")
    return contents
