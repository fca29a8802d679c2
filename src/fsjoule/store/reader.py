"""Reading a run folder: strictly, traces only when asked for, and around measurements that are damaged."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from fsjoule.errors import ResultError
from fsjoule.model import MEASUREMENT_SCHEMA, RUN_SCHEMA, Measurement, Run, RunStatus, Trace
from fsjoule.store.files import PARTIAL_SUFFIX
from fsjoule.store.folder import MEASUREMENT_FILE, MEASUREMENTS_FOLDER, RUN_FILE, TRACE_FILE, is_being_written
from fsjoule.store.schemas import MEASUREMENT, RUN, decode
from fsjoule.store.traces import read_trace

_NOT_FINISHED: Final = "it ended without a last word (killed, or the host went down)"


@dataclass(frozen=True, slots=True)
class LoadedRun:
    """A run read back: measurements in the order in which they were made.

    `damaged` maps the names of measurement folders that could not be read to the reason; they are left out of the rest.
    """

    path: Path
    run: Run
    measurements: tuple[Measurement, ...]
    damaged: dict[str, str]
    folders: dict[int, Path] = field(repr=False)

    def trace(self, number: int) -> Trace | None:
        """The trace of a measurement, read now; None if it has none.

        Raises ResultError if the trace is damaged or the run has no such measurement.
        """
        path = self._folder(number) / TRACE_FILE
        return read_trace(path) if path.exists() else None

    def attachment(self, number: int, name: str) -> bytes | None:
        """The content of a measurement's attachment (`fio.json`, `console.log`), or None if it has none."""
        path = self._folder(number) / name
        return path.read_bytes() if path.is_file() else None

    def files(self, number: int) -> tuple[Path, ...]:
        """All files of a measurement, by name."""
        return tuple(sorted(path for path in self._folder(number).iterdir() if path.is_file()))

    def _folder(self, number: int) -> Path:
        if number not in self.folders:
            known = ", ".join(map(str, self.folders)) or "none"
            raise ResultError(f"{self.path} has no readable measurement {number}", hint=f"it has: {known}")
        return self.folders[number]


def load_run(path: Path) -> LoadedRun:
    """Read the run folder at `path` (or whose run.json `path` is).

    A run that is neither finished nor being written reads as aborted. Raises ResultError if there is no run, or if
    run.json is damaged or of another schema; a damaged measurement is named in `damaged` instead.
    """
    folder = path.parent if path.name == RUN_FILE else path
    run = load_run_file(folder)
    measurements: dict[int, Measurement] = {}
    folders: dict[int, Path] = {}
    damaged: dict[str, str] = {}
    for name in _measurement_folders(folder, run):
        try:
            measurement = _load_measurement(folder / MEASUREMENTS_FOLDER / name, run)
        except ResultError as error:
            damaged[name] = error.what
            continue
        if measurement.number in folders:
            damaged[name] = f"it has the number of {folders[measurement.number].name}"
            continue
        measurements[measurement.number] = measurement
        folders[measurement.number] = folder / MEASUREMENTS_FOLDER / name
    in_order = tuple(measurements[number] for number in sorted(measurements))
    return LoadedRun(folder, run, in_order, damaged, dict(sorted(folders.items())))


def load_run_file(folder: Path) -> Run:
    """What run.json of a folder says, without its measurements. Raises ResultError if it is missing or damaged."""
    path = folder / RUN_FILE
    if not path.is_file():
        hint = "give the folder below results/ that `pytest tests/bench` named at its end"
        raise ResultError(f"{folder} is not a run folder: it has no {RUN_FILE}", hint=hint)
    run = decode(RUN, _read(path), RUN_SCHEMA, path)
    if run.status is RunStatus.RUNNING and not is_being_written(folder):
        return replace(run, status=RunStatus.ABORTED, abort_reason=run.abort_reason or _NOT_FINISHED)
    return run


def _measurement_folders(folder: Path, run: Run) -> list[str]:
    """Names of those that run.json lists and of those that are there: a full disk can leave one unlisted."""
    parent = folder / MEASUREMENTS_FOLDER
    found = {entry.name for entry in parent.iterdir() if entry.is_dir()} if parent.is_dir() else set[str]()
    return sorted(found | set(run.measurements))


def _load_measurement(folder: Path, run: Run) -> Measurement:
    if folder.name.endswith(PARTIAL_SUFFIX):
        raise ResultError("its writing was cut short")
    if not folder.is_dir():
        raise ResultError("run.json lists it, but the folder is missing")
    path = folder / MEASUREMENT_FILE
    measurement = decode(MEASUREMENT, _read(path), MEASUREMENT_SCHEMA, path)
    # Those of the first schema do not say; their run had one.
    return measurement if measurement.kernel else replace(measurement, kernel=run.plan.kernels[0])


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ResultError(f"{path} cannot be read: {error.strerror or error}") from error
