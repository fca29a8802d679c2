from __future__ import annotations

import struct
import time
from pathlib import Path

from fsjoule.virtual.board.power import FEED_CAPACITY, FeedWriter, PowerCoefficients, PowerFeed


def test_layout_and_wrap(tmp_path: Path) -> None:
    path = tmp_path / "feed"
    writer = FeedWriter(path)
    for number in range(FEED_CAPACITY + 2):
        writer.append(number, 5.0, number / 1000)
    content = path.read_bytes()
    writer.close()
    assert len(content) == 64 + 24 * 16384
    assert struct.unpack_from("<8sIIQ", content) == (b"FSJFEED1", 16384, 0, FEED_CAPACITY + 2)
    assert content[24:64] == bytes(40)
    # The first two records are overwritten by the newest two.
    assert struct.unpack_from("<qdd", content, 64) == (16384, 5.0, 16.384)
    assert struct.unpack_from("<qdd", content, 64 + 24) == (16385, 5.0, 16.385)
    assert struct.unpack_from("<qdd", content, 64 + 48) == (2, 5.0, 0.002)


def test_a_new_writer_starts_a_new_ring(tmp_path: Path) -> None:
    path = tmp_path / "feed"
    first = FeedWriter(path)
    first.append(1, 5.0, 0.2)
    second = FeedWriter(path)
    assert struct.unpack_from("<Q", path.read_bytes(), 16) == (0,)
    first.close()
    second.close()


def test_a_change_is_told_at_its_moment_however_seldom_a_steady_power_is(tmp_path: Path) -> None:
    path = tmp_path / "feed"
    feed = PowerFeed(path, PowerCoefficients())
    time.sleep(0.3)
    before_ns = time.monotonic_ns()
    feed.idle()
    on_ns = time.monotonic_ns()
    time.sleep(0.3)
    feed.halted()
    off_ns = time.monotonic_ns()
    time.sleep(0.3)
    feed.close()
    content = path.read_bytes()
    [head] = struct.unpack_from("<Q", content, 16)
    records = [struct.unpack_from("<qdd", content, 64 + 24 * number) for number in range(head)]
    drawing = [each for each in records if each[2] > 0]
    first = records.index(drawing[0])
    assert records[first : first + len(drawing)] == drawing
    assert {each[1:] for each in drawing} == {(5.0, 1.10 / 5.0)}
    # A record holds since the end of the one before.
    assert before_ns <= records[first - 1][0] <= on_ns
    assert on_ns < drawing[-1][0] <= off_ns
    assert len(records) < 300
