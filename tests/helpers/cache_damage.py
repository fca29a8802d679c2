"""Entries of the cache of each stage, in small, and every kind of damage to one."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from fsjoule.host.cache.stages import build_once
from fsjoule.model import MIB

NAME, KEY = "imx6ul-6.1", "0123456789abcdef"
DATA_AT = 3 * MIB  # in an image that has holes elsewhere


def write_image(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(8 * MIB)
        file.seek(DATA_AT)
        file.write(os.urandom(1000) + bytes(70_000) + b"end")


def fill(stage: str, folder: Path) -> None:
    """What each stage leaves, in small."""
    match stage:
        case "card" | "partition":
            write_image(folder / ("card.img" if stage == "card" else "root.img"))
            (folder / "card.img.bmap").write_text("<bmap/>")
            (folder / "facts.json").write_text("{}\n")
        case _:
            (folder / "tree" / "usr" / "bin").mkdir(parents=True)
            (folder / "tree" / "usr" / "bin" / "busybox").write_bytes(b"\x7fELF" * 1000)
            (folder / "tree" / "bin").symlink_to("usr/bin")
            (folder / f"{stage}.json").write_text('{"package": "linux-image"}\n')
            (folder / "empty").mkdir()


def largest(folder: Path) -> Path:
    files = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    return max((path for path in files if path.name != "entry.json"), key=lambda path: path.stat().st_size)


def flip_a_byte(folder: Path) -> None:
    file = largest(folder)
    at = DATA_AT + 10 if file.suffix == ".img" else 10
    with file.open("r+b") as opened:
        opened.seek(at)
        byte = opened.read(1)[0]
        opened.seek(at)
        opened.write(bytes([byte ^ 1]))


def fill_a_hole(folder: Path) -> None:
    with largest(folder).open("r+b") as opened:
        opened.write(b"\1")


def truncate(folder: Path) -> None:
    os.truncate(largest(folder), 100)


def lose_a_file(folder: Path) -> None:
    largest(folder).unlink()


def lose_a_small_file(folder: Path) -> None:
    next(folder.glob("*.json" if not (folder / "card.img.bmap").exists() else "*.bmap")).unlink()


def add_a_file(folder: Path) -> None:
    (folder / "stray").touch()


def change_a_mode(folder: Path) -> None:
    largest(folder).chmod(0o600)


def replace_a_file_by_a_link(folder: Path) -> None:
    file = largest(folder)
    file.rename(folder.parent / ".elsewhere")
    file.symlink_to(folder.parent / ".elsewhere")


def replace_a_file_by_a_folder(folder: Path) -> None:
    file = largest(folder)
    file.unlink()
    file.mkdir()


def empty_a_file(folder: Path) -> None:
    os.truncate(largest(folder), 0)


def garble_the_entry(folder: Path) -> None:
    (folder / "entry.json").write_bytes(b"\xff\x00{")


def empty_the_entry(folder: Path) -> None:
    os.truncate(folder / "entry.json", 0)


def cut_the_entry(folder: Path) -> None:
    os.truncate(folder / "entry.json", (folder / "entry.json").stat().st_size // 2)


def lose_the_entry(folder: Path) -> None:
    (folder / "entry.json").unlink()


def take_an_older_entry(folder: Path) -> None:
    """As it was before entries recorded what they hold."""
    stored = json.loads((folder / "entry.json").read_text())
    (folder / "entry.json").write_text(
        json.dumps({key: stored[key] for key in ("stage", "name", "key", "created_utc")})
    )


def forget_a_file(folder: Path) -> None:
    stored = json.loads((folder / "entry.json").read_text())
    stored["contents"].pop(largest(folder).relative_to(folder).as_posix())
    (folder / "entry.json").write_text(json.dumps(stored))


def nest_the_entry(folder: Path) -> None:
    (folder / "entry.json").write_text("[" * 200_000)


def replace_by_a_file(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.write_text("")


def replace_by_a_dangling_link(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.symlink_to("nowhere")


def replace_by_a_link_to_another(folder: Path) -> None:
    folder.rename(folder.parent / ".elsewhere")
    folder.symlink_to(".elsewhere")


def replace_by_an_empty_folder(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.mkdir()


KINDS: tuple[Callable[[Path], None], ...] = (
    flip_a_byte,
    truncate,
    empty_a_file,
    lose_a_file,
    lose_a_small_file,
    add_a_file,
    change_a_mode,
    replace_a_file_by_a_link,
    replace_a_file_by_a_folder,
    garble_the_entry,
    empty_the_entry,
    cut_the_entry,
    lose_the_entry,
    take_an_older_entry,
    forget_a_file,
    nest_the_entry,
    replace_by_a_file,
    replace_by_a_dangling_link,
    replace_by_a_link_to_another,
    replace_by_an_empty_folder,
)


@contextmanager
def in_memory(tmp_path: Path) -> Generator[Path]:
    """A folder in memory, if there is such a place: each entry waits for its disk."""
    place = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=place if os.access(place, os.W_OK) else tmp_path) as folder:
        yield Path(folder)


def built(root: Path, stage: str, *, read: bool = False) -> Path:
    return build_once(stage, NAME, KEY, lambda folder: fill(stage, folder), root=root, read=read)
