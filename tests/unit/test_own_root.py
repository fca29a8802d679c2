"""Another distribution's root filesystem: what is accepted, and what is added to it."""

from __future__ import annotations

import shutil
import tarfile
from pathlib import Path

import pytest

from fsjoule.errors import ConfigError
from fsjoule.host import process
from fsjoule.images.own_root import BUSYBOX, add_busybox, archive_sha256, check_root, unpack_root
from fsjoule.images.userland import _finish, _merge_usr
from fsjoule.kernels.recipe import Recipe, load_recipe, parse_recipe, recipes_folder

ARM64 = b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x02\x00\xb7\x00" + bytes(100)
ARM = b"\x7fELF\x01\x01\x01" + bytes(9) + b"\x02\x00\x28\x00" + bytes(100)
X86 = ARM[:18] + b"\x3e\x00" + bytes(100)
RECIPE = load_recipe(recipes_folder(), "imx6ul")
TEXT = 'base = "{}"\n[userland]\npackages = []\narchive = "{}"\n'


def own(tmp_path: Path, archive: Path, base: str = "imx6ul") -> Recipe:
    file = tmp_path / "mine.toml"
    file.write_text(TEXT.format(base, archive))
    return load_recipe(recipes_folder(), str(file))


def root(folder: Path, program: bytes = ARM) -> Path:
    """A root filesystem like Buildroot's: /bin beside /usr/bin, busybox for nearly all."""
    for place in ("bin", "sbin", "usr/bin", "dev", "etc"):
        (folder / place).mkdir(parents=True)
    (folder / "bin" / "busybox").write_bytes(program)
    (folder / "bin" / "sh").symlink_to("busybox")
    (folder / "sbin" / "init").symlink_to("../bin/busybox")
    (folder / "usr" / "bin" / "fio").write_bytes(program)
    (folder / "sbin" / "fio2").symlink_to("../usr/bin/fio")
    return folder


def packed(folder: Path, file: Path) -> Path:
    with tarfile.open(file, "w:gz") as archive:
        archive.add(folder, ".")
    return file


@pytest.mark.parametrize("kind", ["tar", "ext4"])
def test_an_archive_or_an_image_is_unpacked_and_its_programs_found(kind: str, tmp_path: Path) -> None:
    source, file = root(tmp_path / "source"), tmp_path / f"rootfs.{kind}"
    if kind == "tar":
        packed(source, file)
    else:
        process.run(["mke2fs", "-q", "-t", "ext4", "-d", source, file, "4M"], timeout_s=30)
    tree = tmp_path / "tree"
    unpack_root(file, tree)
    _merge_usr(tree)
    check_root(own(tmp_path, file), file, tree)
    assert (tree / "bin").readlink() == Path("usr/bin")
    assert (tree / "usr" / "bin" / "busybox").read_bytes() == ARM
    # Links from the folders that have moved lead where they did.
    assert (tree / "usr" / "sbin" / "fio2").readlink() == Path("/usr/bin/fio")
    assert (tree / "usr" / "sbin" / "init").resolve() == tree / "usr" / "bin" / "busybox"
    _merge_usr(tree)  # of a distribution that has done it


@pytest.mark.parametrize(
    ("lacking", "program", "says"),
    [
        ("usr/bin/fio", ARM, "the root filesystem rootfs.tar has no fio"),
        ("bin/busybox", ARM, "the root filesystem rootfs.tar has no sh"),
        ("usr", ARM, "the root filesystem rootfs.tar has no fio"),
        ("", X86, r"rootfs.tar is for x86-64 \(sh\), but .*mine.toml for armhf"),
    ],
)
def test_a_root_filesystem_that_cannot_measure_is_refused(
    lacking: str, program: bytes, says: str, tmp_path: Path
) -> None:
    source = root(tmp_path / "source", program)
    if (source / lacking).is_file():
        (source / lacking).unlink()
    elif lacking:
        shutil.rmtree(source / lacking)
    file, tree = packed(source, tmp_path / "rootfs.tar"), tmp_path / "tree"
    unpack_root(file, tree)
    _merge_usr(tree)
    with pytest.raises(ConfigError, match=says):
        check_root(own(tmp_path, file), file, tree)


def test_a_64_bit_board_takes_a_64_bit_root_filesystem_only(tmp_path: Path) -> None:
    recipe = own(tmp_path, tmp_path / "rootfs.tar", "rpi3")
    for name, program in (("arm64", ARM64), ("armhf", ARM)):
        _merge_usr(root(tmp_path / name, program))
    check_root(recipe, tmp_path / "rootfs.tar", tmp_path / "arm64")
    with pytest.raises(ConfigError, match=r"rootfs.tar is for 32-bit ARM \(sh\), but .*mine.toml for arm64"):
        check_root(recipe, tmp_path / "rootfs.tar", tmp_path / "armhf")


def test_what_is_no_archive_is_named(tmp_path: Path) -> None:
    file = tmp_path / "rootfs.tar"
    with pytest.raises(ConfigError, match=r"mine.toml: the root filesystem cannot be read: .*rootfs.tar: No such file"):
        archive_sha256(own(tmp_path, file), file)
    file.write_text("no archive at all")
    with pytest.raises(ConfigError, match=r"rootfs.tar cannot be unpacked"):
        unpack_root(file, tmp_path / "tree")


def test_fsjoules_scripts_run_with_its_own_busybox(tmp_path: Path) -> None:
    tree, overlay, busybox = tmp_path / "tree", tmp_path / "overlay", tmp_path / "busybox"
    busybox.write_bytes(ARM)
    for folder in (tree, overlay):
        (folder / "usr" / "lib" / "fsjoule").mkdir(parents=True)
        (folder / "usr" / "lib" / "fsjoule" / "login").write_text("#!/usr/bin/busybox sh\ngetty\n")
    add_busybox(tree, busybox, overlay)
    assert (tree / BUSYBOX).read_bytes() == ARM
    assert (tree / "usr" / "lib" / "fsjoule" / "login").read_text() == f"#!/{BUSYBOX} sh\ngetty\n"


def test_a_recipe_may_lie_outside_the_checkout_and_needs_files_for_its_root(tmp_path: Path) -> None:
    recipe = own(tmp_path, tmp_path / "rootfs.tar")
    assert (recipe.name, recipe.file) == ("mine", str(tmp_path / "mine.toml"))
    assert recipe.modules == RECIPE.modules
    with pytest.raises(ConfigError, match="neither packages nor an archive"):
        parse_recipe(TEXT.format("imx6ul", ""), name="mine", file=tmp_path / "mine.toml")
    with pytest.raises(ConfigError, match="unknown image recipe"):
        load_recipe(recipes_folder(), str(tmp_path / "none.toml"))
    (tmp_path / "binary.toml").write_bytes(b"\xff")
    with pytest.raises(ConfigError, match=r"binary.toml: the recipe cannot be read"):
        load_recipe(recipes_folder(), str(tmp_path / "binary.toml"))


def test_nothing_that_a_link_leads_to_outside_of_the_root_filesystem_is_touched(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("this computer's")
    source, tree = tmp_path / "source", tmp_path / "tree"
    for name in ("usr/bin", "var"):
        (source / name).mkdir(parents=True)
    (source / "var" / "cache").symlink_to(outside)
    (source / "usr" / "sbin").symlink_to("/usr/bin")
    (source / "usr" / "share").symlink_to(outside)
    (outside / "doc").mkdir()
    file = packed(source, tmp_path / "rootfs.tar")
    unpack_root(file, tree)
    _finish(tree, RECIPE)
    assert sorted(path.name for path in outside.iterdir()) == ["doc", "kept"]
    assert (tree / "usr" / "sbin").readlink() == Path("bin")


@pytest.mark.parametrize("name", ["usr", "etc"])
def test_a_root_filesystem_whose_folders_are_outside_of_it_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / name).symlink_to(f"../../{name}")
    file = packed(tmp_path / "source", tmp_path / "rootfs.tar")
    with pytest.raises(ConfigError, match=rf"rootfs.tar cannot be used: /{name} is a link to ../../{name}, outside"):
        unpack_root(file, tmp_path / "tree")


def test_a_damaged_image_with_a_file_outside_of_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "..-evil").write_text("evil")
    file = tmp_path / "rootfs.ext4"
    process.run(["mke2fs", "-q", "-O", "^metadata_csum", "-d", tmp_path / "source", file, "4M"], timeout_s=30)
    file.write_bytes(file.read_bytes().replace(b"..-evil", b"../evil"))
    with pytest.raises(ConfigError, match=r"rootfs.ext4 cannot be unpacked: .*e2fsck"):
        unpack_root(file, tmp_path / "tree")
    assert not (tmp_path / "evil").exists()
