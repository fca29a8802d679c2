"""Work at a boot loader's console. The board is a program behind labgrid's own drivers."""

from __future__ import annotations

import time
from collections.abc import Generator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from program_board import program_board

from fsjoule.errors import BoardError, LabError, Part
from fsjoule.lab import loader_help
from fsjoule.lab.u_boot import without_power

# It says something, and shows its prompt at a key.
_U_BOOT = """\
import os, time
os.write(1, b"U-Boot 2026.01\\r\\n")
typed = b""
while got := os.read(0, 1000):
    os.write(1, got.replace(SAID))
    typed = b"" if got == b"\\x03" else typed + got
    if typed.strip() and not typed.endswith(b"\\n"):
        continue
    if b"ums 0" in typed:
        os.write(1, b"UMS: LUN 0, dev mmc 0, hwpart 0, sector 0x0, count 0x800\\r\\n")
        time.sleep(3600)
    os.write(1, b"bootz     - boot a zImage\\r\\n" if b"help" in typed else b"")
    os.write(1, b"\\r\\n" + typed.replace(b"'", b"").replace(b"echo ", b"") + b"\\r\\n=> ")
    typed = b""
    time.sleep(0.4)
"""
DEAF = _U_BOOT.replace("SAID", "b'ums', b'umr'")
U_BOOT = _U_BOOT.replace("SAID", "b'', b''")
HALF = U_BOOT.replace('0x800\\r\\n")', '0x8"), time.sleep(2), os.write(1, b"00\\r\\n")')
NOISE = "    while True: time.sleep(0.1), os.write(1, b'noise')"
SILENT = "import os, time; os.write(1, b'U-Boot'); time.sleep(3600)"


@pytest.fixture
def board(tmp_path: Path, request: pytest.FixtureRequest) -> Generator[Any]:
    """A labgrid target, and how long its board may take."""
    text, limit_s = request.param
    with program_board(tmp_path, text, boot_timeout=limit_s) as target:
        yield target


@pytest.mark.parametrize("board", [(U_BOOT, 60)], indirect=True)
@pytest.mark.parametrize("prompt", ["=> ", "=>"])
def test_the_commands_of_a_boot_loader(board: Any, prompt: str) -> None:
    """A space that is left behind the prompt is no echo."""
    assert "bootz     - boot a zImage" in loader_help(board, prompt)


@pytest.mark.parametrize("board", [(U_BOOT + NOISE, 2)], indirect=True)
def test_a_board_that_talks_for_ever_is_named(board: Any) -> None:
    with pytest.raises(BoardError, match=r"still talks at its boot loader's prompt after 2 s"):
        loader_help(board, "=> ")


@pytest.mark.parametrize("board", [(SILENT, 600)], indirect=True)
def test_a_lab_that_fails_while_the_board_is_silent_is_noticed(board: Any) -> None:
    begin = time.monotonic()

    def faults(_part: Part | None = None) -> tuple[str, ...]:
        return ("ser2net is dead",) if time.monotonic() > begin + 1 else ()

    strategy: Any = board.get_driver("BoardStrategy", activate=False)
    strategy.health = SimpleNamespace(faults=faults)
    with pytest.raises(BoardError, match="ser2net is dead"):
        loader_help(board, "=> ")
    assert time.monotonic() - begin < 300


@pytest.mark.parametrize("board", [(U_BOOT, 60)], indirect=True)
def test_a_failed_search_for_the_cause_does_not_hide_what_failed(board: Any, tmp_path: Path) -> None:
    strategy: Any = board.get_driver("BoardStrategy")
    strategy.transition("off")

    def faults(_part: Part | None = None) -> tuple[str, ...]:
        if "UMS: LUN" in strategy.recorder.text():
            raise LabError("the lab does not answer")
        return ()

    strategy.health = SimpleNamespace(faults=faults)
    (tmp_path / "card.img").write_bytes(b"image")
    with pytest.raises(LabError, match=r"USB disk did not appear on the exporter within 0 s") as caught:
        strategy.flasher.flash(tmp_path / "card.img", strategy)
    assert caught.value.__notes__ == ["looking for the cause failed too: the lab does not answer"]


@pytest.mark.parametrize("board", [(DEAF, 60)], indirect=True)
def test_a_command_whose_echo_is_another_is_never_run(board: Any, tmp_path: Path) -> None:
    strategy: Any = board.get_driver("BoardStrategy")
    strategy.transition("off")
    (tmp_path / "card.img").write_bytes(b"image")
    with pytest.raises(BoardError, match=r"damages what is typed at its boot loader's prompt, 5 times: 'ums 0 mmc 0'"):
        strategy.flasher.flash(tmp_path / "card.img", strategy)
    assert "UMS: LUN" not in strategy.recorder.text()


@pytest.mark.parametrize("board", [(HALF, 60)], indirect=True)
def test_half_a_number_is_not_the_size_that_u_boot_offers(board: Any, tmp_path: Path) -> None:
    strategy: Any = board.get_driver("BoardStrategy")
    strategy.transition("off")
    (tmp_path / "card.img").write_bytes(b"image")
    with pytest.raises(LabError, match=r"USB disk did not appear on the exporter within 0 s"):
        strategy.flasher.flash(tmp_path / "card.img", strategy)
    assert "count 0x800\n" in strategy.recorder.text()


@pytest.mark.parametrize("board", [(SILENT, 60)], indirect=True)
def test_an_outlet_that_cannot_tell_whether_it_is_on_is_no_bug(board: Any) -> None:
    strategy: Any = board.get_driver("BoardStrategy")
    strategy.transition("off")
    assert without_power(strategy) == ()
    with pytest.raises(LabError, match="ExternalPowerDriver cannot tell"):
        strategy.has_power()
