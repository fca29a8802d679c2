"""`fsjoule advise` on a board: what is missing, what it takes, and the benches that are run for it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from advised_runs import PLAIN, write_cuts, write_parts
from command_line import CommandLine

from fsjoule.errors import ConfigError
from fsjoule.host.paths import project_dir
from fsjoule.lab import read_environment
from fsjoule.model import MIB
from fsjoule.runs.advise import AdviceQuestion, answered, benches, measure, question
from fsjoule.suites.profile import profile_of

PARTS = ("read-64k", "write-4k", "write-4k-fsync1", "write_files-20k")


def _asked(
    results: Path, fs: str | None = None, *, env: str = "deterministic", storage: str | None = None, profile: str = ""
) -> AdviceQuestion:
    return question(
        *profile_of(profile or "logger"),
        read_environment(project_dir() / "env" / f"{env}.yaml"),
        filesystems=fs,
        kernel="6.1",
        storage=storage,
        repeat=None,
        results=results,
    )


def test_from_nothing_all_parts_are_missing_and_have_a_cost(tmp_path: Path) -> None:
    found = benches(_asked(tmp_path))
    (one,) = found.missing
    assert (one.suite, one.filesystems, one.repeat, one.begun) == ("advice", ("ext4", "btrfs", "f2fs"), 2, None)
    assert one.workloads == PARTS
    assert (found.cost.measurements, found.cost.boots, found.learned_from) == (24, 2, 0)
    # Both jobs of 16 MiB lay out or write them, fsyncs write 1 MiB, small files 0.4 MiB: three filesystems, two boots.
    assert found.cost.written_bytes / MIB == pytest.approx(6 * (16 + 16 + 1), rel=0.02)
    assert 60 < found.cost.seconds < 1800
    assert found.cost.energy_j > 0


def test_only_what_few_boots_have_is_measured(tmp_path: Path) -> None:
    write_parts(tmp_path, "aaaaaa", {"ext4": PLAIN, "btrfs": PLAIN}, boots=2, board="deterministic")
    (one,) = benches(_asked(tmp_path)).missing
    assert (one.filesystems, one.workloads) == (("f2fs",), PARTS)
    assert benches(_asked(tmp_path, "ext4,btrfs")).missing == ()
    # Another board's runs, and those of another kernel, are no answer.
    assert benches(_asked(tmp_path, "ext4", env="deterministic-rpi3")).missing[0].workloads == PARTS


def test_power_cuts_are_measured_only_where_a_cut_can_lose_files(tmp_path: Path) -> None:
    lossy = _asked(tmp_path, "ext4,btrfs", env="virtual-lossy", storage="stick")
    parts, cuts = benches(lossy).missing
    assert (cuts.suite, cuts.workloads, cuts.repeat) == ("elc2015/power-loss", ("power-loss-async",), 10)
    assert (parts.repeat, lossy.no_cuts) == (3, "")
    reasons = {
        ("deterministic", None): "guest time",
        ("virtual", None): "keeps all",
        ("virtual-lossy", None): "card keeps",
    }
    for (env, storage), why in reasons.items():
        asked = _asked(tmp_path, "ext4", env=env, storage=storage)
        assert why in asked.no_cuts
        assert [one.suite for one in benches(asked).missing] == ["advice"]


def test_benches_are_run_one_by_one_and_end_with_the_first_that_fails(tmp_path: Path) -> None:
    asked = _asked(tmp_path, "ext4,btrfs", env="virtual-lossy", storage="stick")
    missing = benches(asked).missing
    for codes, expected, count in (([0, 1], 0, 2), ([4], 4, 1), ([130], 130, 1)):
        run: list[list[str]] = []

        def bench(words: Sequence[str], run: list[list[str]] = run, codes: list[int] = codes) -> int:
            run.append(list(words))
            return codes[len(run) - 1]

        assert measure(asked, missing, bench) == expected
        assert len(run) == count
        assert run[0][2:] == [
            *("--suite", "advice", "--fs", "ext4,btrfs", "--workload", ",".join(PARTS), "--kernel", "6.1"),
            *("--repeat", "3", "--results", str(tmp_path), "--storage", "stick"),
        ]


def test_a_bench_that_was_begun_goes_on_or_begins_anew(tmp_path: Path) -> None:
    begun = write_parts(tmp_path, "aaaaaa", {"ext4": PLAIN, "btrfs": PLAIN}, boots=2, board="deterministic")
    file = begun / "run.json"
    file.write_text(file.read_text().replace('"status": "complete"', '"status": "aborted"'))
    asked = _asked(tmp_path, "ext4,btrfs")
    (one,) = benches(asked).missing
    assert one.begun == begun
    assert one.cost.measurements == 0
    for codes, words in (([0], ["--resume"]), ([2, 0], ["--resume", "--suite"]), ([4], ["--resume"])):
        run: list[str] = []

        def bench(options: Sequence[str], run: list[str] = run, codes: list[int] = codes) -> int:
            run.append(next(word for word in options if word in ("--resume", "--suite")))
            return codes[len(run) - 1]

        assert measure(asked, [one], bench) == codes[-1]
        assert run == words
    # What an unfinished run has is in the answer.
    assert {one.name for one in answered(asked).filesystems} == {"ext4", "btrfs"}


def test_a_profile_that_no_suite_measures_is_refused(tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    logger = (project_dir() / "src/fsjoule/suites/profiles/logger.toml").read_text()
    own.write_text(logger.replace("block_kib = 64", "block_kib = 32"))
    with pytest.raises(ConfigError, match=r"no suite measures read-32k of the profile own"):
        _asked(tmp_path, profile=str(own))


def test_without_a_profile_they_are_listed(fsjoule: CommandLine) -> None:
    done = fsjoule("advise")
    assert done.code == 0
    assert "logger        a data logger on a battery" in done.out
    done = fsjoule("advise", "results")
    assert (done.code, done.out) == (2, "")
    assert "hint: choose from camera, desktop, gateway, logger, media-player, or name a file" in done.err


def test_a_dry_run_says_what_it_takes_and_measures_nothing(fsjoule: CommandLine, tmp_path: Path) -> None:
    done = fsjoule("advise", "--profile", "logger", "--dry-run")
    assert done.code == 0
    assert done.out.startswith(
        "logger on deterministic (simulated): ext4, btrfs, f2fs\nto be measured: read-64k, write-4k"
    )
    assert " MiB written and " in done.out
    assert " J of the board (a guess: no earlier run), 24 measurements in 2 boots" in done.out
    assert "files lost in power cuts are not measured: a board in guest time" in done.out
    assert not (tmp_path / "results").exists()
    document = fsjoule("advise", "--profile", "logger", "--dry-run", "--json").document
    assert document["cost"]["measurements"] == 24
    write_cuts(tmp_path, "bbbbbb", {"ext4": (0,)})
    assert fsjoule("advise", tmp_path, "--profile", "logger", "--dry-run").code == 2


def test_each_storage_device_is_measured_with_what_goes_onto_it(
    tmp_path: Path,
) -> None:
    write_parts(tmp_path, "aaaaaa", {"ext4": PLAIN}, boots=3, board="deterministic")
    write_parts(tmp_path, "bbbbbb", {"ext4": PLAIN}, boots=3, board="virtual-lossy")
    flash = _asked(tmp_path, "ext4,ubifs", storage="card,nand")
    (one,) = benches(flash).missing
    assert one.filesystems == ("ubifs",)
    assert benches(_asked(tmp_path, "ubifs", storage="nand")).missing[0].repeat == one.repeat, "no run is on it"
    asked: list[Sequence[str]] = []
    measure(flash, [one], lambda words: asked.append(words) or 0)
    assert asked[0][-2:] == ["--storage", "nand"]
    (one,) = benches(_asked(tmp_path, "ext4", env="virtual-lossy", storage="card,stick")).missing
    assert (one.filesystems, one.repeat) == (("ext4",), 3), "the stick has none of it"
