"""The emulated Raspberry Pi 3, a 64-bit ARM that starts the real U-Boot on its card."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from bench_runs import PROJECT, all_valid, only_run, patient_environment, run_bench
from in_place_board import RPI3, card, in_place_board
from lab_leftovers import assert_nothing_left

from fsjoule.host import process
from fsjoule.lab import second_slot
from fsjoule.lab.flashers import boot_partition
from fsjoule.model import MarkSource

pytestmark = pytest.mark.slow


def test_u_boot_starts_from_the_card_and_the_board_is_measured(state: Path, tmp_path: Path) -> None:
    results = tmp_path / "results"
    environment = patient_environment(results, PROJECT / "env" / "virtual-rpi3.yaml")
    options = ("--fs", "ext4", "--kernel", "6.1", "--repeat", "1", "-k", "ext4-boot")
    done = run_bench(results, *options, environment=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    run = only_run(results)
    assert all_valid(run)
    [measurement], [card] = run.measurements, run.run.images
    assert measurement.energy is not None
    assert run.run.board is not None
    assert run.run.board.kernel_release.endswith("-arm64")
    assert card.packages["u-boot-rpi"]
    assert card.has_boot_loader
    console = "".join(path.read_text(errors="replace") for path in state.rglob("console.log"))
    assert "with extlinux" in console
    assert_nothing_left(state, state / "devices")


def test_a_boot_and_an_operation_are_measured_by_the_edges_of_a_gpio(state: Path, tmp_path: Path) -> None:
    results = tmp_path / "results"
    environment = patient_environment(results, PROJECT / "env" / "virtual-rpi3-gpio.yaml")
    options = ("--fs", "ext4", "--kernel", "6.1", "--repeat", "1", "-k", "ext4-boot or ext4-mount")
    done = run_bench(results, *options, environment=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    run = only_run(results)
    assert all_valid(run)
    for measurement in run.measurements:
        trace = run.trace(measurement.number)
        assert trace is not None
        rising, falling = trace.marks
        assert (rising.source, falling.source) == (MarkSource.RISING, MarkSource.FALLING)
        assert measurement.window_s == pytest.approx((falling.time_us - rising.time_us) / 1e6)
        assert measurement.energy is not None
    assert len(run.measurements) == 2
    assert_nothing_left(state, state / "devices")


def _with_second_slot(image: Path, folder: Path) -> None:
    """What a flash in place leaves behind: U-Boot's scripts and its flag. The second kernel is the kept one's file."""
    boot = boot_partition(image)
    partition = f"{image}@@{boot.start * boot.sector_bytes}"
    usual = folder / "extlinux.conf"
    process.run(["mcopy", "-i", partition, f"::{second_slot.USUAL}", usual], timeout_s=30)
    kept = usual.read_text()
    second = kept.replace("APPEND ", f"APPEND {second_slot.WORD}once ")
    files = {
        second_slot.SCRIPT: second_slot.script(boot),
        second_slot.ENTRY: second.encode(),
        second_slot.ENTRY_SCRIPT: second_slot.as_script(second),
        second_slot.KEPT: kept.encode(),
        second_slot.KEPT_SCRIPT: second_slot.as_script(kept),
    }
    process.run(["mmd", "-i", partition, f"::{second_slot.FOLDER}"], timeout_s=30)
    process.run(["mdel", "-i", partition, f"::{second_slot.USUAL}"], timeout_s=30)
    for name, content in files.items():
        assert content is not None
        file = folder / "file"
        file.write_bytes(content)
        process.run(["mcopy", "-i", partition, file, f"::{name}"], timeout_s=30)
    with image.open("r+b") as opened:
        opened.seek(second_slot.flag_sector(boot) * boot.sector_bytes)
        opened.write(second_slot.flag())


@pytest.mark.usefixtures("state")
def test_a_u_boot_without_sysboot_starts_the_second_kernel_once_and_then_the_kept_one(tmp_path: Path) -> None:
    """Debian's U-Boot for the Raspberry Pi has no such command: the scripts load the kernel themselves."""
    kept, image = card("6.1", recipe="rpi3-qemu"), tmp_path / "card.img"
    process.run(["cp", "--sparse=always", kept, image], timeout_s=120)
    _with_second_slot(image, tmp_path)
    with in_place_board(image, tmp_path, RPI3) as board:
        strategy: Any = board.strategy
        board.off()
        shell = strategy.boot()
        assert f"{second_slot.WORD}once" in shell.run(["cat", "/proc/cmdline"]).stdout.split()
        assert second_slot.TRYING in strategy.recorder.text()
        strategy.off()
        strategy.start()
        strategy.console.expect("Starting kernel", timeout=600)
        said = strategy.recorder.text()
        assert second_slot.TRYING not in said
        assert "Unknown command 'sysboot'" in said
        # The script, and the kept kernel's files.
        assert said.count("bytes read in") == 4
        strategy.off()
