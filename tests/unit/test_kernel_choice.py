"""What `--kernel` can be, and what is said of what it cannot be."""

from __future__ import annotations

import gzip
import json
import lzma
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from fsjoule.errors import ConfigError, HostError
from fsjoule.host import process
from fsjoule.images.emulator import needed_qemu
from fsjoule.kernels.build_folder import BuildFolder, build_folder, folder_kernel
from fsjoule.kernels.image import kernel_release
from fsjoule.kernels.kernel import _decompressed
from fsjoule.kernels.recipe import load_recipe, recipes_folder
from fsjoule.kernels.sources import PackageFile, _device_tree, _with_neighbours, kernel_choice, numbered

RECIPE = load_recipe(recipes_folder())
DTB = RECIPE.boot.dtb or ""


def write(folder: Path, *names: str) -> Path:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return folder


def package(folder: Path, name: str, *, architecture: str = "armhf", version: str = "1", depends: str = "") -> Path:
    """A Debian package that holds nothing."""
    tree = write(folder / name, "usr/share/doc/nothing")
    control = f"Package: {name}\nVersion: {version}\nArchitecture: {architecture}\nMaintainer: a <a@b.c>\n"
    control += f"Depends: {depends}\n" if depends else ""
    (tree / "DEBIAN").mkdir()
    (tree / "DEBIAN" / "control").write_text(control + "Description: none\n")
    file = folder / f"{name}_{version}_{architecture}.deb"
    process.run(["dpkg-deb", "--root-owner-group", "--build", tree, file], timeout_s=30)
    shutil.rmtree(tree)
    return file


# ------------------------------------------------------------------------------------------------------------- choices


def test_a_device_tree_that_is_not_in_the_package_is_named_with_similar_ones(tmp_path: Path) -> None:
    folder = tmp_path / "usr" / "lib" / "linux-image-6.1" / "dtbs"
    folder.mkdir(parents=True)
    with pytest.raises(HostError, match=r"no device tree: am335x-bonblack\.dtb anywhere in linux\.deb"):
        _device_tree(tmp_path, "am335x-bonblack.dtb", [Path("linux.deb")], "6.1")
    for name in ("am335x-boneblack.dtb", "imx6ul-14x14-evk.dtb"):
        (folder / name).touch()
    with pytest.raises(
        ConfigError, match=r"no device tree am335x-bonblack.dtb among the 2 in linux.deb(.|\n)*mean am335x-boneblack"
    ):
        _device_tree(tmp_path, "am335x-bonblack.dtb", [Path("linux.deb")], "6.1")
    assert _device_tree(tmp_path, "imx6ul-14x14-evk.dtb", [], "6.1") == folder / "imx6ul-14x14-evk.dtb"


@pytest.mark.parametrize("place", ["lib/firmware/6.2.0/device-tree/arm", "boot/dtb-6.2.0", "usr/lib/modules/6.2.0/dtb"])
def test_a_device_tree_is_found_where_other_distributions_have_it(tmp_path: Path, place: str) -> None:
    write(tmp_path, f"{place}/{DTB}")
    write(tmp_path, f"boot/dtbs/5.10.0/{DTB}")  # an older kernel's
    (tmp_path / "boot" / DTB).symlink_to("/nowhere")
    assert _device_tree(tmp_path, DTB, [], "6.2.0") == tmp_path / place / DTB


def test_a_name_of_the_recipe_is_one_whatever_lies_in_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "6.1", "zImage", DTB, "lib/modules/6.1.5/modules.order")
    monkeypatch.chdir(tmp_path)
    assert kernel_choice(RECIPE, "6.1") == "6.1"
    assert isinstance(kernel_choice(RECIPE, "./6.1"), BuildFolder)


@pytest.mark.parametrize("asked", ["x" * 300, f"/{'x' * 300}", "a\0b", "~nosuchuser/kernel", "/dev/null/kernel"])
def test_what_can_be_no_path_is_told_as_such(asked: str) -> None:
    with pytest.raises(ConfigError, match=r"unknown kernel|there is no kernel at|--kernel") as caught:
        kernel_choice(RECIPE, asked)
    assert len(caught.value.what) < 350


def test_a_package_file_says_which_kernel_it_holds(tmp_path: Path) -> None:
    file = package(tmp_path, "linux-image-6.1.5-mine", version="6.1.5-1", depends="linux-modules-6.1.5-mine, kmod")
    choice = kernel_choice(RECIPE, str(file))
    assert isinstance(choice, PackageFile)
    assert (choice.release, choice.version) == ("6.1.5-mine", "6.1.5-1")
    assert choice.depends == ("linux-modules-6.1.5-mine", "kmod")
    # Armbian's image depends on no device trees.
    for name in ("linux-modules-6.1.5-mine", "linux-dtb-6.1.5-mine", "linux-dtb-6.1.5-other"):
        package(tmp_path, name, version="6.1.5-1")
    assert [each.name.split("-")[1] for each in _with_neighbours(choice)] == ["image", "modules", "dtb"]


def test_unknown_names_list_the_choices() -> None:
    with pytest.raises(ConfigError, match=r"unknown kernel '4\.19'\n.*5\.10, 6\.1, 6\.12, sid; or name a package file"):
        kernel_choice(RECIPE, "4.19")


@pytest.mark.parametrize("asked", ["nowhere/build", "linux-image-6.1_armhf.deb"])
def test_a_path_that_leads_nowhere_is_called_one(asked: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=f"no kernel at {asked}"):
        kernel_choice(RECIPE, asked)


def test_an_image_alone_is_not_enough(tmp_path: Path) -> None:
    write(tmp_path, "zImage")
    with pytest.raises(ConfigError, match=r"neither a package file .* nor a build folder"):
        kernel_choice(RECIPE, str(tmp_path / "zImage"))


def test_a_package_that_is_no_kernel_for_this_board_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is the package bash, which is not a kernel"):
        kernel_choice(RECIPE, str(package(tmp_path, "bash")))
    other = package(tmp_path, "linux-image-6.1.5-amd64", architecture="amd64")
    with pytest.raises(ConfigError, match="is for amd64; the board needs armhf"):
        kernel_choice(RECIPE, str(other))
    other.write_bytes(other.read_bytes()[:100])
    with pytest.raises(ConfigError, match="not a whole Debian package"):
        kernel_choice(RECIPE, str(other))


def test_equal_labels_are_numbered() -> None:
    assert numbered(["build", "6.1", "build"]) == ["build#1", "6.1", "build#2"]


@pytest.mark.parametrize(
    ("release", "qemu"), [("6.1.0-50-armmp", "0.0"), ("6.4.99", "0.0"), ("6.5.0-rc1", "8.2"), ("6.12.1+", "8.2")]
)
def test_the_emulator_follows_from_the_kernels_release(release: str, qemu: str) -> None:
    assert needed_qemu(RECIPE, release) == qemu


# ------------------------------------------------------------------------------------------------------- build folders


def test_a_build_folder_may_be_as_make_or_as_tuxmake_leaves_it(tmp_path: Path) -> None:
    made = write(
        tmp_path / "made",
        "arch/arm/boot/zImage",
        f"arch/arm/boot/dts/nxp/imx/{DTB}",
        "lib/modules/6.1.5/kernel/fs/ext4/ext4.ko",
    )
    tuxmade = write(tmp_path / "tuxmade", "zImage", "dtbs.tar.xz", "modules.tar.xz")
    found = build_folder(made, RECIPE.boot)
    assert found.image == made / "arch/arm/boot/zImage"
    assert found.dtb == made / f"arch/arm/boot/dts/nxp/imx/{DTB}"
    assert found.modules == made / "lib/modules/6.1.5"
    found = build_folder(tuxmade, RECIPE.boot)
    parts = (found.image, found.dtb, found.modules)
    assert parts == tuple(tuxmade / name for name in ("zImage", "dtbs.tar.xz", "modules.tar.xz"))


def test_all_that_is_missing_in_a_build_folder_is_named_with_what_makes_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        build_folder(write(tmp_path, "vmlinux"), RECIPE.boot)
    complaint = str(caught.value)
    for missing, command in (
        ("no kernel image", "make zImage"),
        (f"no device tree {DTB}", "make dtbs"),
        ("no modules", f"make modules_install INSTALL_MOD_PATH={tmp_path}"),
    ):
        assert missing in complaint
        assert command in complaint
    write(tmp_path, "zImage", f"dtbs/{DTB}")
    with pytest.raises(ConfigError) as caught:
        build_folder(tmp_path, RECIPE.boot)
    assert "no modules" in caught.value.what
    assert "no kernel image" not in caught.value.what
    assert "no device tree" not in caught.value.what


def test_modules_that_were_built_but_not_installed_are_missing(tmp_path: Path) -> None:
    write(tmp_path, "zImage", DTB, "modules.builtin", "modules.order")
    with pytest.raises(ConfigError, match="no modules"):
        build_folder(tmp_path, RECIPE.boot)
    (tmp_path / "modules.order").write_text("")  # nothing was built as a module
    assert build_folder(tmp_path, RECIPE.boot).modules == tmp_path / "modules.builtin"


def test_modules_of_several_kernels_are_refused_unless_the_build_says_which_are_its_own(tmp_path: Path) -> None:
    write(tmp_path, "zImage", DTB, "lib/modules/6.1.5/modules.order", "lib/modules/6.1.6/modules.order")
    with pytest.raises(ConfigError, match="modules of more than one kernel"):
        build_folder(tmp_path, RECIPE.boot)
    write(tmp_path, "include/config/kernel.release").joinpath("include/config/kernel.release").write_text("6.1.6\n")
    assert build_folder(tmp_path, RECIPE.boot).modules == tmp_path / "lib/modules/6.1.6"


def test_a_kernel_is_told_apart_by_what_is_used_of_its_folder_and_nothing_else(tmp_path: Path) -> None:
    first, second = (
        build_folder(write(tmp_path / name, "zImage", DTB, "lib/modules/6.1.5/modules.order"), RECIPE.boot).files()
        for name in ("first", "second")
    )
    assert first == second
    write(tmp_path / "second", "vmlinux.o")
    assert build_folder(tmp_path / "second", RECIPE.boot).files() == second
    (tmp_path / "second" / "lib/modules/6.1.5/modules.order").write_text("another")
    changed = build_folder(tmp_path / "second", RECIPE.boot).files()
    assert {name for name in changed if changed[name] != first[name]} == {"lib/modules/6.1.5"}


@pytest.mark.parametrize(
    ("file", "notes", "label"),
    [
        ("metadata.json", {"git": {"git_describe": "v6.1-3-gabc", "git_commit": "abc"}}, "v6.1-3-gabc"),
        ("metadata.json", {"git": {"git_commit": "0123456789abcdef"}}, "0123456789ab"),
        ("metadata.json", {"build": {}}, "mine"),
        ("fsjoule.json", {"git_describe": "v6.12"}, "v6.12"),
    ],
)
def test_a_folder_is_called_by_its_revision_or_by_its_name(
    file: str, notes: dict[str, object], label: str, tmp_path: Path
) -> None:
    folder = write(tmp_path / "mine", "zImage", DTB, "modules.tar.xz")
    (folder / file).write_text(json.dumps(notes))
    assert build_folder(folder, RECIPE.boot).label == label


def test_a_source_tree_that_was_built_in_is_called_by_its_revision(tmp_path: Path) -> None:
    tree = write(tmp_path / "linux", "Kbuild", "zImage", DTB, "modules.tar.xz")
    for command in (
        ["init", "--quiet"],
        ["add", "Kbuild"],
        ["-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "--quiet", "--message=one"],
        ["tag", "v6.1.5"],
    ):
        process.run(["git", "-C", tree, *command], timeout_s=30)
    assert build_folder(tree, RECIPE.boot).git_describe == "v6.1.5"
    (tree / "Kbuild").write_text("changed")
    assert build_folder(tree, RECIPE.boot).git_describe == "v6.1.5-dirty"


def test_notes_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    write(tmp_path, "zImage", DTB, "modules.tar.xz", "metadata.json")
    with pytest.raises(ConfigError, match=r"metadata\.json: the notes cannot be read"):
        build_folder(tmp_path, RECIPE.boot)


@pytest.mark.parametrize("pack", [lzma.compress, gzip.compress], ids=["xz", "gzip"])
def test_a_kernel_image_says_its_release(pack: Callable[[bytes], bytes]) -> None:
    text = b"\0" * 5000 + b"Linux version 6.1.5-mine (fsjoule@fsjoule) (gcc) #1\n" + b"\0" * 5000
    code = b"\x1f\x8b\x08 and \xfd7zXZ\0 are constants of the decompressor"
    assert kernel_release(code + pack(text) + b"the end") == "6.1.5-mine"
    assert kernel_release(code) is None


# -------------------------------------------------------------------------------------------------------- architecture

ARM64 = bytes(56) + b"ARMd" + bytes(200) + b"Linux version 6.1.5 (someone)"
ARMHF = bytes(0x24) + b"\x18\x28\x6f\x01" + bytes(200)


@pytest.mark.parametrize(
    ("board", "image", "says"),
    [
        ("rpi3", ARMHF, r"the kernel image \S+/Image is for armhf, but \S+/rpi3.toml for arm64"),
        ("rpi3", bytes(56) + b"RSC\x05" + bytes(200), "is for riscv64, but .* for arm64"),
        ("rpi3", bytes(0x202) + b"HdrS" + bytes(200), "is for amd64, but .* for arm64"),
        ("rpi3", b"Linux version 6.1.5 (", "is of an unknown format, but .* for arm64"),
        ("rpi3", gzip.compress(ARMHF), "is for armhf, but .* for arm64"),
        ("rpi3", gzip.compress(ARM64)[:-9], r"the kernel image \S+/Image is damaged"),
        ("imx6ul", ARM64, r"the kernel image \S+/zImage is for arm64, but \S+/imx6ul.toml for armhf"),
        # Taken: it lacks modules only.
        ("rpi3", ARM64, r"the kernel 6\.1\.5 has no bcm2835"),
        ("rpi3", gzip.compress(ARM64), r"the kernel 6\.1\.5 has no bcm2835"),
    ],
    ids=[
        "32-bit",
        "riscv",
        "x86",
        "unknown",
        "packed 32-bit",
        "damaged",
        "64-bit on 32-bit",
        "64-bit",
        "packed 64-bit",
    ],
)
def test_a_kernel_for_another_processor_is_named(
    board: str, image: bytes, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FSJOULE_CACHE_DIR", str(tmp_path / "cache"))
    shipped = load_recipe(recipes_folder(), board)
    boot = shipped.boot.model_copy(update={"dtb": None, "device_tree": {}})
    recipe = shipped.model_copy(update={"boot": boot})
    folder = write(tmp_path / "build", boot.image)
    (folder / boot.image).write_bytes(image)
    (folder / "lib/modules/6.1.5").mkdir(parents=True)
    (folder / "lib/modules/6.1.5/modules.builtin").touch()
    with pytest.raises(ConfigError, match=says):
        folder_kernel(recipe, build_folder(folder, boot))


def test_an_archive_of_modules_cannot_take_files_of_the_host_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FSJOULE_CACHE_DIR", str(tmp_path / "cache"))
    recipe = load_recipe(recipes_folder(), "rpi3")
    boot = recipe.boot.model_copy(update={"dtb": None, "device_tree": {}})
    tree = write(tmp_path / "tree", "lib/modules/6.1.5/modules.builtin")
    (tree / "lib/modules/6.1.5/modules.order").symlink_to("/etc/passwd")
    folder = write(tmp_path / "build", boot.image)
    (folder / boot.image).write_bytes(ARM64)
    process.run(["tar", "--create", "--file", folder / "modules.tar", "--directory", tree, "lib"], timeout_s=30)
    with pytest.raises(ConfigError, match=r"the link lib/modules/6\.1\.5/modules\.order leads out of it"):
        folder_kernel(recipe.model_copy(update={"boot": boot}), build_folder(folder, boot))


def test_a_damaged_module_is_named(tmp_path: Path) -> None:
    for name, content in (("a.ko.xz", lzma.compress(b"module")[:-9]), ("b.ko.gz", b"no gzip")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ConfigError, match=f"the module {name} cannot be unpacked"):
            _decompressed(tmp_path / name)
