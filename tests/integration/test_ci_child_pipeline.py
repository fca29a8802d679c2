"""The child pipeline: boards x kernels x filesystems; what cannot be measured is said before a job starts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from command_line import CommandLine

MATRIX = """\
suite = "quick"
repeat = 2
filesystems = ["ext4", "btrfs:zstd"]
kernels = ["head", "6.1"]
leave_out = ["virtual 6.1 ext4"]
[boards.virtual]
environment = "env/virtual.yaml"
[boards.evk]
environment = "env/boards/imx6ul-evk.yaml"
place_variable = "PLACE_EVK"
"""


@pytest.fixture
def run(fsjoule: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> CommandLine:
    for name in ("PLACE_EVK", "PLACE_IMX6UL_EVK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CI_PROJECT_DIR", str(tmp_path))
    (tmp_path / ".ci").mkdir()
    (tmp_path / ".ci" / "matrix.toml").write_text(MATRIX)
    return fsjoule


def pipeline(run: CommandLine, folder: Path, *inputs: str) -> dict[str, Any]:
    given = [word for each in inputs for word in ("--input", each)]
    done = run("ci", "matrix", "--output", "matrix.yml", *given)
    assert done.code == 0, done.err
    program = Path(sys.executable).with_name("check-jsonschema")
    subprocess.run([program, "--builtin-schema", "vendor.gitlab-ci", folder / "matrix.yml"], check=True, timeout=120)
    return yaml.safe_load((folder / "matrix.yml").read_text())


def test_a_board_without_a_place_is_absent(run: CommandLine, tmp_path: Path) -> None:
    document = pipeline(run, tmp_path)
    emulated = {name: job for name, job in document.items() if name.startswith("virtual ")}
    assert list(emulated) == ["virtual head ext4", "virtual head btrfs:zstd", "virtual 6.1 btrfs:zstd"]
    assert not [name for name in document if name.startswith("evk ")]
    assert emulated["virtual 6.1 btrfs:zstd"]["extends"] == ".fsjoule:bench"
    assert emulated["virtual 6.1 btrfs:zstd"]["variables"] == {
        "ENVIRONMENT": "env/virtual.yaml",
        "KERNEL": "6.1",
        "FS": "btrfs:zstd",
        "SUITE": "quick",
        "REPEAT": "2",
    }
    assert emulated["virtual head ext4"]["variables"]["KERNEL"] == ""


def test_a_board_with_a_place_is_held(run: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PLACE_EVK", "evk-3")
    document = pipeline(run, tmp_path, "prefix=joules", "board_tag=desk", "revision=v2")
    real = {name: job for name, job in document.items() if name.startswith("evk ")}
    assert len(real) == 4
    for job in real.values():
        assert job["extends"] == ".joules:board"
        assert job["variables"]["PLACE"] == "evk-3"
    assert document[".joules:board"]["tags"] == ["desk"]
    assert document[".joules:light"]["variables"]["FSJOULE_REVISION"] == "v2"


def test_the_projects_own_matrix_can_be_measured(run: CommandLine, tmp_path: Path) -> None:
    (tmp_path / ".ci" / "matrix.toml").unlink()
    assert "virtual 6.12 xfs" in pipeline(run, tmp_path)


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("repeat = 2", "repeat = 0", "matrix.toml:2: repeat: Input should be greater than or equal to 1"),
        ("repeat = 2", "repeat = two", "matrix.toml:2: not valid TOML"),
        ("repeat = 2", 'repeet = "2"', "matrix.toml:2: repeet: Extra inputs are not permitted"),
        ('"btrfs:zstd"', '"ext5"', "matrix.toml: virtual head ext5: unknown filesystem 'ext5'"),
        ('"6.1"]', '"2.6"]', "matrix.toml: virtual 2.6 ext4: unknown kernel '2.6'"),
        ("virtual 6.1 ext4", "virtual 6.1 xfs", "matrix.toml:5: leave_out: no job is called 'virtual 6.1 xfs'"),
        ("env/virtual.yaml", "env/none.yaml", "virtual head ext4: "),
        ('[boards.virtual]\nenvironment = "env/virtual.yaml"\n', "", "the matrix has no job"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(
    run: CommandLine, tmp_path: Path, old: str, new: str, complaint: str
) -> None:
    file = tmp_path / ".ci" / "matrix.toml"
    text = MATRIX if "2.6" not in new and "boards" not in old else MATRIX.replace('"virtual 6.1 ext4"', "")
    assert old in text
    file.write_text(text.replace(old, new))
    done = run("ci", "matrix", "--output", "matrix.yml")
    assert done.code == 2
    assert complaint in done.err
    assert not (tmp_path / "matrix.yml").exists()


@pytest.mark.parametrize(
    ("word", "complaint"),
    [
        ("tags=desk", "the component has no input 'tags'\n  hint: choose from: prefix, stage, image"),
        ("desk", "--input 'desk' is not NAME=VALUE"),
    ],
)
def test_an_input_that_the_component_does_not_have(run: CommandLine, word: str, complaint: str) -> None:
    done = run("ci", "matrix", "--output", "matrix.yml", "--input", word)
    assert (done.code, complaint in done.err) == (2, True), done.err
