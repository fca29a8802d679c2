"""What every shell of a board does, whatever reaches it: see ports.Shell."""

from __future__ import annotations

import random

import pytest

from fsjoule.errors import BoardError, LabError
from fsjoule.lab.shell import BoardShell


def check_shell(shell: BoardShell) -> None:
    result = shell.run(["sh", "-c", "echo out; echo err >&2; exit 3"])
    assert (result.exit_code, result.stdout) == (3, "out\nerr\n")
    assert shell.run(["sh", "-c", "kill -9 $$"]).exit_code == 128 + 9
    assert shell.run(["sh", "-c", "exit 255"]).exit_code == 255
    assert shell.run(["no-such-program"]).exit_code == 127
    assert shell.run(["printf", "no newline"]).stdout == "no newline"
    assert shell.run(["echo", "x" * 5000]).stdout == "x" * 5000 + "\n"
    assert shell.run(["echo", "two\nlines"]).stdout == "two\nlines\n"
    assert shell.run(["echo", 'it\'s a "test" $HOME `id` \\']).stdout == 'it\'s a "test" $HOME `id` \\\n'
    assert shell.run(["cat"]).stdout == "", "standard input is empty"
    assert shell.run(["sh", "-c", "pwd; echo $PATH"]).stdout == "/root\n/usr/sbin:/usr/bin:/sbin:/bin\n"

    content = random.Random(0).randbytes(6000)
    shell.put("/tmp/with space", content)
    assert shell.get("/tmp/with space") == content
    shell.put("/tmp/empty", b"")
    assert shell.get("/tmp/empty") == b""
    shell.upload("/tmp/large", content * 4)
    assert shell.get("/tmp/large") == content * 4
    shell.run(["dd", "if=/dev/urandom", "of=/tmp/random", "bs=64k", "count=1"])
    assert len(shell.get("/tmp/random")) == 65536
    with pytest.raises(LabError, match="/tmp/none cannot be read"):
        shell.get("/tmp/none")
    with pytest.raises(LabError, match="/none/x cannot be written"):
        shell.put("/none/x", b"x")

    with pytest.raises(BoardError, match="did not end within 2 s and was interrupted"):
        shell.run(["sh", "-c", "echo $$ > /tmp/waits; sleep 1000"], timeout_s=2)
    assert shell.run(["echo", "still there"]).stdout == "still there\n"
    gone = "n=0; while [ -e /proc/$(cat /tmp/waits) ]; do n=$((n + 1)); [ $n -lt 50 ] || exit 1; sleep 0.1; done"
    assert shell.run(["sh", "-c", gone]).exit_code == 0, "nothing is left of it"
