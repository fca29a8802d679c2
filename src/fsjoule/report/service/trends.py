"""The page of trends: a page of the series that were asked for, over time and over kernels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from fsjoule.errors import ConfigError
from fsjoule.model.metrics import Metric, metrics_named
from fsjoule.model.series import Order, Where, utc_named
from fsjoule.report.service.asked import AskedTrend
from fsjoule.report.service.overview import Overviews, Shown, changes_by_series, fits, only, rank, still_so
from fsjoule.report.trend.cards import cards
from fsjoule.report.trend.document import document
from fsjoule.report.trend.page import Choice, trend_page
from fsjoule.store.index.database import Index
from fsjoule.store.index.queries import check_names
from fsjoule.store.states import ChangeState
from fsjoule.store.trend_rows import USUAL
from fsjoule.verdicts.trend.trend import Trend

SERIES_A_PAGE: Final = 30
_STATES: Final = ("any", "open", "worse", *(state.value for state in ChangeState))


class TrendPage:
    """What was asked for, found: `shown` of `total` series in a metric, and their trends."""

    def __init__(self, index: Index, overviews: Overviews, state: str, asked: AskedTrend) -> None:
        self.asked = asked
        self._overviews = overviews
        metrics = metrics_named(asked.metric)
        base = Where(
            branches=asked.branch,
            since_utc=utc_named("since", asked.since or None),
            until_utc=utc_named("until", asked.until or None),
        )
        named = replace(base, boards=asked.board, filesystems=asked.fs, workloads=asked.workload)
        check_names(index, replace(named, suites=asked.suite, series=asked.series))
        whole = overviews.of(index, state, base, asked.by, metrics)
        self._all = changes_by_series(whole)
        self._still = still_so(whole)
        chosen = sorted(self._chosen(metrics), key=lambda one: rank(self._all[one], self._still))
        keys_of_chosen = {f"{series.key}.{metric.value}" for series, metric in chosen}
        self._cards = [card for card in cards(whole) if keys_of_chosen.intersection(card.keys)]
        self.total = len(chosen)
        self.pages = max(1, -(-self.total // SERIES_A_PAGE))
        if asked.page > self.pages:
            raise ConfigError(f"page {asked.page} of {self.pages}: there is no such page", hint="begin with page 1")
        self.shown = chosen[(asked.page - 1) * SERIES_A_PAGE : asked.page * SERIES_A_PAGE]
        keys = tuple(dict.fromkeys(series.key for series, _ in self.shown))
        # As much of each series as the overview has, so that both show the same changes; but all of chosen ones.
        settings = overviews.settings
        share = max(settings.least_of_each, settings.most_measurements // max(1, whole.series))
        at_most = settings.most_measurements if asked.series else share * len(keys)
        where = Where(
            series=keys or ("none",), branches=base.branches, since_utc=base.since_utc, until_utc=base.until_utc
        )
        self.trends = {order: self._read(index, where, order, metrics, at_most) for order in Order}

    def _read(self, index: Index, where: Where, order: Order, metrics: tuple[Metric, ...], at_most: int) -> Trend:
        found = self._overviews.read(index, where, order, metrics, at_most=at_most, all_names=True)
        return only(found, self.shown)

    def _chosen(self, metrics: Sequence[Metric]) -> Iterable[Shown]:
        asked = self.asked
        words = asked.search.lower().split()
        for (series, metric), changes in self._all.items():
            key = series.series
            among = ((key.board, asked.board), (key.filesystem, asked.fs), (key.suite, asked.suite))
            if not all(value in choices for value, choices in among if choices):
                continue
            if asked.workload and not {key.workload, key.workload.partition(" ")[0]} & set(asked.workload):
                continue
            if metrics and metric not in metrics:
                continue
            if asked.series and not series.key.startswith(asked.series):
                continue
            if asked.state and not any(fits(change, asked.state, self._still) for change in changes):
                continue
            if words:
                options = " ".join((*key.make_options, *key.mount_options))
                simulated = "simulated" if series.simulated else ""
                texts = (series.label, key.board, metric.value, key.suite, key.storage, options, simulated)
                text = " ".join(texts).lower()
                if not all(word in text for word in words):
                    continue
            yield series, metric

    def html(self) -> str:
        site = self._overviews.settings.site("trends")
        by_time, by_kernel = (self.trends[order] for order in (Order.TIME, Order.KERNEL))
        asked = self.asked.texts()
        kept = {name: value for name, value in asked.items() if (name, value) != ("by", Order.TIME.value)}
        choice = Choice(asked, self._options(), self.total, site.pager("trend", kept, self.asked.page, self.pages))
        forge = self._overviews.settings.forge
        return trend_page(
            by_time,
            by_kernel,
            forge=forge,
            link=lambda run: site.run(run.run_id),
            site=site,
            choice=choice,
            told=self._cards,
        )

    def _options(self) -> dict[str, list[str]]:
        series = [one.series for one, _ in self._all]
        return {
            "fs": sorted({key.filesystem for key in series}),
            "workload": sorted({key.workload for key in series}),
            "board": sorted({key.board for key in series}),
            "suite": sorted({key.suite for key in series}),
            "metric": ["all", *sorted({metric.value for _, metric in self._all} | {metric.value for metric in USUAL})],
            "state": list(_STATES),
        }

    def document(self) -> dict[str, object]:
        paging = {"page": self.asked.page, "pages": self.pages, "series_in_a_metric": self.total}
        return {**document(self.trends[self.asked.by]), "paging": paging}
