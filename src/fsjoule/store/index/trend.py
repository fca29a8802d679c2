"""Reads from an index what a trend is made from; series that it has judged from the same before are not read."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial

from fsjoule.model.kernel import Kernel
from fsjoule.model.metrics import Metric
from fsjoule.model.series import Order, Where
from fsjoule.store.index.database import Index
from fsjoule.store.index.judged import kept_verdicts
from fsjoule.store.index.newestrows import Inputs, Newest, kernel_labels, reference_runs, run_names
from fsjoule.store.index.schema import DIGEST_BYTES
from fsjoule.store.index.states import kept_states
from fsjoule.store.trend_rows import USUAL, Labels, Reader, TrendRows


def trend_reader(
    index: Index,
    where: Where,
    *,
    order: Order = Order.TIME,
    metrics: Sequence[Metric] = (),
    at_most: int | None = None,
    of_each: int = 1,
    anew: bool = False,
) -> Reader:
    """A function that reads the newest measurements of all series in `where` for a method of judging.

    They are `at_most` in total, of each series `of_each`. `metrics` default to throughput and energy of fio's jobs,
    duration and energy of timed operations. With `anew` no series counts as judged.
    """
    return partial(_read, index, where, order=order, metrics=metrics, at_most=at_most, of_each=of_each, anew=anew)


def _read(
    index: Index,
    where: Where,
    method: bytes,
    *,
    order: Order,
    metrics: Sequence[Metric],
    at_most: int | None,
    of_each: int,
    anew: bool,
) -> TrendRows:
    asked, question = tuple(metrics) or USUAL, _question(where, order, metrics)
    with index.reading() as connection:
        newest = Newest(connection, where, asked, at_most=at_most, of_each=of_each)
        catalogue, inputs = newest.catalogue, newest.inputs()
        labels: Labels = {}
        if order is Order.TIME:
            several = _several_kernels(each.kernels for each in inputs.values())
            labels = kernel_labels(connection, several | reference_runs(connection))
        by = catalogue.kernels
        digests = {
            number: _made_from(each, labels, order, metrics, kernels=by, method=method)
            for number, each in inputs.items()
        }
        kept = {} if anew else kept_verdicts(connection, question, list(digests))
        judged = {number: one.histories for number, one in kept.items() if one.made_from == digests[number]}
        rows = list(newest.rows(digests.keys() - judged.keys()))
    return TrendRows(
        order=order,
        metrics=asked,
        wanted=metrics,
        question=question,
        series={number: catalogue.series[number] for number in newest.numbers if number in digests},
        digests=digests,
        judged=judged,
        rows=rows,
        kernels=by,
        labels=labels,
        states=kept_states(index),
        names=partial(run_names, index),
    )


def _several_kernels(found: Iterable[Collection[tuple[int, int | None]]]) -> set[int]:
    """The runs that measured a series on more than one kernel, from the runs and kernels of each series."""
    return {run for pairs in found for run, count in Counter(run for run, _ in pairs).items() if count > 1}


def _question(where: Where, order: Order, metrics: Sequence[Metric]) -> bytes:
    """A digest of what is asked about each series: the newest verdict on each is kept."""
    return _digest(order, list(metrics), sorted(where.branches))


def _made_from(
    inputs: Inputs,
    labels: Labels,
    order: Order,
    metrics: Sequence[Metric],
    *,
    kernels: Mapping[int, Kernel],
    method: bytes,
) -> bytes:
    """A digest of all that a verdict on a series depends on."""
    named = sorted((*pair, labels[pair]) for pair in labels.keys() & inputs.kernels)
    numbers = sorted({number for _, number in inputs.kernels if number is not None}) if order is Order.KERNEL else []
    sorted_by = [(number, kernels[number].order) for number in numbers]
    return _digest(method, inputs.digest, named, sorted_by, order, list(metrics))


def _digest(*parts: object) -> bytes:
    return hashlib.blake2b(repr(parts).encode(), digest_size=DIGEST_BYTES).digest()
