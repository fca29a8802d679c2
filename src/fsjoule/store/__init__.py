"""Run folders on disk: the only part of fsjoule that touches files of results.

::

    results/<UTC time>-<board>-<id>/
        run.json                        fsjoule.run/4
        measurements/<nn>-<slug>/
            measurement.json            fsjoule.measurement/4
            trace.parquet               fsjoule.trace/2
            fio.json, console.log       attachments, under the names that the caller gave

`RunFolder` writes one, `load_run` reads one. `Recording` writes a trace that belongs to no run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fsjoule.lazily import lazily

if TYPE_CHECKING:
    from fsjoule.store.files import write_file
    from fsjoule.store.folder import GATE_FILE, RunFolder
    from fsjoule.store.inside import list_inside
    from fsjoule.store.reader import LoadedRun, load_run, load_run_file
    from fsjoule.store.recordings import Recording
    from fsjoule.store.schemas import json_schemas, write_json_schemas
    from fsjoule.store.traces import read_trace
else:
    __getattr__ = lazily(
        __name__,
        {
            "files": "write_file",
            "folder": "GATE_FILE RunFolder",
            "inside": "list_inside",
            "reader": "LoadedRun load_run load_run_file",
            "recordings": "Recording",
            "schemas": "json_schemas write_json_schemas",
            "traces": "read_trace",
        },
    )

__all__ = [
    "GATE_FILE",
    "LoadedRun",
    "Recording",
    "RunFolder",
    "json_schemas",
    "list_inside",
    "load_run",
    "load_run_file",
    "read_trace",
    "write_file",
    "write_json_schemas",
]
