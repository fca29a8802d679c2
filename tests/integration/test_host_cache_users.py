"""The cache beside other processes, on a full disk, and where it may not be written or read."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from cache_damage import built, in_memory
from command_line import PROGRAM, CommandLine
from unprivileged import run_unprivileged

from fsjoule.errors import HostError, StorageError
from fsjoule.host import process
from fsjoule.host.cache import locks
from fsjoule.host.cache.stages import build_once, cached, clean, damage, drop
from fsjoule.model import MIB


@pytest.fixture
def memory(tmp_path: Path) -> Generator[Path]:
    with in_memory(tmp_path) as folder:
        yield folder


@pytest.fixture
def run(fsjoule: CommandLine, monkeypatch: pytest.MonkeyPatch, memory: Path) -> CommandLine:
    monkeypatch.setenv("FSJOULE_CACHE_DIR", str(memory))
    return fsjoule


# ------------------------------------------------------------------------------------------------ other processes

USER = """
import sys, time
from pathlib import Path
from fsjoule.host.cache.stages import build_once

build_once("card", "a", "key", lambda folder: (folder / "file").touch(), root=Path(sys.argv[1]))
print("uses it", flush=True)
time.sleep(60)
"""


@contextmanager
def user(root: Path) -> Generator[int]:
    """The process id of a run that uses an entry."""
    with subprocess.Popen([sys.executable, "-c", USER, root], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"uses it\n"
            yield process.pid
        finally:
            process.kill()


def test_what_another_process_uses_is_kept_and_the_rest_removed(run: CommandLine, memory: Path) -> None:
    root = memory / "images"
    built(root, "kernel")
    with user(root):
        cleaned = run("image", "clean")
        assert cleaned.code == HostError.exit_code
        assert "kept card a: another process uses it" in cleaned.err
        assert [(each.stage, each.damage) for each in cached(root)] == [("card", None)]
    assert run("image", "clean").code == 0
    assert not cached(root)


def test_of_an_entry_of_two_users_the_last_one_removes_it(memory: Path) -> None:
    entry = build_once("card", "a", "key", lambda folder: (folder / "file").touch(), root=memory)
    with user(memory):
        assert not drop(entry, "card a")
        assert damage(entry) is None
    assert drop(entry, "card a")
    assert not list((memory / "card").iterdir())
    assert drop(entry, "card a"), "it is gone already"


def test_an_entry_that_is_just_being_built_is_not_waited_for(memory: Path) -> None:
    def build(folder: Path) -> None:
        assert not drop(folder.with_name("a-key"), "card a")
        assert not drop(folder, "card a")
        (folder / "file").touch()

    assert damage(build_once("card", "a", "key", build, root=memory)) is None


def test_a_stage_that_a_builder_has_just_made_is_not_cleaned_away(memory: Path) -> None:
    (memory / "card").write_text("wrong")
    found = cached(memory)
    assert [each.path for each in found] == [memory / "card"]
    built(memory, "card")
    clean(found)
    assert [each.damage for each in cached(memory)] == [None]


def test_builders_and_cleaners_side_by_side_find_whole_entries_only(memory: Path) -> None:
    """Five processes that build and look at an entry eight times each, while it is cleaned away all the time."""
    script = """
import sys
from pathlib import Path
from fsjoule.host.cache import locks, stages
root = Path(sys.argv[1])
def build(folder):
    for number in range(20):
        (folder / str(number)).write_text("whole")
for _ in range(8):
    entry = stages.build_once("card", "a", "key", build, root=root)
    assert sorted(path.name for path in entry.iterdir()) == sorted(["entry.json", *map(str, range(20))])
    for lock in list(locks._used):  # as if this process had ended
        locks._used.pop(lock).close()
"""
    command = [sys.executable, "-c", script, str(memory)]
    builders = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) for _ in range(5)]
    try:
        while any(builder.poll() is None for builder in builders):
            with suppress(HostError):  # it is used right now
                clean(cached(memory))
        said = [builder.communicate()[0].decode() for builder in builders]
    finally:
        for builder in builders:
            builder.kill()
            builder.wait()
    assert [(builder.returncode, text) for builder, text in zip(builders, said, strict=True)] == [(0, "")] * 5


# ------------------------------------------------------------------------------------------- disks and permissions


@pytest.fixture
def small_disk(tmp_path: Path) -> Generator[Path]:
    """An empty filesystem of 2 MiB."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2M", "fsjoule-test", place], timeout=10, check=False)
    if mounted.returncode != 0:
        pytest.skip("mounting is not allowed here")
    try:
        yield place
    finally:
        locks.let_go()
        subprocess.run(["umount", place], check=True)


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small filesystem needs root")


@needs_root
def test_a_full_disk_is_told_and_no_half_entry_stays(
    small_disk: Path, run: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FSJOULE_CACHE_DIR", str(small_disk))
    root = small_disk / "images"
    kept = build_once("kernel", "small", "k", lambda folder: (folder / "file").touch(), root=root)

    def too_much(folder: Path) -> None:
        (folder / "much").write_bytes(bytes(4 * MIB))

    with pytest.raises(StorageError, match="the disk of the cache is full") as caught:
        build_once("card", "a", "k", too_much, root=root)
    assert "fsjoule image clean" in str(caught.value)
    assert not caught.value.transient
    with pytest.raises(StorageError, match="the disk of the cache is full"):  # a program that we start is told as well
        build_once("card", "a", "k", copy_too_much, root=root)
    assert not list((root / "card").glob(".*part*"))
    filler = small_disk / "filler"
    with pytest.raises(OSError, match="No space"):
        filler.write_bytes(bytes(4 * MIB))
    # With no byte left: what is there is used, shown and cleaned away.
    assert damage(kept) is None
    assert run("image", "list").code == 0
    assert run("image", "clean").code == 0
    assert not cached(root)


def copy_too_much(folder: Path) -> None:
    process.run(["cp", "/proc/self/exe", folder / "one"], timeout_s=30)
    process.run(["dd", "if=/dev/zero", f"of={folder / 'two'}", "bs=1M", "count=4"], timeout_s=30)


@needs_root
def test_a_cache_that_is_read_only_is_used_and_what_is_not_in_it_is_told(
    small_disk: Path, run: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FSJOULE_CACHE_DIR", str(small_disk))
    root = small_disk / "images"
    entry = build_once("kernel", "small", "k", lambda folder: (folder / "file").touch(), root=root)
    locks.let_go()
    for lock in (root / "kernel").glob(".*"):
        lock.unlink()
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    again = build_once("kernel", "small", "k", never_called, root=root)
    assert again == entry
    with pytest.raises(StorageError, match=r"the cache cannot be written: .*Read-only") as caught:
        build_once("kernel", "other", "k", never_called, root=root)
    assert "FSJOULE_CACHE_DIR=FOLDER" in str(caught.value)
    listed = run("image", "list", "--json")
    assert (listed.code, [each["damage"] for each in listed.document]) == (0, [None])
    cleaned = run("image", "clean")
    assert (cleaned.code, "cannot be written" in cleaned.err) == (StorageError.exit_code, True)


def never_called(_folder: Path) -> None:
    raise AssertionError("built")


def test_an_entry_that_may_not_be_read_is_shown_and_told(tmp_path: Path) -> None:
    entry = built(tmp_path / "images", "card")
    entry.chmod(0)
    listed = run_unprivileged([str(PROGRAM), "image", "list", "--json"], {"FSJOULE_CACHE_DIR": str(tmp_path)})
    entry.chmod(0o755)
    assert listed.returncode == 0, listed.stderr
    (shown,) = json.loads(listed.stdout)
    assert shown["damage"] == "it cannot be read: Permission denied"


def test_a_stage_that_may_not_be_read_hinders_no_other(tmp_path: Path) -> None:
    root = tmp_path / "images"
    built(root, "kernel")
    whole = built(root, "card")
    locks.let_go()
    locked_away = root / "kernel"
    locked_away.chmod(0)
    environment = {"FSJOULE_CACHE_DIR": str(tmp_path)}
    try:
        listed = run_unprivileged([str(PROGRAM), "image", "list", "--json"], environment)
        cleaned = run_unprivileged([str(PROGRAM), "image", "clean"], environment)
    finally:
        locked_away.chmod(0o755)
    assert listed.returncode == 0, listed.stderr
    assert [(each["path"], each["damage"]) for each in json.loads(listed.stdout)] == [
        (str(locked_away), "it cannot be read: Permission denied"),
        (str(whole), None),
    ]
    assert cleaned.returncode == StorageError.exit_code, cleaned.stderr
    assert f"the cache cannot be written: {locked_away}: Permission denied" in cleaned.stderr
    assert f"remove by hand: {locked_away}" in cleaned.stderr
    assert not whole.exists()
