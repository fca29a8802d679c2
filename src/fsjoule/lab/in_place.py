"""Brings kernel and root onto the card while the board runs. The kept ones stay, and run again if the new ones fail."""

from __future__ import annotations

import base64
import hashlib
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import attr
from labgrid.driver import Driver
from labgrid.factory import target_factory
from labgrid.step import step

from fsjoule.errors import BoardError
from fsjoule.lab import second_slot
from fsjoule.lab.board_network import BoardNetwork
from fsjoule.lab.flashers import FlashedBoard, KernelKeeper, partition_device
from fsjoule.lab.second_slot import (
    ENTRY,
    ENTRY_SCRIPT,
    FOLDER,
    KEPT,
    KEPT_SCRIPT,
    SCRIPT,
    USUAL,
    WORD,
    Slot,
    Upload,
    bring_root,
)
from fsjoule.lab.shell import BoardShell
from fsjoule.model import Reach
from fsjoule.ports import Shell

_TIMEOUT_S: Final = 300.0
_SECTOR_BYTES: Final = 512
_ATTEMPTS: Final = 2
_BOOT: Final = "/tmp/fsjoule-boot"  # noqa: S108 - the board's /tmp is only ours
_NEW: Final = "/tmp/fsjoule-new"  # noqa: S108
_PACKED: Final = f"{_NEW}/modules.tar.gz"
# Slots' modules on the root, and the free space that other slots' must leave there.
_MODULES: Final = "/usr/lib/fsjoule/second"
_FREE_KIB: Final = 64 * 1024


@target_factory.reg_driver
@attr.s(eq=False)
class InPlaceFlasher(Driver, KernelKeeper):
    """Uploads kernel, initramfs, device tree and modules while the kept kernel runs, and has U-Boot try them once.

    U-Boot clears the flag for the second kernel before it starts it, and the second kernel sets it again after each
    login: any reset or power cycle of a kernel that has not come to its login starts the kept one. Only the kept kernel
    writes the boot partition. The card must have been written by hand once, with a boot loader and an ext4 root.

    If the card has a second root partition (`card.second_root` of the recipe), the image's root filesystem comes there,
    and the second kernel starts with it: the kept root stays as it is, whatever the second kernel does. On another card
    both kernels have the kept root, and only ext4 can be it.

    Without a TFTPProviderDriver everything goes over ssh, if the file has an SSHDriver, or over the console.

    Args:
        driver (str): the kernel module of the board's network interface
        interface (str): the board's network interface
        server (str): the TFTP server's IP address, if DHCP does not tell it
    """

    bindings = {"tftp": {"TFTPProviderDriver", None}}  # noqa: RUF012 - labgrid's way
    driver: str = attr.ib(default="", validator=attr.validators.matches_re(r"[\w-]*"))
    interface: str = attr.ib(default="eth0", validator=attr.validators.matches_re(r"\w+"))
    server: str = attr.ib(default="", validator=attr.validators.matches_re(r"[0-9.]*"))
    reach = Reach.KERNEL  # and the root on a card with a second one, which the recipe tells
    without_mux = "the card stays in the board, which writes the kernel itself"
    starts_board = True

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        self._slot: Slot | None = None
        self.tftp: Any

    @step(args=["image"])
    def flash(self, image: Path, board: FlashedBoard) -> None:
        """See FlasherProtocol. Raises LabError and BoardError, which say at which step it failed."""
        slot = second_slot.read_slot(image)
        shell = _kept(board)
        card = _Card(shell, board, slot, lambda: self._upload(board, shell))
        card.check_layout()
        if slot.root is None:
            card.bring_files()
            card.bring_modules()
        else:
            bring_root(board, shell, board.card_device, slot.root, card.connect)
            card.bring_files()
        set_flag(shell, board, slot)
        self._slot = slot

    def _upload(self, board: FlashedBoard, shell: BoardShell) -> Upload:
        """How files come onto the board: by TFTP, once its network is up, or through its shell."""
        if self.tftp is None:
            return shell.upload
        network = BoardNetwork(board, shell, self.labgrid, self.tftp)
        network.connect(self.driver, self.interface, self.server)
        return network.upload

    def check_booted(self, image: Path, board: FlashedBoard, shell: Shell) -> None:  # noqa: ARG002
        """See FlasherProtocol. Sets the flag for the next boot, and gives the kernel its modules."""
        slot = self._slot
        if slot is None:
            return
        if _running(shell) != slot.name:
            raise board.error(
                f"started its kept kernel, {_release(shell)}: U-Boot could not start "
                f"{slot.release or 'the one'} in the second slot"
            )
        if slot.root is None:
            at = shlex.quote(f"/usr/lib/modules/{slot.release}")
            bind = f"mkdir -p {at} && mount --bind {_MODULES}/{slot.name}/{slot.release} {at}"
            _run(board, shell, bind, "has no modules")
        set_flag(shell, board, slot)

    def return_to_kept(self, board: FlashedBoard) -> str:
        """See KernelKeeper."""
        failed = "" if self._slot is None else f" {self._slot.release}".rstrip()
        return f"the kernel{failed} in the second slot failed, and the kept {_release(_kept(board))} runs again"


def set_flag(shell: Shell, board: FlashedBoard, slot: Slot) -> None:
    """Have U-Boot try the second slot at the next boot. Raises BoardError."""
    shell.put(f"{_NEW}.flag", second_slot.flag())
    place = f"bs={_SECTOR_BYTES} seek={second_slot.flag_sector(slot.boot)} conv=notrunc,sync,fsync"
    _run(board, shell, f"busybox dd if={_NEW}.flag of=/dev/{board.card_device} {place}", "cannot set U-Boot's flag")


class _Card:
    """The card of a board that runs its kept kernel."""

    def __init__(self, shell: Shell, board: FlashedBoard, slot: Slot, reach: Callable[[], Upload]) -> None:
        """`reach` is called once, before the first file that the card lacks."""
        self._shell = shell
        self._board = board
        self._slot = slot
        self._reach = reach
        self._upload: Upload | None = None
        self._device = partition_device(board.card_device, slot.boot.number)
        self._wanted = {f"{FOLDER}/{name}": content for name, content in slot.files.items()}
        self._wanted[SCRIPT] = second_slot.script(slot.boot)
        self._entries = {ENTRY: slot.entry}
        if scr := second_slot.as_script(slot.entry.decode()):
            self._entries[ENTRY_SCRIPT] = scr

    def check_layout(self) -> None:
        """Raise BoardError for another boot partition than the image's, or a flag sector that is somebody else's."""
        name, boot = self._device.removeprefix("/dev/"), self._slot.boot
        start = self._run(f"cat /sys/class/block/{name}/start", "has no boot partition").strip()
        if start != str(boot.start):
            raise self._refused(f"has {self._device} at sector {start}, but the image's begins at {boot.start}")
        sector = second_slot.flag_sector(boot)
        read = f"busybox dd if=/dev/{self._board.card_device} bs={_SECTOR_BYTES} skip={sector} count=1 2>/dev/null"
        known = second_slot.FLAG_TEXT.strip()
        found = self._run(f"{read} | tr -d '\\000' | head -c 200 | base64 -w 0", "cannot read U-Boot's flag").strip()
        if found and known not in base64.b64decode(found):
            raise self._refused(f"uses sector {sector} of its card, the last before the boot partition")

    def bring_files(self) -> None:
        """Bring the boot partition's files there, and the entry last. Raises BoardError."""
        # A flash that was cut may leave a file whose clusters the FAT calls free: Linux mounts read-only when it is
        # written again (fs/fat/fatent.c, fat_free_clusters), and would give its clusters to another file.
        repair = f"! command -v fsck.fat >/dev/null || fsck.fat -a {self._device} || [ $? = 1 ]"
        self._run(repair, "cannot repair its boot partition")
        there = self._sums()
        fresh = USUAL in there
        if not fresh and KEPT not in there:
            raise self._refused(f"has no {USUAL} on its boot partition")
        if fresh or KEPT_SCRIPT not in there:
            usual = self._mounted("ro", f"cat {_BOOT}/{USUAL if fresh else KEPT}", "cannot read its card")
            if kept := second_slot.as_script(usual.replace("\r", "")):
                self._wanted[KEPT_SCRIPT] = kept
        lacking = {name for name, content in self._wanted.items() if there.get(name) != _sha256(content)}
        if fresh and SCRIPT in there and not {KEPT, ENTRY} & there.keys() and SCRIPT in lacking:
            raise self._refused(f"has a {SCRIPT} of its own on its boot partition")
        self._run(f"rm -rf {_NEW} && mkdir -p {_NEW}", "has no room in its memory")
        for name in sorted(lacking):
            self._bring(f"{_NEW}/{Path(name).name}", self._wanted[name])
        for name, content in self._entries.items():
            self._shell.put(f"{_NEW}/{Path(name).name}", content)
        wanted = {**self._wanted, **self._entries}
        old = [name for name in there if name.startswith(f"{FOLDER}/") and name not in wanted]
        self._change(lacking, old, fresh=fresh)
        there = self._sums()
        wrong = [name for name, content in wanted.items() if there.get(name) != _sha256(content)]
        if wrong or USUAL in there or KEPT not in there:
            raise self._board.error(f"has other files on its card than were written: {', '.join(wrong) or USUAL}")

    def _change(self, lacking: set[str], old: list[str], *, fresh: bool) -> None:
        size_kib = sum(len(self._wanted[name]) for name in lacking) // 1024 + 1024
        lines = [f"mkdir -p {_BOOT}/{FOLDER}"]
        if old:
            free = f"df -k {_BOOT} | awk 'NR==2{{print $4}}'"
            names = " ".join(f"{_BOOT}/{name}" for name in old)
            lines.append(f'[ "$({free})" -ge {size_kib} ] || rm -f {names}')
        # U-Boot starts the usual entry as long as it is there: until all else is on the card. Then one sector changes,
        # that of its folder. A name appears with its whole content, and the script after what tells that it is ours.
        usual, kept, last = f"{_BOOT}/{USUAL}", f"{_BOOT}/{KEPT}", lacking & {SCRIPT}
        if again := not fresh and bool(lacking & {SCRIPT, KEPT_SCRIPT}):
            lines += [f"mv {kept} {usual}", "sync"]
        for name in [*sorted(lacking - last), *self._entries, *last]:
            lines += [
                f"cp {_NEW}/{Path(name).name} {_BOOT}/{FOLDER}/new",
                "sync",
                f"mv {_BOOT}/{FOLDER}/new {_BOOT}/{name}",
            ]
        if fresh or again:
            lines += ["sync", f"mv {usual} {kept}", "sync"]
        self._mounted("rw", " && ".join(lines), "cannot write its boot partition")
        self._run(f"rm -rf {_NEW}", "cannot remove a file")

    def bring_modules(self) -> None:
        """Bring the modules onto the root, in a folder of the slot's own. Raises BoardError."""
        folder = f"{_MODULES}/{self._slot.name}"
        if self._run(f"[ -d {folder} ] && echo there || true", "has no root").strip():
            return
        self._run(f"mkdir -p {_NEW}", "has no room in its memory")
        self._bring(_PACKED, self._slot.modules)
        free = "df -k / | awk 'NR==2{print $4}'"
        room = f'[ "$({free})" -ge {_FREE_KIB} ] || rm -rf {_MODULES}'
        unpack = f"rm -rf {folder}.new && mkdir -p {folder}.new && tar -xzf {_PACKED} -C {folder}.new"
        self._run(
            f"{room}; {unpack} && sync && mv {folder}.new {folder} && sync && rm -r {_NEW}", "cannot take modules"
        )

    def _bring(self, path: str, content: bytes) -> None:
        self.connect()(path, content)

    def connect(self) -> Upload:
        """What brings files onto the board. Raises LabError."""
        self._upload = self._upload or self._reach()
        return self._upload

    def _sums(self) -> dict[str, str]:
        """The SHA-256 of the boot partition's files that matter, by name, as they are on the card. None is empty."""
        names = f"{SCRIPT} {USUAL} {KEPT} {KEPT_SCRIPT} {FOLDER}/*"
        said = self._mounted("ro", f"cd {_BOOT} && sha256sum {names} 2>/dev/null || true", "cannot read its card")
        sums = {name: digest for digest, name in (line.split(maxsplit=1) for line in said.splitlines())}
        # The repair empties a file that has lost its clusters.
        return {name: digest for name, digest in sums.items() if digest != _sha256(b"")}

    def _mounted(self, mode: str, command: str, failure: str) -> str:
        mount = f"mkdir -p {_BOOT} && mount -t vfat -o {mode} {self._device} {_BOOT}"
        return self._run(f"{mount} && {{ ( {command} ); R=$?; umount {_BOOT} && [ $R = 0 ]; }}", failure)

    def _run(self, command: str, failure: str) -> str:
        return _run(self._board, self._shell, command, failure)

    def _refused(self, what: str) -> BoardError:
        error = self._board.error(what)
        error.transient = False
        error.hint = "write the card by hand once, from an image of this recipe (docs/flashing.md)"
        return error


def _kept(board: FlashedBoard) -> BoardShell:
    """Switch the board on, with its kept kernel. A second kernel that waits to be tried is not: its flag is spent."""
    for _ in range(_ATTEMPTS):
        shell = board.boot(unless=second_slot.TRYING)
        if shell is not None and not _running(shell):
            return shell
        board.off()
    raise board.error("does not start its kept kernel: U-Boot's flag is set again and again")


def _running(shell: Shell) -> str:
    """The name of the slot whose kernel runs; empty for the kept one."""
    words = shell.run(["cat", "/proc/cmdline"]).stdout.split()
    return next((word.removeprefix(WORD) for word in words if word.startswith(WORD)), "")


def _release(shell: Shell) -> str:
    return shell.run(["uname", "-r"]).stdout.strip()


def _run(board: FlashedBoard, shell: Shell, command: str, failure: str) -> str:
    result = shell.run(["sh", "-c", command], timeout_s=_TIMEOUT_S)
    if result.exit_code != 0:
        raise board.error(f"{failure}: {' '.join(result.stdout.split()) or 'it said nothing'}")
    return result.stdout


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
