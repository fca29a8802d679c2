"""The files of a card whose root filesystem is another distribution's. Needs root: they belong to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsjoule.errors import ConfigError
from fsjoule.images.partition import _collect
from fsjoule.images.userland import Userland
from fsjoule.kernels.kernel import KernelFiles
from fsjoule.kernels.recipe import load_recipe, recipes_folder

RECIPE = 'base = "imx6ul"\n[userland]\npackages = []\narchive = "rootfs.tar"\n'


def test_no_file_that_a_link_of_the_root_filesystem_leads_to_is_written(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(RECIPE)
    recipe = load_recipe(recipes_folder(), str(tmp_path / "mine.toml"))
    outside, tree = tmp_path / "outside", tmp_path / "userland"
    for folder in (
        outside,
        tree / "etc",
        tree / "usr" / "bin",
        tree / "usr" / "sbin",
        tree / "usr" / "lib" / "fsjoule",
    ):
        folder.mkdir(parents=True)
    (tree / "opt").symlink_to(outside)
    links = ("etc/issue", "etc/hostname", "etc/mtab", "etc/init.d", "usr/sbin/init", "usr/lib/modules", "tmp")
    for name in (*links, "usr/lib/fsjoule/busybox"):
        target = outside / Path(name).name
        target.mkdir() if name in {"etc/init.d", "usr/lib/modules", "tmp"} else target.write_text("this computer's")
        (tree / name).symlink_to(target)
    busybox = tmp_path / "busybox"
    busybox.write_bytes(b"ours")
    (tmp_path / "kernel" / "modules" / "lib" / "modules" / "6.1").mkdir(parents=True)
    kernel = KernelFiles("", tmp_path / "kernel", tmp_path / "kernel" / "image", "6.1", "", {}, {})
    collected = tmp_path / "tree"
    files = Userland("", tree, {}, busybox)
    own = {"usr/bin/app": b"#!/bin/sh\n", "etc/issue": b"ours"}
    _collect(collected, recipe, kernel, files, recipes_folder() / "overlay", more=own)
    assert [(collected / path).stat().st_mode & 0o777 for path in own] == [0o755, 0o644]
    with pytest.raises(ConfigError, match="/opt/app cannot be written: a link of the root leads its folder elsewhere"):
        _collect(tmp_path / "other", recipe, kernel, files, recipes_folder() / "overlay", more={"opt/app": b""})
    assert {path.name for path in outside.iterdir() if path.is_dir() and not any(path.iterdir())} == {
        "init.d", "modules", "tmp",
    }  # fmt: skip
    theirs = [path for path in outside.rglob("*") if path.is_file()]
    assert {path.read_text() for path in theirs} == {"this computer's"}
    assert len(theirs) == 5
    assert (collected / "etc" / "hostname").read_text() == f"{recipe.hostname}\n"
    assert (collected / "usr" / "lib" / "fsjoule" / "busybox").read_bytes() == b"ours"
    assert (collected / "etc" / "init.d" / "rcS").is_file()
