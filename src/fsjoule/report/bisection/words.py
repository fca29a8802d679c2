"""The words and the tables of a bisection, for text and page alike."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Final

import numpy as np

from fsjoule.model.labels import counted
from fsjoule.report.numbers import hidden_text
from fsjoule.report.table import Cell, Column, Table, Tone
from fsjoule.statistics.bisection.answer import AnswerKind, BisectionAnswer, Standing
from fsjoule.statistics.bisection.forecast import Forecast
from fsjoule.statistics.bisection.posterior import gathered, possible_positions
from fsjoule.statistics.outcome import Confirmed
from fsjoule.statistics.ratios import Floats
from fsjoule.verdicts.bisection.answer import Bisected, CulpritChange
from fsjoule.verdicts.bisection.figures import metric_of
from fsjoule.verdicts.bisection.state import BisectionState

_MOST = 10
_MATTERS = 0.05
SHORT: Final = 12
_LITTLE: Final = 0.001
_NEIGHBOURS: Final = 2
_LEAST_EFFECT: Final = 0.1  # percent, the least that can be asked for


def lead(state: BisectionState, answer: Bisected | None, standing: Standing) -> str:
    """The answer in a line, or how far the search is."""
    if answer is None:
        likely = f"{short(state.commit(standing.bad))} {subject(state, state.commit(standing.bad))}".strip()
        return (
            f"not answered yet: {counted(len(state.booted), 'boot')} of at most {state.asked.budget}; "
            f"most probable ({100 * standing.probability:.0f} %): {likely}"
        )
    return headline(state, answer)


def headline(state: BisectionState, answer: Bisected) -> str:
    """The answer in a line."""
    match answer.kind:
        case AnswerKind.CULPRIT:
            return f"first bad commit: {named(state, answer.commits[0])}"
        case AnswerKind.SET:
            return f"the first bad commit is one of {len(answer.commits)}, between which no kernel could be measured"
        case AnswerKind.NO_REGRESSION:
            return f"no regression in this range{_why_none(answer)}"
        case AnswerKind.UNDECIDED:
            if answer.hidden_by is not None:
                return f"not decided: {hidden_text(answer.hidden_by)}; measure longer jobs"
            return f"not decided within the budget of {counted(answer.boots, 'boot')}"
        case AnswerKind.UNTESTABLE:
            return "cannot be tested: an end of the range does not build, boot or do its work"


def facts(state: BisectionState, answer: Bisected | None) -> Iterator[tuple[str, str]]:
    """The answer's grounds, by name, and its cost."""
    if answer is None:
        return
    if answer.kind is AnswerKind.SET:
        yield from (("one of", named(state, commit)) for commit in answer.commits)
    name = "ends" if answer.kind is AnswerKind.NO_REGRESSION and answer.layout is None else "change"
    for change in answer.changes:
        yield name, f"{change.figure}: {change.words} (95 %: {bounds(change)})"
    if answer.kind is AnswerKind.NO_REGRESSION and (least := _smaller_loss(answer)):
        yield (
            "smaller",
            f"they differ by less than was asked for: --effect {least:.1f}% and another --state find it",
        )
    if answer.kind is AnswerKind.NO_REGRESSION:
        yield from _between(state, answer)
    if answer.kind in {AnswerKind.CULPRIT, AnswerKind.SET}:
        sure = "more than 99.9" if answer.error < _LITTLE else f"{100 * (1 - answer.error):.1f}"
        yield "sure", f"{sure} %; the last good commit measured is {named(state, answer.parent)}"
    if answer.kind is AnswerKind.CULPRIT:
        yield "introduces", "yes: fresh boots of the commit and of its parent, in turn"
        end = "the merge that it lies in" if state.line.inside else "the bad end"
        yield "cures", _CURE[answer.cure].format(end=end)
        yield "layout", _LAYOUT[answer.layout]
        if any(line.scanned for line in state.lines):
            yield "cured", f"later: {named(state, state.lines[0].commits[-1])}, the bad end, has not the loss"
    if answer.second is not None:
        other = answer.second
        way = "gain" if other.gain else "loss"
        where = f"after {short(other.parent)}, up to {named(state, other.commit)} ({100 * other.probability:.0f} %)"
        yield "besides", f"another {way} {where}: {', '.join(each.words for each in other.changes)}"
    yield "cost", cost(answer)


def question(state: BisectionState) -> Iterator[tuple[str, str]]:
    """The question, by name."""
    asked = state.asked
    yield "good", ", ".join(short(each) for each in asked.good)
    yield "bad", ", ".join(short(each) for each in asked.bad)
    yield "range", counted(len(state.lines[0].commits) - 1, "commit")
    yield (
        "measured",
        f"suite {asked.suite} on {asked.board}, {', '.join(asked.filesystems)}: {', '.join(asked.figures)}",
    )
    yield "loss", ", ".join(f"{metric.value} by {100 * effect:g} % or more" for metric, effect in asked.effects.items())
    yield "seed", str(asked.seed)


def forecast_line(state: BisectionState, forecast: Forecast) -> str:
    """The forecast cost; in hours too, once a boot's time is known."""
    each_s = sum(boot.seconds for boot in state.booted) / len(state.booted) if state.booted else 0.0
    hours = f", {_time(forecast.boots * each_s)} of the board's time" if each_s else ""
    return (
        f"a loss of just the size that matters takes about {forecast.boots:.0f} boots (80 %: {forecast.low:.0f} to "
        f"{forecast.high:.0f}) and {forecast.builds:.0f} builds{hours}"
    )


def cost(answer: Bisected) -> str:
    """The cost so far."""
    waited = f"; the board waited {_time(answer.waited_s)} for builds" if answer.waited_s else ""
    return (
        f"{counted(answer.boots, 'boot')} in {_time(answer.boot_s)}, {counted(answer.builds, 'build')} in "
        f"{_time(answer.build_s)}{waited}"
    )


def bounds(change: CulpritChange) -> str:
    """The interval of a change in the direction of its words: `4.1 to 5.6 %`, for `4.9 % slower`."""
    direction = 1 if change.ratio >= 1 else -1
    low, high = sorted(100 * direction * (bound - 1) for bound in (change.low, change.high))
    return f"{low:.1f} to {high:.1f} %"


def named(state: BisectionState, commit: str) -> str:
    """A commit by the short hash of what the user has, and its subject."""
    return f"{short(state.added(commit))} {subject(state, commit)}".strip()


def subject(state: BisectionState, commit: str) -> str:
    """The first line of its message."""
    return state.told(commit, "subjects")


def short(commit: str) -> str:
    return commit[:SHORT]


def standing_of(state: BisectionState) -> tuple[Standing, BisectionAnswer | None]:
    """Where the search stands, and its answer if there is one."""
    step = state.step()
    return step.standing, step if isinstance(step, BisectionAnswer) else None


_CURE = {
    Confirmed.CONFIRMED: "yes: {end} without it has not the loss",
    Confirmed.REFUTED: "no: {end} without it has the loss, too",
    Confirmed.UNDECIDED: "not decided",
    None: "not tried: the revert does not apply, build or boot",
}
_LAYOUT = {
    Confirmed.CONFIRMED: "the loss is there with forced alignment of functions: it is the code, not where it lies",
    Confirmed.REFUTED: "the loss goes with forced alignment of functions",
    Confirmed.UNDECIDED: "not decided with forced alignment of functions",
    None: "not tried with forced alignment of functions",
}


def _why_none(answer: Bisected) -> str:
    if answer.layout is Confirmed.REFUTED:
        return ": the loss goes when functions are aligned, so only their layout has changed"
    return ": the bad end is better than the good one" if answer.swapped else ""


def _between(state: BisectionState, answer: Bisected) -> Iterator[tuple[str, str]]:
    """The findings on commits between equal ends."""
    if answer.between is not None:
        clear, undecided = answer.between.clear, answer.between.undecided
        if clear:
            yield "between", f"{counted(len(clear), 'commit')} as good as the ends: {', '.join(map(short, clear))}"
        if undecided:
            yield "between", f"not decided: {', '.join(map(short, undecided))}"
        yield "unseen", "a loss and its cure between two neighbours of these"
    elif state.line.scanned:
        yield "between", "a scan found the end of these commits worse, which fresh boots do not show"
    elif answer.layout is None and not answer.swapped and len(state.line.commits) > _NEIGHBOURS:
        yield "between", "not looked at: a loss and its cure would cancel; --scan N looks at N commits"


def _smaller_loss(answer: Bisected) -> float:
    """The largest loss that the ends show, in percent, if there is one that can be asked for; 0 without."""
    if answer.layout is not None or answer.swapped:
        return 0.0
    found = max((100 * abs(change.ratio - 1) for change in answer.changes if change.is_loss), default=0.0)
    return found if found >= _LEAST_EFFECT else 0.0


def _time(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))


def first_bad(state: BisectionState) -> Floats:
    """How probable it is that each position is the first bad one, shape (positions,); even before the first boot."""
    question, evidence = state.question(), state.evidence()
    if not state.booted:
        return np.full(question.positions, 1 / question.positions)
    return gathered(question, evidence).posterior(possible_positions(question, evidence.pools)).first_bad


def commit_table(state: BisectionState, probable: Floats, *, everything: bool = False) -> Table:
    """The ends and the most probable commits in their order, or all of them: what was done with each."""
    skipped = {each.kernel.commit: each for each in state.skipped if each.kernel.is_plain}
    last = len(probable) - 1
    shown = set(range(last + 1) if everything else (0, last, *np.argsort(-probable)[:_MOST].tolist()))
    rows: list[tuple[Cell, ...]] = []
    for position in sorted(shown):
        commit = state.commit(position)
        boots = sum(each.kernel.commit == commit for each in state.booted)
        note = f"{skipped[commit].stage} failed: {skipped[commit].why}" if commit in skipped else ""
        tone = Tone.BAD if probable[position] >= _MATTERS else Tone.PLAIN
        rows.append(
            (
                Cell(str(position)),
                Cell(short(state.added(commit))),
                Cell(f"{100 * probable[position]:.1f}" if position else "", tone=tone),
                Cell(str(boots) if boots else ""),
                Cell(note or subject(state, commit), tone=Tone.DOUBT if note else Tone.PLAIN),
            )
        )
    columns = (
        Column("position", head=True),
        Column("commit", is_figure=False, head=True),
        Column("first bad", "%"),
        Column("boots"),
        Column("subject", is_figure=False),
    )
    rest = last + 1 - len(shown)
    title = f"Commits, oldest first{f'; {rest} less probable ones are left out (--all)' if rest else ''}"
    return Table(title, state.asked.simulated, columns, tuple(rows))


def boot_table(state: BisectionState) -> Table:
    """All boots in their order."""
    figures = state.asked.figures
    rows = [
        (
            Cell(str(boot.number)),
            Cell(short(state.added(boot.kernel.commit))),
            Cell("without the culprit" if boot.kernel.without else "aligned" if boot.kernel.aligned else ""),
            Cell(boot.purpose.value),
            *(Cell("-" if (value := boot.figures.get(name)) is None else f"{value:.4g}") for name in figures),
            Cell(boot.run_id),
        )
        for boot in state.booted
    ]
    columns = (
        Column("boot", head=True),
        Column("commit", is_figure=False, head=True),
        Column("variant", is_figure=False),
        Column("purpose", is_figure=False),
        *(Column(name, metric_of(name).unit) for name in figures),
        Column("run", is_figure=False, optional=True),
    )
    return Table("Boots", state.asked.simulated, columns, tuple(rows))
