"""Looks at a disk, and writes an image onto it: `python3 -I - WORD REQUEST`, on the exporter, with this text as input.

One program with one descriptor, which nobody else can have meanwhile: the disk that was examined is the one that is
written and read back, whatever becomes of its name. It has Python 3.9's library only, and `zstd` for .zst.

WORD is how `cardwriter` finds the program among all others. REQUEST is JSON: `path` of the disk; `wanted`, the fields
of disks.BoardsDisk, or null to look only; `image_bytes`, its least size; `image`, or an empty text to write nothing;
`map`, its block map, or an empty text; `verify`. The answer is one line of JSON: `disk`, the fields of disks.Disk;
`objection`, why the disk is not touched; `failure` of the work, and `transient`, whether trying again may help.
"""

from __future__ import annotations

import bz2
import errno
import fcntl
import gzip
import hashlib
import json
import lzma
import mmap
import os
import re
import stat
import subprocess
import sys
import zlib
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree as ET

MIB = 1 << 20
_CHUNK_BYTES = 4 * MIB
# Pages that a killed writer has left are written when its descriptor is closed, for which the next one waits.
_SYNC_BYTES = 32 * MIB
_PAGE_BYTES = 4096
_HEAD_BYTES = 512
_LABS_CARD = re.compile(r"/labs/[a-z0-9-]+/(board-\d+/)?card\.img$")
_GZIP = b"\x1f\x8b\x08"
_DECOMPRESSORS: Any = {b"\xfd7zXZ\0": lzma.LZMADecompressor, b"BZh": bz2.BZ2Decompressor}
# pzstd begins with a frame to skip, one of sixteen kinds.
_ZSTD = (b"\x28\xb5\x2f\xfd", *(bytes((0x50 + kind,)) + b"\x2a\x4d\x18" for kind in range(16)))
_UNPACKED_HERE = (_GZIP, *_DECOMPRESSORS, *_ZSTD)
# No card begins so.
_FOREIGN = {
    b"PK\x03\x04": "a zip archive",
    b"\x04\x22\x4d\x18": "packed by lz4",
    b"7z\xbc\xaf\x27\x1c": "a 7z archive",
    b"QFI\xfb": "an image of QEMU's (qcow2)",
    b"\x3a\xff\x26\xed": "an Android sparse image",
    b"\x5d\0\0": "packed by lzma",
    b"KDMV": "an image of VMware's (vmdk)",
    b"vhdxfile": "an image of Hyper-V's (vhdx)",
}
PACKED = (*_UNPACKED_HERE, *_FOREIGN)
_DAMAGED = (OSError, EOFError, ValueError, lzma.LZMAError, zlib.error)


class FailedError(Exception):
    """Why the image is not on the card."""

    def __init__(self, why: str, *, transient: bool = False) -> None:
        super().__init__(why)
        self.transient = transient


class ByteRange(NamedTuple):
    """Bytes of an image or of a card, and the digest that they have; empty if it is not known."""

    begin: int
    length: int
    digest: str = ""


def text(name: str | Path) -> str:
    try:
        return Path(name).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def look(path: str) -> tuple[dict[str, Any], int]:
    """The disk as kernel and udev describe it, and its descriptor; -1 if it cannot be had alone."""
    disk: dict[str, Any] = {"path": path, "kind": "missing", "size_bytes": 0, "bus": "", "serial": "", "backing": ""}
    disk.update(links=[], uses=[], claimed=False, denied="")
    real, descriptor = Path(path).resolve(), -1
    try:
        status = real.stat()
    except OSError:
        return disk, descriptor
    if stat.S_ISBLK(status.st_mode) or stat.S_ISREG(status.st_mode):
        try:
            descriptor = os.open(real, os.O_RDWR | os.O_EXCL | os.O_CLOEXEC)
            status = os.fstat(descriptor)
            if stat.S_ISREG(status.st_mode):  # O_EXCL claims devices only
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            disk["claimed"] = error.errno in (errno.EBUSY, errno.EWOULDBLOCK)
            if error.errno not in (errno.EBUSY, errno.EWOULDBLOCK, errno.ENOMEDIUM):
                disk["denied"] = error.strerror
    if not stat.S_ISBLK(status.st_mode):
        disk.update(kind="file", size_bytes=status.st_size, backing=str(real))
        return disk, descriptor
    number = f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}"
    system = Path(f"/sys/dev/block/{number}").resolve()
    disk["kind"] = "partition" if (system / "partition").exists() else "disk"
    disk["size_bytes"] = int(text(system / "size") or 0) * 512
    disk["bus"] = "usb" if "/usb" in str(system) else "other"
    for line in text("/run/udev/data/b" + number).splitlines():
        if line.startswith("E:ID_SERIAL_SHORT="):
            disk["serial"] = line.partition("=")[2]
    links = (each for each in Path("/dev/disk").glob("by-*/*") if each.exists())
    disk["links"] = sorted(str(each) for each in links if each.stat().st_rdev == status.st_rdev)
    disk["uses"] = list(_uses(number, system))
    return disk, descriptor


def _uses(number: str, system: Path) -> Iterator[str]:
    """What the disk, its number and its folder in /sys, is in use for: mounts, swap, parts of other devices."""
    parts = {number: system.name}
    for each in system.glob("*/partition"):
        parts[text(each.parent / "dev")] = each.parent.name
    for line in text("/proc/self/mountinfo").splitlines():
        words = line.split()
        name = words[words.index("-") + 2].rpartition("/")[2]
        if words[2] in parts or name in parts.values():
            yield f"{parts.get(words[2], name)} is mounted on {words[4]}"
    for line in text("/proc/swaps").splitlines()[1:]:
        name = line.split()[0].rpartition("/")[2]
        if name in parts.values():
            yield f"{name} is swap space"
    for name in parts.values():
        for holder in Path("/sys/class/block", name, "holders").glob("*"):
            yield f"{name} is part of {holder.name}"


def objection(disk: dict[str, Any], wanted: dict[str, Any], image_bytes: int) -> str:
    """Why the disk must not be written; empty if it may be."""
    # A virtual lab's card is a file.
    labs_card = wanted["simulated"] and disk["kind"] == "file" and _LABS_CARD.search(disk["backing"])
    if disk["kind"] != "disk" and not labs_card:
        return {"missing": "does not exist", "file": "is not a disk"}.get(disk["kind"], f"is a {disk['kind']}, no disk")
    if disk["uses"] or disk["claimed"]:
        return f"is in use on the exporter: {', '.join(disk['uses']) or 'another program has it for itself'}"
    if disk["denied"]:
        return f"cannot be opened: {disk['denied']}"
    if not disk["size_bytes"]:
        return "has no medium"
    return _another(disk, wanted) or _wrong_size(disk["size_bytes"], wanted, image_bytes)


def _another(disk: dict[str, Any], wanted: dict[str, Any]) -> str:
    serial, link = wanted["serial"], wanted["link"]
    if wanted["simulated"]:
        if disk["kind"] != "file":
            return "is not the card of a virtual lab, and the board is simulated"
    elif disk["bus"] != "usb":
        return "is not a USB disk"
    elif wanted["named"] and not serial and not link:
        names = ", ".join(disk["links"]) or "(none)"
        return f"may be any USB disk: it has the serial number {disk['serial'] or '(none)'} and the names {names}"
    if serial and disk["serial"] != serial:
        return f"has the serial number {disk['serial'] or '(none)'}, not {serial}"
    return f"is not {link}" if link and link not in disk["links"] else ""


def _wrong_size(size_bytes: int, wanted: dict[str, Any], image_bytes: int) -> str:
    offered, largest = wanted["offered_bytes"], wanted["largest_bytes"]
    if offered is not None and size_bytes != offered:
        return f"has {size_bytes} bytes, but the board offers {offered}: it is another disk"
    if size_bytes > largest:
        return f"has {size_bytes // MIB} MiB, more than the largest card ({largest // MIB} MiB)"
    return f"has {size_bytes} bytes, but the image has {image_bytes}" if size_bytes < image_bytes else ""


class _Streams:
    """A file of several streams (xz, bzip2), with zeros between them. Python's readers end at those, without a word."""

    def __init__(self, path: Path, decompressor: Any) -> None:  # noqa: ANN401 - LZMADecompressor or BZ2Decompressor
        self._file, self._new = path.open("rb"), decompressor
        self._stream = decompressor()

    def read(self, size: int) -> bytes:
        parts: list[bytes] = []
        while size > 0:
            given = b""
            if self._stream.eof:
                given = self._stream.unused_data.lstrip(b"\0")
                while not given:
                    more = self._file.read(MIB)
                    if not more:
                        return b"".join(parts)
                    given = more.lstrip(b"\0")
                self._stream = self._new()
            elif self._stream.needs_input:
                given = self._file.read(MIB)
                if not given:
                    raise EOFError("its end is missing")
            parts.append(self._stream.decompress(given, size))
            size -= len(parts[-1])
        return b"".join(parts)


class ImageStream:
    """An image, packed or not, that is read once from its begin to its end."""

    def __init__(self, path: str) -> None:
        self._name = Path(path).name
        self._unpacker: subprocess.Popen[bytes] | None = None
        with Path(path).open("rb") as file:
            begin = file.read(_HEAD_BYTES)
        self._refuse_foreign(begin)
        self.size_bytes = -1 if begin.startswith(PACKED) else Path(path).stat().st_size
        if begin.startswith(_ZSTD):
            try:
                self._unpacker = subprocess.Popen(["zstd", "-dcq", "--", path], stdout=subprocess.PIPE)  # noqa: S603, S607
            except FileNotFoundError:
                raise FailedError(f"{self._name} needs zstd on the exporter: apt-get install zstd") from None
            assert self._unpacker.stdout is not None
            self._file: Any = self._unpacker.stdout
        else:
            new = next((each for magic, each in _DECOMPRESSORS.items() if begin.startswith(magic)), None)
            unpack = gzip.open if begin.startswith(_GZIP) else Path.open
            self._file = _Streams(Path(path), new) if new else unpack(Path(path), "rb")
        self._at = 0

    def _refuse_foreign(self, begin: bytes, also: tuple[bytes, ...] = ()) -> None:
        what = next((what for magic, what in _FOREIGN.items() if begin.startswith(magic)), "")
        what = "a tar archive" if begin[257:262] == b"ustar" else "packed twice" if begin.startswith(also) else what
        if what:
            raise FailedError(f"{self._name} is {what}: unpack it, or pack it by gzip, xz or zstd")

    @contextmanager
    def _whole(self) -> Generator[None]:
        try:
            yield
        except _DAMAGED as error:
            raise FailedError(f"{self._name} is damaged: {error}") from error

    def skip_to(self, begin: int) -> None:
        """Go on there, which is not before what was read."""
        if hasattr(self._file, "seek") and self._unpacker is None:
            with self._whole():
                self._file.seek(begin)
            self._at = begin
        while self._at < begin and self.read(min(_CHUNK_BYTES, begin - self._at)):
            pass

    def read(self, size: int) -> bytes:
        """So many bytes, or fewer at its end."""
        with self._whole():
            content = self._file.read(size)
        if self._unpacker is not None and len(content) < size and self._unpacker.wait() != 0:
            code = self._unpacker.returncode
            if code < 0:
                raise FailedError(f"zstd, which unpacks {self._name}, was killed by signal {-code}")
            raise FailedError(f"{self._name} is damaged: zstd ended with exit code {code}")
        if self._at == 0 and self.size_bytes < 0:
            self._refuse_foreign(content[:_HEAD_BYTES], _UNPACKED_HERE)
        self._at += len(content)
        return content


def mapped(block_map: str) -> tuple[int, str, list[ByteRange]]:
    """The image's size in bytes, the kind of its digests, and the ranges of a block map (bmap 1.2 to 2.0)."""
    name = Path(block_map).name
    try:
        content = Path(block_map).read_text(encoding="utf-8")
        root = ET.fromstring(content)  # noqa: S314 - of whoever may write the card
        values = {each.tag: (each.text or "").strip() for each in root}
        kind = values.get("ChecksumType", "sha1")
        own = values.get("BmapFileChecksum") or values.get("BmapFileSHA1", "")
        if own and hashlib.new(kind, content.replace(own, "0" * len(own)).encode()).hexdigest() != own:
            raise FailedError(f"{name} is damaged: it has another checksum than it says")
        version = root.get("version", "")
        if version.partition(".")[0] not in {"1", "2"}:
            raise FailedError(f"{name} is of version {version or '(none)'}; versions 1 and 2 are known")
        size, block = int(values["ImageSize"]), int(values["BlockSize"])
        parts: list[ByteRange] = []
        for each in root.iter("Range"):
            first, _, last = (each.text or "").strip().partition("-")
            begin, end = int(first) * block, min((int(last or first) + 1) * block, size)
            parts.append(ByteRange(begin, end - begin, each.get("chksum") or each.get("sha1") or ""))
    except (OSError, KeyError, ValueError, ET.ParseError) as error:
        raise FailedError(f"{name} is no block map: {error!r}") from error
    return size, kind, parts


def write(
    descriptor: int, image: ImageStream, parts: Iterable[ByteRange], kind: str, disk: dict[str, Any]
) -> list[ByteRange]:
    """Write these parts of the image; a length of -1 is to its end. Returns what was written, with its SHA-256."""
    size_bytes: int = disk["size_bytes"]
    written: list[ByteRange] = []
    unsynced = 0
    for part in parts:
        image.skip_to(part.begin)
        whole, at, left = hashlib.new(kind), part.begin, part.length
        while left:
            content = image.read(_CHUNK_BYTES if left < 0 else min(_CHUNK_BYTES, left))
            if not content:
                break
            if at + len(content) > size_bytes:
                raise FailedError(f"the image is larger than the disk, which has {size_bytes} bytes")
            check_there(disk)
            _write_at(descriptor, content, at)
            written.append(ByteRange(at, len(content), hashlib.sha256(content).hexdigest()))
            if part.digest:
                whole.update(content)
            at, left, unsynced = at + len(content), left - len(content) if left > 0 else left, unsynced + len(content)
            if unsynced >= _SYNC_BYTES:
                os.fdatasync(descriptor)
                unsynced = 0
        if left > 0 or (part.digest and whole.hexdigest() != part.digest):
            raise FailedError(f"the image is not the one of its block map: bytes {part.begin} to {at} differ")
    os.fsync(descriptor)
    return written


def check_there(disk: dict[str, Any]) -> None:
    """A disk whose cable is out fails by itself; a virtual lab's card, a file, has no name any more. Raises OSError."""
    if disk["kind"] == "file" and str(Path(disk["path"]).resolve()) != disk["backing"]:
        raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))


def _write_at(descriptor: int, content: bytes, at: int) -> None:
    left = memoryview(content)
    while left:
        count = os.pwrite(descriptor, left, at)
        left, at = left[count:], at + count


def compare(descriptor: int, written: Iterable[ByteRange]) -> None:
    """Read what was written from the medium. Raises FailedError if it has another content there."""
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    with mmap.mmap(-1, _CHUNK_BYTES + 2 * _PAGE_BYTES) as memory:
        try:
            # Past the kernel's cache; the name leads to the descriptor's own disk.
            reader = os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC)
        except OSError:
            reader = os.dup(descriptor)
        try:
            for part in written:
                begin = part.begin - part.begin % _PAGE_BYTES
                end, count = part.begin - begin + part.length, 0
                while count < end:
                    room = memoryview(memory)[count : -(-end // _PAGE_BYTES) * _PAGE_BYTES]
                    with room:
                        more = os.preadv(reader, [room], begin + count)
                    if more == 0:
                        break
                    count += more
                if hashlib.sha256(memory[part.begin - begin : end]).hexdigest() != part.digest:
                    last = part.begin + part.length - 1
                    why = f"another content than was written was read back, in bytes {part.begin} to {last}"
                    raise FailedError(f"{why}: the card is worn out, or smaller than it says", transient=True)
        finally:
            os.close(reader)


def run(request: dict[str, Any], answer: dict[str, Any]) -> None:
    """Do what is asked for; `answer` gets the disk and an objection. Raises FailedError, and OSError of the disk."""
    disk, descriptor = look(request["path"])
    answer["disk"] = disk
    if request["wanted"] is None:
        return
    size, kind, parts = request["image_bytes"], "sha256", [ByteRange(0, -1)]
    if request["map"]:
        size, kind, parts = mapped(request["map"])
    answer["objection"] = objection(disk, request["wanted"], size)
    if request["image"] and not answer["objection"]:
        image = ImageStream(request["image"])
        if request["map"] and image.size_bytes not in (-1, size):
            raise FailedError(f"the image has {image.size_bytes} bytes, its block map is of one of {size}")
        written = write(descriptor, image, parts, kind, disk)
        if not written:
            raise FailedError("the image is empty")
        if request["verify"]:
            compare(descriptor, written)
        check_there(disk)


def main() -> None:
    answer: dict[str, Any] = {"disk": None, "objection": "", "failure": "", "transient": False}
    try:
        run(json.loads(sys.argv[2]), answer)
    except FailedError as error:
        answer.update(failure=str(error), transient=error.transient)
    except OSError as error:
        answer.update(failure=f"the disk fails: {error.strerror or error}", transient=True)
    sys.stdout.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
