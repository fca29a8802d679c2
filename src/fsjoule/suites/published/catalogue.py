"""All publications by the name of their suite, and their figures for our series."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from fsjoule.hooks import Rows
from fsjoule.model import Workload
from fsjoule.model.metrics import Metric
from fsjoule.suites import SUITES
from fsjoule.suites.published.cells import FigureCell, Quantity
from fsjoule.suites.published.publication import Publication

PUBLICATIONS: Final = Rows("publication", "fsjoule_publications", Publication)

# A series' name of a workload: its slug, and perhaps a size.
_SLUG: Final = re.compile(r"(\S+)(?: .*)?")
_QUANTITIES: Final = {
    Metric.THROUGHPUT: Quantity.THROUGHPUT,
    Metric.ENERGY: Quantity.ENERGY,
    Metric.POWER: Quantity.POWER,
}


@dataclass(frozen=True, slots=True)
class PublishedRow:
    """A publication's figures for one fio workload on one filesystem."""

    throughput_mib_per_s: float
    energy_mj_per_mib: float
    source: str


def publication_of(suite: str) -> Publication | None:
    """The publication that a suite, or a part of one, repeats."""
    known = SUITES.get(suite.partition("/")[0])
    # Several suites can repeat one publication.
    return next((each for each in PUBLICATIONS.values() if known and each.source == known.source), None)


def row_for(suite: str, filesystem: str, workload: Workload) -> PublishedRow | None:
    """The published figures for this filesystem, pattern and block size with one buffered job, if any."""
    publication = _compared_with(suite)
    if publication is None:
        return None
    throughput, energy = (
        _figure(publication, filesystem, workload.slug, quantity) for quantity in (Quantity.THROUGHPUT, Quantity.ENERGY)
    )
    return None if throughput is None or energy is None else PublishedRow(throughput, energy, publication.source)


def figure_of_slug(suite: str, filesystem: str, workload: str, metric: Metric) -> float | None:
    """The published figure for a series' name of a workload, in the metric's unit."""
    publication, named = _compared_with(suite), _SLUG.fullmatch(workload)
    if publication is None or named is None or metric not in _QUANTITIES:
        return None
    return _figure(publication, filesystem, named[1], _QUANTITIES[metric])


def _compared_with(suite: str) -> Publication | None:
    return publication_of(suite) or next((each for each in PUBLICATIONS.values() if suite in each.lends_to), None)


def _figure(publication: Publication, filesystem: str, slug: str, quantity: Quantity) -> float | None:
    # Publications with parts need more than a slug: their own tables show their figures.
    cell = FigureCell("", filesystem, slug, quantity)
    return next((figure.value for figure in publication.figures if figure.cell == cell), None)
