"""What an index gives a trend, and takes back from it: rows, names, and verdicts to be kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from fsjoule.model.kernel import Kernel
from fsjoule.model.metrics import Metric, Use, fio_metrics, held_metrics, timed_metrics
from fsjoule.model.series import UNKNOWN_ORIGIN, Order, Origin, Series
from fsjoule.store.states import KeptState

# Positions in a row; figures start at `FIGURES`, in the requested order.
STARTED, RUN, NUMBER, KERNEL, BOOT, FIGURES = range(6)

Row = tuple[Any, ...]

# Kernels' labels in runs of several kernels, by the numbers of run and kernel.
Labels = Mapping[tuple[int, int], str]

# The default metrics of fio's jobs, and of timed operations.
FIO: Final = fio_metrics(Use.MAIN)
TIMED: Final = timed_metrics(Use.MAIN)
USUAL: Final = FIO + TIMED + held_metrics(Use.MAIN)


@dataclass(frozen=True, slots=True)
class NewestRows:
    """The newest valid measurements of a series, oldest first. `older` says that there are more."""

    series: Series
    rows: Sequence[Row]
    older: bool


class RunNames(NamedTuple):
    """A run's names, and its folder at the time of the import."""

    run_id: str
    started_utc: str
    branch: str | None
    commit: str | None
    path: str
    origin: Origin = UNKNOWN_ORIGIN


class KeptVerdict(NamedTuple):
    """A digest of what a series was judged from, and what was found, as JSON."""

    made_from: bytes
    histories: str


@dataclass(frozen=True, slots=True)
class TrendRows:
    """The newest measurements of the selected series, as rows of `metrics`; `wanted` are those that were asked for.

    `series` are those with rows, by their numbers, in order, and `digests` of what each would be judged from. Series in
    `judged` have a verdict from the same; `rows` are the others'. `question` is a digest of what is asked. `names`
    looks up runs by their numbers.
    """

    order: Order
    metrics: Sequence[Metric]
    wanted: Sequence[Metric]
    question: bytes
    series: Mapping[int, Series]
    digests: Mapping[int, bytes]
    judged: Mapping[int, str]
    rows: Sequence[NewestRows]
    kernels: dict[int, Kernel]
    labels: Labels
    states: Sequence[KeptState]
    names: Callable[[Iterable[int]], dict[int, RunNames]]


# Reads the rows for a method of judging, by its digest: another method's verdicts do not count.
Reader = Callable[[bytes], TrendRows]
