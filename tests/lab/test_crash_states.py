"""Crash states on the emulated board in guest time: losses are found, explained, and found again by name."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from bench_runs import ENVIRONMENT, only_run, patient_environment, run_bench
from lab_leftovers import assert_nothing_left

from fsjoule.model import CrashFacts
from fsjoule.model.write_log import WriteLog
from fsjoule.report.crash import KeptCrashes
from fsjoule.store.reader import LoadedRun

pytestmark = pytest.mark.slow

DETERMINISTIC = ENVIRONMENT.with_name("deterministic.yaml")
PROGRAM = """\
set -e
echo old > config
sync config
sync .
promise synced config
echo new > config.tmp
sync config.tmp
mv config.tmp config
{after}
promise synced config
echo tail > unsynced
"""
SUITE = """\
[suite]
title = "a configuration is replaced"
repeat = 1

[[suite.workload]]
operation = "crash-states"
name = "config"
command = ["sh", "./config.sh"]
files = ["config.sh"]
"""


def crash_facts(folder: Path, after: str, *options: str) -> dict[str, CrashFacts]:
    """What a run has found, by filesystem. `after` is the line of the program that follows the rename."""
    measured = crash_run(folder, after, *options).measurements
    return {m.series.filesystem_title: m.crash for m in measured if m.crash is not None}


def crash_run(folder: Path, after: str, *options: str) -> LoadedRun:
    folder.mkdir()
    (folder / "config.sh").write_text(PROGRAM.format(after=after))
    (folder / "config.toml").write_text(SUITE)
    results = folder / "results"
    arguments = ("--suite", str(folder / "config.toml"), "--seed", "7", *options)
    done = run_bench(results, *arguments, environment=patient_environment(results, DETERMINISTIC))
    assert done.returncode == 0, done.stdout + done.stderr
    loaded = only_run(results)
    assert all(m.valid for m in loaded.measurements)
    return loaded


def kept_of(loaded: LoadedRun) -> KeptCrashes:
    return KeptCrashes.read(lambda name: loaded.attachment(loaded.measurements[0].number, name))


def broken_in(kept: KeptCrashes) -> set[str]:
    """The promises that some state breaks, by their numbers."""
    return {number for fate in kept.fates.values() for number in re.findall(r"(\d+)=[a-z]", fate)}


def random_cuts(log: WriteLog, count: int) -> list[str]:
    """States that a power cut at a random write leaves, of whose epoch each write has reached the medium or not."""
    chance = random.Random(54)
    epochs = [each for each in log.epochs for _ in each.pending]
    names: list[str] = []
    for _ in range(count):
        epoch = chance.choice(epochs)
        writes = [str(number) for number in range(len(epoch.pending)) if chance.random() < 0.5]
        names.append(f"{epoch.number}:{','.join(writes) or '-'}")
    return names


def test_lost_files_are_found_explained_and_found_again(state: Path, tmp_path: Path) -> None:
    loaded = crash_run(tmp_path / "whole", "sync .", "--fs", "ext4:nobarrier", "--boards", "2")
    unsafe = loaded.measurements[0].crash
    assert unsafe is not None
    assert unsafe.count == unsafe.different
    assert 0 < unsafe.losses < unsafe.count
    assert "config" in unsafe.first_losses[0]
    assert "without write" in unsafe.cause
    assert "nothing flushed it" in unsafe.cause
    assert unsafe.mount_s
    assert unsafe.mount_mj
    assert 0 < unsafe.mount_mj.uncertainty < 0.2 * unsafe.mount_mj.median
    assert loaded.run.phases_s["recording"] > 0

    # One board alone finds what two have found together.
    name = unsafe.first_losses[0].partition(": ")[0]
    alone = crash_facts(tmp_path / "alone", "sync .", "--fs", "ext4:nobarrier", "--states", name)["ext4:nobarrier"]
    assert alone.log_sha256 == unsafe.log_sha256
    assert alone.first_losses == unsafe.first_losses[:1]

    # Each loss of random cuts is among those of the states: the same files, in the same epoch.
    states = kept_of(loaded)
    cuts = " ".join(random_cuts(states.log, 54))
    cut = kept_of(crash_run(tmp_path / "cuts", "sync .", "--fs", "ext4:nobarrier", "--states", cuts))
    assert cut.losing_epochs
    assert cut.losing_epochs <= states.losing_epochs
    assert broken_in(cut) <= broken_in(states)
    assert_nothing_left(state, state / "devices")


def test_on_raw_flash_each_page_and_each_erasure_is_a_state(tmp_path: Path) -> None:
    where = ("--fs", "ubifs", "--storage", "nand")
    safe = crash_facts(tmp_path / "safe", "sync .", *where)["ubifs"]
    assert safe.count == safe.different > safe.writes
    assert not safe.losses
    forgetful = crash_facts(tmp_path / "forgetful", ":", *where)["ubifs"]
    assert forgetful.losses
    assert "config" in forgetful.first_losses[0]


def test_a_program_that_forgets_to_sync_the_directory_is_caught(tmp_path: Path) -> None:
    facts = crash_facts(tmp_path / "forgetful", ":", "--fs", "vfat")["vfat"]
    assert facts.losses
    assert "config" in facts.cause
