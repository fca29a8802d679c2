"""Stage `dkms`: kernel modules that Debian has only as source, built for one of the archive's kernels.

They are built with Debian's headers and compiler for that kernel, in an unpacked Debian of its suite, which is removed
afterwards. No package script runs, and nothing is installed on this machine. Entry: modules, `dkms.json` and a log.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fsjoule.errors import ConfigError, HostError
from fsjoule.filesystems import FILESYSTEMS, dkms_package
from fsjoule.host import process
from fsjoule.host.apt import PrivateApt, debian_archive, unpack_packages
from fsjoule.host.cache.stages import build_once, cache_key
from fsjoule.host.process import run_watched
from fsjoule.kernels.kernel import wanted_modules
from fsjoule.kernels.recipe import KernelSource, Recipe
from fsjoule.model.labels import counted

_log: Final = logging.getLogger(__name__)

# Raise it when this file changes an entry's content.
STAGE_VERSION: Final = 2

_UNPACK_TIMEOUT_S: Final = 1200.0
_BUILD_TIMEOUT_S: Final = 3600.0
# Programs of dkms, a configure script and make. Others come as their dependencies, and with the kernel's headers.
_TOOLS: Final = (
    *("dkms", "libc6-dev", "dash", "bash", "coreutils", "sed", "grep", "findutils", "mawk", "diffutils", "tar", "gzip"),
    *("perl-base", "file"),
)
_ENVIRONMENT: Final = ("-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C")


@dataclass(frozen=True, slots=True)
class BuiltModule:
    """A built entry: a module, the modules built with it, and the package of their source."""

    folder: Path
    package: str
    version: str
    file: str
    sha256: str

    @property
    def modules(self) -> list[Path]:
        return sorted(self.folder.glob("*.ko*"))


def modules_to_build(recipe: Recipe, kernel: str, needed: Iterable[str]) -> tuple[str, ...]:
    """The needed modules that a kernel lacks. `kernel` is the user's word. Raises ConfigError for impossible ones."""
    known = wanted_modules(recipe)
    missing = sorted({name for name in needed if name not in known})
    for name in missing:
        kernels = recipe.modules.dkms.get(name)
        row = next((row for row in FILESYSTEMS.values() if name in row.modules), None)
        if row is not None and row.unreleased:
            lines = " ".join(f'{package} = "experimental"' for package in row.packages)
            raise ConfigError(
                f"cards of the recipe {recipe.name!r} have no {row.name}: Debian has released no "
                f"{' or '.join(row.packages)}",
                hint=f"leave it out; or take a recipe of your own with [userland.suites] and {lines}; {row.kernels}",
            )
        if kernels is None:
            raise ConfigError(
                f"cards of the recipe {recipe.name!r} have no module {name}",
                hint=f"leave the filesystem out; modules of kernels belong in [modules] of {recipe.file}",
            )
        if kernel not in kernels:
            raise ConfigError(
                f"the kernel {kernel} has no module {name}: {dkms_package(name)} is not built for it",
                hint=f"choose from: {', '.join(kernels)}; or leave the filesystem out",
            )
    return tuple(missing)


def built_module(recipe: Recipe, name: str, source: KernelSource, *, release: str, version: str) -> BuiltModule:
    """A module from `[modules.dkms]` for a kernel of the archive, by its release and its package's version.

    Raises HostError (transient if a download failed), and ConfigError if it cannot be built on this machine.
    """
    inputs = {
        "version": STAGE_VERSION,
        "package": dkms_package(name),
        "from": [recipe.userland.suite, *recipe.userland.components],
        "kernel": [source.suite, source.flavour, release, version],
        "architecture": recipe.architecture,
    }

    def build(folder: Path) -> None:
        process.check_as_root(f"the module {name} is built")
        here = process.run(["dpkg", "--print-architecture"], timeout_s=10).stdout.decode().strip()
        if here != recipe.architecture:
            raise ConfigError(
                f"the module {name} needs a compiler that runs on {recipe.architecture}, not on {here}",
                hint="leave the filesystem out, or build the card on another machine",
            )
        tree, package = folder / "tree", folder / "package"
        _unpack_tools(recipe, source, tree)
        if not (tree / "usr" / "src" / f"linux-headers-{release}").is_dir():
            raise HostError(f"{source.suite} has headers of another kernel than {release}", hint="fsjoule image clean")
        package.mkdir()
        notes = _fetch(recipe, name, package, tree)
        _run_dkms(tree, folder / "build.log", name, release)
        for module in tree.glob("var/lib/dkms/*/*/*/*/module/*.ko*"):
            shutil.copy(module, folder)
        shutil.rmtree(tree)
        shutil.rmtree(package)
        (folder / "dkms.json").write_text(json.dumps(notes, indent=2) + "\n")

    folder = build_once("dkms", f"{recipe.name}-{name}-{release}", cache_key(inputs), build)
    return BuiltModule(folder, **json.loads((folder / "dkms.json").read_text()))


def _unpack_tools(recipe: Recipe, source: KernelSource, tree: Path) -> None:
    _log.info("modules: fetching headers and compiler of %s", source.suite)
    unpack_packages(
        tree,
        (*_TOOLS, f"linux-headers-{source.flavour}"),
        what="modules: headers and compiler",
        archive=debian_archive(source.suite, check_valid_until=source.check_valid_until),
        architecture=recipe.architecture,
        log=tree.with_name("unpack.log"),
        timeout_s=_UNPACK_TIMEOUT_S,
    )
    # A script of the package would make this link.
    (tree / "usr" / "bin" / "awk").symlink_to("mawk")


def _fetch(recipe: Recipe, name: str, into: Path, tree: Path) -> dict[str, str]:
    """Unpack the module's source for dkms, of the user land's suite: tools and module must match. Returns notes."""
    suite, components = recipe.userland.suite, recipe.userland.components
    apt = PrivateApt(into / "apt", archive=debian_archive(suite, components), architecture=recipe.architecture)
    apt.update()
    packages = apt.show([dkms_package(name)])
    (file,) = apt.download(packages, into)
    process.run(["dpkg-deb", "--extract", file, tree], timeout_s=120)
    package = packages[0]
    _log.info("modules: %s %s", package.name, package.version)
    return {"package": package.name, "version": package.version, "file": file.name, "sha256": package.sha256}


def _run_dkms(tree: Path, log: Path, name: str, release: str) -> None:
    (config,) = tree.glob("usr/src/*/dkms.conf")
    fields = dict(re.findall(r'^PACKAGE_(NAME|VERSION)="?([^"\s]+)', config.read_text(), re.MULTILINE))
    jobs = str(os.cpu_count() or 1)
    build = ("dkms", "build", "-m", fields["NAME"], "-v", fields["VERSION"], "-k", release, "-j", jobs)
    command = process.as_root(["nice", "env", *_ENVIRONMENT, "chroot", tree, *build])
    made = tree / "var" / "lib" / "dkms"

    def how_far() -> str:
        count = sum(1 for _ in made.glob("*/*/build/module/**/*.o"))
        return f"modules: {counted(count, 'file')} of {name} compiled" if count else f"modules: configuring {name}"

    try:
        run_watched(command, log=log, timeout_s=_BUILD_TIMEOUT_S, how_far=how_far)
    except HostError as error:
        if error.transient:
            raise
        logs = [file.read_text(errors="replace") for file in (log, *sorted(made.rglob("make.log")))]
        said = "\n".join(text.strip()[-1000:] for text in logs)
        raise HostError(
            f"the module {name} does not build for {release}:\n{said}", hint="leave the filesystem out"
        ) from error
