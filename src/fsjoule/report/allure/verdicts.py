"""The gate's answer in a run folder as Allure's tests: one per figure."""

from __future__ import annotations

from typing import Final

from fsjoule.model.labels import counted
from fsjoule.report.allure.documents import REGRESSION, UNDECIDED, AllureStatus, Result
from fsjoule.report.allure.tests import milliseconds, uuid_of
from fsjoule.report.findings import figure_text
from fsjoule.report.gate import command, headline
from fsjoule.report.markdown import named_list, plain
from fsjoule.report.numbers import advantage_text
from fsjoule.statistics.outcome import Outcome
from fsjoule.store.gate import Gated, Tested, gate_of
from fsjoule.store.reader import LoadedRun

_STATUS: Final = {Outcome.REGRESSED: AllureStatus.FAILED, Outcome.UNDECIDED: AllureStatus.SKIPPED}
_BEGINNING: Final = {Outcome.REGRESSED: REGRESSION, Outcome.UNDECIDED: UNDECIDED}


def gate_tests(loaded: LoadedRun) -> list[Result]:
    """The tests of the gate that measured this run; empty if no gate did. Raises ResultError if damaged."""
    gated = gate_of(loaded)
    return [] if gated is None else [_test(loaded, gated, one) for one in gated.findings]


def _test(loaded: LoadedRun, gated: Gated, one: Tested) -> Result:
    run, subject = loaded.run, one.subject
    told = _told(gated, one)
    start_ms = milliseconds(run.started_utc)
    return Result(
        uuid=uuid_of(run, f"gate-{subject.key}-{one.metric}"),
        identity=f"{subject.series.board}/gate/{subject.key}/{one.metric}",
        name=f"gate: {subject.label}, {one.metric}",
        status=_STATUS.get(one.outcome, AllureStatus.PASSED),
        start_ms=start_ms,
        stop_ms=milliseconds(run.finished_utc) if run.finished_utc else start_ms,
        labels=(
            ("board", subject.series.board),
            ("kernel", gated.candidate.name),
            ("filesystem", subject.series.filesystem),
            ("suite", "gate"),
            ("framework", "fsjoule"),
            *((("tag", "simulated"),) if subject.simulated else ()),
        ),
        message=f"{_BEGINNING[one.outcome]}: {told}" if one.outcome in _BEGINNING else "",
        description=_description(gated, told),
        about=(("baseline", gated.baseline.name), ("candidate", gated.candidate.name), ("run", run.run_id)),
    )


def _description(gated: Gated, told: str) -> str:
    sides = "\n".join(named_list([("baseline", gated.baseline.title), ("candidate", gated.candidate.title)]))
    again = f"\n\nTo repeat it:\n\n    {command(gated)}" if gated.command else ""
    return f"{plain(headline(gated))}\n\n- {plain(told)}\n{sides}{again}\n"


def _told(gated: Gated, one: Tested) -> str:
    """`ext4 write-16k, throughput: 10.0 % slower (95 %: 9.1 to 11.0 %), 8.21 MiB/s against 9.12 MiB/s, 5 pairs`."""
    known = [figure for figure in (one.candidate, one.baseline) if figure is not None]
    figures = " against ".join(f"{figure_text(figure)} {one.metric.unit}".strip() for figure in known)
    change = "" if one.ratio is None else advantage_text(one.metric, one.ratio, one.interval)
    simulated = " (simulated)" if one.subject.simulated else ""
    told = ", ".join(filter(None, (change, figures))) or "no figures"
    return (
        f"{one.subject.label}, {one.metric}{simulated}: {told}, {counted(one.basis.pairs, 'pair')} of boots; "
        f"{gated.candidate.name} against {gated.baseline.name}; what matters is {100 * one.matters:g} %"
    )
