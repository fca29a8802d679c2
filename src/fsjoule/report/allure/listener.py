"""Makes allure-pytest's results of a bench equal to the results that `fsjoule report` makes from the run folder.

allure-pytest writes a result when a test ends. The listener fills it from the run folder, which then has the
measurement. It writes failed first attempts before the result, and at the end of the run entries without a test.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Generator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
from allure_commons import hookimpl, plugin_manager
from allure_commons.model2 import Attachment, Label, Parameter, StatusDetails, TestResult, TestStepResult

from fsjoule.errors import FsjouleError
from fsjoule.host import interrupts
from fsjoule.model import Planned, RunStatus
from fsjoule.report.allure.documents import AllureStatus, Result
from fsjoule.report.allure.tests import run_tests
from fsjoule.store.reader import load_run

_log: Final = logging.getLogger(__name__)
_KINDS: Final = {"attachments": Attachment, "labels": Label, "parameters": Parameter, "steps": TestStepResult}
# allure-pytest's labels of Python functions; a measurement has its own or none.
_OF_FUNCTIONS: Final = frozenset(
    {"framework", "host", "language", "package", "parentSuite", "subSuite", "suite", "thread"}
)
_ENTRY: Final = "planned"


class Listener:
    """A plugin of pytest and of allure-pytest. `folder` returns the run folder, once there is one."""

    def __init__(self, folder: Callable[[], Path | None]) -> None:
        self._folder = folder
        self._number: int | None = None
        self._told: set[int] = set()

    def listen(self, config: pytest.Config) -> None:
        """Take part until pytest ends."""
        config.pluginmanager.register(self)
        plugin_manager.register(self)
        config.add_cleanup(lambda: plugin_manager.unregister(self))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        entry: object = getattr(getattr(item, "callspec", None), "params", {}).get(_ENTRY)
        self._number = entry.number if isinstance(entry, Planned) else None
        return (yield)

    @hookimpl(tryfirst=True)
    def report_result(self, result: Any) -> None:  # noqa: ANN401 - allure-pytest has no types
        """Fill the result about to be written, if the run folder has its entry."""
        # Further results until the next test are complete already.
        number, self._number = self._number, None
        if number is not None and (tests := self._tests(number)):
            self._told.add(number)
            for earlier in tests[:-1]:
                _report(earlier)
            _fill(result, tests[-1])

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None, object, object]:
        """Report entries without a test, once the closed run says why."""
        del session
        try:
            return (yield)
        finally:
            self._report_rest()

    def _tests(self, number: int) -> list[Result]:
        """The results of an entry whose test has ended; empty if it neither measured nor was interrupted."""
        folder = self._folder()
        if folder is None:
            return []
        try:
            loaded = load_run(folder, number=number)
        except FsjouleError as error:
            _log.warning("Allure's result of measurement %d is pytest's own: %s", number, error.what)
            return []
        # The run says this itself only when it is closed.
        why = interrupts.reason()
        if why is not None:
            loaded = replace(loaded, run=replace(loaded.run, status=RunStatus.ABORTED, abort_reason=why))
        tests = list(run_tests(loaded, _keep, numbers={number}))
        return [] if why is None and tests[-1].status is AllureStatus.SKIPPED else tests

    def _report_rest(self) -> None:
        folder = self._folder()
        if folder is None:
            return
        try:
            loaded = load_run(folder)
        except FsjouleError as error:
            _log.warning("Allure's results lack the entries without a measurement: %s", error.what)
            return
        numbers = {entry.number for entry in loaded.run.plan.entries} - self._told
        for test in run_tests(loaded, _keep, numbers=numbers):
            _report(test)


def _report(test: Result) -> None:
    _keep_metrics(test)
    plugin_manager.hook.report_result(result=_made(TestResult, test.document()))


def _fill(result: Any, test: Result) -> None:  # noqa: ANN401 - allure-pytest has no types
    """Turn a test function's result into a measurement's, and keep its author's additions."""
    further = [each for each in result.parameters if each.name != _ENTRY]
    told = tuple((each.name, each.value) for each in further if not each.excluded)
    test = replace(test, parameters=(*test.parameters, *told))
    _keep_metrics(test)
    own = _made(TestResult, test.document())
    own.uuid = result.uuid  # finds its fixtures
    own.parameters += [each for each in further if each.excluded]
    own.labels += [each for each in result.labels if each.name not in _OF_FUNCTIONS]
    for name in ("attachments", "steps", "links"):
        getattr(own, name).extend(getattr(result, name))
    if test.status is AllureStatus.PASSED and result.status != AllureStatus.PASSED:
        # A test may demand more than a valid measurement.
        own.status, own.statusDetails = result.status, result.statusDetails
    result.__dict__.update(own.__dict__)


def _made(kind: Any, document: dict[str, Any]) -> Any:  # noqa: ANN401 - allure-pytest has no types
    """A part of a result as allure-pytest's objects."""
    parts: dict[str, Any] = {
        name: [_made(_KINDS[name], each) for each in value] if name in _KINDS else value
        for name, value in document.items()
    }
    if "statusDetails" in parts:
        parts["statusDetails"] = StatusDetails(**parts["statusDetails"])
    return kind(**parts)


def _keep_metrics(test: Result) -> None:
    if test.metrics:
        _keep(f"{test.uuid}-perf.json", json.dumps(test.metrics_document(), indent=1).encode())


def _keep(name: str, content: bytes) -> None:
    plugin_manager.hook.report_attached_data(body=content, file_name=name)
