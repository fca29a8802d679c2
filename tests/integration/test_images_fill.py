"""A root partition that the emulated board fills: what surrounds the board. The board itself is in tests/lab."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fsjoule.errors import ConfigError, HostError
from fsjoule.images.card import copy_data
from fsjoule.images.partition import _boot, _scratch_device, fill_on_board
from fsjoule.kernels.kernel import KernelFiles
from fsjoule.kernels.recipe import load_recipe
from fsjoule.model import MIB

_FOLDER = Path(__file__).parents[2] / "images"


def test_a_board_that_is_done_is_switched_off(tmp_path: Path) -> None:
    log = tmp_path / "log"
    _boot(["sh", "-c", "echo $$; echo fsjoule: filled; exec sleep 100"], log)
    pid = int(log.read_text().split()[0])
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.parametrize(
    "said",
    ["echo initramfs: cannot mount /dev/x; sleep 100", "echo Kernel panic - not syncing; sleep 100", "echo no card"],
)
def test_a_board_that_fails_is_named_with_its_last_words(tmp_path: Path, said: str) -> None:
    words = said.removeprefix("echo ").partition(";")[0]
    with pytest.raises(HostError, match=f"(?s)did not fill the root partition.*{words}"):
        _boot(["sh", "-c", said], tmp_path / "log")


def test_the_partition_is_cut_out_of_the_card(tmp_path: Path) -> None:
    card, image = tmp_path / "card", tmp_path / "image"
    card.write_bytes(bytes(MIB) + b"root" + bytes(2 * MIB - 8) + b"last" + b"scratch")
    image.write_bytes(b"")
    os.truncate(image, 2 * MIB)
    copy_data(card, image, 0, start=MIB, size=2 * MIB)
    content = image.read_bytes()
    assert (content[:4], content[-4:], len(content)) == (b"root", b"last", 2 * MIB)


def test_scratch_is_the_partition_behind_the_root() -> None:
    assert _scratch_device("/dev/mmcblk1p2") == "/dev/mmcblk1p3"


def test_a_recipe_without_an_emulated_board_is_refused(tmp_path: Path) -> None:
    recipe = load_recipe(_FOLDER, "imx6ul")
    bare = recipe.model_copy(update={"emulator": recipe.emulator.model_copy(update={"board": ()})})
    kernel = KernelFiles("k", tmp_path, tmp_path, "6.1", "", {}, {})
    with pytest.raises(ConfigError, match=r"nilfs2 is filled on an emulated board, and imx6ul has none"):
        fill_on_board(
            bare,
            recipe.filesystem("nilfs2"),
            kernel,
            tmp_path,
            tmp_path / "i",
            busybox=tmp_path,
            init=tmp_path,
            steady={},
        )
