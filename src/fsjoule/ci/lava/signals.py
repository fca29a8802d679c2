"""A bench's measurements as results of a LAVA job, each as soon as it is stored; and the run's documents in its log.

A job's own programs write the signals. They are on the PATH of a job's steps, and nowhere else.

The documents are what is left of a run if nobody can reach the worker's run folder. Each is compressed and printed as
lines of the job's output: `fsjoule-kept KIND PART/PARTS TEXT`. Traces and attachments are not among them: they are a
hundred times as large.
"""

from __future__ import annotations

import base64
import binascii
import logging
import re
import shutil
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fsjoule.errors import HostError, ResultError
from fsjoule.host import process
from fsjoule.host.inside import DOCUMENT_BYTES
from fsjoule.model import MEASUREMENT_SCHEMA, RUN_SCHEMA, Measurement, Run, RunStatus
from fsjoule.model.metrics import figure_of, metrics_told
from fsjoule.store.gate import Gated
from fsjoule.store.schemas import MEASUREMENT, RUN, decode, encode

_PART_CHARACTERS: Final = 3000
_LINE: Final = re.compile(r"fsjoule-kept (folder|run|measurement) (\d{1,5})/(\d{1,5}) ([A-Za-z0-9+/=]+)\s*$")
_log: Final = logging.getLogger(__name__)

_CASE: Final = "lava-test-case"
_SET: Final = "lava-test-set"
_TIMEOUT_S: Final = 30.0
# A name with another character would be cut, or split the server's address of it.
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_.-]+")


def signals_of(environment: Mapping[str, str]) -> Signals | None:
    """The signals of the LAVA job that this process is part of; None outside of LAVA."""
    if "LAVA_JOB_ID" not in environment or shutil.which(_CASE) is None:
        return None
    return Signals()


class Signals:
    """Tells LAVA of a run. `say` prints a line of the job's output; a signal is one of them.

    The set is the suite, and says so if its figures are simulated. A case is a series, by its short name, and a metric:
    `ext4-read-16k.throughput`; with several kernels the label comes first. The cases of an invalid measurement fail,
    with its reasons in the log and without figures. A figure that a valid measurement lacks is skipped.

    The log also gets the run's documents, from which `fsjoule lava pull` makes the run anew. If a run is
    resumed, the documents of earlier jobs are among them.
    """

    def __init__(self) -> None:
        self._several_kernels = False

    def opened(self, run: Run, folder: Path, earlier: Sequence[Measurement] = ()) -> None:
        self._several_kernels = len(run.plan.kernels) > 1
        case(f"run-{run.run_id}", passed=True)
        self._keep(folder_lines(folder))
        self._keep(run_lines(run))
        for measurement in earlier:
            self._keep(measurement_lines(measurement))
        self._signal(_SET, "start", safe(run.plan.suite) + ("-simulated" if run.simulated else ""))

    def stored(self, measurement: Measurement) -> None:
        self._keep(measurement_lines(measurement))
        kernel = f"{measurement.kernel}-" if self._several_kernels else ""
        name = safe(f"{kernel}{measurement.slug}")
        cases = {f"{name}.{metric.value}": metric for metric in metrics_told(measurement)}
        if not measurement.valid:
            with tempfile.NamedTemporaryFile("w", prefix="fsjoule-", suffix=".txt") as file:
                file.writelines(f"{name}: {reason}\n" for reason in measurement.invalid_reasons)
                file.flush()
                for each in cases or (name,):
                    self._signal(_CASE, each, "--result", "fail", "--output", file.name)
        elif not cases:
            # A power cut has an outcome and no figures; the bench's own line tells it.
            case(name, passed=True)
        else:
            for each, metric in cases.items():
                figure = figure_of(measurement, metric)
                if figure is None:
                    self._signal(_CASE, each, "--result", "skip")
                else:
                    case(each, passed=True, figure=figure, unit=metric.unit)

    def closed(self, run: Run) -> None:
        self._keep(run_lines(run))
        self._signal(_SET, "stop")
        if run.abort_reason:
            _log.info("the run was aborted: %s", run.abort_reason)
        case("run-complete", passed=run.status is RunStatus.COMPLETE)

    def judged(self, gated: Gated) -> None:
        """Tell a gate's answer: each figure's change in percent as a case of the set `gate`, and the verdict, last.

        What is not decided has the result "unknown".
        """
        self._signal(_SET, "start", "gate")
        for finding in gated.findings:
            change = () if finding.ratio is None else ("--measurement", repr((finding.ratio - 1) * 100), "--units", "%")
            result = "fail" if finding.regressed else "unknown" if finding.undecided else "pass"
            self._signal(_CASE, safe(f"{finding.subject.name}.{finding.metric}"), "--result", result, *change)
        self._signal(_SET, "stop")
        _log.info("gate: %s; %s", gated.verdict.value, gated.ended)

    def _keep(self, lines: Iterable[str]) -> None:
        for line in lines:
            _log.info("%s", line)

    def _signal(self, *words: str) -> None:
        signal(words)


def signal(words: Sequence[str]) -> None:
    """Write a signal. A job that LAVA has ended hears nothing any more: no reason to lose a run."""
    try:
        written = process.run(words, timeout_s=_TIMEOUT_S)
    except HostError as error:
        _log.warning("LAVA was not told: %s", error.what)
        return
    for line in written.stdout.decode(errors="replace").splitlines():
        _log.info("%s", line)


def case(name: str, *, passed: bool, figure: float | None = None, unit: str = "") -> None:
    """Tell one result."""
    words = [_CASE, safe(name), "--result", "pass" if passed else "fail"]
    if figure is not None:
        words += ["--measurement", repr(float(figure)), *(["--units", unit] if unit else [])]
    signal(words)


def safe(name: str) -> str:
    """The name with only those characters that LAVA takes in the name of a case or a set."""
    return _UNSAFE.sub("_", name)


@dataclass(frozen=True, slots=True)
class LogContents:
    """The contents of a log: the run's folder on the worker, its last `run.json`, and its measurements by number."""

    folder: str
    run: Run
    measurements: tuple[Measurement, ...]


def folder_lines(folder: Path) -> Iterator[str]:
    return _lines("folder", str(folder).encode())


def run_lines(run: Run) -> Iterator[str]:
    return _lines("run", encode(RUN, run, "the run"))


def measurement_lines(measurement: Measurement) -> Iterator[str]:
    return _lines("measurement", encode(MEASUREMENT, measurement, f"measurement {measurement.slug}"))


def kept_in(lines: Iterable[str], where: str) -> LogContents | None:
    """The run whose documents are among the lines of a log; None if there is none. Raises ResultError for damaged ones.

    A run that was resumed in the same job has each of its measurements once. Of several runs it is the last.
    """
    run: Run | None = None
    folder = ""
    measurements: dict[int, Measurement] = {}
    for kind, content in _documents(lines, where):
        match kind:
            case "folder":
                folder = content.decode(errors="replace")
            case "run":
                known, run = run, decode(RUN, content, RUN_SCHEMA, Path(where))
                if known is not None and known.run_id != run.run_id:
                    measurements.clear()
            case _:
                found = decode(MEASUREMENT, content, MEASUREMENT_SCHEMA, Path(where))
                measurements[found.number] = found
    if run is None:
        return None
    return LogContents(folder, run, tuple(measurements[number] for number in sorted(measurements)))


def _lines(kind: str, content: bytes) -> Iterator[str]:
    text = base64.b64encode(zlib.compress(content, 9)).decode()
    parts = [text[start : start + _PART_CHARACTERS] for start in range(0, len(text), _PART_CHARACTERS)]
    for number, part in enumerate(parts, 1):
        yield f"fsjoule-kept {kind} {number}/{len(parts)} {part}"


def _documents(lines: Iterable[str], where: str) -> Iterator[tuple[str, bytes]]:
    """Whole documents. One that the job's end has cut off is left out: it never was whole."""
    parts: list[str] = []
    for line in lines:
        found = _LINE.search(line)
        if found is None:
            continue
        number, last = int(found[2]), int(found[3])
        if number == 1:
            parts = []
        parts.append(found[4])
        if number == last and len(parts) == last:
            yield found[1], _unpacked("".join(parts), where)


def _unpacked(text: str, where: str) -> bytes:
    unpack = zlib.decompressobj()
    try:
        content = unpack.decompress(base64.b64decode(text, validate=True), DOCUMENT_BYTES)
    except (binascii.Error, zlib.error) as error:
        raise ResultError(f"{where} holds a damaged document of a run: {error}") from error
    if not unpack.eof:
        raise ResultError(f"{where} holds a document of a run that is too large, or cut off")
    return content
