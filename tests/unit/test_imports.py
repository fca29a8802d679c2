"""What a command does not use, it does not import."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest
from compared_runs import write_kernels
from nights import Nights, steady

from fsjoule import cli
from fsjoule.cli import results
from fsjoule.store.index.database import open_index
from fsjoule.store.index.importer import import_runs

HEAVY: Final = {
    "alembic",
    "altair",
    "gitlab",
    "jinja2",
    "labgrid",
    "numpy",
    "pyarrow",
    "ruptures",
    "scipy",
    "sqlalchemy",
}

# Tells what a command has imported in all, after its own output.
COMMAND: Final = """
import json, sys
from fsjoule.cli import main
sys.argv[0] = "fsjoule"  # completion's variable has the program's name
try:
    main()
finally:
    sys.stdout.flush()
    print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""

# Asks every command and group for its help, and tells which of them imported what.
EVERY_HELP: Final = """
import contextlib, io, json, sys, typer
from fsjoule import cli
told = {}
def ask(command, *words):
    with contextlib.redirect_stdout(io.StringIO()) as help, contextlib.suppress(SystemExit):
        command([*words, "--help"], prog_name="fsjoule")
    told[" ".join(words)] = [help.getvalue(), sorted(set(sys.modules) - seen)]
def walk(command, *words):
    ask(whole, *words)
    for name, each in getattr(command, "commands", {}).items():
        walk(each, *words, name)
seen = set(sys.modules) - HEAVY
whole = typer.main.get_command(cli._app("--help"))
walk(whole)
print(json.dumps(told))
"""


def imported(arguments: Sequence[str], **variables: str) -> tuple[str, set[str]]:
    """What a command prints, and the modules that it has imported when it ends with 0 or an answer."""
    done = subprocess.run(
        [sys.executable, "-c", COMMAND, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **variables},
    )
    assert done.returncode in (0, 1, 3), done.stderr
    return done.stdout, set(json.loads(done.stderr.splitlines()[-1]))


def test_no_help_imports_what_only_work_needs() -> None:
    code = EVERY_HELP.replace("HEAVY", repr(HEAVY))
    told: dict[str, list[str]]
    told = json.loads(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout)
    assert {"", "version", "gate", "index series", "meter calibrate"} < set(told)
    for words, (text, modules) in told.items():
        assert f"Usage: fsjoule {words}".strip() in text
        assert HEAVY.isdisjoint(modules), words


@pytest.mark.parametrize("words", [["version"], ["--help"], ["meter", "--help"]])
def test_a_command_by_itself_imports_as_little(words: list[str]) -> None:
    said, modules = imported(words)
    assert said
    assert HEAVY.isdisjoint(modules)


def test_completion_imports_as_little() -> None:
    said, modules = imported((), _FSJOULE_COMPLETE="complete_bash", COMP_WORDS="fsjoule meter cal", COMP_CWORD="2")
    assert said.split() == ["calibrate"]
    assert HEAVY.isdisjoint(modules)


@pytest.mark.parametrize(
    ("words", "needed"),
    [
        (["show", "RUN"], {"numpy", "pyarrow"}),
        (["compare", "6.1", "6.12", "--within", "RUN"], {"numpy", "pyarrow", "scipy", "sqlalchemy"}),
        (
            ["gate", "--baseline", "6.1", "--candidate", "6.12", "--within", "RUN"],
            {"numpy", "pyarrow", "scipy", "sqlalchemy"},
        ),
        (["suites", "list"], set[str]()),
    ],
)
def test_what_was_measured_is_shown_without_lab_and_charts(tmp_path: Path, words: list[str], needed: set[str]) -> None:
    run = str(write_kernels(tmp_path, speeds={"6.1": 1.0, "6.12": 1.0}, boots=4))
    said, modules = imported([run if word == "RUN" else word for word in words])
    assert said
    assert modules & HEAVY == needed


def test_a_trend_imports_no_more_than_it_needs() -> None:
    code = "import sys, json, fsjoule.verdicts.trend.trend; print(json.dumps(sorted(sys.modules)))"
    loaded = set(json.loads(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout))
    assert loaded & (HEAVY | {"pydantic"}) == {"numpy", "sqlalchemy"}


def test_a_trend_that_is_asked_for_again_does_without_the_detector(tmp_path: Path) -> None:
    Nights(speed=steady).write(tmp_path / "results", 8)
    index = str(tmp_path / "index.sqlite")
    with open_index(index, create=True) as opened:
        import_runs(opened, [tmp_path / "results"])
    cache = {"FSJOULE_CACHE_DIR": str(tmp_path / "cache")}
    first, modules = imported(["trend", "--index", index], **cache)
    assert "ruptures" in modules
    again, modules = imported(["trend", "--index", index], **cache)
    assert again == first
    assert modules & HEAVY == {"numpy", "sqlalchemy"}


def test_a_command_of_the_results_is_alone_as_well() -> None:
    commands = {each.name or getattr(each.callback, "__name__", "") for each in results.app.registered_commands}
    assert commands == set(cli._OF_RESULTS)
    assert all(cli._modules(each) == ("results",) for each in commands)
    assert cli._modules("--help") > cli._modules("show")
