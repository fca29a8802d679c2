"""Read-only roots: real images, real hash trees, and what is refused before a board sees any of it."""

from __future__ import annotations

import os
from pathlib import Path
from uuid import UUID

import pytest

from fsjoule.errors import ConfigError, HostError
from fsjoule.filesystems import filesystem
from fsjoule.host import process
from fsjoule.images.boot_files import kernel_arguments
from fsjoule.images.read_only import (
    BLOCK_BYTES,
    add_hash_tree,
    initramfs_programs,
    make_image,
    root_modules,
    verity_file,
    verity_word,
)
from fsjoule.kernels.recipe import load_recipe
from fsjoule.model import MIB

ONE = UUID("01234567-89ab-4def-8123-456789abcdef")
RECIPE = load_recipe(Path(__file__).parents[2] / "images")
TABLE = f"4096,4096,16,16,sha256,{'ab' * 32},00"


def image_of(name: str, folder: Path, *, room_mib: int = 16, files: int = 1) -> Path:
    tree, image = folder / "tree", folder / "root.img"
    (tree / "usr").mkdir(parents=True)
    for number in range(files):
        (tree / "usr" / f"program-{number}").write_bytes(os.urandom(MIB // 2) + b"text " * 100_000)
    make_image(filesystem(name), tree, image, room_mib=room_mib, identity=ONE, steady={})
    return image


@pytest.mark.parametrize("name", ["squashfs:xz+block1m", "erofs:lz4hc+cluster64k", "ext4-ro"])
def test_an_image_is_as_large_as_its_files_need(name: str, tmp_path: Path) -> None:
    size = image_of(name, tmp_path).stat().st_size
    assert size % BLOCK_BYTES == 0
    assert MIB // 2 < size < 3 * MIB


def test_an_image_that_does_not_fit_its_partition_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"image of squashfs has 2\.\d MiB, and the root partition 1 MiB(.|\n)*compress it"
    ):
        image_of("squashfs", tmp_path, room_mib=1, files=4)


def test_what_the_hosts_program_does_not_know_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"mkfs\.erofs makes no erofs:mkfs=-z frog(.|\n)*know its options"):
        image_of("erofs:mkfs=-z frog", tmp_path)


def test_a_hash_tree_finds_a_changed_byte(tmp_path: Path) -> None:
    kind, image = filesystem("squashfs:verity"), image_of("squashfs", tmp_path)
    blocks = image.stat().st_size // BLOCK_BYTES
    add_hash_tree(kind, image, room_mib=16)
    words = verity_file(image).read_text().split(",")
    assert words[2:5] == [str(blocks), str(blocks), "sha256"]
    check = ["veritysetup", "verify", "--no-superblock", "--salt", words[6], "--data-blocks", words[2]]
    check += ["--hash-offset", str(blocks * BLOCK_BYTES), str(image), str(image), words[5]]
    assert process.run(check, timeout_s=30, check=False).returncode == 0
    with image.open("r+b") as file:
        file.seek(5000)
        file.write(bytes([file.read(1)[0] ^ 1]))
    assert process.run(check, timeout_s=30, check=False).returncode != 0


def test_a_root_without_a_root_hash_is_refused() -> None:
    word = verity_word("/dev/x2", TABLE)
    assert word == f"fsjoule.verity=128,{TABLE}"
    for wrong in ("", TABLE.replace("ab" * 32, ""), TABLE.removesuffix(",00")):
        with pytest.raises(ConfigError, match="/dev/x2 is to be checked by dm-verity, and has no root hash"):
            verity_word("/dev/x2", wrong)


def test_a_read_only_root_is_mounted_so_below_an_overlay() -> None:
    assert "ro" in kernel_arguments(RECIPE, "squashfs:zstd").split()
    assert root_modules(RECIPE.filesystem("squashfs:zstd+verity")) == ("squashfs", "dm-verity", "overlay")
    assert root_modules(RECIPE.filesystem("ext4")) == ("ext4",)


def test_the_initramfs_has_dmsetup_with_its_libraries(tmp_path: Path) -> None:
    kind, tree = filesystem("squashfs:verity"), tmp_path
    with pytest.raises(ConfigError, match="the user land has no dmsetup"):
        initramfs_programs(kind, tree)
    assert initramfs_programs(filesystem("squashfs"), tree) == {}
    (tree / "usr/sbin").mkdir(parents=True)
    (tree / "usr/lib/arm-linux-gnueabihf").mkdir(parents=True)
    (tree / "usr/sbin/dmsetup").write_bytes(b"\x7fELF\0libdevmapper.so.1.02.1\0ld-linux-armhf.so.3\0")
    for name, content in (("libdevmapper.so.1.02.1", b"libc.so.6\0"), ("libc.so.6", b""), ("ld-linux-armhf.so.3", b"")):
        (tree / "usr/lib/arm-linux-gnueabihf" / name).write_bytes(content)
    assert sorted(initramfs_programs(kind, tree)) == [
        *("bin/dmsetup", "lib/ld-linux-armhf.so.3", "lib/libc.so.6", "lib/libdevmapper.so.1.02.1")
    ]


def test_a_program_that_returns_no_hash_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image = tmp_path / "root.img"
    image.write_bytes(bytes(BLOCK_BYTES))
    (tmp_path / "veritysetup").write_text("#!/bin/sh\n")
    (tmp_path / "veritysetup").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(HostError, match="veritysetup returned no root hash"):
        add_hash_tree(filesystem("squashfs:verity"), image, room_mib=16)
