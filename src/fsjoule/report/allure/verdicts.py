"""A gate's answer, as it stands in its run folder, as Allure's tests: one for each figure that it judged."""

from __future__ import annotations

import shlex
from typing import Final

from pydantic import ConfigDict, TypeAdapter
from pydantic.dataclasses import dataclass

from fsjoule.errors import ResultError
from fsjoule.report.allure.documents import Result, Status
from fsjoule.report.allure.tests import milliseconds, uuid_of
from fsjoule.report.allure.words import REGRESSION, UNDECIDED
from fsjoule.statistics.gate import Decision
from fsjoule.store.documents import parse
from fsjoule.store.folder import GATE_FILE
from fsjoule.store.reader import LoadedRun
from fsjoule.store.schemas import reader_of

# More may be told in it than is shown here.
_CONFIG: Final = ConfigDict(extra="ignore", allow_inf_nan=False)


@dataclass(frozen=True, config=_CONFIG)
class _Series:
    key: str
    board: str
    filesystem: str
    suite: str
    simulated: bool


@dataclass(frozen=True, config=_CONFIG)
class _Tested:
    series: _Series
    label: str
    metric: str
    unit: str
    decision: Decision
    pairs: int
    ratio: float | None
    interval: tuple[float, float] | None
    baseline: float | None
    candidate: float | None
    smallest_effect: float


@dataclass(frozen=True, config=_CONFIG)
class _Side:
    name: str
    title: str


@dataclass(frozen=True, config=_CONFIG)
class _Gate:
    headline: str
    baseline: _Side
    candidate: _Side
    tests: tuple[_Tested, ...]
    command: tuple[str, ...]


_GATE: Final = reader_of(TypeAdapter(_Gate))


def gate_tests(loaded: LoadedRun) -> list[Result]:
    """The tests of a gate that this run was measured for; none, if it was not. Raises ResultError if damaged."""
    content = loaded.document(GATE_FILE)
    if content is None:
        return []
    try:
        gate: _Gate = _GATE.validate_json(parse(content)[1])
    except ValueError as error:
        raise ResultError(f"{GATE_FILE} cannot be read: {str(error).splitlines()[0]}") from error
    return [_test(loaded, gate, tested) for tested in gate.tests]


_STATUS: Final = {
    Decision.REGRESSED: Status.FAILED,
    Decision.NOT_REGRESSED: Status.PASSED,
    Decision.UNDECIDED: Status.SKIPPED,
}


def _test(loaded: LoadedRun, gate: _Gate, tested: _Tested) -> Result:
    run, series = loaded.run, tested.series
    told = _told(gate, tested)
    message = {
        Decision.REGRESSED: f"{REGRESSION}: {told}",
        Decision.UNDECIDED: f"{UNDECIDED}: {told}",
    }.get(tested.decision, "")
    start_ms = milliseconds(run.started_utc)
    return Result(
        uuid=uuid_of(run, f"gate-{series.key}-{tested.metric}"),
        identity=f"{series.board}/gate/{series.key}/{tested.metric}",
        name=f"gate: {tested.label}, {tested.metric}",
        status=_STATUS[tested.decision],
        start_ms=start_ms,
        stop_ms=milliseconds(run.finished_utc) if run.finished_utc else start_ms,
        labels=(
            ("board", series.board),
            ("kernel", gate.candidate.name),
            ("filesystem", series.filesystem),
            ("suite", "gate"),
            ("framework", "fsjoule"),
            *((("tag", "simulated"),) if series.simulated else ()),
        ),
        message=message,
        description=_description(gate, told),
        about=(("baseline", gate.baseline.name), ("candidate", gate.candidate.name), ("run", run.run_id)),
    )


def _description(gate: _Gate, told: str) -> str:
    sides = f"- baseline: {gate.baseline.title}\n- candidate: {gate.candidate.title}"
    again = f"\n\nTo repeat it:\n\n    {shlex.join(gate.command)}" if gate.command else ""
    return f"{gate.headline}\n\n- {told}\n{sides}{again}\n"


def _told(gate: _Gate, tested: _Tested) -> str:
    """`ext4 write-16k throughput 8.21 MiB/s against 9.12 MiB/s, -10.0 % (-11.0 to -9.1 %) in 5 pairs of boots`."""
    figures = " against ".join(
        f"{figure:.4g} {tested.unit}".strip() for figure in (tested.candidate, tested.baseline) if figure is not None
    )
    change = "" if tested.ratio is None else f", {_percent(tested.ratio)}"
    if tested.interval is not None:
        change += f" (95 %: {_percent(tested.interval[0])} to {_percent(tested.interval[1])})"
    simulated = " (simulated)" if tested.series.simulated else ""
    sides = f"{gate.candidate.name} against {gate.baseline.name}"
    what = f"{tested.label}, {tested.metric}{simulated}"
    return (
        f"{what}: {figures or 'no figures'}{change}, {tested.pairs} pairs of boots; {sides}; "
        f"what matters is {100 * tested.smallest_effect:g} %"
    )


def _percent(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.1f} %"
