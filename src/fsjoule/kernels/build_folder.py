"""Kernels in build folders: from `make` and `make modules_install`, from tuxmake, or collected by hand."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fsjoule.errors import ConfigError
from fsjoule.host import process
from fsjoule.host.cache.stages import file_sha256, folder_digest
from fsjoule.host.unpacking import unpack_tar
from fsjoule.kernels.image import kernel_release
from fsjoule.kernels.kernel import KernelFiles, Parts, kernel_entry
from fsjoule.kernels.recipe import BootSettings, Recipe

_log: Final = logging.getLogger(__name__)

_IMAGES: Final = ("", "arch/arm/boot", "arch/arm64/boot", "arch/x86/boot", "boot")
# Usual places of INSTALL_MOD_PATH: the folder itself, one in it, tuxmake's, an entry of fsjoule's own cache.
_MODULES: Final = ("lib/modules", "usr/lib/modules", "modules/lib/modules", "modinstall/lib/modules")
_DEVICE_TREES: Final = ("arch/arm/boot/dts", "arch/arm64/boot/dts", "dtbs", "boot", "usr/lib")
_TARS: Final = (".tar", ".tar.xz", ".tar.gz")
_BUILT_IN: Final = "modules.builtin"
NOTES: Final = "fsjoule.json"  # of `fsjoule kernel build`
_GIT_TIMEOUT_S: Final = 120.0


@dataclass(frozen=True, slots=True)
class BuildFolder:
    """The parts found in a build folder.

    `dtb` is the device tree or an archive of device trees, for a board that has one. `modules` is a folder
    lib/modules/<release>, an archive of it, or the list of built-in modules of a kernel without modules.
    """

    folder: Path
    image: Path
    dtb: Path | None
    modules: Path
    git_describe: str

    @property
    def label(self) -> str:
        return self.git_describe or self.folder.name

    def files(self) -> dict[str, str]:
        """SHA-256 of all used files, by path in the folder."""
        used = (self.image, self.dtb, self.modules)
        return {
            path.relative_to(self.folder).as_posix(): folder_digest(path) if path.is_dir() else file_sha256(path)
            for path in used
            if path
        }


def build_folder(folder: Path, boot: BootSettings) -> BuildFolder:
    """Examine a build folder. Raises ConfigError with all missing parts and the commands that make them."""
    images = [Path(place) / boot.image for place in _IMAGES]
    image = _first(folder / name for name in images)
    tree = None
    if boot.dtb is not None:
        below = (file for top in _DEVICE_TREES for file in sorted((folder / top).rglob(boot.dtb)))
        tree = _first([folder / boot.dtb, *below]) or _first(folder / f"dtbs{suffix}" for suffix in _TARS)
    modules = _modules(folder)
    missing = {
        f"no kernel image: {' or '.join(map(str, images))}; `make {boot.image}` makes it": image,
        f"no device tree {boot.dtb}: in {', '.join(_DEVICE_TREES)} or dtbs.tar.xz; `make dtbs` makes it": (
            tree or boot.dtb is None
        ),
        f"no modules: {_MODULES[0]}/RELEASE or modules.tar.xz; "
        f"`make modules_install INSTALL_MOD_PATH={folder}` installs them there": modules,
    }
    if image is None or modules is None or not all(missing.values()):
        listed = "".join(f"\n  {what}" for what, found in missing.items() if not found)
        raise ConfigError(f"{folder} is not a build folder of a kernel for this board:{listed}")
    return BuildFolder(folder, image, tree, modules, git_describe(folder))


def folder_kernel(recipe: Recipe, build: BuildFolder) -> KernelFiles:
    """The kernel in a build folder. Raises ConfigError if it lacks a part that the board needs to boot."""
    files = build.files()

    def collect(work: Path) -> Parts:
        _log.info("kernel %s: taking it from %s", build.label, build.folder)
        return Parts(
            image=build.image,
            dtb=_device_tree(build.dtb, recipe.boot.dtb, work / "dtbs"),
            modules=_installed(build, work / "tree"),
            sha256=files,
            config=build.folder / ".config",
        )

    key = {"build_folder": sorted(files.values())}
    name = f"{recipe.name}-folder"
    return kernel_entry(recipe, name, key, collect, needs=recipe.modules.card)


def git_describe(folder: Path) -> str:
    """The built revision, from notes beside it or from the source in the folder; empty if unknown."""
    for noted in (folder / NOTES, folder / "metadata.json"):
        if noted.is_file():
            try:
                notes = json.loads(noted.read_text())
                git = notes.get("git", notes)  # tuxmake has its own table for it
                return str(git.get("git_describe") or git.get("git_commit", "")[:12])
            except (ValueError, AttributeError, TypeError) as error:
                what = f"the notes cannot be read: {error}"
                raise ConfigError(what, file=noted, hint="build the kernel again") from error
    source = folder / "source"  # a link by the kernel's makefile in a separate build folder
    for tree in (folder, source):
        if (tree / "Kbuild").is_file() and (tree / ".git").exists():
            command = ["git", "-C", tree, "describe", "--tags", "--always", "--dirty"]
            result = process.run(command, timeout_s=_GIT_TIMEOUT_S, check=False)
            return result.stdout.decode().strip()
    return ""


def _modules(folder: Path) -> Path | None:
    releases = [path for top in _MODULES for path in sorted((folder / top).glob("*")) if path.is_dir()]
    if len(releases) > 1:
        built = folder / "include" / "config" / "kernel.release"
        own = built.read_text().strip() if built.is_file() else ""
        releases = [path for path in releases if path.name == own]
        if len(releases) != 1:
            raise ConfigError(
                f"{folder} holds the modules of more than one kernel",
                hint="leave only those that belong to the kernel image",
            )
    archive = _first(folder / f"modules{suffix}" for suffix in _TARS)
    return releases[0] if releases else archive or _all_built_in(folder)


def _all_built_in(folder: Path) -> Path | None:
    """The list of built-in modules, if there are no others (the makefile lists those in modules.order)."""
    order = folder / "modules.order"
    if order.is_file() and order.read_text().strip():
        return None
    return _first([folder / _BUILT_IN])


def _installed(build: BuildFolder, tree: Path) -> Path:
    """A folder lib/modules/<release> below `tree`, which depmod may write."""
    source, modules = build.modules, tree / "lib" / "modules"
    modules.mkdir(parents=True)
    if source.name == _BUILT_IN:
        release = kernel_release(build.image.read_bytes())
        if release is None:
            raise ConfigError(
                f"{build.image} does not tell its release: its compression is not supported",
                hint="build it with CONFIG_KERNEL_GZIP or CONFIG_KERNEL_XZ, or install its modules as well",
            )
        (modules / release).mkdir()
        (modules / release / _BUILT_IN).write_bytes(source.read_bytes())
        return modules / release
    if source.is_dir():
        process.run(["cp", "--archive", source, modules], timeout_s=300)
        return modules / source.name
    unpack_tar(source, tree)
    releases = [path for path in modules.glob("*") if path.is_dir()]
    if len(releases) != 1:
        raise ConfigError(
            f"{source} holds the modules of {len(releases)} kernels", hint="it must be one: build it again"
        )
    return releases[0]


def _device_tree(file: Path | None, dtb: str | None, work: Path) -> Path | None:
    if file is None or dtb is None or file.name == dtb:
        return file
    unpack_tar(file, work)
    inside = _first(work.rglob(dtb))
    if inside is None:
        raise ConfigError(f"{file} holds no {dtb}", hint="enable the board's device tree, then `make dtbs`")
    return inside


def _first(candidates: Iterable[Path]) -> Path | None:
    return next((path for path in candidates if path.is_file()), None)
