"""The key of a series, which is the same in every index, and the differences of two series. Pure."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Final, cast

from fsjoule.model import Provision, SeriesKey

KEY_LENGTH: Final = 16
# In the order of the arguments of `from_columns`.
COLUMNS: Final = (
    "suite",
    "board",
    "storage",
    "filesystem",
    "make_options",
    "mount_options",
    "provision",
    "workload",
    "simulated",
)


@dataclass(frozen=True, slots=True)
class IndexedSeries:
    """A series in the index. Simulated figures are never compared with real ones, whatever the boards' names."""

    series: SeriesKey
    simulated: bool

    @property
    def key(self) -> str:
        """A hash of all fields: 16 hexadecimal digits, the same on every machine."""
        return _key(self)

    @property
    def label(self) -> str:
        """Its short name on a board: `ext4 randread-16k 32768KiB`."""
        return f"{self.series.filesystem} {self.series.workload}"

    def document(self) -> dict[str, object]:
        """Key and names, for JSON."""
        return {"key": self.key, **asdict(self.series), "simulated": self.simulated}

    def row(self) -> dict[str, object]:
        columns: dict[str, object] = {**asdict(self.series), "simulated": self.simulated, "key": self.key}
        columns["make_options"] = json.dumps(self.series.make_options)
        columns["mount_options"] = json.dumps(self.series.mount_options)
        columns["provision"] = self.series.provision.value
        return columns


@lru_cache(maxsize=10_000)
def from_columns(*columns: str | bool) -> IndexedSeries:
    """The series of a row's COLUMNS. Cached, because every query reads all series, and they never change."""
    row = dict(zip(COLUMNS, columns, strict=True))
    texts = {name: str(row[name]) for name in ("suite", "board", "storage", "filesystem", "workload")}
    key = SeriesKey(
        **texts,
        make_options=tuple(cast("list[str]", json.loads(str(row["make_options"])))),
        mount_options=tuple(cast("list[str]", json.loads(str(row["mount_options"])))),
        provision=Provision(str(row["provision"])),
    )
    return IndexedSeries(key, bool(row["simulated"]))


@lru_cache(maxsize=10_000)
def _key(one: IndexedSeries) -> str:
    content = json.dumps(asdict(one), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(content.encode()).hexdigest()[:KEY_LENGTH]


def what_differs(one: IndexedSeries, other: IndexedSeries) -> dict[str, tuple[object, object]]:
    """The parts in which two series differ, with both values; empty for comparable series."""
    mine, theirs = ({**asdict(side.series), "simulated": side.simulated} for side in (one, other))
    return {name: (mine[name], theirs[name]) for name in mine if mine[name] != theirs[name]}
