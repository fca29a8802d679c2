"""What a program can do that Landlock confines: it stands for a QEMU that a kernel has taken over."""

from __future__ import annotations

import ctypes
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from fsjoule.virtual.board import confined

# Each attempt in a line of Python; it says what became of it.
ATTEMPTS = """\
import os, socket, sys
own, folder, other, parent, port, bound = sys.argv[1:]
def tried(name, what):
    try:
        what()
    except OSError as error:
        print(name, os.strerror(error.errno))
    else:
        print(name, "done")
tried("its file", lambda: open(own, "w").write("new"))
tried("its folder", lambda: (open(f"{folder}/new", "w"), os.rename(f"{folder}/new", f"{folder}/newer")))
tried("another file", lambda: open(other, "w"))
tried("a link", lambda: os.symlink(own, f"{other}.link"))
tried("to remove", lambda: os.unlink(own))
tried("to signal", lambda: os.kill(int(parent), 0))
tried("to connect", lambda: socket.create_connection(("127.0.0.1", int(port))))
tried("to listen", lambda: socket.create_server(("127.0.0.1", 0)))
tried("its port", lambda: socket.create_server(("127.0.0.1", int(bound))))
tried("to read", lambda: open(other).read())
"""
DENIED = "Permission denied"


def _version() -> int:
    return ctypes.CDLL(None).syscall(444, None, ctypes.c_size_t(0), 1)


@pytest.mark.skipif(_version() < 6, reason="the kernel has no Landlock, or an older one")
def test_a_confined_program_changes_its_own_files_only(tmp_path: Path) -> None:
    own, folder, other = tmp_path / "card.img", tmp_path / "profiles", tmp_path / "ssh_config"
    folder.mkdir()
    own.touch()
    other.write_text("Host lab")
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_server(("127.0.0.1", 0)) as free:
        port, bound = server.getsockname()[1], free.getsockname()[1]
        free.close()
        words = [*map(str, (own, folder, other)), str(os.getpid()), str(port), str(bound)]
        program = [sys.executable, "-c", ATTEMPTS, *words]
        confining = [sys.executable, "-I", "-S", confined.__file__, "--bind", str(bound), str(own), str(folder), "--"]
        done = subprocess.run([*confining, *program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines() == [
        "its file done",
        "its folder done",
        f"another file {DENIED}",
        f"a link {DENIED}",
        f"to remove {DENIED}",
        "to signal Operation not permitted",
        f"to connect {DENIED}",
        f"to listen {DENIED}",
        "its port done",
        "to read done",
    ]
    assert other.read_text() == "Host lab"
