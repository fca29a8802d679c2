"""A recipe with somebody else's root filesystem, like Buildroot's: it boots and is measured on the virtual lab."""

from __future__ import annotations

import os
import shutil
import tarfile
from pathlib import Path

import pytest
from bench_runs import SMALL, complete_run, patient_environment

from fsjoule.images.userland import userland
from fsjoule.kernels.recipe import load_recipe, recipes_folder

pytestmark = pytest.mark.slow

# Programs of this root filesystem; all others are its busybox.
PROGRAMS = ("fio", "mke2fs", "e2fsck", "mount", "umount", "modprobe", "dmesg", "blkdiscard")
APPLETS = ("sh", "cat", "ls", "gzip", "base64", "dd", "stat", "sync", "rm", "mkdir", "mv", "sha256sum", "uname")


def buildroot_like(tree: Path, folder: Path) -> Path:
    """A tar of a root with /bin and /sbin of its own, its own init's table, a service, and Debian's libraries."""
    for place in ("bin", "sbin", "etc/init.d", "usr/bin", "usr/sbin", "lib", "usr/lib", "root", "dev"):
        (folder / place).mkdir(parents=True)

    def take(path: Path) -> None:
        target = folder / path.relative_to(tree)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target, follow_symlinks=False)

    for name in PROGRAMS:
        found = next(path for place in ("usr/bin", "usr/sbin") if os.path.lexists(path := tree / place / name))
        take(found)
        if found.is_symlink():
            take(found.parent / found.readlink())
    for library in (tree / "usr" / "lib").glob("**/lib*.so*"):
        if not library.name.startswith("libicu"):  # half of all bytes, for none of these programs
            take(library)
    for loader in (tree / "usr" / "lib").glob("**/ld-linux*.so*"):
        take(loader)
    take(tree / "etc" / "mke2fs.conf")
    shutil.copy2(tree / "usr" / "bin" / "busybox", folder / "bin" / "busybox")
    for name in APPLETS:
        (folder / "bin" / name).symlink_to("busybox")
    (folder / "sbin" / "init").symlink_to("../bin/busybox")
    (folder / "sbin" / "mkfs.ext4").symlink_to("../usr/sbin/mke2fs")
    (folder / "sbin" / "fsck.ext4").symlink_to("../usr/sbin/e2fsck")
    (folder / "tmp").symlink_to("var/tmp")
    (folder / "etc" / "mtab").symlink_to("/proc/mounts")
    (folder / "etc" / "os-release").write_text("NAME=Buildroot\n")
    (folder / "etc" / "inittab").write_text("::sysinit:/etc/init.d/rcS\n::respawn:/usr/bin/not-started\n")
    (folder / "etc" / "init.d" / "rcS").write_text("#!/bin/sh\n/usr/bin/not-started &\n")
    (folder / "usr" / "bin" / "not-started").write_text("#!/bin/sh\necho a service was started >/dev/console\n")
    (folder / "usr" / "bin" / "not-started").chmod(0o755)
    archive = folder.with_suffix(".tar")
    with tarfile.open(archive, "w") as file:
        file.add(folder, ".", filter=_undated)  # equal each time: it is in the cache afterwards
    return archive


def _undated(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.mtime = 0
    return member


def test_somebody_elses_root_filesystem_is_measured(tmp_path: Path, module_state: Path) -> None:
    debian = userland(load_recipe(recipes_folder(), "imx6ul"))
    archive = buildroot_like(debian.tree, tmp_path / "buildroot")
    recipe = tmp_path / "mine.toml"
    recipe.write_text(f'base = "imx6ul"\n[userland]\npackages = []\narchive = "{archive}"\n')
    results = tmp_path / "results"
    environment = patient_environment(results, recipe=recipe)
    loaded = complete_run(results, environment, *SMALL)
    [measurement], [card] = loaded.measurements, loaded.run.images
    assert measurement.invalid_reasons == ()
    assert measurement.energy is not None
    assert card.recipe == "mine"
    assert card.checksums["root filesystem buildroot.tar"]
    assert set(card.packages) >= {"busybox-static"}
    assert "fio" not in card.packages
    console = "".join(path.read_text(errors="replace") for path in module_state.rglob("console.log"))
    assert "fsjoule login: " in console
    assert "a service was started" not in console
