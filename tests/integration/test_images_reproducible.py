"""Equal files give an equal image, byte for byte: whenever, in whatever order, wherever, and whoever makes it."""

from __future__ import annotations

import hashlib
import os
import random
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path

import pytest
from unprivileged import as_user

from fsjoule.errors import ConfigError
from fsjoule.filesystems import FILESYSTEMS
from fsjoule.host import process
from fsjoule.images.initramfs import CpioArchive
from fsjoule.images.partition import make_filesystem
from fsjoule.images.steady import IMAGE_TIME_S, steady_environment
from fsjoule.model import MIB

# The smallest that each mkfs makes.
SIZES_MIB = {"ext4": 16, "btrfs": 128, "f2fs": 64, "xfs": 300}


@pytest.fixture(scope="module")
def environment() -> Generator[Mapping[str, str]]:
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as cache:
        patch.setenv("FSJOULE_CACHE_DIR", cache)
        yield steady_environment()


@pytest.fixture
def elsewhere() -> Generator[Path]:
    """A folder on another filesystem than pytest's, where there is one: its folders have another order."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as folder:
        yield Path(folder)


def write_tree(tree: Path, seed: int) -> None:
    """The same files, folders and links, made in an order that the seed gives."""
    chance = random.Random(seed)
    folders = [f"usr/lib/part-{number}" for number in range(7)]
    files = [(f"{folder}/file-{number}", number * 700) for folder in folders for number in range(12)]
    chance.shuffle(files)
    for _ in range(seed):
        (tree.parent / "taken").mkdir(exist_ok=True)  # moves the numbers of files on
        (tree.parent / "taken" / str(chance.random())).touch()
    for name, size in files:
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_bytes(name.encode() * (size // 10))
        (tree / name).chmod(0o755 if size > 4000 else 0o644)
    (tree / "lib").symlink_to("usr/lib")
    for path in (tree, *tree.rglob("*")):
        os.utime(path, (IMAGE_TIME_S, IMAGE_TIME_S), follow_symlinks=False)


def digest(filesystem: str, place: Path, seed: int, environment: Mapping[str, str]) -> str:
    place.mkdir()
    tree, image = place / "tree", place / "root.img"
    tree.mkdir()
    tree.chmod(0o755)
    write_tree(tree, seed)
    make_filesystem(
        FILESYSTEMS[filesystem], tree, image, size_mib=(size := SIZES_MIB.get(filesystem, 16)), steady=environment
    )
    assert image.stat().st_size == size * MIB or FILESYSTEMS[filesystem].read_only
    with image.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def by_a_user(argv: Sequence[str | Path]) -> list[str | Path]:
    return [*as_user(), "unshare", "--map-root-user", *argv]


@pytest.mark.parametrize(
    "filesystem", [row.name for row in FILESYSTEMS.values() if row.read_only or (row.root and row.root.make)]
)
def test_equal_files_give_an_equal_image(
    filesystem: str, tmp_path: Path, elsewhere: Path, environment: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = digest(filesystem, tmp_path / "first", 1, environment)
    time.sleep(1.1)  # the tools' times are whole seconds
    monkeypatch.setenv("TZ", "Pacific/Auckland")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    monkeypatch.setattr(process, "as_root", by_a_user)
    assert digest(filesystem, elsewhere / "second", 5, environment) == first


def test_a_computer_without_user_namespaces_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "unshare").write_text("#!/bin/sh\necho unshare failed: Operation not permitted >&2\nexit 1\n")
    (tmp_path / "unshare").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(ConfigError, match=r"made by root, or in a user namespace, .*Operation not permitted") as caught:
        process.check_as_root("a root partition is made")
    assert "run the same command with sudo" in str(caught.value)


def test_without_the_library_images_differ(tmp_path: Path, elsewhere: Path) -> None:
    """If this fails, the tools have learnt to do without it."""
    first = digest("btrfs", tmp_path / "first", 1, {})
    assert digest("btrfs", elsewhere / "second", 5, {}) != first


def test_programs_see_the_time_of_the_library(environment: Mapping[str, str]) -> None:
    def run(*argv: str) -> str:
        return process.run(argv, timeout_s=30, env=environment).stdout.decode().strip()

    assert run("date", "+%s") == str(IMAGE_TIME_S)


def test_an_initramfs_is_the_same_every_time() -> None:
    def archive() -> bytes:
        made = CpioArchive()
        made.add("bin", 0o40755)
        made.add("bin/busybox", 0o100755, b"content")
        return made.finish()

    assert archive() == archive()
