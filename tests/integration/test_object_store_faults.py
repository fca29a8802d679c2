"""An object store that fails, and pushes that meet: nothing is half there, and a push is completed by repeating it."""

from __future__ import annotations

import random
import shutil
import signal
import threading
import time
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
from command_line import finished, started
from index_runs import edit
from object_store import (
    KEY_ID,
    STALL_S,
    Fault,
    ObjectStore,
    Proxy,
    bucket_at,
    contents,
    object_store,
    proxy,
    write_kept,
)

from fsjoule.errors import ObjectStoreError
from fsjoule.store.objects.bucket import Bucket, Limits
from fsjoule.store.objects.prune import prune
from fsjoule.store.objects.pull import pull_runs
from fsjoule.store.objects.push import push_runs
from fsjoule.store.objects.runs import listed_objects, listed_runs, run_key

KEEP = timedelta(days=10_000)
IMPATIENT = Limits(connect_s=5.0, stall_s=20.0, whole_s=40.0, retries=0, retries_s=0.1)
_MOST_REQUESTS = 60


@pytest.fixture(scope="module")
def server() -> Generator[ObjectStore]:
    with object_store() as started:
        yield started


@pytest.fixture
def way(server: ObjectStore) -> Generator[Proxy]:
    with proxy(server.url) as passing:
        yield passing


@pytest.fixture
def store(server: ObjectStore) -> str:
    return server.new_bucket()


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
    server: ObjectStore, way: Proxy, begun: Path, grown: Path, tmp_path: Path, fault: Fault
) -> None:
    """First a new run, then its growth; the server fails from the n-th request on."""
    for folder, before in ((begun, None), (grown, begun)):
        for number in range(1, _MOST_REQUESTS):
            store = server.new_bucket()
            direct = bucket_at(server.url, store)
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
        assert number > 6, "requests of a push"


@pytest.mark.parametrize("fault", ["while", "lose", "answer"])
def test_a_request_that_fails_once_is_tried_again(
    server: ObjectStore, way: Proxy, grown: Path, tmp_path: Path, fault: Fault
) -> None:
    for number in range(1, 9):
        store = server.new_bucket()
        way.asked.clear()
        way.faults = lambda asked, number=number: fault if asked == number else None
        done = push_runs(bucket_at(way.url, store), [grown])
        assert (done.new + done.known, done.left_out) == (1, [])
        assert pulled(bucket_at(server.url, store), tmp_path / str(number)) == {grown.name: contents(grown)}


@pytest.mark.parametrize(("there", "fault"), [(False, "lose"), (False, "half"), (True, "lose")])
def test_a_pull_that_ends_at_any_request_leaves_whole_runs(  # noqa: PLR0917 - fixtures
    server: ObjectStore, way: Proxy, store: str, begun: Path, grown: Path, tmp_path: Path, *, there: bool, fault: Fault
) -> None:
    push_runs(bucket_at(server.url, store), [grown])
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
    assert number == (4 if there else 5)


def test_a_server_that_stalls_is_given_up(server: ObjectStore, way: Proxy, store: str, begun: Path) -> None:
    way.faults = lambda number: "stall" if number == 4 else None
    with pytest.raises(ObjectStoreError, match="does not answer"):
        push_runs(bucket_at(way.url, store, Limits(2.0, 1.0, 3.0, 0, 1.0)), [begun])
    assert listed_runs(bucket_at(server.url, store)) == []


def test_ctrl_c_ends_a_push_to_a_server_that_stalls(
    server: ObjectStore, way: Proxy, store: str, begun: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {**server.variables, "AWS_ENDPOINT_URL": way.url}.items():
        monkeypatch.setenv(name, value)
    stalled = threading.Event()
    way.before = lambda _method, _path: stalled.set() if len(way.asked) == 4 else None
    way.faults = lambda number: "stall" if number >= 4 else None
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
        ("SignatureDoesNotMatch", "refused to read prune.json: SignatureDoesNotMatch", "AWS_SECRET_ACCESS_KEY"),
        ("AccessDenied", "refused to read prune.json: AccessDenied", "docs/object-store.md"),
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


def test_a_server_without_conditional_writes_takes_the_last(  # noqa: PLR0917 - fixtures
    server: ObjectStore, way: Proxy, store: str, begun: Path, grown: Path, tmp_path: Path
) -> None:
    way.conditions = False
    for folder in (begun, grown, begun):
        assert push_runs(bucket_at(way.url, store), [folder]).left_out == []
    assert pulled(bucket_at(server.url, store), tmp_path / "there") == {grown.name: contents(grown)}
    assert prune(bucket_at(way.url, store), KEEP, remove=True).kept_runs == 1


def test_a_large_file_is_sent_in_parts(server: ObjectStore, way: Proxy, store: str, tmp_path: Path) -> None:
    folder = write_kept(tmp_path / "results", numbers=2)
    (folder / "programs.parquet").write_bytes(random.Random(1).randbytes(17 << 20))
    done = push_runs(bucket_at(way.url, store), [folder])
    assert done.sent_bytes > 17 << 20
    assert max(size for _, _, size in way.asked) < 6 << 20
    assert pulled(bucket_at(server.url, store), tmp_path / "there") == {folder.name: contents(folder)}


def test_two_machines_that_push_at_once(server: ObjectStore, store: str, tmp_path: Path) -> None:
    """Two copies of the same runs, one of which has grown: all is there once, and the grown one wins."""
    names = ("aaaaaa", "bbbbbb", "cccccc")
    ours = [write_kept(tmp_path / "ours", each, numbers=1, finished=False) for each in names]
    theirs = [write_kept(tmp_path / "theirs", each, numbers=2) for each in names]
    together = threading.Barrier(2)

    def push(folders: list[Path]) -> list[str]:
        together.wait(timeout=30.0)
        return push_runs(bucket_at(server.url, store), folders).left_out

    with ThreadPoolExecutor(2) as workers:
        assert [*workers.map(push, (ours, theirs))] == [[], []]
    there = pulled(bucket_at(server.url, store), tmp_path / "there")
    assert there == {each.name: contents(each) for each in theirs}


def test_another_push_that_is_first_at_any_request(
    server: ObjectStore, way: Proxy, begun: Path, grown: Path, tmp_path: Path
) -> None:
    """The grown copy is sent by another machine between two requests of ours: it is never replaced by the older one."""
    number = 0
    for number in range(1, _MOST_REQUESTS):
        store = server.new_bucket()
        direct = bucket_at(server.url, store)
        way.meanwhile(number, partial(push_runs, direct, [grown]))
        assert push_runs(bucket_at(way.url, store), [begun]).left_out == []
        if len(way.asked) < number:
            break
        assert pulled(direct, tmp_path / str(number)) == {grown.name: contents(grown)}
    assert number > 6


def unneeded(server: ObjectStore, folder: Path) -> tuple[str, int]:
    """A new store that has all objects of a run for days, but not the run; and how many they are."""
    store = server.new_bucket()
    bucket = bucket_at(server.url, store)
    push_runs(bucket, [folder])
    bucket.delete([run_key(folder.name), *(found.key for found in bucket.list("pushes"))])
    server.age("objects", 2)
    return store, len(list(listed_objects(bucket)))


def test_a_removal_at_any_request_of_a_push_takes_nothing_from_it(
    server: ObjectStore, way: Proxy, grown: Path, tmp_path: Path
) -> None:
    """Old objects of no run are there, on which the push relies, when another machine removes them."""
    number = 0
    for number in range(1, _MOST_REQUESTS):
        store, objects = unneeded(server, grown)
        direct = bucket_at(server.url, store)
        removed: list[int] = []

        def remove(direct: Bucket = direct, removed: list[int] = removed) -> None:
            server.age("objects", 2)
            removed.append(prune(direct, KEEP, remove=True).objects)

        way.meanwhile(number, remove)
        assert push_runs(bucket_at(way.url, store), [grown]).new == 1
        assert pulled(direct, tmp_path / str(number)) == {grown.name: contents(grown)}
        if not removed:
            break
        # The push's intent, its third request, protects them.
        assert removed == [objects if number <= 3 else 0]
    assert number > 8


def test_two_removals_at_once_are_one(server: ObjectStore, way: Proxy, store: str, begun: Path) -> None:
    push_runs(bucket_at(server.url, store), [begun])
    told: list[str] = []

    def meanwhile(_method: str, path: str) -> None:
        if "list-type" in path and not told:
            with pytest.raises(ObjectStoreError) as error:
                prune(bucket_at(server.url, store), KEEP, remove=True)
            told.append(error.value.what)

    way.before = meanwhile
    prune(bucket_at(way.url, store), KEEP, remove=True)
    assert "is removing objects" in told[0]
    assert prune(bucket_at(server.url, store), KEEP, remove=True).kept_runs == 1


class Pushing(threading.Thread):
    """A push in a thread of its own. `halted` is set when it has ended, or waits for a removal."""

    def __init__(self, bucket: Bucket, folder: Path) -> None:
        super().__init__()
        self._bucket, self._folder = bucket, folder
        self.halted = threading.Event()
        self.failed: list[Exception] = []

    def run(self) -> None:
        try:
            push_runs(self._bucket, [self._folder], say=lambda _: self.halted.set())
        except Exception as error:  # noqa: BLE001 - it belongs to the other thread
            self.failed.append(error)
        self.halted.set()

    def until_halted(self) -> None:
        self.start()
        assert self.halted.wait(timeout=30.0)


def test_a_push_at_any_request_of_a_removal_loses_nothing(
    server: ObjectStore, way: Proxy, grown: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The removal halts at its n-th request until the push has ended, or waits for it."""
    monkeypatch.setattr("fsjoule.store.objects.prune._POLL_S", 0.05)
    removed: set[int] = set()
    number = 0
    for number in range(1, _MOST_REQUESTS):
        store, objects = unneeded(server, grown)
        direct = bucket_at(server.url, store)
        push = Pushing(direct, grown)
        way.meanwhile(number, push.until_halted)
        found = prune(bucket_at(way.url, store), KEEP, remove=True).objects
        if not push.halted.is_set():
            break
        push.join(timeout=30.0)
        assert push.failed == []
        assert found in {0, objects}
        removed.add(found)
        assert pulled(direct, tmp_path / str(number)) == {grown.name: contents(grown)}
    assert number > 6
    assert len(removed) == 2, "the push came before the removal, and after it"


def test_a_changed_folder_is_not_sent_as_another(server: ObjectStore, way: Proxy, store: str, tmp_path: Path) -> None:
    folder = write_kept(tmp_path, numbers=1)
    way.before = lambda _method, path: edit(folder / "run.json", seed=1) if "/pushes/" in path else None
    done = push_runs(bucket_at(way.url, store), [folder])
    assert len(done.left_out) == 1
    assert "was changed meanwhile (push the run again)" in done.left_out[0]
    assert listed_runs(bucket_at(server.url, store)) == []
