"""fio: a workload becomes arguments, fio's JSON becomes a FioResult. Pure."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any, Final, cast

from fsjoule.errors import MeasurementInvalid
from fsjoule.model import MIB, FioResult, FioWorkload, IoPattern

JOB_NAME: Final = "fsjoule"
_BEGIN: Final = re.compile(r"^\{", re.MULTILINE)
_TRIED: Final = 20
_OWN_BUFFERS: Final = ("zero_buffers", "scramble_buffers", "buffer_pattern", "refill_buffers")
_ENOSPC: Final = 28
_ERRNO_NAMES: Final = {
    5: "input/output error",
    22: "invalid argument",
    _ENOSPC: "no space left on device",
    30: "read-only",
}


def layout_argv(workload: FioWorkload, place: str) -> tuple[str, ...]:
    """Arguments that lay out the files of a reading workload, so that its window contains no writing.

    A device without a filesystem is written first, because a card reads unwritten blocks faster.
    """
    if _is_device(place):
        once = replace(workload, io_bytes=0, runtime_s=0.0, jobs=1, depth=1, options=(), beside=())
        once = replace(once, size_bytes=max(each.size_bytes for each in workload.together))
        written = replace(once, operation=IoPattern.WRITE, block_size_bytes=MIB)
        return ("fio", *_jobs(written, place))
    return ("fio", *_jobs(workload, place, "--create_only=1", reading=True))


def run_argv(workload: FioWorkload, place: str, *, output: str, before: str, after: str, seed: int) -> tuple[str, ...]:
    """Arguments that run the workload, in a directory or, without a filesystem, on a device.

    `before` and `after` are programs on the board that fio runs right before the first and after the last I/O
    (`exec_prerun` comes after the layout, `exec_postrun` after `end_fsync`); each job runs them. `after` may be empty.
    fio writes its JSON to `output`.
    """
    return (
        "fio",
        f"--output={output}",
        "--output-format=json",
        "--eta=never",
        *_jobs(
            *(workload, place, f"--exec_prerun={before}"),
            *((f"--exec_postrun={after}",) if after else ()),
            f"--randseed={seed}",
        ),
    )


def _is_device(place: str) -> bool:
    return place.startswith("/dev/")


def _jobs(workload: FioWorkload, place: str, *more: str, reading: bool = False) -> tuple[str, ...]:
    """All jobs with the words `more` in each: fio's command line has no options for all. With `reading` those only."""
    argv: list[str] = []
    for number, each in enumerate(workload.together):
        name = f"{JOB_NAME}-{number}" if workload.beside else JOB_NAME
        if each.operation.reads or not reading:
            argv += [*_job(each, place, name, mixed=workload.mixed), *more]
    return tuple(argv)


def _job(workload: FioWorkload, place: str, name: str, *, mixed: bool) -> tuple[str, ...]:
    files: dict[str, str | int] = {"directory": place, "nrfiles": workload.files}
    if _is_device(place):
        files = {"filename": place}
    elif workload.shared:
        files = {"directory": place, "filename": JOB_NAME}  # of all jobs
    options = {
        "name": name,
        **files,
        "rw": workload.operation.value,
        "bs": workload.block_size_bytes,
        "size": workload.size_bytes,
        "numjobs": workload.jobs,
        "iodepth": workload.depth,
        "ioengine": workload.engine,
        "direct": int(workload.direct),
        # A buffered write counts once it has reached the card; fio's runtime includes that time.
        "end_fsync": int(workload.end_fsync and workload.operation.writes),
        "fsync": workload.fsync_every if workload.operation.writes else 0,
        # Sizes are powers of two. A ramp would take bytes out of the result, but no joules out of the window.
        "kb_base": 1024,
        "ramp_time": 0,
        "group_reporting": 1,
        # Incompressible, or a compressing filesystem would compress zeros.
        "refill_buffers": int(workload.operation.writes),
    }
    if workload.io_bytes:
        options["io_size"] = workload.io_bytes
    if workload.runtime_s:
        options |= {"time_based": 1, "runtime": f"{round(workload.runtime_s * 1000)}ms"}
    if mixed:
        # fio before 3.27 knows no "mixed", which is what 1 still means.
        options["unified_rw_reporting"] = 1
    if workload.verifies:
        options["verify_state_save"] = 0  # a file in the folder that fio runs in
    if any(name in _OWN_BUFFERS for name, _ in workload.options):
        del options["refill_buffers"]
    return tuple(f"--{key}={value}" for key, value in (options | dict(workload.options)).items())


def parse(text: str, argv: Sequence[str] = ()) -> FioResult:
    """Read fio's JSON output (fio 3.x, one group), the last report if there are several.

    Raises MeasurementInvalid if it has no report, the report lacks a field, or names another value of an option than
    `argv`. A job that failed by fio's own account is returned, with its `error` and `errors`.
    """
    try:
        document = _report(text)
        # It counts latencies in microseconds, under other names.
        if re.match(r"fio-[12]\.", version := str(document["fio version"])):
            raise MeasurementInvalid("fio", [f"the board has {version}: fio 3.1 or newer is needed"])
        [job] = cast("list[dict[str, Any]]", document["jobs"])
        options = cast("dict[str, Any]", job["job options"])
        words = dict.fromkeys(word for word in argv if re.match("--[a-z_]+=", word))
        pairs = [word.removeprefix("--").split("=", 1) for word in words]
        # The report has the options of one job: with several, what they differ in cannot be compared.
        asked = {key: value for key, value in pairs if sum(name == key for name, _ in pairs) == 1}
        # No version of fio tells all options.
        if others := [key for key, value in asked.items() if str(options.get(key, value)) != value]:
            differences = ", ".join(f"{key} {options[key]} instead of {asked[key]}" for key in others)
            raise MeasurementInvalid("fio", [f"it ran another job than was asked: {differences}"])
        mixed = asked.get("unified_rw_reporting") == "1"
        side = cast("dict[str, Any]", job["mixed" if mixed else _side(IoPattern(options.get("rw") or asked["rw"]))])
        # fio before 3.18 tells no N.
        counted = side["clat_ns"].get("N", side["clat_ns"]["mean"])
        latency = side["clat_ns"] if counted else side["lat_ns"]
        # What a job has written it verifies afterwards, and tells apart.
        sides = [side] if mixed or "verify" not in asked or asked.get("do_verify") == "0" else [side, job["read"]]
        return _possible(
            FioResult(
                version=version,
                runtime_ns=sum(int(each["runtime"]) for each in sides) * 1_000_000,
                io_bytes=sum(int(each["io_bytes"]) for each in sides),
                ios=sum(int(each["total_ios"]) for each in sides),
                latency_mean_ns=float(latency["mean"]),
                latency_max_ns=int(latency["max"]),
                latency_percentiles_ns=_percentiles_ns(latency),
                usr_cpu_percent=float(job["usr_cpu"]),
                sys_cpu_percent=float(job["sys_cpu"]),
                errors=int(job.get("total_err", 0)),
                error=int(job["error"]),
                fsync_percentiles_ns=_percentiles_ns(job.get("sync", {}).get("lat_ns", {})),
            )
        )
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        first = text.strip().splitlines()[:3]
        raise MeasurementInvalid(
            "fio", [f"its output cannot be read ({error!r}): {' | '.join(first)[:300]}"]
        ) from error


def _possible(result: FioResult) -> FioResult:
    """Raises ValueError if a figure is negative or no number."""
    for name, value in asdict(result).items():
        if isinstance(value, (int, float)) and not 0 <= value < math.inf:
            raise ValueError(f"{name} {value}")
    return result


def _report(text: str) -> dict[str, Any]:
    """The last report in fio's output, which has its complaints, too: they may have braces. Raises ValueError."""
    decoder = json.JSONDecoder()
    # A report begins a line. The board makes the text: not every brace of a large one is tried.
    for begin in [each.start() for each in _BEGIN.finditer(text)][: -_TRIED - 1 : -1]:
        with suppress(ValueError, RecursionError):
            document = decoder.raw_decode(text, begin)[0]
            if isinstance(document.get("jobs"), list):
                return cast("dict[str, Any]", document)
    raise ValueError("no report")


def _percentiles_ns(latency: dict[str, Any]) -> dict[str, int]:
    return {f"{float(k):g}": int(v) for k, v in latency.get("percentile", {}).items()}


def _side(pattern: IoPattern) -> str:
    if pattern.reads and pattern.writes:
        return "mixed"
    return "read" if pattern.reads else "write"


def complaints(result: FioResult) -> list[str]:
    """Why a result is invalid; empty if fio reports no problem."""
    reasons: list[str] = []
    if result.error:
        reasons.append(f"fio ended with error {result.error} ({_ERRNO_NAMES.get(result.error, 'errno')})")
    if result.errors:
        reasons.append(f"fio counted {result.errors} I/O errors")
    if not result.io_bytes or not result.runtime_ns:
        reasons.append("fio moved no data")
    return reasons
