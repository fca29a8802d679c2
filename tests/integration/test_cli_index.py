"""`fsjoule index`: what it prints, as text and as JSON, and how it ends."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from index_runs import edit, measurement_file, write_run
from results_factory import LAB
from typer.testing import CliRunner, Result

from fsjoule.cli.index import app
from fsjoule.errors import ConfigError, FsjouleError, ResultError

pytestmark = pytest.mark.usefixtures("_here")


@pytest.fixture
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FSJOULE_INDEX", raising=False)
    # Tables as wide as they need.
    monkeypatch.setenv("COLUMNS", "200")


def call(*args: str | Path) -> Result:
    return CliRunner().invoke(app, [str(arg) for arg in args])


def said(*args: str | Path) -> str:
    result = call(*args)
    assert result.exception is None, result.output
    return result.stdout


def told(*args: str | Path) -> FsjouleError:
    """The error that the command ends with."""
    error = call(*args).exception
    assert isinstance(error, FsjouleError)
    return error


def test_rebuild_makes_the_index_beside_the_results() -> None:
    write_run(Path("results"), "aaaaaa")
    text = said("rebuild")
    assert "1 run folder: 1 new, 0 changed, 0 unchanged; 15 measurements imported" in text
    assert "results/index.sqlite" in text
    assert Path("results/index.sqlite").is_file()
    assert "15 measurements, 14 of them valid, of 15 series on 1 board" in said("stats")
    assert "6.1.0-44-armmp (6.1.164-1)" in said("stats")


def test_a_long_import_tells_how_long_it_will_take(monkeypatch: pytest.MonkeyPatch) -> None:
    # Few folders are read within a second: progress is told as if each had taken long.
    monkeypatch.setattr("fsjoule.cli.common._SAY_EVERY_S", 0.0)
    for run_id in ("aaaaaa", "bbbbbb"):
        write_run(Path("results"), run_id)
    assert call("rebuild").stderr.splitlines() == [
        "1 of 2 run folders, 0 min left",
        "2 of 2 run folders, 0 min left",
    ]


def test_each_figure_says_whose_it_is_where_boards_differ() -> None:
    for run_id, place in (("aaaaaa", "rack-1"), ("bbbbbb", "rack-2")):
        path = write_run(Path("results"), run_id).path
        edit(path / "run.json", lab=asdict(replace(LAB, place=place)))
    said("rebuild")
    key = json.loads(said("series", "--json"))[0]["series"]["key"]
    text = said("series", key)
    assert "rack-1 of exporter fsjoule-virtual" in text
    assert "rack-2 of exporter fsjoule-virtual" in text
    first = json.loads(said("series", key, "--json"))["points"][0]
    assert (first["place"], first["exporter"], first["meter"]) == ("rack-1", "fsjoule-virtual", "T1")
    assert "exporter" not in said("series", key, "--of", "run:aaaaaa")


def test_import_adds_and_says_what_it_did_as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FSJOULE_INDEX", "elsewhere/all.sqlite")
    path = write_run(Path("results"), "aaaaaa").path
    write_run(Path("more"), "bbbbbb")
    measurement_file(path, 9).write_text("{")
    document = json.loads(said("import", "results", "more", "--json"))
    assert (document["folders"], document["new"], document["measurements"]) == (2, 2, 29)
    assert document["index"] == "elsewhere/all.sqlite"
    (damaged,) = document["damaged_measurements"]
    assert damaged["path"] == str(measurement_file(path, 9).parent.absolute())
    assert "not JSON" in damaged["reason"]
    assert json.loads(said("stats", "--json"))["measurements"] == 29
    assert not Path("results/index.sqlite").exists()


def test_damage_is_named_on_the_way_and_is_no_failure() -> None:
    path = write_run(Path("results"), "aaaaaa").path
    (path / "run.json").write_text("{")
    write_run(Path("results"), "bbbbbb")
    result = call("import", "results")
    assert result.exit_code == 0
    assert "1 damaged run folder skipped" in result.stderr
    assert str(path) in result.stderr


def test_a_conflict_ends_with_an_error_after_the_rest_was_imported() -> None:
    write_run(Path("results"), "aaaaaa")
    edit(measurement_file(write_run(Path("copy"), "aaaaaa").path, 9), iops=1.0)
    write_run(Path("copy"), "bbbbbb")
    said("import", "results")
    result = call("import", "copy")
    assert isinstance(result.exception, ResultError)
    assert "another measurement 9" in str(result.exception)
    assert "fsjoule index rebuild" in str(result.exception)
    assert "1 run folder in conflict" in result.stderr
    assert "2 runs" in said("stats")


def test_a_rebuild_names_what_it_dropped() -> None:
    write_run(Path("old"), "aaaaaa")
    said("import", "old")
    write_run(Path("results"), "bbbbbb")
    assert "1 run dropped, folders gone: aaaaaa" in said("rebuild")


def test_the_newest_figures_of_a_series_are_shown_and_said_to_be_the_newest() -> None:
    for day in (1, 2, 3):
        write_run(Path("results"), f"run{day}", started=f"2026-03-0{day}T10:00:00Z", only=[5])
    said("rebuild")
    key = json.loads(said("series", "--json"))[0]["series"]["key"]
    result = call("series", key, "--limit", "2")
    assert "run1" not in result.stdout
    assert "run3" in result.stdout
    assert "these are the newest 2; --limit 0 shows all" in result.stderr
    for whole in (call("series", key, "--limit", "0"), call("series", key)):
        assert "run1" in whole.stdout
        assert "newest" not in whole.stderr


def test_old_runs_are_pruned_and_come_back_when_asked() -> None:
    now = datetime.now(UTC)
    for run_id, days in (("old", 100), ("recent", 20)):
        write_run(Path("results"), run_id, started=f"{now - timedelta(days=days):%Y-%m-%dT%H:%M:%SZ}", branch=run_id)
    said("rebuild")
    dry = said("prune", "--keep", "90d")
    assert "1 run from before" in dry
    assert "would be removed, with 15 measurements" in dry
    assert "  old  old\n" in dry
    assert "nothing was removed; add --remove" in dry
    assert "2 runs" in said("stats")
    kept = said("prune", "--keep", "90d", "--keep-branch", "old", "--remove")
    assert "0 runs from before" in kept
    assert "older runs that stay: 1 of kept branches, 0 references, 0 of changes" in kept
    document = json.loads(said("prune", "--keep", "12w", "--keep-branch", "old=2w", "--remove", "--json"))
    assert [run["run_id"] for run in document["runs"]] == ["old"]
    assert document["measurements"] == 15
    assert Path(document["runs"][0]["path"]).is_dir()
    assert json.loads(said("stats", "--json"))["runs"] == 1
    for command in (("import", "results"), ("rebuild",)):
        assert "1 run left out, pruned from the index earlier; --pruned-too brings back" in said(*command)
    assert "1 new" in said("import", "results", "--pruned-too")
    assert "left out" not in said("rebuild")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--keep", "soon"), "'soon' is not an age"),
        (("--keep", "0d"), "'0d' is not an age"),
        (("--keep", "99999y"), "too long ago"),
        (("--keep", "1d", "--keep-branch", "=2y"), "names no branch"),
        (("--keep", "1d", "--keep-branch", "main="), "'' is not an age"),
    ],
)
def test_an_age_that_is_none_is_refused(arguments: tuple[str, ...], words: str) -> None:
    error = told("prune", *arguments)
    assert isinstance(error, ConfigError)
    assert words in str(error)


def test_an_index_can_be_made_without_runs() -> None:
    assert "schema 2" in said("create", "--index", "empty.sqlite")
    assert "0 measurements" in said("stats", "--index", "empty.sqlite")


def test_series_are_listed_and_shown() -> None:
    write_run(Path("results"), "bbbbbb", kernel=("6.12.9-armmp", "6.12.9-1"), started="2026-03-01T10:00:00Z")
    write_run(Path("results"), "aaaaaa", branch="topic")
    said("rebuild")
    listed = json.loads(said("series", "--fs", "ext4", "--json"))
    assert {entry["series"]["filesystem"] for entry in listed} == {"ext4"}
    entry = next(e for e in listed if e["series"]["workload"] == "read-16k" and e["valid"] == 2)
    key = entry["series"]["key"]
    line = next(line for line in said("series").splitlines() if key[:8] in line)
    assert line.split() == [key[:8], "ext4", "read-16k", "virtual", "simulated", "2", "2", "2"]
    by_time = json.loads(said("series", key[:10], "--json"))
    by_kernel = json.loads(said("series", key, "--by", "kernel", "--json"))
    assert [point["run_id"] for point in by_time["points"]] == ["bbbbbb", "aaaaaa"]
    assert [point["run_id"] for point in by_kernel["points"]] == ["aaaaaa", "bbbbbb"]
    assert by_kernel["points"][0]["figures"]["throughput_mib_per_s"] > 0
    text = said("series", key, "--metric", "energy")
    assert "ext4 read-16k on virtual  simulated" in text
    assert "mJ/MiB" in text
    assert "±" in text
    assert "bbbbbb" not in said("series", key, "--of", "topic")


def test_invalid_measurements_are_shown_when_asked_for() -> None:
    invalid = write_run(Path("results"), "aaaaaa").measurements[1]
    said("rebuild")
    listed = json.loads(said("series", "--json"))
    (key,) = (e["series"]["key"] for e in listed if not e["valid"])
    assert invalid.slug.partition("-")[2] in said("series", key)
    assert json.loads(said("series", key, "--json"))["points"] == []
    assert "differ by 10.1 %" in said("series", key, "--all")


def test_what_is_not_there_is_said_with_what_to_do() -> None:
    assert "fsjoule index rebuild results" in str(told("stats"))
    assert isinstance(told("import", "nothing"), ResultError)
    assert "results is not a folder" in str(told("rebuild"))
    assert not Path("results").exists()
    write_run(Path("results"), "aaaaaa")
    said("rebuild")
    assert "list them with: fsjoule index series" in str(told("series", "feedbeef"))
    assert "has no series ''" in str(told("series", ""))
    assert "cannot be kept in 'mysql'" in str(told("stats", "--index", "mysql://db/x"))


@pytest.mark.parametrize("command", ["rebuild", "import", "stats", "series"])
def test_every_command_has_an_example(command: str) -> None:
    text = said(command, "--help")
    assert f"Example: fsjoule index {command}" in text
    assert "FSJOULE_INDEX" in text
