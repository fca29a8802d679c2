"""Records of an import become run folders: all of a command's, or none."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from fsjoule.errors import ResultError, StorageError
from fsjoule.model import (
    BoardFacts,
    ImportFacts,
    KernelFacts,
    KernelOrigin,
    Measurement,
    Plan,
    Planned,
    Provision,
    Run,
    RunStatus,
    SeriesKey,
)
from fsjoule.runs.imports.importers import UNKNOWN, Asked, Importer, Record, content_of
from fsjoule.store.folder import FETCHED, RunFolder, folder_name
from fsjoule.store.reader import load_run

_ID_LENGTH: Final = 10


@dataclass(frozen=True, slots=True)
class ImportedRun:
    """`known`: it was there already, from the same file."""

    path: Path
    run_id: str
    measurements: int
    known: bool


def import_files(importer: Importer, files: Sequence[Path], asked: Asked, into: Path) -> list[ImportedRun]:
    """Import files, each as one run for each time, board and kernel in it.

    Raises ResultError for a file that is not of the format, ConfigError for what the user does not say, StorageError.
    Nothing is written then.
    """
    runs = [made for file in files for made in _runs_of(importer, file, asked)]
    if twice := [run.run_id for run, _, _ in runs if sum(run.run_id == other.run_id for other, _, _ in runs) > 1]:
        raise ResultError(f"two of these files have the same content ({twice[0]})", hint="name each once")
    done: list[ImportedRun] = []
    try:
        into.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=FETCHED, dir=into) as work:
            made = [_written(run, measurements, records, Path(work)) for run, measurements, records in runs]
            for path, (run, measurements, _) in zip(made, runs, strict=True):
                there = into / path.name
                known = there.exists() and load_run(there).run.imported == run.imported
                if not known:
                    path.rename(there)
                done.append(ImportedRun(there, run.run_id, len(measurements), known))
    except OSError as error:
        raise StorageError(f"{into} cannot be written: {error.strerror or error}") from error
    return done


_Made = tuple[Run, list[Measurement], list[Record]]


def _runs_of(importer: Importer, file: Path, asked: Asked) -> Iterable[_Made]:
    digest = hashlib.sha256(content_of(file)).hexdigest()
    groups: dict[tuple[str, str, str], list[Record]] = {}
    for record in importer.records(file, asked):
        key = (record.time_utc, record.board or asked.board, record.kernel or asked.kernel)
        groups.setdefault(key, []).append(record)
    if not groups:
        raise ResultError(f"{file}: it has no figure")
    facts = ImportFacts(importer.name, {file.name: digest})
    for key, records in groups.items():
        run, measurements, stored = _run("", key, records, facts, asked)
        # What is stored, and not what was asked: an option that the format does not use makes no second run.
        name = f"{digest} {' '.join(key)} {[(m.series, m.stated, m.energy, m.simulated) for m in measurements]}"
        run_id = hashlib.sha256(name.encode()).hexdigest()[:_ID_LENGTH]
        yield replace(run, run_id=run_id), measurements, stored


def _run(run_id: str, key: tuple[str, str, str], records: list[Record], facts: ImportFacts, asked: Asked) -> _Made:
    time_utc, board, kernel = key
    suite = f"imported from {facts.format}"
    seen: dict[tuple[str, str], int] = {}
    measurements: list[Measurement] = []
    for number, record in enumerate(records, start=1):
        filesystem = record.filesystem or asked.filesystem
        workload = record.workload
        repetition = seen[filesystem, workload.slug] = seen.get((filesystem, workload.slug), 0) + 1
        measurements.append(
            Measurement(
                number=number,
                slug=f"{filesystem.replace(':', '.')}-{workload.slug}",
                repetition=repetition,
                boot=record.boot,
                kernel=kernel,
                series=SeriesKey(suite, board, UNKNOWN, filesystem, (), (), Provision.SCRATCH, workload.identity),
                workload=workload,
                started_utc=time_utc,
                simulated=asked.simulated,
                invalid_reasons=record.invalid_reasons,
                notes=(facts.text,),
                window=record.window,
                window_s=record.window.duration_s if record.window else None,
                energy=record.energy,
                samples=record.trace.counts if record.trace else None,
                stated={metric.value: figure for metric, figure in record.figures.items()},
            )
        )
    entries = tuple(
        Planned(m.number, m.repetition, kernel, m.series.filesystem, m.workload, suite, Provision.SCRATCH, UNKNOWN)
        for m in measurements
    )
    filesystems = tuple(dict.fromkeys(m.series.filesystem for m in measurements))
    run = Run(
        run_id=run_id,
        started_utc=time_utc,
        status=RunStatus.COMPLETE,
        simulated=asked.simulated,
        plan=Plan(suite, filesystems, (kernel,), max(seen.values()), 0, {}, entries),
        kernels=(KernelFacts(kernel, kernel, KernelOrigin.PACKAGE, kernel, ""),),
        boards={kernel: BoardFacts(board, "", kernel, "", "", 0, 0, UNKNOWN, 0, "", filesystems[0])},
        meter=records[0].trace.info if records[0].trace else None,
        finished_utc=time_utc,
        command=("fsjoule", *sys.argv[1:]),
        imported=facts,
    )
    return run, measurements, records


def _written(run: Run, measurements: Sequence[Measurement], records: Sequence[Record], work: Path) -> Path:
    if (work / folder_name(run, "board")).exists():
        raise ResultError(f"{run.run_id}: two runs of one name")
    folder = RunFolder(work)
    folder.begin(run)
    for measurement, record in zip(measurements, records, strict=True):
        folder.add(measurement, record.trace, dict(record.attachments))
    folder.finish(run)
    return folder.path
