"""U-Boot's commands that load a kernel from the boot partition and start it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Final

from fsjoule.kernels.card_layout import Address

_START: Final = {"uImage": "bootm", "zImage": "bootz", "Image": "booti"}


def start_command(kernel_file: str) -> str | None:
    """The command that starts a kernel of this file name, which may have a prefix (`1f3a-Image`); None if unknown."""
    return _START.get(PurePosixPath(kernel_file).name.rpartition("-")[2])


def boot_commands(
    load: str, kernel: str, tree: str, initramfs: str, *, arguments: str, at: Mapping[Address, str]
) -> str:
    """Lines of a script. `load` names device and partition, `at` the addresses; the files are full paths there."""
    start = at["kernel_addr_r"], f"{at['ramdisk_addr_r']}:${{filesize}}", at["fdt_addr_r"]
    # The initramfs last: U-Boot's variable `filesize` is the length of the last file.
    return (
        f"setenv bootargs '{arguments}'\n"
        f"{load} {at['kernel_addr_r']} {kernel}\n"
        f"{load} {at['fdt_addr_r']} {tree}\n"
        f"{load} {at['ramdisk_addr_r']} {initramfs}\n"
        f"{start_command(kernel)} {' '.join(start)}\n"
    )
