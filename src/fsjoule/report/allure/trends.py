"""The trends of a report: from its runs, or from an index that knows more of them; open losses as Allure's tests."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final
from urllib.parse import urlencode

from fsjoule.model.series import Order, Where
from fsjoule.report.allure.builds import Builds
from fsjoule.report.allure.documents import OPEN_LOSS, AllureStatus, Result
from fsjoule.report.allure.tests import milliseconds
from fsjoule.report.markdown import plain
from fsjoule.report.trend.cards import CauseCard, cards, lines
from fsjoule.store.confirmations import Confirmation
from fsjoule.store.index.database import Index, open_index
from fsjoule.store.index.importer import import_runs
from fsjoule.store.index.trend import trend_reader
from fsjoule.verdicts.trend.causes import Fate
from fsjoule.verdicts.trend.trend import Trend, trend_of

_MOST_READ: Final = 60_000  # measurements of an index; reading them takes half a second


def trends_of(builds: Builds, known: Sequence[Confirmation] = (), location: str | None = None) -> tuple[Trend, Trend]:
    """Over time and over kernels, with the names of all runs; `location` is of an index instead of the builds."""
    if location is not None:
        with open_index(location) as opened:
            return _both(opened, known)
    with TemporaryDirectory() as folder, open_index(str(Path(folder) / "index.sqlite"), create=True) as opened:
        runs = [*builds.older, *(loaded.path for loaded in chain(*builds.earlier, builds.current))]
        if runs:
            import_runs(opened, runs)
        return _both(opened, known)


def _both(opened: Index, known: Sequence[Confirmation]) -> tuple[Trend, Trend]:
    by_time, by_kernel = (
        trend_of(trend_reader(opened, Where(), order=order, at_most=_MOST_READ), confirmations=known, all_names=True)
        for order in (Order.TIME, Order.KERNEL)
    )
    return by_time, by_kernel


def loss_tests(trend: Trend) -> list[Result]:
    """A failed test for each open loss: one a cause, whatever the number of boards and figures that it costs."""
    return [_loss(card) for card in cards(trend) if card.cause.fate is Fate.OPEN]


def _loss(card: CauseCard) -> Result:
    first = card.workloads[0]
    series = card.cause.lead.history.series.series
    where = f"{card.since.run_id}-{first.series}-{first.metric}"
    at_ms = milliseconds(card.since.started_utc)  # before the newest runs, so that it is the first of the list
    of = "; ".join(f"{one.label} {one.told}" for one in card.workloads)
    return Result(
        uuid=f"open-loss-{where}",
        identity=f"trend/{where}",
        name=f"open {card.title}",
        status=AllureStatus.FAILED,
        start_ms=at_ms,
        stop_ms=at_ms,
        labels=(
            ("board", card.boards),
            ("kernel", card.kernel),
            ("filesystem", series.filesystem),
            ("suite", "trend"),
            ("framework", "fsjoule"),
            *((("tag", "simulated"),) if card.cause.simulated else ()),
        ),
        message=f"{OPEN_LOSS}: {card.boards}, {card.figures}: {of}",
        description="".join(f"- {plain(line)}\n" for line in lines(card)),
        about=(("kernel", card.kernel), ("run", card.since.run_id)),
        trend=urlencode({"fs": series.filesystem, "workload": series.workload}),
    )
