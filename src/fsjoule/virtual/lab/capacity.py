"""How many boards fit a computer: its memory and disk set the limit, its CPUs the speed."""

from __future__ import annotations

import logging
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fsjoule.errors import ConfigError
from fsjoule.host.limits import FILE_SIZE, FILES, MEMORY
from fsjoule.model import MIB
from fsjoule.model.labels import counted
from fsjoule.virtual.board.config import BoardConfig

_log: Final = logging.getLogger(__name__)

# Beside the memory of the board: QEMU and the programs of the board; for boards of a run that boot at
# once a lab and a process each. Measured: 240 MiB (the kernel's proportional set size) with a lab and a process.
_PROGRAMS_MIB: Final = 250
# What QEMU reserves beside the board's memory; most of it are buffers for translated code, which stay empty.
_QEMU_MIB: Final = 1024
# A lab and a run need about 40 at once; with 64 a bench has been measured, with 24 it fails.
_FILES: Final = 64
_MEMINFO: Final = Path("/proc/meminfo")
_KIB: Final = 1024


@dataclass(frozen=True, slots=True)
class Room:
    """The memory and the disk that are free on a computer, in bytes, and the CPUs that this process may use."""

    memory_bytes: int
    disk_bytes: int
    cpus: int

    @classmethod
    def here(cls, folder: Path) -> Room:
        """Now, for files below a folder that exists, or is to be made."""
        beside = next(each for each in (folder, *folder.parents) if each.exists())
        return cls(_available_bytes(), shutil.disk_usage(beside).free, len(os.sched_getaffinity(0)))


def check_fits(boards: int, template: BoardConfig, folder: Path, *, room: Room | None = None) -> None:
    """Raise ConfigError for more boards than memory or disk can hold.

    One board is refused only for a limit of this shell's: nobody asked for a number. `folder` gets their cards; `room`
    is this computer's.
    """
    FILES.need(_FILES, "a virtual board")
    disks = (template.card.size_bytes, *(each.size_bytes for each in template.disks.values()))
    FILE_SIZE.need(max(disks), "the disk of a virtual board")
    MEMORY.need((template.qemu.memory_mib + _QEMU_MIB) * MIB, "the QEMU of a virtual board")
    if boards == 1:
        return
    room = room or Room.here(folder)
    memory = (template.qemu.memory_mib + _PROGRAMS_MIB) * MIB
    kinds = (
        ("memory", memory, room.memory_bytes, "", "another computer"),
        ("disk", sum(disks), room.disk_bytes, f" in {folder}", "another folder: FSJOULE_STATE_DIR=FOLDER"),
    )
    for what, each, free, where, other in kinds:
        if boards * each > free:
            most = f"at most {counted(free // each, 'board')}" if free >= each else "make room"
            raise ConfigError(
                f"{boards} boards do not fit: each takes {_gib(each)} of {what}, and {_gib(free)} are free{where}",
                hint=f"{most}, or take {other}",
            )


def warn_of_shared_cpus(boards: int, template: BoardConfig, cpus: int | None = None) -> None:
    """Warn of what becomes of boards that share CPUs; `cpus` are this computer's."""
    cpus = cpus or len(os.sched_getaffinity(0))
    if boards > cpus:
        becomes = "takes longer" if template.guest_time is not None else "measures less MiB/s than one alone"
        _log.warning("%s boards share %s CPUs: a board %s while others work", boards, cpus, becomes)


def _gib(size_bytes: int) -> str:
    return f"{size_bytes / (1024 * MIB):.1f} GiB"


def _available_bytes() -> int:
    lines = dict(line.split(":", 1) for line in _MEMINFO.read_text().splitlines())
    return int(lines["MemAvailable"].split()[0]) * _KIB
