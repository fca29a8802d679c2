"""The ready file of the virtual board's program: where its outlet, card and console are."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter, ValidationError

from fsjoule.errors import LabError


@dataclass(frozen=True, slots=True)
class BoardReady:
    """The ready file (JSON): written when the board program is ready, removed when it ends.

    `outlet_url` is labgrid's `host` of NetworkPowerPort, with `{index}`; `card_device` is the card's loop device in
    position `host`; `mux_control` is the control path for `usbsdmux`.
    """

    pid: int
    outlet_url: str
    status_url: str
    card_device: str
    mux_control: str
    console: str

    @classmethod
    def read(cls, file: Path) -> BoardReady | None:
        """The file's content, or None if it is missing. Raises LabError for wrong content."""
        try:
            return _READY.validate_json(file.read_bytes())
        except FileNotFoundError:
            return None
        except ValidationError as error:
            raise LabError(f"{file} is not a ready file of a virtual board: {error}") from error

    def write(self, file: Path) -> None:
        """Write it atomically."""
        beside = file.with_name(file.name + ".new")
        beside.write_text(json.dumps(asdict(self), indent=2) + "\n")
        beside.replace(file)


_READY: Final[TypeAdapter[BoardReady]] = TypeAdapter(BoardReady)
