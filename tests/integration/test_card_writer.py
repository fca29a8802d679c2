"""Whatever becomes of writing a card, it is told and no writer is left."""

from __future__ import annotations

import gzip
import json
import lzma
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from hashlib import sha256
from pathlib import Path

import pytest
from unprivileged import NO_POWERS

from fsjoule.errors import LabError
from fsjoule.host import process
from fsjoule.lab import cardwriter
from fsjoule.lab.cardwriter import StillWritingError, end_writers, write_card, writers_word
from fsjoule.lab.disk_program import ByteRange, FailedError, ImageStream, compare
from fsjoule.lab.disks import PROGRAM, SOURCE, BoardsDisk
from fsjoule.model import MIB
from fsjoule.virtual.disks.card import Card, CardPosition

# As ssh: what it starts lives on when it is killed.
REMOTE = """\
import os, subprocess, sys
child = subprocess.Popen(sys.argv[1:], start_new_session=True)
sys.exit(child.wait())
"""
# In the place of zstd, which the program that has the card waits for.
UNPACKER = """\
#!/bin/sh
touch {folder}/begun
left={tenths}
while [ $left -gt 0 ] && kill -0 $PPID 2>/dev/null; do
    sleep 0.1
    left=$((left - 1))
done
exit {code}
"""
ZSTD = b"\x28\xb5\x2f\xfd"
CONTENT = os.urandom(MIB) + bytes(2 * MIB) + os.urandom(MIB + 512)
BOARDS = BoardsDisk(simulated=True)


class Exporter:
    """A labgrid resource, and its driver, of a computer that is this one; its card is a virtual lab's."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.storage = self
        # What the exporter does instead of the search for writers.
        self.search = ""
        self.prefix: list[str] = []

    def wrap_command(self, command: list[str]) -> list[str]:
        if self.search and command[:2] == ["sh", "-c"]:
            command = ["sh", "-c", self.search]
        return [sys.executable, "-c", REMOTE, *self.prefix, *command]


@pytest.fixture
def card(tmp_path: Path) -> Path:
    """The file of the card."""
    card = tmp_path / "labs" / "virtual" / "card.img"
    card.parent.mkdir(parents=True)
    card.write_bytes(b"old." * (2 * MIB))
    return card


@pytest.fixture
def exporter(card: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Exporter]:
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    def here(file: Path, _resource: object) -> str:
        return str(file)

    # labgrid's copy needs an exporter behind ssh; tests/lab has one. Files of this computer are where they are.
    monkeypatch.setattr(cardwriter, "on_exporter", here)
    mux = Card(card, 8 * MIB, tmp_path / "card")
    mux.give(CardPosition.HOST)
    yield Exporter(str(mux.host_device))
    mux.close()


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """An image that is packed, and that needs an `unpacker`."""
    image = tmp_path / "card.img.zst"
    image.write_bytes(ZSTD)
    return image


def unpacker(folder: Path, *, seconds: float, code: int = 0) -> None:
    program = folder / "zstd"
    program.write_text(UNPACKER.format(folder=folder, tenths=int(seconds * 10), code=code))
    program.chmod(0o755)


def pack(kind: str, image: Path) -> Path:
    """In two streams, as programs that pack with several processors write them, or after a frame to skip (pzstd)."""
    content = image.read_bytes()
    halves = (content[: len(content) // 2], content[len(content) // 2 :])
    packed = image.with_name(f"{image.name}.{kind}")
    match kind:
        case "gz":
            packed.write_bytes(b"".join(map(gzip.compress, halves)))
        case "xz":
            packed.write_bytes(bytes(8).join(map(lzma.compress, halves)))
        case _:
            process.run(["zstd", "-q", image, "-o", packed], timeout_s=60)
            packed.write_bytes(b"\x50\x2a\x4d\x18\x04\0\0\0skip" + packed.read_bytes())
    image.unlink()
    return packed


def writing(exporter: Exporter) -> list[str]:
    """The processes that have the card open, but for this one."""
    found: list[str] = []
    for descriptor in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if str(descriptor.readlink()) == exporter.path and descriptor.parts[2] != str(os.getpid()):
                found.append(descriptor.parts[2])
        except OSError:
            continue
    return found


@pytest.mark.parametrize(
    ("kind", "mapped"), [("", False), ("", True), ("gz", True), ("xz", False), ("zst", False), ("zst", True)]
)
def test_an_image_is_written_also_a_packed_one(
    tmp_path: Path, exporter: Exporter, card: Path, kind: str, mapped: bool
) -> None:
    """Yocto's image.wic.gz has its block map as image.wic.bmap; what that leaves out is not written."""
    image = tmp_path / "image.wic"
    image.write_bytes(CONTENT)
    if mapped:
        os.truncate(image, 0)
        os.truncate(image, len(CONTENT))
        with image.open("r+b") as file:
            file.write(CONTENT[:MIB])
            file.seek(3 * MIB)
            file.write(CONTENT[3 * MIB :])
        process.run(["bmaptool", "create", "-o", f"{image}.bmap", image], timeout_s=60)
    write_card(exporter, pack(kind, image) if kind else image, 60, BOARDS)
    old = b"old." * (2 * MIB // 4)
    written = CONTENT[:MIB] + (old if mapped else bytes(2 * MIB)) + CONTENT[3 * MIB :]
    assert card.read_bytes()[: len(CONTENT)] == written


def test_a_user_without_privileges_may_write(tmp_path: Path, exporter: Exporter, card: Path) -> None:
    """As docs/flashing.md recommends: a member of the group that owns the disk."""
    exporter.prefix = list(NO_POWERS) if os.geteuid() == 0 else []
    (tmp_path / "card.img").write_bytes(CONTENT)
    write_card(exporter, tmp_path / "card.img", 60, BOARDS)
    assert card.read_bytes().startswith(CONTENT)


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.img.gz", gzip.compress(CONTENT, mtime=0)[:-20], "a.img.gz is damaged: Compressed file ended before"),
        ("a.img.xz", lzma.compress(CONTENT)[:-20], "a.img.xz is damaged: its end is missing"),
        ("a.img.zst", ZSTD + b"x" * 50, "a.img.zst is damaged: zstd ended with exit code 1"),
        ("a.tar.gz", gzip.compress(bytes(257) + b"ustar" + CONTENT), "a.tar.gz is a tar archive: unpack it"),
        ("a.gz.xz", lzma.compress(gzip.compress(CONTENT)), "a.gz.xz is packed twice: unpack it"),
        ("a.lzma", lzma.compress(CONTENT, format=lzma.FORMAT_ALONE), "a.lzma is packed by lzma: unpack it"),
        ("a.img.gz", gzip.compress(b""), "the image is empty"),
        ("a.zip", b"PK\x03\x04" + bytes(50), "a.zip is a zip archive: unpack it"),
        (
            "a.img.gz",
            gzip.compress(bytes(9 * MIB), mtime=0),
            "the image is larger than the disk, which has 8388608 bytes",
        ),
        ("a.img", bytes(9 * MIB), "has 8388608 bytes, but the image has 9437184; nothing was written"),
    ],
    ids=["gz", "xz", "zst", "tar", "twice", "lzma", "empty", "zip", "too large once unpacked", "too large"],
)
def test_an_image_that_cannot_be_written_is_named(
    tmp_path: Path, exporter: Exporter, name: str, content: bytes, says: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(LabError) as caught:
        write_card(exporter, tmp_path / name, 60, BOARDS)
    assert says in caught.value.what
    assert not caught.value.transient


def test_an_image_that_is_not_its_block_maps_is_told(tmp_path: Path, exporter: Exporter) -> None:
    image, block_map = tmp_path / "a.img", tmp_path / "a.img.bmap"
    image.write_bytes(CONTENT[:MIB])
    process.run(["bmaptool", "create", "-o", block_map, image], timeout_s=60)
    packed = gzip.compress(CONTENT[:MIB], mtime=0)
    (tmp_path / "a.img.gz").write_bytes(packed[:-30])
    with pytest.raises(FailedError, match=r"a.img.gz is damaged"):
        ImageStream(str(tmp_path / "a.img.gz")).skip_to(2 * MIB)
    image.write_bytes(CONTENT[: MIB - 1] + b"?")
    with pytest.raises(LabError, match=r"the image is not the one of its block map: bytes 0 to 1048576 differ"):
        write_card(exporter, image, 60, BOARDS)
    image.write_bytes(CONTENT)
    with pytest.raises(LabError, match=r"the image has 4194816 bytes, its block map is of one of 1048576"):
        write_card(exporter, image, 60, BOARDS)
    block_map.write_text(block_map.read_text().replace("<Range", "<Range "))
    with pytest.raises(LabError, match=r"a.img.bmap is damaged: it has another checksum than it says"):
        write_card(exporter, image, 60, BOARDS)


def test_a_card_that_has_another_content_than_was_written_is_told(card: Path) -> None:
    """As one that says it has more memory than it has."""
    good, lost = (ByteRange(begin, MIB, sha256(b"old." * (MIB // 4)).hexdigest()) for begin in (0, 4 * MIB + 512))
    with card.open("r+b") as file:
        compare(file.fileno(), [good, lost])
        file.seek(5 * MIB)
        file.write(b"!")
        file.flush()
        with pytest.raises(FailedError, match=r"was read back, in bytes 4194816 to 5243391: the card is worn out"):
            compare(file.fileno(), [good, lost])


def test_a_writer_that_fails_says_why(tmp_path: Path, exporter: Exporter, image: Path) -> None:
    unpacker(tmp_path, seconds=0, code=3)
    with pytest.raises(LabError, match=r"writing card.img.zst failed: .* is damaged: zstd ended with exit code 3"):
        write_card(exporter, image, 60, BOARDS)
    exporter.prefix = ["sh", "-c", "echo no python >&2; exit 127", "sh"]
    with pytest.raises(LabError, match="no python") as caught:
        write_card(exporter, image, 60, BOARDS)
    assert caught.value.transient


def test_a_write_that_takes_too_long_leaves_no_writer(
    tmp_path: Path, exporter: Exporter, card: Path, image: Path
) -> None:
    unpacker(tmp_path, seconds=300)
    begin = time.monotonic()
    with pytest.raises(LabError, match=r"writing card.img.zst took longer than 2 s") as caught:
        write_card(exporter, image, 2, BOARDS)
    assert caught.value.transient
    assert writing(exporter) == []
    assert time.monotonic() - begin < 60
    assert card.read_bytes().startswith(b"old.")


SSHD_STOPPED = "the lab's sshd (process 7) was stopped (SIGSTOP) and does nothing"


def test_a_write_is_given_up_when_what_it_needs_has_died_and_leaves_no_writer(
    tmp_path: Path, exporter: Exporter, card: Path, image: Path
) -> None:
    unpacker(tmp_path, seconds=300)

    def diagnose() -> tuple[str, ...]:
        return (SSHD_STOPPED,) if (tmp_path / "begun").exists() else ()

    begin = time.monotonic()
    with pytest.raises(LabError, match="was given up") as caught:
        write_card(exporter, image, 120, BOARDS, diagnose)
    assert str(caught.value) == f"{SSHD_STOPPED}: writing card.img.zst was given up"
    assert time.monotonic() - begin < 60
    assert caught.value.transient
    assert writing(exporter) == []
    assert card.read_bytes().startswith(b"old.")


def test_a_write_that_is_given_up_and_whose_exporter_is_silent_says_what_is_not_known(
    tmp_path: Path, exporter: Exporter, image: Path
) -> None:
    """The way to the exporter is what has failed: nobody waits as long for it as for one that lives."""
    unpacker(tmp_path, seconds=300)

    def diagnose() -> tuple[str, ...]:
        if not (tmp_path / "begun").exists():
            return ()
        exporter.search = "sleep 5"
        return (SSHD_STOPPED,)

    with pytest.raises(LabError, match="was given up") as caught:
        write_card(exporter, image, 120, BOARDS, diagnose, amid_faults_s=1.0)
    assert "it is not known whether the card is still being written" in str(caught.value)
    exporter.search = ""
    end_writers(exporter, writers_word(exporter))
    assert writing(exporter) == []


def test_a_copy_to_the_exporter_is_given_up_when_what_it_needs_has_died(
    tmp_path: Path, exporter: Exporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hangs(_file: Path, _resource: object) -> str:
        time.sleep(300)
        return ""

    # labgrid's copy over a connection that hangs.
    monkeypatch.setattr(cardwriter, "on_exporter", hangs)
    begin = time.monotonic()
    with pytest.raises(LabError, match="was given up") as caught:
        write_card(exporter, tmp_path / "card.img", 120, BOARDS, lambda: (SSHD_STOPPED,))
    assert caught.value.what == f"{SSHD_STOPPED}: copying card.img to the exporter was given up"
    assert time.monotonic() - begin < 60


@contextmanager
def interrupted_once(begun: Path) -> Generator[None]:
    """Ctrl-C as soon as there is this file."""

    def interrupt() -> None:
        deadline = time.monotonic() + 60
        while not begun.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    # One that our parent had ignored is ours to take here.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    waiting = threading.Thread(target=interrupt)
    waiting.start()
    try:
        yield
    finally:
        waiting.join()
        signal.signal(signal.SIGINT, before)


def test_an_interrupted_write_leaves_no_writer(tmp_path: Path, exporter: Exporter, image: Path) -> None:
    unpacker(tmp_path, seconds=300)
    with interrupted_once(tmp_path / "begun"), pytest.raises(KeyboardInterrupt):
        write_card(exporter, image, 120, BOARDS)
    assert writing(exporter) == []


def test_a_writer_that_a_killed_run_has_left_is_ended_first(tmp_path: Path, exporter: Exporter, image: Path) -> None:
    """It has the card for itself until then: nobody else can write it."""
    unpacker(tmp_path, seconds=300)
    request = BOARDS.request(exporter, 0) | {"image": str(image), "verify": True}
    left = subprocess.Popen([*PROGRAM, writers_word(exporter), json.dumps(request)], stdin=subprocess.PIPE)
    assert left.stdin is not None
    left.stdin.write(SOURCE)
    left.stdin.close()
    while not (tmp_path / "begun").exists():
        time.sleep(0.05)
    with pytest.raises(LabError, match="is in use on the exporter: another program has it for itself"):
        BOARDS.check(exporter, 0)
    (tmp_path / "card.img").write_bytes(CONTENT)
    write_card(exporter, tmp_path / "card.img", 60, BOARDS)
    assert left.wait(10) == -signal.SIGKILL


def test_only_who_was_started_to_write_the_card_is_ended(exporter: Exporter) -> None:
    """Not who looks at it, and not another user's `dd` to a disk that has got its name meanwhile."""
    sleeping = [sys.executable, "-c", "import time; time.sleep(300)"]
    word = writers_word(exporter)
    with ExitStack() as closing:
        ours = closing.enter_context(subprocess.Popen([*sleeping, word]))
        words = (exporter.path, f"of={exporter.path}", f"{word}0", f"to {word}", f"\n{word}\n")
        others = [closing.enter_context(subprocess.Popen([*sleeping, each])) for each in words]
        for each in (ours, *others):
            closing.callback(each.kill)
        end_writers(exporter, word)
        assert ours.wait(10) == -signal.SIGKILL
        assert [each.poll() for each in others] == [None] * len(others)


def test_a_writer_that_cannot_be_ended_is_told(exporter: Exporter, image: Path) -> None:
    exporter.search = "echo 17 18; exit 1"
    with pytest.raises(StillWritingError, match="process 17, 18 of the exporter writes the card and cannot be ended"):
        end_writers(exporter, writers_word(exporter))
    exporter.search = "echo lost >&2; exit 255"
    with pytest.raises(LabError, match="does not tell who writes the card: lost") as caught:
        write_card(exporter, image, 60, BOARDS)
    assert caught.value.transient
