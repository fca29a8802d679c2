"""Boards in guest time that start Debian's U-Boot from their card: the emulated Orange Pi PC and Raspberry Pi 3.

U-Boot waits by asking a timer without end, which costs QEMU most in guest time: a power-on takes a minute of CPU. So
these are not among the tests of `make test`; `make test-boards` runs them.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path

import pytest
from guest_time import Supply, telling_commands, two_sessions_agree
from virtual_board import BoardProgram, board_config
from waiting import wait_for

from fsjoule.host import process
from fsjoule.images import build_card
from fsjoule.virtual.lab import services
from fsjoule.virtual.lab.services import board_template


@pytest.fixture(params=["deterministic-orangepi", "deterministic-rpi3"])
def board(tmp_path: Path, request: pytest.FixtureRequest) -> Generator[BoardProgram]:
    """A board of `labgrid/virtual` with its files in a folder of the test."""
    template = board_template(request.param)
    own = board_config(tmp_path)
    assert template.guest_time is not None
    card = build_card("6.1", "ext4", recipe=template.recipe).path
    process.run(["cp", "--sparse=always", card, own.card.image], timeout_s=120)
    config = replace(
        own,
        card=replace(own.card, slot=template.card.slot),
        qemu=template.qemu,
        power=template.power,
        guest_time=replace(template.guest_time, mailbox=tmp_path / "box", probe=services.probe()),
    )
    with BoardProgram(config) as program:
        yield program


def test_two_power_ons_with_the_real_boot_loader_are_the_same_to_the_nanosecond(board: BoardProgram) -> None:
    two_sessions_agree(board, telling_commands("mmcblk0"), boot_timeout_s=1800.0)
    log = (board.config.log_dir / "console.log").read_text(errors="replace")
    assert log.count("Hit any key to stop autoboot") == 2
    assert len(re.findall(r"Found /extlinux/extlinux\.conf|' with extlinux", log)) == 2


def test_the_boot_roms_own_reads_of_the_card_are_no_work_of_the_board(board: BoardProgram) -> None:
    first_events: set[bytes] = set()
    for _ in range(20):
        with Supply(board.config.feed) as supply:
            board.power(on=True)
            wait_for(lambda told=supply.events: len(told) >= 32 * 50, "the first milliseconds are told")
            board.power(on=False)
        first_events.add(bytes(supply.events[: 32 * 50]))
    assert len(first_events) == 1
