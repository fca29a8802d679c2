"""fsjoule's options and fixtures for pytest, on top of labgrid's own (`--lg-env`, `target`, `strategy`).

It is a guest in each pytest of its Python, and does nothing unless a bench is asked for: by `fsjoule bench`, by the
folder of the main job (tests/bench), or by a collected test that uses `bench` or `planned`. Until then it imports no
room that imports labgrid, because fsjoule's drivers would take the names of other people's.

Fixtures: `bench` (the run), `meter`, `planned` (one entry of the plan; a test that uses it runs once per entry),
`booted_board` (the shell of the board booted for the entry), `provisioned` (an empty directory on its filesystem),
`measurement` (the entry measured and stored).

For: a bench in pytest: `options`, which collide with nobody's, `output` instead of pytest's, `exit_code` by cause.
Called by: pytest.
May call: all rooms but `cli`.
"""

from __future__ import annotations

import logging
import os
import shutil
import sys
from collections.abc import Callable, Generator
from contextlib import ExitStack, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from fsjoule.errors import ConfigError, FsjouleError, InfrastructureError, LabError, Part
from fsjoule.host import interrupts
from fsjoule.host.extras import need
from fsjoule.host.limits import of_system
from fsjoule.host.messages import lines_to
from fsjoule.host.paths import environment_file
from fsjoule.pytest_plugin import joules
from fsjoule.pytest_plugin.exit_code import OUTPUT, ExitCode, code_of, ending, entry_name, forgive_leaks
from fsjoule.pytest_plugin.options import add_options, asks_for_bench, command_of, options_of, typed_bench

if TYPE_CHECKING:
    from fsjoule import lab
    from fsjoule.bench.run import Bench, BoardBench
    from fsjoule.model import Measurement, Plan, Planned  # noqa: F401 - in the type of a stash's key
    from fsjoule.ports import Meter, Shell
    from fsjoule.runs.held_lab import HeldLab  # noqa: F401 - in the type of a stash's key
    from fsjoule.runs.open_run import OpenRun, ReadyRun  # noqa: F401 - in the type of a stash's key
    from fsjoule.runs.plan import RunPlan
    from fsjoule.runs.request import RunRequest

_log: Final = logging.getLogger(__name__)

_FAILURES_IN_A_ROW: Final = 2
# How far a bench has come, step by step.
_HELD: Final = pytest.StashKey["HeldLab"]()
_RUN_PLAN: Final = pytest.StashKey["RunPlan"]()
_READY: Final = pytest.StashKey["ReadyRun"]()
_RUN: Final = pytest.StashKey["OpenRun"]()
_PLAN: Final = pytest.StashKey["Plan"]()
_SELECTED: Final = pytest.StashKey[bool]()
# Why a bench that a collected test asks for cannot begin; None if it has begun.
_ASKED: Final = pytest.StashKey[FsjouleError | None]()
# Errors of measurements that were told: what a card that does not boot costs further entries is the same.
_TOLD: Final = pytest.StashKey[list[FsjouleError]]()
_NO_BOARD: Final = "measuring needs a board: add --lg-env env/virtual.yaml"
_PLACE: Final = "LG_PLACE"
_OPEN: Final = "not-chosen-yet"


def pytest_addoption(parser: pytest.Parser) -> None:
    add_options(parser)
    joules.add_options(parser)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> Generator[None, int | pytest.ExitCode, int | pytest.ExitCode]:
    """End a bench with one exit code per cause."""
    return (yield from ending(config)) if _is_bench(config) else (yield)


def _is_bench(config: pytest.Config) -> bool:
    """Whether the command line asks for a bench. A collected test that does is not known yet."""
    return asks_for_bench(config) and not config.option.help


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Begin a bench that the command line asks for, before labgrid reads the environment file."""
    joules.configure(config)
    config.pluginmanager.register(joules, "fsjoule-joules")
    if named := getattr(config.option, "lg_env", None):
        config.option.lg_env = str(environment_file(Path(named)))
    if not _is_bench(config):
        _leave_place_open(config)
        return
    config.pluginmanager.register(ExitCode(), ExitCode.NAME)
    if typed_bench(config) and config.option.verbose <= 0:
        config.pluginmanager.set_blocked("terminalreporter")
        config.pluginmanager.register(Lines(_printer(config), lambda: _conclude(config)))
    try:
        _begin(config, _environment(config))
        if config.option.collectonly:
            # labgrid hears of no board, because its place may not exist.
            config.option.lg_env = None
            os.environ.pop("LG_ENV", None)
        else:
            from fsjoule.lab import let_labgrid_run

            let_labgrid_run(config.stash[_RUN_PLAN].environment.imports)
    except FsjouleError as error:
        raise pytest.UsageError(error) from None
    except KeyboardInterrupt as interrupt:
        pytest.exit(str(interrupt))


def _environment(config: pytest.Config) -> str | None:
    return getattr(config.option, "lg_env", None) or os.environ.get("LG_ENV")


def _leave_place_open(config: pytest.Config) -> None:
    """Let labgrid read a file whose place a bench finds after the collection, if a collected test asks for one."""
    file = _environment(config)
    if file is None or _PLACE in os.environ:
        return
    with suppress(OSError):
        if options_of(config).place_tag or "fsjoule_virtual_lab" in Path(file).read_text(errors="replace"):
            os.environ[_PLACE] = _OPEN
            config.add_cleanup(_forget_open_place)


def _forget_open_place() -> None:
    if os.environ.get(_PLACE) == _OPEN:
        del os.environ[_PLACE]


def _begin(config: pytest.Config, file: str | None) -> None:
    """Check every choice, find the place and make the plan. Raises ConfigError, LabError."""
    if file is None:
        raise ConfigError(_NO_BOARD)
    need("bench", "pyarrow", "scipy")
    if config.option.collectonly:
        from fsjoule.runs.plan import plan_of

        environment, request = _asked(config, file)
        config.stash[_PLAN] = plan_of(request, environment.profile, request.kernels)
        return
    forgive_leaks(config)
    # After any signal the board is off, the place released and the run folder final; the exit code tells the signal.
    interrupts.install()
    config.add_cleanup(lambda: _end_by_signal(config))
    lines = ExitStack()
    lines.enter_context(lines_to(_printer(config)))
    config.add_cleanup(lines.close)
    from fsjoule.runs.held_lab import HeldLab
    from fsjoule.runs.plan import plan_run

    environment, request = _asked(config, file)
    held = HeldLab(environment, config.option.lg_coordinator)
    config.add_cleanup(held.close)
    plan = plan_run(request, held, command_of(config))
    config.stash[_HELD], config.stash[_RUN_PLAN], config.stash[_PLAN] = held, plan, plan.plan
    if not options_of(config).allow_missing_energy:
        exit_code: Any = config.pluginmanager.getplugin(ExitCode.NAME)
        exit_code.lost_energy = lambda: config.stash[_RUN].lost_energy() if _RUN in config.stash else ""
    tell_allure(config, lambda: config.stash[_RUN].folder if _RUN in config.stash else None)


def tell_allure(config: pytest.Config, folder: Callable[[], Path | None]) -> None:
    """With --alluredir, make allure-pytest's results equal to the run folder's."""
    if getattr(config.option, "allure_report_dir", None) is not None:
        from fsjoule.report.allure.listener import Listener  # allure-pytest need not be installed

        Listener(folder).listen(config)


def _asked(config: pytest.Config, file: str) -> tuple[lab.EnvironmentFile, RunRequest]:
    """The environment file with its options, and the request. Raises ConfigError."""
    from fsjoule import lab
    from fsjoule.runs.request import choose

    option = options_of(config)
    environment = lab.read_environment(Path(file), option.place_request())
    request = choose(option, environment)
    if request.resumed is not None and not request.pooled:
        environment = request.resumed.where_it_began(environment)
    return environment, request


def _end_by_signal(config: pytest.Config) -> None:
    """The last clean-up: give the signals back to Python."""
    interrupts.restore()
    code = interrupts.exit_code()
    session: Any = config.pluginmanager.getplugin("session")
    if code is not None and session is not None:
        session.exitstatus = code


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if not _uses(metafunc, "planned"):
        if _uses(metafunc, "bench"):
            _ask(metafunc.config)
        return
    _ask(metafunc.config)
    plan = metafunc.config.stash.get(_PLAN, None)
    if plan is None:
        metafunc.parametrize("planned", [pytest.param(None, marks=pytest.mark.skip(reason=_NO_BOARD))], indirect=True)
    else:
        metafunc.parametrize("planned", plan.entries, ids=list(map(plan.test_id, plan.entries)), indirect=True)


def _uses(metafunc: pytest.Metafunc, name: str) -> bool:
    """Whether a test uses this fixture, and not another one of the same name."""
    definition: Any = metafunc.definition
    definitions = definition._fixtureinfo.name2fixturedefs.get(name)  # noqa: SLF001 - told nowhere else
    return bool(definitions) and definitions[-1].func.__module__ == __name__


def _ask(config: pytest.Config) -> None:
    """Begin the bench that a collected test asks for, unless it has begun. Without a board the test is skipped."""
    file = _environment(config)
    if _ASKED in config.stash or _PLAN in config.stash or file is None:
        return
    config.stash[_ASKED] = None
    config.pluginmanager.register(ExitCode(), ExitCode.NAME)
    _forget_open_place()
    try:
        _begin(config, file)
    except FsjouleError as error:
        config.stash[_ASKED] = error
    else:
        if _RUN_PLAN in config.stash:
            from fsjoule.lab import read_again

            read_again(config)  # labgrid has read the file before the place was found


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Cut an interrupt's traceback: pytest fails on frames without a line, which Python 3.11 can produce."""
    try:
        if _RUN_PLAN in item.config.stash:
            interrupts.check()
        return (yield)
    except KeyboardInterrupt:
        if _RUN_PLAN in item.config.stash:
            raise KeyboardInterrupt from None
        raise


@pytest.hookimpl(specname="pytest_runtest_protocol", tryfirst=True)
def pytest_runtest_protocol_if_wanted(item: pytest.Item) -> bool | None:
    """Pass over entries of repetitions that the run's statements do not need; pytest does not hear of them."""
    plan, entry = item.config.stash.get(_RUN_PLAN, None), _entry(item)
    if plan is None or entry is None:
        return None
    run = item.config.stash.get(_RUN, None)
    return None if (entry.repetition <= plan.until if run is None else run.wants(entry)) else True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Signals interrupt a test anywhere, but pytest and fixtures around it only where they allow it."""
    with interrupts.interruptible() if _RUN_PLAN in item.config.stash else nullcontext():
        return (yield)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Note whether something is selected. pytest also finishes a collection whose -k it could not read."""
    config.stash[_SELECTED] = bool(items)


def pytest_collection_finish(session: pytest.Session) -> None:
    if (error := session.config.stash.get(_ASKED, None)) is not None:
        pytest.exit(str(error), returncode=error.exit_code)
    plan = session.config.stash.get(_RUN_PLAN, None)
    if plan is not None:
        broken = session.testsfailed and not session.config.option.continue_on_collection_errors
        if session.config.stash.get(_SELECTED, False) and not broken:
            _start(plan, session)


def _start(plan: RunPlan, collected: pytest.Session) -> None:
    """Build the cards and bring a virtual lab up, now that something is selected."""
    from fsjoule import lab
    from fsjoule.runs.open_run import make_ready

    config = collected.config
    try:
        plan = plan.selecting(entry.number for item in collected.items if (entry := _entry(item)) is not None)
        config.stash[_READY] = make_ready(plan, config.stash[_HELD])
        lab.ask_with(config, partial(_by_hand, config))
        if plan.environment.wanted.tags:
            lab.read_again(config)
    except FsjouleError as error:
        # pytest would frame the message with exclamation marks, hint and all.
        _printer(config)(f"ERROR: {error}")
        pytest.exit("nothing was measured", returncode=error.exit_code)
    except KeyboardInterrupt:
        raise KeyboardInterrupt from None


def pytest_sessionstart(session: pytest.Session) -> None:
    reporter: Any = session.config.pluginmanager.getplugin("terminalreporter")
    if _is_bench(session.config) and reporter is not None and session.config.option.verbose <= 0:
        reporter.showfspath = False


@pytest.hookimpl(tryfirst=True)
def pytest_report_teststatus(
    report: pytest.CollectReport | pytest.TestReport, config: pytest.Config
) -> tuple[str, str, str] | None:
    """No letter of pytest's: each measurement already has its own line."""
    if not _is_bench(config) or config.option.verbose > 0:
        return None
    if report.when == "call":
        return report.outcome, "", report.outcome.upper()
    return ("error", "", "ERROR") if report.failed else None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    call: pytest.CallInfo[None],
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A cause and what to do, instead of a traceback through fsjoule."""
    report = yield
    if call.excinfo is not None and isinstance(call.excinfo.value, FsjouleError):
        report.longrepr = str(call.excinfo.value)
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    joules.conclude(terminalreporter, config)
    _conclude(config)


def _conclude(config: pytest.Config) -> None:
    """Print what a bench has measured, and how to go on."""
    run = config.stash.get(_RUN, None)
    if run is not None:
        from fsjoule.host.terminal import PlainConsole

        write = _printer(config)
        write("")
        output: Any = config.stash.get(OUTPUT, None)
        console = PlainConsole(width=shutil.get_terminal_size((120, 40)).columns, file=output)
        run.show(console, wide=options_of(config).wide)
        if (command := run.resuming) is not None:
            write(f"to measure the rest: {command}")


@pytest.fixture(scope="session")
def bench(request: pytest.FixtureRequest, pytestconfig: pytest.Config) -> Generator[Bench]:
    """The run: images built, place acquired, run folder open. The board is off and the place free afterwards."""
    ready = pytestconfig.stash.get(_READY, None)
    if ready is None:
        # As labgrid does without --lg-env: a suite runs where there is no board, too. `fsjoule bench` refuses instead.
        pytest.skip(_NO_BOARD)
    from fsjoule.ci.lava.signals import signals_of
    from fsjoule.runs.open_run import open_run

    target = partial(_target, request, ready.plan.environment)
    with ExitStack() as closing:
        try:
            run = closing.enter_context(open_run(ready, find_target=target, observer=signals_of(os.environ)))
        except FsjouleError as error:
            pytest.exit(str(error), returncode=error.exit_code)
        except (OSError, MemoryError, RuntimeError) as error:
            if (known := of_system(error)) is None:
                raise
            pytest.exit(str(known), returncode=known.exit_code)
        pytestconfig.stash[_RUN] = run
        yield run.bench
        if request.session.shouldstop:
            run.stop(str(request.session.shouldstop))


def _target(request: pytest.FixtureRequest, file: lab.EnvironmentFile, closing: ExitStack) -> Any:  # noqa: ANN401 - labgrid is fsjoule.lab's
    """The board's target. labgrid's fixture knows only `main`, and makes all the others of the file, too."""
    from fsjoule import lab

    try:
        with lab.lab_errors("finding the board's resources", Part.EXPORTER):
            if file.alone:
                return request.getfixturevalue("env").get_target(file.target)
            return closing.enter_context(lab.target_beside_others(request.config, file.target))
    except pytest.exit.Exception as ended:
        # labgrid reports a missing board this way, with pytest's exit code for an interrupt.
        raise LabError(str(ended.msg)) from ended


@pytest.fixture(scope="session")
def meter(bench: Bench) -> Meter:
    return _alone(bench).meter


def _alone(bench: Bench) -> BoardBench:
    """The bench of one board. Raises ConfigError for one of several boards, whose shells are elsewhere."""
    from fsjoule.bench.run import BoardBench

    if isinstance(bench, BoardBench):
        return bench
    raise ConfigError(
        "--boards: this test works on the board itself, not only with its measurements", hint="--boards 1"
    )


@pytest.fixture
def planned(request: pytest.FixtureRequest) -> Planned:
    """The entry of the plan."""
    return request.param


@pytest.fixture
def booted_board(bench: Bench, planned: Planned) -> Shell:
    """The shell of the board, booted for the planned entry."""
    with interrupts.interruptible():
        return _alone(bench).booted(planned)


@pytest.fixture
def provisioned(bench: Bench, planned: Planned) -> str:
    """An empty directory of the board on the planned entry's filesystem."""
    with interrupts.interruptible():
        return _alone(bench).provisioned(planned)


@pytest.fixture
def measurement(bench: Bench, planned: Planned, request: pytest.FixtureRequest) -> Measurement:
    """The planned entry, measured and stored. Raises LabError if the lab fails."""
    try:
        with interrupts.interruptible():
            return bench.measure(planned)
    except FsjouleError as error:
        earlier = request.config.stash.setdefault(_TOLD, list[FsjouleError]())
        _log.info("%s: %s", planned.slug, "not measured, for the same reason" if error in earlier else error)
        earlier.append(error)
        if (isinstance(error, InfrastructureError) and error.ends_run) or bench.failures_in_a_row >= _FAILURES_IN_A_ROW:
            # Nothing more could be kept, or every further entry would wait as long for a dead board.
            request.session.shouldstop = f"stopped: {error.what.splitlines()[0]}"
        raise


def _entry(item: pytest.Item) -> Planned | None:
    from fsjoule.model import Planned

    entry: Any = getattr(getattr(item, "callspec", None), "params", {}).get("planned")
    return entry if isinstance(entry, Planned) else None


def _by_hand(config: pytest.Config, question: str) -> None:
    """Wait until somebody at the terminal has done what is asked. Raises LabError without a terminal."""
    capture: Any = config.pluginmanager.getplugin("capturemanager")
    capture.suspend_global_capture(in_=True)
    try:
        if not sys.stdin.isatty():
            raise LabError(f"nobody is asked, without a terminal: {question}", hint="start the bench in a terminal")
        input(f"{question} ")
    finally:
        capture.resume_global_capture()


def _printer(config: pytest.Config) -> Callable[[str], None]:
    """A function that prints a line past pytest's capturing. A failed write must not end a clean-up."""
    plugins = config.pluginmanager

    def write(line: str) -> None:
        capture: Any = plugins.getplugin("capturemanager")
        reporter: Any = plugins.getplugin("terminalreporter")
        with capture.global_and_fixture_disabled():
            if reporter is None:
                # Before pytest has its reporter, or instead of it.
                print(line, file=config.stash.get(OUTPUT, None), flush=True)
            else:
                reporter.ensure_newline()
                reporter.write_line(line, flush=True)

    return write


class Lines:
    """Takes the place of pytest's reporter. `write` prints a line, `conclude` all that follows the last measurement.

    fsjoule's own errors have been printed when they happened. A bug has its traceback.
    """

    NAME = "fsjoule-lines"

    def __init__(self, write: Callable[[str], None], conclude: Callable[[], None]) -> None:
        self._write = write
        self._conclude = conclude

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._write(report.longreprtext)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        if session.config.option.collectonly:
            for item in session.items:
                self._write(entry_name(item))

    def pytest_exception_interact(
        self, call: pytest.CallInfo[object], report: pytest.CollectReport | pytest.TestReport
    ) -> None:
        if report.when == "collect" or call.excinfo is None or call.excinfo.errisinstance(FsjouleError):
            return
        known = of_system(call.excinfo.value)
        lab_failed = known is not None or code_of(call.excinfo.value) == LabError.exit_code
        self._write(f"ERROR: {known or call.excinfo.exconly()}" if lab_failed else report.longreprtext)

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        if isinstance(excinfo.value, pytest.exit.Exception) and excinfo.value.msg:
            self._write(f"ERROR: {excinfo.value.msg}")

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self) -> Generator[None]:
        yield
        self._conclude()
