"""The project's file: which one counts, and what is wrong with one, by file and line."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsjoule.errors import ConfigError
from fsjoule.host.project_file import project_file, project_table

OWN = '# ours\n[filesystems.mine]\nbase = "ext4"\n'


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a repository's folder; the current folder is further down."""
    monkeypatch.delenv("FSJOULE_PROJECT", raising=False)
    below = tmp_path / "repository" / "a" / "b"
    below.mkdir(parents=True)
    (tmp_path / "repository" / ".git").mkdir()
    monkeypatch.chdir(below)
    return tmp_path / "repository" / "fsjoule.toml"


def test_the_nearest_file_counts(project: Path) -> None:
    assert project_file() is None
    project.write_text(OWN)
    assert project_file() == project
    nearer = project.parent / "a" / "fsjoule.toml"
    nearer.write_text("[suites]\n")
    assert project_file() == nearer
    assert project_table("filesystems") is None
    table = project_table("suites")
    assert table is not None
    assert table.values == {}


def test_a_file_above_the_repository_does_not_count(project: Path) -> None:
    (project.parents[1] / "fsjoule.toml").write_text(OWN)
    assert project_file() is None
    assert project_table("filesystems") is None


def test_a_removed_folder_has_no_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (gone := tmp_path / "gone").mkdir()
    with monkeypatch.context() as there:
        there.chdir(gone)
        gone.rmdir()
        assert project_file() is None


def test_a_variable_names_the_file(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project.write_text(OWN)
    monkeypatch.setenv("FSJOULE_PROJECT", "")
    assert project_file() == project
    (other := tmp_path / "other.toml").write_text("[suites]\n")
    monkeypatch.setenv("FSJOULE_PROJECT", str(other))
    assert project_file() == other


@pytest.mark.parametrize("named", ["fsjoule.toml", "/nowhere/fsjoule.toml", "/tmp"])
def test_a_variable_that_names_no_file_is_an_error(named: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FSJOULE_PROJECT", named)
    with pytest.raises(ConfigError, match=f"^FSJOULE_PROJECT='{named}'"):
        project_table("suites")


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("[suites]\n[filesystem.mine]\n", ":2: unknown table or key 'filesystem'"),
        ("\n\nsuites = 1\n", r":3: \[suites\] is no table"),
        ("[[filesystems]]\n", r":1: \[filesystems\] is no table"),
        ("[suites\n", ":1: not valid TOML"),
        ("#" * (1 << 20) + "\n", ": the project's file is larger than 1 MiB"),
        ("\udcff", ": the project's file cannot be read"),
    ],
)
def test_a_wrong_file_is_told_with_its_line(text: str, what: str, project: Path) -> None:
    project.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(ConfigError, match=f"fsjoule.toml{what}"):
        project_table("suites")


def test_an_error_in_a_table_has_file_and_line(project: Path) -> None:
    project.write_text(OWN)
    table = project_table("filesystems")
    assert table is not None
    assert table.values == {"mine": {"base": "ext4"}}
    assert str(table.error("no", "mine", "base")) == f"{project}:3: no"
