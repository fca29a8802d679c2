"""Stage `userland`: unpacked Debian packages without scripts, or another root filesystem.

Entry: `tree/`, `packages.json` (versions); with another root filesystem also `busybox`, and its digest in `archive`.
"""

from __future__ import annotations

import json
import logging
import shutil
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from fsjoule.errors import ConfigError
from fsjoule.host import process
from fsjoule.host.apt import debian_archive, unpack_packages
from fsjoule.host.cache.stages import build_once, cache_key, entry_digest
from fsjoule.host.process import size_mib
from fsjoule.images.own_root import STAGE_VERSION as OWN_ROOT_VERSION
from fsjoule.images.own_root import archive_sha256, check_root, fetch_busybox, matches, unpack_root
from fsjoule.kernels.recipe import Recipe, recipes_folder

_log: Final = logging.getLogger(__name__)

# Raise it when this file changes an entry's content.
STAGE_VERSION: Final = 4

_TIMEOUT_S: Final = 1200.0


@dataclass(frozen=True, slots=True)
class Userland:
    digest: str
    tree: Path
    packages: dict[str, str]
    busybox: Path
    sha256: dict[str, str] = field(default_factory=dict[str, str])


def userland(recipe: Recipe) -> Userland:
    """The unpacked packages, fetched unless they are cached, or the recipe's archive.

    Raises a transient HostError, often for the network, and ConfigError for an archive that is no root filesystem.
    """
    if recipe.userland.archive:
        return _from_archive(recipe)
    inputs = {
        "version": STAGE_VERSION,
        "architecture": recipe.architecture,
        "userland": recipe.userland.model_dump(
            include={"suite", "components", "remove", "keep", "suites"}, exclude_defaults=True
        ),
        "packages": recipe.packages,
    }
    # Recipes with the same packages share an entry, which is named after none of them.
    folder = build_once(
        *("userland", f"{recipe.userland.suite}-{recipe.architecture}", cache_key(inputs)),
        lambda into: _build(into, recipe),
        own_modes="tree",
    )
    packages = json.loads((folder / "packages.json").read_text())
    return Userland(entry_digest(folder), folder / "tree", packages, folder / "tree" / "bin" / "busybox")


def own_files(recipe: Recipe) -> dict[str, bytes]:
    """The user's files for the root, by their paths below it. Raises ConfigError for one that cannot be read."""
    try:
        return {path.lstrip("/"): recipe.path_of(file).read_bytes() for path, file in recipe.userland.files.items()}
    except OSError as error:
        what = f"{recipe.file}: a file of userland.files cannot be read: {error.filename}: {error.strerror}"
        raise ConfigError(what, hint="build or copy it; docs/images.md explains [userland]") from error


def _from_archive(recipe: Recipe) -> Userland:
    archive = recipes_folder() / recipe.userland.archive
    digest = archive_sha256(recipe, archive)
    inputs = {
        "version": OWN_ROOT_VERSION,
        "architecture": recipe.architecture,
        "archive": digest,
        "busybox": recipe.userland.suite,
        "remove": recipe.userland.removed,
    }

    def build(folder: Path) -> None:
        tree = folder / "tree"
        unpack_root(archive, tree)
        _finish(tree, recipe)
        check_root(recipe, archive, tree)
        packages = fetch_busybox(recipe, folder)
        (folder / "packages.json").write_text(json.dumps(packages, indent=2) + "\n")

    folder = build_once("userland", recipe.name, cache_key(inputs), build, own_modes="tree")
    packages = json.loads((folder / "packages.json").read_text())
    sha256 = {f"root filesystem {archive.name}": digest}
    return Userland(entry_digest(folder), folder / "tree", packages, folder / "busybox", sha256)


def _build(folder: Path, recipe: Recipe) -> None:
    wanted = recipe.userland
    tree, log = folder / "tree", folder / "mmdebstrap.log"
    _log.info("userland: fetching %s packages of %s and their dependencies", len(recipe.packages), wanted.suite)
    unpack_packages(
        tree,
        recipe.packages,
        what="userland",
        archive=debian_archive(wanted.suite, wanted.components),
        architecture=recipe.architecture,
        log=log,
        timeout_s=_TIMEOUT_S,
        further=sorted(set(wanted.suites.values())),
        keep_archives=True,  # only their file names tell the unpacked versions
    )
    archives = tree / "var" / "cache" / "apt" / "archives"
    unpacked = dict(_name_and_version(file) for file in sorted(archives.glob("*.deb")))
    (folder / "packages.json").write_text(json.dumps(unpacked, indent=2) + "\n")
    _finish(tree, recipe)
    log.unlink()
    _log.info("userland: %s packages, %.0f MiB", len(unpacked), size_mib(tree))


def _finish(tree: Path, recipe: Recipe) -> None:
    for pattern in recipe.userland.removed:
        for path in matches(tree, pattern):
            _remove(path)
    _merge_usr(tree)
    _drop_privileges(tree)


def _name_and_version(file: Path) -> tuple[str, str]:
    """`busybox-static_1%3a1.35.0-4_armhf.deb` -> (`busybox-static`, `1:1.35.0-4`)."""
    name, version, _ = file.stem.split("_")
    return name, unquote(version)


def _merge_usr(tree: Path) -> None:
    """Turn /bin, /sbin and /lib into links into /usr, like Debian's installer; newer packages expect it."""
    wide = ["lib64"] if (tree / "usr" / "lib64").exists() else []
    for name in ("bin", "sbin", "lib", *wide):
        if (tree / name).is_symlink():
            continue  # another distribution has done it
        merged = tree / "usr" / name
        for folder in (merged.parent, merged):  # a small root may have no /usr
            if not folder.exists():
                folder.mkdir()
                folder.chmod(0o755)
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
