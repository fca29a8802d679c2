"""Run folders in an object store: pushed, pulled and told apart, with moto's server."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import CommandLine
from index_runs import edit, measurement_file
from object_store import (
    KEY_ID,
    SECRET,
    ObjectStore,
    Proxy,
    bucket_at,
    contents,
    write_kept,
)

from fsjoule.store.archive import digest_table, pack_run
from fsjoule.store.folder import RunFolder
from fsjoule.store.objects.archives import listed_runs
from fsjoule.store.reader import load_run


@pytest.fixture
def store(moto: ObjectStore, way: Proxy, monkeypatch: pytest.MonkeyPatch) -> str:
    for name, value in {**moto.variables, "AWS_ENDPOINT_URL": way.url}.items():
        monkeypatch.setenv(name, value)
    return moto.new_bucket()


def test_runs_come_back_as_they_were(fsjoule: CommandLine, store: str, tmp_path: Path) -> None:
    folders = [write_kept(tmp_path / "results", each) for each in ("aaaaaa", "bbbbbb")]
    (folders[0] / "report.html").write_text("<p>a page</p>")
    done = fsjoule("results", "push", store)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("2 runs new, 0 grown, 0 already there; ")
    assert fsjoule("results", "list", store).out.split() == [f"{store}/{folder.name}" for folder in folders]
    done = fsjoule("results", "pull", store, "--into", "there")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("2 runs new, 0 grown, 0 already there; ")
    for folder in folders:
        assert contents(tmp_path / "there" / folder.name) == contents(folder)
        assert not load_run(tmp_path / "there" / folder.name).damaged
    assert sorted(path.name for path in (tmp_path / "there").iterdir()) == [folder.name for folder in folders]


def test_nothing_is_sent_twice(fsjoule: CommandLine, store: str, way: Proxy, tmp_path: Path) -> None:
    first = write_kept(tmp_path / "results", "aaaaaa")
    assert fsjoule("results", "push", first, store).out.startswith("1 run new")
    write_kept(tmp_path / "results", "bbbbbb")
    done = fsjoule("results", "push", "results", store, "--json").document
    assert (done["new"], done["known"]) == (1, 1)
    assert len(list(bucket_at(way.url, store).list(""))) == 2, "an archive of each run"
    way.asked.clear()
    assert fsjoule("results", "push", store).out.startswith("0 runs new, 0 grown, 2 already there; 0.0 MiB sent")
    assert fsjoule("results", "pull", store, "--into", "results").out.startswith("0 runs new, 0 grown, 2 already there")
    assert [method for method, _, _ in way.asked] == ["GET"] * 5, "lists of the runs, and of documents to fetch"


def test_a_run_that_has_grown_is_another_archive(fsjoule: CommandLine, store: str, way: Proxy, tmp_path: Path) -> None:
    begun = write_kept(tmp_path / "begun", numbers=2, finished=False)
    grown = write_kept(tmp_path / "grown", numbers=4)
    for folder in (begun, grown):
        (folder / "report.html").write_text(f"<p>{folder.parent.name}</p>")
    fsjoule("results", "push", begun, store)
    fsjoule("results", "pull", store, "--into", "there")
    done = fsjoule("results", "push", grown, store, "--json").document
    assert (done["new"], done["grown"]) == (0, 1)
    way.asked.clear()
    # The older copy is no other content, and takes nothing away.
    assert fsjoule("results", "push", begun, store).out.startswith("0 runs new, 0 grown, 1 already there")
    assert way.sent_bytes() == 0
    assert fsjoule("results", "pull", store, "--into", "there").out.startswith("0 runs new, 1 grown, 0 already there")
    assert contents(tmp_path / "there" / grown.name) == contents(grown)
    assert len(list((tmp_path / "there").iterdir())) == 1


def test_a_complete_run_that_measured_more_has_grown(fsjoule: CommandLine, store: str, tmp_path: Path) -> None:
    for place, numbers in (("before", 2), ("after", 4)):
        write_kept(tmp_path / place, numbers=numbers)
    fsjoule("results", "push", "before", store)
    assert fsjoule("results", "push", "after", store).out.startswith("0 runs new, 1 grown, 0 already there")
    assert fsjoule("results", "push", "before", store).out.startswith("0 runs new, 0 grown, 1 already there")


def test_another_content_under_a_runs_name_is_left_out_both_ways(
    fsjoule: CommandLine, store: str, tmp_path: Path
) -> None:
    ours, theirs = write_kept(tmp_path / "ours"), write_kept(tmp_path / "theirs")
    another = write_kept(tmp_path / "theirs", "bbbbbb")
    edit(measurement_file(theirs, 2), duration_s=99.0)
    fsjoule("results", "push", ours, store)
    done = fsjoule("results", "push", "theirs", store)
    assert done.code == 2
    assert done.out.startswith("1 run new, 0 grown, 0 already there")
    assert f"left out: {ours.name}: the store has another content under its name (find out which copy" in done.err
    changed = contents(theirs)
    done = fsjoule("results", "pull", store, "--into", "theirs")
    assert done.code == 2
    assert f"left out: {ours.name}: the folder there has another content (move it away" in done.err
    assert contents(theirs) == changed
    assert another.exists()


def test_a_long_push_tells_how_long_it_will_take(
    fsjoule: CommandLine, store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fsjoule.cli.common._SAY_EVERY_S", 0.0)
    for each in ("aaaaaa", "bbbbbb", "cccccc"):
        write_kept(tmp_path / "results", each, numbers=4)
    told = fsjoule("results", "push", store).err.splitlines()
    assert told[-1] == "1 of 1 MiB sent, 0 min left"
    assert len(told) == 3
    assert all(line.endswith(" min left") for line in told)


def test_a_run_that_is_being_measured_waits(fsjoule: CommandLine, store: str, tmp_path: Path) -> None:
    loaded = load_run(write_kept(tmp_path / "whole"))
    folder = RunFolder(tmp_path / "results")
    folder.begin(loaded.run)
    assert fsjoule("results", "push", store).out.startswith("0 runs new")
    assert fsjoule("results", "list", store).out == ""
    folder.finish(loaded.run)
    assert fsjoule("results", "push", store).out.startswith("1 run new")


def test_what_no_run_folder_has_is_named_and_not_sent(fsjoule: CommandLine, store: str, tmp_path: Path) -> None:
    folder = write_kept(tmp_path / "results")
    (tmp_path / "secret").write_text("a secret of this computer")
    (folder / "link").symlink_to(tmp_path / "secret")
    (folder / "measurements" / "09-x.partial").mkdir()
    (folder / "measurements" / "09-x.partial" / "fio.json").write_text("half")
    done = fsjoule("results", "push", store)
    assert done.code == 0
    assert f"left out of its run: {folder.name}/link: it is a symbolic link" in done.err
    fsjoule("results", "pull", store, "--into", "there")
    there = contents(tmp_path / "there" / folder.name)
    assert "link" not in there
    assert not [path for path in there if "partial" in path]


@pytest.mark.parametrize("name", ["renamed", "20260309T100000Z-virtual-another", "20260309T100000Z-v irtual-aaaaaa"])
def test_a_run_has_its_own_name(fsjoule: CommandLine, store: str, tmp_path: Path, name: str) -> None:
    folder = write_kept(tmp_path / "results")
    folder.rename(folder.with_name(name))
    done = fsjoule("results", "push", store)
    assert done.code == 2
    assert f"left out: {name}: its folder's name is not that of its run" in done.err
    assert fsjoule("results", "list", store).out == ""


def test_a_damaged_run_is_named_and_the_others_are_sent(fsjoule: CommandLine, store: str, tmp_path: Path) -> None:
    bad, good = (write_kept(tmp_path / "results", each) for each in ("aaaaaa", "bbbbbb"))
    (bad / "run.json").write_text("{")
    done = fsjoule("results", "push", store)
    assert done.code == 2
    assert bad.name in done.err
    assert fsjoule("results", "list", store).out == f"{store}/{good.name}\n"


@pytest.mark.parametrize("damage", ["no archive", "cut short", "that of another run"])
def test_a_damaged_archive_is_told_and_put_right(
    fsjoule: CommandLine, store: str, moto: ObjectStore, tmp_path: Path, damage: str
) -> None:
    folder, other = (write_kept(tmp_path / "results", each) for each in ("aaaaaa", "bbbbbb"))
    fsjoule("results", "push", store)
    bucket = bucket_at(moto.url, store)
    archive, another = listed_runs(bucket)
    good, bad = (bucket.part(each.key, 0, each.size_bytes) for each in (archive, another))
    (tmp_path / "bad").write_bytes({"no archive": b"x" * 100, "cut short": good[:-50]}.get(damage, bad))
    bucket.put(archive.key, tmp_path / "bad")
    done = fsjoule("results", "pull", store, "--into", "there")
    assert done.code == 2
    assert f"left out: {folder.name}: s3://" in done.err
    assert "--again" in done.err
    assert [path.name for path in (tmp_path / "there").iterdir()] == [other.name]
    assert fsjoule("results", "push", store).out.startswith("0 runs new, 0 grown, 2 already there")
    assert fsjoule("results", "push", folder, store, "--again").code == 0
    assert fsjoule("results", "pull", store, "--into", "there").code == 0
    assert contents(tmp_path / "there" / folder.name) == contents(folder)


def test_an_archive_has_the_files_that_its_name_says(
    fsjoule: CommandLine, store: str, moto: ObjectStore, tmp_path: Path
) -> None:
    """An archive that is whole in itself, but of another content than the one that was pushed."""
    folder = write_kept(tmp_path / "results")
    fsjoule("results", "push", store)
    measurement_file(folder, 2).with_name("console.log").write_text("another")
    pack_run(folder, digest_table(folder, [], believe=False), tmp_path / "another")
    bucket = bucket_at(moto.url, store)
    bucket.put(listed_runs(bucket)[0].key, tmp_path / "another")
    done = fsjoule("results", "pull", store, "--into", "there")
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
    fsjoule: CommandLine,
    moto: ObjectStore,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    variables: dict[str, str],
    store: str,
    code: int,
    what: str,
) -> None:
    for name, value in (moto.variables | variables).items():
        monkeypatch.setenv(name, value)
    write_kept(tmp_path / "results")
    done = fsjoule("results", "push", "results", store)
    assert (done.code, done.out) == (code, "")
    assert what in done.err
    assert "hint: " in done.err
    assert not any(secret in done.err for secret in (KEY_ID, SECRET))
