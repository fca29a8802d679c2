"""Commands to the board and their output, for a measurement's console.log."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from fsjoule.ports import Command, CommandResult, Shell


@dataclass
class Transcript:
    """A Shell that writes commands and output down."""

    shell: Shell
    text: str = ""

    def run(self, argv: Sequence[str], *, timeout_s: float = 30.0) -> CommandResult:
        self.text += f"# {shlex.join(argv)}\n"
        result = self.shell.run(argv, timeout_s=timeout_s)
        self._answered(result)
        return result

    def run_all(self, commands: Sequence[Command]) -> tuple[CommandResult, ...]:
        try:
            results = self.shell.run_all(commands)
        except BaseException:
            self.text += "".join(f"# {shlex.join(command.argv)}\n" for command in commands)
            raise
        for result in results:
            self.text += f"# {shlex.join(result.argv)}\n"
            self._answered(result)
        return results

    def start(self, argv: Sequence[str]) -> None:
        self.text += f"# {shlex.join(argv)} &\n"
        self.shell.start(argv)

    def put(self, path: str, content: bytes) -> None:
        self.text += f"# {len(content)} bytes written to {path}\n"
        self.shell.put(path, content)

    def get(self, path: str) -> bytes:
        content = self.shell.get(path)
        self.text += f"# {len(content)} bytes read from {path}\n"
        return content

    def get_all(self, paths: Sequence[str]) -> tuple[bytes, ...]:
        contents = self.shell.get_all(paths)
        for path, content in zip(paths, contents, strict=True):
            self.text += f"# {len(content)} bytes read from {path}\n"
        return contents

    def _answered(self, result: CommandResult) -> None:
        self.text += result.stdout + (f"\n[exit code {result.exit_code}]" if result.exit_code else "") + "\n"

    def take(self) -> bytes:
        """The text since the last call."""
        text, self.text = self.text, ""
        return text.encode()
