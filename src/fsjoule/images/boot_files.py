"""The files of a card's boot partition: kernel, initramfs, device tree, and how the boot loader finds them."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Final

from fsjoule.errors import ConfigError
from fsjoule.host.cache.stages import file_sha256
from fsjoule.images.boot_loader import Loader, collision
from fsjoule.images.read_only import verity_word
from fsjoule.kernels.card_layout import Address
from fsjoule.kernels.image import unpacked_kernel
from fsjoule.kernels.kernel import KernelFiles
from fsjoule.kernels.legacy_image import boot_commands, legacy_script, start_command
from fsjoule.kernels.recipe import Recipe
from fsjoule.model import MIB

_log: Final = logging.getLogger(__name__)

_ADDRESSES: Final[tuple[Address, ...]] = ("kernel_addr_r", "fdt_addr_r", "ramdisk_addr_r")


def write_boot_files(
    boot: Path,
    recipe: Recipe,
    filesystem: str,
    *,
    kernel: KernelFiles,
    initramfs: bytes,
    loader: Loader,
    verity: str = "",
) -> dict[str, str]:
    """Fill the folder `boot`. `verity` has dm-verity's words for the root, if it is checked.

    Returns the SHA-256 of its files. Raises ConfigError if the loader cannot load them.
    """
    (boot / "initrd.img").write_bytes(initramfs)
    tree = kernel.device_tree
    if tree is not None:
        shutil.copyfile(tree, boot / "board.dtb")
    name, content = kernel_file(kernel, recipe, loader, len(initramfs))
    (boot / name).write_bytes(content)
    arguments = kernel_arguments(recipe, filesystem)
    if recipe.filesystem(filesystem).verity:
        arguments += f" {verity_word(recipe.boot.root_device, verity)}"
    (boot / "extlinux").mkdir()
    (boot / "extlinux" / "extlinux.conf").write_text(extlinux_text(name, arguments, device_tree=tree is not None))
    if recipe.boot_loader.script:
        (boot / "boot.scr").write_bytes(legacy_script(script_text(recipe, loader, name, arguments)))
    checksums = {path.name: file_sha256(path) for path in boot.iterdir() if path.is_file()}
    _put_loader_files(loader, boot, recipe)
    return checksums


def kernel_arguments(recipe: Recipe, filesystem: str) -> str:
    boot, kind = recipe.boot, recipe.filesystem(filesystem)
    words = [*boot.arguments, f"root={boot.root_device}", f"rootfstype={kind.kernel_type}", "rootwait"]
    words.append("ro" if kind.read_only or recipe.slots else "rw")
    if options := kind.as_root.mount_options:
        words.append(f"rootflags={','.join(options)}")
    return " ".join([*words, f"fsjoule.mark={boot.mark_device}"])


def extlinux_text(kernel_file: str, arguments: str, *, device_tree: bool) -> str:
    """extlinux.conf for U-Boot (its doc/develop/distro.rst); paths are on partition 1."""
    tree = "    FDT /board.dtb\n" if device_tree else ""
    return (
        "DEFAULT fsjoule\n"
        "LABEL fsjoule\n"
        f"    LINUX /{kernel_file}\n"
        "    INITRD /initrd.img\n"
        f"{tree}"
        f"    APPEND {arguments}\n"
    )


def script_text(recipe: Recipe, loader: Loader, kernel_file: str, arguments: str) -> str:
    """The same as a script for a U-Boot that knows no extlinux.conf. Raises ConfigError without load addresses."""
    addresses, command = loader.addresses, start_command(kernel_file)
    lacking = [name for name in _ADDRESSES if name not in addresses]
    if lacking or command is None:
        what = f"for {kernel_file}" if command is None else f"without {', '.join(lacking)}"
        raise ConfigError(
            f"{recipe.file}: boot.scr cannot be written {what}",
            hint="name the places in the board's memory: [boot_loader] addresses; docs/images.md explains them",
        )
    at: dict[Address, str] = {name: f"{addresses[name]:#x}" for name in _ADDRESSES}
    load = f"load {recipe.boot_loader.script}"
    return boot_commands(load, f"/{kernel_file}", "/board.dtb", "/initrd.img", arguments=arguments, at=at)


def kernel_file(kernel: KernelFiles, recipe: Recipe, loader: Loader, initramfs_bytes: int) -> tuple[str, bytes]:
    """The kernel's name and content: unpacked, if it can be and has room in memory. Raises ConfigError."""
    image, tree = kernel.image.read_bytes(), kernel.device_tree
    unpacked = unpacked_kernel(image, memory_base=recipe.boot.memory_base, name=kernel.release)
    tree_bytes = 0 if tree is None else tree.stat().st_size
    problem: str | None = None
    for name, content in [*([unpacked] if unpacked else []), (kernel.image.name, image)]:
        if problem:
            _log.info("card: %s; taking the packed %s, %.1f MiB", problem, name, len(content) / MIB)
        problem = collision(loader.addresses, kernel=content, initrd=initramfs_bytes, device_tree=tree_bytes)
        if problem is None:
            return name, content
    raise ConfigError(
        f"the boot loader of {recipe.name} cannot boot the kernel {kernel.release}: {problem}",
        hint="take a smaller kernel, or a boot loader with other addresses; docs/images.md explains [boot_loader]",
    )


def _put_loader_files(loader: Loader, boot: Path, recipe: Recipe) -> None:
    """Put the loader's files onto the boot partition. Raises ConfigError if one has the name of another file."""
    for file in loader.files:
        if file.piece.boot_file is None:
            continue
        path = boot / file.piece.boot_file
        taken = {each.relative_to(boot).as_posix().lower() for each in boot.rglob("*")}  # FAT ignores case
        if file.piece.boot_file.lower() in taken:
            raise ConfigError(
                f"{recipe.file}: the boot loader's {file.name} is to be {file.piece.boot_file} on the boot "
                "partition, where another file has that name",
                hint="give it another boot_file",
            )
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file.content)
