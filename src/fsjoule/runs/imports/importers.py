"""The table of importers, what they are asked with, what they give, and the units that they know."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from fsjoule.errors import ResultError
from fsjoule.hooks import GROUP, Rows, loaded
from fsjoule.model import MIB, Energy, ImportedWorkload, Stated, Trace, Window
from fsjoule.model.metrics import Metric
from fsjoule.store.checks import wrong_time

UNKNOWN: Final = "unknown"
_MOST_BYTES: Final = 1 << 28
_NO_NAME: Final = re.compile(r"[^A-Za-z0-9._=+,-]+")
_LONGEST: Final = 80


@dataclass(frozen=True, slots=True)
class Asked:
    """What the user says where files do not. `uncertainty` is a standard uncertainty (k=1), a share of energies."""

    board: str = UNKNOWN
    filesystem: str = UNKNOWN
    kernel: str = UNKNOWN
    workload: str = ""
    time_utc: str = ""
    volts: float | None = None
    uncertainty: float | None = None
    simulated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One measurement. Records with the same time, board and kernel are one run; `boot` tells its boots apart.

    `where` names file and line for errors. Names that are empty are the user's.
    """

    where: str
    time_utc: str
    work: str
    figures: Mapping[Metric, Stated] = field(default_factory=dict[Metric, Stated])
    board: str = ""
    filesystem: str = ""
    kernel: str = ""
    boot: int = 1
    invalid_reasons: tuple[str, ...] = ()
    energy: Energy | None = None
    window: Window | None = None
    trace: Trace | None = None
    attachments: Mapping[str, bytes] = field(default_factory=dict[str, bytes])

    @property
    def workload(self) -> ImportedWorkload:
        return ImportedWorkload(_NO_NAME.sub("_", self.work)[:_LONGEST].strip(".-_") or UNKNOWN)


Read = Callable[[Path, Asked], Iterable[Record]]


@dataclass(frozen=True, slots=True)
class Importer:
    """A format by its name. `read` is a function as `module:name`: of a file and what the user says, its records.

    It raises ResultError with file and line (`wrong`) for a file that is not of the format.
    """

    name: str
    what: str
    read: str

    def records(self, file: Path, asked: Asked) -> list[Record]:
        """Raises ResultError, ConfigError."""
        read: Read = loaded(self.read, f"importer {self.name}", IMPORTERS.owner(self.name) or GROUP)
        return list(read(file, asked))


def _own(name: str, module: str, what: str) -> Importer:
    return Importer(name, what, f"fsjoule.runs.imports.{module}:read_{name}")


_OURS: Final = (
    _own("fio", "tables", "fio's JSON: --output-format=json"),
    _own("csv", "tables", "a table with the columns workload, figure, value, unit"),
    _own("lava", "tables", "results of a LAVA job, YAML or CSV"),
    _own("ppk2", "recordings", "nRF Connect Power Profiler's CSV or .ppk2; with --volts"),
    _own("jls", "recordings", "Joulescope's file, its windows by annotations"),
)
IMPORTERS: Final = Rows("importer", "fsjoule_importers", Importer, lambda: _OURS)


def wrong(file: Path, line: int | None, what: str, hint: str | None = None) -> ResultError:
    """Our error for a file that is not of the format."""
    return ResultError(f"{file}{'' if line is None else f', line {line}'}: {what}", hint=hint)


def content_of(file: Path) -> bytes:
    """Raises ResultError."""
    try:
        if file.stat().st_size > _MOST_BYTES:
            raise wrong(file, None, f"it has more than {_MOST_BYTES // MIB} MiB")
        return file.read_bytes()
    except OSError as error:
        raise wrong(file, None, f"it cannot be read: {error.strerror or error}") from error


_PER_S: Final = {"B": 1.0, "kB": 1e3, "KB": 1e3, "KiB": 2.0**10, "MB": 1e6, "MiB": 2.0**20, "GB": 1e9, "GiB": 2.0**30}
_SECONDS: Final = {"s": 1.0, "seconds": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9, "min": 60.0}
_JOULES: Final = {"J": 1.0, "mJ": 1e-3, "uJ": 1e-6, "Wh": 3600.0, "mWh": 3.6}
# Of a metric's own unit, the others that a file may have, each with its factor.
_UNITS: Final[Mapping[str, Mapping[str, float]]] = {
    "MiB/s": {f"{name}/s": size / MIB for name, size in _PER_S.items()},
    "s": _SECONDS,
    "ms": {name: 1e3 * each for name, each in _SECONDS.items()},
    "W": {"W": 1.0, "mW": 1e-3, "uW": 1e-6},
    "mJ": {name: 1e3 * each for name, each in _JOULES.items()},
    "mJ/MiB": {
        f"{energy}/{name}": 1e3 * joules * MIB / size
        for energy, joules in _JOULES.items()
        for name, size in _PER_S.items()
    },
    "1/s": {"1/s": 1.0, "IOPS": 1.0, "iops": 1.0},
    "s/MiB": {f"{time}/{name}": each * MIB / size for time, each in _SECONDS.items() for name, size in _PER_S.items()},
    "": {"": 1.0, "1": 1.0},
}
# The metric that a unit alone means.
MEANT: Final[Mapping[str, Metric]] = {
    unit: metric
    for metric in (
        Metric.THROUGHPUT,
        Metric.IOPS,
        Metric.DURATION,
        Metric.POWER,
        Metric.OPERATION_ENERGY,
        Metric.ENERGY,
    )
    for unit in _UNITS[metric.unit]
}


def metric_named(name: str) -> Metric | None:
    """A metric by its name for users, or that of its column."""
    return next((each for each in Metric if name in (each.value, each.row.column) and not each.row.seldom), None)


def stated(metric: Metric, value: Any, unit: str, uncertainty: Any, asked: Asked) -> Stated | str:  # noqa: ANN401 - a cell
    """The figure in the metric's unit, or why there is none. Joules without an uncertainty are none."""
    factor = _UNITS[metric.unit].get(unit)
    if factor is None:
        return f"{unit!r} is no unit of {metric.value} (known: {', '.join(_UNITS[metric.unit])})"
    try:
        figure = float(value) * factor
        own = float(uncertainty) * factor if uncertainty not in (None, "") else None
    except (TypeError, ValueError, OverflowError):
        return f"{value!r} with uncertainty {uncertainty!r} is no number"
    if not 0 < figure < float("inf") or (own is not None and not 0 <= own < float("inf")):
        return f"{value} {unit} is no possible {metric.value}"
    if own is None and metric.row.metered:
        if asked.uncertainty is None:
            return f"{metric.value} has no uncertainty: --uncertainty PERCENT, or a column uncertainty (k=1)"
        own = figure * asked.uncertainty
    return Stated(figure, own)


def time_of(file: Path, line: int | None, text: str, asked: Asked) -> str:
    """A time from a file, else the user's. Raises ResultError if there is none, or if it is wrong."""
    time = text or asked.time_utc
    if not time:
        raise wrong(file, line, "it does not say when", hint="--time 2026-03-09T10:00:00Z")
    if why := wrong_time(time):
        raise wrong(file, line, f"time: {why}", hint="write 2026-03-09T10:00:00Z")
    return time
