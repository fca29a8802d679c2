"""The catalogue of boards: each recipe by itself, and its boot loader's place on an empty card."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

from fsjoule.errors import ConfigError
from fsjoule.host import process
from fsjoule.images.boot_loader import Loader, LoaderFile, collision
from fsjoule.images.card import _assemble
from fsjoule.kernels.card_layout import SECTOR_BYTES, overlap
from fsjoule.kernels.image import arm64_run_place, kernel_release
from fsjoule.kernels.kernel import change_device_tree, overlay_sources
from fsjoule.kernels.recipe import Recipe, load_recipe, parse_recipe, recipe_files, recipes_folder
from fsjoule.model import MIB

BOARDS = sorted(name for name, file in recipe_files(recipes_folder()).items() if file.parent.name == "boards")
# Bytes of the pieces with a place of their own, in Debian's packages of 2025.01-3+deb13u1.
SIZES = {
    "u-boot-omap": {"MLO": 109204, "u-boot.img": 782756},
    "u-boot-rockchip": {"u-boot-rockchip.bin": 9646080},
    "u-boot-stm32": {"u-boot-spl.stm32": 136894, "u-boot.img": 1120024},
    "u-boot-sunxi": {"u-boot-sunxi-with-spl.bin": 580000},
}
PARTITIONS = {"stm32mp157c-dk2": 3}


def recipe(name: str) -> Recipe:
    return load_recipe(recipes_folder(), name)


@pytest.mark.parametrize("name", BOARDS)
def test_a_board_of_the_catalogue_is_described_whole(name: str) -> None:
    found = recipe(name)
    assert found.file == f"images/boards/{name}.toml"
    assert found.board is not None
    assert found.boot.dtb is not None
    assert found.boot.image == ("Image" if found.architecture == "arm64" else "zImage")
    console, mark = found.boot.arguments[0], found.boot.mark_device.removeprefix("/dev/")
    assert console.startswith("console=tty")
    # The header of a Raspberry Pi 3 has one UART: the meter listens to the console.
    assert (mark in console) is (name == "rpi3")
    assert all("/dts-v1/" in source for source in overlay_sources(found).values())
    files = [piece.file for piece in found.boot_loader.pieces.values() if piece.package is None]
    assert all((recipes_folder() / file).is_file() for file in files)


@pytest.mark.parametrize("name", BOARDS)
def test_the_boot_loader_of_a_board_has_its_place_on_an_empty_card(name: str, tmp_path: Path) -> None:
    found = recipe(name)
    raw = {part: piece for part, piece in found.boot_loader.pieces.items() if piece.sector is not None}
    sizes = {part: SIZES[piece.package or ""][Path(piece.file).name] for part, piece in raw.items()}
    assert overlap(found.card, found.boot_loader, sizes) is None
    files = [LoaderFile(part, piece, part.encode() * (sizes[part] // len(part))) for part, piece in raw.items()]
    boot, root, card = tmp_path / "boot", tmp_path / "root.img", tmp_path / "card.img"
    boot.mkdir()
    (boot / "kernel").write_bytes(b"kernel")
    with root.open("wb") as file:
        file.truncate(found.card.root_mib * MIB)
        file.write(b"the root partition")
    _assemble(card, boot, root, recipe=found, loader=Loader(tuple(files)), steady={})
    with card.open("rb") as image:
        for each in files:
            assert each.piece.sector is not None
            image.seek(each.piece.sector * SECTOR_BYTES)
            assert image.read(len(each.content)) == each.content
        table = json.loads(process.run(["sfdisk", "--json", card], timeout_s=30).stdout)["partitiontable"]
        parts = table["partitions"]
        assert len(parts) == PARTITIONS.get(name, 0) + 3
        image.seek(parts[-2]["start"] * SECTOR_BYTES)
        assert image.read(18) == b"the root partition"
    assert found.boot.root_device.endswith(f"p{len(parts) - 1}")


# ------------------------------------------------------------------------------------------------------ 64-bit kernels


def image(*, size: int, file: int, flags: int = 0xA, text_offset: int = 0) -> bytes:
    """The kernel of a 64-bit ARM: `size` bytes in memory, of which `file` are in the file."""
    header = struct.pack("<8xQQQ24x4s4x", text_offset, size, flags, b"ARMd")
    return (header + b"Linux version 6.12.107 (x) #1").ljust(file, b"\0")


def test_a_kernel_that_needs_more_room_than_its_file_is_refused() -> None:
    """Debian's 6.12 on a Raspberry Pi: U-Boot moves it from 0x80000 to 2 MiB, and it reaches into the device tree."""
    addresses = {"kernel_addr_r": 0x80000, "fdt_addr_r": 0x2600000, "ramdisk_addr_r": 0x2700000}

    def problem(size: int, flags: int = 0xA) -> str | None:
        kernel = image(size=size, file=4 * MIB, flags=flags)
        return collision(addresses, kernel=kernel, initrd=MIB, device_tree=40000)  # type: ignore[arg-type]

    assert problem(0x2010000) is None
    assert problem(0x2400000) is None
    says = problem(0x24F0000)
    assert says is not None
    assert "the kernel has 36.9 MiB, but in the board's memory there are 36.0 MiB between it (moved to the next" in says
    assert problem(0x24F0000, flags=0) is None  # its place depends on where the memory begins
    assert kernel_release(image(size=MIB, file=MIB)) == "6.12.107"
    assert arm64_run_place(image(size=1, file=100, text_offset=0x80000), 0x80000) == (0x80000, 1)


# ------------------------------------------------------------------------------------------------------------ overlays


def with_overlay(file: Path) -> Recipe:
    found = recipe("beaglebone-black")
    boot = found.boot.model_validate({**found.boot.model_dump(), "overlays": (str(file),)})
    return found.model_copy(update={"boot": boot})


TREE = '/dts-v1/; / { aliases { serial1 = "/uart@1"; }; pins { }; uart@1 { status = "disabled"; }; };'
OVERLAY = """/dts-v1/; /plugin/;
&{/pins} { mark: mark-pins { pins = <1 2>; }; };
&{/uart@1} { pinctrl-0 = <&mark>; status = "okay"; };
"""


def test_an_overlay_adds_nodes_that_others_refer_to(tmp_path: Path) -> None:
    tree, overlay = tmp_path / "board.dtb", tmp_path / "mark.dtso"
    tree.write_bytes(process.run(["dtc", "-q"], input_bytes=TREE.encode(), timeout_s=10).stdout)
    overlay.write_text(OVERLAY)
    change_device_tree(tree, with_overlay(overlay))
    asked = [tree, "/uart@1", "status", "/pins/mark-pins", "phandle", "/uart@1", "pinctrl-0"]
    status, *phandles = process.run(["fdtget", *asked], timeout_s=10).stdout.decode().split()
    assert status == "okay"
    assert phandles[0] == phandles[1]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["board.dtb", "mark.dtso"]


@pytest.mark.parametrize("text", [OVERLAY.replace("/uart@1", "/uart@7"), "not a device tree"])
def test_an_overlay_that_does_not_fit_is_named(text: str, tmp_path: Path) -> None:
    tree, overlay = tmp_path / "board.dtb", tmp_path / "mark.dtso"
    tree.write_bytes(process.run(["dtc", "-q"], input_bytes=TREE.encode(), timeout_s=10).stdout)
    overlay.write_text(text)
    with pytest.raises(ConfigError, match=r"mark.dtso does not fit the device tree am335x-boneblack.dtb") as caught:
        change_device_tree(tree, with_overlay(overlay))
    assert "images/boards/beaglebone-black.toml" in (caught.value.hint or "")
    overlay.unlink()
    with pytest.raises(ConfigError, match=r"images/boards/beaglebone-black.toml: an overlay cannot be read"):
        change_device_tree(tree, with_overlay(overlay))


def test_a_recipe_of_the_catalogue_has_its_bases_beside_it(tmp_path: Path) -> None:
    file = recipes_folder() / "boards" / "own.toml"
    text = 'base = "rock-pi-4"\n[boot]\nroot_device = "mmcblk0p2"\n'
    with pytest.raises(ConfigError, match=r"boot.root_device") as caught:
        parse_recipe(text, name="own", file=file)
    assert caught.value.line == 3
    with pytest.raises(ConfigError, match=r"there is no base recipe 'rock'(.|\n)*arm64.*rock-pi-4"):
        parse_recipe('base = "rock"\n', name="own", file=file)
    with pytest.raises(ConfigError, match=r"unknown image recipe"):
        load_recipe(tmp_path, "own")
