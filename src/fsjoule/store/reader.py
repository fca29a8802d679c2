"""Reads a run folder strictly, without damaged measurements, and traces only on request."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from fsjoule.errors import ResultError
from fsjoule.host.inside import (
    ATTACHMENT_BYTES,
    DOCUMENT_BYTES,
    TRACE_BYTES,
    Listed,
    list_inside,
    read_inside,
    shown,
    wrong_name,
)
from fsjoule.host.plaintext import plain_line
from fsjoule.model import MEASUREMENT_SCHEMA, RUN_SCHEMA, Measurement, Profile, Run, RunStatus, Symbols, Trace
from fsjoule.store.files import PARTIAL_SUFFIX
from fsjoule.store.folder import (
    MEASUREMENT_FILE,
    MEASUREMENTS_FOLDER,
    RUN_FILE,
    TRACE_FILE,
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
    """A run with its readable measurements in the order of time; `damaged` maps other folders to reasons."""

    path: Path
    run: Run
    measurements: tuple[Measurement, ...]
    damaged: dict[str, str]
    folders: dict[int, Path] = field(repr=False)

    def trace(self, number: int) -> Trace | None:
        """The trace of a measurement, read on each call; None if it has none. Raises ResultError if damaged."""
        name = self._folder(number).name
        content = read_inside(self.path, MEASUREMENTS_FOLDER, name, TRACE_FILE, at_most=TRACE_BYTES)
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
        """The content of an attachment (`fio.json`), or None. Raises ResultError if it cannot be read."""
        at_most = DOCUMENT_BYTES if name == MEASUREMENT_FILE else ATTACHMENT_BYTES
        return read_inside(self.path, MEASUREMENTS_FOLDER, self._folder(number).name, name, at_most=at_most)

    def files(self, number: int) -> Listed:
        """The names of a measurement's files, and of entries that are not read. Raises ResultError."""
        return list_inside(self.path, MEASUREMENTS_FOLDER, self._folder(number).name)

    def document(self, name: str) -> bytes | None:
        """The content of a file beside run.json (`gate.json`), or None if it is missing. Raises ResultError."""
        return read_inside(self.path, name, at_most=DOCUMENT_BYTES)

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
    damaged: dict[str, str] = {}
    listed = list_inside(folder, MEASUREMENTS_FOLDER)
    # Listed and existing folders, because a full disk can leave one unlisted.
    for name in sorted({*listed.folders, *run.measurements, *listed.refused}):
        if number not in (None, measurement_number(name)):
            continue
        try:
            _check_folder(name, listed)
            measurement = _load_measurement(folder, name, run)
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
    in_order = tuple(measurements[number] for number in sorted(measurements))
    return LoadedRun(folder, run, in_order, damaged, dict(sorted(folders.items())))


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
        kind = "it is a file" if name in listed.files else "the folder is missing"
        why = f"run.json lists it, but {kind}"
    if why is None and name.endswith(PARTIAL_SUFFIX):
        why = "its writing was cut short"
    if why is not None:
        raise ResultError(why)


def _load_measurement(folder: Path, name: str, run: Run) -> Measurement:
    content = read_inside(folder, MEASUREMENTS_FOLDER, name, MEASUREMENT_FILE, at_most=DOCUMENT_BYTES)
    if content is None:
        raise ResultError(f"it cannot be read: it has no {MEASUREMENT_FILE}")
    path = folder / MEASUREMENTS_FOLDER / name / MEASUREMENT_FILE
    measurement = decode(MEASUREMENT, content, MEASUREMENT_SCHEMA, path)
    # The first schemas do not name the kernel, but their runs had only one.
    return measurement if measurement.kernel else replace(measurement, kernel=run.plan.kernels[0])
