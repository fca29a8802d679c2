"""Folders that the environment names: what cannot be used is told with the variable's name, by every command."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from command_line import PROGRAM, CommandLine
from unprivileged import SOMEBODY_ELSE, run_unprivileged

from fsjoule.errors import ConfigError
from fsjoule.host import paths

COMMANDS = {"FSJOULE_CACHE_DIR": ("image", "list"), "FSJOULE_STATE_DIR": ("lab", "status")}
FOLDERS = {"FSJOULE_CACHE_DIR": paths.cache_dir, "FSJOULE_STATE_DIR": paths.state_dir}


@pytest.mark.parametrize("variable", FOLDERS)
@pytest.mark.parametrize(
    "value",
    ["relative/folder", ".", "~nobody", "~nobody/x", "/dev/null", "/dev/null/x", "/proc/nope", "/" + 300 * "x"],
)
def test_a_folder_that_cannot_be_used_is_the_user_s_mistake(
    variable: str, value: str, fsjoule: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(ConfigError):
        FOLDERS[variable]()
    done = fsjoule(*COMMANDS[variable])
    assert done.code == ConfigError.exit_code
    assert variable in done.err
    assert "hint: " in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize("variable", FOLDERS)
def test_a_folder_is_made_and_a_home_is_known(variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv(variable, "~/in/there")
    assert FOLDERS[variable]() == tmp_path / "in" / "there"
    assert (tmp_path / "in" / "there").is_dir()
    monkeypatch.delenv(variable)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    assert FOLDERS[variable]().is_relative_to(tmp_path)


@pytest.mark.parametrize("variable", FOLDERS)
def test_a_variable_that_is_set_to_nothing_is_not_set(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(variable, raising=False)
    default = FOLDERS[variable]()
    monkeypatch.setenv(variable, "")
    assert FOLDERS[variable]() == default


@pytest.mark.parametrize("variable", FOLDERS)
def test_a_folder_of_somebody_else_is_told(variable: str, tmp_path: Path) -> None:
    folder = tmp_path / "another's"
    folder.mkdir(mode=0)
    if os.geteuid() == 0:
        os.chown(folder, SOMEBODY_ELSE, SOMEBODY_ELSE)
    done = run_unprivileged([str(PROGRAM), *COMMANDS[variable]], {variable: str(folder / "fsjoule")})
    assert (done.returncode, variable in done.stderr) == (ConfigError.exit_code, True), done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(("user", "told"), [(1000, "sudo chown -R $USER /usr, or"), (0, "let this user write there")])
def test_what_root_has_left_in_a_home_is_given_back(
    user: int, told: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: user)
    monkeypatch.setenv("FSJOULE_CACHE_DIR", "/usr")
    monkeypatch.setenv("HOME", "/")
    assert told in paths.cache_hint(Path("/usr/images/card"))
    monkeypatch.setenv("HOME", str(tmp_path))
    assert "chown" not in paths.cache_hint(Path("/usr/images/card"))


def test_a_file_in_the_place_of_a_cache_folder_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FSJOULE_CACHE_DIR", str(tmp_path))
    (tmp_path / "images").write_text("")
    with pytest.raises(ConfigError, match="images is not a folder"):
        paths.cache_folder("images")
