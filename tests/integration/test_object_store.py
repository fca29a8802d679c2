"""Run folders in an object store: pushed, pulled and told apart, with moto's server."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest
from command_line import CommandLine, command_line
from index_runs import edit, measurement_file
from object_store import (
    KEY_ID,
    SECRET,
    ObjectStore,
    Proxy,
    bucket_at,
    contents,
    object_store,
    proxy,
    write_kept,
)

from fsjoule.store.archive import digest_table, pack_run
from fsjoule.store.folder import RunFolder
from fsjoule.store.objects.archives import listed_runs
from fsjoule.store.reader import load_run


@pytest.fixture(scope="module")
def server() -> Generator[ObjectStore]:
    with object_store() as started:
        yield started


@pytest.fixture
def way(server: ObjectStore) -> Generator[Proxy]:
    with proxy(server.url) as passing:
        yield passing


@pytest.fixture
def store(server: ObjectStore, way: Proxy, monkeypatch: pytest.MonkeyPatch) -> str:
    for name, value in {**server.variables, "AWS_ENDPOINT_URL": way.url}.items():
        monkeypatch.setenv(name, value)
    return server.new_bucket()


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> CommandLine:
    monkeypatch.chdir(tmp_path)
    return command_line(monkeypatch, capfd)


def test_runs_come_back_as_they_were(run: CommandLine, store: str, tmp_path: Path) -> None:
    folders = [write_kept(tmp_path / "results", each) for each in ("aaaaaa", "bbbbbb")]
    (folders[0] / "report.html").write_text("<p>a page</p>")
    done = run("results", "push", store)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("2 runs new, 0 grown, 0 already there; ")
    assert run("results", "list", store).out.split() == [f"{store}/{folder.name}" for folder in folders]
    done = run("results", "pull", store, "--into", "there")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("2 runs new, 0 grown, 0 already there; ")
    for folder in folders:
        assert contents(tmp_path / "there" / folder.name) == contents(folder)
        assert not load_run(tmp_path / "there" / folder.name).damaged
    assert sorted(path.name for path in (tmp_path / "there").iterdir()) == [folder.name for folder in folders]


def test_nothing_is_sent_twice(run: CommandLine, store: str, way: Proxy, tmp_path: Path) -> None:
    first = write_kept(tmp_path / "results", "aaaaaa")
    assert run("results", "push", first, store).out.startswith("1 run new")
    write_kept(tmp_path / "results", "bbbbbb")
    done = run("results", "push", "results", store, "--json").document
    assert (done["new"], done["known"]) == (1, 1)
    assert len(list(bucket_at(way.url, store).list(""))) == 2, "an archive of each run"
    way.asked.clear()
    assert run("results", "push", store).out.startswith("0 runs new, 0 grown, 2 already there; 0.0 MiB sent")
    assert run("results", "pull", store, "--into", "results").out.startswith("0 runs new, 0 grown, 2 already there")
    assert [method for method, _, _ in way.asked] == ["GET"] * 5, "lists of the runs, and of documents to fetch"


def test_a_run_that_has_grown_is_another_archive(run: CommandLine, store: str, way: Proxy, tmp_path: Path) -> None:
    begun = write_kept(tmp_path / "begun", numbers=2, finished=False)
    grown = write_kept(tmp_path / "grown", numbers=4)
    for folder in (begun, grown):
        (folder / "report.html").write_text(f"<p>{folder.parent.name}</p>")
    run("results", "push", begun, store)
    run("results", "pull", store, "--into", "there")
    done = run("results", "push", grown, store, "--json").document
    assert (done["new"], done["grown"]) == (0, 1)
    way.asked.clear()
    # The older copy is no other content, and takes nothing away.
    assert run("results", "push", begun, store).out.startswith("0 runs new, 0 grown, 1 already there")
    assert way.sent_bytes() == 0
    assert run("results", "pull", store, "--into", "there").out.startswith("0 runs new, 1 grown, 0 already there")
    assert contents(tmp_path / "there" / grown.name) == contents(grown)
    assert len(list((tmp_path / "there").iterdir())) == 1


def test_a_complete_run_that_measured_more_has_grown(run: CommandLine, store: str, tmp_path: Path) -> None:
    for place, numbers in (("before", 2), ("after", 4)):
        write_kept(tmp_path / place, numbers=numbers)
    run("results", "push", "before", store)
    assert run("results", "push", "after", store).out.startswith("0 runs new, 1 grown, 0 already there")
    assert run("results", "push", "before", store).out.startswith("0 runs new, 0 grown, 1 already there")


def test_another_content_under_a_runs_name_is_left_out_both_ways(run: CommandLine, store: str, tmp_path: Path) -> None:
    ours, theirs = write_kept(tmp_path / "ours"), write_kept(tmp_path / "theirs")
    another = write_kept(tmp_path / "theirs", "bbbbbb")
    edit(measurement_file(theirs, 2), duration_s=99.0)
    run("results", "push", ours, store)
    done = run("results", "push", "theirs", store)
    assert done.code == 2
    assert done.out.startswith("1 run new, 0 grown, 0 already there")
    assert f"left out: {ours.name}: the store has another content under its name (find out which copy" in done.err
    changed = contents(theirs)
    done = run("results", "pull", store, "--into", "theirs")
    assert done.code == 2
    assert f"left out: {ours.name}: the folder there has another content (move it away" in done.err
    assert contents(theirs) == changed
    assert another.exists()


def test_a_long_push_tells_how_long_it_will_take(
    run: CommandLine, store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fsjoule.cli.common._SAY_EVERY_S", 0.0)
    for each in ("aaaaaa", "bbbbbb", "cccccc"):
        write_kept(tmp_path / "results", each, numbers=4)
    told = run("results", "push", store).err.splitlines()
    assert told[-1] == "1 of 1 MiB sent, 0 min left"
    assert len(told) == 3
    assert all(line.endswith(" min left") for line in told)


def test_a_run_that_is_being_measured_waits(run: CommandLine, store: str, tmp_path: Path) -> None:
    loaded = load_run(write_kept(tmp_path / "whole"))
    folder = RunFolder(tmp_path / "results")
    folder.begin(loaded.run)
    assert run("results", "push", store).out.startswith("0 runs new")
    assert run("results", "list", store).out == ""
    folder.finish(loaded.run)
    assert run("results", "push", store).out.startswith("1 run new")


def test_what_no_run_folder_has_is_named_and_not_sent(run: CommandLine, store: str, tmp_path: Path) -> None:
    folder = write_kept(tmp_path / "results")
    (tmp_path / "secret").write_text("a secret of this computer")
    (folder / "link").symlink_to(tmp_path / "secret")
    (folder / "measurements" / "09-x.partial").mkdir()
    (folder / "measurements" / "09-x.partial" / "fio.json").write_text("half")
    done = run("results", "push", store)
    assert done.code == 0
    assert f"left out of its run: {folder.name}/link: it is a symbolic link" in done.err
    run("results", "pull", store, "--into", "there")
    there = contents(tmp_path / "there" / folder.name)
    assert "link" not in there
    assert not [path for path in there if "partial" in path]


@pytest.mark.parametrize("name", ["renamed", "20260309T100000Z-virtual-another", "20260309T100000Z-v irtual-aaaaaa"])
def test_a_run_has_its_own_name(run: CommandLine, store: str, tmp_path: Path, name: str) -> None:
    folder = write_kept(tmp_path / "results")
    folder.rename(folder.with_name(name))
    done = run("results", "push", store)
    assert done.code == 2
    assert f"left out: {name}: its folder's name is not that of its run" in done.err
    assert run("results", "list", store).out == ""


def test_a_damaged_run_is_named_and_the_others_are_sent(run: CommandLine, store: str, tmp_path: Path) -> None:
    bad, good = (write_kept(tmp_path / "results", each) for each in ("aaaaaa", "bbbbbb"))
    (bad / "run.json").write_text("{")
    done = run("results", "push", store)
    assert done.code == 2
    assert bad.name in done.err
    assert run("results", "list", store).out == f"{store}/{good.name}\n"


@pytest.mark.parametrize("damage", ["no archive", "cut short", "that of another run"])
def test_a_damaged_archive_is_told_and_put_right(
    run: CommandLine, store: str, server: ObjectStore, tmp_path: Path, damage: str
) -> None:
    folder, other = (write_kept(tmp_path / "results", each) for each in ("aaaaaa", "bbbbbb"))
    run("results", "push", store)
    bucket = bucket_at(server.url, store)
    archive, another = listed_runs(bucket)
    good, bad = (bucket.part(each.key, 0, each.size_bytes) for each in (archive, another))
    (tmp_path / "bad").write_bytes({"no archive": b"x" * 100, "cut short": good[:-50]}.get(damage, bad))
    bucket.put(archive.key, tmp_path / "bad")
    done = run("results", "pull", store, "--into", "there")
    assert done.code == 2
    assert f"left out: {folder.name}: s3://" in done.err
    assert "--again" in done.err
    assert [path.name for path in (tmp_path / "there").iterdir()] == [other.name]
    assert run("results", "push", store).out.startswith("0 runs new, 0 grown, 2 already there")
    assert run("results", "push", folder, store, "--again").code == 0
    assert run("results", "pull", store, "--into", "there").code == 0
    assert contents(tmp_path / "there" / folder.name) == contents(folder)


def test_an_archive_has_the_files_that_its_name_says(
    run: CommandLine, store: str, server: ObjectStore, tmp_path: Path
) -> None:
    """An archive that is whole in itself, but of another content than the one that was pushed."""
    folder = write_kept(tmp_path / "results")
    run("results", "push", store)
    measurement_file(folder, 2).with_name("console.log").write_text("another")
    pack_run(folder, digest_table(folder, [], believe=False), tmp_path / "another")
    bucket = bucket_at(server.url, store)
    bucket.put(listed_runs(bucket)[0].key, tmp_path / "another")
    done = run("results", "pull", store, "--into", "there")
    assert done.code == 2
    assert "it has other files than its name says" in done.err
    assert list((tmp_path / "there").iterdir()) == []


@pytest.mark.parametrize(
    ("variables", "store", "code", "what"),
    [
        ({}, "s3://no-such-bucket/boards", 7, "there is no such bucket"),
        ({"AWS_ENDPOINT_URL": "http://127.0.0.1:1"}, "s3://lab/boards", 7, "cannot be reached"),
        ({"AWS_ENDPOINT_URL": "http://127.0.0.1:1", "AWS_SECRET_ACCESS_KEY": ""}, "s3://lab/boards", 2, "is not set"),
        ({}, "s3://lab/20250101T000000Z-evil-1", 2, "is one run"),
        ({}, "results", 2, "is not the address"),
    ],
)
def test_what_cannot_work_is_told_with_what_to_do(  # noqa: PLR0917 - fixtures
    run: CommandLine,
    server: ObjectStore,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    variables: dict[str, str],
    store: str,
    code: int,
    what: str,
) -> None:
    for name, value in (server.variables | variables).items():
        monkeypatch.setenv(name, value)
    write_kept(tmp_path / "results")
    done = run("results", "push", "results", store)
    assert (done.code, done.out) == (code, "")
    assert what in done.err
    assert "hint: " in done.err
    assert not any(secret in done.err for secret in (KEY_ID, SECRET))
