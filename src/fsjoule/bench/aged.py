"""An aged filesystem on the board: its use is replayed once it is made, and what became of its free space is told.

A board in guest time replays it once, and finds it on its card whenever it is made again. A replay in each boot takes
minutes, and the files' places differ with what the boot has done before: four replays of ext4 had three layouts.
"""

from __future__ import annotations

import hashlib
import lzma
import os
import re
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, NamedTuple

from pydantic import TypeAdapter

from fsjoule.bench.onboard.marks import DIRECTORY
from fsjoule.bench.scratch import SCRATCH_DIRECTORY, Scratch, checked, filesystem_step, lab_step, perform
from fsjoule.errors import BoardError, MeasurementInvalid, StorageError
from fsjoule.host.cache.stages import build_once, cache_key
from fsjoule.model import KIB, MIB, AgeFacts, BoardProfile
from fsjoule.model.filesystem import Filesystem, content_of, file_name
from fsjoule.ports import Board, Shell
from fsjoule.suites.ageing import Replay, replay

SCRIPT: Final = f"{DIRECTORY}/age"
SECTOR_BYTES: Final = 512  # of /sys/block, whatever the device has
_SUFFIXES: Final = {"K": KIB, "M": MIB, "G": KIB * MIB}
_SHORT_BYTES: Final = MIB
# A card of 2 MiB/s, and what a filesystem writes beside.
_SLOWEST_BYTES_PER_S: Final = MIB
_SURVEY_TIMEOUT_S: Final = 900.0
# Where each file's data is. Without filefrag, or for a filesystem that does not tell it, nothing.
_EXTENTS: Final = f"{DIRECTORY}/extents"
_LIST: Final = f"cd {SCRATCH_DIRECTORY}/aged && find . -type f | sort | xargs filefrag -v > {_EXTENTS}"
_COUNT: Final = f"awk '/ found$/ {{ n += $(NF - 2) }} END {{ printf \"%d \", n }}' {_EXTENTS}"
_LAYOUT: Final = ("sh", "-c", f"{_LIST} && {_COUNT} && md5sum < {_EXTENTS}; rm {_EXTENTS}")
# The kernel's name of the device, after its folder, its size in sectors, and the first one if it is a partition, or the
# begin of one.
_NUMBERS: Final = """$(printf '%d:%d' $(stat -L -c '0x%t 0x%T' "$1"))"""
_DEVICE: Final = (
    f'd=$(readlink -f "/sys/dev/block/{_NUMBERS}"); echo "$d $(cat "$d/size") '
    '$(cat "$d/start" "$d"/slaves/*/start 2> /dev/null)"'
)
_SPACE: Final = ("stat", "-f", "-c", "%S %b %f", SCRATCH_DIRECTORY)
_IMAGE: Final = "filesystem.xz"
_FACTS: Final = "facts.json"
_AGED: Final = TypeAdapter(AgeFacts)
_IMAGE_VERSION: Final = 1
HEAD_BYTES: Final = MIB
# The operations change with the program that chooses them.
_NOMINAL_BYTES: Final = 256 * MIB


class Place(NamedTuple):
    """A block device of the board: its name, and the bytes of the card that it is."""

    name: str
    first_byte: int
    size_bytes: int


@dataclass
class AgedImages:
    """The aged filesystems of a board in guest time, whole, in the cache."""

    board: Board
    profile: BoardProfile
    _folders: dict[str, Path | None] = field(default_factory=dict[str, Path | None], init=False)

    def make(self, kind: Filesystem, age: Callable[[], AbstractContextManager[tuple[Place, AgeFacts]]]) -> None:
        """Make the image if there is none: `age` ages the filesystem in a boot of its own. Raises LabError, HostError.

        A filesystem that cannot be aged has none.
        """

        def build(into: Path) -> None:
            with age() as (place, facts):
                digest = self._read(place, into / _IMAGE)
            (into / _FACTS).write_bytes(_AGED.dump_json(replace(facts, image_sha256=digest), indent=1))

        key = self._key(kind)
        if key not in self._folders:
            try:
                self._folders[key] = build_once("aged", file_name(content_of(kind.name)), key, build)
            except MeasurementInvalid:
                self._folders[key] = None  # its measurement says why

    def put(self, kind: Filesystem, place: Place) -> tuple[AgeFacts, str] | None:
        """Put the filesystem onto the card, if there is an image.

        Returns its facts, and the digest of its first `HEAD_BYTES`. Raises StorageError.
        """
        folder = self._folders.get(self._key(kind))
        card = self.board.card_file()
        if folder is None or card is None:
            return None
        try:
            with lzma.open(folder / _IMAGE) as image, card.open("r+b") as file:
                file.seek(place.first_byte)
                head = image.read(HEAD_BYTES)
                file.write(head)
                while chunk := image.read(MIB):
                    file.write(chunk)
                if file.tell() != place.first_byte + place.size_bytes:
                    raise StorageError(f"the image in {folder} is not as large as {place.name}")
            return _AGED.validate_json((folder / _FACTS).read_bytes()), hashlib.sha256(head).hexdigest()
        except (OSError, EOFError, lzma.LZMAError) as error:
            raise StorageError(f"the aged filesystem {kind.name} cannot be put onto the card: {error}") from error

    def _read(self, place: Place, image: Path) -> str:
        """Pack a part of the card. Returns the digest of its content. Raises StorageError."""
        card, digest = self.board.card_file(), hashlib.sha256()
        assert card is not None
        try:
            with card.open("rb") as file, lzma.open(image, "wb", preset=0) as packed:
                for at in range(place.first_byte, place.first_byte + place.size_bytes, MIB):
                    chunk = os.pread(file.fileno(), min(MIB, place.first_byte + place.size_bytes - at), at)
                    digest.update(chunk)
                    packed.write(chunk)
        except OSError as error:
            raise StorageError(f"the aged filesystem of {card} cannot be kept: {error}") from error
        return digest.hexdigest()

    def _key(self, kind: Filesystem) -> str:
        assert kind.age is not None
        return cache_key(
            {
                "version": _IMAGE_VERSION,
                "card": self.board.image().card_sha256,
                "device": [self.profile.scratch_device, self.profile.scratch_bytes],
                "age": kind.age.name,
                "operations": replay(kind.age, _NOMINAL_BYTES).digest,
                "programs": [kind.make_argv("DEVICE"), kind.mount_argv("DEVICE", "DIRECTORY")],
            }
        )


@dataclass
class Ageing:
    """Ages filesystems that were just made. `install` puts programs onto the board; `facts` are the last one's.

    With `images` a filesystem is not made, but taken from there.
    """

    shell: Shell
    install: Callable[[Mapping[str, bytes]], None]
    images: AgedImages | None = None
    facts: AgeFacts | None = field(default=None, init=False)

    def put(self, scratch: Scratch, kind: Filesystem) -> bool:
        """Put a filesystem with its age onto an unused device, if there is an image. Raises LabError, StorageError."""
        if kind.age is None or self.images is None or scratch.stack.layers:
            return False
        put = self.images.put(kind, self._place(scratch.device))
        if put is None:
            return False
        self.facts, head = put
        forget = lab_step("blockdev", "--flushbufs", scratch.device)
        look = lab_step("sh", "-c", f'head -c {HEAD_BYTES} "$1" | sha256sum', "sh", scratch.device)
        there = perform(self.shell, [forget, look, forget])[1].stdout
        if there.split()[:1] != [head]:
            raise BoardError(f"the board reads something else from {scratch.device} than was put there", transient=True)
        return True

    def _place(self, device: str) -> Place:
        said = checked(self.shell, "sh", "-c", _DEVICE, "sh", device).stdout
        match = re.fullmatch(r"(?P<name>\S+) (?P<sectors>\d+)( (?P<first>\d+))?", said.strip().rpartition("/")[2])
        if match is None:
            raise BoardError(f"the board does not tell the size of {device}: {said}", transient=False)
        return Place(match["name"], int(match["first"] or 0) * SECTOR_BYTES, int(match["sectors"]) * SECTOR_BYTES)

    def age(self, scratch: Scratch, kind: Filesystem) -> Place | None:
        """Replay the use of an unmounted filesystem. Returns where it is, and nothing of it is in a cache any more.

        Raises MeasurementInvalid if it cannot hold it, LabError.
        """
        if kind.age is None:
            return None
        self.facts = None
        place = self._place(scratch.device)
        name = place.name
        use = replay(kind.age, place.size_bytes)
        self.install({SCRIPT: use.script})
        replaying = filesystem_step(SCRIPT, SCRATCH_DIRECTORY, timeout_s=_limit_s(use))
        space = perform(self.shell, [*scratch.mounting(kind), replaying, lab_step(*_SPACE)])[-1].stdout
        layout = self.shell.run(_LAYOUT, timeout_s=_SURVEY_TIMEOUT_S).stdout
        free = self._free_space(kind, scratch.device, name) if kind.free_space and kind.free_space.mounted else ""
        scratch.unmount()
        if kind.free_space and not kind.free_space.mounted:
            free = self._free_space(kind, scratch.device, name)
        self.facts = facts(use, kind, space=space, free=free, layout=layout)
        perform(self.shell, [lab_step("sync"), lab_step("blockdev", "--flushbufs", scratch.device)])
        return place

    def _free_space(self, kind: Filesystem, device: str, name: str) -> str:
        assert kind.free_space is not None
        argv = [word.replace("{device}", device).replace("{name}", name) for word in kind.free_space.argv]
        listed = self.shell.run(argv, timeout_s=_SURVEY_TIMEOUT_S)
        return listed.stdout if listed.exit_code == 0 else ""


def _limit_s(use: Replay) -> float:
    """The most seconds that the replay may take."""
    return 60.0 + 2 * (use.replayed + 1) * use.live_bytes / _SLOWEST_BYTES_PER_S


def small_share(kind: Filesystem, said: str) -> tuple[float, int] | None:
    """The share of the free space in runs shorter than 1 MiB, and the number of runs; None if not all are listed."""
    assert kind.free_space is not None
    if kind.free_space.incomplete and kind.free_space.incomplete in said:
        return None
    total = short = 0.0
    runs = 0
    for found in re.finditer(kind.free_space.pattern, said, re.MULTILINE):
        parts = found.groupdict()
        length = int(parts["length"]) * _SUFFIXES.get(parts.get("suffix") or "", kind.free_space.unit_bytes)
        count = int(parts.get("count") or 1)
        weight = float(parts["percent"]) if parts.get("percent") else float(length * count)
        runs, total = runs + count, total + weight
        short += weight if length < _SHORT_BYTES else 0.0
    return (short / total, runs) if total else None


def facts(use: Replay, kind: Filesystem, *, space: str, free: str, layout: str) -> AgeFacts:
    """What an aged filesystem is. Raises MeasurementInvalid if its space cannot be read."""
    assert kind.age is not None
    try:
        block, blocks, free_blocks = (int(word) for word in space.split())
    except ValueError:
        raise MeasurementInvalid("age", [f"the space of the aged filesystem cannot be read: {space}"]) from None
    listed = small_share(kind, free) if kind.free_space else None
    extents = re.fullmatch(r"(?P<number>\d+) (?P<md5>[0-9a-f]{32})  -\s*", layout)
    return AgeFacts(
        name=kind.age.name,
        turns=use.turns,
        replayed_turns=use.replayed,
        files=use.files,
        full=1 - free_blocks / blocks if blocks else 1.0,
        operations_sha256=use.digest,
        layout_md5="" if extents is None else extents["md5"],
        extents=None if extents is None else int(extents["number"]),
        free_in_short_runs=None if listed is None else listed[0],
        mean_free_run_bytes=None if listed is None else free_blocks * block / listed[1],
    )
