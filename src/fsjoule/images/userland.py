"""Stage `userland`: unpacked Debian packages without scripts. Entry: `tree/`, `packages.json` (versions)."""

from __future__ import annotations

import json
import shutil
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from fsjoule.host import process
from fsjoule.host.apt import debian_mirror, source_line
from fsjoule.host.cache.stages import Progress, build_once, cache_key, entry_digest
from fsjoule.host.watched import run_watched, size_mib
from fsjoule.kernels.recipe import Recipe

# Raise it when this file changes an entry's content.
STAGE_VERSION: Final = 4

_TIMEOUT_S: Final = 1200.0


@dataclass(frozen=True, slots=True)
class Userland:
    digest: str
    tree: Path
    packages: dict[str, str]


def userland(recipe: Recipe, *, progress: Progress) -> Userland:
    """The unpacked packages, fetched unless they are cached. Raises a transient LabError, often for the network."""
    inputs = {
        "version": STAGE_VERSION,
        "architecture": recipe.architecture,
        "userland": recipe.userland.model_dump(
            include={"suite", "components", "packages", "remove"}, exclude_defaults=True
        ),
    }
    key = cache_key(inputs)
    folder = build_once("userland", recipe.name, key, lambda into: _build(into, recipe, progress), progress=progress)
    return Userland(entry_digest(folder), folder / "tree", json.loads((folder / "packages.json").read_text()))


def _build(folder: Path, recipe: Recipe, progress: Progress) -> None:
    process.require_root("the board's user land is unpacked")
    wanted = recipe.userland
    tree, log = folder / "tree", folder / "mmdebstrap.log"
    progress(f"userland: fetching {len(wanted.packages)} packages of {wanted.suite} and their dependencies")
    run_watched(
        [
            "mmdebstrap",
            "--variant=extract",
            f"--architectures={recipe.architecture}",
            f"--include={','.join(wanted.packages)}",
            # In this variant only their file names tell the unpacked versions.
            "--skip=cleanup/apt/cache",
            wanted.suite,
            tree,
            source_line(debian_mirror(), wanted.suite, wanted.components),
        ],
        log=log,
        timeout_s=_TIMEOUT_S,
        how_far=lambda: f"userland: {size_mib(tree):.0f} MiB so far",
        progress=progress,
        transient=True,
    )
    archives = tree / "var" / "cache" / "apt" / "archives"
    packages = dict(_name_and_version(file) for file in sorted(archives.glob("*.deb")))
    (folder / "packages.json").write_text(json.dumps(packages, indent=2) + "\n")
    for pattern in wanted.remove:
        for path in tree.glob(pattern):
            _remove(path)
    _merge_usr(tree)
    _drop_privileges(tree)
    log.unlink()
    progress(f"userland: {len(packages)} packages, {size_mib(tree):.0f} MiB")


def _name_and_version(file: Path) -> tuple[str, str]:
    """`busybox-static_1%3a1.35.0-4_armhf.deb` -> (`busybox-static`, `1:1.35.0-4`)."""
    name, version, _ = file.stem.split("_")
    return name, unquote(version)


def _merge_usr(tree: Path) -> None:
    """Turn /bin, /sbin and /lib into links into /usr, like Debian's installer; newer packages expect it."""
    wide = ["lib64"] if (tree / "usr" / "lib64").exists() else []
    for name in ("bin", "sbin", "lib", *wide):
        merged = tree / "usr" / name
        merged.mkdir(exist_ok=True)
        if (tree / name).is_dir():
            process.run(["cp", "--archive", "--no-target-directory", tree / name, merged], timeout_s=60)
            shutil.rmtree(tree / name)
        (tree / name).symlink_to(f"usr/{name}")


def _drop_privileges(tree: Path) -> None:
    """Remove set-user-ID modes: the board has only root, and archives of a cache lose such modes."""
    for path in tree.rglob("*"):
        mode = path.lstat().st_mode
        if mode & (stat.S_ISUID | stat.S_ISGID):
            path.chmod(stat.S_IMODE(mode) & ~(stat.S_ISUID | stat.S_ISGID))


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()
