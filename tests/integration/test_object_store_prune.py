"""Old runs, and objects of no run, leave an object store."""

from __future__ import annotations

from collections.abc import Generator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from command_line import CommandLine, command_line
from object_store import ObjectStore, bucket_at, contents, object_store, write_kept

from fsjoule.store.objects.archives import listed_runs
from fsjoule.store.objects.bucket import Bucket


@pytest.fixture(scope="module")
def server() -> Generator[ObjectStore]:
    with object_store() as started:
        yield started


@pytest.fixture
def store(server: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> str:
    for name, value in server.variables.items():
        monkeypatch.setenv(name, value)
    return server.new_bucket()


@pytest.fixture
def bucket(server: ObjectStore, store: str) -> Bucket:
    return bucket_at(server.url, store)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> CommandLine:
    monkeypatch.chdir(tmp_path)
    return command_line(monkeypatch, capfd)


def days_ago(days: int) -> str:
    return (datetime.now(UTC) - timedelta(days=days)).strftime("%Y-%m-%dT10:00:00Z")


def names(bucket: Bucket) -> list[str]:
    return [run.name for run in listed_runs(bucket)]


def test_old_runs_go(run: CommandLine, store: str, bucket: Bucket, tmp_path: Path) -> None:
    old = write_kept(tmp_path / "results", "aaaaaa", started=days_ago(100))
    new = write_kept(tmp_path / "results", "bbbbbb", started=days_ago(10))
    run("results", "push", store)
    done = run("results", "prune", store, "--keep", "90d")
    assert done.out.splitlines()[0] == f"{store}/{old.name}"
    assert "to remove: 1 run, 0 superseded archives, 0.0 MiB; kept: 1 run" in done.out
    assert "add --remove" in done.err
    assert names(bucket) == [old.name, new.name]
    done = run("results", "prune", store, "--keep", "13w", "--remove")
    assert (done.code, done.err) == (0, "")
    assert "removed: 1 run, 0 superseded" in done.out
    assert names(bucket) == [new.name]
    assert run("results", "pull", store, "--into", "there").code == 0
    assert contents(tmp_path / "there" / new.name) == contents(new)
    assert "removed: 0 runs, 0 superseded" in run("results", "prune", store, "--keep", "90d", "--remove").out


def test_an_archive_goes_a_day_after_a_newer_one_came(
    run: CommandLine, server: ObjectStore, store: str, tmp_path: Path
) -> None:
    run("results", "push", write_kept(tmp_path / "begun", numbers=1, finished=False), store)
    grown = write_kept(tmp_path / "grown", numbers=2)
    run("results", "push", grown, store)
    assert "removed: 0 runs, 0 superseded" in run("results", "prune", store, "--keep", "1000w", "--remove").out
    server.age("runs", 2)
    assert "removed: 0 runs, 1 superseded" in run("results", "prune", store, "--keep", "1000w", "--remove").out
    assert run("results", "pull", store, "--into", "there").code == 0
    assert contents(tmp_path / "there" / grown.name) == contents(grown)


def test_foreign_objects_are_left_alone(
    run: CommandLine, server: ObjectStore, store: str, bucket: Bucket, tmp_path: Path
) -> None:
    keys = ["README", "objects/ab/cd", "runs/notes.json", "runs/20250101T000000Z-evil-1/x.tar.zst"]
    (tmp_path / "x").write_bytes(b"x")
    for key in keys:
        bucket.put(key, tmp_path / "x")
    server.age("runs", 900)
    run("results", "prune", store, "--keep", "1d", "--remove")
    assert sorted(found.key for found in bucket.list("")) == sorted(keys)


@pytest.mark.parametrize("keep", ["90", "d", "-1d", "0d", "1.5d", "90m"])
def test_a_time_that_is_none_is_refused(run: CommandLine, store: str, keep: str) -> None:
    done = run("results", "prune", store, f"--keep={keep}")
    assert (done.code, done.out) == (2, "")
    assert "90d" in done.err
