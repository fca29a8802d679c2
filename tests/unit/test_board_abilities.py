"""What a board's boot loader can do: which ways of flashing it serves, by its configuration and by its help."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from fsjoule.images.boot_loader import _config
from fsjoule.kernels.recipe import load_recipe, recipes_folder
from fsjoule.lab.boards.abilities import abilities_by_help, abilities_of, abilities_text, parse_config
from fsjoule.lab.boards.checking import check_board, unable
from fsjoule.lab.boards.files import Wired, board_files, paths_of, write_new

WIRED = Wired("netio", "http://outlet7.lab", 3, "A50285BI", "FSJ0001", "1234")
BONE = load_recipe(recipes_folder(), "beaglebone-black")
CONFIG = """\
CONFIG_SYS_PROMPT="STM32MP> "
CONFIG_BOOTDELAY=1
CONFIG_CMD_USB_MASS_STORAGE=y
# CONFIG_UDP_FUNCTION_FASTBOOT is not set
CONFIG_CMD_MMC=y
CONFIG_MMC_WRITE=y
CONFIG_CMD_TFTPBOOT=y
CONFIG_CMD_SYSBOOT=y
"""
HELP = """\
?         - alias for 'help'\r
fastboot  - run as a fastboot usb or udp device\r
mmc       - MMC sub system\r
sysboot   - command to get and boot from syslinux files\r
tftpboot  - load file via network using TFTP protocol\r
=> """


def test_ways_of_flashing_come_from_the_configuration() -> None:
    abilities = abilities_of(parse_config(CONFIG))
    can = {way.name for way in abilities.ways if not way.lacks}
    assert can == {"USB mass storage (ums)", "network (TFTP, mmc write)"}
    assert (abilities.prompt, abilities.delay_s, abilities.boots) == ("STM32MP> ", 1, ("extlinux.conf",))
    text = abilities_text(BONE, abilities)
    assert "  no   fastboot over UDP: without CONFIG_UDP_FUNCTION_FASTBOOT" in text
    assert "prompt: 'STM32MP> ', but images/boards/beaglebone-black.toml says '=> ', after 1 s" in text
    assert "names no boot loader whose configuration Debian has" in abilities_text(BONE, None)


def test_ways_of_flashing_come_from_the_running_boot_loader() -> None:
    abilities = abilities_by_help(HELP)
    can = {way.name for way in abilities.ways if not way.lacks}
    assert can == {"fastboot over USB", "fastboot over UDP", "fastboot over TCP", "network (TFTP, mmc write)"}
    assert {way.lacks for way in abilities.ways if "ums" in way.name} == {("the command ums",)}
    assert abilities.boots == ("extlinux.conf",)
    assert abilities_text(BONE, abilities).endswith("finds the kernel by: extlinux.conf")


@pytest.mark.parametrize(
    ("flasher", "lacks"),
    [
        ("tftp", None),
        ("sdmux", None),
        ("kept", None),
        ("in-place", "CONFIG_CMD_SOURCE, CONFIG_CMD_ITEST, CONFIG_CMD_MEMORY"),
        ("fastboot", "CONFIG_USB_FUNCTION_FASTBOOT or CONFIG_UDP_FUNCTION_FASTBOOT or CONFIG_TCP_FUNCTION_FASTBOOT"),
    ],
)
def test_a_flasher_that_the_boot_loader_cannot_serve_is_named(flasher: str, lacks: str | None, tmp_path: Path) -> None:
    paths = paths_of("bone7", tmp_path)
    write_new(board_files("bone7", BONE, WIRED, flasher), paths)
    told = [str(problem) for problem in unable(check_board(paths["environment"]), abilities_of(parse_config(CONFIG)))]
    assert [f"cannot write this card: the boot loader is without {lacks}\n" in each for each in told] == (
        [] if lacks is None else [True]
    )


def test_a_boot_loader_can_be_flashed_in_place_with_sysboot_or_with_load() -> None:
    needed = "CONFIG_CMD_SOURCE=y\nCONFIG_CMD_ITEST=y\nCONFIG_CMD_MEMORY=y\n"
    for option, lacks in (
        ("CONFIG_CMD_SYSBOOT=y", ()),
        ("CONFIG_CMD_FS_GENERIC=y", ()),
        ("", ("CONFIG_CMD_SYSBOOT or CONFIG_CMD_FS_GENERIC",)),
    ):
        [way] = [each for each in abilities_of(parse_config(needed + option)).ways if each.name.startswith("in place")]
        assert way.lacks == lacks
    [way] = [each for each in abilities_by_help(HELP).ways if each.name.startswith("in place")]
    assert way.lacks == ("the command source", "the command itest", "the command mw")


def test_the_configuration_lies_beside_the_loader_in_debians_package(tmp_path: Path) -> None:
    folder = tmp_path / "usr" / "share" / "doc" / "u-boot-x" / "configs"
    folder.mkdir(parents=True)
    (folder / "config.y.gz").write_bytes(gzip.compress(CONFIG.encode()))
    assert _config(tmp_path, "u-boot-x", "usr/lib/u-boot/y/u-boot.img") == CONFIG
    assert _config(tmp_path, "u-boot-x", "usr/lib/u-boot/z/MLO") == ""
