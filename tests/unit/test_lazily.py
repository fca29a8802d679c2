"""What a command does not use, it does not import."""

from __future__ import annotations

import importlib
import json
import pkgutil
import subprocess
import sys

import pytest

from fsjoule import cli, lazily
from fsjoule.cli import results

PACKAGES = ("fsjoule.store", "fsjoule.store.index", "fsjoule.statistics")


@pytest.mark.parametrize("name", PACKAGES)
def test_every_name_of_a_package_is_there(name: str) -> None:
    package = importlib.import_module(name)
    assert all(getattr(package, each) is not None for each in package.__all__)
    modules = {module.name for module in pkgutil.iter_modules(package.__path__)}
    assert not modules & set(package.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = package.nothing


def test_a_name_is_that_of_its_module() -> None:
    get = lazily.lazily("fsjoule", {"metrics": "Metric Figure", "errors": "FsjouleError"})
    assert get("Metric").__module__ == "fsjoule.metrics"
    assert get("FsjouleError").__module__ == "fsjoule.errors"


def test_a_trend_imports_no_more_than_it_needs() -> None:
    code = "import sys, json, fsjoule.cli.trend; print(json.dumps(sorted(sys.modules)))"
    loaded = set(json.loads(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout))
    heavy = {"scipy", "ruptures", "alembic", "altair", "pyarrow", "labgrid", "pydantic", "jinja2"}
    assert loaded & heavy == set()


def test_a_command_of_the_results_is_alone_as_well() -> None:
    commands = {each.name or getattr(each.callback, "__name__", "") for each in results.app.registered_commands}
    assert commands == set(cli._OF_RESULTS)
    assert all(cli._modules(each) == ("results",) for each in commands)
    assert cli._modules("--help") > cli._modules("show")
