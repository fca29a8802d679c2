"""What a kernel comes in is unpacked within limits and within its folder."""

from __future__ import annotations

import gzip
import io
import lzma
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from fsjoule.errors import ConfigError, HostError
from fsjoule.host import process
from fsjoule.host.unpacking import unpack_tar, unzipped, unzstd

MIB = 1 << 20


def packed(file: Path, *members: tuple[str, bytes, str | bytes]) -> Path:
    """An archive of (name, type, link's target or file's content)."""
    with tarfile.open(file, "w:xz") as archive:
        for name, kind, what in members:
            member = tarfile.TarInfo(name)
            member.type = kind
            content = what if isinstance(what, bytes) else b""
            member.linkname = what if isinstance(what, str) else ""
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return file


def test_files_and_links_within_are_unpacked_and_links_to_the_source_left_out(tmp_path: Path) -> None:
    archive = packed(
        tmp_path / "modules.tar.xz",
        ("lib/modules/6.1/build", tarfile.SYMTYPE, "/home/me/linux"),
        ("lib/modules/6.1/again", tarfile.SYMTYPE, "../6.1/modules.order"),
        ("./lib/modules/6.1/modules.order", tarfile.REGTYPE, b"order"),
        ("lib/modules/6.1/hard", tarfile.LNKTYPE, "lib/modules/6.1/modules.order"),
    )
    unpack_tar(archive, tmp_path / "tree")
    folder = tmp_path / "tree/lib/modules/6.1"
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == dict.fromkeys(
        ("again", "modules.order", "hard"), b"order"
    )


@pytest.mark.parametrize(
    "members",
    [
        [("modules.order", tarfile.SYMTYPE, "/etc/passwd")],
        [("a/modules.order", tarfile.SYMTYPE, "../../outside")],
        [("a/one", tarfile.SYMTYPE, "two/../.."), ("a/two", tarfile.SYMTYPE, "..")],  # one leads out through two
        [("a", tarfile.SYMTYPE, ".."), ("a/outside", tarfile.REGTYPE, b"new")],
        [("../outside", tarfile.REGTYPE, b"new")],
        [("loop", tarfile.SYMTYPE, "loop")],
        [("hard", tarfile.LNKTYPE, "../outside")],
        [("fifo", tarfile.FIFOTYPE, "")],
        [("device", tarfile.CHRTYPE, "")],
    ],
)
def test_what_leads_out_of_the_folder_is_refused(members: list[tuple[str, bytes, str | bytes]], tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("secret")
    with pytest.raises(ConfigError, match="cannot be unpacked"):
        unpack_tar(packed(tmp_path / "a.tar.xz", *members), tmp_path / "tree")
    assert outside.read_text() == "secret"


def test_an_archive_that_expands_too_far_is_refused(tmp_path: Path) -> None:
    large = packed(tmp_path / "large.tar.xz", ("a", tarfile.REGTYPE, bytes(MIB)), ("b", tarfile.REGTYPE, bytes(MIB)))
    unpack_tar(large, tmp_path / "whole", most_bytes=3 * MIB)
    with pytest.raises(ConfigError, match=r"more than|too many bytes"):
        unpack_tar(large, tmp_path / "tree", most_bytes=MIB + MIB // 2)
    assert not (tmp_path / "tree/b").exists()
    header = packed(tmp_path / "header.tar.xz", ("name", tarfile.GNUTYPE_LONGNAME, bytes(2 * MIB)))
    with pytest.raises(ConfigError, match="a header has more than"):
        unpack_tar(header, tmp_path / "tree")


def zstd(content: bytes) -> bytes:
    return process.run(["zstd", "--stdout"], input_bytes=content, timeout_s=30).stdout


@pytest.mark.parametrize(
    ("pack", "unpack"), [(lzma.compress, unzipped), (gzip.compress, unzipped), (zstd, unzstd)], ids=["xz", "gz", "zst"]
)
def test_a_file_that_expands_too_far_is_refused(pack: Callable[[bytes], bytes], unpack: Callable[..., bytes]) -> None:
    content = bytes(MIB)
    assert unpack(pack(content), most_bytes=MIB) == content
    with pytest.raises((ValueError, HostError)):
        unpack(pack(content), most_bytes=MIB // 8)
