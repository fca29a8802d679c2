"""A run's documents in a job's log: what is left of a run if nobody can reach the worker's run folder.

A document is compressed and printed as lines of the job's output: `fsjoule-kept KIND PART/PARTS TEXT`. Traces and
attachments are not among them: they are a hundred times as large.
"""

from __future__ import annotations

import base64
import binascii
import re
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fsjoule.errors import ResultError
from fsjoule.host.inside import DOCUMENT_BYTES
from fsjoule.model import MEASUREMENT_SCHEMA, RUN_SCHEMA, Measurement, Run
from fsjoule.store.schemas import MEASUREMENT, RUN, decode, encode

_PART_CHARACTERS: Final = 3000
_LINE: Final = re.compile(r"fsjoule-kept (folder|run|measurement) (\d{1,5})/(\d{1,5}) ([A-Za-z0-9+/=]+)\s*$")


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
