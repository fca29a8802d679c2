"""What a command does not use, it does not import."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from compared_runs import write_kernels
from nights import Nights, steady

from fsjoule import cli
from fsjoule.cli import ungrouped
from fsjoule.store.index.database import open_index
from fsjoule.store.index.importer import import_runs

HEAVY: Final = {
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

# Runs commands, each in a process that is forked from one with nothing but `main`, and tells of each its exit code, its
# output, and all that it has imported.
COMMANDS: Final = """
import json, os, sys, tempfile
from fsjoule.cli import main
sys.argv[0] = "fsjoule"  # completion's variable has the program's name
told = []
for words, variables in json.load(sys.stdin):
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as modules:
        if not os.fork():
            os.dup2(output.fileno(), 1)
            os.environ |= variables
            sys.argv[1:] = words
            code = 70
            try:
                main()
            except SystemExit as ended:
                code = ended.code or 0
            finally:
                sys.stdout.flush()
                json.dump(sorted(sys.modules), modules)
                modules.flush()
                os._exit(code)
        code = os.waitstatus_to_exitcode(os.wait()[1])
        output.seek(0)
        modules.seek(0)
        told.append([code, output.read(), json.load(modules)])
print(json.dumps(told))
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
whole = typer.main.get_command(cli.app_of("--help"))
walk(whole)
print(json.dumps(told))
"""


def imported(*commands: Sequence[str], **variables: str) -> list[tuple[str, set[str]]]:
    """What each command prints, and the modules that it has imported when it ends with 0 or an answer."""
    asked = json.dumps([[words, variables] for words in commands])
    done = subprocess.run([sys.executable, "-c", COMMANDS], input=asked, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert {code for code, _, _ in told} <= {0, 1, 3}, done.stderr
    return [(said, set(modules)) for _, said, modules in told]


def test_no_help_imports_what_only_work_needs() -> None:
    code = EVERY_HELP.replace("HEAVY", repr(HEAVY))
    told: dict[str, list[str]]
    told = json.loads(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout)
    assert {"", "version", "gate", "index series", "meter calibrate"} < set(told)
    for words, (text, modules) in told.items():
        assert f"Usage: fsjoule {words}".strip() in text
        assert HEAVY.isdisjoint(modules), words


def test_a_command_by_itself_imports_as_little() -> None:
    commands = (["version"], ["--help"], ["meter", "--help"])
    for words, (said, modules) in zip(commands, imported(*commands), strict=True):
        assert said, words
        assert HEAVY.isdisjoint(modules), words


def test_completion_imports_as_little() -> None:
    [(said, modules)] = imported((), _FSJOULE_COMPLETE="complete_bash", COMP_WORDS="fsjoule meter cal", COMP_CWORD="2")
    assert said.split() == ["calibrate"]
    assert HEAVY.isdisjoint(modules)


def test_what_was_measured_is_shown_without_lab_and_charts(tmp_path: Path) -> None:
    run = str(write_kernels(tmp_path, speeds={"6.1": 1.0, "6.12": 1.0}, boots=4))
    sides = ["--baseline", "6.1", "--candidate", "6.12"]
    needed: list[tuple[list[str], set[str]]] = [
        (["show", run], {"numpy", "pyarrow"}),
        (["compare", "6.1", "6.12", "--within", run], {"numpy", "pyarrow", "scipy"}),
        (["gate", *sides, "--within", run], {"numpy", "pyarrow", "scipy"}),
        (["suites", "list"], set()),
    ]
    told = imported(*(words for words, _ in needed))
    for (words, wanted), (said, modules) in zip(needed, told, strict=True):
        assert said, words
        assert modules & HEAVY == wanted, words
        assert "sqlite3" not in modules, words  # no database is opened for run folders


def test_a_page_with_nothing_to_compare_needs_no_scipy(tmp_path: Path) -> None:
    """A bench that is interrupted writes one, and who cancelled it waits."""
    run = str(write_kernels(tmp_path, speeds={"6.1": 1.0}, boots=1, series=(1, 2)))
    [(_, modules)] = imported(["report", "page", run])
    assert "altair" in modules
    assert "scipy" not in modules


def test_a_trend_imports_no_more_than_it_needs() -> None:
    code = "import sys, json, fsjoule.verdicts.trend.trend; print(json.dumps(sorted(sys.modules)))"
    loaded = set(json.loads(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout))
    assert loaded & (HEAVY | {"pydantic"}) == {"numpy"}


def test_a_trend_that_is_asked_for_again_does_without_the_detector(tmp_path: Path) -> None:
    Nights(speed=steady).write(tmp_path / "results", 8)
    index = str(tmp_path / "index.sqlite")
    with open_index(index, create=True) as opened:
        import_runs(opened, [tmp_path / "results"])
    cache = {"FSJOULE_CACHE_DIR": str(tmp_path / "cache")}
    trend = ["trend", "--index", index]
    (first, modules), (again, fewer) = imported(trend, trend, **cache)
    assert "ruptures" in modules
    assert again == first
    assert fewer & HEAVY == {"numpy", "sqlalchemy"}


def test_a_command_without_a_group_is_alone_as_well() -> None:
    commands = {each.name or getattr(each.callback, "__name__", "") for each in ungrouped.app.registered_commands}
    assert commands == {each.name for each in cli._OURS if each.app == "fsjoule.cli.ungrouped:app"}
    assert all([command.name for command in cli._commands(each)] == [each] for each in commands)
    assert {each.name for each in cli._commands("--help")} > {*commands, "gate", "lava"}
