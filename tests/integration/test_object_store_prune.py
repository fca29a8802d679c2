"""Old runs, and objects of no run, leave an object store."""

from __future__ import annotations

from collections.abc import Generator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from command_line import CommandLine, command_line
from object_store import ObjectStore, bucket_at, contents, object_store, write_kept

from fsjoule.store.objects.bucket import Bucket
from fsjoule.store.objects.runs import listed_objects, listed_runs, run_key


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


def test_old_runs_go_and_what_others_share_stays(
    run: CommandLine, server: ObjectStore, store: str, bucket: Bucket, tmp_path: Path
) -> None:
    old = write_kept(tmp_path / "results", "aaaaaa", started=days_ago(100))
    new = write_kept(tmp_path / "results", "bbbbbb", started=days_ago(10))
    run("results", "push", store)
    server.age("objects", 3)
    server.age("pushes", 3)
    before = len(list(bucket.list("")))
    done = run("results", "prune", store, "--keep", "90d")
    assert done.out.splitlines()[0] == f"{store}/{old.name}"
    assert "to remove: 1 run, 3 objects of 0.2 MiB; kept: 1 run, 0 objects" in done.out
    assert "add --remove" in done.err
    assert len(list(bucket.list(""))) == before
    done = run("results", "prune", store, "--keep", "13w", "--remove")
    assert (done.code, done.err) == (0, "")
    assert "removed: 1 run, 3 objects" in done.out
    assert names(bucket) == [new.name]
    assert len(list(listed_objects(bucket))) == 4
    assert list(bucket.list("pushes")) == []
    assert run("results", "pull", store, "--into", "there").code == 0
    assert contents(tmp_path / "there" / new.name) == contents(new)
    assert "removed: 0 runs, 0 objects" in run("results", "prune", store, "--keep", "90d", "--remove").out


def test_objects_that_are_young_or_named_by_a_push_stay(
    run: CommandLine, server: ObjectStore, store: str, bucket: Bucket, tmp_path: Path
) -> None:
    folder = write_kept(tmp_path / "results")
    run("results", "push", store)
    bucket.delete([run_key(folder.name)])
    assert (
        "0 objects of 0.0 MiB; kept: 0 runs, 0 objects"
        in run("results", "prune", store, "--keep", "1d", "--remove").out
    )
    server.age("pushes", 2)
    # The intent is too old to count, the objects are young.
    assert "kept: 0 runs, 4 objects" in run("results", "prune", store, "--keep", "1d", "--remove").out
    assert len(list(listed_objects(bucket))) == 4
    server.age("objects", 2)
    assert "removed: 0 runs, 4 objects" in run("results", "prune", store, "--keep", "1d", "--remove").out
    assert [found.key for found in bucket.list("")] == ["prune.json"]


def test_foreign_objects_are_left_alone(run: CommandLine, server: ObjectStore, store: str, bucket: Bucket) -> None:
    keys = ["README", "objects/ab/cd", "objects/notes", "runs/notes.json", "pushes/x", f"objects/ab/{'c' * 64}"]
    for key in keys:
        bucket.put(key, b"x")
    for below in ("objects", "runs", "pushes"):
        server.age(below, 900)
    run("results", "prune", store, "--keep", "1d", "--remove")
    assert sorted(found.key for found in bucket.list("")) == sorted([*keys, "prune.json"])


def test_nothing_goes_while_a_manifest_cannot_be_read(
    run: CommandLine, server: ObjectStore, store: str, bucket: Bucket, tmp_path: Path
) -> None:
    old = write_kept(tmp_path / "results", "aaaaaa", started=days_ago(100))
    new = write_kept(tmp_path / "results", "bbbbbb", started=days_ago(1))
    run("results", "push", store)
    server.age("objects", 2)
    bucket.put(run_key(new.name), b"{")
    done = run("results", "prune", store, "--keep", "90d", "--remove")
    assert done.code == 2
    assert new.name in done.err
    assert "results push --again" in done.err
    assert names(bucket) == [old.name, new.name]
    assert len(list(listed_objects(bucket))) == 7
    assert run("results", "push", store).code == 2
    assert run("results", "push", store, "--again").code == 0
    assert "removed: 1 run, 0 objects" in run("results", "prune", store, "--keep", "90d", "--remove").out


@pytest.mark.parametrize("keep", ["90", "d", "-1d", "0d", "1.5d", "90m"])
def test_a_time_that_is_none_is_refused(run: CommandLine, store: str, keep: str) -> None:
    done = run("results", "prune", store, f"--keep={keep}")
    assert (done.code, done.out) == (2, "")
    assert "90d" in done.err
