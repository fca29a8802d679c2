"""A kernel and a root beside the kept ones, taken from a card image, and U-Boot's script that tries them once."""

from __future__ import annotations

import gzip
import hashlib
import io
import re
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Final

from fsjoule.errors import BoardError, LabError
from fsjoule.host import process
from fsjoule.kernels.card_layout import Address
from fsjoule.kernels.image import kernel_release
from fsjoule.kernels.legacy_image import boot_commands, legacy_script, start_command
from fsjoule.lab.board_network import FailingBoard, checked
from fsjoule.lab.flashers import Partition, boot_partition, partition_device, partitions
from fsjoule.lab.sparse_image import mapped
from fsjoule.model import MIB
from fsjoule.ports import Shell

# Below the boot partition.
FOLDER: Final = "second"
ENTRY: Final = f"{FOLDER}/extlinux.conf"
USUAL: Final = "extlinux/extlinux.conf"
KEPT: Final = "extlinux/kept.conf"
# The same two for a U-Boot that has no `sysboot`.
ENTRY_SCRIPT: Final = f"{FOLDER}/extlinux.scr"
KEPT_SCRIPT: Final = "extlinux/kept.scr"
SCRIPT: Final = "boot.scr"

# The script's message before it starts the second slot.
TRYING: Final = "fsjoule: second kernel, once"
# A word of the kernel's command line, with the slot's name.
WORD: Final = "fsjoule.slot="

# As the boot loader's own search for boot.scr calls it.
_PARTITION: Final = "${devtype} ${devnum}:${distro_bootpart}"
_TIMEOUT_S: Final = 120.0
_NAME_DIGITS: Final = 12
_MAGIC: Final = b"ONCE"
_FILE: Final = re.compile(r"^(\s*(?:LINUX|KERNEL|INITRD|FDT)\s+)(\S+)[ \t]*$", re.MULTILINE)
_APPEND: Final = re.compile(r"^(\s*APPEND\s+\S.*?)\s*$", re.MULTILINE)
_WORDS: Final = re.compile(r"^\s*(LINUX|KERNEL|INITRD|FDT|APPEND)\s+(\S.*?)\s*$", re.MULTILINE)
_ROOT: Final = re.compile(r"\broot=(/dev/\S*?)(\d+)(?=\s|$)")
_MODULES: Final = ("usr/lib/modules", "lib/modules")
# Path on the board, and content.
Upload = Callable[[str, bytes], None]

_PACKED: Final = "/tmp/fsjoule-root.gz"  # noqa: S108 - the board's /tmp is only ours
# A command's share of the pieces: a slow board needs a minute for it.
_READ_AT_ONCE: Final = 32
_SENT_AT_ONCE: Final = 16
_ROOT_TIMEOUT_S: Final = 300.0
_SUM: Final = re.compile(r"^[0-9a-f]{64}", re.MULTILINE)
# Behind the root there is the scratch partition, and behind that the second root.
_BEHIND: Final = 2


@dataclass(frozen=True, slots=True)
class Slot:
    """One kernel for the second slot.

    `files` are those of the boot partition, by a name with their digest; `entry` is the extlinux.conf that names them.
    `modules` is a packed tar of the folder `release`, for a kernel that runs on the kept root. A kernel with its own
    `root` has them there; its `release` is empty if its image does not tell it. `name` is a digest of it all.
    """

    name: str
    release: str
    files: dict[str, bytes]
    entry: bytes
    modules: bytes
    boot: Partition
    root: SecondRoot | None = None


def read_slot(image: Path) -> Slot:
    """The kernel of a card image, with its root if the card has a second root partition.

    Raises LabError for an image without extlinux.conf, or without a second root partition and a whole ext4 root.
    """
    found, boot = partitions(image), boot_partition(image)
    text = _file(image, boot, USUAL).decode()
    root = _ROOT.search(text)
    named = {match[2]: _file(image, boot, match[2].lstrip("/")) for match in _FILE.finditer(text)}
    of_root = None if root is None else next((each for each in found if each.number == int(root[2])), None)
    if root is None or of_root is None or not named:
        raise LabError(f"{USUAL} of {image} names no kernel, or no root partition by its number")
    second, modules = read_root(image, of_root, found), b""
    if second is not None:
        release = next(filter(None, map(kernel_release, named.values())), "")
        text = _ROOT.sub(rf"root=\g<1>{second.second.number}", text)
    else:
        with tempfile.TemporaryDirectory() as folder:
            release, modules = _modules(image, of_root, Path(folder))
    files = {path: f"{_digest(content)}-{Path(path).name}" for path, content in named.items()}
    text = _FILE.sub(lambda match: f"{match[1]}/{FOLDER}/{files[match[2]]}", text)
    name = _digest(text.encode() + (modules if second is None else second.digest.encode()))
    entry = _APPEND.sub(rf"\1 {WORD}{name}", text).encode()
    return Slot(name, release, {files[path]: named[path] for path in named}, entry, modules, boot, second)


def script(boot: Partition) -> bytes:
    """U-Boot's boot.scr: it clears the flag before it starts the second slot, and starts the kept kernel otherwise.

    The flag is the first word of the last sector before the boot partition: one sector is written whole or not at all,
    and every U-Boot that reads a card can write it. `sysboot` returns if it cannot start the kernel, or is no command.
    """
    disk, at = "${devtype}", "${kernel_addr_r}"
    flag, word = f"{at} {flag_sector(boot):x} 1", f"{int.from_bytes(_MAGIC, 'little'):#x}"
    entry, scr = f"sysboot {_PARTITION} any ${{scriptaddr}}", f"if load {_PARTITION} ${{scriptaddr}}"
    return legacy_script(
        f"# fsjoule: {ENTRY} if the flag is set, otherwise {KEPT}\n"
        f"{disk} dev ${{devnum}}\n"
        f"if {disk} read {flag}; then if itest.l *{at} == {word}; then\n"
        f"  mw.l {at} 0 1\n"
        f"  if {disk} write {flag}; then mw.l {at} {word} 1; if {disk} read {flag}; then if itest.l *{at} == 0; then\n"
        f'    echo "{TRYING}"\n'
        f"    {entry} /{ENTRY}\n"
        f"    {scr} /{ENTRY_SCRIPT}; then source ${{scriptaddr}}; fi\n"
        "  fi; fi; fi\n"
        "fi; fi\n"
        f"{entry} /{KEPT}\n"
        f"{scr} /{KEPT_SCRIPT}; then source ${{scriptaddr}}; fi\n"
    )


def as_script(entry: str) -> bytes | None:
    """An extlinux.conf as a script for U-Boot; None if it has not kernel, initramfs, device tree and command line."""
    words = {key.upper(): value for key, value in _WORDS.findall(entry)}
    kernel, arguments = words.get("LINUX", words.get("KERNEL", "")), words.get("APPEND", "")
    if not {"INITRD", "FDT"} <= words.keys() or start_command(kernel) is None or not arguments or "'" in arguments:
        return None
    at: dict[Address, str] = {
        "kernel_addr_r": "${kernel_addr_r}",
        "fdt_addr_r": "${fdt_addr_r}",
        "ramdisk_addr_r": "${ramdisk_addr_r}",
    }
    load = f"load {_PARTITION}"
    return legacy_script(boot_commands(load, kernel, words["FDT"], words["INITRD"], arguments=arguments, at=at))


def flag_sector(boot: Partition) -> int:
    """The sector of the card that holds the flag."""
    return boot.start - 1


def flag() -> bytes:
    """The start of the flag's sector when it is set."""
    return _MAGIC + FLAG_TEXT


# Stays when U-Boot clears the flag: it tells whose sector this is.
FLAG_TEXT: Final = b": U-Boot tries fsjoule's second kernel\n"


def _modules(image: Path, root: Partition, folder: Path) -> tuple[str, bytes]:
    """The release of the modules in an ext4 root, and a packed tar of them that is the same each time."""
    source = f"{image}?offset={root.start * root.sector_bytes}"
    # debugfs also reads a damaged image, whose file `../name` it would write outside of the folder.
    whole = process.run(["e2fsck", "-fn", source], timeout_s=_TIMEOUT_S, check=False).returncode == 0
    for path in _MODULES if whole else ():
        request = f'rdump /{path} "{folder}"'
        process.run(["debugfs", "-R", request, source], timeout_s=_TIMEOUT_S, check=False)
        if releases := sorted((folder / "modules").glob("*/")):
            break
    else:
        raise LabError(
            f"the modules of {image} cannot be read: its root is not a whole ext4, or has none",
            hint="its recipe needs card.second_root for another root filesystem (docs/flashing.md)",
        )
    [release] = [each for each in releases if each.is_dir()][:1]
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for each in [release, *sorted(release.rglob("*"))]:
            tar.add(each, each.relative_to(release.parent).as_posix(), recursive=False, filter=_of_root)
    return release.name, gzip.compress(packed.getvalue(), mtime=0)


def _of_root(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = "root"
    return member


def _file(image: Path, boot: Partition, path: str) -> bytes:
    source = f"{image}@@{boot.start * boot.sector_bytes}"
    done = process.run(["mcopy", "-i", source, f"::{path}", "-"], timeout_s=_TIMEOUT_S, check=False)
    if done.returncode != 0:
        raise LabError(
            f"the card image {image} has no {path}: {done.stderr.decode(errors='replace').strip()}",
            hint="InPlaceFlasher needs a board that boots by extlinux.conf",
        )
    return done.stdout


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:_NAME_DIGITS]


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
        # Neighbours are written at once.
        runs = [[number for _, number in run] for _, run in groupby(enumerate(numbers), lambda each: each[1] - each[0])]
        writes = " && ".join(
            f"busybox dd of={device} bs={MIB} seek={run[0]} count={len(run)} iflag=fullblock conv=notrunc 2>&1"
            for run in runs
        )
        unpack = f"gzip -dc {_PACKED} | {{ {writes}; }} && sync && rm {_PACKED}"
        checked(board, shell, unpack, "cannot write its second root partition", _ROOT_TIMEOUT_S)
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
    checked(board, shell, "sync; echo 3 >/proc/sys/vm/drop_caches", "cannot empty its cache", _ROOT_TIMEOUT_S)
    found: list[str] = []
    for some in _parts(numbers, _READ_AT_ONCE):
        read = f"busybox dd if={device} bs={MIB} skip=$n count=1 2>/dev/null | sha256sum"
        loop = f"for n in {' '.join(map(str, some))}; do {read}; done"
        found += _SUM.findall(checked(board, shell, loop, "cannot read its second root partition", _ROOT_TIMEOUT_S))
    if len(found) != len(numbers):
        raise board.error(f"cannot read its second root partition: it told {len(found)} sums of {len(numbers)}")
    return [number for number, told in zip(numbers, found, strict=True) if told != wanted.sums[number]]


def _parts(numbers: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    for begin in range(0, len(numbers), size):
        yield numbers[begin : begin + size]


def _content(image: Path, root: Partition, number: int) -> bytes:
    with image.open("rb") as file:
        file.seek(root.start * root.sector_bytes + number * MIB)
        return file.read(min(MIB, root.size * root.sector_bytes - number * MIB))
