"""Whole cards of the catalogue's boards: what is fetched from Debian, and where it lies. `make test-boards` runs them.

They fetch 150 MiB per board and take minutes, so they are not among the tests of `make test`.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from fsjoule import images
from fsjoule.errors import ConfigError
from fsjoule.host import process
from fsjoule.images.boot_loader import boot_loader, header_of
from fsjoule.kernels.card_layout import SECTOR_BYTES
from fsjoule.kernels.recipe import load_recipe, recipe_files, recipes_folder
from fsjoule.model import MIB

BOARDS = sorted(name for name, file in recipe_files(recipes_folder()).items() if file.parent.name == "boards")
KERNELS = [name for name in os.environ.get("KERNELS", "6.1").split(",") if name]


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("name", BOARDS)
def test_a_card_of_the_catalogue_is_built_whole(name: str, kernel: str, tmp_path: Path) -> None:
    recipe = load_recipe(recipes_folder(), name)
    if kernel == "6.12" and name.startswith("rpi"):
        with pytest.raises(ConfigError, match=r"cannot boot the kernel 6\.12.*moved to the next 2 MiB"):
            images.build_card(kernel, "ext4", recipe=name)
        return
    card = images.build_card(kernel, "ext4", recipe=name)
    files = boot_loader(recipe).files
    with card.path.open("rb") as image:
        for file in files:
            if file.piece.sector is not None:
                image.seek(file.piece.sector * SECTOR_BYTES)
                content = image.read(len(file.content))
                assert content == file.content
                assert header_of(content) == file.piece.header
    table = json.loads(process.run(["sfdisk", "--json", card.path], timeout_s=60).stdout)["partitiontable"]
    boot = table["partitions"][-3]["start"] * SECTOR_BYTES
    assert boot == recipe.card.boot_start_mib * MIB
    listed = process.run(["mdir", "-b", "-/", "-i", f"{card.path}@@{boot}", "::"], timeout_s=60).stdout.decode()
    there = {line.removeprefix("::/") for line in listed.splitlines()}
    wanted = {file.piece.boot_file for file in files if file.piece.boot_file}
    assert wanted | {"board.dtb", "initrd.img", "extlinux/extlinux.conf"} <= there
    assert ("boot.scr" in there) == bool(recipe.boot_loader.script)
    tree = tmp_path / "board.dtb"
    process.run(["mcopy", "-n", "-i", f"{card.path}@@{boot}", "::board.dtb", tree], timeout_s=60)
    # A port without an alias gets the next free number.
    alias = re.sub(r"^/dev/tty[A-Za-z]+", "serial", recipe.boot.mark_device)
    node = process.run(["fdtget", "-d", "", tree, "/aliases", alias], timeout_s=10).stdout.decode().strip()
    if node and not recipe.boot.mark_device.startswith("/dev/ttyUSB"):
        assert process.run(["fdtget", tree, node, "status"], timeout_s=10).stdout.decode().strip() == "okay"
