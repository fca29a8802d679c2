"""Figures in text: fio's JSON, a CSV of one's own, and results of a LAVA job."""

from __future__ import annotations

import csv
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, cast

import yaml

from fsjoule.model import MIB, Stated
from fsjoule.model.metrics import Metric
from fsjoule.runs.imports.importers import MEANT, Asked, Record, content_of, metric_named, stated, time_of, wrong

_ZONE: Final = re.compile(r"(Z|[+-]\d\d:?\d\d)$")
_BEGIN: Final = re.compile(r"^\{", re.MULTILINE)
_SIDES: Final = ("read", "write", "trim", "mixed")
# Options that do not change what is measured: names, places, seeds, and how fio reports.
_ASIDE: Final = (
    *("name", "directory", "filename", "randseed", "exec_prerun", "exec_postrun", "group_reporting", "output"),
    *("output-format", "eta", "description", "write_bw_log", "write_lat_log", "write_iops_log", "log_avg_msec"),
)
_COLUMNS: Final = (
    *("workload", "figure", "value", "unit", "uncertainty", "kernel", "time", "board", "fs", "boot", "invalid"),
)
_NEEDED: Final = ("workload", "figure", "value", "unit")


def read_fio(file: Path, asked: Asked) -> Iterator[Record]:
    """A record for each job and direction. Its series is by content: the options that change what is measured."""
    content = content_of(file)
    text = content.decode(errors="replace")
    begin = _BEGIN.search(text)
    try:
        if begin is None:
            raise wrong(file, 1, "it has no report of fio's", hint="fio --output-format=json --output=FILE")
        document = cast("dict[str, Any]", json.JSONDecoder().raw_decode(text, begin.start())[0])
        jobs = cast("list[dict[str, Any]]", document["jobs"])
        names = [(job["jobname"], job.get("groupid")) for job in jobs]
        stamp_s = float(document.get("timestamp_ms", 1000 * document.get("timestamp", 0))) / 1000
        said = datetime.fromtimestamp(stamp_s, UTC).isoformat(timespec="seconds") if stamp_s else ""
        time_utc = time_of(file, None, said, asked)
        shared = cast("dict[str, str]", document.get("global options", {}))
        for number, job in enumerate(jobs, start=1):
            where = f"job {number} ({job['jobname']})"
            if names.count(names[number - 1]) > 1:
                raise wrong(file, None, f"{where} has several reports", hint="fio --group_reporting=1 makes one")
            sides = [side for side in _SIDES if side in job and job[side].get("total_ios")]
            reasons = [f"fio ended with error {job['error']}"] if job.get("error") else []
            if not sides and not reasons:
                raise wrong(file, None, f"{where} moved no data")
            options = {**shared, **job.get("job options", {})}
            # A job that failed before it moved anything is told, without figures.
            for side in sides or [""]:
                yield Record(
                    where=f"{file}, {where}",
                    time_utc=time_utc,
                    work=_work(job["jobname"], options, side if len(sides) > 1 else ""),
                    figures=_of_side(job[side]) if side else {},
                    invalid_reasons=tuple(reasons),
                    attachments={"fio.json": content},
                )
    except json.JSONDecodeError as error:
        raise wrong(file, error.lineno, f"it is no JSON: {error.msg}") from error
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise wrong(file, None, f"it is no report of fio 3's: {type(error).__name__}: {error}") from error


def _work(name: str, options: Mapping[str, str], side: str) -> str:
    kept = sorted((key, str(value)) for key, value in options.items() if key not in _ASIDE)
    digest = hashlib.sha256(json.dumps(kept).encode()).hexdigest()[:8]
    parts = (
        name,
        options.get("rw", options.get("readwrite", "read")),
        options.get("bs", options.get("blocksize", "4k")),
    )
    return "-".join(filter(None, (*map(str, parts), side, digest)))


def _of_side(side: Mapping[str, Any]) -> dict[Metric, Stated]:
    runtime_s = float(side["runtime"]) / 1e3
    figures = {
        Metric.THROUGHPUT: float(side["io_bytes"]) / MIB / runtime_s if runtime_s else None,
        Metric.IOPS: float(side["total_ios"]) / runtime_s if runtime_s else None,
    }
    for key in ("clat_ns", "lat_ns"):
        percentiles = {float(name): ns for name, ns in side.get(key, {}).get("percentile", {}).items()}
        if 99.0 in percentiles:  # noqa: PLR2004 - the 99th
            figures.setdefault(Metric.P99_LATENCY, percentiles[99.0] / 1e6)
    return {metric: Stated(figure) for metric, figure in figures.items() if figure}


def read_csv(file: Path, asked: Asked) -> Iterable[Record]:
    """A row is a figure; rows with the same names, time and boot are one measurement."""
    try:
        reader = csv.DictReader(content_of(file).decode("utf-8-sig").splitlines(), strict=True)
        columns = reader.fieldnames or ()
    except (UnicodeDecodeError, csv.Error) as error:
        raise wrong(file, 1, f"it is no CSV in UTF-8: {error}") from error
    if missing := [name for name in _NEEDED if name not in columns]:
        raise wrong(file, 1, f"it has no column {', '.join(missing)}", hint=f"its columns may be {', '.join(_COLUMNS)}")
    if unknown := [name for name in columns if name not in _COLUMNS]:
        raise wrong(file, 1, f"unknown column {', '.join(unknown)}", hint=f"its columns may be {', '.join(_COLUMNS)}")
    records: dict[tuple[str, ...], Record] = {}
    rows = iter(reader)
    while True:
        try:
            row = next(rows, None)
        except csv.Error as error:
            raise wrong(file, reader.line_num, f"it is no CSV: {error}") from error
        if row is None:
            return records.values()
        _add_row(
            file, reader.line_num, {name: (text or "").strip() for name, text in row.items() if name}, asked, records
        )


def _add_row(
    file: Path, line: int, row: Mapping[str, str], asked: Asked, records: dict[tuple[str, ...], Record]
) -> None:
    metric = metric_named(row["figure"])
    if metric is None or not row["workload"]:
        raise wrong(file, line, f"{row['figure']!r} is no figure" if row["workload"] else "it names no workload")
    figure = stated(metric, row["value"], row["unit"], row.get("uncertainty"), asked)
    if isinstance(figure, str):
        raise wrong(file, line, figure)
    boot = row.get("boot") or "1"
    if not boot.isascii() or not boot.isdigit():
        raise wrong(file, line, f"boot {boot!r} is no number")
    time_utc = time_of(file, line, row.get("time", ""), asked)
    names = {name: row.get(name, "") for name in ("board", "fs", "kernel")}
    key = (row["workload"], time_utc, boot, *names.values())
    known = records.setdefault(
        key,
        Record(
            where=f"{file}, line {line}",
            time_utc=time_utc,
            work=row["workload"],
            figures=dict[Metric, Stated](),
            board=names["board"],
            filesystem=names["fs"],
            kernel=names["kernel"],
            boot=int(boot),
            invalid_reasons=(row["invalid"],) if row.get("invalid") else (),
        ),
    )
    if (reason := row.get("invalid")) and reason not in known.invalid_reasons:
        known = records[key] = replace(known, invalid_reasons=(*known.invalid_reasons, reason))
    if metric in known.figures:
        raise wrong(
            file, line, f"{metric.value} of {row['workload']} is there twice ({known.where})", hint="column boot"
        )
    cast("dict[Metric, Stated]", known.figures)[metric] = figure


def read_lava(file: Path, asked: Asked) -> Iterator[Record]:
    """A record for each test case with a measurement in a known unit; a case that did not pass is invalid."""
    text = content_of(file).decode(errors="replace")
    try:
        if file.suffix == ".csv":
            cases: Any = list(csv.DictReader(text.splitlines(), strict=True))
        else:
            cases = yaml.load(text, Loader=yaml.CSafeLoader)
    except (yaml.MarkedYAMLError, csv.Error, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        raise wrong(file, mark.line + 1 if mark else None, f"it cannot be read: {error}") from error
    listed = cast("list[Any]", cases) if isinstance(cases, list) else [None]
    if not all(isinstance(each, dict) and "name" in each for each in listed):
        raise wrong(
            file, 1, "it has no test cases", hint="/api/v0.2/jobs/JOB/yaml/ or /csv/, or `lavacli results --yaml`"
        )
    time_utc = asked.time_utc
    measured = False
    for number, case in enumerate(cast("list[dict[str, Any]]", listed), start=1):
        unit = str(case.get("unit") or case.get("units") or "")
        metric, value = MEANT.get(unit), case.get("measurement")
        if metric is None or value in (None, "", "None"):
            continue
        measured = True
        where = f"case {number} ({case['name']})"
        figure = stated(metric, value, unit, None, asked)
        if isinstance(figure, str):
            raise wrong(file, None, f"{where}: {figure}")
        # The job's run is of one time: that of its first figure.
        time_utc = time_utc or time_of(file, None, _utc(case.get("logged")), asked)
        result = str(case.get("result", "pass"))
        yield Record(
            where=f"{file}, {where}",
            time_utc=time_utc,
            work="-".join(filter(None, (str(case.get("suite") or ""), str(case["name"])))),
            figures={metric: figure},
            invalid_reasons=() if result == "pass" else (f"LAVA: {result}",),
        )
    if not measured:
        raise wrong(file, None, "no test case has a measurement in a known unit", hint=", ".join(MEANT))


def _utc(logged: object) -> str:
    """LAVA's time as text; it is UTC if it names no zone."""
    said = logged.isoformat() if isinstance(logged, datetime) else str(logged or "").strip().replace(" ", "T")
    return said if not said or _ZONE.search(said) else f"{said}+00:00"
