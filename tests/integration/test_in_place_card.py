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
from fsjoule.host import process
from fsjoule.lab.flashers import Partition
from fsjoule.lab.in_place import _Card
from fsjoule.lab.second_slot import ENTRY, ENTRY_SCRIPT, KEPT, KEPT_SCRIPT, SCRIPT, USUAL, Slot, as_script, script
from fsjoule.ports import CommandResult
from fsjoule.testing import FakeShell

BOOT = Partition(1, 2048, 8192, bootable=True)
CONF = "LABEL a\n LINUX /{0}Image\n INITRD /{0}initrd.img\n FDT /{0}board.dtb\n APPEND root=/dev/mmcblk0p2\n"
OLD = b"the script of an earlier version"
SLOT = Slot("a1", "6.1.0", {"1-Image": b"kernel"}, CONF.format("second/1-").encode(), b"", BOOT)


@dataclass
class _Board:
    """A board with a boot partition `folder/boot`, which fsck.fat has as `folder/boot.img`.

    It goes dead before the command that has `dies_at` in it, or in the sync with the number `cut`, from 1.
    """

    folder: Path
    dies_at: str = "never"
    cut: int = 0
    card_device: str = "mmcblk0"

    def __post_init__(self) -> None:
        (self.folder / "boot" / "extlinux").mkdir(parents=True)
        (self.folder / "boot" / USUAL).write_text(CONF.format(""))
        (self.folder / "new").mkdir()
        self.path = path_with(self.folder / "tools", "sha256sum", "cp", "mv", "cat", "df", "awk")
        sync = f'echo >>{self.folder}/synced; [ $(wc -l <{self.folder}/synced) != "$CUT" ]\n'
        for name, does in (("mount", ""), ("umount", ""), ("sync", sync)):
            (self.folder / "tools" / name).write_text(f"#!/bin/sh\n{does}")
            (self.folder / "tools" / name).chmod(0o755)
        process.run(["mkfs.vfat", "-C", self.folder / "boot.img", "4096"], timeout_s=60)
        self.shell = FakeShell(self._run)

    def _run(self, argv: tuple[str, ...]) -> CommandResult:
        if self.dies_at in argv[-1]:
            raise self.error("died")
        here = argv[-1].replace("/tmp/fsjoule-boot", f"{self.folder}/boot").replace("/tmp/fsjoule-new", self._new())
        here = here.replace("/dev/mmcblk0p1", f"{self.folder}/boot.img")
        environment = {**os.environ, "PATH": self.path, "CUT": str(self.cut)}
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

    @property
    def starts(self) -> bytes | None:
        """The entry that U-Boot starts without the flag."""
        return self.has(USUAL) or (self.has(KEPT) if self.has(SCRIPT) in (OLD, script(BOOT)) else None)

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


@pytest.mark.parametrize("replaced", [False, True], ids=["first flash", "another boot.scr"])
def test_a_flash_that_is_cut_at_a_sync_starts_the_kept_kernel(tmp_path: Path, replaced: bool) -> None:
    number = 0
    for number in range(1, 20):
        board = _Board(tmp_path / str(number))
        if replaced:
            board.bring()
            (board.folder / "boot" / SCRIPT).write_bytes(OLD)
            (board.folder / "synced").unlink()
        board.cut = number
        ended = False
        try:
            board.bring()
            ended = True
        except BoardError:
            assert board.starts == CONF.format("").encode()
        board.cut = 0
        board.bring()
        assert (board.has(USUAL), board.has(KEPT), board.has(SCRIPT)) == (None, CONF.format("").encode(), script(BOOT))
        if ended:
            break
    assert 4 < number < 19


def test_a_fat_that_a_cut_has_left_is_repaired(tmp_path: Path) -> None:
    board = _Board(tmp_path)
    fat, file = tmp_path / "boot.img", tmp_path / "file"
    file.write_bytes(b"content")
    process.run(["mcopy", "-i", fat, file, "::new"], timeout_s=60)
    content = bytearray(fat.read_bytes())
    for table in (512, 512 + 512 * content[22]):  # the file has cluster 2, which becomes free
        content[table + 3 : table + 5] = b"\0\0"
    fat.write_bytes(content)
    assert b"free cluster" in process.run(["fsck.fat", "-n", fat], timeout_s=60, check=False).stdout
    board.bring()
    process.run(["fsck.fat", "-n", fat], timeout_s=60)
