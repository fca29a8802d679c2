"""The table of figures: a metric is one row, which says all that the rest of fsjoule knows about it. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Flag, StrEnum, auto
from typing import Final, Self

from fsjoule.errors import ConfigError
from fsjoule.model import (
    INSTRUCTIONS,
    KERNEL_INSTRUCTIONS,
    MIB,
    USER_INSTRUCTIONS,
    BlockKind,
    FioWorkload,
    IoPattern,
    Measurement,
    Projection,
    Stated,
    TimedKind,
    Value,
    Workload,
)
from fsjoule.model.operation import Hazard, ImportKind, StateKind

_FIO_TICK_S: Final = 1e-3
# Rows have the same names.
_ALL: Final = INSTRUCTIONS
_KERNEL: Final = KERNEL_INSTRUCTIONS
_USER: Final = USER_INSTRUCTIONS

Figure = float | None
"""A figure of one measurement, or its median over one boot; None if it is absent."""


class Use(Flag):
    """Where a metric appears unless the user names others. A table has its metrics in the order of their rows."""

    NONE = 0
    JUDGED = auto()  # by compare and gate; net energy, IOPS and power follow from what is judged
    MAIN = auto()  # in histories, and in the answer which filesystem is better; each further figure needs more boots
    KERNELS = auto()  # side by side for the kernels of a run, and in a bisection between them
    PAGE = auto()  # in the tables of a run
    POINTS = auto()  # in lists of measurements from the index
    ALLURE = auto()  # in Allure's report


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricRow:
    """All about one metric.

    `metric` is its name for users, `unit` is empty for a ratio. `less` and `more` are the words for a change. `name` is
    the full name, `short` that of a table's column, `header` says figure and unit in one (default: the unit). `figure`
    takes it from a measurement; a `metered` one has an uncertainty of the meter's. `step` is the share of a figure by
    which its clock rounds; None if no such clock made it. `with_card` takes it with the projected card. `column` is its
    name in the index and in JSON, where a `_uncertainty` follows if it has one. `fio`, `timed`, `held` and `crashes`
    say where a figure of fio's jobs, of timed operations, of held states and of crash states appears; None if those do
    not have it. `decimals` are those of one measurement's figure (None: the facts of a measurement have it in other
    words), `most_decimals` those of a mean. `as_energy` puts it beside the energies in an answer; the change of a
    `speed` is a factor. `steady` says that its spread on a board in guest time is known
    (docs/deterministic-figures.md). `seldom` says that only some measurements have it: those in guest time, those of an
    image. `small` are factor and unit where only three decimals are shown.
    """

    metric: str = field(kw_only=False)
    unit: str
    less: str
    more: str
    name: str
    short: str
    header: str = ""
    figure: Callable[[Measurement], Value | Figure]
    with_card: Callable[[Projection], Figure] | None = None
    column: str
    fio: Use | None = None
    timed: Use | None = None
    held: Use | None = None
    crashes: Use | None = None
    only_writes: bool = False
    more_is_better: bool = False
    metered: bool = False
    step: Callable[[Measurement], Figure] | None = None
    speed: bool = False
    as_energy: bool = False
    steady: bool = False
    seldom: bool = False
    decimals: int | None = None
    most_decimals: int = 3
    small: tuple[float, str] | None = None

    @property
    def uncertain(self) -> bool:
        return self.metered or self.step is not None

    @property
    def printed_unit(self) -> str:
        """The unit after the name; empty if the name says it, as `IOPS` does."""
        return "" if self.header == self.short else self.unit


def fio_step(measurement: Measurement) -> Figure:
    """The share of fio's own time that its report in whole milliseconds hides; None if other clocks took the time.

    fio rounds up, each direction on its own: https://github.com/axboe/fio/blob/master/backend.c, `update_runtime`.
    """
    fio, time_s, work = measurement.fio, measurement.duration_s, measurement.workload
    if fio is None or not time_s or not math.isclose(time_s, fio.runtime_ns / 1e9):
        return None
    return _FIO_TICK_S * (2 if isinstance(work, FioWorkload) and work.verifies else 1) / time_s


def _per_mib(metric: str, count: str, use: Use) -> MetricRow:
    """A count of instructions for each MiB, of boards in guest time, or whose processor counts."""
    words, column = count.replace("-", " "), count.replace("-", "_")
    return MetricRow(
        metric,
        unit="1/MiB",
        less=f"fewer {words}",
        more=f"more {words}",
        name=f"{words} per MiB",
        short=words,
        header=f"{words.replace('instructions', 'instr.')}/MiB",
        figure=lambda m: m.counted_per_mib(count),
        column=f"{column}_per_mib",
        fio=use,
        steady=True,
        seldom=True,
        decimals=0,
        most_decimals=0,
    )


def _of_operation(metric: str, count: str, use: Use) -> MetricRow:
    words = count.replace("-", " ")
    return MetricRow(
        metric,
        unit="",
        less=f"fewer {words}",
        more=f"more {words}",
        name=words,
        short=words,
        header=words,
        figure=lambda m: m.counts.get(count),
        column=count.replace("-", "_"),
        timed=use,
        steady=True,
        seldom=True,
        decimals=0,
        most_decimals=0,
    )


class Metric(StrEnum):
    """A figure, by its name for users.

    Energies per MiB belong to fio's jobs. A workload that moves nothing (mkfs, boot) has only the energy of the whole
    operation. Net is the board's energy above idle.
    """

    _value_: str
    row: MetricRow

    def __new__(cls, row: MetricRow) -> Self:
        metric = str.__new__(cls, row.metric)
        metric._value_ = row.metric
        metric.row = row
        return metric

    THROUGHPUT = MetricRow(
        "throughput",
        unit="MiB/s",
        less="slower",
        more="faster",
        name="throughput",
        short="throughput",
        figure=lambda m: m.throughput_mib_per_s,
        step=fio_step,
        with_card=lambda p: p.both_mib_per_s,
        column="throughput_mib_per_s",
        fio=Use.JUDGED | Use.MAIN | Use.KERNELS | Use.PAGE | Use.POINTS | Use.ALLURE,
        more_is_better=True,
        speed=True,
        steady=True,
        decimals=3,
    )
    IOPS = MetricRow(
        "iops",
        unit="1/s",
        less="fewer IOPS",
        more="more IOPS",
        name="IOPS",
        short="IOPS",
        header="IOPS",
        figure=lambda m: m.iops,
        step=fio_step,
        column="iops",
        fio=Use.PAGE,
        more_is_better=True,
        steady=True,
        decimals=1,
        most_decimals=0,
    )
    DURATION = MetricRow(
        "duration",
        unit="s",
        less="less time",
        more="more time",
        name="time on the board",
        short="time",
        figure=lambda m: m.duration_s if m.duration_uncertainty_s is None else m.duration,
        with_card=lambda p: p.both_s,
        column="duration_s",
        timed=Use.JUDGED | Use.MAIN | Use.KERNELS | Use.PAGE | Use.POINTS | Use.ALLURE,
        speed=True,
        steady=True,
        decimals=4,
    )
    POWER = MetricRow(
        "power",
        unit="W",
        less="less power",
        more="more power",
        name="mean power",
        short="power",
        figure=lambda m: m.energy.mean_power_w if m.energy else None,
        column="mean_power_w",
        fio=Use.PAGE,
        timed=Use.PAGE | Use.POINTS,
        metered=True,
        decimals=4,
    )
    ENERGY = MetricRow(
        "energy",
        unit="mJ/MiB",
        less="less energy",
        more="more energy",
        name="energy per MiB",
        short="energy",
        figure=lambda m: m.energy_mj_per_mib,
        with_card=lambda p: p.both_mj_per_mib,
        column="energy_mj_per_mib",
        fio=Use.JUDGED | Use.MAIN | Use.KERNELS | Use.PAGE | Use.POINTS | Use.ALLURE,
        metered=True,
        as_energy=True,
        steady=True,
        decimals=3,
    )
    NET_ENERGY = MetricRow(
        "net-energy",
        unit="mJ/MiB",
        less="less net energy",
        more="more net energy",
        name="net energy per MiB",
        short="net",
        header="net mJ/MiB",
        figure=lambda m: m.energy_net_mj_per_mib,
        column="energy_net_mj_per_mib",
        fio=Use.PAGE,
        metered=True,
        decimals=3,
    )
    OPERATION_ENERGY = MetricRow(
        "operation-energy",
        unit="mJ",
        less="less energy",
        more="more energy",
        name="energy",
        short="energy",
        figure=lambda m: m.energy.gross_mj if m.energy else None,
        with_card=lambda p: p.both_mj,
        column="energy_mj",
        timed=Use.JUDGED | Use.MAIN | Use.KERNELS | Use.PAGE | Use.POINTS | Use.ALLURE,
        metered=True,
        as_energy=True,
        decimals=2,
        most_decimals=1,
    )
    OPERATION_NET_ENERGY = MetricRow(
        "operation-net-energy",
        unit="mJ",
        less="less net energy",
        more="more net energy",
        name="net energy",
        short="net",
        header="net mJ",
        figure=lambda m: m.energy.net_mj if m.energy else None,
        column="energy_net_mj",
        timed=Use.PAGE,
        metered=True,
        decimals=2,
        most_decimals=1,
    )
    CPU = MetricRow(
        "cpu",
        unit="s/MiB",
        less="less CPU time",
        more="more CPU time",
        name="CPU time per MiB",
        short="CPU time",
        header="CPU s/MiB",
        figure=lambda m: m.cpu_s_per_mib,
        column="cpu_s_per_mib",
        fio=Use.JUDGED | Use.KERNELS | Use.POINTS | Use.ALLURE,
        steady=True,
        decimals=4,
        most_decimals=4,
        small=(1000.0, "ms/MiB"),
    )
    WRITE_AMPLIFICATION = MetricRow(
        "write-amplification",
        unit="",
        less="less written",
        more="more written",
        name="write amplification",
        short="write ampl.",
        header="write ampl.",
        figure=lambda m: m.write_amplification,
        column="write_amplification",
        fio=Use.JUDGED | Use.PAGE | Use.ALLURE,
        only_writes=True,
        decimals=3,
        most_decimals=2,
    )
    ERASES = MetricRow(
        "erases",
        unit="1/MiB",
        less="fewer erasures",
        more="more erasures",
        name="erased blocks per MiB",
        short="erasures",
        header="erased/MiB",
        figure=lambda m: m.erases_per_mib,
        column="erases_per_mib",
        fio=Use.PAGE,
        only_writes=True,
        seldom=True,
        decimals=2,
        most_decimals=2,
    )
    P99_LATENCY = MetricRow(
        "p99-latency",
        unit="ms",
        less="lower p99",
        more="higher p99",
        name="99th percentile of latency",
        short="p99",
        header="p99 ms",
        figure=lambda m: m.fio.latency_ms(99) if m.fio else None,
        column="latency_p99_ms",
        fio=Use.JUDGED | Use.POINTS,
    )
    INSTRUCTIONS = _per_mib("instructions", _ALL, Use.JUDGED | Use.POINTS)
    OPERATION_INSTRUCTIONS = _of_operation("operation-instructions", _ALL, Use.JUDGED | Use.POINTS)
    # Of no use beside their sum, unless somebody asks which of both has changed.
    KERNEL_INSTRUCTIONS = _per_mib("kernel-instructions", _KERNEL, Use.NONE)
    OPERATION_KERNEL_INSTRUCTIONS = _of_operation("operation-kernel-instructions", _KERNEL, Use.NONE)
    USER_INSTRUCTIONS = _per_mib("user-instructions", _USER, Use.NONE)
    OPERATION_USER_INSTRUCTIONS = _of_operation("operation-user-instructions", _USER, Use.NONE)

    SIZE = MetricRow(
        "size",
        unit="MiB",
        less="smaller",
        more="larger",
        name="size on the medium",
        short="size",
        figure=lambda m: m.image_bytes / MIB if m.image_bytes else None,
        column="image_mib",
        fio=Use.PAGE,
        timed=Use.PAGE,
        steady=True,
        seldom=True,
        decimals=2,
        most_decimals=2,
    )

    STATE_POWER = MetricRow(
        "state-power",
        unit="W",
        less="less power",
        more="more power",
        name="power of a held state",
        short="power",
        figure=lambda m: m.energy.mean_power_w if m.held and m.energy else None,
        column="state_power_w",
        held=Use.JUDGED | Use.MAIN | Use.KERNELS | Use.PAGE | Use.POINTS | Use.ALLURE,
        metered=True,
        steady=True,
        decimals=4,
        most_decimals=4,
    )
    INTERRUPTS = MetricRow(
        "interrupts",
        unit="1/s",
        less="fewer interrupts",
        more="more interrupts",
        name="interrupts a second",
        short="interrupts",
        figure=lambda m: m.held.interrupts_per_s if m.held else None,
        column="interrupts_per_s",
        held=Use.JUDGED | Use.PAGE | Use.POINTS | Use.ALLURE,
        steady=True,
        seldom=True,
        decimals=2,
        most_decimals=2,
    )
    RESUME = MetricRow(
        "resume",
        unit="s",
        less="a faster resume",
        more="a slower resume",
        name="time to resume",
        short="resume",
        figure=lambda m: m.held.resume_s if m.held else None,
        column="resume_s",
        held=Use.JUDGED | Use.PAGE | Use.POINTS | Use.ALLURE,
        seldom=True,
        decimals=3,
    )

    # From 1: no losses and some would have no ratio.
    CRASH_LOSSES = MetricRow(
        "crash-losses",
        unit="",
        less="fewer losses",
        more="more losses",
        name="crash states that lose + 1",
        short="losses + 1",
        header="losses + 1",
        figure=lambda m: 1.0 + m.crash.losses if m.crash else None,
        column="crash_losses_from_1",
        crashes=Use.JUDGED,
        decimals=0,
        most_decimals=1,
    )

    @property
    def unit(self) -> str:
        """The printed unit; empty for a ratio."""
        return self.row.unit

    @property
    def more_is_better(self) -> bool:
        return self.row.more_is_better

    def change(self, ratio: float) -> str:
        """The word for a change by this ratio: `slower`, `more energy`."""
        return self.row.more if ratio > 1 else self.row.less


def fio_metrics(use: Use) -> tuple[Metric, ...]:
    """The metrics of fio's jobs with this use, in the order of a table."""
    return tuple(metric for metric in Metric if metric.row.fio and use in metric.row.fio)


def timed_metrics(use: Use) -> tuple[Metric, ...]:
    """The same of timed operations."""
    return tuple(metric for metric in Metric if metric.row.timed and use in metric.row.timed)


def held_metrics(use: Use) -> tuple[Metric, ...]:
    """The same of held states."""
    return tuple(metric for metric in Metric if metric.row.held and use in metric.row.held)


CRASH_METRICS: Final = tuple(metric for metric in Metric if metric.row.crashes)
# The metrics of verdicts.
FIO_METRICS: Final = fio_metrics(Use.JUDGED)
TIMED_METRICS: Final = timed_metrics(Use.JUDGED)
HELD_METRICS: Final = held_metrics(Use.JUDGED)
JUDGED_METRICS: Final = FIO_METRICS + TIMED_METRICS + CRASH_METRICS + HELD_METRICS


def figure_of(measurement: Measurement, metric: Metric) -> Figure:
    """The figure in the metric's unit, even from an invalid measurement; None if it is absent."""
    figure = _figure(measurement, metric)
    return figure.value if isinstance(figure, Value | Stated) else figure


def uncertainty_of(measurement: Measurement, metric: Metric) -> Figure:
    """The standard uncertainty (k=1) of a figure, in its unit: the meter's, or that of a clock's step; None for others.

    All that a step hides is equally likely (JCGM 100:2008, 4.3.7).
    """
    figure = _figure(measurement, metric)
    if isinstance(figure, Value | Stated):
        return figure.uncertainty
    step = metric.row.step(measurement) if metric.row.step else None
    return None if step is None or figure is None else step * figure / math.sqrt(12)


def step_in(measurement: Measurement, metric: Metric) -> float:
    """The share by which a clock may have rounded a measurement's figure; 0 for a figure without such a clock."""
    return step_of(metric, figure_of(measurement, metric), uncertainty_of(measurement, metric))


def step_of(metric: Metric, figure: Figure, uncertainty: Figure) -> float:
    """The share by which a clock may have rounded a figure of this uncertainty; 0 for a figure without such a clock."""
    return math.sqrt(12) * uncertainty / figure if metric.row.step and figure and uncertainty else 0.0


def _figure(measurement: Measurement, metric: Metric) -> Value | Stated | Figure:
    return measurement.stated.get(metric) or metric.row.figure(measurement)


def figure_with_card(measurement: Measurement, metric: Metric) -> Figure:
    """The figure with the projected card, which a device in the field has; None without a projection."""
    with_card = metric.row.with_card
    return with_card(measurement.projected) if with_card and measurement.projected else None


def metrics_named(names: Sequence[str]) -> tuple[Metric, ...]:
    """The metrics that a user names, all of them for `all`. Raises ConfigError for an unknown one."""
    if tuple(names) == ("all",):
        return tuple(Metric)
    for name in names:
        if name not in list(Metric):
            raise ConfigError.unknown("metric", name, [*Metric, "all"])
    return tuple(map(Metric, names))


def metrics_of(workload: Workload) -> tuple[Metric, ...]:
    """The metrics that are meaningful for a workload, those that are judged first."""
    return metrics_of_series(workload.slug)


def metrics_told(measurement: Measurement) -> tuple[Metric, ...]:
    """The metrics of its workload, without those that only some measurements have, and it has not."""
    metrics = metrics_of(measurement.workload)
    return tuple(each for each in metrics if not each.row.seldom or figure_of(measurement, each) is not None)


def metrics_of_series(workload: str) -> tuple[Metric, ...]:
    """The same for a workload by its name in a series: `randread-16k 32768KiB`, `mkfs`, `block-test_app.test_sync`."""
    operation = TimedKind.POWER_ON if workload.startswith(TimedKind.POWER_ON) else re.split(r"[- ]", workload)[0]
    if operation == ImportKind.IMPORTED:
        return tuple(metric for metric in Metric if not metric.row.seldom)
    if workload.startswith(Hazard.CRASH_STATES):
        return CRASH_METRICS
    known = {each.value: each for each in (*IoPattern, *TimedKind, *BlockKind, *StateKind)}
    if operation not in known:
        return ()
    uses = {metric: _use(metric.row, known[operation]) for metric in Metric}
    present = {metric: use for metric, use in uses.items() if use is not None}
    return tuple(sorted(present, key=lambda metric: Use.JUDGED not in present[metric]))


def _use(row: MetricRow, operation: IoPattern | TimedKind | BlockKind | StateKind) -> Use | None:
    if isinstance(operation, StateKind):
        return row.held
    if not isinstance(operation, IoPattern):
        return row.timed
    return None if row.only_writes and not operation.writes else row.fio
