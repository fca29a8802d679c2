"""An aged filesystem on the board: its use is replayed once it is made, and what became of its free space is told."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from fsjoule.bench.onboard.marks import DIRECTORY
from fsjoule.bench.scratch import SCRATCH_DIRECTORY, Scratch, checked, filesystem_step, lab_step, perform
from fsjoule.errors import BoardError, MeasurementInvalid
from fsjoule.model import KIB, MIB, AgeFacts
from fsjoule.model.filesystem import Filesystem
from fsjoule.ports import Shell
from fsjoule.suites.ageing import Replay, replay

SCRIPT: Final = f"{DIRECTORY}/age"
SECTOR_BYTES: Final = 512  # of /sys/block, whatever the device has
_SUFFIXES: Final = {"K": KIB, "M": MIB, "G": KIB * MIB}
_SHORT_BYTES: Final = MIB
# A card of 2 MiB/s, and what a filesystem writes beside.
_SLOWEST_BYTES_PER_S: Final = MIB
_SURVEY_TIMEOUT_S: Final = 900.0
# Where each file's data is. Without filefrag, or for a filesystem that does not tell it, nothing.
_EXTENTS: Final = f"{DIRECTORY}/extents"
_LIST: Final = f"cd {SCRATCH_DIRECTORY}/aged && find . -type f | sort | xargs filefrag -v > {_EXTENTS}"
_COUNT: Final = f"awk '/ found$/ {{ n += $(NF - 2) }} END {{ printf \"%d \", n }}' {_EXTENTS}"
_LAYOUT: Final = ("sh", "-c", f"{_LIST} && {_COUNT} && md5sum < {_EXTENTS}; rm {_EXTENTS}")
# The kernel's name of the device, after its folder, and its size in sectors.
_NUMBERS: Final = """$(printf '%d:%d' $(stat -L -c '0x%t 0x%T' "$1"))"""
_DEVICE: Final = f'd=$(readlink -f "/sys/dev/block/{_NUMBERS}"); echo "$d $(cat "$d/size")"'
_SPACE: Final = ("stat", "-f", "-c", "%S %b %f", SCRATCH_DIRECTORY)


@dataclass
class Ageing:
    """Ages filesystems that were just made. `install` puts programs onto the board; `facts` are the last one's."""

    shell: Shell
    install: Callable[[Mapping[str, bytes]], None]
    facts: AgeFacts | None = field(default=None, init=False)

    def age(self, scratch: Scratch, kind: Filesystem) -> None:
        """Replay the use of an unmounted filesystem. Raises MeasurementInvalid if it cannot hold it, LabError."""
        if kind.age is None:
            return
        self.facts = None
        said = checked(self.shell, "sh", "-c", _DEVICE, "sh", scratch.device).stdout
        name, _, sectors = said.strip().rpartition("/")[2].partition(" ")
        if not sectors.isdecimal():
            raise BoardError(f"the board does not tell the size of {scratch.device}: {said}", transient=False)
        use = replay(kind.age, int(sectors) * SECTOR_BYTES)
        self.install({SCRIPT: use.script})
        replaying = filesystem_step(SCRIPT, SCRATCH_DIRECTORY, timeout_s=_limit_s(use))
        space = perform(self.shell, [*scratch.mounting(kind), replaying, lab_step(*_SPACE)])[-1].stdout
        layout = self.shell.run(_LAYOUT, timeout_s=_SURVEY_TIMEOUT_S).stdout
        free = self._free_space(kind, scratch.device, name) if kind.free_space and kind.free_space.mounted else ""
        scratch.unmount()
        if kind.free_space and not kind.free_space.mounted:
            free = self._free_space(kind, scratch.device, name)
        self.facts = facts(use, kind, space=space, free=free, layout=layout)

    def _free_space(self, kind: Filesystem, device: str, name: str) -> str:
        assert kind.free_space is not None
        argv = [word.replace("{device}", device).replace("{name}", name) for word in kind.free_space.argv]
        listed = self.shell.run(argv, timeout_s=_SURVEY_TIMEOUT_S)
        return listed.stdout if listed.exit_code == 0 else ""


def _limit_s(use: Replay) -> float:
    """The most seconds that the replay may take."""
    return 60.0 + 2 * (use.replayed + 1) * use.live_bytes / _SLOWEST_BYTES_PER_S


def small_share(kind: Filesystem, said: str) -> tuple[float, int] | None:
    """The share of the free space in runs shorter than 1 MiB, and the number of runs; None if not all are listed."""
    assert kind.free_space is not None
    if kind.free_space.incomplete and kind.free_space.incomplete in said:
        return None
    total = short = 0.0
    runs = 0
    for found in re.finditer(kind.free_space.pattern, said, re.MULTILINE):
        parts = found.groupdict()
        length = int(parts["length"]) * _SUFFIXES.get(parts.get("suffix") or "", kind.free_space.unit_bytes)
        count = int(parts.get("count") or 1)
        weight = float(parts["percent"]) if parts.get("percent") else float(length * count)
        runs, total = runs + count, total + weight
        short += weight if length < _SHORT_BYTES else 0.0
    return (short / total, runs) if total else None


def facts(use: Replay, kind: Filesystem, *, space: str, free: str, layout: str) -> AgeFacts:
    """What an aged filesystem is. Raises MeasurementInvalid if its space cannot be read."""
    assert kind.age is not None
    try:
        block, blocks, free_blocks = (int(word) for word in space.split())
    except ValueError:
        raise MeasurementInvalid("age", [f"the space of the aged filesystem cannot be read: {space}"]) from None
    listed = small_share(kind, free) if kind.free_space else None
    extents = re.fullmatch(r"(?P<number>\d+) (?P<md5>[0-9a-f]{32})  -\s*", layout)
    return AgeFacts(
        name=kind.age.name,
        turns=use.turns,
        replayed_turns=use.replayed,
        files=use.files,
        full=1 - free_blocks / blocks if blocks else 1.0,
        operations_sha256=use.digest,
        layout_md5="" if extents is None else extents["md5"],
        extents=None if extents is None else int(extents["number"]),
        free_in_short_runs=None if listed is None else listed[0],
        mean_free_run_bytes=None if listed is None else free_blocks * block / listed[1],
    )
