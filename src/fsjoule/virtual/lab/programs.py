"""Programs compiled for the virtual lab: the meter's simulator from meter/, the board's probe from probe/."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Final

from fsjoule.host.cache.libraries import compiler_version, shared_library
from fsjoule.host.cache.stages import build_once, cache_key, folder_digest
from fsjoule.host.paths import cache_dir, project_dir
from fsjoule.host.process import run
from fsjoule.images.boot_loader import package_files
from fsjoule.virtual.board.config import FlashMemoryConfig

_log: Final = logging.getLogger(__name__)

SIMULATOR: Final = "fsjoule-meter-sim"
_LOADER: Final = "flash-memory"
_FOLDERS: Final = ("host", "lib", "emulated", "sim")
_BUILD_TIMEOUT_S: Final = 300.0


def simulator() -> Path:
    """The simulator's program, from the cache or built now.

    Raises MissingToolError if cmake, ninja or the C compiler is missing, LabError if the build fails.
    """
    sources = project_dir() / "meter"
    inputs = {"compiler": compiler_version(), **{name: folder_digest(sources / name) for name in _FOLDERS}}

    def build(folder: Path) -> None:
        _log.info("building the meter's simulator")
        work = folder / "work"
        run(["cmake", "-S", sources / "host", "-B", work, "-GNinja"], timeout_s=_BUILD_TIMEOUT_S)
        run(["ninja", "-C", work, SIMULATOR], timeout_s=_BUILD_TIMEOUT_S)
        (work / "sim" / SIMULATOR).rename(folder / SIMULATOR)
        shutil.rmtree(work)

    return build_once("meter", "simulator", cache_key(inputs), build, root=cache_dir()) / SIMULATOR


def flash_memory(config: FlashMemoryConfig) -> Path:
    """The boot loader of a board that has it in its own flash memory. Raises ConfigError, LabError."""
    wanted = {_LOADER: (config.package, config.file)}
    return package_files("armhf", config.suite, ("main",), wanted) / _LOADER


def probe() -> Path:
    """The library that reports power and instructions of a board in guest time. Raises like `simulator`."""
    source = project_dir() / "probe" / "guest_probe.c"
    beside = sorted(each for each in source.parent.glob("*.[ch]") if each != source)
    return shared_library(source, "probe", beside=beside, root=cache_dir())
