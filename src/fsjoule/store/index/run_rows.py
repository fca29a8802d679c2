"""Reads a run folder into rows, and names its damaged parts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pydantic_core import from_json

from fsjoule.errors import ResultError
from fsjoule.host.inside import DOCUMENT_BYTES, read_inside
from fsjoule.model import Run, RunStatus
from fsjoule.model.kernel import Kernel
from fsjoule.model.metrics import Metric
from fsjoule.model.series import Origin, Point, Series
from fsjoule.store.folder import MEASUREMENT_FILE, RUN_FILE
from fsjoule.store.index.schema import DIGEST_BYTES, UNCERTAINTY_COLUMNS
from fsjoule.store.points import RunPoints, points_of, utc
from fsjoule.store.reader import load_run
from fsjoule.store.run_folders import FolderFault

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
    damaged: tuple[FolderFault, ...]


def read_run(folder: Path, known_as: str | None = None) -> ReadRun | FolderFault:
    """Read a run folder and name its damaged parts. A FolderFault if nothing of it is usable.

    `known_as` is its address if the folder is a copy.
    """
    try:
        # First: if the run continues meanwhile, its digest is outdated, and the next import notices.
        content = read_inside(folder, RUN_FILE, at_most=DOCUMENT_BYTES)
        read = points_of(load_run(folder))
        # load_run has raised if there is no run.json.
        return _rows(read, json.loads(content or b""), known_as or str(read.loaded.path))
    except ResultError as error:
        return FolderFault(folder, error.what)
    except (OSError, ValueError) as error:
        return FolderFault(folder, f"it cannot be read: {error}")


def _rows(read: RunPoints, raw: Mapping[str, object], path: str) -> ReadRun:
    measurements: list[ReadMeasurement] = []
    damaged = [*read.damaged]
    for series, point in read.points:
        try:
            measurements.append(_measurement(read, series, point))
        except ResultError as error:
            damaged.append(FolderFault(read.loaded.folders[point.number], error.what))
    return ReadRun(
        path=read.loaded.path,
        run_id=read.run.run_id,
        fixed_digest=_digest({name: raw.get(name) for name in _FIXED}),
        # An aborted run may be resumed.
        final_digest=_digest(raw) if raw.get("status") == RunStatus.COMPLETE else None,
        kernels=read.kernels,
        columns=_run_columns(read.run, read.origin, path),
        measurements=tuple(measurements),
        damaged=tuple(damaged),
    )


def _run_columns(run: Run, origin: Origin, path: str) -> dict[str, object]:
    return {
        "run_id": run.run_id,
        "path": path,
        "started_utc": utc(run.started_utc),
        "status": run.status.value,
        "simulated": run.simulated,
        "suite": run.plan.suite,
        "board": run.board.name if run.board else None,
        "branch": run.versions.get("branch"),
        "commit_id": run.versions.get("commit"),
        "kernel_role": run.versions.get("kernel_role"),
        **origin._asdict(),
        "job": (run.job.url or run.job.text) if run.job else None,
    }


def _measurement(read: RunPoints, series: Series, point: Point) -> ReadMeasurement:
    content = read.loaded.attachment(point.number, MEASUREMENT_FILE)
    if content is None:
        raise ResultError(f"its {MEASUREMENT_FILE} is gone")
    digest = _digest(_raw(content))
    return ReadMeasurement(
        series=series,
        kernel=point.kernel,
        number=point.number,
        digest=digest,
        columns={
            "number": point.number,
            "boot": point.boot,
            "repetition": point.repetition,
            "started_utc": point.started_utc,
            "valid": point.valid,
            "invalid_reasons": None if point.valid else _array(point.invalid_reasons),
            "digest": digest,
            "kernel_warnings": _array(point.kernel_warnings) if point.kernel_warnings else None,
            **figures_of(point),
        },
    )


def figures_of(point: Point) -> dict[str, float | None]:
    """The figures by column, in the order of the columns. Absent figures are None, never zero."""
    figures: dict[str, float | None] = {}
    for metric in Metric:
        figures[metric.row.column] = point.figures.get(metric)
        if metric in UNCERTAINTY_COLUMNS:
            figures[UNCERTAINTY_COLUMNS[metric]] = point.uncertainties.get(metric)
    return figures


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


def _array(texts: Sequence[str]) -> str:
    return json.dumps(texts, ensure_ascii=False)
