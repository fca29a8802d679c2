"""An object store that fails, and pushes that meet: nothing is half there, and a push is completed by repeating it."""

from __future__ import annotations

import random
import shutil
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from command_line import finished, started
from index_runs import edit, measurement_file
from object_store import (
    KEY_ID,
    STALL_S,
    Fault,
    ObjectStore,
    Proxy,
    bucket_at,
    contents,
    write_kept,
)

from fsjoule.errors import ObjectStoreError
from fsjoule.store.archive import digest_table
from fsjoule.store.objects.archives import listed_runs
from fsjoule.store.objects.bucket import Bucket, Limits
from fsjoule.store.objects.transfers import pull_runs, push_runs

IMPATIENT = Limits(connect_s=5.0, stall_s=20.0, whole_s=40.0, retries=0, retries_s=0.1)
_MOST_REQUESTS = 60


@pytest.fixture
def store(moto: ObjectStore) -> str:
    return moto.new_bucket()


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_kept(tmp_path_factory.mktemp("begun"), numbers=1, finished=False)


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_kept(tmp_path_factory.mktemp("grown"), numbers=2)


def pulled(bucket: Bucket, into: Path) -> dict[str, dict[str, bytes]]:
    """All runs of a store; each is compared with its digests on the way."""
    done = pull_runs(bucket, [run.name for run in listed_runs(bucket)], into)
    assert done.left_out == []
    return {folder.name: contents(folder) for folder in into.iterdir()}


@pytest.mark.parametrize("fault", ["refuse", "lose", "answer"])
def test_a_push_that_ends_at_any_request_is_completed_by_the_next(  # noqa: PLR0917 - fixtures
    moto: ObjectStore, way: Proxy, begun: Path, grown: Path, tmp_path: Path, fault: Fault
) -> None:
    """First a new run, then its growth; the server fails from the n-th request on."""
    for folder, before in ((begun, None), (grown, begun)):
        for number in range(1, _MOST_REQUESTS):
            store = moto.new_bucket()
            direct = bucket_at(moto.url, store)
            if before is not None:
                push_runs(direct, [before])
            way.asked.clear()
            way.faults = lambda asked, number=number: fault if asked >= number else None
            try:
                push_runs(bucket_at(way.url, store, IMPATIENT), [folder])
            except ObjectStoreError:
                pass
            else:
                assert len(way.asked) < number
                break
            there = pulled(direct, tmp_path / f"{folder.parent.name}-{number}")
            wanted = [{folder.name: contents(each)} for each in (before, folder) if each is not None]
            assert there in ([{}, *wanted] if before is None else wanted)
            way.faults = lambda _: None
            assert push_runs(bucket_at(way.url, store), [folder]).left_out == []
            assert pulled(direct, tmp_path / f"{folder.parent.name}-{number}-then") == {folder.name: contents(folder)}
        else:
            pytest.fail("the push never came to its end")
        assert number > 2, "requests of a push"


@pytest.mark.parametrize("fault", ["while", "lose", "answer"])
def test_a_request_that_fails_once_is_tried_again(
    moto: ObjectStore, way: Proxy, grown: Path, tmp_path: Path, fault: Fault
) -> None:
    for number in range(1, 9):
        store = moto.new_bucket()
        way.asked.clear()
        way.faults = lambda asked, number=number: fault if asked == number else None
        done = push_runs(bucket_at(way.url, store), [grown])
        assert (done.new + done.known, done.left_out) == (1, [])
        assert pulled(bucket_at(moto.url, store), tmp_path / str(number)) == {grown.name: contents(grown)}


@pytest.mark.parametrize(("there", "fault"), [(False, "lose"), (False, "half"), (True, "lose")])
def test_a_pull_that_ends_at_any_request_leaves_whole_runs(  # noqa: PLR0917 - fixtures
    moto: ObjectStore, way: Proxy, store: str, begun: Path, grown: Path, tmp_path: Path, *, there: bool, fault: Fault
) -> None:
    push_runs(bucket_at(moto.url, store), [grown])
    before = [contents(begun)] if there else []
    number, into = 0, tmp_path
    for number in range(1, _MOST_REQUESTS):
        into = tmp_path / str(number)
        if there:
            shutil.copytree(begun, into / begun.name)
        way.asked.clear()
        way.faults = lambda asked, number=number: fault if asked >= number else None
        try:
            pull_runs(bucket_at(way.url, store, IMPATIENT), [grown.name], into)
        except ObjectStoreError:
            assert [contents(each) for each in into.iterdir()] == before
        else:
            break
    assert [contents(each) for each in into.iterdir()] == [contents(grown)]
    assert number == (4 if there else 3)


def test_a_server_that_stalls_is_given_up(moto: ObjectStore, way: Proxy, store: str, begun: Path) -> None:
    way.faults = lambda number: "stall" if number == 2 else None
    with pytest.raises(ObjectStoreError, match="does not answer"):
        push_runs(bucket_at(way.url, store, Limits(2.0, 1.0, 3.0, 0, 1.0)), [begun])
    assert listed_runs(bucket_at(moto.url, store)) == []


def test_ctrl_c_ends_a_push_to_a_server_that_stalls(
    moto: ObjectStore, way: Proxy, store: str, begun: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {**moto.variables, "AWS_ENDPOINT_URL": way.url}.items():
        monkeypatch.setenv(name, value)
    stalled = threading.Event()
    way.before = lambda _method, _path: stalled.set() if len(way.asked) == 2 else None
    way.faults = lambda number: "stall" if number >= 2 else None
    with ExitStack() as closing:
        command = started(closing, "results", "push", begun, store)
        assert stalled.wait(timeout=60.0)
        command.send_signal(signal.SIGINT)
        began_s = time.monotonic()
        assert finished(command).code == 130
        # The server would have stalled for longer, and its client waited for a minute.
        assert time.monotonic() - began_s < STALL_S / 2


@pytest.mark.parametrize(
    ("fault", "what", "hint"),
    [
        ("SignatureDoesNotMatch", "refused to list runs/: SignatureDoesNotMatch", "AWS_SECRET_ACCESS_KEY"),
        ("AccessDenied", "refused to list runs/: AccessDenied", "docs/object-store.md"),
        ("full", "507", "fsjoule results prune"),
        ("lose", "cannot be reached", "Repeat the command"),
    ],
)
def test_what_a_server_refuses_is_told_with_what_to_do(  # noqa: PLR0917 - fixtures
    way: Proxy, store: str, begun: Path, fault: Fault, what: str, hint: str
) -> None:
    way.faults = lambda _: fault
    with pytest.raises(ObjectStoreError) as told:
        push_runs(bucket_at(way.url, store, IMPATIENT), [begun])
    assert what in told.value.what
    assert hint in (told.value.hint or "")
    assert "secret" not in str(told.value)
    assert KEY_ID not in str(told.value)


def test_a_large_file_is_sent_in_parts(moto: ObjectStore, way: Proxy, store: str, tmp_path: Path) -> None:
    folder = write_kept(tmp_path / "results", numbers=2)
    (folder / "programs.parquet").write_bytes(random.Random(1).randbytes(17 << 20))
    done = push_runs(bucket_at(way.url, store), [folder])
    assert done.sent_bytes > 17 << 20
    assert max(size for _, _, size in way.asked) < 6 << 20
    assert pulled(bucket_at(moto.url, store), tmp_path / "there") == {folder.name: contents(folder)}


def test_two_machines_that_push_at_once(moto: ObjectStore, store: str, tmp_path: Path) -> None:
    """Two copies of the same runs, one of which has grown: all is there once, and the grown one wins."""
    names = ("aaaaaa", "bbbbbb", "cccccc")
    ours = [write_kept(tmp_path / "ours", each, numbers=1, finished=False) for each in names]
    theirs = [write_kept(tmp_path / "theirs", each, numbers=2) for each in names]
    together = threading.Barrier(2)

    def push(folders: list[Path]) -> list[str]:
        together.wait(timeout=30.0)
        return push_runs(bucket_at(moto.url, store), folders).left_out

    with ThreadPoolExecutor(2) as workers:
        assert [*workers.map(push, (ours, theirs))] == [[], []]
    there = pulled(bucket_at(moto.url, store), tmp_path / "there")
    assert there == {each.name: contents(each) for each in theirs}


def test_another_push_that_is_first_at_any_request(
    moto: ObjectStore, way: Proxy, begun: Path, grown: Path, tmp_path: Path
) -> None:
    """The grown copy is sent by another machine between two requests of ours: it is never replaced by the older one."""
    number = 0
    for number in range(1, _MOST_REQUESTS):
        store = moto.new_bucket()
        direct = bucket_at(moto.url, store)
        way.meanwhile(number, partial(push_runs, direct, [grown]))
        assert push_runs(bucket_at(way.url, store), [begun]).left_out == []
        if len(way.asked) < number:
            break
        assert pulled(direct, tmp_path / str(number)) == {grown.name: contents(grown)}
    assert number > 2


def test_copies_that_differ_are_told_to_whoever_is_second(
    moto: ObjectStore, way: Proxy, begun: Path, tmp_path: Path
) -> None:
    """Another machine sends another content under the run's name between two requests of ours."""
    theirs = write_kept(tmp_path / "theirs", numbers=1, finished=False)
    measurement_file(theirs, 1).with_name("console.log").write_text("another")
    number = 0
    for number in range(1, _MOST_REQUESTS):
        store = moto.new_bucket()
        refused: list[str] = []

        def push(store: str = store, refused: list[str] = refused) -> None:
            refused += push_runs(bucket_at(moto.url, store), [theirs]).left_out

        way.meanwhile(number, push)
        refused += push_runs(bucket_at(way.url, store), [begun]).left_out
        if len(way.asked) < number:
            break
        assert "the store has another content under its name" in refused[0]
    assert number > 2


def test_a_run_that_goes_while_it_is_fetched_is_told(
    moto: ObjectStore, way: Proxy, store: str, grown: Path, tmp_path: Path
) -> None:
    direct = bucket_at(moto.url, store)
    push_runs(direct, [grown])
    key = listed_runs(direct)[0].key
    way.meanwhile(2, lambda: direct.delete([key]))
    done = pull_runs(bucket_at(way.url, store), [grown.name], tmp_path / "there")
    assert "it is gone (fsjoule results list shows what is there)" in done.left_out[0]
    assert list((tmp_path / "there").iterdir()) == []


def test_a_changed_folder_is_not_sent_as_another(
    moto: ObjectStore, store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_kept(tmp_path, numbers=1)

    def table(*args: Any) -> dict[str, str]:
        found = digest_table(*args)
        edit(folder / "run.json", seed=1)
        return found

    monkeypatch.setattr("fsjoule.store.objects.transfers.digest_table", table)
    done = push_runs(bucket_at(moto.url, store), [folder])
    assert "run.json was edited after it was stored" in done.left_out[0]
    assert listed_runs(bucket_at(moto.url, store)) == []
