"""U-Boot from Debian's source package, with fastboot over UDP: two to three minutes of CPU time."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

from fsjoule.errors import HostError
from fsjoule.host import process
from fsjoule.host.apt import debian_archive

_SUITE: Final = "sid"
_TARGET: Final = "orangepi_pc_plus_defconfig"
_LOADER: Final = "u-boot-sunxi-with-spl.bin"
_TIMEOUT_S: Final = 3600
# The buffer is smaller than the test's image, so that `fastboot` has to cut it into parts.
_OPTIONS: Final = """\
CONFIG_UDP_FUNCTION_FASTBOOT=y
CONFIG_FASTBOOT_FLASH=y
CONFIG_FASTBOOT_FLASH_MMC=y
CONFIG_FASTBOOT_FLASH_MMC_DEV=0
CONFIG_FASTBOOT_BUF_SIZE=0x1000000
# CONFIG_TOOLS_MKEFICAPSULE is not set
"""
_NEEDED: Final = (
    "apt-get install bc bison flex libssl-dev swig python3-dev python3-setuptools python3-pyelftools fastboot"
)


def fastboot_u_boot(folder: Path) -> Path:
    """SPL and U-Boot in one file; FSJOULE_U_BOOT names a finished one. Raises HostError if it cannot be built."""
    if finished := os.environ.get("FSJOULE_U_BOOT"):
        return Path(finished)
    (folder / "lists" / "partial").mkdir(parents=True)
    (folder / "cache" / "archives" / "partial").mkdir(parents=True)
    line = debian_archive(_SUITE).line.replace("deb [", "deb-src [", 1).replace(" target=Packages", "")
    (folder / "sources.list").write_text(f"{line}\n")
    places = {"Etc::SourceList": "sources.list", "State::Lists": "lists", "Cache": "cache"}
    options = [f"-oDir::{name}={folder / place}" for name, place in places.items()]
    options += ["-oDir::Etc::SourceParts=/dev/null", "-oAPT::Sandbox::User=root", "-q"]
    sys.stdout.write(f"U-Boot is built from Debian's source package ({_SUITE})\n")
    sys.stdout.flush()
    for action in (["update"], ["source", "u-boot"]):
        process.run(["apt-get", *options, *action], cwd=folder, timeout_s=_TIMEOUT_S)
    [source] = (path for path in folder.glob("u-boot-*") if path.is_dir())
    made = folder / "made"
    make = ["make", "-s", f"O={made}", "CROSS_COMPILE=arm-linux-gnueabihf-"]
    # A Python of our own environment lacks the modules of Debian's.
    env = {"PATH": "/usr/bin:/bin"}
    try:
        process.run([*make, _TARGET], cwd=source, timeout_s=_TIMEOUT_S, env=env)
        with (made / ".config").open("a") as config:
            config.write(_OPTIONS)
        process.run([*make, "olddefconfig"], cwd=source, timeout_s=_TIMEOUT_S, env=env)
        process.run([*make, f"-j{os.cpu_count()}"], cwd=source, timeout_s=_TIMEOUT_S, env=env)
    except HostError as error:
        error.hint = _NEEDED
        raise
    return made / _LOADER
