"""Which filesystem of a run is better for each operation, in words: the head of the page, of the text and of the JSON.

`verdicts.filesystems` judges; nothing is decided here.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from fsjoule.model import BlockWorkload, FioWorkload, TimedWorkload, Workload
from fsjoule.model.labels import counted
from fsjoule.model.metrics import Metric, Use, fio_metrics, timed_metrics
from fsjoule.report.crash import crash_headline
from fsjoule.report.numbers import ABSENT, advantage_text, decimals_for, mean_text
from fsjoule.report.summary import Summary
from fsjoule.report.table import Cell, Column, Filled, Table, Tone, assembled
from fsjoule.statistics.outcome import Outcome
from fsjoule.verdicts.filesystems import Contest, Preferred, rule_of

UNDECIDED: Final = "not yet decided"
_RULE: Final = rule_of(guest_time=False)
RULE: Final = (
    f"better: at most {100 * _RULE.false_discoveries:g} % of what a run says is false; equal: "
    f"{100 * _RULE.equal_within:g} % is excluded"
)
"""How sure the answer is, in a line of a terminal."""
# A sentence or a cell names this many filesystems; the rest is counted.
_NAMED: Final = 3
_MOST_TILES: Final = 8
# More boots than these are no advice.
_ADVISED: Final = 100
_OUTCOMES: Final = {
    Outcome.IMPROVED: "better",
    Outcome.REGRESSED: "worse",
    Outcome.UNCHANGED: "equal",
    Outcome.UNDECIDED: "undecided",
}


@dataclass(frozen=True, slots=True)
class Figure:
    """The answer in one figure: `best` is the filesystem, or that there is none; `why` by how much and how sure.

    `brief` is the same in a few words, `1.7 times as fast`, and `interval` its 95 % interval.
    """

    best: str
    why: str
    brief: str = ""
    interval: str = ""
    decided: bool = True


@dataclass(frozen=True, slots=True)
class OperationAnswer:
    """One operation. `where` is what else sets it apart: the suite's part, the storage, the kernel."""

    operation: str
    where: str
    speed: Figure | None
    energy: Figure | None


@dataclass(frozen=True, slots=True)
class RunAnswer:
    """`headline` is the whole answer in a sentence or two, `rules` how sure it is; `lines` may be empty.

    `tiles` are what the page shows in large letters: all operations, or none of very many; of a single filesystem the
    figures themselves.
    """

    headline: str
    lines: tuple[OperationAnswer, ...] = ()
    rules: str = ""
    tiles: tuple[OperationAnswer, ...] = ()

    @property
    def has_energy(self) -> bool:
        return any(line.energy for line in self.lines)


def answer(summary: Summary, contests: Sequence[Contest]) -> RunAnswer:
    """The run's answer; without a second filesystem, or without a valid figure, its headline says so."""
    if not contests:
        told = crash_headline(summary.crashes) or _states(summary) or _boots(summary) or _nothing(summary)
        headline = f"{told}{'' if summary.crashes else _compare(summary)}"
        return RunAnswer(headline, tiles=_figures(summary))
    figures: dict[tuple[str, str], dict[bool, Figure]] = {}
    for each in _in_order(summary, contests):
        cells = figures.setdefault((each.workload.label, _where(summary, each.suite, each.storage, each.kernel)), {})
        cells[each.metric.row.as_energy] = _figure(each)
    lines = tuple(OperationAnswer(*name, cells.get(False), cells.get(True)) for name, cells in figures.items())
    return RunAnswer(_headline(contests), lines, _rules(contests), lines if len(lines) <= _MOST_TILES else ())


def answer_table(found: RunAnswer, *, simulated: bool) -> Table:
    """The answer for the terminal: operation, and the better filesystem in speed and in energy."""
    filled: list[Filled] = [
        (
            Column("operation", is_figure=False, head=True),
            [Cell(f"{each.operation}, {each.where}" if each.where else each.operation) for each in found.lines],
        )
    ]
    for name, figures in (
        ("speed", [each.speed for each in found.lines]),
        ("energy", [each.energy for each in found.lines]),
    ):
        if any(figures):
            filled.append((Column(name, is_figure=False), [_cell(each) for each in figures]))
            intervals = [Cell(each.interval if each else "") for each in figures]
            filled.append((Column("95 %", is_figure=False, joins=True, optional=True), intervals))
    return assembled("Which filesystem is better", filled, simulated=simulated, groups=[""] * len(found.lines))


def answer_document(summary: Summary, contests: Sequence[Contest]) -> dict[str, object]:
    """The answer for scripts: the headline, and each statement with ratio, interval and boots."""
    return {
        "headline": answer(summary, contests).headline,
        "decided": sum(each.decided for each in contests),
        "figures": [_document(each) for each in _in_order(summary, contests)],
    }


def progress_text(contests: Sequence[Contest], boots: int) -> str:
    """`after 2 boots: 12 of 14 figures decided`."""
    done = sum(each.decided for each in contests)
    return f"after {counted(boots, 'boot')}: {done} of {counted(len(contests), 'figure')} decided"


def first_decided(contests: Sequence[Contest]) -> str:
    """The first statement that shows a filesystem to be better than all others, in words; empty if none does."""
    won = (one for one in contests if one.has_winner)
    return next(
        (
            f"{one.workload.label}: {one.names[0]} {'uses' if one.metric.row.as_energy else 'is'} {_figure(one).why}"
            for one in won
        ),
        "",
    )


def _document(one: Contest) -> dict[str, object]:
    first = one.names[0]
    return {
        "operation": one.workload.slug,
        "suite": one.suite,
        "storage": one.storage,
        "kernel": one.kernel,
        "metric": one.metric.value,
        "unit": one.metric.unit,
        "with_card": one.with_card,
        "best": first if one.has_winner else None,
        "statements": [
            {
                "filesystem": first,
                "other": other,
                "outcome": _OUTCOMES[finding.outcome],
                "mean": finding.candidate,
                "other_mean": finding.baseline,
                "ratio": finding.ratio,
                "interval": None if finding.interval is None else [finding.interval.low, finding.interval.high],
                "boots": finding.basis.boots,
                "more_boots": finding.basis.more_boots,
            }
            for other, finding in zip(one.names[1:], one.findings, strict=True)
        ],
    }


def _states(summary: Summary) -> str:
    """`idle 1.1002 W, cpu 1.8921 W`, if nothing else was measured; empty without a state."""
    if summary.fio or summary.timed:
        return ""
    known = [(row, row.figures[Metric.STATE_POWER]) for row in summary.held if Metric.STATE_POWER in row.figures]
    several = len({row.label for row, _ in known}) > 1
    return ", ".join(
        f"{row.label + ' ' if several else ''}{row.workload.label} {each.mean:.4f} W" for row, each in known
    )


def _boots(summary: Summary) -> str:
    """`24.2 s and 32.0 J from power-on to ready; most joules: u-boot 58 %`, if nothing but whole boots was measured."""
    rows = [(row, row.workload) for row in summary.timed if isinstance(row.workload, TimedWorkload)]
    if summary.fio or len(rows) < len(summary.timed) or not all(workload.rules for _, workload in rows):
        return ""
    told: list[str] = []
    for whole, workload in rows:
        seconds, energy = (whole.figures.get(each) for each in (Metric.DURATION, Metric.OPERATION_ENERGY))
        if workload.segment or seconds is None or energy is None:
            continue
        parts = {
            part.segment: row.figures[Metric.OPERATION_ENERGY].mean / energy.mean
            for row, part in rows
            if part.segment and (row.label, row.kernel) == (whole.label, whole.kernel)
            if Metric.OPERATION_ENERGY in row.figures
        }
        most = sorted(parts.items(), key=lambda part: -part[1])[:_NAMED]
        name = f"{whole.kernel}: " if summary.several_kernels else ""
        shares = "; most joules: " + ", ".join(f"{each} {100 * share:.0f} %" for each, share in most) if most else ""
        end = workload.rules[-1].name
        told.append(f"{name}{seconds.mean:.3g} s and {energy.mean / 1000:.3g} J from power-on to {end}{shares}.")
    return " ".join(told)


def _nothing(summary: Summary) -> str:
    rows = (*summary.fio, *summary.timed)
    blocks = bool(rows) and all(isinstance(row.workload, BlockWorkload) for row in rows)
    if blocks or (summary.outcomes and not rows):
        return ""
    if not summary.measured:
        return f"{'No measurement can be read' if summary.damaged else 'Nothing was measured'}: there is no answer."
    filesystems = list(dict.fromkeys(row.label for row in rows if row.valid))
    if not filesystems:
        return "No measurement is valid: there is no answer."
    if len(filesystems) > 1:
        counts = Counter((row.series.suite, row.workload, row.series.device, row.kernel) for row in rows if row.valid)
        if max(counts.values()) > 1:
            return f"{len(filesystems)} filesystems are too many to compare each with each: there is no answer."
        return "No operation has valid figures of two filesystems: there is no answer."
    return f"Only {filesystems[0]} has valid figures: there is nothing to compare it with."


def _compare(summary: Summary) -> str:
    """The command for whoever has measured kernels, not filesystems."""
    kernels = list(dict.fromkeys(row.kernel for row in (*summary.fio, *summary.timed, *summary.held) if row.valid))
    if len(kernels) < 2:  # noqa: PLR2004 - a pair
        return ""
    words = ("fsjoule", "compare", kernels[0], kernels[-1], "--within", summary.run.run_id)
    return f" To compare its kernels: {shlex.join(words)}"


def _in_order(summary: Summary, contests: Sequence[Contest]) -> list[Contest]:
    """The contests in the order of the page's tables."""
    rows = (*summary.fio, *summary.timed)
    order: dict[tuple[str, Workload, str, str], int] = {}
    for row in rows:
        order.setdefault((row.series.suite, row.workload, row.series.device, row.kernel), len(order))
    return sorted(contests, key=lambda one: order.get((one.suite, one.workload, one.storage, one.kernel), len(order)))


def _where(summary: Summary, suite: str, storage: str, kernel: str) -> str:
    parts = [suite.rpartition("/")[2]] if summary.several_parts else []
    parts += [storage] if summary.several_storages else []
    parts += [f"kernel {kernel}"] if summary.several_kernels else []
    return ", ".join(parts)


def _figures(summary: Summary) -> tuple[OperationAnswer, ...]:
    """The figures of a run with a single filesystem, fio's jobs first."""
    rows = [row for row in (*summary.fio, *summary.timed) if row.valid]
    if len({row.label for row in rows}) != 1:
        return ()
    lines = [
        OperationAnswer(
            row.workload.label,
            _where(summary, row.series.suite, row.series.device, row.kernel),
            *(
                Figure(f"{mean_text(figure, decimals_for([replace(figure, sd=None)]))} {metric.unit}", "")
                if (figure := row.with_card(metric))
                else None
                for metric in (fio_metrics if isinstance(row.workload, FioWorkload) else timed_metrics)(Use.MAIN)
            ),
        )
        for row in rows
    ]
    return tuple([line for line in lines if line.speed or line.energy][:_MOST_TILES])


def _cell(figure: Figure | None) -> Cell:
    if figure is None:
        return Cell(ABSENT)
    text = f"{figure.best}: {figure.brief}" if figure.brief else figure.best
    return Cell(text, tone=Tone.GOOD if figure.decided else Tone.PLAIN)


def _figure(one: Contest) -> Figure:
    first = one.names[0]
    behind, equal, open_ = map(one.those, (Outcome.IMPROVED, Outcome.UNCHANGED, Outcome.UNDECIDED))
    within = f"equal within {100 * one.findings[0].matters:g} %"
    ahead = [f"{first} {_than(behind)}"] if behind else []
    if open_:
        nearest = dict([next(iter(open_.items()))])
        why = "; ".join([_more(one), *ahead, f"so far {first} {_than(nearest)}"])
        return Figure(UNDECIDED, why, _more(one), decided=False)
    if not equal:
        nearest = next(iter(behind.values()))
        brief, _, interval = _advantage(nearest).partition(" (95 %: ")
        return Figure(first, _than(behind), brief, interval.rstrip(")"))
    if not behind:
        return Figure(within, " and ".join(_some([first, *equal])))
    return Figure(
        " or ".join(_some([first, *equal])), "; ".join([*ahead, f"{' and '.join(_some(equal))} {within}"]), within
    )


def _some(names: Iterable[str]) -> list[str]:
    every = list(names)
    rest = len(every) - _NAMED
    return every if rest <= 0 else [*every[:_NAMED], counted(rest, "other")]


def _than(others: Mapping[str, Preferred]) -> str:
    """`12 % faster than btrfs (95 %: 10 to 14 %), 1.7 times as fast as f2fs (...)`; the nearest of many."""
    parts = [_advantage(one, name) for name, one in list(others.items())[:_NAMED]]
    rest = len(others) - len(parts)
    return ", ".join(parts) + (f", and than {counted(rest, 'other')}" if rest > 0 else "")


def _advantage(one: Preferred, other: str = "") -> str:
    return "no common boot" if one.ratio is None else advantage_text(one.metric, one.ratio, one.interval, other)


def _more(one: Contest) -> str:
    """How many boots would decide it: `4 more boots`."""
    if one.more_boots is None or one.more_boots > _ADVISED:
        return f"more than {_ADVISED} more boots"
    return counted(one.more_boots, "more boot")


def _headline(contests: Sequence[Contest]) -> str:
    """`ext4 is faster in 4 of 7 operations (1.7 times as fast: read 16 KiB), ...`, then what is equal, and open."""
    sentences = [f"{text}." for text in _winners(contests)]
    equal = [one for one in contests if one.decided and not one.has_winner]
    if equal:
        sentences.append(f"{_leaders(equal)} in {len(equal)} of {counted(len(contests), 'figure')}.")
    if rest := [one for one in contests if not one.decided]:
        boots = [one.more_boots for one in rest]
        needed = [each for each in boots if each is not None and each <= _ADVISED]
        for_ = counted(max(needed), "more boot") if len(needed) == len(rest) else "boots spread too much for some"
        sentences.append(f"{UNDECIDED.capitalize()}: {len(rest)} of {counted(len(contests), 'figure')} ({for_}).")
    return " ".join(sentences)


def _leaders(equal: Sequence[Contest]) -> str:
    """`ext4 and f2fs are equal within 5 %`, and better than the others if there are any."""
    within = f"equal within {100 * equal[0].findings[0].matters:g} %"
    leading = {frozenset([one.names[0], *one.those(Outcome.UNCHANGED)]) for one in equal}
    if len(leading) > 1:
        return f"Filesystems that lead are {within}"
    names = " and ".join(_some(sorted(*leading)))
    behind = any(one.those(Outcome.IMPROVED) for one in equal)
    return f"{names} are {'better than the others and ' * behind}{within}"


def _winners(contests: Sequence[Contest]) -> Iterable[str]:
    """A sentence for each filesystem that is better than all others in some figure, the most successful first."""
    of_all = Counter(one.metric.row.as_energy for one in contests)
    won: dict[str, dict[bool, list[Contest]]] = {}
    for one in contests:
        if one.has_winner:
            won.setdefault(one.names[0], {}).setdefault(one.metric.row.as_energy, []).append(one)
    ranked = sorted(won.items(), key=lambda each: -sum(map(len, each[1].values())))
    for name, figures in ranked[:_NAMED]:
        parts = [
            f"{word} in {len(figures[energy])} of {counted(of_all[energy], 'operation')} ({_best(figures[energy])})"
            for energy, word in ((False, "is faster"), (True, "uses less energy"))
            if energy in figures
        ]
        yield f"{name} {' and '.join(parts)}"
    if (rest := len(ranked) - _NAMED) > 0:
        yield f"{counted(rest, 'other')} in fewer"


def _best(contests: Sequence[Contest]) -> str:
    """The largest advantage over the nearest other one, of fio's jobs first: `read 16 KiB: 1.7 times as fast`."""
    jobs = [one for one in contests if isinstance(one.workload, FioWorkload)] or contests
    nearest = {one: min(one.findings, key=lambda each: abs(each.lost)) for one in jobs}
    largest = max(nearest, key=lambda one: abs(nearest[one].lost))
    return f"{largest.workload.label}: {_advantage(nearest[largest]).partition(' (')[0].removesuffix(' energy')}"


def _rules(contests: Sequence[Contest]) -> str:
    with_card = any(one.with_card for one in contests)
    return (
        "Figures are geometric means over boots, with a 95 % interval of their ratio. Better: at most "
        f"{100 * _RULE.false_discoveries:g} % of what is said is false, over all figures and pairs of the run "
        f"together, whenever it stops (e-values, e-BH). Equal: a difference of {100 * _RULE.equal_within:g} % is "
        "excluded (docs/statistics.md)"
        + (". With the card: the kernel's path as measured, and the time and energy of a projected card" * with_card)
    )
