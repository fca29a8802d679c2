"""Suites as TOML files: what they can say, and errors with the line."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import command_line

from fsjoule.errors import ConfigError
from fsjoule.host.toml_lines import line_of
from fsjoule.model import KIB, MIB, FioWorkload, IoPattern, Provision, TimedKind, TimedWorkload
from fsjoule.model.operation import FlakeyModel
from fsjoule.model.workload import FlakeyWorkload, PowerLossWorkload
from fsjoule.suites import suite
from fsjoule.suites.suite_file import suites_in

LOGGER = """\
[suite]
title = "what our logger does"
filesystems = ["f2fs"]
repeat = 5
provision = "root"

[[suite.workload]]
operation = ["write", "randwrite"]
block_kib = [4, 64]
size_mib = 16
fsync_every = 1

[[suite.workload]]
operation = "copy"
size_mib = 0.5

[[suite.workload]]
operation = "power-loss"
sync = true

[[suite.workload]]
operation = "dm-flakey"
model = "after-10s"
"""
WORKLOAD = '[suite]\ntitle = "t"\n[[suite.workload]]\noperation = "mkfs"\n[[suite.workload]]\n'


def _written(folder: Path, text: str, name: str = "logger") -> str:
    file = folder / f"{name}.toml"
    file.write_text(text)
    return str(file)


def test_a_file_has_all_workloads_of_a_suite(tmp_path: Path) -> None:
    own = suite(_written(tmp_path, LOGGER))
    assert (own.name, own.title, own.filesystems, own.repeat) == ("logger", "what our logger does", ("f2fs",), 5)
    assert own.provision is Provision.ROOT
    assert own.workloads == (
        *(
            FioWorkload(operation, block * KIB, 16 * MIB, fsync_every=1)
            for block in (4, 64)
            for operation in (IoPattern.WRITE, IoPattern.RANDWRITE)
        ),
        TimedWorkload(TimedKind.COPY, MIB // 2),
        PowerLossWorkload(sync=True),
        FlakeyWorkload(FlakeyModel.AFTER_10S),
    )
    assert [each.name for each in suites_in(tmp_path)] == ["logger"]


@pytest.mark.parametrize(
    ("text", "line", "complaint"),
    [
        ("[suite]\ntitle = 1\nworkload = [{}]\n", 2, "title: Input should be a valid string"),
        ("[suit]\n", 1, "unknown table or key 'suit'"),
        ('[suite]\ntitle = "t"\nworkload = []\n', 3, "workload: List should have at least 1 item"),
        (f'{WORKLOAD}operation = "trim"\n', 6, "operation: 'trim' is no operation"),
        (f"{WORKLOAD}block_kib = 4\n", 5, "operation: None is no operation"),
        (f'{WORKLOAD}operation = "read"\nblock_kib = 4\nsize_mb = 3\n', 8, "size_mb: Extra inputs"),
        (f'{WORKLOAD}operation = "read"\nsize_mib = 3\n', 5, "block_kib: Field required"),
        (f'{WORKLOAD}operation = "read"\nblock_kib = [4, 0]\nsize_mib = 3\n', 7, "block_kib: Input should be greater"),
        (f'{WORKLOAD}operation = "read"\nblock_kib = 2048\nsize_mib = 1\n', 5, "size_mib 1 is less than a block"),
        (f'{WORKLOAD}operation = "copy"\n', 5, "copy needs size_mib"),
        (f'{WORKLOAD}operation = "mkfs"\n', 5, "two workloads are called mkfs"),
    ],
)
def test_an_error_has_its_file_and_line(tmp_path: Path, text: str, line: int, complaint: str) -> None:
    file = _written(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        suite(file)
    assert str(caught.value).startswith(f"{file}:{line}: {complaint}")


def test_a_file_cannot_take_the_name_of_a_suite(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"quick\.toml: fsjoule has a suite 'quick'"):
        suite(_written(tmp_path, LOGGER, "quick"))
    with pytest.raises(ConfigError, match=r"'My suite' cannot be a suite's name"):
        suite(_written(tmp_path, LOGGER, "My suite"))
    with pytest.raises(ConfigError, match=r"none\.toml: the suite cannot be read"):
        suite(str(tmp_path / "none.toml"))
    with pytest.raises(ConfigError, match="has no suite"):
        list(suites_in(tmp_path / "none"))


def test_a_file_is_shown_with_what_it_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    text = LOGGER.partition('[[suite.workload]]\noperation = "power-loss"')[0].replace('provision = "root"\n', "")
    shown = command_line(monkeypatch, capfd)("suites", "show", _written(tmp_path, text), "--fs", "ext4")
    assert shown.code == 0
    assert shown.out.startswith("logger  what our logger does")
    assert "25 measurements of ext4, 5 repetitions" in shown.out


def test_the_lines_of_arrays_of_tables_are_known() -> None:
    text = "[[a]]\nb = 1\n[[a.c]]\nd = 1\n[[a]]\n[a.c]\nd = 2\n"
    assert [line_of(text, path) for path in (["a"], ["a", "0", "b"], ["a", "0", "c", "0", "d"], ["a", "1"])] == [
        1,
        2,
        4,
        5,
    ]
