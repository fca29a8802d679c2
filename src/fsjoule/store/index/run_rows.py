"""Finds run folders, reads them into rows, and names damaged ones."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from pydantic_core import from_json

from fsjoule.errors import ResultError
from fsjoule.host.inside import DOCUMENT_BYTES, read_inside
from fsjoule.model import Measurement, Run, RunStatus
from fsjoule.model.kernel import Kernel, kernels_of
from fsjoule.model.series import Series
from fsjoule.store.folder import MEASUREMENT_FILE, MEASUREMENTS_FOLDER, RUN_FILE
from fsjoule.store.index.columns import figures_of
from fsjoule.store.index.schema import DIGEST_BYTES
from fsjoule.store.reader import LoadedRun, load_run
from fsjoule.store.run_folders import Fault

# A longer name is surely a mistake, and PostgreSQL could not index it.
_LONGEST_NAME: Final = 99
_LARGEST_NUMBER: Final = 2**31 - 1
# Fields of run.json that never change; others may be added during the run.
_FIXED: Final = ("run_id", "started_utc", "simulated", "plan")


@dataclass(frozen=True, slots=True)
class ReadMeasurement:
    """One row of `measurements`, with series and kernel by value. `columns` lack the references."""

    series: Series
    kernel: Kernel | None
    number: int
    digest: bytes
    columns: Mapping[str, object] = field(repr=False)


@dataclass(frozen=True, slots=True)
class ReadRun:
    """One row of `runs` with its measurements; `final_digest` is None if incomplete, `kernels` are by label."""

    path: Path
    run_id: str
    fixed_digest: bytes
    final_digest: bytes | None
    kernels: Mapping[str, Kernel]
    columns: Mapping[str, object] = field(repr=False)
    measurements: tuple[ReadMeasurement, ...] = field(repr=False)
    damaged: tuple[Fault, ...]


def read_run(folder: Path, known_as: str | None = None) -> ReadRun | Fault:
    """Read a run folder and name its damaged parts. A Fault if nothing of it is usable.

    `known_as` is its address if the folder is a copy.
    """
    try:
        # First: if the run continues meanwhile, its digest is outdated, and the next import notices.
        content = read_inside(folder, RUN_FILE, at_most=DOCUMENT_BYTES)
        loaded = load_run(folder)
        # load_run has raised if there is no run.json.
        return _rows(loaded, json.loads(content or b""), known_as or str(loaded.path))
    except ResultError as error:
        return Fault(folder, error.what)
    except (OSError, ValueError) as error:
        return Fault(folder, f"it cannot be read: {error}")


def _rows(loaded: LoadedRun, raw: Mapping[str, object], path: str) -> ReadRun:
    run = loaded.run
    kernels = kernels_of(run)
    columns = _run_columns(run, path)
    for name, text in _names(run, kernels):
        _check_name(name, text)
    measurements: list[ReadMeasurement] = []
    damaged = [Fault(loaded.path / MEASUREMENTS_FOLDER / name, why) for name, why in loaded.damaged.items()]
    for measurement in loaded.measurements:
        try:
            measurements.append(_measurement(loaded, measurement, kernels.get(measurement.kernel)))
        except ResultError as error:
            damaged.append(Fault(loaded.folders[measurement.number], error.what))
    return ReadRun(
        path=loaded.path,
        run_id=run.run_id,
        fixed_digest=_digest({name: raw.get(name) for name in _FIXED}),
        # An aborted run may be resumed.
        final_digest=_digest(raw) if raw.get("status") == RunStatus.COMPLETE else None,
        kernels=kernels,
        columns=columns,
        measurements=tuple(measurements),
        damaged=tuple(damaged),
    )


def _run_columns(run: Run, path: str) -> dict[str, object]:
    return {
        "run_id": run.run_id,
        "path": path,
        "started_utc": _utc(run.started_utc),
        "status": run.status.value,
        "simulated": run.simulated,
        "suite": run.plan.suite,
        "board": run.board.name if run.board else None,
        "branch": run.versions.get("branch"),
        "commit_id": run.versions.get("commit"),
        "kernel_role": run.versions.get("kernel_role"),
        "place": run.place_names or None,
        "exporter": run.exporter_names if run.labs else None,
        "meter": run.meter_names or None,
        "job": (run.job.url or run.job.text) if run.job else None,
    }


def _names(run: Run, kernels: Mapping[str, Kernel]) -> Iterator[tuple[str, str]]:
    yield "run_id", run.run_id
    for label, kernel in kernels.items():
        yield "the kernel's label", label
        yield "kernel_release", kernel.release
        yield "the kernel's version", kernel.version or "-"


def _measurement(loaded: LoadedRun, measurement: Measurement, kernel: Kernel | None) -> ReadMeasurement:
    content = loaded.attachment(measurement.number, MEASUREMENT_FILE)
    if content is None:
        raise ResultError(f"its {MEASUREMENT_FILE} is gone")
    counts = {"number": measurement.number, "boot": measurement.boot, "repetition": measurement.repetition}
    for name, count in counts.items():
        if not 0 <= count <= _LARGEST_NUMBER:
            raise ResultError(f"{name}: {count} is impossible")
    # An emulated meter on a real board makes it simulated; a simulated run has nothing else.
    series = Series(measurement.series, measurement.simulated or loaded.run.simulated)
    digest = _digest(_raw(content))
    return ReadMeasurement(
        series=series,
        kernel=kernel,
        number=measurement.number,
        digest=digest,
        columns={
            **counts,
            "started_utc": _utc(measurement.started_utc),
            "valid": measurement.valid,
            "invalid_reasons": None if measurement.valid else _array(measurement.invalid_reasons),
            "digest": digest,
            "kernel_warnings": _array(measurement.kernel_warnings) if measurement.kernel_warnings else None,
            **figures_of(measurement),
        },
    )


def _digest(content: object) -> bytes:
    """A digest of a JSON file's content, not of its layout."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=DIGEST_BYTES).digest()


def _raw(content: bytes) -> object:
    """A file's content word for word, because its digest must not depend on how text is made plain."""
    try:
        return from_json(content)  # fast, because there may be a million
    except ValueError:
        return json.loads(content)  # also takes halves of characters


def _utc(text: str) -> str:
    """A checked time in the index's form: UTC, to the second, so that texts sort as times."""
    return datetime.fromisoformat(text).astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _check_name(name: str, text: str) -> None:
    if not text.isprintable() or not 0 < len(text) <= _LONGEST_NAME:
        raise ResultError(
            f"{name}: {text[:_LONGEST_NAME]!r} is not a name of up to {_LONGEST_NAME} printable characters"
        )


def _array(texts: Sequence[str]) -> str:
    return json.dumps(texts, ensure_ascii=False)
