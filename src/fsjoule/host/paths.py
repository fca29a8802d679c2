"""Folders of fsjoule: the checkout, the cache (which may be deleted), the state of running labs, files of meters."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

import platformdirs

from fsjoule.errors import ConfigError, StorageError

_CACHE: Final = "FSJOULE_CACHE_DIR"
_STATE: Final = "FSJOULE_STATE_DIR"
_METERS: Final = "FSJOULE_METERS_DIR"
_ENVIRONMENTS: Final = ("env", "env/boards")
# A checkout, or the copy of one that an installed package carries.
_PACKAGE: Final = Path(__file__).resolve().parents[1]
_ROOT: Final = _PACKAGE / "checkout" if (_PACKAGE / "checkout").is_dir() else _PACKAGE.parents[1]


def cache_dir() -> Path:
    """The folder of things that can be built again. `FSJOULE_CACHE_DIR` overrides it. Made if absent.

    A read-only cache can be used. Raises ConfigError for a folder that cannot be used at all.
    """
    return _made(_CACHE, platformdirs.user_cache_path("fsjoule"))


def cache_folder(name: str) -> Path:
    """A folder in the cache, made if absent. Raises ConfigError if unusable, StorageError if it cannot be made."""
    path = cache_dir() / name
    try:
        path.mkdir(exist_ok=True)
    except FileExistsError as error:
        raise ConfigError(
            f"{path} is not a folder", hint=f"remove it, or name another folder: {_CACHE}=FOLDER"
        ) from error
    except OSError as error:
        raise StorageError(
            f"the cache cannot be written: {path}: {error.strerror}",
            hint=cache_hint(path),
        ) from error
    return path


def cache_hint(path: Path) -> str:
    """What a user can do who may not write a path in the cache."""
    return _hint(_CACHE, cache_dir(), path)


def state_dir() -> Path:
    """One folder per running lab. `FSJOULE_STATE_DIR` overrides it. Made if absent. Raises ConfigError."""
    path = _made(_STATE, platformdirs.user_state_path("fsjoule"))
    if not os.access(path, os.W_OK):
        raise _unusable(_STATE, path, "it cannot be written")
    return path


def place_file(folder: str, coordinator: str, place: str) -> Path:
    """The file of the state whose lock says that a process of this computer uses a place. Its folder may be absent.

    `folder` is a value of `fsjoule.lab.notes.NoteKind`. A place's name may have slashes.
    """
    return state_dir() / folder / f"{coordinator}-{place}".replace("/", "_")


def meters_dir() -> Path:
    """The folder of instrument files, which need not exist. `FSJOULE_METERS_DIR` overrides it. Raises ConfigError."""
    named = os.environ.get(_METERS) or None
    return platformdirs.user_config_path("fsjoule") / "meters" if named is None else absolute(_METERS, named)


def main_job_folder() -> Path:
    """The folder of the main job's test, tests/bench."""
    return _ROOT / "tests" / "bench"


def project_dir() -> Path:
    """The checkout, or its copy in an installed package: recipes, environment files, sources. Raises ConfigError."""
    root = _ROOT
    if not (root / "images").is_dir():
        raise ConfigError(
            f"{root} is not a checkout of fsjoule: it has no folder 'images'",
            hint="run fsjoule from a clone of its repository, installed with: uv sync; or install a wheel: uv build",
        )
    return root


def own_folder() -> Path:
    """Where files of a user's boards go: the checkout; the current folder if fsjoule is installed without one."""
    return Path.cwd() if _ROOT.is_relative_to(_PACKAGE) else project_dir()


def environment_file(named: Path) -> Path:
    """An environment file by its path or its name, in env/ or env/boards/, here or in the checkout.

    What is in neither stays as it is named.
    """
    if named.is_absolute() or named.is_file():
        return named
    names = [named]
    if named.name == str(named):
        names += [Path(folder, f"{named}.yaml") for folder in _ENVIRONMENTS]
    return next((file for root in (Path(), project_dir()) for each in names if (file := root / each).is_file()), named)


def _made(variable: str, default: Path) -> Path:
    # An empty variable counts as unset, as with XDG's variables.
    named = os.environ.get(variable) or None
    path = default.absolute() if named is None else absolute(variable, named)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        raise _unusable(variable, path, "it is a file, or a link to nothing") from error
    except (OSError, ValueError) as error:
        raise _unusable(variable, path, getattr(error, "strerror", None) or str(error)) from error
    if not os.access(path, os.R_OK | os.X_OK):
        raise _unusable(variable, path, "it cannot be read")
    return path


def absolute(variable: str, named: str, kind: str = "folder") -> Path:
    """The folder or file that a variable names. It must be absolute: a relative path would differ per command."""
    path = Path(named)
    if named == "~" or named.startswith("~/"):
        with suppress(RuntimeError):  # a user without a home
            path = path.expanduser()
    if not path.is_absolute():
        raise ConfigError(
            f"{variable}={named!r} is not the full path of a {kind}",
            hint=f"give one that begins with / or ~/, or unset {variable}",
        )
    return path


def _unusable(variable: str, path: Path, why: str) -> ConfigError:
    return ConfigError(
        f"the folder {path} cannot be used: {why}",
        hint=_hint(variable, path, path),
    )


def _hint(variable: str, folder: Path, path: Path) -> str:
    """What a user can do about a folder in which a path cannot be used."""
    let = f"it is root's: sudo chown -R $USER {folder}" if _is_of_root(folder, path) else "let this user write there"
    return f"{let}, or name another folder: {variable}=FOLDER"


def _is_of_root(folder: Path, path: Path) -> bool:
    """Whether a command by sudo has left root's files in a folder of this user's home."""
    with suppress(OSError, RuntimeError):  # a user without a home
        there = next(each for each in (path, *path.parents) if os.path.lexists(each))
        at_home = Path.home() in folder.parents and folder.is_dir() and there.is_relative_to(folder)
        return os.geteuid() != 0 and at_home and there.stat().st_uid == 0
    return False
