"""Programs that are compiled once: whole whenever they are used, whatever became of them in the cache."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from fsjoule.virtual.lab import services


def empty(program: Path) -> None:
    os.truncate(program, 0)


def cut(program: Path) -> None:
    os.truncate(program, program.stat().st_size // 2)


def change(program: Path) -> None:
    content = bytearray(program.read_bytes())
    content[len(content) // 2] ^= 1
    program.write_bytes(content)


def take_the_mode_away(program: Path) -> None:
    program.chmod(0o644)


def put_a_dangling_link(program: Path) -> None:
    program.unlink()
    program.symlink_to("nowhere")


def lose_the_record(program: Path) -> None:
    program.with_name("entry.json").unlink()


def empty_the_record(program: Path) -> None:
    os.truncate(program.with_name("entry.json"), 0)


KINDS = (empty, cut, change, take_the_mode_away, put_a_dangling_link, lose_the_record, empty_the_record)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_damaged_library_is_built_again(
    kind: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: list[str]
) -> None:
    monkeypatch.setenv("FSJOULE_CACHE_DIR", str(tmp_path))
    library = services.probe()
    content = library.read_bytes()
    assert services.probe() == library
    assert said == ["building guest_probe.so"]
    kind(library)
    assert services.probe() == library
    assert said[1].startswith("the cached probe host is damaged: ")
    assert said[2:] == ["building guest_probe.so"]
    assert library.read_bytes() == content
    assert not library.is_symlink()
    assert os.access(library, os.X_OK)
    assert sorted(path.name for path in library.parent.iterdir()) == ["entry.json", "guest_probe.so"]
    services.probe()
    assert len(said) == 3


def test_a_damaged_simulator_is_built_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FSJOULE_CACHE_DIR", str(tmp_path))
    program = services.simulator()
    empty(program)
    assert services.simulator() == program
    assert subprocess.run([program, "--help"], capture_output=True, timeout=30, check=False).stdout


def test_a_folder_in_the_place_of_a_program_gives_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FSJOULE_CACHE_DIR", str(tmp_path))
    library = services.probe()
    shutil.rmtree(library.parent)
    library.mkdir(parents=True)
    (library / "in it").touch()
    assert services.probe().is_file()
