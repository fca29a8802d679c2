"""Runs as a user names and lists them, and the help that names the commands."""

from __future__ import annotations

import io
import json
import shutil
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from command_line import CommandLine
from compared_runs import write_kernels
from index_runs import edit

from fsjoule.cli import COMMANDS
from fsjoule.cli.ended import exit_code_of
from fsjoule.errors import ResultError
from fsjoule.runs.resume import resume
from fsjoule.store.folder import encode_checksums
from fsjoule.store.reader import load_run
from fsjoule.store.run_folders import named_run

# By id: when it started.
RUNS = {
    "aab123": "2026-03-10T10:00:00+00:00",
    "b0b0b0": "2026-03-11T10:00:00+00:00",
    "aaaaaa": "2026-03-09T10:00:00+00:00",
}


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `results` of three runs."""
    folder = tmp_path_factory.mktemp("lab")
    for run_id, started in RUNS.items():
        write_kernels(folder / "results", run_id, speeds={"6.1": 1.0, "6.12": 0.9}, boots=2, started=started)
    return folder


@pytest.fixture
def run(fsjoule: CommandLine, lab: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    monkeypatch.chdir(lab)
    return fsjoule


def test_runs_are_listed_newest_first(run: CommandLine, tmp_path: Path) -> None:
    listed = run("runs", "--json").document
    assert [each["run"] for each in listed] == ["b0b0b0", "aab123", "aaaaaa"]
    assert {name: listed[0][name] for name in ("board", "filesystems", "kernels", "suite", "valid", "planned")} == {
        "board": "virtual",
        "filesystems": ["btrfs", "ext4"],
        "kernels": ["6.1", "6.12"],
        "suite": "quick",
        "valid": 12,
        "planned": 12,
    }
    told = run("runs")
    assert "Runs  simulated" in told.out
    assert "b0b0b0  2026-03-11 10:00  virtual  btrfs,ext4   6.1,6.12  quick  12 of 12" in told.out
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "run.json").write_text("{")
    broken = run("runs", tmp_path)
    assert broken.code == 0
    assert "broken/run.json is not JSON of ours" in broken.err
    (tmp_path / "empty").mkdir()
    assert "there is no run in" in run("runs", tmp_path / "empty").err


@pytest.mark.parametrize(
    ("named", "run_id"),
    [
        (None, "b0b0b0"),
        ("last", "b0b0b0"),
        ("aaa", "aaaaaa"),
        ("20260310", "aab123"),
        ("results/20260309T100020Z-virtual-aaaaaa", "aaaaaa"),
        ("20260309T100020Z-virtual-aaaaaa", "aaaaaa"),
    ],
)
def test_a_run_is_named_by_the_start_of_its_id(run: CommandLine, named: str | None, run_id: str) -> None:
    assert named_run(named).name.endswith(f"-{run_id}")
    shown = run("show", *([] if named is None else [named]))
    assert f"virtual-{run_id}" in shown.out


@pytest.mark.parametrize("words", [("show",), ("export",), ("report", "page"), ("explain", "6.1", "6.12", "--within")])
def test_the_start_of_two_ids_names_both(run: CommandLine, words: tuple[str, ...]) -> None:
    done = run(*words, "aa")
    assert done.code == 2
    assert "'aa' names 2 runs in results" in done.err
    assert "aab123 (20260310T100020Z-virtual-aab123), aaaaaa (" in done.err


def test_what_was_edited_or_lost_is_told_by_every_reader(run: CommandLine, tmp_path: Path) -> None:
    whole = shutil.copytree(named_run("aaa"), tmp_path / "whole")
    loaded = load_run(whole)
    for measurement in loaded.measurements:
        folder = loaded.folders[measurement.number]
        files = {"measurement.json": (folder / "measurement.json").read_bytes(), "kernel.log": b"ok\n"}
        (folder / "kernel.log").write_bytes(files["kernel.log"])
        (folder / "SHA256SUMS").write_bytes(encode_checksums(files))
    edited, lost, empty = (shutil.copytree(whole, tmp_path / name) for name in ("edited", "lost", "empty"))
    first = min((edited / "measurements").iterdir())
    edit(first / "measurement.json", started_utc="2026-03-09T10:00:01Z")
    next(lost.glob("measurements/01-*/kernel.log")).unlink()
    shutil.rmtree(empty / "measurements")
    for words in (("show",), ("export",), ("report", "page")):
        assert run(*words, whole).code == 0
        done = run(*words, edited)
        assert done.code == 2
        assert f"1 damaged measurement left out: {first.name}: its measurement.json was edited" in done.err
        assert "the others are whole" in done.err
        done = run(*words, lost)
        assert (done.code, "/kernel.log is missing" in done.err, "whole" in done.err) == (2, True, False)
        done = run(*words, empty)
        assert (done.code, "measurements/ is missing or empty" in done.err) == (2, True)
        assert "the others" not in done.err
    assert "No measurement can be read" in run("show", empty).out
    assert "/kernel.log" in (lost / "report.html").read_text()
    done = run("compare", "b0b", edited)
    assert (done.code, "its measurement.json was edited" in " ".join(done.out.split())) == (0, True)
    done = run("compare", "b0b", empty)
    assert done.code == 2
    assert "has no measurement that can be read: 01-" in done.err
    assert "measurements/ is missing or empty" in done.err
    (lost / "gate.json").write_text("{")
    next(lost.glob("measurements/01-*/SHA256SUMS")).unlink()
    done = run("report", "page", lost)
    assert (done.code, "gate.json" in done.err) == (2, True)


def test_sides_are_runs_by_the_start_of_their_ids(run: CommandLine) -> None:
    document = run("compare", "aaa", "last", "--json").document
    assert (document["baseline"]["name"], document["candidate"]["name"]) == ("aaaaaa", "b0b0b0")
    assert run("compare", "aaa", "--json").document == document
    within = run("compare", "6.1", "6.12", "--within", "last", "--json").document
    assert within == run("compare", "6.1@b0b", "6.12@b0b", "--json").document


def test_a_run_that_goes_on_is_named_so_too(run: CommandLine) -> None:
    assert run("runs").code == 0
    with pytest.raises(ResultError, match="virtual-aaaaaa"):
        resume(Path("aaa"))


def test_a_reader_that_has_gone_ends_a_command_in_silence(
    run: CommandLine, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    class Gone(io.StringIO):
        def write(self, _text: str) -> int:
            raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr(sys, "stdout", Gone())
    assert run("runs").code == 0
    assert exit_code_of(lambda: sys.stdout.write("x"), answers=True) == 0
    assert capfd.readouterr().err == ""


def test_a_terminal_of_ascii_gets_a_report(run: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii"))
    assert run("show").code == 0
    assert b" +- " in written.getvalue()


def test_help_names_all_commands_in_panels(run: CommandLine) -> None:
    told = run("-h").out
    assert told == run("--help").out
    assert [line for line in told.splitlines() if line in ("Measure:", "Look:", "Lab:", "Keep:", "CI:")] == [
        "Measure:",
        "Look:",
        "Lab:",
        "Keep:",
        "CI:",
    ]
    named = [line.split()[0] for line in told.splitlines() if line.startswith("  ") and line[2] != " "]
    assert set(COMMANDS) - {"schema", "version"} <= set(named)
    assert "schema" not in named
    modules = {path.stem for path in Path("src/fsjoule/cli").glob("*.py")}
    assert modules - {"__init__", "common", "ended", "outputs", "ungrouped"} <= set(COMMANDS)


@pytest.mark.parametrize("words", [("-V",), ("--version",), ("version",), ("gate", "--version"), ("lab", "up", "-V")])
def test_every_command_says_the_version(run: CommandLine, words: tuple[str, ...]) -> None:
    assert run(*words).out == f"{version('fsjoule')}\n"


def test_every_command_has_a_short_option_for_help(run: CommandLine) -> None:
    for words in (("gate",), ("lab", "up"), ("bisect", "show")):
        assert run(*words, "-h").out == run(*words, "--help").out
    assert json.loads(run("runs", "--json").out)
