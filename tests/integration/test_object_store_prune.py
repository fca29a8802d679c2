"""Old runs, and objects of no run, leave an object store."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from command_line import CommandLine
from object_store import ObjectStore, bucket_at, contents, write_kept

from fsjoule.store.objects.archives import listed_runs
from fsjoule.store.objects.bucket import Bucket


@pytest.fixture
def store(moto: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> str:
    for name, value in moto.variables.items():
        monkeypatch.setenv(name, value)
    return moto.new_bucket()


@pytest.fixture
def bucket(moto: ObjectStore, store: str) -> Bucket:
    return bucket_at(moto.url, store)


def days_ago(days: int) -> str:
    return (datetime.now(UTC) - timedelta(days=days)).strftime("%Y-%m-%dT10:00:00Z")


def names(bucket: Bucket) -> list[str]:
    return [run.name for run in listed_runs(bucket)]


def test_old_runs_go(fsjoule: CommandLine, store: str, bucket: Bucket, tmp_path: Path) -> None:
    old = write_kept(tmp_path / "results", "aaaaaa", started=days_ago(100))
    new = write_kept(tmp_path / "results", "bbbbbb", started=days_ago(10))
    fsjoule("results", "push", store)
    done = fsjoule("results", "prune", store, "--keep", "90d")
    assert done.out.splitlines()[0] == f"{store}/{old.name}"
    assert "to remove: 1 run, 0 superseded archives, 0.0 MiB; kept: 1 run" in done.out
    assert "add --remove" in done.err
    assert names(bucket) == [old.name, new.name]
    done = fsjoule("results", "prune", store, "--keep", "13w", "--remove")
    assert (done.code, done.err) == (0, "")
    assert "removed: 1 run, 0 superseded" in done.out
    assert names(bucket) == [new.name]
    assert fsjoule("results", "pull", store, "--into", "there").code == 0
    assert contents(tmp_path / "there" / new.name) == contents(new)
    assert "removed: 0 runs, 0 superseded" in fsjoule("results", "prune", store, "--keep", "90d", "--remove").out


def test_an_archive_goes_a_day_after_a_newer_one_came(
    fsjoule: CommandLine, moto: ObjectStore, store: str, tmp_path: Path
) -> None:
    fsjoule("results", "push", write_kept(tmp_path / "begun", numbers=1, finished=False), store)
    grown = write_kept(tmp_path / "grown", numbers=2)
    fsjoule("results", "push", grown, store)
    assert "removed: 0 runs, 0 superseded" in fsjoule("results", "prune", store, "--keep", "1000w", "--remove").out
    moto.age("runs", 2)
    assert "removed: 0 runs, 1 superseded" in fsjoule("results", "prune", store, "--keep", "1000w", "--remove").out
    assert fsjoule("results", "pull", store, "--into", "there").code == 0
    assert contents(tmp_path / "there" / grown.name) == contents(grown)


def test_foreign_objects_are_left_alone(
    fsjoule: CommandLine, moto: ObjectStore, store: str, bucket: Bucket, tmp_path: Path
) -> None:
    keys = ["README", "objects/ab/cd", "runs/notes.json", "runs/20250101T000000Z-evil-1/x.tar.zst"]
    (tmp_path / "x").write_bytes(b"x")
    for key in keys:
        bucket.put(key, tmp_path / "x")
    moto.age("runs", 900)
    fsjoule("results", "prune", store, "--keep", "1d", "--remove")
    assert sorted(found.key for found in bucket.list("")) == sorted(keys)


@pytest.mark.parametrize("keep", ["90", "d", "-1d", "0d", "1.5d", "90m"])
def test_a_time_that_is_none_is_refused(fsjoule: CommandLine, store: str, keep: str) -> None:
    done = fsjoule("results", "prune", store, f"--keep={keep}")
    assert (done.code, done.out) == (2, "")
    assert "90d" in done.err
