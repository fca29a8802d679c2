"""What the project's own files promise each other."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

PROJECT = Path(__file__).parents[2]


def test_files_that_name_the_supported_host_name_the_same_debian() -> None:
    host = tomllib.loads((PROJECT / "pyproject.toml").read_text())["tool"]["fsjoule"]["host"]
    for file, pattern, name in (
        ("README.md", r"Debian (\d+)", str(host["release"])),
        ("docs/first-bench.md", r"Debian (\d+)", str(host["release"])),
        ("templates/fsjoule.yml", r"debian:(\w+)", host["suite"]),
        ("labgrid/runner/config.toml", r"debian:(\w+)", host["suite"]),
    ):
        named = set(re.findall(pattern, (PROJECT / file).read_text()))
        assert named == {name}, f"{file} names another Debian than tool.fsjoule.host of pyproject.toml"
    # It takes the name from pyproject.toml.
    [line] = re.findall(r"^suite=.*$", (PROJECT / "tests/fresh/run").read_text(), re.MULTILINE)
    made = subprocess.run(
        ["bash", "-c", f"{line}; echo $suite", "tests/fresh/run"],
        cwd=PROJECT,
        check=True,
        capture_output=True,
        text=True,
    )
    assert made.stdout.strip() == host["suite"]


def test_the_configuration_folder_does_not_shadow_labgrid() -> None:
    assert not list((PROJECT / "labgrid").rglob("*.py"))


def test_under_make_python_keeps_its_compiled_files() -> None:
    show = 'shown: ; @echo "compiling anew: $${PYTHONDONTWRITEBYTECODE-no}"'
    outside = {name: text for name, text in os.environ.items() if not name.startswith("MAKE")}
    made = subprocess.run(
        ["make", "--no-print-directory", "--eval", show, "shown"],
        cwd=PROJECT,
        env=outside | {"PYTHONDONTWRITEBYTECODE": "1"},
        check=True,
        capture_output=True,
        text=True,
    )
    assert made.stdout == "compiling anew: no\n"


def test_the_longest_files_exist_and_begin_first(pytestconfig: pytest.Config) -> None:
    settings: Any = pytestconfig.pluginmanager.getplugin(str(PROJECT / "conftest.py"))
    longest = [PROJECT / name for name in settings.LONGEST]
    assert all(path.is_file() for path in longest)
    others = [PROJECT / "tests" / "unit" / name for name in ("test_b.py", "test_a.py")]
    items = [SimpleNamespace(path=path) for path in (*others, *reversed(longest))]
    settings.pytest_collection_modifyitems(pytestconfig, items)
    assert [item.path for item in items] == [*longest, *others]
