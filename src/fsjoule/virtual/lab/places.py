"""The coordinator's file of places: one for each board of a lab, with tags by which a run can choose it."""

from __future__ import annotations

from typing import Any

import yaml

from fsjoule.virtual.board.config import BoardConfig
from fsjoule.virtual.lab.files import BoardRecord, LabPaths, LabRecord

_FILE = "places.yaml"


def write_places(paths: LabPaths, record: LabRecord, template: BoardConfig) -> None:
    """Write the file into the coordinator's working directory, where it reads the file when it starts."""
    places = {each.place: _place(each, record, template.soc) for each in record.boards}
    (paths.coordinator / _FILE).write_text(yaml.safe_dump(places))


def _place(board: BoardRecord, record: LabRecord, soc: str) -> dict[str, Any]:
    exporter = record.exporter_name(record.exporter_of(board.number))
    return {
        "aliases": [],
        "comment": f"an emulated {soc} with its card, outlet, console and meter",
        "tags": {"board": "virtual", "kind": record.board, "soc": soc, "number": str(board.number)},
        "matches": [{"exporter": exporter, "group": board.place, "cls": "*"}],
        "created": 0.0,
        "changed": 0.0,
    }
