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
