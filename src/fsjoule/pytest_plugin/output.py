"""What a bench prints when nobody asked for pytest: its own lines, each cause once."""

from __future__ import annotations

from collections.abc import Callable, Generator

import pytest

from fsjoule.errors import FsjouleError, LabError
from fsjoule.host.limits import of_system
from fsjoule.pytest_plugin.exit_code import code_of, entry_name


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
