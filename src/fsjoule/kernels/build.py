"""`fsjoule kernel build`: a kernel cross-built with tuxmake for a recipe's board, cached by source and configuration.

A built kernel is in `<cache>/kernels/built/<name>-<key>/`, with tuxmake's files and our notes. It is built in
`<cache>/kernels/trees/<repository>/`. The source there switches from revision to revision, and each configuration has a
build folder that is never cleaned, so that the next revision compiles only what differs.
The same source and configuration give the same kernel, byte for byte, independent of place and history.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter, ValidationError

from fsjoule.errors import ConfigError, KernelBuildError, LabError
from fsjoule.host import process
from fsjoule.host.cache.locks import locked
from fsjoule.host.cache.stages import CacheEntry, Progress, build_once, cache_key, cached, clean
from fsjoule.host.paths import project_dir
from fsjoule.host.watched import run_watched, size_mib
from fsjoule.kernels.build_folder import NOTES
from fsjoule.kernels.kconfig import check_fragment, not_granted, parse_config
from fsjoule.kernels.recipe import Recipe, load_recipe, recipes_folder
from fsjoule.kernels.source_tree import Revision, check_out, find_revision, has_changes, kernels_cache
from fsjoule.model import DEFAULT_RECIPE

# Raise it when this file changes the result from the same source and configuration.
STAGE_VERSION: Final = 1

_log: Final = logging.getLogger(__name__)
_STAGE: Final = "built"
_LOG: Final = "tuxmake.log"
_TIMEOUT_S: Final = 4 * 3600.0
_COMPILER: Final = "arm-linux-gnueabihf-gcc"

# Time, place and user do not go into the kernel, nor anything of the commit except its content.
_EPOCH: Final = "946684800"
_ENVIRONMENT: Final = {
    "KBUILD_BUILD_TIMESTAMP": "Sat Jan  1 00:00:00 UTC 2000",
    "KBUILD_BUILD_USER": "fsjoule",
    "KBUILD_BUILD_HOST": "fsjoule",
    "KBUILD_BUILD_VERSION": "1",
    "SOURCE_DATE_EPOCH": _EPOCH,
    "LOCALVERSION": "",
}
# Variables that make would inherit.
_CLEARED: Final = ("MAKEFLAGS", "MAKELEVEL", "MFLAGS", "KCPPFLAGS", "KAFLAGS", "ARCH", "CROSS_COMPILE")


@dataclass(frozen=True, slots=True)
class BuildNotes:
    """Notes beside a built kernel. `not_granted` are settings of its fragments that the source did not accept."""

    git_describe: str
    git_commit: str
    git_tree: str
    base: str
    fragments: tuple[str, ...]
    compiler: str
    tuxmake: str
    not_granted: tuple[str, ...]
    seconds: float


_NOTES: Final = TypeAdapter(BuildNotes)


@dataclass(frozen=True, slots=True)
class _Configuration:
    """`base` is a target of the kernel's makefile. Later lines of the fragments override earlier ones."""

    base: str
    fragments: tuple[str, ...]

    @property
    def wanted(self) -> dict[str, str]:
        return {symbol: value for text in self.fragments for symbol, value in parse_config(text).items()}

    @property
    def digest(self) -> str:
        return cache_key(asdict(self))


def build_kernel(
    tree: Path,
    revision: str,
    fragments: Sequence[str] = (),
    *,
    progress: Progress,
    jobs: int | None = None,
    recipe: str = DEFAULT_RECIPE,
) -> Path:
    """The folder of the kernel built from a revision of a repository, for `--kernel`.

    A fragment is a file, or one line of it (`CONFIG_NAME=y`). Raises ConfigError for a wrong repository, revision or
    fragment, MissingToolError with the package of a missing tool, KernelBuildError if the source does not build.
    """
    chosen = load_recipe(recipes_folder(), recipe)
    found = find_revision(tree, revision)
    configuration = _configuration(chosen, fragments)
    compiler = _tools()
    if has_changes(tree, found):
        progress(f"{tree} has uncommitted changes, which are not built")
    inputs = {
        "version": STAGE_VERSION,
        "tree": found.tree,
        "configuration": asdict(configuration),
        "environment": _ENVIRONMENT,
        "compiler": compiler,
        "tuxmake": version("tuxmake"),
    }

    def build(folder: Path) -> None:
        place = found.workplace
        place.mkdir(parents=True, exist_ok=True)
        with locked(place / ".lock", f"a kernel from {tree}", progress, _TIMEOUT_S):
            started = time.monotonic()
            progress(f"kernel build: checking out {found.describe}")
            check_out(found, place / "source")
            _run_tuxmake(place, folder, configuration, jobs or os.cpu_count() or 1, progress)
        notes = _notes(folder, found, configuration, compiler, seconds=time.monotonic() - started)
        (folder / NOTES).write_bytes(_NOTES.dump_json(notes, indent=2) + b"\n")
        if notes.not_granted:
            progress(f"kernel build: this source does not accept {', '.join(notes.not_granted)}")
        progress(f"kernel build: {found.describe} done in {notes.seconds:.0f} s")

    name = f"{chosen.name}-{found.tree[:12]}"
    return build_once(
        _STAGE, name, cache_key(inputs), build, progress=progress, root=kernels_cache(), lock_timeout_s=_TIMEOUT_S
    )


def built_kernels() -> list[tuple[CacheEntry, BuildNotes]]:
    """All built kernels with their notes, oldest first. Damaged ones are reported and left out."""
    entries = sorted(cached(kernels_cache(), (_STAGE,)), key=lambda entry: entry.created_utc)
    for entry in entries:
        if entry.damage:
            _log.warning("%s is damaged: %s; `fsjoule kernel clean` removes it", entry.path, entry.damage)
    return [(entry, _read_notes(entry.path)) for entry in entries if entry.damage is None]


def clean_kernels(*, progress: Progress) -> int:
    """Remove all built kernels and their build folders. Returns the freed bytes."""
    freed = clean(cached(kernels_cache(), (_STAGE,)), progress=progress)
    for place in sorted((kernels_cache() / "trees").glob("*")):
        with locked(place / ".lock", f"a kernel in {place.name}", progress, timeout_s=5.0):
            size = size_mib(place)
            shutil.rmtree(place)
        progress(f"removed source and build folders {place.name} ({size:.0f} MiB)")
        freed += round(size * 2**20)
    return freed


def _configuration(recipe: Recipe, fragments: Sequence[str]) -> _Configuration:
    wanted = recipe.kernel_build
    if wanted is None:
        raise ConfigError(
            f"the recipe {recipe.name!r} has no configuration for a kernel build",
            hint=f"build it by hand and name its folder, or add [kernel_build] to images/{recipe.name}.toml",
        )
    board = (project_dir() / "images" / wanted.fragment).read_text(encoding="utf-8")
    return _Configuration(wanted.base, (board, *map(_fragment, fragments)))


def _fragment(given: str) -> str:
    if parse_config(given):
        return given
    file = Path(given).expanduser()
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        hint = "give a file with lines CONFIG_NAME=y, or one such line itself"
        raise ConfigError(f"the fragment {given!r} cannot be read: {error}", hint=hint) from error
    check_fragment(text, file=file)
    return text


def _tools() -> str:
    """The compiler's version. Raises MissingToolError for the first missing tool."""
    for tool in process.BUILD_PACKAGES:
        process.find_tool(tool)
    return process.run([_COMPILER, "--version"], timeout_s=30).stdout.decode().splitlines()[0]


def _run_tuxmake(place: Path, into: Path, configuration: _Configuration, jobs: int, progress: Progress) -> None:
    source, build = place / "source", place / f"build-{configuration.digest}"
    build.mkdir(exist_ok=True)
    # tuxmake would use an existing configuration. make itself compares it with the one before.
    (build / ".config").unlink(missing_ok=True)
    files = [build / f"fragment-{number}.config" for number in range(len(configuration.fragments))]
    for file, text in zip(files, configuration.fragments, strict=True):
        file.write_text(text)
    log = into / _LOG
    environment = {**_ENVIRONMENT, "KCFLAGS": f"-ffile-prefix-map={build}/= -ffile-prefix-map={source}/="}
    command = [
        *(sys.executable, "-m", "tuxmake", "--runtime=null", "--fail-fast", "--verbose", f"--jobs={jobs}"),
        *(f"--directory={source}", f"--build-dir={build}", f"--output-dir={into}"),
        *("--target-arch=armhf", "--toolchain=gcc", f"--kconfig={configuration.base}"),
        *(f"--kconfig-add={file}" for file in files),
        *(f"--environment={name}={value}" for name, value in environment.items()),
        *("kernel", "modules", "dtbs"),
    ]
    try:
        run_watched(
            command,
            log=log,
            timeout_s=_TIMEOUT_S,
            how_far=lambda: _how_far(log),
            progress=progress,
            env=dict.fromkeys(_CLEARED, ""),
        )
    except LabError as error:
        if error.transient:
            raise
        raise KernelBuildError(
            f"the kernel does not build:\n{_errors(log)}",
            hint=f"to build by hand: source {source}, O={build}; to start again: fsjoule kernel clean",
        ) from error
    log.unlink()  # build.log has the same


def _how_far(log: Path) -> str:
    """The number of compiled files and the present one. The total is unknown: it depends on what is up to date."""
    made = re.findall(r"^ +(?:CC|AS|LD|AR|DTC)[ \[].*$", log.read_text(errors="replace"), re.MULTILINE)
    return f"kernel build: {len(made)} files, {made[-1].split()[-1]}" if made else "kernel build: configuring"


def _errors(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines()
    found = [line for line in lines if re.search(r"\berror\b|\*\*\*|undefined reference", line, re.IGNORECASE)]
    return "\n".join((found or lines)[-12:])


def _notes(
    folder: Path, found: Revision, configuration: _Configuration, compiler: str, *, seconds: float
) -> BuildNotes:
    return BuildNotes(
        git_describe=found.describe,
        git_commit=found.commit,
        git_tree=found.tree,
        base=configuration.base,
        fragments=configuration.fragments,
        compiler=compiler,
        tuxmake=version("tuxmake"),
        not_granted=tuple(not_granted(configuration.wanted, parse_config((folder / "config").read_text()))),
        seconds=round(seconds, 1),
    )


def _read_notes(folder: Path) -> BuildNotes:
    try:
        return _NOTES.validate_json((folder / NOTES).read_bytes())
    except (OSError, ValidationError) as error:
        raise ConfigError(
            f"the notes of a built kernel cannot be read: {error}", file=folder / NOTES, hint="fsjoule kernel clean"
        ) from error
