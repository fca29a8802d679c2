"""A disk that loses its cache, as QEMU's own client sees it: what was flushed stays, the rest is up to chance."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from fsjoule.host import process
from fsjoule.model.card_writes import read_card_writes
from fsjoule.virtual.disks import lossy_disk as lossydisk
from fsjoule.virtual.disks.flash_card import FlashCard, FlashGeometry
from fsjoule.virtual.disks.lossy_disk import SECTOR_BYTES, Cache, LossyDisk

SIZE = 4 << 20
BLOCK = 4096
OLD, NEW, NEWER = 0x11, 0x22, 0x33


class Host:
    """A disk and the client that dies with the board."""

    def __init__(self, folder: Path, cache: Cache, flash: FlashCard | None = None) -> None:
        self.image = folder / "disk.img"
        self.image.write_bytes(bytes([OLD]) * SIZE)
        self.socket = folder / "disk"
        self.disk = LossyDisk("stick", self.image, self.socket, cache, flash)

    def qemu_io(self, *commands: str, flushed: bool = False) -> str:
        """Run commands; a client that is not killed flushes at its end."""
        ends = () if flushed else ("-c", "sigraise 9")
        argv = ("qemu-io", "-t", "writeback", "-f", "raw", f"nbd+unix:///?socket={self.socket}")
        done = process.run((*argv, *(word for c in commands for word in ("-c", c)), *ends), timeout_s=60, check=False)
        assert done.returncode == (0 if flushed else -signal.SIGKILL), done.stdout + done.stderr
        output = (done.stdout + done.stderr).decode()
        assert "failed" not in output
        return output

    def blocks(self, count: int) -> list[set[int]]:
        """What each of the first blocks is made of."""
        content = self.image.read_bytes()
        return [set(content[i * BLOCK : (i + 1) * BLOCK]) for i in range(count)]


@pytest.fixture
def host(tmp_path: Path) -> Generator[Callable[[Cache], Host]]:
    made: list[Host] = []

    def make(cache: Cache) -> Host:
        made.append(Host(tmp_path, cache))
        return made[-1]

    yield make
    for each in made:
        each.disk.close()


def written(count: int, pattern: int, first: int = 0, flags: str = "") -> list[str]:
    return [f"write {flags} -P {pattern} {(first + i) * BLOCK} {BLOCK}" for i in range(count)]


def test_what_was_flushed_stays_and_of_the_rest_each_write_is_there_or_not(host: Callable[[Cache], Host]) -> None:
    disk = host(Cache.LOST)
    disk.qemu_io(*written(64, NEW), "flush", *written(64, NEW, first=64))
    loss = disk.disk.cut(1)
    assert disk.blocks(64) == [{NEW}] * 64
    rest = disk.blocks(128)[64:]
    assert all(block in ({OLD}, {NEW}) for block in rest)
    assert (loss.unflushed, loss.torn) == (64, 0)
    assert loss.lost == rest.count({OLD})
    assert 16 < loss.lost < 48
    assert "seed 1" in str(loss)


def test_the_loss_is_given_by_the_seed(host: Callable[[Cache], Host]) -> None:
    disk = host(Cache.LOST)
    seen: list[list[set[int]]] = []
    for seed in (1, 2, 1):
        disk.qemu_io(*written(64, OLD), "flush", *written(64, NEW))
        disk.disk.cut(seed)
        seen.append(disk.blocks(64))
    assert seen[0] == seen[2] != seen[1]


def test_a_write_that_has_to_last_does_whatever_becomes_of_those_around_it(host: Callable[[Cache], Host]) -> None:
    disk = host(Cache.LOST)
    commands = [*written(32, NEW), *written(32, NEWER, flags="-f")]
    for seed in range(4):
        disk.qemu_io(*written(32, OLD), "flush", *commands)
        disk.disk.cut(seed)
        assert disk.blocks(32) == [{NEWER}] * 32


def test_writes_of_one_place_keep_their_order(host: Callable[[Cache], Host]) -> None:
    disk = host(Cache.LOST)
    disk.qemu_io(*written(64, NEW), *written(64, NEWER))
    disk.disk.cut(1)
    blocks = disk.blocks(64)
    # Each of the two survives by itself; what came later is on top.
    assert {OLD} in blocks
    assert {NEW} in blocks
    assert blocks.count({NEWER}) > max(blocks.count({OLD}), blocks.count({NEW}))


def test_each_write_is_recorded_in_its_order(host: Callable[[Cache], Host], tmp_path: Path) -> None:
    disk = host(Cache.KEPT)
    record = tmp_path / "writes"
    other = LossyDisk("card", disk.image, tmp_path / "card", Cache.KEPT, record=record)
    disk.socket = tmp_path / "card"
    disk.qemu_io(*written(2, NEW), f"read 0 {BLOCK}", *written(1, NEWER))
    other.close()
    assert [(each.offset, set(each.data)) for each in read_card_writes(record)] == [
        (0, {NEW}),
        (BLOCK, {NEW}),
        (0, {NEWER}),
    ]


def test_one_write_is_torn_between_two_sectors(host: Callable[[Cache], Host]) -> None:
    disk = host(Cache.TORN)
    disk.qemu_io(*written(16, NEW))
    loss = disk.disk.cut(1)
    torn = [i for i, block in enumerate(disk.blocks(16)) if block == {OLD, NEW}]
    assert loss.torn == len(torn) == 1
    assert loss.lost == disk.blocks(16).count({OLD})
    content = disk.image.read_bytes()[torn[0] * BLOCK : (torn[0] + 1) * BLOCK]
    assert content.rstrip(bytes([OLD])) == bytes([NEW]) * content.count(NEW)
    assert content.count(NEW) % SECTOR_BYTES == 0


def test_the_board_reads_what_it_wrote_and_finds_what_is_left_after_the_cut(host: Callable[[Cache], Host]) -> None:
    disk = host(Cache.LOST)
    disk.qemu_io(*written(8, NEW), f"read -P {NEW} 0 {8 * BLOCK}", f"read -P {OLD} {8 * BLOCK} {BLOCK}")
    disk.disk.cut(5)
    left = disk.blocks(8)
    reads = [f"read -P {block.pop()} {i * BLOCK} {BLOCK}" for i, block in enumerate(left)]
    assert "verification" not in disk.qemu_io(*reads, flushed=True)
    # That client has written nothing: there is nothing to lose.
    assert disk.disk.cut(6).unflushed == 0


def test_a_full_cache_has_written_its_oldest_back(
    host: Callable[[Cache], Host], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lossydisk, "CACHE_BYTES", 8 * BLOCK)
    disk = host(Cache.LOST)
    disk.qemu_io(*written(32, NEW))
    assert disk.disk.cut(1).unflushed == 8
    assert disk.blocks(24) == [{NEW}] * 24
    assert {OLD} in disk.blocks(32)[24:]


def test_an_end_without_a_cut_loses_nothing(host: Callable[[Cache], Host]) -> None:
    disk = host(Cache.TORN)
    disk.qemu_io(*written(8, NEW))
    disk.disk.cut(3)
    disk.qemu_io(*written(8, NEWER), flushed=True)
    assert disk.blocks(8) == [{NEWER}] * 8


def test_what_lies_beyond_the_end_is_an_error_and_the_disk_goes_on(tmp_path: Path) -> None:
    image = tmp_path / "disk.img"
    image.write_bytes(bytes(BLOCK))
    disk = LossyDisk("stick", image, tmp_path / "disk", Cache.LOST)
    try:
        image.write_bytes(b"")  # somebody has cut the image short
        uri = f"nbd+unix:///?socket={tmp_path / 'disk'}"
        done = process.run(
            ("qemu-io", "-f", "raw", uri, "-c", "write 0 4k", "-c", "read 0 4k"), timeout_s=60, check=False
        )
        output = (done.stdout + done.stderr).decode()
        assert "write failed: No space left on device" in output
        assert "read 4096/4096 bytes" in output
    finally:
        disk.close()


def test_a_disk_of_flash_memory_takes_its_time_and_counts(tmp_path: Path) -> None:
    flash = FlashCard(SIZE, FlashGeometry(page_bytes=BLOCK, block_pages=16, program_us=5000.0))
    disk = Host(tmp_path, Cache.KEPT, flash)
    try:
        began_s = time.monotonic()
        disk.qemu_io(*written(40, NEW), f"discard 0 {BLOCK}")
        assert time.monotonic() - began_s > 40 * 0.005
        assert disk.disk.cut(1).unflushed == 0
        assert disk.blocks(40) == [{NEW}] * 40
    finally:
        disk.disk.close()
    assert flash.counters.host_written_bytes == flash.counters.flash_written_bytes == 40 * BLOCK
    assert flash.facts()["write_amplification"] == 1.0
