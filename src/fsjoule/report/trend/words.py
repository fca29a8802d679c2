"""A trend in words: one sentence per change, and a small picture of its history. Pure."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterator, Sequence
from typing import Final

from fsjoule.model.labels import counted
from fsjoule.model.series import Order
from fsjoule.report.numbers import change_text, hidden_text, signed
from fsjoule.statistics.outcome import Confirmed
from fsjoule.store.states import ChangeState
from fsjoule.verdicts.trend.changes import ChangeStatus, LevelChange
from fsjoule.verdicts.trend.history import History, HistoryPoint
from fsjoule.verdicts.trend.trend import Trend

_BLOCKS: Final = "▁▂▃▄▅▆▇█"
_WIDTH: Final = 48
# One figure in this many on either side may be outside the scale.
_STALLS: Final = 20
_SHORT_KEY: Final = 8
# From here on the nights of a series remember what they were: so many count as one.
_REMEMBERS: Final = 2.0
SAME_KERNEL: Final = "the kernel is the same before and after: look at lab, card and tools"


def sentence(change: LevelChange, trend: Trend) -> str:
    """`btrfs randwrite-16k on virtual (simulated): 7.1 % slower since 6.12.9, run X (before: 6.1.164, run Y)`."""
    since = _point_text(change.since, trend, beside=change.last)
    before = _point_text(change.last, trend, beside=change.since)
    return (
        f"{title(change.history)}: {change_text(change.history.metric, change.ratio)} since {since} (before: {before})"
    )


def title(history: History) -> str:
    return place(history, simulated=" (simulated)" if history.series.simulated else "")


def workload(history: History) -> str:
    """`btrfs randwrite-16k`, with the kernel's label where a run has several."""
    return f"{history.series.label}{f', kernel {history.label}' if history.label else ''}"


def place(history: History, *, simulated: str = "") -> str:
    """The series; a chart's title itself says whether it is simulated."""
    label = f", kernel {history.label}" if history.label else ""
    return f"{history.series.label} on {history.series.series.board}{simulated}{label}"


def kernel_text(point: HistoryPoint, trend: Trend, *, beside: HistoryPoint | None = None) -> str:
    """A kernel's release, or its label where `beside` has the same release."""
    kernel = trend.kernels.get(point.kernel or 0)
    if kernel is None:
        return "an unknown kernel"
    other = trend.kernels.get(beside.kernel or 0) if beside else None
    same_release = other is not None and other.release == kernel.release and other != kernel
    return kernel.label if same_release else kernel.release


def _point_text(point: HistoryPoint, trend: Trend, *, beside: HistoryPoint | None = None) -> str:
    kernel = kernel_text(point, trend, beside=beside)
    names = trend.runs[point.run]
    commit = f", commit {names.commit[:12]}" if names.commit else ""
    several = f"the newest of {point.runs} runs is " if point.runs > 1 else "run "
    board, other = names.origin.board, trend.runs[beside.run].origin.board if beside else None
    where = f", place {board}" if board and other and board != other else ""
    return f"{kernel}, {several}{names.run_id} of {names.started_utc[:10]}{commit}{where}"


def moved(change: LevelChange, trend: Trend) -> str:
    """That the two points were measured at different places, of one type of board; empty if at one, or if unknown."""
    before, since = (trend.runs[point.run].origin.board for point in (change.last, change.since))
    return f"measured at place {since}, before at place {before}" if before and since and before != since else ""


def verdict(change: LevelChange) -> str:
    """The fresh boots' answer; empty if the change has not been measured again."""
    told = change.confirmation
    if told is None:
        return ""
    seen = "" if told.ratio is None else f", {signed(told.ratio)}"
    where = f"in {counted(told.pairs, 'pair')} of fresh boots{seen}, run {told.run_id}"
    if told.outcome is Confirmed.UNDECIDED:
        hidden = "" if told.hidden_by is None else f": {hidden_text(told.hidden_by)}"
        return f"fresh boots could not decide, {where}{hidden}"
    rate = told.alpha if told.outcome is Confirmed.CONFIRMED else told.beta
    return f"{told.outcome} {where}, wrong with at most {100 * rate:g} %"


def nights(change: LevelChange) -> str:
    """What all nights before against all nights after say of it; empty where they were not judged."""
    told = change.verdict
    if told is None:
        return ""
    if not told.decided:
        more = f", perhaps in {counted(told.more, 'more night')}" if told.more else ""
        return f"not decided by its nights{more}: {told.reason}"
    before, after = told.nights
    way = 1 if told.ratio > 1 else -1
    bounds = sorted(way * 100 * (each - 1) for each in (told.interval.low, told.interval.high)) if told.interval else ()
    interval = f" (95 %: {bounds[0]:.1f} to {bounds[1]:.1f} %)" if bounds else ""
    changed = change_text(change.history.metric, told.ratio)
    return f"decided by all {before} nights before against {after} after: {changed}{interval}"


def drifts(trend: Trend) -> str:
    """`2 histories drift slowly, which is no change; the most: ext4 read-16k on virtual, throughput, 10.2 % slower`."""
    found = {abs(math.log(one.memory.drift)): one for one in trend.drifts if one.memory and one.memory.drift}
    if not found:
        return ""
    most = found[max(found)]
    assert most.memory is not None
    assert most.memory.drift is not None
    count = counted(len(trend.drifts), "history drifts", "histories drift")
    changed = change_text(most.metric, most.memory.drift)
    return f"{count} slowly, which is no change; the most: {title(most)}, {most.metric}, {changed}"


def memory(history: History) -> str:
    """How large a step would be seen in a history; empty if it is too short to tell."""
    known = history.memory
    if known is None:
        return ""
    slow = "" if known.nights < _REMEMBERS else f", for its nights remember: {known.nights:.0f} of them count as one"
    lost = change_text(history.metric, known.sees if history.metric.more_is_better else 1 / known.sees)
    return f"a step of {lost} would be seen within ten nights{slow}"


def kept(change: LevelChange) -> Iterator[str]:
    """What the index has of it, newest first: who accepted it why, the culprit, the run that explains it."""
    for each in reversed(change.kept):
        match each.state:
            case ChangeState.ACCEPTED:
                yield f"accepted on {each.made_utc[:10]}: {each.why}"
            case ChangeState.BISECTED:
                yield f"first bad commit {each.commit}" if each.commit else "bisected"
            case ChangeState.EXPLAINED:
                yield f"explained by run {each.run_id}" if each.run_id else "explained"
            case _:
                pass


def confirm_command(change: LevelChange, trend: Trend, index: str | None = None) -> str:
    key = change.history.series.key[:_SHORT_KEY]
    by = " --by kernel" if trend.order is Order.KERNEL else ""
    other = f" --index {index}" if index else ""
    return f"fsjoule trend --series {key} --metric {change.history.metric.value}{by}{other} --confirm --lg-env FILE"


def next_step(change: LevelChange, trend: Trend, index: str | None = None) -> str:
    """What to do about a new change: confirm it, or look elsewhere if no kernel can have made it."""
    if same_kernel(change):
        return SAME_KERNEL
    return f"confirm with: {confirm_command(change, trend, index)}"


def same_kernel(change: LevelChange) -> bool:
    """Whether the kernel stayed the same; then measuring it again shows nothing."""
    return change.before.kernel == change.after.kernel


def sparkline(history: History, width: int = _WIDTH) -> str:
    """The history as blocks; a long history as medians of portions. The scale ignores single stalls."""
    figures = portions([point.figure for point in history.points], width)
    apart = sorted(figures)[len(figures) // _STALLS : len(figures) - len(figures) // _STALLS]
    low, high = apart[0], apart[-1]
    steps = ((figure - low) / ((high - low) or 1.0) * len(_BLOCKS) for figure in figures)
    drawn = "".join(_BLOCKS[max(0, min(len(_BLOCKS) - 1, int(step)))] for step in steps)
    return f"{drawn} ▁ {low:.4g} █ {high:.4g} {history.metric.unit}".rstrip()


def portions(figures: Sequence[float], most: int) -> list[float]:
    """At most `most` figures: medians of neighbouring ones."""
    if len(figures) <= most:
        return list(figures)
    edges = [round(number * len(figures) / most) for number in range(most + 1)]
    return [statistics.median(figures[start:end]) for start, end in itertools.pairwise(edges)]


def closing_lines(trend: Trend) -> Iterator[str]:
    """Counts of histories, changes, and measurements left out."""
    what = "kernels" if trend.order is Order.KERNEL else "runs"
    counts = {status: sum(change.status is status for change in trend.changes) for status in ChangeStatus}
    histories = counted(len(trend.histories), "history", "histories")
    yield (
        f"{histories} of {trend.series} series by {trend.order.value}, {counted(trend.measurements, 'measurement')}: "
        f"{trend.unchanged} without a change"
    )
    if trend.changes:
        yield ", ".join(f"{counted(count, 'change')} {status.value}" for status, count in counts.items() if count)
    if trend.drifts:
        yield drifts(trend)
    if trend.too_short:
        yield (
            f"fewer than 6 {what} with a figure, too few to see a change: "
            f"{counted(trend.too_short, 'history', 'histories')}"
        )
    unusable: dict[str, int] = {}
    for history in trend.histories:
        for kind, count in (history.unusable or {}).items():
            unusable[kind] = unusable.get(kind, 0) + count
    if unusable:
        yield f"figures of boots that cannot be used: {', '.join(f'{n} {kind}' for kind, n in unusable.items())}"
    if trend.cut_short:
        yield (
            f"{trend.cut_short} series have older measurements, which were left out; to read all: "
            "--limit 0, or name fewer series (--board, --fs, --series)"
        )
