"""An index is a cache: dropped and made again, from run folders or from an object store, it gives the same answers."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import CommandLine
from nights import Nights, slower_at
from object_store import ObjectStore, bucket_at

from fsjoule.model import IoPattern
from fsjoule.model.kernel import Kernel
from fsjoule.store.index.database import open_index
from fsjoule.store.index.importer import import_runs
from fsjoule.store.index.retention import Retention, prune
from fsjoule.store.index.run_list import WhichRuns, list_runs
from fsjoule.store.index.states import keep_states, kept_states
from fsjoule.store.states import ChangeState, KeptState

NewLocation = Callable[[], str]
ASKED = (
    ("trend", "--json", "--all"),
    ("trend", "--all"),
    ("trend", "--json", "--all", "--by", "kernel"),
    ("index", "series", "--json"),
    ("index", "stats", "--json"),
)


@pytest.fixture
def run(fsjoule: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> CommandLine:
    monkeypatch.setenv("FSJOULE_CACHE_DIR", str(tmp_path / "cache"))
    return fsjoule


def answers(run: CommandLine, location: str) -> list[str]:
    """What the index answers, and what it holds but for the places of folders."""
    told: list[str] = []
    for words in ASKED:
        done = run(*words, "--index", location)
        assert done.code == 0, done.err
        told.append(done.out)
    with open_index(location) as index:
        told += map(str, kept_states(index))
        told += [str(replace(each, path="")) for each in list_runs(index, WhichRuns(), count=99)]
    return told


def fill(run: CommandLine, location: str) -> None:
    """Accept a change after another acceptance was taken back, explain it, prune five runs, and bring one back."""
    (cause,) = run("trend", "--json", "--index", location).document["causes"]
    series, since = cause["changes"][0]["series"], cause["since"]["run"]
    accept = ("trend", "accept", series, since, "--index", location)
    for words in (("--why", "not so"), ("--undo",), ("--why", "as intended")):
        assert run(*accept, *words).code == 0
    kernels = tuple(Kernel(**cause[name]["kernel"]) for name in ("last", "since"))
    with open_index(location) as index:
        assert {each.why for each in kept_states(index)} == {"as intended"}
        keep_states(index, [KeptState(series, ChangeState.EXPLAINED, kernels=(kernels[0], kernels[1]), run_id="why")])
        assert len(prune(index, Retention("2026-01-06T00:00:00Z")).runs) == 5
        (folder,) = Path("results").glob("*00002")
        assert import_runs(index, [folder], pruned_too=True).new == 1


def test_a_dropped_index_comes_back_from_folders_and_from_an_object_store(
    run: CommandLine, moto: ObjectStore, monkeypatch: pytest.MonkeyPatch, new_location: NewLocation
) -> None:
    for name, value in moto.variables.items():
        monkeypatch.setenv(name, value)
    Nights(speed=slower_at(21), filesystems=("btrfs",), patterns=(IoPattern.RANDWRITE,)).write(Path("results"), 36)
    at = new_location()
    location = at if "://" in at else "results/index.sqlite"
    assert run("index", "import", "results", "--index", location).code == 0
    fill(run, location)
    before = answers(run, location)
    assert "accepted on " in before[1]
    assert "32 runs" in run("index", "stats", "--index", location).out

    # SQLite's is dropped, PostgreSQL's is left for another database.
    Path("results/index.sqlite").unlink(missing_ok=True)
    again = new_location() if "://" in at else location
    assert run("index", "rebuild", "--index", again).code == 0
    assert answers(run, again) == before

    store = moto.new_bucket()
    done = run("results", "push", store)
    assert (done.code, done.out.rpartition(", ")[2]) == (0, "6 documents beside the runs\n")
    assert "documents beside" not in run("results", "push", store).out
    shutil.rmtree("results")
    third = new_location()
    for _ in range(2):
        assert run("index", "import", store, "--index", third).code == 0
        assert answers(run, third) == before

    pulled = run("results", "pull", store, "--into", "pulled")
    assert (pulled.code, pulled.out.rpartition(", ")[2]) == (0, "6 documents beside the runs\n")
    fourth = new_location() if "://" in at else "pulled/index.sqlite"
    assert run("index", "rebuild", "pulled", "--index", fourth).code == 0
    assert answers(run, fourth) == before


def test_a_changed_document_is_neither_sent_nor_fetched(
    run: CommandLine, moto: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in moto.variables.items():
        monkeypatch.setenv(name, value)
    Nights(filesystems=("btrfs",), patterns=(IoPattern.RANDWRITE,)).write(Path("results"), 1)
    with open_index("results/index.sqlite", create=True) as index:
        keep_states(index, [KeptState("0" * 16, ChangeState.ACCEPTED, why="so")])
        (document,) = index.states.iterdir()
    whole, changed = document.read_bytes(), document.read_bytes().replace(b'"so"', b'"no"')
    store = moto.new_bucket()
    document.write_bytes(changed)
    done = run("results", "push", store)
    assert done.code == 2
    assert "it has another content than it was written with" in done.err
    document.write_bytes(whole)
    assert run("results", "push", store).code == 0
    document.write_bytes(changed)
    bucket_at(moto.url, store).put(f"states/{document.name}", document)
    done = run("results", "pull", store, "--into", "pulled")
    assert done.code == 2
    assert "it has another content than it was written with" in done.err
    done = run("index", "import", store, "--index", "there.sqlite")
    assert (done.code, "left out: s3://" in done.err) == (0, True)
