"""Programs of commits, each built by a command of the user's in our own tree, for a bisection of their history.

A built program is a recipe: the board's, with the files that the command made as pieces of its boot loader, or on its
root. So a card takes it as it takes any recipe's, and the kernel stays the same.

The tree keeps what earlier builds made, so that `make` compiles only what differs. What a build that was killed left
is removed, and a build that fails is made again from the bare commit before the commit is blamed. A failure is not
kept: what the command needs of this machine is not known.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
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
from fsjoule.kernels.build import PROGRAMS_STAGE
from fsjoule.kernels.compilation import CLEARED, ENVIRONMENT, error_lines, machine_fault
from fsjoule.kernels.reads import Reads
from fsjoule.kernels.recipe import PATH_ON_ROOT, load_recipe, recipe_files, recipes_folder
from fsjoule.kernels.source_tree import CHECKOUT_S, Revision, check_out, files_of, kernels_cache, own_git
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
_ON_ROOT: Final = re.compile(PATH_ON_ROOT)
# Nothing is known of what the command reads: every change may make another program.
_UNKNOWN: Final = Reads(frozenset(), frozenset(), everything=True)


@dataclass(frozen=True, slots=True)
class Program:
    """`command` makes files in its tree, by their paths there.

    `pieces` has those that are pieces of the recipe's boot loader, `installed` those of the root, by their paths on it.
    """

    command: str
    pieces: Mapping[str, str]
    installed: Mapping[str, str]

    @property
    def words(self) -> tuple[str, ...]:
        """As the user gave it."""
        pieces = (f"--loader {piece}={file}" for piece, file in sorted(self.pieces.items()))
        installed = (f"--install {path}={file}" for path, file in sorted(self.installed.items()))
        return (f"--build {self.command}", *pieces, *installed)

    @property
    def made(self) -> dict[str, str]:
        """All files that the command makes, by their paths beside the recipe."""
        pieces = {f"loader/{piece}": file for piece, file in self.pieces.items()}
        return pieces | {f"root{path}": file for path, file in self.installed.items()}

    def recipe(self, base: Path) -> str:
        """The board's recipe with these files, in a file two folders below them."""
        pieces = (
            f'\n[boot_loader.pieces.{piece}]\npackage = ""\nfile = "../loader/{piece}"\n' for piece in self.pieces
        )
        installed = (f'"{path}" = "../root{path}"\n' for path in self.installed)
        files = f"\n[userland.files]\n{''.join(installed)}" if self.installed else ""
        return f'base = "{base}"\n{"".join(pieces)}{files}'


def program_of(command: str, loader: Sequence[str], install: Sequence[str], recipe: str) -> Program:
    """The program of `--build COMMAND`, of which `--loader [PIECE=]FILE` and `--install PATH=FILE` are made.

    Raises ConfigError for what cards of the recipe have no place for.
    """
    known = load_recipe(recipes_folder(), recipe)
    pieces: dict[str, str] = {}
    installed: dict[str, str] = {}
    for each in loader:
        if not known.boot_loader.pieces:
            raise ConfigError(
                f"--loader {each}: cards of the recipe {recipe} have no boot loader",
                hint="choose a board with [boot_loader] in its recipe (docs/images.md)",
            )
        piece, _, file = each.rpartition("=")
        if not piece and len(known.boot_loader.pieces) > 1:
            hint = f"one of {', '.join(known.boot_loader.pieces)}: PIECE={file}"
            raise ConfigError(f"--loader {each}: which piece is it?", hint=hint)
        piece = piece or next(iter(known.boot_loader.pieces))
        if piece not in known.boot_loader.pieces:
            raise ConfigError.unknown("piece of the boot loader", piece, known.boot_loader.pieces)
        pieces[piece] = _in_tree(file, f"--loader {each}")
    for each in install:
        path, _, file = each.rpartition("=")
        if not _ON_ROOT.fullmatch(path):
            raise ConfigError(f"--install {each}: it names no path on the board", hint="for example /usr/bin/app=app")
        installed[path] = _in_tree(file, f"--install {each}")
    if not pieces and not installed:
        raise ConfigError("--build needs --loader or --install: which files does it make?", hint="docs/bisect.md")
    return Program(command, pieces, installed)


def _in_tree(file: str, option: str) -> str:
    if not file or Path(file).is_absolute() or ".." in Path(file).parts:
        raise ConfigError(f"{option}: it is no file in the tree", hint="name it from the top of the tree")
    return file


def recipe_in(folder: Path) -> str | None:
    """The recipe of a built program, by its path; None for the folder of a built kernel."""
    return next(map(str, (folder / _RECIPE).glob("*.toml")), None)


@dataclass(frozen=True, slots=True)
class ProgramBuilds:
    """Builds of a program's repository for a board's recipe; as `builder.CommitBuilds`."""

    repository: Repository
    program: Program
    recipe: str

    def kept(self, commit: Commit) -> BuildOutcome | None:
        """The outcome of a commit as far as no build is needed; None if it is not known."""
        if commit.conflict:
            return Unbuildable(commit.conflict)
        folder = kernels_cache() / PROGRAMS_STAGE / f"{_name(commit)}-{self._key(commit)}"
        return self._built(folder) if folder.exists() and damage(folder) is None else None

    def build(self, commit: Commit) -> BuildOutcome:
        """Build a commit unless that was done. Raises HostError, and what cancels it."""
        outcome = self.kept(commit)
        if outcome is not None:
            return outcome
        try:
            folder = build_once(
                PROGRAMS_STAGE,
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
        source, marker, log = place / "program", place / ".program-unfinished", place / "program.log"
        revision = Revision(self.repository.scratch / ".git", commit.id, commit.content, commit.short)
        with locked(place / ".lock", f"a program from {self.repository.tree}", _TIMEOUT_S):
            check_out(revision, source)
            if marker.exists():
                _log.info("build: removing the files of an interrupted build")
                _clean(source)
            marker.touch()
            log.unlink(missing_ok=True)
            self._run_twice(commit, source, log)
            for name, file in self.program.made.items():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source / file, folder / name)
            shutil.copyfile(log, folder / "build.log")
            marker.unlink()
        (folder / _RECIPE).mkdir()
        recipe = folder / _RECIPE / f"{Path(self.recipe).stem}.toml"
        recipe.write_text(self.program.recipe(self._base))
        (folder / _NOTES).write_bytes(json_text(_SECONDS, round(time.monotonic() - started, 1)))

    def _run_twice(self, commit: Commit, source: Path, log: Path) -> None:
        """A commit that does not build beside what others have left may do so alone. Raises like `_run`."""
        try:
            self._run(commit, source, log)
        except KernelBuildError as error:
            _log.info("build: %s does not build (%s); once more, from the bare commit", commit.short, error.reason)
            _clean(source)
            self._run(commit, source, log)

    def _run(self, commit: Commit, source: Path, log: Path) -> None:
        """Run the command. Raises KernelBuildError if the commit is at fault, HostError if this machine is."""
        for file in set(self.program.made.values()).difference(files_of(source)):
            (source / file).unlink(missing_ok=True)  # an earlier commit's
        try:
            run_watched(
                ["bash", "-e", "-o", "pipefail", "-c", self.program.command],
                log=log,
                timeout_s=_TIMEOUT_S,
                how_far=lambda: f"build: building {commit.short}",
                cwd=source,
                env={**dict.fromkeys(CLEARED, ""), **ENVIRONMENT, **_own_programs()},
                nice=NICE,
            )
        except ExitError as error:
            lines = log.read_text(errors="replace").splitlines()
            if fault := machine_fault("\n".join(lines), source, log.parent):
                raise fault from error
            reason = f"{_first_cause(lines)} ({log})"
            raise KernelBuildError(f"the program does not build: {reason}", reason=reason) from error
        if lacking := [file for file in self.program.made.values() if not (source / file).is_file()]:
            raise KernelBuildError(f"the command makes no {', '.join(lacking)}")

    def _built(self, folder: Path) -> BuiltCommit:
        digests = [f"{name} {file_sha256(folder / name)}" for name in sorted(self.program.made)]
        image = hashlib.sha256("\n".join(digests).encode()).hexdigest()
        return BuiltCommit(folder, image, _UNKNOWN, _SECONDS.validate_json((folder / _NOTES).read_bytes()))

    def _key(self, commit: Commit) -> str:
        """A key of what is known to determine the program: the command's compiler is not."""
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
    """A PATH without those of a virtual environment: the Python in it lacks what builds of others need."""
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
