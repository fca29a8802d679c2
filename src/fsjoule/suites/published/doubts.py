"""Cells of a published table that do not follow from its other cells: computed, never listed. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from fsjoule.suites.published.cells import FigureCell, PublishedFigure, Quantity

# A standard deviation above this many medians of its column is doubtful: our limit.
_FAR_OUT: Final = 5


@dataclass(frozen=True, slots=True)
class Doubt:
    """A published cell that contradicts others, which give `expected`, in the cell's unit.

    `text` says how it was found and could be explained. `bound` (`at most`) says if `expected` is a bound; `what` names
    the doubted part if it is not the cell's mean.
    """

    figure: PublishedFigure
    expected: float
    text: str
    bound: str = ""
    what: str = ""

    @property
    def off(self) -> float:
        """The published value's deviation from `expected`, as a fraction of it."""
        return self.figure.value / self.expected - 1


def energies(figures: Sequence[PublishedFigure]) -> Iterator[Doubt]:
    """Energies per MiB that differ from printed power over printed throughput in the last printed digit or more."""
    by_cell = {figure.cell: figure for figure in figures}
    of_energy = [figure for figure in figures if figure.cell.quantity is Quantity.ENERGY]
    half = _half_a_digit(of_energy)
    for energy in of_energy:
        power = by_cell[replace(energy.cell, quantity=Quantity.POWER)]
        throughput = by_cell[replace(energy.cell, quantity=Quantity.THROUGHPUT)]
        expected = 1000 * power.value / throughput.value
        # A quotient of two rounded figures may end in a five.
        if abs(energy.value - expected) <= half * (1 + 1e-6):
            continue
        yield Doubt(energy, expected, _rounding(energy.value / expected, (power, throughput), figures))


def _rounding(ratio: float, sources: Sequence[PublishedFigure], figures: Sequence[PublishedFigure]) -> str:
    """Whether rounding of the printed figures could explain the ratio of energy to their quotient."""
    power, throughput = sources
    steps = [_half_a_digit(f for f in figures if f.cell.quantity is source.cell.quantity) for source in sources]
    most = (power.value + steps[0]) / (throughput.value - steps[1]) * throughput.value / power.value - 1
    covers = "would cover it" if abs(ratio - 1) <= most else "does not cover it"
    return (
        f"printed power over printed throughput. Those two are rounded, by up to {100 * most:.2f} % together, which "
        f"{covers}; but most other energies follow from the printed ones to their last digit"
    )


def _half_a_digit(figures: Iterable[PublishedFigure]) -> float:
    """Half of a column's last printed digit: a table of data may lack final zeros."""
    return float(0.5 * 10.0 ** -max(figure.decimals for figure in figures))


def far_deviations(figures: Sequence[PublishedFigure]) -> Iterator[Doubt]:
    """Deviations over samples that are far larger than others of their column."""
    deviations = [figure for figure in figures if figure.cell.quantity is Quantity.POWER_SD]
    median = statistics.median(figure.value for figure in deviations)
    for figure in deviations:
        if figure.value > _FAR_OUT * median:
            text = f"the median of all these deviations; more than {_FAR_OUT} times that is a misprint, as we read it"
            yield Doubt(figure, median, text)


def impossible_deviations(figures: Sequence[PublishedFigure]) -> Iterator[Doubt]:
    """Deviations that times with this mean cannot have, because no time is negative.

    The deviation (n - 1) of n such figures is at most their mean times the square root of n, if all but one are zero.
    """
    half = _half_a_digit(figure for figure in figures if figure.sd is not None)
    for figure in figures:
        if figure.sd is None:
            continue
        most = (figure.value + half) * math.sqrt(figure.n)
        if figure.sd - half > most:
            text = (
                f"what {figure.n} times with a mean of {figure.printed} can have, none being below zero (the mean "
                "times the square root of their number): there were more of them than we know of"
            )
            shown = f"{figure.sd:.2f}"
            doubted = replace(figure, value=figure.sd, printed=shown, sd=None)
            yield Doubt(doubted, most, text, bound="at most", what="deviation")


def shares(figures: Sequence[PublishedFigure], part: Quantity, whole: Quantity, text: str) -> Iterator[Doubt]:
    """Parts that are more than their whole."""
    by_cell = {figure.cell: figure for figure in figures}
    for figure in figures:
        of = by_cell.get(replace(figure.cell, quantity=whole))
        if figure.cell.quantity is part and of is not None and figure.value > of.value:
            yield Doubt(figure, of.value, text, bound="at most")


def latencies(
    figures: Sequence[PublishedFigure], longest: Iterable[tuple[FigureCell, FigureCell]], *, in_flight: int
) -> Iterator[Doubt]:
    """Longest latencies below the mean latency that follows from a rate with this many requests in flight.

    `longest` has pairs of a cell with the longest latency (ms) and a cell with a rate (1/s). By Little's law the mean
    latency is requests in flight over the rate (Little: A proof for the queuing formula L = λW, 1961).
    """
    by_cell = {(figure.cell, figure.hardware): figure for figure in figures}
    for hardware in dict.fromkeys(figure.hardware for figure in figures):
        for of_latency, of_rate in longest:
            latency, rate = by_cell.get((of_latency, hardware)), by_cell.get((of_rate, hardware))
            if latency is None or rate is None:
                continue
            mean_ms = 1000 * in_flight / rate.value
            if latency.value < mean_ms:
                text = (
                    f"the mean latency of {in_flight} requests in flight at {rate.value:.0f}/s ({of_rate.workload}) by "
                    "Little's law: the longest was measured with fewer, or the queue was never full"
                )
                yield Doubt(latency, mean_ms, text, bound="at least")
