"""The exit code of a bench: one per cause, whatever pytest would end with.

pytest's codes: 1 failed tests, 2 an interrupt, 3 a crash, 4 a wrong option, 5 nothing selected. A pipeline retries 4,
which means the lab here.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from typing import Any, Final, cast

import pytest

from fsjoule.errors import ConfigError, FsjouleError, LabError, MeasurementInvalid
from fsjoule.host.limits import of_limit, of_system
from fsjoule.host.output import GuardedOutput, cannot_be_written

BUG: Final = 70
INTERRUPTED: Final = 130
# The bench's output: Python's own stdout is not guarded once pytest captures it.
OUTPUT: Final = pytest.StashKey[GuardedOutput]()
_INVALID: Final = 1
# Precedence if several things failed: a bug is not the lab's fault, and wrong input does not pass by itself.
_ORDER: Final = (BUG, ConfigError.exit_code, LabError.exit_code)
_SHOWN: Final = 10
# Warnings of labgrid and pyserial when a part of the lab dies. As errors they would fail a measurement whose second try
# has worked.
_LEAKS: Final = (
    ("unclosed <socket", ResourceWarning),
    (r"subprocess \d+ is still running", ResourceWarning),
    ("There is no current event loop", DeprecationWarning),
    ("unhandled exception during event notification", UserWarning),
    (r"set(Daemon|Name)\(\) is deprecated", DeprecationWarning),
)
_HELP: Final = "  hint: fsjoule bench --help lists the options; docs/first-bench.md"


def forgive_leaks(config: pytest.Config) -> None:
    for message, category in _LEAKS:
        config.addinivalue_line("filterwarnings", f"ignore:{message}:{category.__name__}")
        # At its end pytest collects garbage with the filters that it had before it asked its plugins.
        warnings.filterwarnings("ignore", message, category)


def ending(config: pytest.Config) -> Generator[None, int | pytest.ExitCode, int | pytest.ExitCode]:
    """Wrap `pytest_cmdline_main` of a bench, and replace pytest's exit code by ours."""
    output = config.stash[OUTPUT] = GuardedOutput(sys.stdout)
    sys.stdout = cast("Any", output)
    try:
        status = yield
        # pytest's capturing has put back the stream that it found, which is not guarded.
        last = GuardedOutput(sys.stdout)
        last.flush()
    except pytest.UsageError as error:
        return tell_usage(error)
    except OSError as error:
        # Python would end with 1, which means an invalid measurement.
        if (known := of_system(error)) is None:
            raise
        output.drop()
        _tell(str(known))
        return known.exit_code
    finally:
        sys.stdout = output.stream
    plugin = cast("ExitCode | None", config.pluginmanager.getplugin(ExitCode.NAME))
    code = _of_pytest(status) if plugin is None else plugin.final(status)
    if code == BUG:
        _tell("this is a bug in fsjoule; please report it, with the lines above")
    if (failed := output.error or last.error) is not None:
        output.drop()
        if not isinstance(failed, BrokenPipeError):  # whoever reads has seen enough
            _tell(f"warning: {cannot_be_written(failed).what}{'' if code else '; all results are stored'}")
    return code


def _of_pytest(status: int | pytest.ExitCode) -> int:
    """The exit code of a bench that did not begin; our own errors bring theirs."""
    if status is pytest.ExitCode.INTERNAL_ERROR:
        return BUG
    return INTERRUPTED if status is pytest.ExitCode.INTERRUPTED else int(status)


def tell_usage(error: pytest.UsageError) -> int:
    """Tell why a bench cannot begin, and return its exit code. An error of ours is the first argument."""
    first = error.args[0] if error.args else None
    if isinstance(first, FsjouleError):
        _tell(f"ERROR: {first}")
        return first.exit_code
    for text in error.args:
        # argparse writes its usage before what is wrong, and pytest its configuration after it.
        usage, separator, wrong = str(text).partition(": error: ")
        wrong = wrong.partition("\n")[0] if separator else usage.strip()
        _tell(f"ERROR: {wrong.replace('--fsjoule-', '--')}")
    _tell(_HELP)
    return ConfigError.exit_code


def _tell(line: str) -> None:
    with suppress(OSError):
        print(line, file=sys.stderr, flush=True)  # noqa: T201 - pytest has no reporter here


class ExitCode:
    """Decides the exit code of the bench; `lost_energy` says how many measurements lack energy, and why, or ""."""

    NAME: Final = "fsjoule-exit-code"

    def __init__(self, lost_energy: Callable[[], str] = str) -> None:
        self.lost_energy = lost_energy
        self._codes: set[int] = set()
        self._crash = BUG
        self._interrupted = False
        self._unselected: list[str] = []
        self._decided: int | None = None

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        self._unselected += [entry_name(item) for item in items]

    def pytest_exception_interact(self, call: pytest.CallInfo[object]) -> None:
        if call.excinfo is not None:
            self._codes.add(ConfigError.exit_code if call.when == "collect" else code_of(call.excinfo.value))

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        # pytest.exit comes here too; its code for wrong input is the one that pytest has for an interrupt.
        if isinstance(excinfo.value, pytest.exit.Exception) and excinfo.value.returncode is not None:
            self._codes.add(excinfo.value.returncode)
        # pytest's own interrupt, after a dead board or an unreadable test file, has the same type.
        self._interrupted = isinstance(excinfo.value, KeyboardInterrupt) and not isinstance(
            excinfo.value, pytest.Session.Interrupted
        )

    def pytest_internalerror(self, excinfo: pytest.ExceptionInfo[BaseException]) -> bool | None:
        """A disk or a limit of the shell's that a hook ran into is no crash."""
        if (known := of_system(excinfo.value)) is None:
            return None
        _tell(f"ERROR: {known}")
        self._crash = known.exit_code
        return True

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None]:
        """Decide at the very end: after an interrupt pytest tears fixtures down here, and hides their errors."""
        try:
            yield
        except (FsjouleError, ExceptionGroup) as error:
            for each in _ours(error):
                _tell(f"ERROR: {each}")
                self._codes.add(each.exit_code)
        match session.exitstatus:
            case pytest.ExitCode.INTERRUPTED if self._interrupted:
                code = INTERRUPTED
            case pytest.ExitCode.INTERRUPTED | pytest.ExitCode.TESTS_FAILED:
                code = next((each for each in _ORDER if each in self._codes), max(self._codes, default=_INVALID))
            case pytest.ExitCode.NO_TESTS_COLLECTED:
                code = ConfigError.exit_code
                _tell(self._nothing())
            case pytest.ExitCode.INTERNAL_ERROR:
                code = self._crash
            case status:
                code = int(status)
        if code in {0, _INVALID} and (lost := self.lost_energy()):
            _tell(lost)
            code = LabError.exit_code
        self._decided = session.exitstatus = code

    def final(self, status: int | pytest.ExitCode) -> int:
        """The decided exit code, or pytest's own status if there was no decision."""
        if status is pytest.ExitCode.INTERNAL_ERROR:
            return self._crash
        return _of_pytest(status) if self._decided is None or self._decided != status else self._decided

    def _nothing(self) -> str:
        more = f", and {len(self._unselected) - _SHOWN} more" if len(self._unselected) > _SHOWN else ""
        there = f"there are: {', '.join(self._unselected[:_SHOWN])}{more}" if self._unselected else "there is no test"
        return f"ERROR: nothing was selected\n  hint: {there}"


def _ours(error: FsjouleError | ExceptionGroup[Exception]) -> list[FsjouleError]:
    """The errors of one or several tear-downs. Raises the group if it contains an error that is not ours."""
    if isinstance(error, FsjouleError):
        return [error]
    ours, others = error.split(FsjouleError)
    if ours is None or others is not None:
        raise error
    return [leaf for each in ours.exceptions for leaf in _ours(cast("FsjouleError | ExceptionGroup[Exception]", each))]


def entry_name(item: pytest.Item) -> str:
    """The name that a test has in the plan; its own if it measures nothing."""
    return item.name.partition("[")[2].removesuffix("]") or item.name


def code_of(error: BaseException) -> int:
    """The exit code for an exception of a test or a fixture."""
    from fsjoule import lab

    match error:
        case MeasurementInvalid():
            return _INVALID
        case FsjouleError():
            return error.exit_code
        case Exception() if lab.is_lab_fault(error) or of_limit(error) is not None:
            return LabError.exit_code
        case OSError() if (known := of_system(error)) is not None:
            return known.exit_code
        case Exception() if lab.raised_by_us(error):
            return BUG
        case _:
            return _INVALID
