"""A boot loader in a card image: its place, its header, its addresses in memory, and the block map."""

from __future__ import annotations

import gzip
import json
import lzma
import os
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest

from fsjoule.errors import ConfigError
from fsjoule.host import process
from fsjoule.images.boot_files import write_boot_files
from fsjoule.images.boot_loader import (
    Loader,
    LoaderFile,
    _config,
    _member,
    addresses_in,
    boot_loader,
    collision,
    device_tree_of,
    header_of,
    loader_key,
)
from fsjoule.images.card import make_block_map
from fsjoule.images.partition_table import partition_table
from fsjoule.kernels.card_layout import BootLoader, LoaderPiece, overlap
from fsjoule.kernels.kernel import KernelFiles
from fsjoule.kernels.legacy_image import legacy_image
from fsjoule.kernels.recipe import Recipe, load_recipe, parse_recipe
from fsjoule.model import MIB

FOLDER = Path(__file__).parents[2] / "images"
FILE = FOLDER / "boards" / "orangepi.toml"
TEXT = FILE.read_text(encoding="utf-8")
SHIPPED = load_recipe(FOLDER, "orangepi")

ENVIRONMENT = b"\0bootdelay=2\0kernel_addr_r=0x42000000\0fdt_addr_r=43000000\0ramdisk_addr_r=0x43400000\0"


def with_loader(**values: Any) -> Recipe:
    return SHIPPED.model_copy(update={"boot_loader": BootLoader.model_validate(values)})


def allwinner(tree: str = "sun8i-h3-orangepi-pc", size: int = 24576, rest: int = 0) -> bytes:
    """An Allwinner loader: a jump, the mark, checksum, length, the mark of an SPL, and the name of its device tree."""
    spl = bytearray(size)
    struct.pack_into("<I8sII4s", spl, 0, 0xEA000016, b"eGON.BT0", 0x5F0A6C39, size, b"SPL\x02")
    struct.pack_into("<I", spl, 32, 44)
    spl[44 : 44 + len(tree)] = tree.encode()
    struct.pack_into("<I", spl, 12, sum(struct.unpack(f"<{size // 4}I", spl)) & 0xFFFFFFFF)
    return bytes(spl) + bytes(rest)


# ------------------------------------------------------------------------------------------------------------ places


@pytest.mark.parametrize(
    ("found", "wrong", "says"),
    [
        ("sector = 16 # 8 KiB", "", "one place: sector, or boot_file"),
        ("sector = 16 # 8 KiB", 'sector = 16\nboot_file = "u-boot.bin"', "one place: sector, or boot_file"),
        ("sector = 16 # 8 KiB", 'sector = 16\npartition = "fsbl1"', "a name (partition), a sector and a size_kib"),
        ("sector = 16 # 8 KiB", 'sector = 34\npartition = "a"\nsize_kib = 256', 'only in a GPT: table = "gpt"'),
        ("sector = 16 # 8 KiB", "sector = 0", "boot_loader.pieces.spl.sector"),
        (
            "sector = 16 # 8 KiB",
            "sector = 8192",
            "the boot loader's spl (sector 8192) overlaps the partition boot (sectors 8192 to 139263)",
        ),
        ('header = "allwinner"', 'header = "apple"', "boot_loader.pieces.spl.header"),
        (
            "[boot_loader.pieces.spl]",
            "[boot_loader]\nkeep_sectors = [9, 2]\n[boot_loader.pieces.spl]",
            "the first and the last",
        ),
    ],
)
def test_wrong_places_are_named_when_the_recipe_is_read(found: str, wrong: str, says: str) -> None:
    assert found in TEXT
    with pytest.raises(ConfigError) as caught:
        parse_recipe(TEXT.replace(found, wrong, 1), name="orangepi", file=FILE)
    assert says in caught.value.what
    assert not caught.value.what.startswith(":")
    assert caught.value.file == FILE


@pytest.mark.parametrize(
    ("second", "keep", "sizes", "says"),
    [
        (768, None, {"mlo": 110248, "u-boot": 755576}, None),
        (471, None, {"mlo": 110248, "u-boot": 1}, "sector 471) overlaps the boot loader's mlo (sectors 256 to 471)"),
        (472, None, {"mlo": 110248, "u-boot": 1}, None),
        (768, None, {"mlo": 1, "u-boot": 4 * MIB}, "139263) overlaps the boot loader's u-boot (sectors 768 to 8959)"),
        (768, (0x300, 0x301), {"mlo": 1, "u-boot": 1}, "keep_sectors (sectors 768 to 769) overlaps"),
        (2**31, None, {}, "is behind the end of the card, which has 2097152 sectors"),
    ],
)  # fmt: skip
def test_overlaps_are_named_with_their_sectors(
    second: int, keep: tuple[int, int] | None, sizes: dict[str, int], says: str | None
) -> None:
    pieces = {"mlo": {"file": "MLO", "sector": 256}, "u-boot": {"file": "u-boot.img", "sector": second}}
    loader = BootLoader.model_validate({"pieces": pieces, "keep_sectors": keep})
    problem = overlap(SHIPPED.card, loader, sizes)
    assert (says or "") in (problem or "")
    assert (says is None) is (problem is None)


def test_a_gpt_has_no_room_for_an_imx_loader_at_1_kib() -> None:
    card = SHIPPED.card.model_copy(update={"table": "gpt"})
    loader = BootLoader(pieces={"spl": LoaderPiece(file="SPL", sector=2)})
    problem = overlap(card, loader, {})
    assert problem == "the boot loader's spl (sector 2) overlaps the partition table (sectors 0 to 33)"
    assert overlap(SHIPPED.card, loader, {}) is None


def stm32() -> Recipe:
    pieces = {
        "fsbl1": {"file": "/u-boot-spl.stm32", "sector": 34, "partition": "fsbl1", "size_kib": 256},
        "fsbl2": {"file": "/u-boot-spl.stm32", "sector": 546, "partition": "fsbl2", "size_kib": 256},
        "ssbl": {"file": "/u-boot.img", "sector": 1058, "partition": "ssbl", "size_kib": 2048},
    }
    own = {"boot_loader": {"pieces": pieces}, "card": {**SHIPPED.card.model_dump(), "table": "gpt"}}
    boot = {**SHIPPED.boot.model_dump(), "root_device": "/dev/mmcblk0p5"}
    return Recipe.model_validate({**SHIPPED.model_dump(), **own, "boot": boot})


def test_a_gpt_has_the_partitions_of_the_boot_loader_first_and_is_the_same_each_time(tmp_path: Path) -> None:
    cards = [tmp_path / "one", tmp_path / "other"]
    for card in cards:
        card.touch()
        os.truncate(card, 1024 * MIB)
        process.run(["sfdisk", "--quiet", card], input_bytes=partition_table(stm32()).encode(), timeout_s=30)
    table = json.loads(process.run(["sfdisk", "--json", cards[0]], timeout_s=30).stdout)["partitiontable"]
    assert [(part["name"], part["start"], part["size"]) for part in table["partitions"]] == [
        ("fsbl1", 34, 512),
        ("fsbl2", 546, 512),
        ("ssbl", 1058, 4096),
        ("boot", 8192, 131072),
        ("root", 139264, 851968),
        ("scratch", 991232, 1103872),
    ]
    assert [part.get("attrs") for part in table["partitions"]][3] == "LegacyBIOSBootable"
    # Both tables: between them a card of a gibibyte is a hole.
    ends = [(_bytes(card, 0), _bytes(card, 1023 * MIB)) for card in cards]
    assert ends[0] == ends[1]
    assert all(map(any, ends[0]))


def _bytes(card: Path, offset: int) -> bytes:
    with card.open("rb") as file:
        file.seek(offset)
        return file.read(MIB)


def test_the_root_is_behind_the_partitions_of_the_boot_loader() -> None:
    values = stm32().model_dump()
    values["boot"]["root_device"] = "/dev/mmcblk0p2"
    with pytest.raises(ValueError, match=r"mmcblk0p2 is not the root: with 3 partitions .* the root is partition 5"):
        Recipe.model_validate(values)


# ------------------------------------------------------------------------------------------------------------- files


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (allwinner(), "allwinner"),
        (bytes.fromhex("d1002040008090000000000000000000"), "imx"),
        (bytes.fromhex("400000000c000000000000000000000000000000434853455454494e4753000000"), "omap"),
        (bytes.fromhex("3b8cdcfcbe9f9d51"), "rockchip"),
        (b"RKNS" + bytes(60), "rockchip"),
        (b"STM2" + bytes(60), "stm32"),
        (legacy_image(b"U-Boot", load_address=0xC0100000, name="U-Boot"), "uimage"),
        (bytes.fromhex("d00dfeed0000050c"), "fit"),
        (bytes.fromhex("b80000ea14f09fe5"), None),
        (b"", None),
    ],
)
def test_headers_are_told_apart(content: bytes, kind: str | None) -> None:
    assert header_of(content) == kind


def loaded(content: bytes, tmp_path: Path, **piece: Any) -> Loader:
    file = tmp_path / "loader.bin"
    file.write_bytes(content)
    values = {"file": str(file), "sector": 16, "header": "allwinner", **piece}
    return boot_loader(with_loader(pieces={"spl": values}))


def test_a_file_of_the_users_is_a_boot_loader_and_its_checksum_a_fact(tmp_path: Path) -> None:
    content = allwinner(rest=1000) + ENVIRONMENT
    loader = loaded(content, tmp_path)
    assert [file.content for file in loader.files] == [content]
    assert list(loader.checksums) == ["boot loader spl (loader.bin)"]
    assert loader.addresses == {"kernel_addr_r": 0x42000000, "fdt_addr_r": 0x43000000, "ramdisk_addr_r": 0x43400000}
    recipe = with_loader(pieces={"spl": {"file": "x", "sector": 16}})
    keys = [
        loader_key(recipe, loader),
        loader_key(recipe, loaded(content + b"!", tmp_path)),
        loader_key(SHIPPED, loader),
    ]
    assert keys[0] != keys[1] != {}
    imx6ul = load_recipe(FOLDER, "imx6ul")
    assert loader_key(imx6ul, boot_loader(imx6ul)) == {}


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (bytes.fromhex("d1002040") + bytes(4096), "an i.MX image vector table; this board starts there only files wi"),
        (b"\x7fELF" + bytes(4096), "has no header that is known"),
        (allwinner()[:-1] + b"!", "is damaged: the checksum in its header is wrong"),
        (allwinner()[:-8], "is damaged: its header says 24576 bytes, but the file has 24568"),
        (allwinner(tree="sun4i-a10-cubieboard"), "for sun4i-a10-cubieboard, but the recipe's device tree is sun8i-h3-"),
        (allwinner(rest=5 * MIB), "boot (sectors 8192 to 139263) overlaps the boot loader's spl (sectors 16 to 10303)"),
        (b"", "the boot loader's spl is empty"),
    ],
)  # fmt: skip
def test_a_loader_for_another_board_or_without_room_is_refused(content: bytes, says: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(content, tmp_path)
    assert says in caught.value.what
    assert "images/boards/orangepi.toml" in caught.value.what


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"boot loader's spl cannot be read: .*nowhere.bin: No such file"):
        boot_loader(with_loader(pieces={"spl": {"file": f"{tmp_path}/nowhere.bin", "sector": 16}}))
    (tmp_path / "usr").mkdir()
    (tmp_path / "usr" / "u-boot-with-spl.bin").touch()
    with pytest.raises(ConfigError, match=r"u-boot-sunxi has no usr/u-boot-spl.bin(.|\n)*usr/u-boot-with-spl.bin"):
        _member(tmp_path, "spl", "u-boot-sunxi", "usr/u-boot-spl.bin")


def test_a_build_configuration_is_unpacked_up_to_its_limit(tmp_path: Path) -> None:
    assert _config(tmp_path, "u-boot-sunxi", "usr/lib/u-boot/orangepi/u-boot.bin") == ""
    file = tmp_path / "usr/share/doc/u-boot-sunxi/configs/config.orangepi.gz"
    file.parent.mkdir(parents=True)
    for content, why in ((gzip.compress(bytes(64 * MIB)), "more than 4194304 bytes"), (b"", "neither gzip nor xz")):
        file.write_bytes(content)
        with pytest.raises(ConfigError, match=f"u-boot-sunxi has a damaged config.orangepi.gz: .*{why}"):
            _config(tmp_path, "u-boot-sunxi", "usr/lib/u-boot/orangepi/u-boot.bin")
    file.write_bytes(gzip.compress(b"CONFIG_ARM=y\n"))
    assert _config(tmp_path, "u-boot-sunxi", "usr/lib/u-boot/orangepi/u-boot.bin") == "CONFIG_ARM=y\n"


def test_a_partition_holds_its_piece(tmp_path: Path) -> None:
    file = tmp_path / "spl"
    file.write_bytes(bytes(MIB))
    recipe = stm32()
    pieces = {"fsbl1": {"file": str(file), "sector": 34, "partition": "fsbl1", "size_kib": 256}}
    small = recipe.model_copy(update={"boot_loader": BootLoader.model_validate({"pieces": pieces})})
    with pytest.raises(ConfigError, match="fsbl1 has 1048576 bytes, its partition fsbl1 262144"):
        boot_loader(small)


def test_the_name_of_the_device_tree_is_in_an_allwinner_header() -> None:
    assert device_tree_of(allwinner("sun7i-a20-cubietruck")) == "sun7i-a20-cubietruck"
    assert device_tree_of(b"STM2" + bytes(600)) is None


# ------------------------------------------------------------------------------------------------------------ memory


def test_a_kernel_that_reaches_into_the_device_tree_is_named_with_sizes() -> None:
    addresses = addresses_in([b"nothing", ENVIRONMENT])
    assert collision(addresses, kernel=bytes(16 * MIB), initrd=1, device_tree=1) is None
    problem = collision(addresses, kernel=bytes(16 * MIB + 1), initrd=1, device_tree=1)
    assert problem is not None
    assert "the kernel has 16.0 MiB, but" in problem
    assert "16.0 MiB between it (kernel_addr_r = 0x42000000) and the device tree (fdt_addr_r = 0x43000000)" in problem
    assert collision({}, kernel=bytes(64 * MIB), initrd=1, device_tree=1) is None
    # Without a device tree there is more room.
    assert collision(addresses, kernel=bytes(20 * MIB), initrd=1, device_tree=0) is None


def test_a_kernel_is_not_copied_onto_the_initramfs() -> None:
    addresses = addresses_in([b"\0kernel_addr_r=0x48000000\0ramdisk_addr_r=0x40800000\0"])
    kernel = legacy_image(bytes(10 * MIB), load_address=0x40008000, name="x")
    problem = collision(addresses, kernel=kernel, initrd=1, device_tree=0)
    assert problem is not None
    assert problem.startswith(
        "the unpacked kernel has 10.0 MiB, but in the board's memory there are 8.0 MiB between it"
    )


KERNEL = b"\x2e\x40\x04\xeb" * 10_000


@pytest.fixture
def kernel(tmp_path: Path) -> KernelFiles:
    """A zImage of 16 KiB with a kernel of 40 KB."""
    code = bytearray(16384)
    struct.pack_into("<I", code, 0x24, 0x016F2818)
    struct.pack_into("<I", code, 0x1000, 0xE2844982)
    folder = tmp_path / "kernel"
    folder.mkdir()
    (folder / "board.dtb").write_bytes(bytes(100))
    packed = lzma.compress(KERNEL, format=lzma.FORMAT_XZ)
    (folder / "zImage").write_bytes(bytes(code) + b"\xfd7zXZ\0 is the magic number" + packed + b"size")
    return KernelFiles("k", folder, folder / "zImage", "6.1", "", {}, {})


@pytest.mark.parametrize(("room", "name"), [(50_000, "uImage"), (20_000, "zImage"), (10_000, None)])
def test_the_packed_kernel_is_taken_if_the_unpacked_one_has_no_room(
    room: int, name: str | None, kernel: KernelFiles, tmp_path: Path, said: list[str]
) -> None:
    boot = tmp_path / "boot"
    boot.mkdir()
    addresses = {"kernel_addr_r": 0x42000000, "fdt_addr_r": 0x42000000 + room, "ramdisk_addr_r": 0x43000000}
    loader = Loader(addresses=addresses)  # type: ignore[arg-type]

    def write() -> dict[str, str]:
        recipe = with_loader(script="mmc 0:1")
        return write_boot_files(boot, recipe, "ext4", kernel=kernel, initramfs=b"070701", loader=loader)

    if name is None:
        with pytest.raises(ConfigError, match=r"cannot boot the kernel 6.1: the kernel has 0.0 MiB"):
            write()
        return
    assert {name, "board.dtb", "initrd.img", "boot.scr"} == set(write())
    assert f"LINUX /{name}" in (boot / "extlinux" / "extlinux.conf").read_text()
    assert [("taking the packed zImage" in line) for line in said] == ([True] if name == "zImage" else [])
    script = (boot / "boot.scr").read_bytes()
    assert struct.unpack_from(">I", script, 24)[0] == zlib.crc32(script[64:])
    assert struct.unpack_from(">2I", script, 64) == (len(script) - 72, 0)
    command = "bootm" if name == "uImage" else "bootz"
    assert script[72:].decode().splitlines()[1:] == [
        f"load mmc 0:1 0x42000000 /{name}",
        f"load mmc 0:1 {0x42000000 + room:#x} /board.dtb",
        "load mmc 0:1 0x43000000 /initrd.img",
        f"{command} 0x42000000 0x43000000:${{filesize}} {0x42000000 + room:#x}",
    ]


def test_boot_scr_needs_to_know_where_to_load(kernel: KernelFiles, tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"boot.scr cannot be written without kernel_addr_r, fdt_addr_r, ramdisk_addr_r"
    ):
        write_boot_files(
            tmp_path, with_loader(script="mmc 0:1"), "ext4",
            kernel=kernel, initramfs=b"070701", loader=Loader())  # fmt: skip


@pytest.mark.parametrize("place", ["u-boot.bin", "overlays/x.dtbo", "INITRD.IMG", "extlinux/extlinux.conf"])
def test_a_loaders_file_on_the_boot_partition_replaces_no_other(
    place: str, kernel: KernelFiles, tmp_path: Path
) -> None:
    boot = tmp_path / "boot"
    boot.mkdir()
    piece = LoaderPiece(file="u-boot.bin", boot_file=place)
    loader = Loader((LoaderFile("u-boot", piece, b"U-Boot"),))

    def write() -> None:
        write_boot_files(boot, SHIPPED, "ext4", kernel=kernel, initramfs=b"070701", loader=loader)

    if place in {"u-boot.bin", "overlays/x.dtbo"}:
        write()
        assert (boot / place).read_bytes() == b"U-Boot"
    else:
        with pytest.raises(ConfigError, match="where another file has that name"):
            write()


# --------------------------------------------------------------------------------------------------------- block map


@pytest.mark.parametrize("keep", [None, (2, 1023), (12_000, 12_001)])
def test_the_block_map_leaves_a_foreign_boot_loader_alone(keep: tuple[int, int] | None, tmp_path: Path) -> None:
    image, card = tmp_path / "card.img", tmp_path / "card"
    with image.open("wb") as file:
        file.truncate(8 * MIB)
        file.write(b"table" + bytes(507) + b"zeros up to the end of the block" * 100)
        file.seek(5 * MIB)
        file.write(b"root" * MIB)
    make_block_map(image, keep)
    # Into an empty file: sectors that it does not write are zeros.
    process.run(["bmaptool", "copy", "--bmap", f"{image}.bmap", image, card], timeout_s=60)
    wanted, written = bytearray(image.read_bytes()), card.read_bytes()
    if keep is not None:
        first, last = keep[0] * 512, (keep[1] + 1) * 512
        assert any(wanted[first:last])
        wanted[first:last] = bytes(last - first)
    assert written.ljust(len(wanted), b"\0") == wanted
