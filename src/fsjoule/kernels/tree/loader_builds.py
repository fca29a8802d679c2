"""Boot loaders of commits, each built by a command of the user's in our own tree, for a bisection of their history.

A built loader is a recipe: the board's, with the files that the command made as pieces of its boot loader. So a card
takes it as it takes any recipe's, and the kernel stays the same.

The tree keeps what earlier builds made, so that `make` compiles only what differs. What a build that was killed left
is removed, and a build that fails is made again from the bare commit before the commit is blamed. A failure is not
kept: what the command needs of this machine is not known.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter

from fsjoule.errors import ConfigError, KernelBuildError
from fsjoule.host.cache.locks import locked
from fsjoule.host.cache.stages import build_once, cache_key, damage, file_sha256
from fsjoule.host.json_text import json_text
from fsjoule.host.process import ExitError, run_watched
from fsjoule.kernels.build import LOADERS_STAGE
from fsjoule.kernels.compilation import CLEARED, ENVIRONMENT, error_lines, machine_fault
from fsjoule.kernels.reads import Reads
from fsjoule.kernels.recipe import load_recipe, recipe_files, recipes_folder
from fsjoule.kernels.source_tree import CHECKOUT_S, Revision, check_out, kernels_cache, own_git
from fsjoule.kernels.tree.builder import NICE, BuildOutcome, BuiltCommit, Unbuildable
from fsjoule.kernels.tree.commits import Commit
from fsjoule.kernels.tree.repository import Repository

_log: Final = logging.getLogger(__name__)

# Raise it when this file changes what a command makes of a commit.
STAGE_VERSION: Final = 1
_RECIPE: Final = "recipe"
_NOTES: Final = "seconds.json"
_SECONDS: Final = TypeAdapter(float)
_TIMEOUT_S: Final = 3600.0
# Nothing is known of what the command reads: every change may make another loader.
_UNKNOWN: Final = Reads(frozenset(), frozenset(), everything=True)


@dataclass(frozen=True, slots=True)
class LoaderProgram:
    """`command` makes a boot loader in its tree; `files` are what it makes, by piece of the recipe's boot loader."""

    command: str
    files: Mapping[str, str]

    @property
    def words(self) -> tuple[str, ...]:
        """As the user gave it."""
        return (f"--build {self.command}", *(f"--loader {piece}={file}" for piece, file in sorted(self.files.items())))


def loader_program(command: str, files: Sequence[str], recipe: str) -> LoaderProgram:
    """The program of `--build COMMAND --loader [PIECE=]FILE`. Raises ConfigError for pieces that the recipe has not."""
    pieces = load_recipe(recipes_folder(), recipe).boot_loader.pieces
    if not pieces:
        raise ConfigError(
            f"--build: cards of the recipe {recipe} have no boot loader",
            hint="choose a board with [boot_loader] in its recipe (docs/images.md)",
        )
    made: dict[str, str] = {}
    for each in files:
        piece, _, file = each.rpartition("=")
        if not piece and len(pieces) > 1:
            raise ConfigError(f"--loader {each}: which piece is it?", hint=f"one of {', '.join(pieces)}: PIECE={file}")
        piece = piece or next(iter(pieces))
        if piece not in pieces:
            raise ConfigError.unknown("piece of the boot loader", piece, pieces)
        if not file or Path(file).is_absolute() or ".." in Path(file).parts:
            raise ConfigError(f"--loader {each}: it is no file in the tree", hint="for example u-boot-with-spl.bin")
        made[piece] = file
    if not made:
        raise ConfigError("--build needs --loader: which file does it make?", hint="fsjoule bisect --help")
    return LoaderProgram(command, made)


def recipe_in(folder: Path) -> str | None:
    """The recipe of a built boot loader, by its path; None for the folder of a built kernel."""
    return next(map(str, (folder / _RECIPE).glob("*.toml")), None)


@dataclass(frozen=True, slots=True)
class LoaderBuilds:
    """Builds of a program's repository for a board's recipe; as `builder.CommitBuilds`."""

    repository: Repository
    program: LoaderProgram
    recipe: str

    def kept(self, commit: Commit) -> BuildOutcome | None:
        """The outcome of a commit as far as no build is needed; None if it is not known."""
        if commit.conflict:
            return Unbuildable(commit.conflict)
        folder = kernels_cache() / LOADERS_STAGE / f"{_name(commit)}-{self._key(commit)}"
        return self._built(folder) if folder.exists() and damage(folder) is None else None

    def build(self, commit: Commit) -> BuildOutcome:
        """Build a commit unless that was done. Raises HostError, and what cancels it."""
        outcome = self.kept(commit)
        if outcome is not None:
            return outcome
        try:
            folder = build_once(
                LOADERS_STAGE,
                _name(commit),
                self._key(commit),
                lambda folder: self._make(commit, folder),
                root=kernels_cache(),
                lock_timeout_s=_TIMEOUT_S,
            )
        except KernelBuildError as error:
            return Unbuildable(error.reason)
        return self._built(folder)

    def _make(self, commit: Commit, folder: Path) -> None:
        started = time.monotonic()
        place = self.repository.scratch.parent
        # Not the tree that kernels are built from beside: this build leaves its files in it.
        source, marker, log = place / "loader", place / ".loader-unfinished", place / "loader.log"
        revision = Revision(self.repository.scratch / ".git", commit.id, commit.content, commit.short)
        with locked(place / ".lock", f"a boot loader from {self.repository.tree}", _TIMEOUT_S):
            check_out(revision, source)
            if marker.exists():
                _log.info("boot loader: removing the files of an interrupted build")
                _clean(source)
            marker.touch()
            log.unlink(missing_ok=True)
            self._run_twice(commit, source, log)
            made = {piece: source / file for piece, file in self.program.files.items()}
            for piece, file in made.items():
                shutil.copyfile(file, folder / piece)
            shutil.copyfile(log, folder / "build.log")
            marker.unlink()
        (folder / _RECIPE).mkdir()
        text = f'base = "{self._base}"\n' + "".join(
            f'\n[boot_loader.pieces.{piece}]\npackage = ""\nfile = "../{piece}"\n' for piece in made
        )
        (folder / _RECIPE / f"{Path(self.recipe).stem}.toml").write_text(text)
        (folder / _NOTES).write_bytes(json_text(_SECONDS, round(time.monotonic() - started, 1)))

    def _run_twice(self, commit: Commit, source: Path, log: Path) -> None:
        """A commit that does not build beside what others have left may do so alone. Raises like `_run`."""
        try:
            self._run(commit, source, log)
        except KernelBuildError as error:
            _log.info(
                "boot loader: %s does not build (%s); once more, from the bare commit", commit.short, error.reason
            )
            _clean(source)
            self._run(commit, source, log)

    def _run(self, commit: Commit, source: Path, log: Path) -> None:
        """Run the command. Raises KernelBuildError if the commit is at fault, HostError if this machine is."""
        for file in self.program.files.values():
            (source / file).unlink(missing_ok=True)  # an earlier commit's
        try:
            run_watched(
                ["bash", "-e", "-o", "pipefail", "-c", self.program.command],
                log=log,
                timeout_s=_TIMEOUT_S,
                how_far=lambda: f"boot loader: building {commit.short}",
                cwd=source,
                env={**dict.fromkeys(CLEARED, ""), **ENVIRONMENT, **_own_programs()},
                nice=NICE,
            )
        except ExitError as error:
            lines = log.read_text(errors="replace").splitlines()
            if fault := machine_fault("\n".join(lines), source, log.parent):
                raise fault from error
            reason = f"{_first_cause(lines)} ({log})"
            raise KernelBuildError(f"the boot loader does not build: {reason}", reason=reason) from error
        if lacking := [file for file in self.program.files.values() if not (source / file).is_file()]:
            raise KernelBuildError(f"the command makes no {', '.join(lacking)}")

    def _built(self, folder: Path) -> BuiltCommit:
        digests = [f"{piece} {file_sha256(folder / piece)}" for piece in sorted(self.program.files)]
        image = hashlib.sha256("\n".join(digests).encode()).hexdigest()
        return BuiltCommit(folder, image, _UNKNOWN, _SECONDS.validate_json((folder / _NOTES).read_bytes()))

    def _key(self, commit: Commit) -> str:
        """Of what determines the loader: programs of the machine count, too, but nobody knows which."""
        inputs = {
            "version": STAGE_VERSION,
            "tree": commit.content,
            "program": self.program.words,
            "environment": ENVIRONMENT,
            "recipe": str(self._base),
        }
        return cache_key(inputs)

    @property
    def _base(self) -> Path:
        return recipe_files(recipes_folder()).get(self.recipe, Path(self.recipe)).resolve()


def _own_programs() -> dict[str, str]:
    """Without those of a virtual environment: the Python in it lacks what builds of others need."""
    own = [
        Path(each) / "bin"
        for each in (sys.prefix, os.environ.get("VIRTUAL_ENV"))
        if each not in (None, sys.base_prefix)
    ]
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return {"PATH": os.pathsep.join(each for each in folders if Path(each) not in own)}


def _first_cause(lines: Sequence[str]) -> str:
    """The first error of a build's log. What make says of it comes behind what the program itself has said."""
    errors = error_lines(lines)
    if not errors:
        return (lines or ["the command failed and said nothing"])[-1].strip()
    first = lines.index(errors[0])
    return lines[first - 1 if "***" in errors[0] and first else first].strip()


def _name(commit: Commit) -> str:
    return commit.content[:12]


def _clean(source: Path) -> None:
    """Remove all but the commit's own files."""
    own_git(source, "clean", "--quiet", "-ffdx", timeout_s=CHECKOUT_S)
