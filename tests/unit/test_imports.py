"""What a command does not use, it does not import."""

from __future__ import annotations

import json
import subprocess
import sys

from fsjoule import cli
from fsjoule.cli import results


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
