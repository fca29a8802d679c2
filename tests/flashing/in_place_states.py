"""`python -m flashing.in_place_states --states 8`: power cuts in a flash in place, each on the card that it leaves.

What an emulated board writes to its card is recorded from the kept kernel's boot, which flashes another kernel, to that
kernel's second login. Each write that U-Boot may read makes a state, and three of a run that it does not: the root's,
and the files of the second slot before the flag is set. From each chosen state the board has to log in by itself, on
an unchanged root, and take the flash again. Then the card must be what an uncut flash leaves.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import struct
import sys
import tempfile
import time
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final, NamedTuple

from in_place_board import ORANGEPI, InPlaceBoard, card, in_place_board

from fsjoule.bench.crash.update import SECTOR_BYTES, groups_of
from fsjoule.errors import BoardError, LabError
from fsjoule.host import process
from fsjoule.lab.flashers import boot_partition, partitions
from fsjoule.lab.second_slot import FOLDER, KEPT, SCRIPT, USUAL, flag, flag_sector
from fsjoule.model.card_writes import CardWrite, read_card_writes
from fsjoule.virtual.lab import board as lab_board
from fsjoule.virtual.lab.files import LabPaths

_TIMEOUT_S: Final = 120.0
_PHASES: Final = ("the flash", "the second kernel's first start", "its second start")
# Of a root that both kernels share: what the flash and the second kernel add.
_OURS: Final = re.compile(r"usr/lib/(fsjoule|modules/6\.12\.[^/]*)(/|$)")
# What fsck.fat says of each filesystem that was not unmounted, of clusters that nobody has, and of copies of the table.
_HARMLESS: Final = re.compile(
    r"fsck\.fat |Dirty bit is set|Automatically removing dirty bit|Reclaimed \d+ unused|FATs differ but|"
    r"Using first FAT|Leaving filesystem unchanged|.*: \d+ files, "
)


class State(NamedTuple):
    """A card after so many `writes`; `last` is the place of the last one, in words.

    `fat` is what fsck.fat would repair, `wrong` what is lost before or after that.
    """

    writes: int
    last: str
    fat: str
    wrong: str


@dataclass(frozen=True)
class Fat:
    """A FAT filesystem in a file, from the byte `begin` on."""

    path: Path
    begin: int

    def files(self) -> dict[str, bytes]:
        """The content of each file, by name."""
        names = [name for name in self._mtool("mdir", "-b", "-/", "::/").decode().split() if not name.endswith("/")]
        return {name.removeprefix("::/"): self._mtool("mcopy", "-n", name, "-") for name in names}

    def clusters(self, names: Sequence[str]) -> list[tuple[int, int, str]]:
        """First and last cluster of each piece of files, and their names, in the clusters' order."""
        told = self._mtool("mshowfat", *(f"::/{name}" for name in names)).decode() if names else ""
        found: list[tuple[int, int, str]] = []
        for line in told.splitlines():
            name, _, rest = line.removeprefix("::/").partition(" ")
            for first, last in re.findall(r"<(\d+)(?:-(\d+))?>", rest):
                found.append((int(first), int(last or first), name))
        return sorted(found)

    def _mtool(self, *argv: str) -> bytes:
        """The output of one of mtools' programs, which says nothing of a file that it cannot read."""
        tool, *rest = argv
        argv = (tool, "-i", f"{self.path}@@{self.begin}", *rest)
        return process.run(argv, timeout_s=_TIMEOUT_S, check=False).stdout


@dataclass
class Card:
    """A card image, on which writes are done, and what is on it. Offsets are bytes of the card."""

    path: Path

    def write(self, writes: Iterable[CardWrite]) -> None:
        with self.path.open("r+b") as file:
            for each in writes:
                file.seek(each.offset)
                file.write(each.data)

    def read(self, offset: int, size: int) -> bytes:
        with self.path.open("rb") as file:
            file.seek(offset)
            return file.read(size)

    @cached_property
    def boot(self) -> tuple[int, int]:
        """Where the boot partition begins, and its size."""
        found = boot_partition(self.path)
        return found.start * SECTOR_BYTES, found.size * SECTOR_BYTES

    @property
    def flagged(self) -> bool:
        sector = flag_sector(boot_partition(self.path))
        return self.read(sector * SECTOR_BYTES, 4) == flag()[:4]

    @property
    def fat(self) -> Fat:
        """Its boot partition."""
        return Fat(self.path, self.boot[0])

    def judge_fat(self, kept: Mapping[str, bytes]) -> tuple[str, str]:
        """What fsck.fat finds in the boot partition beyond `_HARMLESS`, and what is wrong before or after its repair.

        `kept` are the files before the flash.
        """
        with tempfile.NamedTemporaryFile() as file:
            file.write(self.read(*self.boot))
            file.flush()
            fat = Fat(Path(file.name), 0)
            found = _check_fat("-n", fat)
            wrong = [_starts_another(fat, kept)]
            _check_fat("-a", fat)
            left = _check_fat("-n", fat)
            wrong += [_starts_another(fat, kept), left and f"left: {left}"]
        return found, next(filter(None, wrong), "")

    def root_digest(self) -> str:
        """Of the files of the kept root that are none of ours. Raises LabError for a root that cannot be repaired."""
        root = partitions(self.path)[1]
        with tempfile.TemporaryDirectory() as name:
            image, tree = Path(name) / "root.img", Path(name) / "tree"
            tree.mkdir()
            image.write_bytes(self.read(root.start * SECTOR_BYTES, root.size * SECTOR_BYTES))
            # The journal is replayed, and nothing else: -p refuses more than that.
            done = process.run(["e2fsck", "-p", image], timeout_s=_TIMEOUT_S, check=False)
            if done.returncode not in (0, 1):
                said = " ".join(done.stdout.decode(errors="replace").split())
                raise LabError(f"the kept root is damaged: {said}")
            process.run(["debugfs", "-R", f'rdump / "{tree}"', image], timeout_s=_TIMEOUT_S)
            digest = hashlib.sha256()
            for path in sorted(tree.rglob("*")):
                relative = path.relative_to(tree).as_posix()
                if not _OURS.match(relative) and path.is_file() and not path.is_symlink():
                    digest.update(f"{relative} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
        return digest.hexdigest()


def _check_fat(mode: str, fat: Fat) -> str:
    said = process.run(["fsck.fat", mode, fat.path], timeout_s=_TIMEOUT_S, check=False).stdout.decode(errors="replace")
    lines = [line.strip() for line in said.splitlines()]
    return "; ".join(line for line in lines if line and not _HARMLESS.match(line))


def _starts_another(fat: Fat, kept: Mapping[str, bytes]) -> str:
    """What U-Boot starts without the flag if that is not the kept kernel."""
    files = fat.files()
    if different := [name for name, content in kept.items() if name != USUAL and files.get(name) != content]:
        return f"the kept kernel's {different[0]} is another"
    entry = files.get(USUAL) or (files.get(KEPT) if files.get(SCRIPT) else None)
    return "" if entry == kept[USUAL] else "U-Boot has no entry of the kept kernel"


class Recorded:
    """A flash in three phases, each with its writes, and the cards before and after it."""

    def __init__(self, folder: Path) -> None:
        self.base = Card(folder / "base.img")
        self.final = Card(folder / "final.img")
        self.phases = [list(read_card_writes(folder / f"writes{n}")) for n in range(len(_PHASES))]
        self.writes = [each for phase in self.phases for each in phase]
        if not self.final.path.exists():
            process.run(["cp", "--sparse=always", self.base.path, self.final.path], timeout_s=_TIMEOUT_S)
            self.final.write(self.phases[0])
        self._partitions = partitions(self.base.path)
        reserved, fats, entries, sectors = fat_head(self.base)
        begin = self.base.boot[0] // SECTOR_BYTES
        self._tables = [begin + reserved + n * sectors for n in range(fats)]
        self._root_folder = begin + reserved + fats * sectors
        self._data = self._root_folder + entries * 32 // SECTOR_BYTES
        self._per_cluster = self.base.read(self.base.boot[0] + 13, 1)[0]
        # Names at the end; of what was removed those of before.
        files = self.final.fat.files()
        names = {*files, *(Path(name).parent.as_posix() for name in files)} - {"."}
        gone = self.base.fat.files().keys() - names
        self._clusters = sorted([*self.final.fat.clusters(sorted(names)), *self.base.fat.clusters(sorted(gone))])

    def place(self, offset: int) -> str:
        """What is there, in words."""
        sector = offset // SECTOR_BYTES
        part = next((each for each in self._partitions if 0 <= sector - each.start < each.size), None)
        if part is None:
            return "the flag" if sector == flag_sector(self._partitions[0]) else "beside the flag"
        if not part.bootable:
            return f"partition {part.number}"
        if sector < self._tables[0]:
            return "the FAT's head"
        if sector < self._root_folder:
            number = bisect_right(self._tables, sector)
            return f"table {number}, sector {sector - self._tables[number - 1]}"
        if sector < self._data:
            return "the root folder"
        cluster = (sector - self._data) // self._per_cluster + 2
        return next((name for first, last, name in self._clusters if first <= cluster <= last), f"cluster {cluster}")

    def _unread(self, offset: int) -> str:
        place = self.place(offset)
        return place if place.startswith(("partition ", f"{FOLDER}/")) else ""

    def states(self, scratch: Path) -> list[State]:
        """The different states in their order, the first of which is the card before it all."""
        ends = [len(self.phases[0]), len(self.phases[0]) + len(self.phases[1])]
        process.run(["cp", "--sparse=always", self.base.path, scratch], timeout_s=_TIMEOUT_S)
        found, known, differing, now = [State(0, "", "", "")], {0}, 0, Card(scratch)
        begin, size = self.base.boot
        judged, kept = ("", ""), self.base.fat.files()
        for group in groups_of(self.writes, ends, self._unread):
            table = False
            for each in self.writes[group.first : group.end]:
                old, first = now.read(each.offset, len(each.data)), self.base.read(each.offset, len(each.data))
                differing ^= _content(each.offset, old, first) ^ _content(each.offset, each.data, first)
                now.write([each])
                table = table or (0 <= each.offset - begin < size and old != each.data)
            if table:
                judged = now.judge_fat(kept)
            if differing not in known:
                known.add(differing)
                found.append(State(group.end, self.place(self.writes[group.end - 1].offset), *judged))
        return found

    def around(self, count: int) -> str:
        """The places of the writes before and after a state."""
        some = range(max(0, count - 4), min(len(self.writes), count + 3))
        return "\n".join(f"  {'>' if n == count else ' '} {n}: {self.place(self.writes[n].offset)}" for n in some)

    def phase(self, count: int) -> str:
        ends = [len(self.phases[0]), len(self.phases[0]) + len(self.phases[1])]
        return _PHASES[bisect_right(ends, count - 1)]


def _content(offset: int, data: bytes, base: bytes) -> int:
    """A number of what is written there; 0 of what was there before. Those of a card, xored, are the card's."""
    return 0 if data == base else int.from_bytes(hashlib.sha256(b"%d %s" % (offset, data)).digest())


def fat_head(card: Card) -> tuple[int, int, int, int]:
    """Reserved sectors, number of tables, entries of the root folder, sectors of a table."""
    head = card.read(card.boot[0], SECTOR_BYTES)
    reserved, fats, entries, _, _, sectors = struct.unpack_from("<HBHHBH", head, 14)
    return reserved, fats, entries, sectors or struct.unpack_from("<I", head, 36)[0]


def record(board: InPlaceBoard, image: Path, folder: Path) -> None:
    """Record a flash of an image, two starts of its kernel, and what the card had before."""
    paths = LabPaths.of(ORANGEPI)
    process.run(["cp", "--sparse=always", paths.card, folder / "base.img"], timeout_s=_TIMEOUT_S)
    for number, phase in enumerate(_PHASES):
        begin = time.monotonic()
        writes = lab_board.record_writes(os.environ["LG_COORDINATOR"], os.environ["LG_PLACE"])
        assert writes is not None
        if number == 0:
            board.flash(image)
        else:
            board.strategy.transition("booted")
            board.off()
        shutil.copyfile(writes, folder / f"writes{number}")
        _say(f"recorded {phase}: {time.monotonic() - begin:.0f} s")


@dataclass
class Trial:
    """Cuts on a board, each judged. `starts` are contents of the card from which the second kernel has started."""

    board: InPlaceBoard
    recorded: Recorded
    image: Path
    card: Card
    root: str

    def __post_init__(self) -> None:
        self._expected = self.recorded.final.fat.files()
        self._started: set[bytes] = set()

    def put(self, state: State) -> None:
        """The board is off."""
        process.run(["cp", "--sparse=always", self.recorded.base.path, self.card.path], timeout_s=_TIMEOUT_S)
        self.card.write(self.recorded.writes[: state.writes])

    def judge(self) -> str:
        """What is wrong with a card that a cut has left, which is in the board, or nothing."""
        if self.card.root_digest() != self.root:
            return "the kept root has other files"
        if self.card.flagged and (wrong := self._comes_up()):
            return wrong
        try:
            wrong = self._flashes()
        except LabError as error:
            _say(f"once more: {error.what.splitlines()[0]}")
            try:
                wrong = self._flashes()
            except LabError as again:
                return f"{type(again).__name__}: {again.what.splitlines()[0]}"
        return wrong or self._differs()

    def _comes_up(self) -> str:
        """With the flag set the second kernel is tried; if it does not log in, the kept one has to."""
        said = []
        for _ in range(2):
            try:
                self.board.strategy.boot()
            except BoardError as error:
                said.append(error.what)
            else:
                return ""
            finally:
                self.board.strategy.off()
        return f"no kernel logs in: {'; '.join(said)}"

    def _flashes(self) -> str:
        """The kept kernel logs in, and takes the flash; once for each content of the card the second kernel starts."""
        self.board.flash(self.image)
        start = hashlib.sha256(repr(sorted(self.card.fat.files().items())).encode()).digest()
        if start in self._started:
            return ""
        self._started.add(start)
        release = self.board.boot(self.image)
        self.board.off()
        return "" if release.startswith("6.12.") else f"{release} was started after the flash"

    def _differs(self) -> str:
        """What an uncut flash would not have left."""
        found, wrong = self.card.judge_fat(self.recorded.base.fat.files())
        if found or wrong:
            return f"after the flash: {found or wrong}"
        files = self.card.fat.files()
        if different := [name for name in {**files, **self._expected} if files.get(name) != self._expected.get(name)]:
            return f"after the flash other files than after an uncut one: {', '.join(sorted(different))}"
        if not self.card.flagged:
            return "after the flash the flag is not set"
        return "" if self.card.root_digest() == self.root else "after the flash the kept root has other files"


def chosen(states: Sequence[State], count: int, first: int) -> list[State]:
    """Of the states from number `first`: those with a faulty FAT, and others, evenly spread; `count` in all."""
    left = list(states[first:])
    if not 0 < count < len(left):
        return left

    def spread(some: Sequence[State], number: int) -> list[State]:
        number = min(number, len(some))
        return [some[(2 * n + 1) * len(some) // (2 * number)] for n in range(number)]

    faulty = [each for each in left if each.fat]
    half = spread(faulty, count // 2)
    return sorted([*half, *spread([each for each in left if not each.fat], count - len(half))])


def try_states(folder: Path, count: int, first: int, only: Sequence[int]) -> list[str]:
    """Record a flash in `folder` unless it has one already, and try its states. Returns the losses."""
    kept, image = card("6.1"), card("6.12")
    with tempfile.TemporaryDirectory() as name, in_place_board(kept, Path(name)) as board:
        if not (folder / f"writes{len(_PHASES) - 1}").exists():
            record(board, image, folder)
        recorded, begin = Recorded(folder), time.monotonic()
        states = recorded.states(Path(name) / "now.img")
        some = [each for each in states if each.writes in only] if only else chosen(states, count, first)
        faulty, lost = sum(bool(each.fat) for each in states), [each for each in states if each.wrong]
        _say(f"{len(recorded.writes)} writes, {len(states)} different states, {faulty} with a FAT that needs a repair")
        losses = [f"unbooted, {each.writes} writes, last {each.last}: {each.wrong}" for each in lost]
        _say("".join(f"{each}\n" for each in losses) + f"{len(lost)} of them have lost the kept kernel's files")
        trial = Trial(board, recorded, image, Card(LabPaths.of(ORANGEPI).card), recorded.base.root_digest())
        for number, state in enumerate(some, 1):
            trial.put(state)
            since = time.monotonic()
            wrong = trial.judge()
            what = f"{state.writes} writes, in {recorded.phase(state.writes)}, last {state.last or 'nothing'}"
            _say(f"{number} of {len(some)}: {what}: {time.monotonic() - since:.0f} s: {wrong or 'right'}")
            if wrong and not losses:
                _say(f"the FAT: {state.fat or 'whole'}\n{recorded.around(state.writes)}")
            losses += [f"{what}: {wrong}"] if wrong else []
        minutes = (time.monotonic() - begin) / 60
    _say(f"{len(some)} of {len(states)} states tried, {len(losses)} losses, {minutes:.0f} min")
    return losses


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(prog="flashing.in_place_states")
    parser.add_argument("--states", type=int, default=0, help="try so many, half of them with a faulty FAT (all)")
    parser.add_argument("--from", type=int, default=0, dest="first", help="leave out so many at the begin")
    parser.add_argument("--only", default="", help="try only the states after these numbers of writes, by commas")
    parser.add_argument("--record", type=Path, help="a folder that keeps the recorded flash, or has one")
    parsed = parser.parse_args()
    with tempfile.TemporaryDirectory() as state, tempfile.TemporaryDirectory() as scratch:
        os.environ["FSJOULE_STATE_DIR"] = state
        folder = parsed.record or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        only = [int(each) for each in parsed.only.split(",") if each]
        return bool(try_states(folder, parsed.states, parsed.first, only))


if __name__ == "__main__":
    sys.exit(main())
