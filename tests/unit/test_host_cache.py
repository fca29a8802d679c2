from __future__ import annotations

import stat
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fsjoule.errors import HostError
from fsjoule.host.cache.stages import (
    CacheEntry,
    build_once,
    cache_key,
    cached,
    clean,
    folder_digest,
)
from fsjoule.images import card_image as build


def write_result(folder: Path) -> None:
    (folder / "result").write_text("whole")


def write_much(folder: Path) -> None:
    (folder / "result").write_bytes(bytes(100_000))


def never_called(_folder: Path) -> None:
    raise AssertionError("built again")


def test_equal_content_has_an_equal_key_and_other_content_another() -> None:
    assert cache_key({"a": 1, "b": [1, 2]}) == cache_key({"b": [1, 2], "a": 1})
    assert cache_key({"a": 1}) != cache_key({"a": 2})
    assert cache_key({"a": "1"}) != cache_key({"a": 1})


def test_a_folder_changes_with_names_contents_and_the_executable_bit(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    before = folder_digest(tmp_path)
    assert folder_digest(tmp_path) == before
    (tmp_path / "file").chmod(0o755)
    executable = folder_digest(tmp_path)
    (tmp_path / "file").rename(tmp_path / "other")
    renamed = folder_digest(tmp_path)
    (tmp_path / "other").write_text("next")
    assert len({before, executable, renamed, folder_digest(tmp_path)}) == 4


def test_a_stage_is_built_once(tmp_path: Path) -> None:
    first = build_once("card", "a", "key", write_result, root=tmp_path)
    again = build_once("card", "a", "key", never_called, root=tmp_path)
    assert first == again
    assert (first / "result").read_text() == "whole"


def test_modes_are_the_usual_ones_but_for_a_tree_that_has_its_own(tmp_path: Path) -> None:
    def fill(folder: Path) -> None:
        for path in (folder / "modules", folder / "tree", folder / "tree" / "root"):
            path.mkdir(mode=0o700)
        for path, mode in {"program": 0o700, "modules/ext4.ko": 0o600, "tree/shadow": 0o640}.items():
            (folder / path).touch()
            (folder / path).chmod(mode)

    entry = build_once("userland", "a", "key", fill, root=tmp_path, own_modes="tree")
    modes = {"modules": 0o755, "modules/ext4.ko": 0o644, "program": 0o755}
    own = {"tree": 0o755, "tree/root": 0o700, "tree/shadow": 0o640}
    assert {path: stat.S_IMODE((entry / path).stat().st_mode) for path in modes | own} == modes | own


def test_a_failed_build_leaves_nothing(tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        (folder / "half").touch()
        raise HostError("no network")

    with pytest.raises(HostError, match="no network"):
        build_once("card", "a", "key", fail, root=tmp_path)
    assert sorted(path.name for path in (tmp_path / "card").iterdir()) == [".a-key.lock", ".a-key.use"]
    assert not cached(tmp_path)


# Builds half of an entry, says so, and hangs.
BUILDER = """
import sys, time
from pathlib import Path
from fsjoule.host.cache.stages import build_once

def build(folder):
    (folder / "result").write_text("ha")
    print("half", flush=True)
    time.sleep(60)

build_once("card", "a", "key", build, root=Path(sys.argv[1]))
"""


@contextmanager
def builder_at_half(root: Path) -> Generator[int]:
    """The process id of a builder that is half done."""
    with subprocess.Popen([sys.executable, "-c", BUILDER, root], stdout=subprocess.PIPE) as builder:
        try:
            assert builder.stdout is not None
            assert builder.stdout.readline() == b"half\n"
            yield builder.pid
        finally:
            builder.kill()


def test_what_a_killed_builder_left_is_not_used_and_goes_away(tmp_path: Path) -> None:
    with builder_at_half(tmp_path):
        pass
    assert list((tmp_path / "card").glob(".*part*"))
    assert [entry.damage for entry in cached(tmp_path)] == ["its build was interrupted"]
    folder = build_once("card", "a", "key", write_result, root=tmp_path)
    assert (folder / "result").read_text() == "whole"
    assert not list((tmp_path / "card").glob(".*part*"))


def test_a_second_builder_waits_says_for_whom_and_gives_up_in_time(tmp_path: Path, said: list[str]) -> None:
    with builder_at_half(tmp_path) as pid, pytest.raises(HostError, match=rf"pid {pid}.* building card a") as caught:
        build_once("card", "a", "key", never_called, root=tmp_path, lock_timeout_s=0.5)
    assert caught.value.transient
    assert said == [f"waiting for another process (pid {pid}), which is building card a"]


def test_a_builder_in_the_same_process_is_not_called_another_one(tmp_path: Path, said: list[str]) -> None:

    def second(_folder: Path) -> None:
        build_once("card", "a", "key", never_called, root=tmp_path, lock_timeout_s=0.5)

    with pytest.raises(HostError, match=r"a build of this process has been building card a"):
        build_once("card", "a", "key", second, root=tmp_path)
    assert said == ["waiting for a build of this process, which is building card a"]


def test_entries_are_listed_with_their_size_and_removed(tmp_path: Path, said: list[str]) -> None:
    build_once("kernel", "b", "k1", write_result, root=tmp_path)
    build_once("card", "a", "k2", write_much, root=tmp_path)
    entries = cached(tmp_path)
    assert [(entry.stage, entry.name, entry.key) for entry in entries] == [("kernel", "b", "k1"), ("card", "a", "k2")]
    assert entries[1].size_bytes >= 100_000
    assert clean(entries[1:]) == entries[1].size_bytes
    assert said
    assert cached(tmp_path) == entries[:1]
    assert isinstance(entries[0], CacheEntry)


def test_what_a_killed_comparison_of_cards_left_goes_away_with_the_next(tmp_path: Path) -> None:
    left = tmp_path / ".check.part-killed"
    left.mkdir()
    with build._to_compare(tmp_path) as folder:
        assert [Path(folder)] == list(tmp_path.iterdir())
