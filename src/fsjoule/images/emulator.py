"""Stage `emulator`: a QEMU for kernels whose board the installed one cannot emulate.

The entry holds the unpacked package, which uses the libraries of the installed QEMU's package. Nothing is installed.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from fsjoule.errors import HostError
from fsjoule.host import process
from fsjoule.host.apt import PrivateApt, debian_archive
from fsjoule.host.cache.stages import build_once, cache_key
from fsjoule.kernels.recipe import Recipe
from fsjoule.model.version import parse_version

_log: Final = logging.getLogger(__name__)

# Raise it when this file changes an entry's content.
STAGE_VERSION: Final = 2


def emulator_program(recipe: Recipe, needed: Sequence[str]) -> Path:
    """A QEMU of at least the `needed` versions: the installed one, or one fetched into the cache.

    Raises MissingToolError without an installed QEMU, HostError if none is fetched (transient) or it does not run.
    """
    installed = Path(process.find_tool(recipe.emulator.program))
    if parse_version(_version_text(installed)) >= max(map(parse_version, needed), default=()):
        return installed
    key = cache_key(
        {"version": STAGE_VERSION, "emulator": recipe.emulator.model_dump(include={"program", "package", "suite"})}
    )
    folder = build_once("emulator", recipe.name, key, lambda into: _build(into, recipe))
    return folder / "usr" / "bin" / recipe.emulator.program


def needed_qemu(recipe: Recipe, release: str) -> str:
    """The recipe's oldest QEMU for a kernel of this release."""
    kernel = parse_version(release)
    needs = [qemu for since, qemu in recipe.emulator.for_kernels_from.items() if kernel >= parse_version(since)]
    return max(needs, key=parse_version, default="0.0")


def _version_text(program: Path) -> str:
    return process.run([program, "--version"], timeout_s=30).stdout.decode()


def _build(folder: Path, recipe: Recipe) -> None:
    wanted = recipe.emulator
    architecture = process.run(["dpkg", "--print-architecture"], timeout_s=10).stdout.decode().strip()
    work = folder / "work"
    apt = PrivateApt(work / "apt", archive=debian_archive(wanted.suite), architecture=architecture)
    _log.info("emulator: fetching the package lists of %s", wanted.suite)
    apt.update()
    package = apt.show([wanted.package])[0]
    _log.info("emulator: downloading %s %s, %.0f MiB", package.name, package.version, package.size_bytes / 2**20)
    process.run(["dpkg-deb", "--extract", *apt.download([package], work), folder], timeout_s=120)
    shutil.rmtree(work)
    try:
        _version_text(folder / "usr" / "bin" / wanted.program)
    except HostError as error:
        raise HostError(
            f"{package.name} {package.version} of {wanted.suite} does not run here: {error.what}",
            hint=f"install a newer {wanted.program}, or choose an older kernel",
        ) from error
