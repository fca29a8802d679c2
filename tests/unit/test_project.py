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


def test_files_that_name_supported_hosts_name_the_same_debians() -> None:
    hosts: dict[str, int] = tomllib.loads((PROJECT / "pyproject.toml").read_text())["tool"]["fsjoule"]["host"]
    numbers, first = " or ".join(map(str, hosts.values())), next(iter(hosts))
    for file, pattern, name in (
        ("README.md", r"Debian (\d+(?: or \d+)*)", numbers),
        ("docs/first-bench.md", r"Debian (\d+(?: or \d+)*)", numbers),
        ("templates/fsjoule.yml", r"debian:(\w+)", first),
        ("labgrid/runner/config.toml", r"debian:(\w+)", first),
    ):
        named = set(re.findall(pattern, (PROJECT / file).read_text()))
        assert named == {name}, f"{file} names another Debian than tool.fsjoule.host of pyproject.toml"
    # It takes the names from pyproject.toml.
    lines = re.findall(r"^suites?=.*$", (PROJECT / "tests/fresh/run").read_text(), re.MULTILINE)
    for release, suite in (("", first), *zip(hosts, hosts, strict=True)):
        made = subprocess.run(
            ["bash", "-c", "\n".join([*lines, "echo $suite/ $suites"]), "tests/fresh/run"],
            cwd=PROJECT,
            env=os.environ | {"RELEASE": release},
            check=True,
            capture_output=True,
            text=True,
        )
        assert made.stdout.split() == [f"{suite}/", *hosts]


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
