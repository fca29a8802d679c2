"""Causes as cards: what a terminal, the pages, Allure and the service tell of each. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from fsjoule.model.labels import counted
from fsjoule.model.metrics import Metric
from fsjoule.model.series import Order
from fsjoule.report.forge import Forge
from fsjoule.report.table import Tone
from fsjoule.report.trend import words
from fsjoule.store.states import ChangeState
from fsjoule.store.trend_rows import RunNames
from fsjoule.verdicts.trend.causes import Cause, Fate
from fsjoule.verdicts.trend.changes import LevelChange
from fsjoule.verdicts.trend.history import History
from fsjoule.verdicts.trend.trend import Trend

_FEW_BOARDS: Final = 3
_FEW_WORKLOADS: Final = 4
_COMMIT: Final = 12
_WORDS: Final = {Fate.OPEN: "loss since", Fate.GAIN: "gain since", Fate.OVER: "over,", Fate.CLOSED: "closed, since"}


@dataclass(frozen=True, slots=True)
class Of:
    """One workload of a card: `btrfs randwrite-16k`, `11 to 13 % slower, 9 % more energy`, `all 6 boards`.

    `series` and `metric` are those of its largest change.
    """

    label: str
    told: str
    boards: str
    series: str
    metric: str


@dataclass(frozen=True, slots=True)
class CauseCard:
    """A cause in words. `since` and `last` are the runs of the first point of the new level and of the one before.

    `kernel` and `kernel_before` are their kernels. `day` and `ended`, the day when it was over, are empty over kernels,
    which have many. `rest` counts workloads without a line. `verdict` and `step` (what to do) may be empty.
    """

    cause: Cause
    word: str
    day: str
    kernel: str
    kernel_before: str
    since: RunNames
    last: RunNames
    boards: str
    figures: str
    workloads: tuple[Of, ...]
    rest: int
    ended: str
    known: tuple[str, ...]
    verdict: str
    step: str
    command: str

    @property
    def commit(self) -> str:
        return (self.since.commit or "")[:_COMMIT]

    @property
    def commit_before(self) -> str:
        return (self.last.commit or "")[:_COMMIT]

    @property
    def title(self) -> str:
        """`loss since 2026-02-22: 6.12.27-armmp, commit 4f1c2d3e5a6b (simulated)`, `over, 2026-02-04 to 02-16: …`."""
        commit = f", commit {self.commit}" if self.commit else ""
        simulated = " (simulated)" if self.cause.simulated else ""
        days = " to ".join(filter(None, (self.day, self.ended)))
        return f"{self.word} {days + ': ' if days else ''}{self.named}{commit}{simulated}"

    @property
    def named(self) -> str:
        """`6.12.27-armmp`; `the same kernel, 6.12.27-armmp` where no kernel came."""
        return self.kernel if self.kernel != self.kernel_before else f"the same kernel, {self.kernel}"

    @property
    def last_good(self) -> str:
        """`6.12.26-armmp, commit 3e5a6b4f1c2d, run c00051 of 2026-02-21`."""
        commit = f", commit {self.commit_before}" if self.commit_before else ""
        return f"{self.kernel_before}{commit}, run {self.last.run_id} of {self.last.started_utc[:10]}"

    @property
    def keys(self) -> tuple[str, ...]:
        """The series in a metric that it is about, as the page of trends names them."""
        changes = self.cause.changes
        return tuple(dict.fromkeys(f"{one.history.series.key}.{one.history.metric.value}" for one in changes))

    @property
    def states(self) -> tuple[str, ...]:
        return tuple(sorted({change.state.value for change in self.cause.changes}))


def cards(trend: Trend, index: str | None = None) -> list[CauseCard]:
    """The cards of a trend, which needs the names of its changes' runs; `index` stands in its commands."""
    return [_card(cause, trend, index) for cause in trend.causes]


def _card(cause: Cause, trend: Trend, index: str | None) -> CauseCard:
    lead = cause.lead
    sides = (lead.since, lead.last), (lead.last, lead.since)
    kernel, before = (words.kernel_text(point, trend, beside=beside) for point, beside in sides)
    known = [
        told
        for change in cause.changes
        for told in (words.moved(change, trend), *words.kept(change), words.verdict(change))
    ]
    workloads = list(_workloads(((one.history, one.ratio) for one in cause.changes), trend))
    verdict = _verdict(cause.still) if cause.present else ""
    step, command = _step(cause, trend, index) if cause.fate is Fate.OPEN else ("", "")
    return CauseCard(
        cause,
        _WORDS[cause.fate],
        lead.since.started_utc[:10] if trend.order is Order.TIME else "",
        kernel,
        before,
        trend.runs[lead.since.run],
        trend.runs[lead.last.run],
        _boards(cause.boards, trend),
        _figures(cause),
        tuple(workloads[:_FEW_WORKLOADS]),
        len(workloads) - len(workloads[:_FEW_WORKLOADS]),
        cause.cured.started_utc[:10] if cause.cured and trend.order is Order.TIME else "",
        tuple(dict.fromkeys(filter(None, known))),
        verdict,
        step,
        command,
    )


def _boards(boards: Sequence[str], trend: Trend) -> str:
    every = len(trend.boards)
    if len(boards) == every and every > 1:
        return f"all {every} boards"
    return ", ".join(boards) if len(boards) <= _FEW_BOARDS else f"{len(boards)} of {every} boards"


def _figures(cause: Cause) -> str:
    """`12 figures, all still so`."""
    figures = len(cause.changes)
    told = counted(figures, "figure")
    if not cause.present:
        return told
    if len(cause.still) == figures:
        return f"{told}, {'all ' if figures > 1 else ''}still so"
    return f"{told}, {len(cause.still)} of them still so"


def _workloads(found: Iterable[tuple[History, float]], trend: Trend) -> Iterator[Of]:
    """By how much histories moved, a line for each workload."""
    by_label: dict[str, list[tuple[History, float]]] = {}
    for history, ratio in found:
        by_label.setdefault(words.workload(history), []).append((history, ratio))
    for label, moved in by_label.items():
        metrics: dict[tuple[Metric, bool], list[float]] = {}
        for history, ratio in moved:
            metrics.setdefault((history.metric, ratio > 1), []).append(ratio)
        told = ", ".join(_range(metric, ratios) for (metric, _), ratios in metrics.items())
        boards = sorted({history.series.series.board for history, _ in moved})
        first = moved[0][0]
        yield Of(label, told, _boards(boards, trend), first.series.key, first.metric.value)


def _range(metric: Metric, ratios: Sequence[float]) -> str:
    """`11 to 13 % slower`; one figure where the boards agree."""
    sizes = sorted(100 * abs(ratio - 1) for ratio in ratios)
    decimals = 0 if sizes[0] >= 10 else 1  # noqa: PLR2004 - two digits
    low, high = (f"{size:.{decimals}f}" for size in (sizes[0], sizes[-1]))
    return f"{low if low == high else f'{low} to {high}'} % {metric.change(ratios[0])}"


def _verdict(changes: Sequence[LevelChange]) -> str:
    """What all nights before against all nights after say of the changes that are still so."""
    said = [change.verdict for change in changes if change.verdict is not None]
    decided = [one for one in said if one.decided]
    if decided:
        of = "" if len(decided) == len(changes) else f" for {len(decided)} of {len(changes)} figures"
        before, after = decided[0].nights
        return f"decided{of} by all {before} nights before against {after} after, wrong in at most 1 %"
    reasons = Counter(one.reason for one in said if one.reason)
    if not reasons:
        return ""
    more = [one.more for one in said if one.more]
    wait = f"; in about {counted(min(more), 'night')} they may" if more else ""
    return f"not decided by its nights: {reasons.most_common(1)[0][0]}{wait}"


def _step(cause: Cause, trend: Trend, index: str | None) -> tuple[str, str]:
    """What to do about an open loss that its nights have not decided, with the command for it."""
    new = [
        change
        for change in cause.still
        if change.state is ChangeState.NEW and not (change.verdict and change.verdict.decided)
    ]
    if not new:
        return "", ""
    if all(words.same_kernel(change) for change in new):
        return words.SAME_KERNEL, ""
    largest = next(change for change in new if not words.same_kernel(change))
    return "fresh boots of both kernels:", words.confirm_command(largest, trend, index)


def lines(card: CauseCard) -> Iterator[str]:
    """A card below its title, in lines for a terminal; a command stands last and alone."""
    yield f"{card.boards}, {card.figures}"
    for of in card.workloads:
        yield f"{of.label}: {of.told}{'' if of.boards == card.boards else f' ({of.boards})'}"
    if card.rest:
        yield f"and {counted(card.rest, 'more workload')}"
    if card.cause.fate is Fate.OPEN:
        yield f"last good: {card.last_good}"
    yield from filter(None, (*card.known, card.verdict, card.step, card.command))


def left_out(present: Sequence[CauseCard], past: Sequence[CauseCard]) -> Iterator[str]:
    """What a short answer does not show: `2 causes are over: --all shows them`."""
    if present:
        yield f"{counted(len(present), 'more cause is', 'more causes are')} still so: --all shows them"
    if past:
        yield f"{past_words(past)}: --all shows them"


def lately(trend: Trend) -> Iterator[tuple[str, list[str]]]:
    """What the newest nights have at another level: `last 3 nights`, `btrfs read-16k: 12 % slower (all 6 boards)`."""
    by_nights: dict[int, list[tuple[History, float]]] = {}
    for history, newest in trend.lately:
        by_nights.setdefault(newest.nights, []).append((history, newest.ratio))
    for nights, moved in sorted(by_nights.items()):
        told = [f"{of.label}: {of.told} ({of.boards})" for of in _workloads(moved, trend)]
        rest = len(told) - _FEW_WORKLOADS
        more = [f"and {counted(rest, 'more workload')}"] if rest > 0 else []
        yield ("last night" if nights == 1 else f"last {nights} nights"), [*told[:_FEW_WORKLOADS], *more]


def past_words(past: Sequence[CauseCard]) -> str:
    """`2 causes are over, 1 is accepted or refuted`."""
    over = sum(card.cause.fate is Fate.OVER for card in past)
    closed = len(past) - over
    told = [counted(over, "cause is over", "causes are over")] if over else []
    what = "is" if closed == 1 else "are"
    return ", ".join([*told, *([f"{closed} {what} accepted or refuted"] if closed else [])])


def headline(told: Sequence[CauseCard], trend: Trend) -> tuple[str, Tone]:
    """`1 open loss, since 2026-02-22 with 6.12.27-armmp on all 6 boards.`, or that there is none; with its colour."""
    losses = [card for card in told if card.cause.fate is Fate.OPEN]
    enough = len(trend.histories) - trend.too_short
    if not trend.histories:
        return "There is no valid measurement.", Tone.PLAIN
    if not enough:
        return "No series has enough runs to see a change.", Tone.PLAIN
    if not losses:
        worse = any((newest.ratio < 1) is one.metric.more_is_better for one, newest in trend.lately)
        found = f"No open loss in {counted(enough, 'history', 'histories')}"
        return (f"{found}, but see the newest nights.", Tone.DOUBT) if worse else (f"{found}.", Tone.GOOD)
    newest = losses[0]
    since = f"since {newest.day} with" if newest.day else "since"
    which = "the newest " if len(losses) > 1 else ""
    where = f"{newest.boards}{' (simulated)' if newest.cause.simulated else ''}"
    count = counted(len(losses), "open loss", "open losses")
    return f"{count}, {which}{since} {newest.named} on {where}.", Tone.BAD


@dataclass(frozen=True, slots=True)
class Links:
    """Where a page's cards lead: to runs, series and commits; an empty address is no link."""

    run: Callable[[RunNames], str]
    series: Callable[[Of], str]
    forge: Forge | None = None

    def commit(self, names: RunNames) -> str:
        return self.forge.commit.format(quote(names.commit)) if self.forge and names.commit else ""

    def difference(self, before: RunNames, since: RunNames) -> str:
        if self.forge is None or not before.commit or not since.commit or before.commit == since.commit:
            return ""
        return self.forge.difference.format(quote(before.commit), quote(since.commit))
