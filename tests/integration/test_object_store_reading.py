"""Commands that read runs of an object store: through copies that are whole, checked and not too many."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import CommandLine
from index_runs import edit, measurement_file
from nights import Nights
from object_store import ObjectStore, Proxy, bucket_at, write_kept

from fsjoule.host.cache import locks
from fsjoule.store.objects.archives import listed_runs

FOREVER = 2_000_000_000


@pytest.fixture
def store(moto: ObjectStore, way: Proxy, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    for name, value in {**moto.variables, "AWS_ENDPOINT_URL": way.url}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("FSJOULE_CACHE_DIR", str(tmp_path / "cache"))
    return moto.new_bucket()


def copies(tmp_path: Path) -> list[Path]:
    return [path for path in (tmp_path / "cache" / "runs").iterdir() if path.is_dir()]


def objects_asked(way: Proxy) -> list[str]:
    return [path for _, path, _ in way.asked if ".tar.zst" in path]


def test_what_is_shown_of_an_address_is_that_of_the_folder(fsjoule: CommandLine, store: str, tmp_path: Path) -> None:
    folder = write_kept(tmp_path / "results")
    fsjoule("results", "push", store)
    address = f"{store}/{folder.name}"
    for words in (("show", "RUN", "--json"), ("export", "RUN", "--kcidb")):
        there, here = (
            fsjoule(*(str(where) if word == "RUN" else word for word in words)) for where in (address, folder)
        )
        assert (there.code, there.out) == (0, here.out)
    done = fsjoule("report", "page", address)
    assert done.code == 2
    assert "--output FILE" in done.err
    (tmp_path / "pages").mkdir()
    assert fsjoule("report", "page", address, "--output", "pages/there.html").code == 0
    assert "aaaaaa" in (tmp_path / "pages" / "there.html").read_text()
    assert not list(tmp_path.rglob("report.html"))
    assert len(copies(tmp_path)) == 1
    shutil.rmtree(folder)
    assert fsjoule("show", f"{address}/run.json").code == 0


def test_sides_of_a_comparison_may_be_in_an_object_store(fsjoule: CommandLine, store: str, tmp_path: Path) -> None:
    before, second, after = sorted(Nights(board="nightly").write(tmp_path / "results", 3))
    fsjoule("results", "push", before, second, store)
    here = fsjoule("compare", before, after, "--json")
    there = fsjoule("compare", f"{store}/{before.name}", after, "--json")
    assert (there.code, there.document) == (0, here.document)
    assert fsjoule("compare", store, after).code == 0
    assert fsjoule("report", "build", store, "--output", "site").code == 0


def test_an_import_is_that_of_the_folders_and_fetches_only_documents(
    fsjoule: CommandLine, store: str, way: Proxy, tmp_path: Path
) -> None:
    folders = [write_kept(tmp_path / "results", each) for each in ("aaaaaa", "bbbbbb", "cccccc")]
    fsjoule("results", "push", store)
    way.asked.clear()
    done = fsjoule("index", "import", store, "--index", "there.sqlite")
    assert (done.code, done.out.splitlines()[0]) == (
        0,
        "3 run folders: 3 new, 0 changed, 0 unchanged; 9 measurements imported",
    )
    # The begin of each archive.
    assert len(objects_asked(way)) == 3
    fsjoule("index", "import", "results", "--index", "here.sqlite")
    series = fsjoule("index", "series", "--index", "there.sqlite", "--json")
    assert series.out == fsjoule("index", "series", "--index", "here.sqlite", "--json").out
    assert "3 unchanged" in fsjoule("index", "import", "results", "--index", "there.sqlite").out
    way.asked.clear()
    assert "3 unchanged" in fsjoule("index", "import", store, "--index", "there.sqlite").out
    assert len(way.asked) == 2, "the lists of states and of runs"
    assert fsjoule("compare", "run:aaaaaa", "run:bbbbbb", "--index", "there.sqlite").code == 0
    bucket = bucket_at(way.url, store)
    bucket.delete([listed_runs(bucket)[0].key])
    assert folders[0].name < folders[1].name
    done = fsjoule("index", "rebuild", store, "--index", "there.sqlite")
    assert "1 run dropped, folders gone: aaaaaa" in done.out


def test_the_index_knows_a_run_by_its_address(fsjoule: CommandLine, store: str, tmp_path: Path) -> None:
    folder = write_kept(tmp_path / "results")
    fsjoule("results", "push", store)
    fsjoule("index", "import", f"{store}/{folder.name}", "--index", "there.sqlite")
    from fsjoule.store.index.database import open_index  # noqa: PLC0415
    from fsjoule.store.index.queries import run_folders  # noqa: PLC0415

    with open_index("there.sqlite") as index:
        assert run_folders(index, ["aaaaaa"]) == {"aaaaaa": Path(f"{store}/{folder.name}")}


def test_a_damaged_run_of_the_store_costs_no_other(
    fsjoule: CommandLine, store: str, moto: ObjectStore, tmp_path: Path
) -> None:
    bad, _ = (write_kept(tmp_path / "results", each) for each in ("aaaaaa", "bbbbbb"))
    fsjoule("results", "push", store)
    bucket = bucket_at(moto.url, store)
    (tmp_path / "bad").write_bytes(b"{")
    bucket.put(listed_runs(bucket)[0].key, tmp_path / "bad")
    done = fsjoule("index", "import", store, "--index", "there.sqlite")
    assert done.code == 0
    assert "1 new" in done.out
    assert "1 damaged run folder skipped" in done.err
    assert f"{bad.name}: s3://" in done.err
    assert fsjoule("show", f"{store}/{bad.name}").code == 2
    done = fsjoule("index", "rebuild", store, "--index", "there.sqlite")
    assert done.code == 2
    assert "would drop" in done.err


def spoil(name: str) -> Callable[[Path], None]:
    def by(copy: Path) -> None:
        file = measurement_file(copy, 1)
        if name == "another size":
            file.write_text("{}")
        elif name == "same size and time":
            found = file.stat()
            file.write_bytes(b"{" * found.st_size)
            os.utime(file, ns=(found.st_atime_ns, found.st_mtime_ns))
        elif name == "gone":
            file.unlink()
        elif name == "a link":
            file.unlink()
            file.symlink_to("/etc/passwd")
        elif name == "more":
            shutil.copytree(file.parent, file.parent.with_name("99-more"))
        elif name == "no record":
            (copy.parent / "checked.json").unlink()
            edit(measurement_file(copy, 1), number=9)
        else:
            (copy.parent / "digests.json").write_text("{")
            (copy.parent / "checked.json").write_text("[")

    return by


@pytest.mark.parametrize(
    "name", ["another size", "same size and time", "gone", "a link", "more", "no record", "no digests"]
)
def test_a_damaged_copy_is_made_again(fsjoule: CommandLine, store: str, way: Proxy, tmp_path: Path, name: str) -> None:
    folder = write_kept(tmp_path / "results")
    fsjoule("results", "push", store)
    first = fsjoule("show", f"{store}/{folder.name}", "--json")
    spoil(name)(copies(tmp_path)[0] / folder.name)
    way.asked.clear()
    again = fsjoule("show", f"{store}/{folder.name}", "--json")
    assert (again.code, again.out) == (0, first.out)
    assert objects_asked(way)
    way.asked.clear()
    assert fsjoule("show", f"{store}/{folder.name}", "--json").out == first.out
    assert not objects_asked(way)


def test_touched_files_are_compared_and_not_fetched(
    fsjoule: CommandLine, store: str, way: Proxy, tmp_path: Path
) -> None:
    folder = write_kept(tmp_path / "results")
    fsjoule("results", "push", store)
    fsjoule("show", f"{store}/{folder.name}")
    os.utime(measurement_file(copies(tmp_path)[0] / folder.name, 1), (1, 1))
    way.asked.clear()
    assert fsjoule("show", f"{store}/{folder.name}").code == 0
    assert not objects_asked(way)


def test_a_run_that_has_grown_is_another_copy(fsjoule: CommandLine, store: str, tmp_path: Path) -> None:
    begun = write_kept(tmp_path / "begun", numbers=1, finished=False)
    fsjoule("results", "push", begun, store)
    assert len(fsjoule("show", f"{store}/{begun.name}", "--json").document["measurements"]) == 1
    fsjoule("results", "push", write_kept(tmp_path / "grown", numbers=2), store)
    assert len(fsjoule("show", f"{store}/{begun.name}", "--json").document["measurements"]) == 2


def test_copies_are_not_more_than_the_limit_and_the_longest_unused_go(
    fsjoule: CommandLine, store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = (write_kept(tmp_path / "results", each) for each in ("aaaaaa", "bbbbbb"))
    fsjoule("results", "push", store)
    for folder in (new, old):
        assert fsjoule("show", f"{store}/{folder.name}").code == 0
    used = {path: path for path in copies(tmp_path) if (path / new.name).is_dir()}
    os.utime(next(iter(used)), (FOREVER, FOREVER))
    locks.let_go()  # as at the end of a process
    monkeypatch.setenv("FSJOULE_RUNS_CACHE_GIB", str(300_000 / 2**30))
    assert fsjoule("show", f"{store}/{new.name}").code == 0
    assert copies(tmp_path) == list(used)
    monkeypatch.setenv("FSJOULE_RUNS_CACHE_GIB", "much")
    assert "is not a number of GiB" in fsjoule("show", f"{store}/{new.name}").err


def test_copies_of_one_command_stay_until_its_end(
    fsjoule: CommandLine, store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FSJOULE_RUNS_CACHE_GIB", "0")
    locks.let_go()
    addresses = [f"{store}/{write_kept(tmp_path / 'results', each).name}" for each in ("aaaaaa", "bbbbbb")]
    fsjoule("results", "push", store)
    done = fsjoule("index", "import", *addresses, "--index", "there.sqlite")
    assert (done.code, done.err) == (0, "")


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("show", "STORE"), "is a folder of runs"),
        (("show", "STORE/20250101T000000Z-evil-1"), "there is no run 20250101T000000Z-evil-1"),
        (("index", "import", "STORE"), "there is no run in"),
        (("compare", "STORE/20250101T000000Z-evil-1", "6.1"), "there is no run 20250101T000000Z-evil-1"),
        (("show", "s3://no-such-bucket/20250101T000000Z-evil-1"), "there is no such bucket"),
    ],
)
def test_what_is_not_there_is_told(fsjoule: CommandLine, store: str, words: tuple[str, ...], what: str) -> None:
    done = fsjoule(*(word.replace("STORE", store) for word in words))
    assert done.code in {2, 7}
    assert what in done.err
    assert "hint: " in done.err
