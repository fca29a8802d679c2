"""ports.Shell on this computer: real programs, whose files below /tmp/fsjoule are in a folder of the test's."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fsjoule.ports import Command, CommandResult

_BOARDS = "/tmp/fsjoule"


@dataclass
class LocalShell:
    folder: Path

    def here(self, text: str) -> str:
        return text.replace(_BOARDS, f"{self.folder}/fsjoule")

    def run(self, argv: Sequence[str], *, timeout_s: float = 30.0) -> CommandResult:
        command = [self.here(word) for word in argv]
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=timeout_s, check=False
        )
        return CommandResult(tuple(argv), done.returncode, done.stdout)

    def run_all(self, commands: Sequence[Command]) -> tuple[CommandResult, ...]:
        return tuple(self.run(each.argv, timeout_s=each.timeout_s) for each in commands)

    def start(self, argv: Sequence[str]) -> None:
        raise AssertionError(f"nothing is left running: {argv}")

    def put(self, path: str, content: bytes) -> None:
        Path(self.here(path)).write_text(self.here(content.decode()))

    def get(self, path: str) -> bytes:
        return Path(self.here(path)).read_bytes()

    def get_all(self, paths: Sequence[str]) -> tuple[bytes, ...]:
        there = [Path(self.here(path)) for path in paths]
        return tuple(path.read_bytes() if path.exists() else b"" for path in there)
