"""Run folders as `RunFolder` leaves them, written at once, without flushing and without reading them back.

The disk takes longer for thousands of flushes than the tests for all else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from fsjoule.host.json_text import json_text
from fsjoule.model import Measurement, Run, Trace
from fsjoule.store.folder import MEASUREMENT_FILE, MEASUREMENTS_FOLDER, RUN_FILE, TRACE_FILE, folder_name
from fsjoule.store.schemas import MEASUREMENT, RUN
from fsjoule.store.traces import encode_trace

Attachments = Callable[[Measurement], Mapping[str, bytes]]


def write_whole(
    results: Path,
    run: Run,
    measurements: Iterable[Measurement],
    *,
    trace: Callable[[int], Trace | None] = lambda _: None,
    attachments: Attachments = lambda _: {},
) -> Path:
    """Write a run; gives its folder. `trace` is that of a measurement's number."""
    path = results / folder_name(run, "board")
    (path / MEASUREMENTS_FOLDER).mkdir(parents=True)
    names: dict[int, str] = {}
    for measurement in measurements:
        names[measurement.number] = f"{measurement.number:02d}-{measurement.slug}"
        into = path / MEASUREMENTS_FOLDER / names[measurement.number]
        into.mkdir()
        files = {MEASUREMENT_FILE: json_text(MEASUREMENT.adapter, measurement, indent=2), **attachments(measurement)}
        if (recorded := trace(measurement.number)) is not None:
            files[TRACE_FILE] = encode_trace(recorded)
        for name, content in files.items():
            (into / name).write_bytes(content)
    whole = replace(run, measurements=tuple(name for _, name in sorted(names.items())))
    (path / RUN_FILE).write_bytes(json_text(RUN.adapter, whole, indent=2))
    return path
