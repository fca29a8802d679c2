"""The emulated Orange Pi PC, which starts the real SPL and U-Boot on its card: a bench, and boots that fail.

test_ssh_shell.py measures on this board each time; test_board_abilities.py and test_boot_failures.py are quick.
"""

from __future__ import annotations

import os
import struct
import subprocess
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from bench_runs import PROJECT, SMALL, complete_run, patient_environment
from lab_board import lab_beside, strategy_of

from fsjoule import images
from fsjoule.errors import BoardError, ConfigError
from fsjoule.host import process
from fsjoule.images import CardImage
from fsjoule.kernels.image import unpacked_kernel
from fsjoule.lab import BoardStrategy, loader_help, second_slot
from fsjoule.lab.boards.abilities import abilities_by_help
from fsjoule.lab.flashers import boot_partition
from fsjoule.model import MIB, ImageFacts

pytestmark = pytest.mark.slow

ENVIRONMENT = PROJECT / "env" / "virtual-orangepi.yaml"
NAME = "virtual-orangepi"
BOOT_START = 4 * MIB
# A zImage for U-Boot: ARM's `b .`, and at 36 the magic number, the start and the end.
HANG = struct.pack("<9I3I", *[0xEAFFFFFE] * 9, 0x016F2818, 0, 4096).ljust(4096, b"\0")


@dataclass(frozen=True)
class _Image:
    path: Path
    facts: ImageFacts


@pytest.fixture(scope="module")
def environment(module_state: Path) -> Generator[dict[str, str]]:
    assert module_state.is_dir()
    with lab_beside(NAME, "orangepi") as handle:
        yield handle.environment


@pytest.mark.usefixtures("environment")
def test_u_boot_starts_from_the_card_and_the_board_is_measured(tmp_path: Path) -> None:
    """First of this module: the others hold the place."""
    results = tmp_path / "results"
    loaded = complete_run(results, patient_environment(results, ENVIRONMENT), *SMALL)
    run, [measurement] = loaded.run, loaded.measurements
    assert measurement.invalid_reasons == ()
    assert measurement.energy is not None
    [card] = run.images
    assert card.packages["u-boot-sunxi"]
    assert card.has_boot_loader
    console = "".join(
        path.read_text(errors="replace") for path in Path(os.environ["FSJOULE_STATE_DIR"]).rglob("console.log")
    )
    assert "U-Boot SPL 20" in console
    assert "Found /extlinux/extlinux.conf" in console


@pytest.fixture(scope="module")
def board(environment: dict[str, str]) -> Generator[BoardStrategy]:
    """The place acquired, and the strategy of a labgrid target on it."""
    with strategy_of(ENVIRONMENT, environment["LG_PLACE"]) as strategy:
        strategy.silence_timeout, strategy.boot_timeout = 20, 60
        yield strategy


@pytest.fixture(scope="module")
def card() -> CardImage:
    return images.build_card("6.1", "ext4", recipe="orangepi-qemu")


def test_the_boot_loader_that_runs_is_asked_for_its_commands(board: BoardStrategy, card: CardImage) -> None:
    board.card = card
    board.transition("flashed")
    abilities = abilities_by_help(loader_help(board.target, "=> "))
    lacks = {way.name: way.lacks for way in abilities.ways}
    assert lacks["network (TFTP, mmc write)"] == ()
    assert lacks["USB mass storage (ums)"] == ("the command ums",)
    assert "extlinux.conf" in abilities.boots
    assert board.status.name == "off"


def _without_spl(image: Path) -> None:
    with image.open("r+b") as file:
        file.seek(8192)
        file.write(bytes(32 * 1024))


def _without_u_boot(image: Path) -> None:
    with image.open("r+b") as file:
        file.seek(8192 + 24 * 1024)
        file.write(bytes(MIB))


def _without_extlinux(image: Path) -> None:
    process.run(["mdel", "-i", f"{image}@@{BOOT_START}", "::extlinux/extlinux.conf"], timeout_s=30)


def _with_a_kernel_that_is_too_large(image: Path) -> None:
    """The unpacked kernel, which fsjoule does not put there: the device tree is loaded into its end."""
    kernel = image.with_name("uImage")
    packed = subprocess.run(
        ["mcopy", "-i", f"{image}@@{BOOT_START}", "::zImage", "-"], capture_output=True, check=True, timeout=30
    ).stdout
    unpacked = unpacked_kernel(packed, memory_base=0x4000_0000, name="6.1")
    assert unpacked is not None
    kernel.write_bytes(unpacked[1])
    process.run(["mdel", "-i", f"{image}@@{BOOT_START}", "::zImage"], timeout_s=30)
    process.run(["mcopy", "-i", f"{image}@@{BOOT_START}", kernel, "::zImage"], timeout_s=60)


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (_without_spl, "no console output within 20 s of power-on: its boot ROM may have found no boot loader"),
        (_without_u_boot, r"no login within 60 s .* the first loader \(SPL\) started what is in U-Boot's place"),
        (_without_extlinux, r"there is no extlinux/extlinux.conf on the card's boot partition \("),
        (_with_a_kernel_that_is_too_large, r"the kernel damaged: too large for its place in memory.*\(Bad Data CRC\)"),
    ],
)
def test_a_boot_that_fails_says_what_is_wrong_with_the_card(
    damage: Callable[[Path], None],
    says: str,
    board: BoardStrategy,
    card: CardImage,
    tmp_path: Path,
) -> None:
    image = tmp_path / "card.img"
    process.run(["cp", "--sparse=always", card.path, image], timeout_s=120)
    damage(image)
    board.card = _Image(image, replace(card.facts, card_sha256=damage.__name__))
    with pytest.raises(BoardError, match=says):
        board.transition("booted")


def test_a_card_without_a_boot_loader_is_refused_before_it_is_written(board: BoardStrategy, card: CardImage) -> None:
    checksums = {name: digest for name, digest in card.facts.checksums.items() if not name.startswith("boot loader ")}
    board.card = _Image(card.path, replace(card.facts, checksums=checksums, card_sha256="none"))
    with pytest.raises(ConfigError, match=r"'orangepi-qemu' has no boot loader, and virtual-orangepi starts the one"):
        board.transition("booted")


def _hanging_second_kernel(image: Path, folder: Path) -> None:
    """U-Boot's script and its flag, and a second kernel that does nothing for ever."""
    boot = boot_partition(image)
    partition = f"{image}@@{BOOT_START}"
    second = folder / "second"
    second.mkdir()
    (second / "zImage").write_bytes(HANG)
    (second / "extlinux.conf").write_text(
        "DEFAULT second\nLABEL second\n    LINUX /second/zImage\n    FDT /board.dtb\n    APPEND x\n"
    )
    (folder / "boot.scr").write_bytes(second_slot.script(boot))
    process.run(["mcopy", "-s", "-i", partition, second, folder / "boot.scr", "::"], timeout_s=30)
    process.run(["mren", "-i", partition, f"::{second_slot.USUAL}", Path(second_slot.KEPT).name], timeout_s=30)
    with image.open("r+b") as file:
        file.seek(second_slot.flag_sector(boot) * boot.sector_bytes)
        file.write(second_slot.flag())


def test_u_boot_starts_the_second_kernel_once_and_the_kept_one_after_each_further_power_cycle(
    board: BoardStrategy, card: CardImage, tmp_path: Path
) -> None:
    """Two power cycles until a kernel starts: 20 to 50 s. `make test-flashing` has whole boots."""
    image = tmp_path / "card.img"
    process.run(["cp", "--sparse=always", card.path, image], timeout_s=120)
    _hanging_second_kernel(image, tmp_path)
    board.card = _Image(image, replace(card.facts, card_sha256="second"))
    board.transition("flashed")
    labgrid_strategy: Any = board
    console = labgrid_strategy.console
    for kernel in ("/second/zImage", "/zImage"):
        board.start()
        console.expect("Starting kernel", timeout=120)
        assert f"Retrieving file: {kernel}" in board.recorder.text()
        assert (second_slot.TRYING in board.recorder.text()) == (kernel == "/second/zImage")
        board.off()
    board.transition("off")
