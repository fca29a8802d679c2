from __future__ import annotations

import re
from pathlib import Path

import pytest

from fsjoule.errors import ConfigError
from fsjoule.filesystems import FILESYSTEMS
from fsjoule.host import process
from fsjoule.host.toml_lines import line_of
from fsjoule.kernels.dkms import modules_to_build
from fsjoule.kernels.kernel import change_device_tree, wanted_modules
from fsjoule.kernels.recipe import Recipe, load_recipe, parse_recipe

FOLDER = Path(__file__).parents[2] / "images"
FILE = FOLDER / "imx6ul.toml"
TEXT = FILE.read_text(encoding="utf-8")


def shipped() -> Recipe:
    return load_recipe(FOLDER, "imx6ul")


def test_the_shipped_recipe_names_four_kernels_and_every_filesystem_that_can_be_a_root() -> None:
    recipe = shipped()
    assert tuple(recipe.kernels) == ("5.10", "6.1", "6.12", "sid")
    assert set(recipe.root_filesystems) == {
        row.name for row in FILESYSTEMS.values() if row.root or row.is_image_of_disk
    }
    assert {"ext4", "nilfs2", "squashfs"} < set(recipe.root_filesystems)
    assert recipe.kernel("6.1").flavour == "armmp"


def test_partitions_follow_each_other_and_fill_the_card() -> None:
    card = shipped().card
    assert card.root_start_mib == card.boot_start_mib + card.boot_mib
    assert card.scratch_start_mib + card.scratch_mib == card.size_mib


def test_unknown_names_list_the_choices() -> None:
    recipe = shipped()
    with pytest.raises(ConfigError, match=r"unknown kernel '4.19'(.|\n)*5.10, 6.1, 6.12, sid"):
        recipe.kernel("4.19")
    with pytest.raises(ConfigError, match=r"unknown root filesystem 'vfat'(.|\n)*ext4"):
        recipe.filesystem("vfat")
    with pytest.raises(ConfigError, match=r"unknown image recipe 'imx9'(.|\n)*imx6ul"):
        load_recipe(FOLDER, "imx9")


@pytest.mark.parametrize(
    ("found", "wrong", "says", "at"),
    [
        ("[boot]", "[card]\nsize_mib = 1000\n[boot]", "size_mib = 1000 is not a power of two", "[card]"),
        ("[boot]", "[card]\nroot_mib = 960\n[boot]", "no room for the scratch partition", "[card]"),
        ("[boot]", '[card]\nboot_mib = "much"\n[boot]', "card.boot_mib", 'boot_mib = "much"'),
        ("[boot]", "[card]\nboot_mb = 64\n[boot]", "card.boot_m", "boot_mb = 64"),
        ("[boot]", 'without = ["jffs9"]\n[boot]', "jffs9 is no filesystem; choose from: ext4, ext3", "without"),
        (
            'root_device = "/dev/mmcblk1p2"',
            'root_device = "mmcblk1p2"',
            "boot.root_device",
            'root_device = "mmcblk1p2"',
        ),
        ("memory_base = 0x8000_0000", "memory_base = -1", "boot.memory_base", "memory_base = -1"),
        ('suite = "bullseye"', 'siute = "bullseye"', "kernels.5.10", 'siute = "bullseye"'),
        (
            'suite = "bullseye"\npackage = "linux-image-armmp"',
            'suite = "bullseye"\npackage = "linux-armmp"',
            "kernels.5.10.package",
            'package = "linux-armmp"',
        ),
        ("[modules]", "[userspace]\n[modules]", "userspace: Extra inputs", "[userspace]"),
        ('base = "debian"', 'base = "gentoo"', "no base recipe 'gentoo'", 'base = "gentoo"'),
        ("architecture =", "architecture", "not valid TOML", 'architecture "armhf"'),
    ],
)
def test_mistakes_are_named_with_file_and_line(found: str, wrong: str, says: str, at: str | None) -> None:
    assert found in TEXT
    text = TEXT.replace(found, wrong, 1)
    with pytest.raises(ConfigError) as caught:
        parse_recipe(text, name="imx6ul", file=FILE)
    error = caught.value
    assert says in error.what
    assert error.file == FILE
    assert error.line is not None
    if at is not None:
        lines = text.splitlines()
        # A key that is missing is reported at its table.
        assert lines[error.line - 1].startswith((at, "[card]", '[kernels."5.10"]'))


def test_a_mistake_in_what_a_recipe_is_based_on_is_named_there(tmp_path: Path) -> None:
    (tmp_path / "base").mkdir()
    base = tmp_path / "base" / "debian.toml"
    found = (FOLDER / "base" / "debian.toml").read_text(encoding="utf-8")
    base.write_text(found + "[roots.vfat]\n")
    with pytest.raises(
        ConfigError, match=r"no root partition can be made with vfat; choose from: ext4, btrfs"
    ) as caught:
        parse_recipe(TEXT, name="imx6ul", file=tmp_path / "imx6ul.toml")
    assert caught.value.file == base
    assert base.read_text().splitlines()[(caught.value.line or 0) - 1] == "[roots.vfat]"


def test_a_root_is_made_as_the_table_says_or_as_the_recipe_does() -> None:
    kept, own = (
        shipped(),
        parse_recipe(TEXT + '[roots.ext4]\nmake_options = ["-b", "1024"]\n', name="x", file=FILE),
    )
    assert kept.filesystem("ext4").as_root == FILESYSTEMS["ext4"].root
    assert own.filesystem("ext4").as_root.options == ("-b", "1024")
    assert own.filesystem("ext4").make == FILESYSTEMS["ext4"].make
    with pytest.raises(ConfigError, match="no root partition can be made with vfat"):
        _ = FILESYSTEMS["vfat"].as_root


def test_what_a_recipe_says_goes_before_what_it_is_based_on() -> None:
    recipe = parse_recipe(TEXT + '[userland]\nsuite = "sid"\n', name="imx6ul", file=FILE)
    assert recipe.userland.suite == "sid"
    assert recipe.userland.applets == shipped().userland.applets != ()


def test_a_recipe_may_be_based_on_another_board(tmp_path: Path) -> None:
    emulated, real = load_recipe(FOLDER, "orangepi-qemu"), load_recipe(FOLDER, "orangepi")
    changes = {"/timer": {"clock-frequency": 62_500_000}}
    assert emulated.boot.device_tree == {**real.boot.device_tree, **changes}
    assert emulated.boot_loader == real.boot_loader
    assert load_recipe(FOLDER, "imx6ul-evk").boot_loader.script == "mmc 1:1"
    served = load_recipe(FOLDER, "orangepi-ssh").userland
    assert served.more_packages == ("dropbear-bin",)
    assert set(load_recipe(FOLDER, "orangepi-ssh").packages) - set(load_recipe(FOLDER, "orangepi-qemu").packages) == {
        "dropbear-bin"
    }
    kept = "usr/lib/*/libperl.so.*"
    assert kept in emulated.userland.removed
    (tmp_path / "mine").mkdir()
    mine = tmp_path / "mine" / "mine.toml"
    mine.write_text(f'base = "orangepi-qemu"\n[userland]\nkeep = ["{kept}"]\n')
    again = load_recipe(FOLDER, str(mine)).userland
    assert set(emulated.userland.removed) - set(again.removed) == {kept}
    mine.write_text('base = "orangepi-qemu"\n[userland]\nkeep = ["usr/nothing"]\n')
    with pytest.raises(ConfigError, match="keep: usr/nothing is not in remove"):
        load_recipe(FOLDER, str(mine))
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "debian.toml").write_text((FOLDER / "base" / "debian.toml").read_text())
    (tmp_path / "middle.toml").write_text(TEXT + "[card]\nboot_mib = -1\n")
    text = 'base = "middle"\nhostname = "own"\n'
    with pytest.raises(ConfigError, match=r"card.boot_mib") as caught:
        parse_recipe(text, name="own", file=tmp_path / "own.toml")
    assert caught.value.file == tmp_path / "middle.toml"
    (tmp_path / "middle.toml").write_text('base = "own"\n')
    (tmp_path / "own.toml").write_text(text)
    with pytest.raises(ConfigError, match=r"there is no base recipe 'own'(.|\n)*choose from: debian$"):
        parse_recipe(text, name="own", file=tmp_path / "own.toml")


def test_a_device_tree_is_changed_by_texts_and_numbers(tmp_path: Path) -> None:
    tree = tmp_path / "board.dtb"
    source = '/dts-v1/; / { timer { status = "disabled"; dmas = <1 2>; }; };'
    tree.write_bytes(process.run(["dtc", "-q"], input_bytes=source.encode(), timeout_s=10).stdout)
    changes = {"/timer": {"status": "okay", "clock-frequency": 62_500_000, "dmas": False, "dma-names": False}}
    boot = shipped().boot.model_validate({**shipped().boot.model_dump(), "device_tree": changes})
    change_device_tree(tree, shipped().model_copy(update={"boot": boot}))
    told = process.run(["fdtget", tree, "/timer", "status", "/timer", "clock-frequency"], timeout_s=10).stdout
    assert told.decode().split() == ["okay", "62500000"]
    left = process.run(["fdtget", "-p", tree, "/timer"], timeout_s=10).stdout
    assert set(left.decode().split()) == {"status", "clock-frequency"}


def test_the_board_with_an_x86_cpu_has_no_device_tree() -> None:
    recipe = load_recipe(FOLDER, "x86")
    assert (recipe.boot.image, recipe.boot.dtb, recipe.boot.memory_base) == ("bzImage", None, None)
    text = (FOLDER / "x86.toml").read_text(encoding="utf-8") + '[boot.device_tree.x]\nstatus = "okay"\n'
    with pytest.raises(ConfigError, match="but dtb names none"):
        parse_recipe(text, name="x86", file=FOLDER / "x86.toml")


def test_only_zfs_has_to_be_built_and_only_for_kernels_of_the_recipe() -> None:
    imx6ul, x86 = shipped(), load_recipe(FOLDER, "x86")
    every = {module for row in FILESYSTEMS.values() if not row.unreleased for module in row.modules}
    assert modules_to_build(imx6ul, "6.1", every - {"zfs"}) == modules_to_build(x86, "5.10", every - {"zfs"}) == ()
    assert modules_to_build(x86, "6.1", every) == ("zfs",)
    with pytest.raises(ConfigError, match=r"the kernel ./mine has no module zfs(.|\n)*6\.1"):
        modules_to_build(x86, "./mine", every)
    with pytest.raises(ConfigError, match="recipe 'imx6ul' have no module zfs"):
        modules_to_build(imx6ul, "6.1", every)


def test_a_board_has_the_packages_and_modules_of_the_rows(tmp_path: Path) -> None:
    imx6ul, x86 = shipped(), load_recipe(FOLDER, "x86")
    for row in FILESYSTEMS.values():
        assert (set(row.packages) <= set(x86.packages)) != row.unreleased
        assert (set(row.packages) <= set(imx6ul.packages)) == (set(row.modules) <= set(wanted_modules(imx6ul)))
    mine = tmp_path / "mine.toml"
    mine.write_text('base = "imx6ul"\nwithout = ["nilfs2", "ext3"]\n')
    less = load_recipe(FOLDER, str(mine))
    assert set(imx6ul.packages) - set(less.packages) == {"nilfs-tools"}
    assert set(wanted_modules(imx6ul)) - set(wanted_modules(less)) == {"nilfs2"}
    assert set(imx6ul.root_filesystems) - set(less.root_filesystems) == {"nilfs2"}
    mine.write_text('base = "imx6ul"\n[userland]\narchive = "root.tar"\n')
    assert load_recipe(FOLDER, str(mine)).packages == ()


def test_a_package_that_debian_has_not_released_is_had_by_its_suite(tmp_path: Path) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text('base = "x86"\n[userland.suites]\nbcachefs-tools = "experimental"\n')
    recipe = load_recipe(FOLDER, str(mine))
    assert "bcachefs-tools" in recipe.packages
    assert modules_to_build(recipe, "6.12", ["bcachefs"]) == ()
    with pytest.raises(
        ConfigError, match=r"have no bcachefs: Debian has released no bcachefs-tools(.|\n)*6\.12 has it"
    ):
        modules_to_build(load_recipe(FOLDER, "x86"), "6.12", ["bcachefs"])


def test_no_recipe_names_what_a_row_has() -> None:
    rows = FILESYSTEMS.values()
    named = {f'"{word}"' for row in rows for word in (*row.packages, *row.modules)} - {'"ext4"'}
    for file in FOLDER.rglob("*.toml"):
        text = re.sub(r"^without = \[.*?\]", "", file.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        assert not [word for word in named if word in text], file
    fragment = (FOLDER / "imx6ul.config").read_text(encoding="utf-8")
    assert not [symbol for row in rows for symbol in row.kconfig if f"CONFIG_{symbol}=" in fragment]


def test_a_module_is_built_for_kernels_that_there_are() -> None:
    text = (FOLDER / "x86.toml").read_text(encoding="utf-8").replace('zfs = ["', 'zfs = ["4.19", "')
    with pytest.raises(ConfigError, match=r"modules\.dkms\.zfs names unknown kernels: 4\.19"):
        parse_recipe(text, name="x86", file=FOLDER / "x86.toml")


def test_lines_of_keys_in_tables_dotted_and_quoted() -> None:
    text = 'a = 1\n[b]\nc.d = 2\n\n[e."f.g"] # comment\nh = 3\n"i j" = 4\n'
    assert line_of(text, ["a"]) == 1
    assert line_of(text, ["b", "c", "d"]) == 3
    assert line_of(text, ["e", "f.g", "h"]) == 6
    assert line_of(text, ["e", "f.g", "i j"]) == 7
    assert line_of(text, ["e", "f.g", "missing"]) == 5
    assert line_of(text, ["nowhere"]) == 1


def test_the_module_of_a_boards_network_goes_onto_the_root() -> None:
    recipe = load_recipe(FOLDER, "orangepi")
    assert recipe.board is not None
    assert recipe.board.network not in {*recipe.modules.card, *recipe.modules.root}
    assert recipe.board.network in wanted_modules(recipe)
