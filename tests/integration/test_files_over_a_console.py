"""Files that come over a board's console, some of them damaged. The board is this computer's shell."""

from __future__ import annotations

import base64
import re
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fsjoule.errors import LabError
from fsjoule.lab import LabgridShell

_PROMPT = "root@board:~# "


class _Console:
    """A console whose lines a shell runs; `damage` changes what they print."""

    def __init__(self, shell: str, folder: Path) -> None:
        self.shell, self.folder, self.lines, self._said = shell, folder, list[str](), ""
        self.damage: Callable[[str], str] = str

    def sendline(self, line: str) -> None:
        self.lines.append(line)
        here = line.replace("/tmp/.fsjoule", f"{self.folder}/.fsjoule")
        done = subprocess.run(
            [*self.shell.split(), "-c", here], capture_output=True, text=True, timeout=300, check=True
        )
        self._said += f"{line}\n{self.damage(done.stdout)}{_PROMPT}"

    def expect(self, pattern: str | Sequence[Any], timeout: float) -> tuple[int, bytes, re.Match[bytes], bytes]:
        del timeout
        patterns = [pattern] if isinstance(pattern, str) else [each for each in pattern if isinstance(each, str)]
        said = self._said.encode()
        found = [
            (match.start(), i, match) for i, each in enumerate(patterns) if (match := re.search(each.encode(), said))
        ]
        begin, index, match = min(found, key=lambda each: each[:2])
        self._said = said[match.end() :].decode()
        return index, said[:begin], match, match[0]


@pytest.fixture(name="console", params=["sh", "busybox sh"])
def _console(request: pytest.FixtureRequest, tmp_path: Path) -> _Console:
    return _Console(request.param, tmp_path)


@pytest.fixture(name="shell")
def _shell(console: _Console) -> LabgridShell:
    driver: Any = SimpleNamespace(console=console, prompt=re.escape(_PROMPT), login_prompt="login: ")
    recorder: Any = None  # asked only for a board that fails
    return LabgridShell(driver, recorder, lambda: None)


@pytest.fixture(name="files")
def _files(tmp_path: Path) -> dict[str, bytes]:
    """What is in files of a folder: one is empty, and one is not there."""
    contents = {
        "it's one": b"\x00\xff" * 5000,
        "none": b"",
        "two.gz": b"\x1f\x8bnot gzip",
        "empty": b"",
        "last": b"3\n",
    }
    for name, content in contents.items():
        if name != "none":
            (tmp_path / name).write_bytes(content)
    return {str(tmp_path / name): content for name, content in contents.items()}


def test_several_files_come_with_one_line(shell: LabgridShell, console: _Console, files: dict[str, bytes]) -> None:
    assert shell.get_all(list(files)) == tuple(files.values())
    assert len(console.lines) == 1


def test_a_damaged_file_is_read_again_and_takes_no_others_place(
    shell: LabgridShell, console: _Console, files: dict[str, bytes]
) -> None:
    def lose_the_first(said: str) -> str:
        console.damage = str
        packed = re.search(r"^H4sI[\w+/=\n]+", said, re.MULTILINE)
        assert packed is not None
        members = base64.b64decode(packed[0])
        return said.replace(packed[0], base64.b64encode(members[members.index(b"\x1f\x8b", 2) :]).decode() + "\n")

    def change_the_last(said: str) -> str:
        console.damage = str
        return re.sub(r"\w(.{9}\n<)", r"+\1", said, flags=re.DOTALL)

    for damage in (lose_the_first, change_the_last):
        console.damage = damage
        assert shell.get_all(list(files)) == tuple(files.values())


def test_a_file_that_always_comes_damaged_is_told(
    shell: LabgridShell, console: _Console, files: dict[str, bytes]
) -> None:
    console.damage = lambda said: re.sub(r"(H4sI.{20}).{5}", r"\1", said)
    with pytest.raises(LabError, match=r"the console damaged .*it's one on its way from the board, 3 times"):
        shell.get_all(list(files))
