"""A kernel beside the kept one, taken from a card image, and the script with which U-Boot tries it once."""

from __future__ import annotations

import gzip
import hashlib
import io
import re
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fsjoule.errors import LabError
from fsjoule.host import process
from fsjoule.kernels.card_layout import Address
from fsjoule.kernels.image import kernel_release
from fsjoule.kernels.legacy_image import boot_commands, legacy_script, start_command
from fsjoule.lab.kept_card import Partition, boot_partition, partitions
from fsjoule.lab.second_root import SecondRoot, read_root

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
