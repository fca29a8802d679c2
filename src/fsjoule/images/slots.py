"""Cards with two roots, A and B: what both have beside other roots, U-Boot's script, and updates for them.

Each slot is a whole root partition with its kernel in /boot, mounted read-only: its bytes stay those of its image. The
card has version 1 of it in A and nothing in B, and on its boot partition the updates to version 2, as users build them:
a bundle of RAUC's (format verity) and an archive of SWUpdate's, both signed with a test key of this computer's cache.

Sources: RAUC's docs/reference.rst, SWUpdate's doc/source/sw-description.rst and signed_images.rst.
"""

from __future__ import annotations

import gzip
import hashlib
import shutil
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from fsjoule.errors import ConfigError
from fsjoule.host import process
from fsjoule.host.cache.stages import build_once, cache_key, file_sha256
from fsjoule.images.boot_files import kernel_arguments, kernel_file
from fsjoule.images.boot_loader import Loader
from fsjoule.images.initramfs import CpioArchive, build_initramfs
from fsjoule.images.userland import Userland
from fsjoule.kernels.kernel import KernelFiles
from fsjoule.kernels.legacy_image import legacy_script, start_command
from fsjoule.kernels.recipe import Recipe, Slots

# Raise it when this file changes the content of an update or a key.
STAGE_VERSION: Final = 1

VERSION_FILE: Final = "etc/fsjoule-version"
BUNDLE, ARCHIVE = "update.raucb", "update.swu"
# RAUC's name of the board's kind (root/etc/rauc/system.conf), and SWUpdate's (root/etc/hwrevision).
_BOARD: Final = "fsjoule"
_KEYRING: Final = "etc/rauc/keyring.pem"
# Of the slots, by the number of their partition; the scratch partition is between them.
DEVICES: Final = {"A": 2, "B": 4}
_TRIES: Final = 3
_FILESYSTEM: Final = "ext4"
_TIMEOUT_S: Final = 300.0


def slot_files(
    recipe: Recipe, kernel: KernelFiles, userland: Userland, loader: Loader, filesystem: str, *, init: Path
) -> dict[str, bytes]:
    """The files of the first version's slot, by their paths: kernel, initramfs, device tree, settings, certificate.

    None without slots. Raises ConfigError if the loader cannot load them, or for a missing folder.
    """
    slots = recipe.slots
    if slots is None:
        return {}
    if filesystem != _FILESYSTEM:
        raise ConfigError(
            f"{recipe.file}: a slot is {_FILESYSTEM}, which U-Boot reads its kernel from, not {filesystem}"
        )
    modules = (*recipe.modules.card, *recipe.filesystem(filesystem).modules)
    initramfs = build_initramfs(init=init, busybox=userland.busybox, kernel=kernel, modules=modules)
    name, content = kernel_file(kernel, recipe, loader, len(initramfs))
    files = {f"boot/{name}": content, "boot/initrd.img": initramfs, VERSION_FILE: b"1\n"}
    if kernel.device_tree is not None:
        files["boot/board.dtb"] = kernel.device_tree.read_bytes()
    folder = recipe.path_of(slots.root)
    own = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    if not own:
        raise ConfigError(f"{recipe.file}: slots.root names no folder with files: {folder}")
    return {**files, **own, _KEYRING: (_signing_key() / "cert.pem").read_bytes()}


def boot_script(recipe: Recipe, slots: Slots, files: Mapping[str, bytes]) -> bytes:
    """boot.scr: the recipe's script behind what it needs to know. Raises ConfigError for a script that is not there."""
    path = recipe.path_of(slots.script)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{recipe.file}: slots.script cannot be read: {path}: {error.strerror}") from error
    kernel = next(Path(each).name for each in files if each.startswith("boot/") and start_command(each))
    first, last = slots.environment
    known = {
        "first": f"{first:x}",
        "second": f"{(first + last + 1) // 2:x}",
        "arguments": kernel_arguments(recipe, _FILESYSTEM),
        "kernel": kernel,
        "start": start_command(kernel),
    }
    return legacy_script("".join(f"setenv {name} '{value}'\n" for name, value in known.items()) + text)


def second_version(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """The files of the slot that the updates bring."""
    return {**files, VERSION_FILE: b"2\n"}


def updates(recipe: Recipe, image: Path, image_key: str) -> Path:
    """A folder with RAUC's bundle and SWUpdate's archive of a root partition's image.

    A signature differs each time, so both are made once for an image and a key. Raises MissingToolError, HostError.
    """
    key = _signing_key()
    inputs = {"version": STAGE_VERSION, "image": image_key, "certificate": file_sha256(key / "cert.pem")}

    def build(folder: Path) -> None:
        _rauc_bundle(image, key, folder)
        _swupdate_archive(image, key, folder)

    return build_once("update", recipe.name, cache_key(inputs), build, read=True)


def _signing_key() -> Path:
    """A folder with a test key and its own certificate: `key.pem`, `cert.pem`."""

    def build(folder: Path) -> None:
        process.run(
            [
                *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-sha256", "-subj", "/CN=fsjoule test"),
                *("-days", "36500", "-keyout", folder / "key.pem", "-out", folder / "cert.pem"),
            ],
            timeout_s=_TIMEOUT_S,
        )

    return build_once("signing_key", "updates", cache_key({"version": STAGE_VERSION}), build)


def _rauc_bundle(image: Path, key: Path, folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=folder) as name:
        content = Path(name)
        shutil.copyfile(image, content / "root.img")
        (content / "manifest.raucm").write_text(
            f"[update]\ncompatible={_BOARD}\nversion=2\n\n[bundle]\nformat=verity\n\n[image.rootfs]\nfilename=root.img\n"
        )
        signed = (f"--cert={key / 'cert.pem'}", f"--key={key / 'key.pem'}")
        process.run(["rauc", *signed, "bundle", content, folder / BUNDLE], timeout_s=_TIMEOUT_S)


def _swupdate_archive(image: Path, key: Path, folder: Path) -> None:
    packed = gzip.compress(image.read_bytes(), mtime=0)
    digest = hashlib.sha256(packed).hexdigest()
    description = folder / "sw-description"
    description.write_text(
        'software = {\n  version = "2";\n  hardware-compatibility: ["1"];\n  slots = {\n'
        + "".join(_swupdate_slot(slot, digest) for slot in DEVICES)
        + "  };\n};\n"
    )
    signature = folder / "sw-description.sig"
    process.run(
        [
            *("openssl", "cms", "-sign", "-binary", "-nosmimecap", "-outform", "DER"),
            *("-in", description, "-signer", key / "cert.pem", "-inkey", key / "key.pem", "-out", signature),
        ],
        timeout_s=_TIMEOUT_S,
    )
    archive = CpioArchive()
    for name, content in (*((each.name, each.read_bytes()) for each in (description, signature)), (_PACKED, packed)):
        archive.add(name, stat.S_IFREG | 0o644, content)
    (folder / ARCHIVE).write_bytes(archive.finish())
    for each in (description, signature):
        each.unlink()


_PACKED: Final = "root.img.gz"


def _swupdate_slot(slot: str, digest: str) -> str:
    other = next(each for each in DEVICES if each != slot)
    return (
        f"    {slot} = {{\n"
        f'      images: ({{ filename = "{_PACKED}"; device = "/dev/mmcblk0p{DEVICES[slot]}"; type = "raw";'
        f' compressed = "zlib"; installed-directly = true; sha256 = "{digest}"; }});\n'
        f'      bootenv: ({{ name = "BOOT_{slot}_LEFT"; value = "{_TRIES}"; }},'
        f' {{ name = "BOOT_ORDER"; value = "{slot} {other}"; }});\n'
        "    };\n"
    )
