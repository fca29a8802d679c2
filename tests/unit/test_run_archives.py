"""A run folder in one file: whole, checked, and no door to the rest of the disk."""

from __future__ import annotations

import io
import subprocess
import tarfile
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from index_runs import measurement_file
from object_store import contents, write_kept

from fsjoule.errors import ResultError
from fsjoule.store.archive import digest_table, is_document, pack_run, read_table, run_digest, unpack_run
from fsjoule.store.objects.archives import FolderState, compared

NAME = "20250101T000000Z-evil-1"
Member = tuple[str, bytes]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = write_kept(tmp_path_factory.mktemp("results"))
    (made / "report.html").write_text("<p>a page</p>")
    return made


@pytest.fixture(scope="module")
def packed(folder: Path) -> Path:
    file = folder.parent / "run.tar.zst"
    pack_run(folder, digest_table(folder, []), file)
    return file


def test_a_run_comes_back_as_it_was(folder: Path, packed: Path, tmp_path: Path) -> None:
    table = unpack_run(packed, folder.name, tmp_path)
    assert contents(tmp_path / folder.name) == contents(folder)
    assert table == digest_table(folder, [], believe=False)
    with packed.open("rb") as file:
        assert read_table(file, folder.name) == table


def test_tar_and_sha256sum_read_it(folder: Path, packed: Path, tmp_path: Path) -> None:
    subprocess.run(["tar", "--zstd", "-xf", packed, "-C", tmp_path], check=True)
    subprocess.run(["sha256sum", "--quiet", "-c", f"{folder.name}.sha256"], cwd=tmp_path, check=True)


def test_documents_come_without_the_rest(folder: Path, packed: Path, tmp_path: Path) -> None:
    unpack_run(packed, folder.name, tmp_path, wanted=is_document)
    assert sorted(contents(tmp_path / folder.name)) == sorted(filter(is_document, contents(folder)))


def test_the_page_is_no_part_of_the_runs_name(folder: Path) -> None:
    table = digest_table(folder, [])
    assert run_digest(table | {"report.html": "0" * 64}) == run_digest(table)
    assert run_digest(table | {"gate.json": "0" * 64}) != run_digest(table)


def test_an_edited_file_is_not_packed(tmp_path: Path) -> None:
    run = write_kept(tmp_path)
    table = digest_table(run, [])
    measurement_file(run, 2).write_text("{}")
    with pytest.raises(ResultError, match="was edited after it was stored"):
        pack_run(run, table, tmp_path / "run.tar.zst")


def write(path: Path, members: list[tarfile.TarInfo | Member], format: int = tarfile.PAX_FORMAT) -> None:  # noqa: A002 - tarfile's name
    stream: Any = pa.output_stream(path, compression="zstd")
    with stream, tarfile.open(fileobj=stream, mode="w|", format=format) as archive:
        for each in members:
            if isinstance(each, tarfile.TarInfo):
                archive.addfile(each, io.BytesIO(bytes(max(each.size, 0))))
            else:
                member = tarfile.TarInfo(each[0])
                member.size = len(each[1])
                archive.addfile(member, io.BytesIO(each[1]))


def of_type(kind: bytes, target: str = "") -> tarfile.TarInfo:
    member = tarfile.TarInfo(f"{NAME}/a")
    member.type, member.linkname = kind, target
    return member


def sparse(**headers: str) -> tarfile.TarInfo:
    member = tarfile.TarInfo(f"{NAME}/a")
    member.pax_headers = {f"GNU.sparse.{name}": value for name, value in headers.items()}
    return member


def table(*paths: str, content: bytes = b"x") -> Member:
    digest = sha256(content).hexdigest()
    return f"{NAME}.sha256", "".join(f"{digest}  {NAME}/{path}\n" for path in ("run.json", *paths)).encode()


RUN = (f"{NAME}/run.json", b"x")
FILE = (f"{NAME}/a", b"x")


@pytest.mark.parametrize(
    ("members", "why"),
    [
        pytest.param([RUN], "does not begin with", id="no table"),
        pytest.param([table(), (f"{NAME}/run.json", b"y")], "another digest", id="another content"),
        pytest.param([table("a"), RUN], "a is missing", id="a file less"),
        pytest.param([table("b"), RUN, FILE], "is not a file of the run", id="a file more"),
        pytest.param([table("a"), RUN, ("a", b"x")], "is not a file of the run", id="beside the run"),
        pytest.param([table("a"), RUN, RUN, FILE], "is twice", id="twice"),
        pytest.param([table("a", "a/b"), RUN], "is not the name of a run's file", id="a file as a folder"),
        pytest.param([table("../outside"), RUN], "is not the name of a run's file", id="out of the folder"),
        pytest.param([table("/outside"), RUN], "is not the name of a run's file", id="from the root"),
        pytest.param([table("a/b/c/outside"), RUN], "is not the name of a run's file", id="deep"),
        pytest.param([table("a\x1b[2J"), RUN], "is not the name of a run's file", id="control characters"),
        pytest.param([table("a" * 300), RUN], "is not the name of a run's file", id="long name"),
        pytest.param([(f"{NAME}.sha256", b"no table\n"), RUN], "is damaged: line 1", id="no checksums"),
        pytest.param([(f"{NAME}.sha256", b""), RUN], "there is no run.json", id="no run"),
        pytest.param(
            [table("a"), RUN, of_type(tarfile.SYMTYPE, "/etc/passwd")], "is not a file of", id="symbolic link"
        ),
        pytest.param(
            [table("a"), RUN, of_type(tarfile.LNKTYPE, f"{NAME}/run.json")], "is not a file of", id="hard link"
        ),
        pytest.param([table("a"), RUN, of_type(tarfile.FIFOTYPE)], "is not a file of", id="FIFO"),
        pytest.param([table("a"), RUN, of_type(tarfile.CHRTYPE)], "is not a file of", id="device"),
        pytest.param([table("a"), RUN, sparse(size="1", map="x,y")], "invalid literal", id="a map of no numbers"),
        pytest.param([table("a"), RUN, sparse(size="1", map="0")], "its archive is damaged", id="half a map"),
        pytest.param([table("a"), RUN, sparse(size="-1", map="0,0")], "an impossible size", id="a negative size"),
        pytest.param([table("a"), RUN, sparse(size=str(1 << 30), map="0,0")], "an impossible size", id="a sparse GiB"),
    ],
)
def test_an_archive_of_no_run_writes_nothing_outside(
    members: list[tarfile.TarInfo | Member], why: str, tmp_path: Path
) -> None:
    packed, into = tmp_path / "run.tar.zst", tmp_path / "at" / "results"
    write(packed, members)
    with pytest.raises(ResultError, match=why):
        unpack_run(packed, NAME, into)
    assert not list(tmp_path.rglob("outside"))
    assert not [path for path in tmp_path.rglob("*") if path.is_symlink()]


@pytest.mark.parametrize("damage", ["no archive", "cut short", "zeros"])
def test_a_damaged_archive_is_told(folder: Path, packed: Path, tmp_path: Path, damage: str) -> None:
    good = packed.read_bytes()
    bad = {"no archive": b"no archive", "cut short": good[:-100], "zeros": good[:99] + bytes(50) + good[149:]}
    (tmp_path / "bad").write_bytes(bad[damage])
    with pytest.raises(ResultError, match="its archive is damaged"):
        unpack_run(tmp_path / "bad", folder.name, tmp_path / "there")


def test_an_archive_is_unpacked_up_to_its_limits(tmp_path: Path) -> None:
    packed = tmp_path / "run.tar.zst"
    write(packed, [table("a", content=b"x" * 100), (f"{NAME}/run.json", b"x" * 100), (f"{NAME}/a", b"x" * 100)])
    with pytest.raises(ResultError, match="too large"):
        unpack_run(packed, NAME, tmp_path / "one", most_bytes=150)
    with pytest.raises(ResultError, match="too many files"):
        unpack_run(packed, NAME, tmp_path / "two", most_files=1)
    unpack_run(packed, NAME, tmp_path / "all", most_bytes=200, most_files=2)


def test_a_header_is_not_read_whatever_size_it_claims(tmp_path: Path) -> None:
    """64 MiB of an extended header are 64 KiB of archive; tarfile would read them at once."""
    header = tarfile.TarInfo("header")
    header.type, header.size = tarfile.XHDTYPE, 64 << 20
    write(tmp_path / "run.tar.zst", [header])
    with pytest.raises(ResultError, match="a header has more than"):
        unpack_run(tmp_path / "run.tar.zst", NAME, tmp_path / "there")


STORED = {"run.json": "r", "measurements/01-a/measurement.json": "a", "gate.json": "g"}
MORE = {"measurements/02-b/measurement.json": "b"}


@pytest.mark.parametrize(
    ("files", "were_complete", "complete", "what"),
    [
        (STORED, True, True, FolderState.SAME),
        (STORED | {"report.html": "p"}, True, True, FolderState.SAME),
        (STORED | MORE | {"run.json": "s"}, False, True, FolderState.NEWER),
        (STORED | MORE | {"run.json": "s"}, True, True, FolderState.NEWER),
        (STORED | {"run.json": "s"}, False, True, FolderState.NEWER),
        (STORED | {"gate.json": "h"}, True, True, FolderState.NEWER),
        ({"run.json": "q"}, True, False, FolderState.OLDER),
        (STORED | {"run.json": "q"}, True, False, FolderState.OLDER),
        (STORED | {"run.json": "s"}, True, True, FolderState.OTHER),
        (STORED | {"measurements/01-a/measurement.json": "x"}, False, True, FolderState.OTHER),
        ({"run.json": "r"} | MORE, False, False, FolderState.OTHER),
    ],
)
def test_a_folder_is_compared_with_the_store(
    files: dict[str, str], what: FolderState, *, were_complete: bool, complete: bool
) -> None:
    assert compared(STORED, files, were_complete=were_complete, complete=complete) is what
