"""`fsjoule kernel build`: a kernel cross-built with tuxmake for a recipe's board, cached by source and configuration.

A built kernel is in `<cache>/kernels/built/<name>-<key>/`, with tuxmake's files and our notes. It is built in
`<cache>/kernels/trees/<repository>/`. The source there switches from revision to revision, and each configuration has a
build folder that is never cleaned, so that the next revision compiles only what differs.
The same source and configuration give the same kernel, byte for byte, independent of place and history.
"""

from __future__ import annotations

import logging
import os
import shutil
import time
from collections.abc import Collection, Generator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from enum import StrEnum
from importlib.metadata import version
from pathlib import Path
from typing import Final, TypeVar

from pydantic import TypeAdapter, ValidationError

from fsjoule.errors import ConfigError, KernelBuildError
from fsjoule.host.cache.locks import discard, locked
from fsjoule.host.cache.stages import CacheEntry, build_once, cache_key, cached, clean, damage
from fsjoule.host.interrupts import check_cancelled
from fsjoule.host.json_text import json_text
from fsjoule.host.process import size_mib
from fsjoule.kernels.build_folder import NOTES
from fsjoule.kernels.compilation import ENVIRONMENT, TIMEOUT_S, Compilation, compiler_version
from fsjoule.kernels.configuration import Configuration, board_configuration, not_granted, parse_config
from fsjoule.kernels.reads import READS, reads_of
from fsjoule.kernels.recipe import load_recipe, recipes_folder
from fsjoule.kernels.source_tree import Revision, check_out, files_of, find_revision, has_changes, kernels_cache
from fsjoule.model import DEFAULT_RECIPE

_T = TypeVar("_T")
# Raise it when this file changes the result from the same source and configuration.
STAGE_VERSION: Final = 2

_log: Final = logging.getLogger(__name__)
_STAGE: Final = "built"
PROGRAMS_STAGE: Final = "programs"  # of `tree.program_builds`


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
_SYMBOLS: Final = TypeAdapter(dict[str, str])


def build_kernel(
    tree: Path, revision: str, fragments: Sequence[str] = (), *, jobs: int | None = None, recipe: str = DEFAULT_RECIPE
) -> Path:
    """The folder of the kernel built from a revision of a repository, for `--kernel`.

    A fragment is a file, or one line of it (`CONFIG_NAME=y`). Raises ConfigError for a wrong repository, revision or
    fragment, MissingToolError with the package of a missing tool, KernelBuildError if the source does not build.
    """
    commit = find_revision(tree, revision)
    configuration = board_configuration(load_recipe(recipes_folder(), recipe), fragments)
    if has_changes(tree, commit):
        _log.info("%s has uncommitted changes, which are not built", tree)
    return build_revision(commit, configuration, recipe=recipe, jobs=jobs)


def build_key(content: str, configuration: Configuration, compiler: str) -> str:
    """The key of everything that determines the kernel; `content` is the hash of git's tree."""
    inputs = {
        "version": STAGE_VERSION,
        "tree": content,
        "configuration": asdict(configuration),
        "environment": ENVIRONMENT,
        "compiler": compiler,
        "tuxmake": version("tuxmake"),
    }
    return cache_key(inputs)


def build_revision(
    revision: Revision,
    configuration: Configuration,
    *,
    recipe: str = DEFAULT_RECIPE,
    jobs: int | None = None,
    nice: int = 0,
    needed: Collection[str] = (),
) -> Path:
    """The folder of the kernel built from a revision.

    `needed` are settings (`CONFIG_NAME=y`) that the source must accept. Raises KernelBuildError if it does not accept
    them or does not build, and HostError if this machine is at fault. `interrupts.cancel_with` cancels the build.
    """

    def build(folder: Path) -> None:
        started = time.monotonic()
        with _checked_out(revision, configuration, folder, jobs=jobs, nice=nice) as work:
            lost = not_granted(dict(wish.split("=", 1) for wish in needed), work.configured())
            if lost:
                reason = f"this source does not accept {', '.join(lost)}"
                raise KernelBuildError(reason, hint="other revisions do", reason=reason)
            work.compile()
            (folder / READS).write_bytes(reads_of(work.build, work.source, files_of(work.source)).to_json())
        notes = _notes(folder, revision, configuration, seconds=time.monotonic() - started)
        (folder / NOTES).write_bytes(json_text(_NOTES, notes, indent=2))
        if notes.not_granted:
            _log.info("kernel build: this source does not accept %s", ", ".join(notes.not_granted))
        _log.info("kernel build: %s done in %.0f s", revision.describe, notes.seconds)

    return build_once(
        _STAGE,
        _entry_name(revision.tree, recipe),
        build_key(revision.tree, configuration, compiler_version()),
        build,
        root=kernels_cache(),
        lock_timeout_s=TIMEOUT_S,
    )


def configured(revision: Revision, configuration: Configuration, *, jobs: int) -> dict[str, str]:
    """Symbol -> value in a revision's full configuration. Raises like `build_revision`.

    It is kept. To switch the source and back would give all files that differ a new time, and the next build would
    compile them once more.
    """
    key = build_key(revision.tree, configuration, compiler_version())
    if (known := kept(KeptBuild.CONFIGURATION, key, _SYMBOLS)) is not None:
        return known
    folder = revision.workplace / "configured"
    with _checked_out(revision, configuration, folder, jobs=jobs) as work:
        discard(folder)
        folder.mkdir()
        symbols = work.configured()
    keep(KeptBuild.CONFIGURATION, key, _SYMBOLS, symbols)
    return symbols


def built_folder(content: str, key: str, recipe: str = DEFAULT_RECIPE) -> Path | None:
    """The folder of an intact built kernel by its build's key, or None."""
    folder = kernels_cache() / _STAGE / _entry_name(content, recipe)
    entry = folder.with_name(f"{folder.name}-{key}")
    return entry if entry.exists() and damage(entry) is None else None


def built_kernels() -> list[tuple[CacheEntry, BuildNotes]]:
    """All built kernels with their notes, oldest first. Damaged ones are reported and left out."""
    entries = sorted(cached(kernels_cache(), (_STAGE,)), key=lambda entry: entry.created_utc)
    for entry in entries:
        if entry.damage:
            _log.warning("%s is damaged: %s; `fsjoule kernel clean` removes it", entry.path, entry.damage)
    return [(entry, read_notes(entry.path)) for entry in entries if entry.damage is None]


def clean_kernels() -> int:
    """Remove all built kernels and their build folders. Returns the freed bytes."""
    freed = clean(cached(kernels_cache(), (_STAGE, PROGRAMS_STAGE)))
    for place in sorted((kernels_cache() / "trees").glob("*")):
        with locked(place / ".lock", f"a kernel in {place.name}", timeout_s=5.0):
            size = size_mib(place)
            shutil.rmtree(place)
        _log.info("removed source and build folders %s (%.0f MiB)", place.name, size)
        freed += round(size * 2**20)
    forget_kept()
    return freed


@contextmanager
def _checked_out(
    revision: Revision, configuration: Configuration, into: Path, *, jobs: int | None, nice: int = 0
) -> Generator[Compilation]:
    """Hold the workplace with a revision's source in it."""
    place = revision.workplace
    place.mkdir(parents=True, exist_ok=True)
    with locked(place / ".lock", f"a kernel from {revision.git_dir}", TIMEOUT_S):
        check_cancelled()
        _log.info("kernel build: checking out %s", revision.describe)
        source, build = place / "source", place / f"build-{configuration.folder_key}"
        check_out(revision, source)
        yield Compilation(source, build, into, configuration, jobs or os.cpu_count() or 1, nice)


def _entry_name(content: str, recipe: str) -> str:
    return f"{recipe.rpartition('/')[2].removesuffix('.toml')}-{content[:12]}"


def _notes(folder: Path, revision: Revision, configuration: Configuration, *, seconds: float) -> BuildNotes:
    return BuildNotes(
        git_describe=revision.describe,
        git_commit=revision.commit,
        git_tree=revision.tree,
        base=configuration.base,
        fragments=configuration.fragments,
        compiler=compiler_version(),
        tuxmake=version("tuxmake"),
        not_granted=tuple(not_granted(configuration.wanted, parse_config((folder / "config").read_text()))),
        seconds=round(seconds, 1),
    )


def read_notes(folder: Path) -> BuildNotes:
    """The notes beside a built kernel. Raises ConfigError."""
    try:
        return _NOTES.validate_json((folder / NOTES).read_bytes())
    except (OSError, ValidationError) as error:
        raise ConfigError(
            f"the notes of a built kernel cannot be read: {error}", file=folder / NOTES, hint="fsjoule kernel clean"
        ) from error


class KeptBuild(StrEnum):
    """The kind of a result; also its folder's name."""

    CONFIGURATION = "configured"
    FAILURE = "failed"


def kept(what: KeptBuild, key: str, adapter: TypeAdapter[_T]) -> _T | None:
    """A result that was kept; None if there is none, or it cannot be read."""
    try:
        return adapter.validate_json(_kept_file(what, key).read_bytes())
    except (OSError, ValidationError):
        return None


def keep(what: KeptBuild, key: str, adapter: TypeAdapter[_T], result: _T) -> None:
    """Keep a result: all of it or, if this process is killed, nothing."""
    file = _kept_file(what, key)
    file.parent.mkdir(parents=True, exist_ok=True)
    unfinished = file.with_name(f".{file.name}.{os.getpid()}")
    unfinished.write_bytes(json_text(adapter, result))
    unfinished.rename(file)


def forget_kept() -> None:
    """Remove all results."""
    for what in KeptBuild:
        discard(kernels_cache() / what)


def _kept_file(what: KeptBuild, key: str) -> Path:
    return kernels_cache() / what / f"{key}.json"
