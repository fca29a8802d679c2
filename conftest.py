"""Settings for all tests."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest

# Its assertions should explain themselves as well.
pytest.register_assert_rewrite("guest_time")

# No deadlines: these tests also run on busy machines, where a slow example is no finding.
with suppress(ModuleNotFoundError):  # a bench is set up without what only tests need
    from hypothesis import settings

    settings.register_profile("fsjoule", deadline=None, print_blob=True)
    settings.load_profile("fsjoule")

# pytest-xdist gives whole files to its workers. These take longest; one that begins late ends last, alone.
LONGEST: Final = (
    "tests/faults/test_chosen.py",
    "tests/lab/test_deterministic_board.py",
    "tests/lab/test_bench.py",
    "tests/lab/test_lava.py",
    "tests/integration/test_tree_builder.py",
    "tests/lab/test_virtual_board.py",
    "tests/browser/test_pages.py",
    "tests/lab/test_labgrid_board.py",
    "tests/lab/test_place.py",
    "tests/lab/test_parallel_boards.py",
    "tests/lab/test_orangepi_board.py",
    "tests/lab/test_interrupted_runs.py",
    "tests/lab/test_ci_board.py",
    "tests/lab/test_lab.py",
    "tests/lab/test_safety.py",
    "tests/lab/test_ssh_shell.py",
    "tests/lab/test_images.py",
    "tests/lab/test_kernelci.py",
    "tests/lab/test_lab_faults.py",
    "tests/integration/test_object_store_faults.py",
    "tests/lab/test_index_killed_server.py",
    "tests/lab/test_asked_instruments.py",
    "tests/integration/test_index_import.py",
    "tests/lab/test_index_postgresql.py",
    "tests/lab/test_instruments.py",
    "tests/browser/test_service.py",
    "tests/integration/test_blocks_of_boards.py",
    "tests/integration/test_ppk2.py",
    "tests/integration/test_serve.py",
    "tests/integration/test_energy_bursts.py",
    "tests/integration/test_iio.py",
    "tests/integration/test_joulescope.py",
    "tests/integration/test_waiting.py",
    "tests/integration/test_imports.py",
    "tests/integration/test_pytest_exit.py",
    "tests/integration/test_verdicts_compare.py",
    "tests/integration/test_verdicts_trend.py",
    "tests/integration/test_meter_line.py",
    "tests/integration/test_statistics_gate.py",
    "tests/integration/test_statistics_evidence.py",
    "tests/integration/test_report_kernels.py",
    "tests/integration/test_report_page.py",
)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The longest files first, all others as they were."""
    places = {config.rootpath / name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path, len(places)))


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--cpu-times 40` tells which tests cost most."""
    words = "tell the processor time of the N tests that cost most, with all processes that they started; needs root"
    parser.addoption("--cpu-times", type=int, default=0, metavar="N", help=words)


class CpuTimes:
    """A control group for this process and all that it starts: what is killed, and what others reap, counts as well.

    pytest-xdist's workers have one each. `os.times` knows only of processes that this one has waited for.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        mounts = (line.split() for line in Path("/proc/mounts").read_text().splitlines())
        self._root = next((Path(mount[1]) for mount in mounts if mount[2] == "cgroup2"), None)
        if self._root is None:
            raise pytest.UsageError("--cpu-times needs control groups of version 2 (/proc/mounts has no cgroup2)")
        self._group = self._root / f"fsjoule-tests-{os.getpid()}"
        self._begin_s = 0.0
        try:
            self._group.mkdir()
            (self._group / "cgroup.procs").write_text(str(os.getpid()))
        except OSError as error:
            raise pytest.UsageError(f"--cpu-times cannot make a control group: {error}") from error

    def _used_s(self) -> float:
        return int((self._group / "cpu.stat").read_text().split()[1]) / 1e6

    def pytest_collection_finish(self) -> None:
        """Leave imports to nobody."""
        self._begin_s = self._used_s()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Give each phase of a test the time since the one before it; fixtures belong to who comes first."""
        del item
        report = yield
        used_s = self._used_s()
        report.cpu_s, self._begin_s = used_s - self._begin_s, used_s
        return report

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the costliest tests, and the sum of all."""
        cpu_s: dict[str, float] = {}
        for reports in terminalreporter.stats.values():
            for report in reports:
                if hasattr(report, "cpu_s"):
                    cpu_s[report.nodeid] = cpu_s.get(report.nodeid, 0.0) + report.cpu_s
        terminalreporter.section(f"processor time: {sum(cpu_s.values()):.0f} s")
        for name, used_s in sorted(cpu_s.items(), key=lambda each: -each[1])[: self._count]:
            terminalreporter.line(f"{used_s:8.1f} s  {name}")

    def pytest_unconfigure(self) -> None:
        """Leave the group, which goes with the last process that is in it."""
        assert self._root is not None
        (self._root / "cgroup.procs").write_text(str(os.getpid()))
        with suppress(OSError):
            self._group.rmdir()


def pytest_configure(config: pytest.Config) -> None:
    """Tests are no benches: what GitLab says of the job that runs them is not to stand in what they make.

    Nor have they a terminal: its width, as readline sets it in xdist's workers, is not that of what they print.
    """
    if count := config.getoption("cpu_times"):
        config.pluginmanager.register(CpuTimes(count))
    if not config.getoption("lg_env"):
        for name in [
            name for name in os.environ if name.startswith(("CI_", "GITLAB_", "FSJOULE_INDEX", "COLUMNS", "LINES"))
        ]:
            del os.environ[name]
