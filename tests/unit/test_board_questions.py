"""What `fsjoule board new` asks at a terminal: only what the chosen flasher needs."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest
from command_line import command_line


class Terminal(io.StringIO):
    """A terminal at which somebody types these lines."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("flasher", "device"),
    [
        ("", "Serial number of the SD mux"),
        ("fastboot", "ID_PATH of the board's USB device"),
        ("fastboot-udp", "The board's address"),
        ("in-place", ""),
        ("kept", ""),
    ],
)
def test_only_what_the_flasher_needs_is_asked(
    flasher: str, device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    # Enter takes what the question shows in brackets, which is the first board here.
    lines = ["", flasher, "", "", "http://outlet7.lab", "A50285BI", "BLACKPILL", "this-one"]
    monkeypatch.setattr(sys, "stdin", Terminal("".join(f"{line}\n" for line in lines)))
    done = command_line(monkeypatch, capfd)("board", "new", "bone7", "--into", tmp_path)
    assert done.code == 0, done.err
    assert "[beaglebone-black]" in done.err
    devices = ("Serial number of the SD mux", "ID_PATH of the board's USB device", "The board's address")
    assert [each for each in devices if each in done.err] == [each for each in (device,) if each]
    exporter = (tmp_path / "labgrid" / "bone7" / "exporter.yaml").read_text()
    assert ("this-one" in exporter) == bool(device)
