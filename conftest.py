"""Settings for all tests."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Final

import pytest

# Tests that several test files inherit: their assertions should explain themselves as well.
pytest.register_assert_rewrite(
    "guest_time",
    "index_import_contract",
    "index_judged_contract",
    "index_opening_contract",
    "index_query_contract",
    "index_retention_contract",
)

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
    "tests/integration/test_index_sqlite.py",
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
    "tests/unit/test_verdicts_compare.py",
    "tests/unit/test_verdicts_trend.py",
    "tests/unit/test_meter_line.py",
    "tests/integration/test_statistics_gate.py",
    "tests/integration/test_statistics_evidence.py",
    "tests/unit/test_report_kernels.py",
    "tests/unit/test_report_page.py",
)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The longest files first, all others as they were."""
    places = {config.rootpath / name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path, len(places)))


def pytest_configure(config: pytest.Config) -> None:
    """Tests are no benches: what GitLab says of the job that runs them is not to stand in what they make.

    Nor have they a terminal: its width, as readline sets it in xdist's workers, is not that of what they print.
    """
    if not config.getoption("lg_env"):
        for name in [
            name for name in os.environ if name.startswith(("CI_", "GITLAB_", "FSJOULE_INDEX", "COLUMNS", "LINES"))
        ]:
            del os.environ[name]
