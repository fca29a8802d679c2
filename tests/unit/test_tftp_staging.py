"""Files at a TFTP server, which is a folder here, through labgrid's own driver."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from labgrid import Target
from labgrid.driver import TFTPProviderDriver
from labgrid.resource import TFTPProvider

from fsjoule.errors import LabError
from fsjoule.lab.tftp import staged


def _server(folder: Path) -> Any:
    folder.mkdir()
    make: tuple[Any, ...] = (Target, TFTPProvider, TFTPProviderDriver)  # labgrid has no types
    target = make[0](folder.name)
    make[1](target, None, f"{folder}/", "board/")
    driver = make[2](target, None)
    target.activate(driver)
    return driver


def test_a_file_is_at_the_server_while_it_is_needed(tmp_path: Path) -> None:
    server, folder = _server(tmp_path / "one"), tmp_path / "one"
    (folder / "of-somebody-else").touch()
    with staged(server, "card-2", b"piece") as path:
        assert path == "board/card-2"
        assert (folder / "card-2").read_bytes() == b"piece"
        copy = (folder / "card-2").resolve()
    assert not copy.exists()
    with pytest.raises(LabError, match="the board is gone"), staged(server, "card-3", b"piece"):
        raise LabError("the board is gone")
    assert [each.name for each in folder.iterdir()] == ["of-somebody-else"]


def test_equal_files_of_two_boards_have_copies_of_their_own(tmp_path: Path) -> None:
    with staged(_server(tmp_path / "one"), "card-2", b"piece"):
        with staged(_server(tmp_path / "two"), "card-2", b"piece"):
            names = {(tmp_path / each / "card-2").resolve().name for each in ("one", "two")}
        assert len(names) == 2
        assert (tmp_path / "one" / "card-2").read_bytes() == b"piece"


def test_the_copy_in_labgrids_cache_goes_with_the_link(tmp_path: Path) -> None:
    server, folder, cache = _server(tmp_path / "one"), tmp_path / "one", tmp_path / "a cache"
    cache.mkdir()
    with staged(server, "card-2", b"piece"):
        # As on an exporter of its own, to whose cache labgrid copies the file.
        (cache / "copy").write_bytes(b"piece")
        (folder / "card-2").unlink()
        (folder / "card-2").symlink_to(cache / "copy")
    assert not list(cache.iterdir())
    assert not list(folder.iterdir())
