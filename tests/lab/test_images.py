"""The real card image of the default kernel: built (or taken from the cache) and looked at with the real tools."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from unprivileged import as_user

from fsjoule import images, kernels
from fsjoule.errors import ConfigError
from fsjoule.host import process
from fsjoule.images import CardImage, build_card, cached, check_card, emulator, export_card, import_card
from fsjoule.images.userland import userland
from fsjoule.kernels.recipe import load_recipe, recipes_folder
from fsjoule.model import MIB

KERNEL = "6.1"
ROOTS = ("ext4", "btrfs")

# Offsets and sizes of images/imx6ul.toml.
BOOT_START, ROOT_START, ROOT_SIZE = 4 * MIB, 68 * MIB, 416 * MIB

BUILDER = """
import sys
from fsjoule.host.messages import lines_to
from fsjoule.images import build_card
with lines_to(print):
    build_card(*sys.argv[1:])
"""

CHECKS: dict[str, Callable[[Path], list[str | Path]]] = {
    "ext4": lambda image: ["fsck.ext4", "-f", "-n", image],
    "btrfs": lambda image: ["btrfs", "check", "--readonly", image],
}


@pytest.fixture(scope="module", params=["ext4", pytest.param("btrfs", marks=pytest.mark.slow)])
def card(request: pytest.FixtureRequest) -> CardImage:
    return build_card(KERNEL, request.param)


def root_of(card: CardImage) -> str:
    name = card.path.parent.name
    return next(root for root in ROOTS if f"-{root}-" in name)


def boot_file(card: CardImage, name: str) -> bytes:
    copy = ["mcopy", "-i", f"{card.path}@@{BOOT_START}", f"::{name}", "-"]
    return process.run(copy, timeout_s=30).stdout


def test_partition_table(card: CardImage) -> None:
    assert card.path.stat().st_size == 1024 * MIB
    printed = process.run(["sfdisk", "--json", card.path], timeout_s=10).stdout
    table = json.loads(printed)["partitiontable"]
    assert table["label"] == "dos"
    found = [(part["start"] * 512 // MIB, part["size"] * 512 // MIB, part["type"]) for part in table["partitions"]]
    assert found == [(4, 64, "e"), (68, 416, "83"), (484, 540, "83")]


def test_boot_partition_holds_what_extlinux_names_and_the_facts_say(card: CardImage) -> None:
    entry = dict(line.split(None, 1) for line in boot_file(card, "extlinux/extlinux.conf").decode().splitlines())
    files = {entry[key].lstrip("/"): boot_file(card, entry[key]) for key in ("LINUX", "INITRD", "FDT")}
    for name, content in files.items():
        assert card.facts.checksums[name] == hashlib.sha256(content).hexdigest()
    assert len(files["initrd.img"]) < 10 * MIB
    assert files["board.dtb"][:4] == bytes.fromhex("d00dfeed")
    assert f"rootfstype={root_of(card)}" in entry["APPEND"].split()
    assert "fsjoule.mark=/dev/ttymxc1" in entry["APPEND"].split()


def test_block_map_says_what_to_write_and_leaves_the_rest_out(card: CardImage, tmp_path: Path) -> None:
    block_map = card.path.with_name(card.path.name + ".bmap")
    mapped = re.search(r"<MappedBlocksCount>\s*(\d+)", block_map.read_text())
    assert mapped
    assert int(mapped[1]) * 4096 < card.path.stat().st_size / 4
    # Onto a card with an earlier life: what the map leaves out must not matter.
    used = tmp_path / "used.img"
    with used.open("wb") as file:
        for _ in range(1024):
            file.write(b"\xa5" * MIB)
    process.run(["bmaptool", "copy", "--bmap", block_map, card.path, used], timeout_s=120)
    root = tmp_path / "root.img"
    with used.open("rb") as source, root.open("wb") as target:
        source.seek(ROOT_START)
        for _ in range(ROOT_SIZE // MIB):
            target.write(source.read(MIB))
    used.unlink()
    process.run(CHECKS[root_of(card)](root), timeout_s=60)
    root.unlink()


def test_facts_name_the_kernel_and_the_packages(card: CardImage) -> None:
    facts = card.facts
    assert (facts.recipe, facts.kernel_choice) == ("imx6ul", KERNEL)
    assert re.fullmatch(r"linux-image-6\.1\.\S+-armmp \S+", facts.kernel_package)
    assert {"fio", "e2fsprogs", "btrfs-progs", "busybox-static", "linux-image-armmp"} <= facts.packages.keys()
    assert any(name.startswith("linux-image-6.1") and name.endswith(".deb") for name in facts.checksums)
    with card.path.open("rb") as file:
        assert hashlib.file_digest(file, "sha256").hexdigest() == facts.card_sha256


def test_a_second_build_does_nothing(card: CardImage, said: list[str]) -> None:
    before = card.path.stat()
    again = build_card(KERNEL, root_of(card))
    assert said == []
    assert again == card
    assert again.path.stat() == before


def test_a_card_made_a_second_time_is_equal_byte_for_byte(card: CardImage, said: list[str]) -> None:
    assert check_card(KERNEL, root_of(card)) == card
    assert said[0] == "making the card a second time"
    assert [entry.damage for entry in cached() if entry.stage == "card" and entry.path == card.path.parent] == [None]
    assert not list(card.path.parents[1].glob(".check.part-*"))


def test_cards_of_one_kernel_share_kernel_and_userland(card: CardImage) -> None:
    entries = {(entry.stage, entry.name) for entry in cached()}
    assert ("kernel", f"imx6ul-{KERNEL}") in entries
    assert {(stage, f"imx6ul-{KERNEL}-{root_of(card)}") for stage in ("partition", "card")} <= entries


def test_boards_with_the_same_packages_share_the_userland(card: CardImage, said: list[str]) -> None:
    assert card
    other = userland(load_recipe(recipes_folder(), "orangepi-qemu"))
    assert said == []
    assert other.packages.items() <= card.facts.packages.items()


def test_a_user_builds_a_card_whose_builder_was_killed(
    card: CardImage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched = card.path.parents[2]
    own = tmp_path / "images"
    own.mkdir()
    # As a cache may come from elsewhere: files that hold zeros have holes instead.
    for stage in ("kernel", "userland"):
        process.run(["cp", "--archive", "--sparse=always", fetched / stage, own], timeout_s=120)
    monkeypatch.setenv("FSJOULE_CACHE_DIR", str(tmp_path))
    command = [sys.executable, "-u", "-c", BUILDER, KERNEL, root_of(card)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as builder:
        assert builder.stdout is not None
        assert any("assembling" in line for line in builder.stdout)
        os.killpg(builder.pid, signal.SIGKILL)
    assert "card" not in {entry.stage for entry in cached() if entry.damage is None}
    shutil.rmtree(own / "partition")
    # Root has built the other one.
    subprocess.run([*as_user(), *command], check=True, stdout=subprocess.DEVNULL, timeout=300)
    rebuilt = build_card(KERNEL, root_of(card))
    assert rebuilt.path.parent.parent == own / "card"
    assert rebuilt.facts == card.facts
    assert not list(own.glob("*/.*part*"))


def test_unknown_names_are_refused_before_anything_is_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FSJOULE_CACHE_DIR", str(tmp_path))
    with pytest.raises(ConfigError, match=r"unknown kernel '4\.19'"):
        build_card("4.19", "ext4")
    with pytest.raises(ConfigError, match="unknown root filesystem 'vfat'"):
        build_card(KERNEL, "vfat")
    assert not cached()


def test_the_default_kernel_runs_on_the_installed_emulator(said: list[str]) -> None:
    program = emulator(KERNEL)
    assert str(program) == process.find_tool("qemu-system-arm")
    assert said == []
    with pytest.raises(ConfigError, match="unknown kernel"):
        emulator("4.19")


@pytest.mark.slow
def test_the_emulated_board_fills_a_nilfs2() -> None:
    """test_images_fill.py is quick.

    The superblock is as the kernel's include/uapi/linux/nilfs2_ondisk.h has it: unmounted in order, and 95 MiB used.

    There are two, at 1 KiB and in the last block; the kernel writes now one, now the other, and takes the newer one.
    """
    card = build_card(KERNEL, "nilfs2")
    with card.path.open("rb") as file:
        blocks: list[bytes] = []
        for at in (1024, ROOT_SIZE - 4096):
            file.seek(ROOT_START + at)
            blocks.append(file.read(1024))

    def field(block: bytes, at: int, size: int) -> int:
        return int.from_bytes(block[at : at + size], "little")

    newer = max(blocks, key=lambda block: field(block, 104, 8))
    assert [field(block, 6, 2) for block in blocks] == [0x3434, 0x3434]
    assert (field(newer, 32, 8), field(newer, 116, 2)) == (ROOT_SIZE, 1)
    assert 0.4 * ROOT_SIZE < 4096 * field(newer, 80, 8) < 0.8 * ROOT_SIZE


def test_choices_are_those_of_the_recipe() -> None:
    assert KERNEL in kernels.kernel_choices()
    assert set(ROOTS) <= set(images.root_filesystem_choices())


@pytest.mark.slow
def test_a_card_is_found_in_a_cache_that_has_nothing_else(
    card: CardImage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = export_card(KERNEL, root_of(card), tmp_path / "card.tar.zst")
    assert {place.partition("/")[0] for place in head.entries} == {"kernel", "userland", "card"}
    monkeypatch.setenv("FSJOULE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path))  # neither mmdebstrap nor apt
    imported = import_card(tmp_path / "card.tar.zst")
    assert imported.facts == card.facts
    assert imported == build_card(KERNEL, root_of(card))
