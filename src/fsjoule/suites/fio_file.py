"""fio's job files as suites: jobs that `stonewall` separates are workloads, those between run together."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from fsjoule.errors import ConfigError
from fsjoule.host.toml_lines import config_text
from fsjoule.model import FioWorkload, IoPattern, size_label
from fsjoule.model.operation import fio_bytes, fio_seconds
from fsjoule.suites import fio_options
from fsjoule.suites.suite import Suite

SUFFIX: Final = ".fio"
_HINT: Final = "docs/suites.md says what a job file may have"
_LARGEST_BYTES: Final = 1 << 18
_MOST_JOBS: Final = 64
_SMALLEST_BLOCK: Final = 512


@dataclass(frozen=True, slots=True)
class _Value:
    text: str
    line: int


@dataclass
class _Section:
    """A job of the file. `values` are by one name each, those of `[global]` above it first."""

    name: str
    line: int
    file: Path
    values: dict[str, _Value] = field(default_factory=dict[str, _Value])

    def error(self, what: str, name: str = "") -> ConfigError:
        line = self.values[name].line if name in self.values else self.line
        return ConfigError(f"[{self.name}]: {what}", file=self.file, line=line, hint=_HINT)

    def has(self, name: str) -> bool:
        """Whether a switch is on. Raises ConfigError."""
        text = self.text(name, "0")
        if text not in {"0", "1"}:
            raise self.error(f"{name}={text}: it is 0 or 1", name)
        return text == "1"

    def text(self, name: str, default: str) -> str:
        return self.values[name].text if name in self.values else default

    def number(self, name: str, default: int, least: int = 1) -> int:
        text = self.text(name, str(default))
        if not re.fullmatch(r"\d{1,7}", text) or int(text) < least:
            raise self.error(f"{name}={text}: it is a whole number from {least}", name)
        return int(text)

    def size(self, name: str, text: str) -> int:
        try:
            return fio_bytes(text)
        except ValueError as error:
            raise self.error(f"{name}={text}: {error}", name) from error


def read_job_file(file: Path, name: str) -> Suite:
    """The suite of a job file. A board's factor multiplies its sizes. Raises ConfigError with file and line."""
    sections = list(_sections(file))
    groups: list[list[_Section]] = []
    for section in sections:
        if not groups or section.has("stonewall"):
            groups.append([])
        groups[-1].append(section)
    if not groups:
        raise ConfigError("it has no job", file=file, line=1, hint=_HINT)
    workloads: dict[str, tuple[FioWorkload, str]] = {}
    for group in groups:
        workload = _together(group)
        names = ", ".join(each.name for each in group)
        if workload.slug in workloads:
            other = workloads[workload.slug][1]
            raise group[0].error(f"it is the same job as [{other}], or differs in size only: leave one out")
        workloads[workload.slug] = workload, names
    return Suite(
        name,
        f"fio's {file.name}: {'; '.join(names for _, names in workloads.values())}",
        tuple(workload for workload, _ in workloads.values()),
        remarks=tuple(_remarks(sections, [workload for workload, _ in workloads.values()])),
        scales=True,
    )


def _remarks(sections: Sequence[_Section], workloads: Sequence[FioWorkload]) -> Iterator[str]:
    """What is done differently from the file, or must be known of the figures."""
    reasons: dict[str, dict[str, None]] = {}
    for section in sections:
        for name in section.values:
            if why := fio_options.OURS.get(name):
                reasons.setdefault(why, {})[name] = None
    for why, names in reasons.items():
        yield f"{', '.join(names)} of the file is left out: {why}"
    if any(("end_fsync", "0") in each.options for workload in workloads for each in workload.together):
        yield "endfsync0: the window ends before all data is on the device: end_fsync=1 in the file waits for it"


def _together(group: Sequence[_Section]) -> FioWorkload:
    """The workload of sections that run together. Raises ConfigError."""
    names = [section.text("filename", "") for section in group]
    several = {name for name in names if name and names.count(name) > 1}
    several |= {name for name, section in zip(names, group, strict=True) if name and section.number("numjobs", 1) > 1}
    if len(several) > 1:
        raise group[1].error(f"filename: jobs that run together share several files: {', '.join(sorted(several))}")
    jobs = [replace(_job(each), shared=name in several) for each, name in zip(group, names, strict=True)]
    if sum(each.jobs for each in jobs) > _MOST_JOBS:
        raise group[0].error(f"more than {_MOST_JOBS} jobs at the same time")
    return replace(jobs[0], beside=tuple(jobs[1:]))


def _job(section: _Section) -> FioWorkload:
    pattern = section.text("rw", "read")
    try:
        operation = IoPattern({"readwrite": "rw"}.get(pattern, pattern))
    except ValueError as error:
        choices = ", ".join(IoPattern)
        raise section.error(f"rw={pattern} is refused: choose from {choices}", "rw") from error
    if "size" not in section.values:
        raise section.error("it has no size: write size=16m")
    size_bytes = section.size("size", section.text("size", ""))
    blocks = section.text("bs", "4k")
    sizes = [section.size("bs", each) for each in re.split("[,:]", blocks)][:2]  # the third is for trims
    block_bytes = max(sizes) if operation.reads and operation.writes else sizes[-1 if operation.writes else 0]
    files = section.number("nrfiles", 1)
    if not _SMALLEST_BLOCK <= block_bytes <= size_bytes // files:
        least = size_label(block_bytes)
        raise section.error(f"size={section.text('size', '')} is less than a block of {least} in each file", "size")
    if block_bytes % _SMALLEST_BLOCK:
        raise section.error(f"bs={blocks}: a block is a multiple of {_SMALLEST_BLOCK} bytes", "bs")
    if (engine := section.text("ioengine", "psync")) not in fio_options.ENGINES:
        choices = ", ".join(fio_options.ENGINES)
        raise section.error(f"ioengine={engine} does not work on files: choose from {choices}", "ioengine")
    if re.match("/dev/|.*:", name := section.text("filename", "")):
        what = "a device is measured with --fs raw" if name.startswith("/dev/") else "nrfiles says how many files"
        raise section.error(f"filename={name} is refused: files are on the measured filesystem, and {what}", "filename")
    options = {"ioengine": engine} if engine != "psync" else {}
    if operation.writes and not section.has("end_fsync"):
        options["end_fsync"] = "0"
    if len(set(sizes)) > 1 and operation.reads and operation.writes:
        options["bs"] = blocks
    return FioWorkload(
        operation,
        block_bytes,
        size_bytes // block_bytes * block_bytes,
        jobs=section.number("numjobs", 1),
        depth=section.number("iodepth", 1),
        direct=section.has("direct") or section.text("buffered", "1") == "0",
        fsync_every=section.number("fsync", 0, 0),
        end_fsync=section.has("end_fsync"),
        files=files,
        io_bytes=section.size("io_size", section.text("io_size", "0")),
        runtime_s=_runtime_s(section, options),
        options=_options(section, options, operation),
    )


def _runtime_s(section: _Section, options: dict[str, str]) -> float:
    """The time of a job that goes on until then; of another one it is an option, the longest time that it may take."""
    try:
        runtime_s = fio_seconds(section.text("runtime", "0"))
    except ValueError as error:
        raise section.error(f"runtime: {error}", "runtime") from error
    if section.has("time_based"):
        if not runtime_s:
            raise section.error("time_based needs a runtime", "time_based")
        return runtime_s
    if runtime_s:
        options["runtime"] = f"{runtime_s:g}s" if runtime_s >= 1 else f"{round(1000 * runtime_s)}ms"
    return 0.0


def _options(section: _Section, options: dict[str, str], operation: IoPattern) -> tuple[tuple[str, str], ...]:
    for name, value in section.values.items():
        if name in fio_options.FIELDS or name in fio_options.OURS or name in {"stonewall", "runtime"}:
            continue
        try:
            options[name] = fio_options.checked_option(name, value.text)
        except ValueError as error:
            raise section.error(str(error), name) from error
    try:
        return fio_options.checked_together(options, reads=operation.reads, writes=operation.writes)
    except ValueError as error:
        raise section.error(str(error)) from error


def _sections(file: Path) -> Iterator[_Section]:
    """The jobs of a file, by fio's rules: a section that begins with `global` is the default of those after it."""
    defaults: dict[str, _Value] = {}
    section: _Section | None = None
    text = config_text(file, "the job file", hint=_HINT, most_bytes=_LARGEST_BYTES)
    for number, written in enumerate(text.splitlines(), start=1):
        line = re.split("[;#]", written, maxsplit=1)[0].strip()
        if not line:
            continue
        if line.startswith("["):
            if section and not section.name.startswith("global"):
                yield section
            if not re.fullmatch(r"\[[^\[\]]{1,100}\]", line) or not line.isprintable():
                raise ConfigError(f"{line!r} is no [section]", file=file, line=number, hint=_HINT)
            section = _Section(line[1:-1], number, file)
            section.values = defaults if section.name.startswith("global") else dict(defaults)
            continue
        name, _, value = line.partition("=")
        name = fio_options.canonical(name.strip())
        if section is None or re.match(r"include\b", line):
            what = "an option before the first [section]" if section is None else "include is refused"
            raise ConfigError(f"{what}: {line}", file=file, line=number, hint=_HINT)
        if "$" in line:
            what = f"variables are refused: {line}"
            hint = "write the value: the board and this computer have different variables"
            raise ConfigError(what, file=file, line=number, hint=hint)
        section.values[name] = _Value(value.strip() if "=" in line else "1", number)
    if section and not section.name.startswith("global"):
        yield section
