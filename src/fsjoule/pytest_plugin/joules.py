"""Joules of any block of any labgrid test: the fixture `joules` and the marker `@pytest.mark.joules(budget=...)`.

    def test_sync(target, joules):
        with joules("sync") as used:
            target.get_driver("CommandProtocol").run_check("app --sync")
        assert used.energy < 1.2 * J

With the marker a test is repeated until it is decided: it fails, passes, or is skipped as not decided. A test without a
block of its own is one block. A failure of the meter is an error, never a failure of the test.
"""

from __future__ import annotations

import copy
import os
import re
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import pytest
from _pytest import runner
from _pytest.unittest import TestCaseFunction

from fsjoule.errors import ConfigError, FsjouleError, MeasurementInvalid, MeterError
from fsjoule.host.extras import need

if TYPE_CHECKING:
    from fsjoule.model import Measurement
    from fsjoule.model.series import Series
    from fsjoule.runs.blocks import BlockHistory, BlockRun, Used
    from fsjoule.runs.held_lab import LabProfiler  # noqa: F401 - in the type of a stash's key
    from fsjoule.verdicts.blocks import BlockLimits, BlockVerdict

FIXTURE: Final = "joules"
REQUIRE: Final = "--fsjoule-require-joules"
HISTORY: Final = "--fsjoule-history"
SINCE: Final = "--fsjoule-history-since"
_RUN: Final = pytest.StashKey["BlockRun"]()
_PROFILER: Final = pytest.StashKey["LabProfiler"]()
_STATE: Final = pytest.StashKey["_MarkedTest"]()
_LIMITS: Final = pytest.StashKey["BlockLimits"]()
_NO_METER: Final = "no joules: the environment file has no meter (docs/joules.md)"
_SUITE: Final = re.compile(r"[^a-z0-9.-]+")
_LONGEST_SUITE: Final = 40
_PHASES: Final = 3  # of a test that was set up


def add_options(parser: pytest.Parser) -> None:
    group = parser.getgroup("fsjoule")
    group.addoption(REQUIRE, action="store_true", help="fail tests that use joules where there is no meter")
    group.addoption(
        HISTORY, metavar="FOLDER|INDEX", help="the history of @pytest.mark.joules(effect=...); default: --results"
    )
    group.addoption(SINCE, metavar="DATE", help="begin the history here (UTC), because more energy was accepted then")


def configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        'joules(budget="1.2 J", effect="5 %", most=10): repeat the test until its energy is sure: within the budget, '
        "and no more than the recorded history by the effect (docs/joules.md)",
    )


class Joules:
    """Measures blocks of one test: `with joules("sync") as used: ...`. A name is needed once a test has several."""

    def __init__(self, run: BlockRun, test: str, repetition: int) -> None:
        self.used: list[Used] = []
        self._run, self._test, self._repetition = run, test, repetition
        self._open = False
        self._names: set[str] = set()

    def __call__(self, name: str = "", *, idle: float | None = None) -> AbstractContextManager[Used]:
        """Measure the body. `idle` seconds before it give the idle power: 1, at least 0.5.

        Raises ConfigError for a name that was there, or a block within a block.
        """
        return self._checked(name, idle, None, 0.0)

    def _checked(
        self, name: str, idle: float | None, command: str | None, timeout_s: float
    ) -> AbstractContextManager[Used]:
        from fsjoule.runs.blocks import IDLE_S, LEAST_IDLE_S

        idle_s = IDLE_S if idle is None else idle
        if self._open:
            raise ConfigError(f"block {name!r} is inside another one", hint="the meter records one block at a time")
        if name in self._names:
            raise ConfigError(f"there are two blocks {name!r} in {self._test}", hint="give each a name")
        if not idle_s >= LEAST_IDLE_S:
            raise ConfigError(f"joules(idle={idle!r}) is too short", hint=f"at least {LEAST_IDLE_S} s")
        self._names.add(name)
        return self._measured(name, idle_s, command, timeout_s)

    def run(self, command: str, name: str = "", *, timeout: float = 30.0, idle: float | None = None) -> Used:
        """Measure a command of the board's shell between the board's own marks, if it has a mark line.

        So the energy is the command's alone, without the console's time. `result` has its output and exit code, which
        may be any. Raises as a block does, LabError after `timeout` seconds or without an open shell.
        """
        with self._checked(name, idle, command, timeout) as used:
            pass
        return used

    @contextmanager
    def _measured(self, name: str, idle_s: float, command: str | None, timeout_s: float) -> Generator[Used]:
        from fsjoule.model import BlockWorkload

        self._open = True
        try:
            workload = BlockWorkload(self._test, name)
            with self._run.measure(
                workload, repetition=self._repetition, idle_s=idle_s, command=command, timeout_s=timeout_s
            ) as used:
                yield used
            self.used.append(used)
        finally:
            self._open = False


@pytest.fixture(scope="session")
def _joules_run(request: pytest.FixtureRequest, pytestconfig: pytest.Config) -> Generator[BlockRun]:
    target: Any = request.getfixturevalue("target")
    if hasattr(pytestconfig, "workerinput"):
        raise ConfigError("joules cannot be measured by several processes at once", hint="leave xdist out: -n 0")
    need("bench", "pyarrow", "scipy")
    from fsjoule.lab.blocks import BlockTarget
    from fsjoule.pytest_plugin.options import command_of, options_of
    from fsjoule.runs.blocks import BlockRun
    from fsjoule.runs.options import DEFAULT_RESULTS

    block_target = BlockTarget(target)
    if block_target.meter is None:
        if pytestconfig.getoption(REQUIRE):
            raise ConfigError(_NO_METER, hint="add a meter's driver to it, or leave out " + REQUIRE)
        pytest.skip(_NO_METER)
    results = options_of(pytestconfig).results or Path(DEFAULT_RESULTS)
    profiler = pytestconfig.stash.get(_PROFILER, None)
    run = BlockRun(block_target, _suite_of(pytestconfig), results, command_of(pytestconfig), profiler)
    pytestconfig.stash[_RUN] = run
    yield run
    session = request.session
    stopped = session.shouldstop and not session.testsfailed
    interrupted = stopped or session.exitstatus == pytest.ExitCode.INTERRUPTED
    run.close("the tests were interrupted" if interrupted else None)


@pytest.fixture
def joules(_joules_run: BlockRun, request: pytest.FixtureRequest) -> Joules:
    """Measures blocks of this test. `used` has `energy` and `uncertainty` in J, `seconds`, `power` in W."""
    item: Any = request.node
    state = item.stash.get(_STATE, None)
    measuring = Joules(_joules_run, item.nodeid, 1 if state is None else state.repetition)
    if state is not None:
        state.joules = measuring
    return measuring


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest
) -> Generator[None, object, object]:
    """With --profile the board counts from its next power-on, which may be in any fixture that has its target."""
    made = yield
    if fixturedef.argname != "target" or _PROFILER in request.config.stash:
        return made
    if any(FIXTURE in getattr(item, "fixturenames", ()) for item in request.session.items):
        from fsjoule.pytest_plugin.options import options_of

        if options_of(request.config).profile:
            from fsjoule.lab.blocks import place_of
            from fsjoule.runs.held_lab import LabProfiler

            profiler = LabProfiler(os.environ.get("LG_COORDINATOR", ""), place_of(made))
            profiler.count_next()
            request.config.stash[_PROFILER] = profiler
    return made


def _suite_of(config: pytest.Config) -> str:
    """The project's name: that of pytest's root folder."""
    name = _SUITE.sub("-", config.rootpath.name.lower()).strip("-.")
    return name[:_LONGEST_SUITE] or "tests"


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Take the markers when every conftest.py has given its own."""
    for item in session.items:
        _take_marker(item)


def _take_marker(item: pytest.Item) -> None:
    """Let a test with the marker measure, whether it asks for the fixture or not; check the marker's words."""
    marker = item.get_closest_marker(FIXTURE)
    if marker is None:
        return
    if not isinstance(item, pytest.Function) or isinstance(item, TestCaseFunction):
        raise pytest.UsageError(f"{item.nodeid}: the marker joules is for functions and plain classes of tests")
    from fsjoule.verdicts.blocks import BlockLimits

    try:
        item.stash[_LIMITS] = BlockLimits.read(dict(marker.kwargs), marker.args)
    except ConfigError as error:
        raise pytest.UsageError(f"{item.nodeid}: {error}") from None
    if FIXTURE not in item.fixturenames:
        item.fixturenames = [*item.fixturenames, FIXTURE]  # all parameters of a function share one list


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Repeat a marked test until it is decided, its function's fixtures made anew each time. pytest hears of one."""
    limits = item.stash.get(_LIMITS, None)
    if limits is None:
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    state = item.stash[_STATE] = _MarkedTest(limits)
    one: Any = item
    call_and_report = cast("Any", runner).call_and_report
    # With the same parents and itself unequal: fixtures of the function end with each repetition, and no others.
    again = copy.copy(item)
    while True:
        if not getattr(one, "_request", None):
            one._initrequest()  # noqa: SLF001 - as pytest's own protocol does
        reports = [call_and_report(item, "setup", log=False)]
        more = False
        if reports[0].passed and not item.config.getoption("setuponly", False):
            reports.append(call_and_report(item, "call", log=False))
            more = reports[-1].passed and state.goes_on(item)
        reports.append(call_and_report(item, "teardown", log=False, nextitem=again if more else nextitem))
        one._request, one.funcargs = False, None  # noqa: SLF001
        if not more or not reports[-1].passed:
            break
        state.repetition += 1
    if len(reports) == _PHASES and reports[1].passed:
        state.tell(item, reports[1])
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """A marked test that has no block of its own is one."""
    state = pyfuncitem.stash.get(_STATE, None)
    one: Any = pyfuncitem
    takes: tuple[str, ...] = one._fixtureinfo.argnames  # noqa: SLF001 - told nowhere else
    whole = state is not None and FIXTURE not in takes
    with state.joules() if state is not None and state.joules is not None and whole else nullcontext():
        return (yield)


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A fault of the meter is an error: pytest and JUnit call what fails outside of the call so."""
    report = yield
    fault = None if call.excinfo is None else call.excinfo.value
    if FIXTURE in getattr(item, "fixturenames", ()) and isinstance(fault, (MeterError, MeasurementInvalid)):
        report.longrepr, report.when = f"the meter failed, not the test: {fault}", "setup"
    return report


class _MarkedTest:
    """A marked test while it is repeated."""

    def __init__(self, limits: BlockLimits) -> None:
        self.limits = limits
        self.repetition = 1
        self.joules: Joules | None = None
        self.verdicts: dict[str, BlockVerdict] = {}
        self._measured: dict[str, list[Measurement]] = {}
        self._history: dict[Series, BlockHistory] = {}
        self.fault: FsjouleError | None = None

    def goes_on(self, item: pytest.Item) -> bool:
        """Judge what the test's last call has measured; whether another repetition may decide."""
        used = [] if self.joules is None else self.joules.used
        self.joules = None
        try:
            if not used:
                raise ConfigError(f"{item.nodeid} has the marker joules, and measured no block")
            for each in used:
                self._add(each)
            self.verdicts = {name: self._judged(item, several) for name, several in self._measured.items()}
        except FsjouleError as error:
            self.fault = error
            return False
        decided = any(each.outcome == "regressed" for each in self.verdicts.values())
        return not decided and any(each.more for each in self.verdicts.values())

    def _add(self, used: Used) -> None:
        """Raises MeterError if the meter gave nothing, MeasurementInvalid if no repetition at all was valid."""
        try:
            _ = used.energy
        except MeasurementInvalid:
            # An invalid repetition is repeated, the last one is not.
            earlier = self._measured.get(used.name, [])
            if self.repetition >= self.limits.most and not any(each.valid for each in earlier):
                raise
        assert used.measurement is not None, "it has ended"
        self._measured.setdefault(used.name, []).append(used.measurement)

    def _judged(self, item: pytest.Item, several: list[Measurement]) -> BlockVerdict:
        from fsjoule.model.series import Series, utc_named
        from fsjoule.runs.blocks import BlockHistory, energies_of
        from fsjoule.verdicts.blocks import judge_block

        newest = several[-1]
        run = item.config.stash[_RUN]
        series = Series(newest.series, newest.simulated)
        if series not in self._history:
            self._history[series] = BlockHistory()
            if self.limits.effect is not None:
                location = item.config.getoption(HISTORY) or str(run.results)
                since = utc_named(SINCE, item.config.getoption(SINCE))
                self._history[series] = run.history(series, location, since)
        history = self._history[series]
        gross = [m.energy.gross_mj for m in several if m.energy and m.valid]
        shares = [each.uncertainty / each.value for each in gross if each.value > 0]
        return judge_block(
            energies_of(several),
            len(several),
            max(shares, default=0.0),
            self.limits,
            history=history.boots,
            runs=history.runs,
            blocks=len(self._measured),
        )

    def tell(self, item: pytest.Item, report: pytest.TestReport) -> None:
        """Put the verdict into the report of the test's call."""
        if self.fault is not None:
            report.outcome, report.longrepr = "failed", f"the meter failed, not the test: {self.fault}"
            report.when = "setup"
            return
        from fsjoule.statistics.outcome import Outcome

        texts = [f"{name} {verdict.text}" for name, verdict in self.verdicts.items()]
        report.sections.append(("joules", "\n".join(texts)))
        outcomes = [each.outcome for each in self.verdicts.values()]
        wrong = [text for text, outcome in zip(texts, outcomes, strict=True) if outcome is not Outcome.NOT_REGRESSED]
        if Outcome.REGRESSED in outcomes:
            report.outcome, report.longrepr = "failed", "\n".join(wrong)
        elif Outcome.UNDECIDED in outcomes:
            path, line, _ = item.location
            report.outcome, report.longrepr = "skipped", (str(path), line or 0, f"not decided: {'; '.join(wrong)}")


def conclude(terminalreporter: Any, config: pytest.Config) -> None:  # noqa: ANN401 - pytest's
    """A line for each series of blocks, and where they are."""
    run = config.stash.get(_RUN, None)
    if run is None or run.folder is None:
        return
    from fsjoule.report.oneline import one_line

    terminalreporter.section("joules")
    for measurement in run.measurements:
        terminalreporter.write_line(one_line(measurement))
    terminalreporter.write_line(f"results: {run.folder} (fsjoule show, compare, trend, report)")
