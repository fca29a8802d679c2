"""The boot partition that is written in place, of a board whose shell is this computer's: mounting is a folder."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
from busybox import path_with

from fsjoule.errors import BoardError
from fsjoule.lab.flashers import Partition
from fsjoule.lab.in_place import _Card
from fsjoule.lab.second_slot import ENTRY, ENTRY_SCRIPT, KEPT, KEPT_SCRIPT, SCRIPT, USUAL, Slot, as_script, script
from fsjoule.ports import CommandResult
from fsjoule.testing import FakeShell

BOOT = Partition(1, 2048, 8192, bootable=True)
CONF = "LABEL a\n LINUX /{0}Image\n INITRD /{0}initrd.img\n FDT /{0}board.dtb\n APPEND root=/dev/mmcblk0p2\n"
SLOT = Slot("a1", "6.1.0", {"1-Image": b"kernel"}, CONF.format("second/1-").encode(), b"", BOOT)


@dataclass
class _Board:
    """A board with a boot partition `folder/boot`. It goes dead before the command that has `dies_at` in it."""

    folder: Path
    dies_at: str = "never"
    card_device: str = "mmcblk0"

    def __post_init__(self) -> None:
        (self.folder / "boot" / "extlinux").mkdir(parents=True)
        (self.folder / "boot" / USUAL).write_text(CONF.format(""))
        (self.folder / "new").mkdir()
        self.path = path_with(self.folder / "tools", "sha256sum", "cp", "mv", "cat", "df", "awk")
        for name in ("mount", "umount", "sync"):
            (self.folder / "tools" / name).write_text("#!/bin/sh\n")
            (self.folder / "tools" / name).chmod(0o755)
        self.shell = FakeShell(self._run)

    def _run(self, argv: tuple[str, ...]) -> CommandResult:
        if self.dies_at in argv[-1]:
            raise self.error("died")
        here = argv[-1].replace("/tmp/fsjoule-boot", f"{self.folder}/boot").replace("/tmp/fsjoule-new", self._new())
        environment = {**os.environ, "PATH": self.path}
        done = subprocess.run(
            ["dash", "-c", here], env=environment, capture_output=True, text=True, timeout=60, check=False
        )
        return CommandResult(argv, done.returncode, done.stdout + done.stderr)

    def _new(self) -> str:
        """The folder of new files, with those that were put there."""
        for path, content in self.shell.files.items():
            file = self.folder / "new" / Path(path).name
            file.parent.mkdir(exist_ok=True)
            file.write_bytes(content)
        self.shell.files.clear()
        return f"{self.folder}/new"

    def error(self, what: str) -> BoardError:
        return BoardError(f"board {what}")

    def has(self, name: str) -> bytes | None:
        file = self.folder / "boot" / name
        return file.read_bytes() if file.exists() else None

    def bring(self) -> None:
        _Card(cast("Any", self.shell), cast("Any", self), SLOT, lambda: self.shell.put).bring_files()


def test_both_kernels_have_an_entry_for_sysboot_and_a_script_for_a_u_boot_without_it(tmp_path: Path) -> None:
    board = _Board(tmp_path)
    board.bring()
    kept = CONF.format("")
    assert board.has(USUAL) is None
    assert board.has(KEPT) == kept.encode()
    assert board.has(KEPT_SCRIPT) == as_script(kept)
    assert (board.has(ENTRY), board.has(ENTRY_SCRIPT)) == (SLOT.entry, as_script(SLOT.entry.decode()))
    assert (board.has(SCRIPT), board.has("second/1-Image")) == (script(BOOT), b"kernel")
    # A card of an earlier version has no such script yet.
    (tmp_path / "boot" / KEPT_SCRIPT).unlink()
    board.bring()
    assert board.has(KEPT_SCRIPT) == as_script(kept)


def test_the_usual_entry_stays_until_all_else_is_there(tmp_path: Path) -> None:
    board = _Board(tmp_path, dies_at="-o rw")
    with pytest.raises(BoardError, match="died"):
        board.bring()
    assert board.has(USUAL) == CONF.format("").encode()
    assert board.has(SCRIPT) is None
