"""What every shell of a board does, whatever reaches it: see ports.Shell."""

from __future__ import annotations

import random

import pytest

from fsjoule.errors import BoardError, LabError
from fsjoule.lab.shell import BoardShell
from fsjoule.ports import Command


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

    commands = [("echo", "it's one"), ("sh", "-c", "echo two; exit 2"), ("echo", "three")]
    results = shell.run_all([Command(argv) for argv in commands])
    assert [(each.argv, each.exit_code, each.stdout) for each in results] == [
        (commands[0], 0, "it's one\n"),
        (commands[1], 2, "two\n"),
    ]
    many = [Command(("printf", f"{number} {'x' * 300}\\n")) for number in range(7)]
    assert [each.stdout for each in shell.run_all(many)] == [f"{number} {'x' * 300}\n" for number in range(7)]
    with pytest.raises(BoardError, match="'sleep 1000' did not end within 2 s and was interrupted"):
        shell.run_all([Command(("true",)), Command(("sleep", "1000"), 2.0), Command(("touch", "/tmp/never"))])
    assert shell.run(["test", "-e", "/tmp/never"]).exit_code == 1

    content = random.Random(0).randbytes(6000)
    shell.put("/tmp/with space", content)
    assert shell.get("/tmp/with space") == content
    shell.put("/tmp/empty", b"")
    assert shell.get("/tmp/empty") == b""
    assert shell.get_all(["/tmp/with space", "/tmp/none", "/tmp/empty"]) == (content, b"", b"")
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
