"""`fsjoule suites`: lists, plans with their estimate, and what does not fit."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import CommandLine, finished, started
from results_factory import make_run

from fsjoule.store.folder import RunFolder
from fsjoule.suites import SUITES

_ENVIRONMENT = Path(__file__).parents[2] / "env" / "virtual.yaml"
_X86 = _ENVIRONMENT.with_name("virtual-x86.yaml")


def test_all_suites_and_parts_are_listed(fsjoule: CommandLine) -> None:
    listed = fsjoule("suites", "list")
    parts = [part.name for each in SUITES.values() for part in each.leaves]
    assert listed.code == 0
    assert [name for name in (*SUITES, *parts) if name not in listed.out] == []
    document = fsjoule("suites", "list", "--json").document
    assert document.keys() == {*SUITES, *parts}
    assert document["home-usage-2016"]["published_repeat"] == 9


def test_a_suite_is_shown_with_what_it_takes(fsjoule: CommandLine, tmp_path: Path) -> None:
    options = ("--lg-env", _ENVIRONMENT, "--results", tmp_path)
    shown = fsjoule("suites", "show", "elc2015", *options)
    assert shown.code == 0
    assert "left out: elc2015/fsck, fsck: nilfs2 has no fsck" in shown.out
    assert "a guess: no earlier run)" in shown.out
    document = fsjoule("suites", "show", "energy-emmc-2025", *options, "--repeat", 2, "--fs", "ext4", "--json").document
    assert document["size_factors"] == {"energy-emmc-2025": 0.0625}
    taken = document["estimate"]
    # Twelve jobs of 31.25 MiB, each laid out or written, twice.
    assert (taken["measurements"], taken["boots"]) == (24, 2)
    assert taken["written_bytes"] == 24 * 32_768_000


def test_what_a_suite_does_not_repeat_is_said(fsjoule: CommandLine, tmp_path: Path) -> None:
    shown = fsjoule("suites", "show", "copy-2015", "--lg-env", _ENVIRONMENT, "--results", tmp_path)
    text = " ".join(shown.out.split())
    assert "copy-2015: Its `hdparm -T`, reads from the page cache, is not measured" in text
    assert "copy-2015: Its `hdparm -t` reads the raw device; here fio reads a file" in text


def test_published_sizes_that_do_not_fit_are_refused(fsjoule: CommandLine, tmp_path: Path) -> None:
    refused = fsjoule("suites", "show", "copy-2015", "--full", "--lg-env", _ENVIRONMENT, "--results", tmp_path)
    assert refused.code == 2
    assert "does not fit" in refused.err
    assert "--size-factor 0." in refused.err
    assert fsjoule("suites", "show", "elc2015/boat", "--lg-env", _ENVIRONMENT).code == 2


@pytest.mark.parametrize("suite", SUITES)
def test_every_suite_can_be_measured_on_a_virtual_board(fsjoule: CommandLine, tmp_path: Path, suite: str) -> None:
    shown = fsjoule("suites", "show", suite, "--lg-env", _X86, "--results", tmp_path)
    assert (shown.code, shown.err) == (0, "")


def test_a_filesystem_needs_a_kernel_of_the_board(fsjoule: CommandLine, tmp_path: Path) -> None:
    options = ("--lg-env", _ENVIRONMENT, "--results", tmp_path)
    refused = fsjoule("suites", "show", "ext4-zfs-2023/test1", *options)
    assert refused.code == 2
    assert "cards of the recipe 'imx6ul' have no module zfs" in refused.err
    assert fsjoule("suites", "show", "ext4-zfs-2023/test3", *options).code == 0


def test_what_is_adjusted_is_not_called_left_out(fsjoule: CommandLine, tmp_path: Path) -> None:
    options = ("ext4-zfs-2023/test1", "--fs", "ext4", "--lg-env", _X86, "--results", tmp_path)
    shown = fsjoule("suites", "show", *options)
    assert "adjusted: ext4-zfs-2023/test1, randread-10000k-direct-qd128-3s: queue depth 52 instead of 128" in shown.out
    assert "left out" not in shown.out
    document = fsjoule("suites", "show", *options, "--json").document
    assert document["left_out"] == []
    assert "queue depth 52 instead of 128" in " ".join(document["adjusted"])


def test_an_empty_list_of_storage_devices_is_refused(fsjoule: CommandLine, tmp_path: Path) -> None:
    refused = fsjoule("suites", "show", "quick", "--storage", "", "--lg-env", _X86, "--results", tmp_path)
    assert refused.code == 2
    assert "--storage names no storage device" in refused.err


def test_an_estimate_learns_from_runs_of_the_same_board(fsjoule: CommandLine, tmp_path: Path) -> None:
    made = make_run(repeat=1)
    for name in ("virtual", "virtual-x86"):
        boards = {label: replace(facts, name=name) for label, facts in made.run.boards.items()}
        store = RunFolder(tmp_path)
        store.begin(replace(made.run, boards=boards))
        for measurement in made.measurements:
            store.add(measurement, None, {})
        store.finish(replace(made.run, boards=boards))
    document = fsjoule("suites", "show", "quick", "--lg-env", _ENVIRONMENT, "--results", tmp_path, "--json").document
    assert document["learned_from_runs"] == 1


def test_a_wrong_job_file_ends_a_bench_before_it_begins(tmp_path: Path) -> None:
    file, results = tmp_path / "own.fio", tmp_path / "results"
    file.write_text("[a]\nrw=write\nsize=1m\nfilename=/dev/mmcblk1\n")
    with ExitStack() as closing:
        ended = finished(started(closing, "bench", "--suite", file, "--results", results))
    assert (ended.code, results.exists()) == (2, False)
    assert f"{file}:4: [a]: filename=/dev/mmcblk1 is refused" in ended.err


def test_a_project_lists_its_suites(fsjoule: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "boot.fio").write_text("[a]\nrw=write\nsize=1m\n")
    (tmp_path / "fsjoule.toml").write_text('[suites]\nours = "boot.fio"\n')
    monkeypatch.setenv("FSJOULE_PROJECT", str(tmp_path / "fsjoule.toml"))
    assert fsjoule("suites", "list", "--json").document["ours"]["file"] == str(tmp_path / "boot.fio")
    shown = fsjoule("suites", "show", "ours", "--fs", "ext4", "--lg-env", _ENVIRONMENT)
    assert (shown.code, str(tmp_path / "boot.fio") in shown.out) == (0, True)
