"""A root filesystem beside the kept one: an image's root, MiB by MiB, on the card's second root partition."""

from __future__ import annotations

import gzip
import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Final

from fsjoule.errors import BoardError
from fsjoule.lab.board_network import FailingBoard, checked
from fsjoule.lab.kept_card import Partition, partition_device
from fsjoule.lab.sparse_image import mapped
from fsjoule.model import MIB
from fsjoule.ports import Shell

# Path on the board, and content.
Upload = Callable[[str, bytes], None]

_PACKED: Final = "/tmp/fsjoule-root.gz"  # noqa: S108 - the board's /tmp is only ours
# A command's share of the pieces: a slow board needs a minute for it.
_READ_AT_ONCE: Final = 32
_SENT_AT_ONCE: Final = 16
_TIMEOUT_S: Final = 300.0
_SUM: Final = re.compile(r"^[0-9a-f]{64}", re.MULTILINE)
# Behind the root there is the scratch partition, and behind that the second root.
_BEHIND: Final = 2


@dataclass(frozen=True, slots=True)
class SecondRoot:
    """An image's root partition on its way to the `second` one, which has the same size.

    `sums` has the SHA-256 of each MiB in which the image's block map has data, by its number.
    """

    image: Path
    root: Partition
    second: Partition
    sums: dict[int, str]

    @property
    def digest(self) -> str:
        return hashlib.sha256(repr(sorted(self.sums.items())).encode()).hexdigest()

    def content(self, number: int) -> bytes:
        """One MiB of the root; the last one may be shorter."""
        return _content(self.image, self.root, number)


def read_root(image: Path, root: Partition, found: Sequence[Partition]) -> SecondRoot | None:
    """An image's root, if there is a second root partition among those `found` in its table."""
    second = next((each for each in found if each.number == root.number + _BEHIND), None)
    if second is None or second.size != root.size:
        return None
    numbers: set[int] = set()
    for first, count in mapped(image):
        start, stop = max(first, root.start), min(first + count, root.start + root.size)
        if start < stop:
            per = MIB // root.sector_bytes
            numbers |= set(range((start - root.start) // per, (stop - 1 - root.start) // per + 1))
    sums = {n: hashlib.sha256(_content(image, root, n)).hexdigest() for n in sorted(numbers)}
    return SecondRoot(image, root, second, sums)


def bring_root(board: FailingBoard, shell: Shell, card: str, wanted: SecondRoot, connect: Callable[[], Upload]) -> int:
    """Make the second root partition of the block device `card` hold the root. Returns the number of MiB sent.

    What is there already is not sent. `connect` is called before the first upload. Raises BoardError for a partition
    that is in use, or is not where the image has it: nothing was written then.
    """
    device = partition_device(card, wanted.second.number)
    _check_free(board, shell, device, wanted.second)
    lacking = _differing(board, shell, device, wanted, list(wanted.sums))
    upload = connect() if lacking else None
    for numbers in _parts(lacking, _SENT_AT_ONCE):
        assert upload is not None
        upload(_PACKED, gzip.compress(b"".join(map(wanted.content, numbers)), mtime=0))
        checked(board, shell, _unpacking(device, numbers), "cannot write its second root partition", _TIMEOUT_S)
    if wrong := _differing(board, shell, device, wanted, lacking):
        raise board.error(f"has other bytes on {device} than were written, {len(wrong)} MiB of {len(lacking)}")
    return len(lacking)


def _check_free(board: FailingBoard, shell: Shell, device: str, second: Partition) -> None:
    block = f"/sys/class/block/{device.removeprefix('/dev/')}"
    place = checked(board, shell, f"cat {block}/start {block}/size 2>/dev/null || true", "has no shell").split()
    if place != [str(second.start), str(second.size)]:
        there = f"has {device} at sector {place[0]} with {place[-1]} sectors" if place else f"has no {device}"
        raise _refused(
            board,
            f"{there}, but the image's second root begins at {second.start} with {second.size}",
            "write the card by hand once, from an image of this recipe (docs/flashing.md)",
        )
    # A kernel that mounts its root itself calls it /dev/root.
    used = "cat /proc/mounts /proc/swaps /proc/cmdline | tr = ' '"
    if device in checked(board, shell, used, "does not tell its mounts").split():
        raise _refused(
            board,
            f"has {device} in use, its second root partition",
            "the kept kernel's root must be the first one",
        )


def _refused(board: FailingBoard, what: str, hint: str) -> BoardError:
    error = board.error(f"{what}: nothing was written")
    error.transient, error.hint = False, hint
    return error


def _differing(board: FailingBoard, shell: Shell, device: str, wanted: SecondRoot, numbers: Sequence[int]) -> list[int]:
    """The pieces that are not on the card, as the card tells and not the board's cache."""
    checked(board, shell, "sync; echo 3 >/proc/sys/vm/drop_caches", "cannot empty its cache", _TIMEOUT_S)
    found: list[str] = []
    for some in _parts(numbers, _READ_AT_ONCE):
        read = f"busybox dd if={device} bs={MIB} skip=$n count=1 2>/dev/null | sha256sum"
        loop = f"for n in {' '.join(map(str, some))}; do {read}; done"
        found += _SUM.findall(checked(board, shell, loop, "cannot read its second root partition", _TIMEOUT_S))
    if len(found) != len(numbers):
        raise board.error(f"cannot read its second root partition: it told {len(found)} sums of {len(numbers)}")
    return [number for number, told in zip(numbers, found, strict=True) if told != wanted.sums[number]]


def _unpacking(device: str, numbers: Sequence[int]) -> str:
    """A command that writes a packed file's pieces to their places, neighbours at once."""
    runs = [[number for _, number in run] for _, run in groupby(enumerate(numbers), lambda each: each[1] - each[0])]
    writes = " && ".join(
        f"busybox dd of={device} bs={MIB} seek={run[0]} count={len(run)} iflag=fullblock conv=notrunc 2>&1"
        for run in runs
    )
    return f"gzip -dc {_PACKED} | {{ {writes}; }} && sync && rm {_PACKED}"


def _parts(numbers: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    for begin in range(0, len(numbers), size):
        yield numbers[begin : begin + size]


def _content(image: Path, root: Partition, number: int) -> bytes:
    with image.open("rb") as file:
        file.seek(root.start * root.sector_bytes + number * MIB)
        return file.read(min(MIB, root.size * root.sector_bytes - number * MIB))
