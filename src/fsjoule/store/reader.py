"""Reads a run folder strictly, without damaged measurements, and traces only on request."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from fsjoule.errors import ResultError
from fsjoule.host.files import PARTIAL_SUFFIX
from fsjoule.host.inside import (
    ATTACHMENT_BYTES,
    DOCUMENT_BYTES,
    MIB,
    TRACE_BYTES,
    Listed,
    list_inside,
    read_inside,
    shown,
    wrong_name,
)
from fsjoule.host.plaintext import plain_line
from fsjoule.model import MEASUREMENT_SCHEMA, RUN_SCHEMA, Measurement, Profile, Run, RunStatus, Symbols, Trace
from fsjoule.model.labels import counted
from fsjoule.store.folder import (
    CHECKSUMS_FILE,
    MEASUREMENT_FILE,
    MEASUREMENTS_FOLDER,
    RUN_FILE,
    TRACE_FILE,
    altered,
    decode_checksums,
    is_being_written,
    measurement_number,
)
from fsjoule.store.profiles import (
    PROFILE_FILE,
    PROGRAMS_FILE,
    decode_profile,
    decode_programs,
    decode_symbols,
    symbols_file,
)
from fsjoule.store.schemas import MEASUREMENT, RUN, decode
from fsjoule.store.traces import decode_trace

_LONGEST_SHOWN: Final = 255
_DEEPEST: Final = 2  # measurements/<name>/<file>
_NOT_FINISHED: Final = "it ended without writing its end (killed, the disk was full, or the host went down)"


@dataclass(frozen=True, slots=True)
class LoadedRun:
    """A run with its readable measurements in the order of time; `damaged` maps other folders to reasons.

    `checksums` are those of each measurement's files, by number; a measurement without SHA256SUMS has none.
    """

    path: Path
    run: Run
    measurements: tuple[Measurement, ...]
    damaged: dict[str, str]
    folders: dict[int, Path] = field(repr=False)
    checksums: dict[int, dict[str, str]] = field(repr=False, default_factory=dict[int, dict[str, str]])

    def trace(self, number: int) -> Trace | None:
        """The trace of a measurement, read on each call; None if it has none.

        Raises ResultError if it is damaged, edited, or missing although the measurement has counted its samples.
        """
        content = self._stored(number, TRACE_FILE, TRACE_BYTES)
        return None if content is None else decode_trace(content, self._folder(number) / TRACE_FILE)

    def profile(self, number: int) -> Profile | None:
        """The profile of a measurement, read now; None if none was kept. Raises ResultError if it is damaged."""
        content = self.attachment(number, PROFILE_FILE)
        return None if content is None else decode_profile(content, self._folder(number) / PROFILE_FILE)

    def symbols(self, boot: int) -> Symbols | None:
        """The symbols of a boot's kernel, read now; None if none were kept. Raises ResultError if they are damaged."""
        name = symbols_file(boot)
        content = read_inside(self.path, name, at_most=ATTACHMENT_BYTES)
        return None if content is None else decode_symbols(content, self.path / name)

    def programs(self) -> dict[int, str]:
        """The programs of the run's cards by their pages; none if none were kept. Raises ResultError if damaged."""
        content = read_inside(self.path, PROGRAMS_FILE, at_most=ATTACHMENT_BYTES)
        return {} if content is None else decode_programs(content, self.path / PROGRAMS_FILE)

    def attachment(self, number: int, name: str) -> bytes | None:
        """The content of an attachment (`fio.json`), or None. Raises ResultError if unreadable, edited or lost."""
        return self._stored(number, name, DOCUMENT_BYTES if name == MEASUREMENT_FILE else ATTACHMENT_BYTES)

    def files(self, number: int) -> Listed:
        """The names of a measurement's files, and of entries that are not read. Raises ResultError."""
        return list_inside(self.path, MEASUREMENTS_FOLDER, self._folder(number).name)

    def document(self, name: str) -> bytes | None:
        """The content of a file beside run.json (`gate.json`), or None if it is missing. Raises ResultError."""
        return read_inside(self.path, name, at_most=DOCUMENT_BYTES)

    def altered(self) -> dict[str, str]:
        """Traces and attachments that are missing or edited, by their paths, with reasons. Reads all of them."""
        changes: dict[str, str] = {}
        for number, folder in self.folders.items():
            for name in sorted(self.checksums.get(number, ())):
                try:
                    self._stored(number, name, TRACE_BYTES)
                except ResultError as error:
                    changes[f"{folder.name}/{name}"] = error.what.replace(f"{shown(folder, name)} ", "")
        return changes

    def _stored(self, number: int, name: str, at_most: int) -> bytes | None:
        """A file of a measurement as it was stored; None if there was none. Raises ResultError."""
        folder = self._folder(number)
        content = read_inside(self.path, MEASUREMENTS_FOLDER, folder.name, name, at_most=at_most)
        why = altered(content, self.checksums.get(number, {}).get(name))
        if content is None and name == TRACE_FILE and (samples := self._samples(number)):
            why = f"is missing: the measurement's record says {counted(samples, 'sample')}"
        if why is not None:
            raise ResultError(f"{shown(folder, name)} {why}")
        return content

    def _samples(self, number: int) -> int:
        """How many samples a measurement's trace has; 0 if it has none, or was not pulled with the run."""
        counts = next(each.samples for each in self.measurements if each.number == number)
        return 0 if counts is None or (self.run.job is not None and self.run.job.pulled) else counts.received

    def _folder(self, number: int) -> Path:
        if number not in self.folders:
            known = ", ".join(map(str, self.folders)) or "none"
            raise ResultError(f"{self.path} has no readable measurement {number}", hint=f"it has: {known}")
        return self.folders[number]


def load_run(path: Path, *, number: int | None = None) -> LoadedRun:
    """Read the run folder at `path` (or of the run.json `path`), with all measurements or only one `number`.

    A run that is neither finished nor being written reads as aborted. Raises ResultError if there is no run, or if
    run.json is damaged or of another schema; damaged measurements are named in `damaged`.
    """
    folder = path.parent if path.name == RUN_FILE else path
    run = load_run_file(folder)
    measurements: dict[int, Measurement] = {}
    folders: dict[int, Path] = {}
    checksums: dict[int, dict[str, str]] = {}
    damaged: dict[str, str] = {}
    listed = list_inside(folder, MEASUREMENTS_FOLDER)
    # Listed and existing folders, because a full disk can leave one unlisted.
    for name in sorted({*listed.folders, *run.measurements, *listed.refused}):
        if number not in (None, measurement_number(name)):
            continue
        try:
            _check_folder(name, listed)
            measurement, sums = _load_measurement(folder, name)
        except ResultError as error:
            # A run that goes on writes one just now, or has withdrawn it since it was listed.
            there = list_inside(folder, MEASUREMENTS_FOLDER).folders
            if run.status is RunStatus.RUNNING and (name.endswith(PARTIAL_SUFFIX) or name not in there):
                continue
            damaged[plain_line(name)[:_LONGEST_SHOWN]] = error.what
            continue
        if measurement.number in folders:
            damaged[name] = f"it has the number of {folders[measurement.number].name}"
            continue
        measurements[measurement.number] = measurement
        folders[measurement.number] = folder / MEASUREMENTS_FOLDER / name
        checksums[measurement.number] = sums
    in_order = tuple(measurements[number] for number in sorted(measurements))
    return LoadedRun(folder, run, in_order, damaged, dict(sorted(folders.items())), checksums)


def load_run_file(folder: Path) -> Run:
    """The contents of a folder's run.json. Raises ResultError if it is missing or damaged."""
    content = read_inside(folder, RUN_FILE, at_most=DOCUMENT_BYTES)
    if content is None:
        hint = "give the folder below results/ that `fsjoule bench` named at its end"
        raise ResultError(f"{shown(folder)} is not a run folder: it has no {RUN_FILE}", hint=hint)
    run = decode(RUN, content, RUN_SCHEMA, folder / RUN_FILE)
    if run.status is RunStatus.RUNNING and not _goes_on(folder):
        return replace(run, status=RunStatus.ABORTED, abort_reason=run.abort_reason or _NOT_FINISHED)
    return run


def run_files(folder: Path, problems: list[str], *below: str) -> Iterator[tuple[str, ...]]:
    """The files of a run folder as parts of their relative paths; entries that no run has are added to `problems`.

    Raises ResultError if a folder cannot be read.
    """
    listed = list_inside(folder, *below)
    where = "/".join((folder.name, *below))
    problems += [f"{where}/{name}: {why}" for name, why in listed.refused.items()]
    for name in listed.files:
        yield (*below, name)
    for name in listed.folders:
        if len(below) < _DEEPEST:
            yield from run_files(folder, problems, *below, name)
        else:
            problems.append(f"{where}/{name}: a run folder has no folder there")


def _goes_on(folder: Path) -> bool:
    try:
        return is_being_written(folder)
    except OSError as error:
        raise ResultError(f"{shown(folder)} cannot be read: {error.strerror or error}") from error


def _check_folder(name: str, listed: Listed) -> None:
    """Raise ResultError unless a measurement has a readable folder."""
    why = listed.refused.get(name) or wrong_name(name)
    if why is None and name not in listed.folders:
        missing = "the folder is missing" if listed.folders else f"{MEASUREMENTS_FOLDER}/ is missing or empty"
        kind = "it is a file" if name in listed.files else missing
        why = f"run.json lists it, but {kind}"
    if why is None and name.endswith(PARTIAL_SUFFIX):
        why = "its writing was cut short"
    if why is not None:
        raise ResultError(why)


def _load_measurement(folder: Path, name: str) -> tuple[Measurement, dict[str, str]]:
    """A measurement, and the checksums of its files. Raises ResultError if it is damaged, or edited."""
    content = read_inside(folder, MEASUREMENTS_FOLDER, name, MEASUREMENT_FILE, at_most=DOCUMENT_BYTES)
    if content is None:
        raise ResultError(f"it cannot be read: it has no {MEASUREMENT_FILE}")
    path = folder / MEASUREMENTS_FOLDER / name / MEASUREMENT_FILE
    measurement = decode(MEASUREMENT, content, MEASUREMENT_SCHEMA, path)
    sums = read_inside(folder, MEASUREMENTS_FOLDER, name, CHECKSUMS_FILE, at_most=MIB)
    checksums = {} if sums is None else decode_checksums(sums)
    if sums is not None and (why := altered(content, checksums.get(MEASUREMENT_FILE, ""))):
        raise ResultError(f"its {MEASUREMENT_FILE} {why}")
    return measurement, checksums
