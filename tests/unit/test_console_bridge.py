from __future__ import annotations

import socket
from pathlib import Path

from virtual_board import ConsoleUser

from fsjoule.virtual.board.console import Console

FLOOD = b"x" * 65536


def test_readers_come_and_go_during_a_flood(tmp_path: Path) -> None:
    """However a reader's leaving falls between the board's output, the next one finds a working console."""
    link = tmp_path / "console"
    console = Console(link, tmp_path / "console.log")
    ours, theirs = socket.socketpair()
    console.connect(theirs)
    for number in range(100):
        with ConsoleUser(link):
            ours.sendall(FLOOD)
        with ConsoleUser(link) as user:
            ours.sendall(f"<{number}>".encode())
            user.expect(f"<{number}>")
            user.type(f"typed {number}")
            assert ours.recv(100) == f"typed {number}\n".encode()
    ours.close()
    console.close()
    assert not link.is_symlink()
    assert (tmp_path / "console.log").stat().st_size > 100 * len(FLOOD)


def test_the_meter_hears_all_that_the_board_says(tmp_path: Path) -> None:
    """Also what nobody reads, and nothing that somebody types."""
    link, said = tmp_path / "console", bytearray()
    console = Console(link, tmp_path / "console.log", marks=said.extend)
    ours, theirs = socket.socketpair()
    console.connect(theirs)
    ours.sendall(b"[    0.000000] Booting\r\n{fsj:Sboot}\r\n")
    with ConsoleUser(link) as user:
        ours.sendall(b"login: ")
        user.type("root")
        assert ours.recv(100) == b"root\n"
        user.expect("login: ")
    ours.close()
    console.close()
    assert bytes(said) == b"[    0.000000] Booting\r\n{fsj:Sboot}\r\nlogin: "
