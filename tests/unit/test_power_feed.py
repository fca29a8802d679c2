from __future__ import annotations

import struct
from pathlib import Path

from fsjoule.virtual.board.feed import CAPACITY, FeedWriter


def test_layout_and_wrap(tmp_path: Path) -> None:
    path = tmp_path / "feed"
    writer = FeedWriter(path)
    for number in range(CAPACITY + 2):
        writer.append(number, 5.0, number / 1000)
    content = path.read_bytes()
    writer.close()
    assert len(content) == 64 + 24 * 16384
    assert struct.unpack_from("<8sIIQ", content) == (b"FSJFEED1", 16384, 0, CAPACITY + 2)
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
