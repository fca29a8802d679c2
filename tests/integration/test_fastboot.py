"""Flashing by fastboot at a U-Boot that is a program, with a program in the place of Debian's `fastboot`.

tests/flashing has the real ones.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest
from labgrid import Environment

from fsjoule.errors import LabError
from fsjoule.model import MIB

ENVIRONMENT = """\
imports: [fsjoule.lab]
targets:
  main:
    resources:
      AndroidNetFastboot: {{address: 127.0.0.1, port: 9}}
    drivers:
      ExternalPowerDriver: {{cmd_on: 'true', cmd_off: 'true'}}
      ExternalConsoleDriver: {{cmd: '{python} {program}'}}
      ShellDriver: {{prompt: 'root@board:~# ', login_prompt: 'login: ', username: root}}
      UBootDriver: {{prompt: '\\n=> ', login_timeout: 60}}
      AndroidFastbootDriver: {{sparse_size: 8M}}
      FastbootFlasher:
        command: '{command}'
        device: '{device}'
        device_timeout: {device_timeout}
        write_timeout: {write_timeout}
      BoardStrategy:
        board: board
        recipe: imx6ul
        simulated: true
        mark_device: /dev/ttyS1
        card_device: mmcblk0
        scratch_device: /dev/mmcblk0p3
        off_time: 0
"""
# Each command succeeds, but for what `fastboot` answers. All that was typed is in a file beside it, and the card in
# another.
U_BOOT = """\
import os, re, sys, zlib
os.write(1, b"U-Boot 2026.01\\r\\n")
typed = b""
while got := os.read(0, 1000):
    os.write(1, got)
    with open(sys.argv[0] + ".typed", "ab") as log:
        log.write(got)
    typed = b"" if got == b"\\x03" else typed + got
    if typed.strip() and not typed.endswith(b"\\n"):
        continue
    line, typed = typed.decode(errors="replace"), b""
    ran = re.search(r"echo '(\\w+)''(\\w+)'; .*echo \\"\\$\\?\\"", line)
    told, code = "", 0
    if "printenv" in line:
        told = "kernel_addr_r=0x42000000\\r\\n"
    if "mmc read" in line:
        told, code = @READ@
        first, count = (int(number, 16) for number in re.search(r"mmc read \\w+ (\\w+) (\\w+)", line).groups())
        with open(sys.argv[0] + ".card", "rb") as card:
            card.seek(first * 512)
            memory = card.read(count * 512)
    if "crc32" in line:
        told = f"crc32 for 42000000 ... 42000fff ==> {zlib.crc32(memory):08x}\\r\\n"
    said = f"{ran[1]}{ran[2]}\\r\\n{told}{code}\\r\\n{ran[1]}{ran[2]}" if ran else "ready"
    if line.startswith("echo") and not ran:
        said = line.replace("'", "").replace("echo ", "")
    prompt = "\\r\\n=> "
    if line.startswith("fastboot"):
        said, prompt = @ANSWER@
    os.write(1, ("\\r\\n" + said + prompt).encode())
"""
LISTENS = '"Listening for fastboot command on 10.0.2.15\\r\\n", ""'
LISTENS_TCP = '"Listening for fastboot command on tcp 10.0.2.15\\r\\n", ""'
UNKNOWN = "\"Unknown command 'fastboot' - try 'help'\", prompt"
# What the program does if the card takes what it sends.
WRITES = 'cp "${0%/*}/card.img" "${0%/*}/board.py.card"; exit 0'
READ = '"1 blocks read: OK\\r\\n", 0'
NO_SECTOR = '"1 blocks read: ERROR\\r\\n", 1'
REFUSES = '"Fastboot UDP not enabled", prompt'
# Debian's program writes this to its standard error.
TOOL = """\
#!/bin/sh
echo "$@" >>"$0.arguments"
case "$*" in
    *"getvar fsjoule"*)
        mark=$(grep -o 'setenv fastboot.fsjoule [A-Z]*' "${{0%/*}}/board.py.typed" | tail -n 1 | cut -d ' ' -f 3)
        echo "fsjoule: {mark}" >&2; exit {known} ;;
    *getvar*) [ {getvar} = 0 ] && echo 'max-download-size: 0x01000000' >&2; exit {getvar} ;;
    *flash*) for file; do :; done; cp "$file" "$0.got"; echo "{flash}" >&2; {act} ;;
esac
"""


class _Board:
    def __init__(self, folder: Path, strategy: Any) -> None:
        self.folder = folder
        self.strategy = strategy

    def flash(self, blocks: int = 8, mapped: str = "1-2", card: Callable[[bytes], bytes] = bytes) -> bytes:
        """Flash an image of random blocks onto a card with the content that `card` makes of it. Returns the image."""
        image, content = self.folder / "card.img", os.urandom(blocks * 4096)
        image.write_bytes(content)
        image.with_name("card.img.bmap").write_text(f"<bmap><BlockSize>4096</BlockSize><Range>{mapped}</Range></bmap>")
        (self.folder / "board.py.card").write_bytes(card(content))
        self.strategy.flasher.flash(image, self.strategy)
        return content

    def text(self, name: str) -> str:
        return (self.folder / name).read_text()


@pytest.fixture
def board(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Generator[_Board]:
    answer, read = request.param.get("answer", LISTENS), request.param.get("read", READ)
    (tmp_path / "board.py").write_text(U_BOOT.replace("@ANSWER@", answer).replace("@READ@", read))
    values = {"mark": "$mark", "known": 0, "getvar": 0, "flash": "OKAY", "act": "exit 0", **request.param}
    tool = tmp_path / "fastboot"
    tool.write_text(TOOL.format(**values))
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    limits = {"device_timeout": 60, "write_timeout": 60, "command": "fastboot udp", "device": "", **request.param}
    (tmp_path / "env.yaml").write_text(
        ENVIRONMENT.format(python=sys.executable, program=tmp_path / "board.py", **limits)
    )
    environment_class: Any = Environment
    labgrid = environment_class(config_file=str(tmp_path / "env.yaml"))
    strategy = labgrid.get_target().get_driver("BoardStrategy")
    strategy.transition("off")
    yield _Board(tmp_path, strategy)
    labgrid.cleanup()


@pytest.mark.parametrize("board", [{}], indirect=True)
def test_the_mapped_blocks_are_sent_under_a_name_for_the_whole_card(board: _Board) -> None:
    board.flash()
    getvar, _, flash = board.text("fastboot.arguments").splitlines()
    assert getvar == "-s udp:127.0.0.1:9 -S 8M getvar max-download-size"
    assert flash.startswith("-s udp:127.0.0.1:9 -S 8M flash fsjoule /")
    typed = board.text("board.py.typed")
    assert "setenv fastboot_raw_partition_fsjoule 0x0 0x40;" in typed
    assert typed.index('test -n "${ipaddr}" || dhcp') < typed.index("fastboot udp\n") < typed.index("\x03")
    got = (board.folder / "fastboot.got").read_bytes()
    image = (board.folder / "card.img").read_bytes()
    assert image[4096 : 3 * 4096] in got
    assert len(got) == 28 + 3 * 12 + 2 * 4096


@pytest.mark.parametrize("board", [{"mark": "ANOTHER"}, {"known": 1}], indirect=True)
def test_a_board_that_is_not_the_one_on_the_console_gets_nothing(board: _Board) -> None:
    with pytest.raises(LabError, match=r"is not the board that fastboot reaches at udp:127.0.0.1:9: nothing was sent"):
        board.flash()
    assert "flash" not in board.text("fastboot.arguments").split()


@pytest.mark.parametrize("board", [{"command": "fastboot tcp", "answer": LISTENS_TCP}], indirect=True)
def test_a_u_boot_that_listens_on_tcp_says_so_in_other_words(board: _Board) -> None:
    board.flash()
    assert "flash fsjoule" in board.text("fastboot.arguments")


@pytest.mark.parametrize("board", [{"device": "mmc 1", "act": WRITES}], indirect=True)
def test_only_pieces_that_the_named_card_lacks_are_sent(board: _Board) -> None:
    def lacking(content: bytes) -> bytes:
        return content[:MIB] + bytes(MIB) + content[2 * MIB :]

    board.strategy.flasher.piece_mib = 1
    image = board.flash(768, "0-767", lacking)
    typed = board.text("board.py.typed")
    assert typed.index("mmc dev 1") < typed.index("mmc read 42000000 17ff 1") < typed.index("fastboot udp\n")
    got = (board.folder / "fastboot.got").read_bytes()
    assert image[MIB : 2 * MIB] in got
    assert len(got) == 28 + 3 * 12 + MIB
    # Only what was sent is read again.
    assert typed.count("mmc read 42000000 800 800") == 2
    assert typed.count("mmc read 42000000 0 800") == 1


@pytest.mark.parametrize("board", [{"device": "mmc 0"}], indirect=True)
def test_nothing_is_sent_to_a_card_that_holds_the_image(board: _Board) -> None:
    board.flash()
    assert not (board.folder / "fastboot.arguments").exists()
    assert "fastboot udp" not in board.text("board.py.typed")


@pytest.mark.parametrize("board", [{"device": "mmc 0"}], indirect=True)
def test_a_card_that_does_not_keep_what_was_sent_is_named(board: _Board) -> None:
    with pytest.raises(LabError, match="has another content on its card than was sent, in 1 of 1 pieces"):
        board.flash(card=lambda content: bytes(len(content)))
    assert "flash fsjoule" in board.text("fastboot.arguments")


@pytest.mark.parametrize("board", [{"device": "mmc 0", "read": NO_SECTOR}], indirect=True)
def test_a_card_that_is_smaller_than_the_image_is_named_before_anything_is_sent(board: _Board) -> None:
    with pytest.raises(LabError, match=r"has no sector 63, the image's last, on its card: 1 blocks read: ERROR"):
        board.flash()
    assert not (board.folder / "fastboot.arguments").exists()


@pytest.mark.parametrize(
    ("board", "says"),
    [
        ({"answer": UNKNOWN}, r"has a U-Boot without the command fastboot .*Unknown command"),
        ({"answer": REFUSES}, r"refused 'fastboot udp': Fastboot UDP not enabled"),
        ({"getvar": 1, "device_timeout": 0}, r"U-Boot did not answer fastboot within 0 s: "),
        (
            {"flash": "FAILED (remote: 'too large for partition')", "act": "exit 1"},
            r"refused the card's content: too large for partition",
        ),
        ({"flash": "killed", "act": "exit 3"}, r"sending the card's content failed with exit code 3: .*killed"),
        ({"act": "sleep 600", "write_timeout": 1}, r"sending the card's content took longer than 1 s"),
    ],
    indirect=["board"],
)
def test_each_step_that_fails_has_its_message(board: _Board, says: str) -> None:
    with pytest.raises(LabError, match=says):
        board.flash()
