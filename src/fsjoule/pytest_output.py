"""What a bench prints when nobody asked for pytest: its own lines, each cause once."""

from __future__ import annotations

from collections.abc import Callable, Generator

import pytest

from fsjoule.errors import FsjouleError


def entry_name(item: pytest.Item) -> str:
    """The name that a test has in the plan; its own if it measures nothing."""
    return item.name.partition("[")[2].removesuffix("]") or item.name


class Lines:
    """Takes the place of pytest's reporter. `write` prints a line, `conclude` all that follows the last measurement.

    fsjoule's own errors have been printed when they happened; all others are bugs or somebody else's tests, and have
    their traceback.
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
        if report.when != "collect" and call.excinfo is not None and not call.excinfo.errisinstance(FsjouleError):
            self._write(report.longreprtext)

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        if isinstance(excinfo.value, pytest.exit.Exception) and excinfo.value.msg:
            self._write(f"ERROR: {excinfo.value.msg}")

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self) -> Generator[None]:
        yield
        self._conclude()
