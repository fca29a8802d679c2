"""Aged filesystems: their names, the operations that are replayed, and wrong ages, which are named before anything."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from fake_bench import answer, bench_of, entry, runtime_s, traced

from fsjoule.bench.aged import HEAD_BYTES, SCRIPT, SECTOR_BYTES, small_share
from fsjoule.errors import BoardError, ConfigError
from fsjoule.filesystems import filesystem, named_filesystems
from fsjoule.model import CARD, MIB, FioWorkload, IoPattern, Measurement, Planned, Provision, TimedKind
from fsjoule.model.age import Age
from fsjoule.model.filesystem import content_of, file_name
from fsjoule.ports import CommandResult
from fsjoule.runs.options import BenchOptions
from fsjoule.runs.request import aged_filesystems, filesystems_again
from fsjoule.suites import Planning, StorageSpace, check_aged, plan_entries, suite
from fsjoule.suites.ageing import MOST_TURNS, replay
from fsjoule.suites.profile import profile_names
from fsjoule.testing import FakeBoard, FakeMeter, FakeShell

DEVICE_BYTES = 64 * MIB


@pytest.mark.parametrize(
    ("given", "whole", "age"),
    [
        ("ext4@1y-logger", "ext4@1y-logger", Age(365, "logger")),
        ("ext4@365d-logger-fill70-seed1", "ext4@1y-logger", Age(365, "logger")),
        ("f2fs:noatime@30d-media-player-fill60-seed2", None, Age(30, "media-player", 60, 2)),
        ("mine=ext4:commit=60@1y-logger", None, Age(365, "logger")),
        ("zfs:mkfs=-O x@y", None, None),
    ],
)
def test_an_age_is_a_part_of_the_name(given: str, whole: str | None, age: Age | None) -> None:
    kind = filesystem(given)
    assert (kind.name, kind.age) == (whole or given, age)
    assert filesystem(kind.name) == kind


def test_an_aged_filesystem_is_made_as_a_new_one() -> None:
    new, aged = filesystem("ext4:noatime"), filesystem("ext4:noatime@1y-logger")
    assert (aged.make, aged.mount_options) == (new.make, new.mount_options)
    assert content_of(aged.name) != content_of(new.name)
    assert file_name(aged.name) == "ext4.noatime.1y-logger"


def test_a_list_may_have_aged_filesystems() -> None:
    assert named_filesystems("ext4@1y-logger,f2fs") == ("ext4@1y-logger", "f2fs")


@pytest.mark.parametrize(
    "name",
    [
        *("ext4@1y", "ext4@0y-logger", "ext4@1w-logger", "ext4@101y-logger"),
        *("raw@1y-logger", "squashfs:xz@1y-logger", "ubifs@1y-logger"),  # nothing could be replayed there
    ],
)
def test_a_wrong_age_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="age"):
        filesystem(name)


def test_each_filesystem_is_measured_at_each_age() -> None:
    options = BenchOptions(age="0,30d", age_profile="logger", age_seed=3)
    names = aged_filesystems(("ext4", "mine=f2fs:noatime"), options)
    assert names[:2] == ("ext4", "ext4@30d-logger-seed3")
    assert names[2:] == ("mine=f2fs:noatime", "mine.30d-logger-seed3=f2fs:noatime@30d-logger-seed3")


@pytest.mark.parametrize(
    ("names", "options", "what"),
    [
        (("ext4",), {"age": "1y"}, "needs a profile"),
        (("ext4",), {"age": "1y", "age_profile": "toaster"}, "unknown profile 'toaster'"),
        (("ext4@1y-toaster",), {}, "unknown profile 'toaster'"),
        (("ext4",), {"age": "old", "age_profile": "logger"}, "'old' is no age"),
        (("ext4",), {"age": "1y", "age_profile": "logger", "age_fill": 100}, "--age-fill 100"),
        (("ext4",), {"age": "1y", "age_profile": "logger", "age_seed": 0}, "--age-seed 0"),
        (("ext4",), {"age_profile": "logger"}, "are of aged filesystems"),
        (("ext4@1y-logger",), {"age": "1y", "age_profile": "logger"}, "has an age already"),
        (("ext4",), {"age": "1y,5y", "age_profile": "gateway"}, "1y-gateway and 5y-gateway are the same"),
        (("raw",), {"age": "1y", "age_profile": "logger"}, "no age"),
    ],
)
def test_wrong_options_of_an_age_are_refused(names: tuple[str, ...], options: dict[str, object], what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        aged_filesystems(names, BenchOptions(**options))  # type: ignore[arg-type]


def test_a_run_that_goes_on_has_its_own_ages() -> None:
    assert filesystems_again(BenchOptions()) is None
    with pytest.raises(ConfigError, match="its own"):
        filesystems_again(BenchOptions(age="1y"))


def test_a_run_goes_on_with_the_options_that_it_began_with() -> None:
    began = BenchOptions(fs="ext4", age="0,1y", age_profile="logger")
    assert filesystems_again(began) == ("ext4", "ext4@1y-logger")
    assert filesystems_again(BenchOptions(suite="quick", age="30d", age_profile="logger")) == (
        "ext4@30d-logger",
        "btrfs@30d-logger",
    )


@pytest.mark.parametrize(
    ("size_mib", "fill", "what"),
    [(32, 70, "takes 64 or more"), (512, 75, "75 % full"), (512, 95, "95 % full")],
)
def test_an_age_without_room_for_the_work_is_refused(size_mib: int, fill: int, what: str) -> None:
    workload = FioWorkload(IoPattern.WRITE, 16384, 32 * MIB)
    entry = Planned(1, 1, "6.1", f"ext4@1y-logger-fill{fill}", workload, "quick", Provision.SCRATCH, CARD)
    with pytest.raises(ConfigError, match=what):
        check_aged([entry], StorageSpace(size_mib * MIB, 0))


def test_an_age_with_room_for_the_work_is_taken() -> None:
    workload = FioWorkload(IoPattern.WRITE, 16384, 32 * MIB)
    entry = Planned(1, 1, "6.1", "ext4@1y-logger", workload, "quick", Provision.SCRATCH, CARD)
    check_aged([entry], StorageSpace(512 * MIB, 0))


@pytest.mark.parametrize("profile", profile_names())
def test_equal_seeds_give_equal_operations(profile: str) -> None:
    one, other = (replay.__wrapped__(Age(90, profile), DEVICE_BYTES) for _ in range(2))
    assert one == other
    assert one.digest != replay(Age(90, profile, seed=2), DEVICE_BYTES).digest
    assert 0.6 < one.live_bytes / DEVICE_BYTES <= 0.7
    assert one.replayed == min(one.turns, MOST_TURNS)


def test_an_older_filesystem_begins_as_the_younger_one() -> None:
    young, old = (replay(Age(days, "logger"), DEVICE_BYTES) for days in (60, 365))
    lines = young.script.splitlines()
    shared = len([1 for one, other in zip(lines, old.script.splitlines(), strict=False) if one == other])
    assert shared > 0.8 * len(lines)
    assert len(old.script) > len(young.script)


def test_the_replay_makes_the_files(tmp_path: Path) -> None:
    use = replay(Age(180, "logger"), 16 * MIB)
    done = _replayed(tmp_path, use.script)
    assert done.returncode == 0, done.stdout
    files = [each for each in tmp_path.rglob("*/aged/*/*") if each.is_file()]
    assert len(files) == use.files
    assert sum(each.stat().st_size for each in files) == use.live_bytes


def test_a_replay_that_does_not_fit_fails(tmp_path: Path) -> None:
    """The fio of this test writes no database: as if there were no room for it."""
    done = _replayed(tmp_path, replay(Age(10, "gateway"), 16 * MIB).script)
    assert done.returncode == 1
    assert "too full" in done.stdout


def _replayed(folder: Path, script: bytes) -> subprocess.CompletedProcess[str]:
    programs, scratch = folder / "bin", folder / "scratch"
    for path in (programs, scratch):
        path.mkdir()
    for name in ("sync", "fio"):
        (programs / name).write_text("#!/bin/sh\n")
        (programs / name).chmod(0o755)
    file = folder / "age"
    file.write_bytes(script)
    environment = {"PATH": f"{programs}:/usr/bin:/bin"}
    return subprocess.run(
        ["/bin/sh", str(file), str(scratch)], env=environment, capture_output=True, text=True, check=False, timeout=60
    )


E2FREEFRAG = """\
Device: /dev/mmcblk1p3
Blocksize: 4096 bytes
HISTOGRAM OF FREE EXTENT SIZES:
Extent Size Range :  Free extents   Free Blocks  Percent
    4K...    8K-  :             2             2    1.00%
  512K... 1024K-  :             3           400   24.00%
    1M...    2M-  :             1           300   75.00%
"""
FREESP = """\
   from      to extents  blocks    pct
      1       1       5       5   10.00
    128     255       2     400   40.00
    256     511       1     300   50.00
"""
FREE_SPACE_TREE = """\
\titem 1 key (13631488 FREE_SPACE_INFO 8388608) itemoff 16267 itemsize 8
\titem 2 key (13631488 FREE_SPACE_EXTENT 1048576) itemoff 16267 itemsize 0
\titem 3 key (13651488 FREE_SPACE_EXTENT 524288) itemoff 16267 itemsize 0
\titem 4 key (13691488 FREE_SPACE_EXTENT 524288) itemoff 16267 itemsize 0
"""


@pytest.mark.parametrize(
    ("name", "said", "share", "runs"),
    [
        ("ext4@1y-logger", E2FREEFRAG, 0.25, 6),
        ("xfs@1y-logger", FREESP, 0.5, 8),
        ("btrfs@1y-logger", FREE_SPACE_TREE, 0.5, 3),
        ("f2fs@1y-logger", "512 1\n128 4\n", 0.5, 5),
    ],
)
def test_free_space_in_short_runs_is_told(name: str, said: str, share: float, runs: int) -> None:
    assert small_share(filesystem(name), said) == (pytest.approx(share), runs)
    assert small_share(filesystem(name), "") is None


def test_runs_of_free_space_in_a_bitmap_are_not_known() -> None:
    bitmap = "\titem 5 key (13701488 FREE_SPACE_BITMAP 8388608) itemoff 16267 itemsize 256\n"
    assert small_share(filesystem("btrfs@1y-logger"), FREE_SPACE_TREE + bitmap) is None


def aged_answer(argv: tuple[str, ...]) -> CommandResult:
    said = E2FREEFRAG if argv[0] == "e2freefrag" else ""
    said = f"321 {'a' * 32}  -\n" if "filefrag" in argv[-1] else said
    said = "/sys/devices/mmc1/block/mmcblk1/mmcblk1p3 131072\n" if "/sys/dev/block" in " ".join(argv) else said
    return CommandResult(argv, 0, said) if said else answer(argv)


def test_an_aged_measurement_says_what_was_replayed() -> None:
    aged = _measured(aged_answer)
    assert aged.invalid_reasons == ()
    assert aged.aged is not None
    assert (aged.aged.name, aged.aged.full) == ("1y-logger", pytest.approx(0.1))
    assert (aged.aged.extents, aged.aged.layout_md5) == (321, "a" * 32)
    assert aged.aged.free_in_short_runs == pytest.approx(0.25)
    assert aged.series.filesystem == "ext4@1y-logger"
    assert aged.notes[0].startswith("aged 1y-logger: the device written 2.23 of 2.23 times")


def test_a_replay_that_fails_makes_the_measurement_invalid() -> None:
    def answered(argv: tuple[str, ...]) -> CommandResult:
        full = "the filesystem holds 3 bytes of 9: too full\n"
        return CommandResult(argv, 1, full) if argv[0] == SCRIPT else aged_answer(argv)

    aged = _measured(answered)
    assert "too full" in aged.invalid_reasons[0]
    assert aged.aged is None


def test_a_filesystem_that_is_not_made_has_not_the_age_of_another() -> None:
    made: list[str] = []

    def answered(argv: tuple[str, ...]) -> CommandResult:
        made.extend(argv[:1] if argv[0] == "mkfs.ext4" else ())
        return CommandResult(argv, 1, "no") if argv[0] == "mkfs.ext4" and len(made) > 1 else aged_answer(argv)

    bench = bench_of(shell=FakeShell(answered), meter=FakeMeter(None))
    chosen = replace(entry(bench, "write-16k"), filesystem="ext4@1y-logger")
    first, second = (bench.measure(replace(chosen, number=number)) for number in (101, 102))
    assert first.aged is not None
    assert "`mkfs.ext4" in second.invalid_reasons[0]
    assert second.aged is None


def test_in_guest_time_an_age_is_replayed_once_and_kept_as_an_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FSJOULE_CACHE_DIR", str(tmp_path / "cache"))
    card = tmp_path / "card"
    before, part, after = b"first partition".ljust(8 * SECTOR_BYTES), 3 * MIB, b"last partition"
    replayed: list[int] = []

    def answered(argv: tuple[str, ...]) -> CommandResult:
        if argv[0] == SCRIPT:
            replayed.append(board.boots)
            card.write_bytes(before + b"aged".ljust(part, b"!") + after)
        if argv[-2:-1] == ("sh",) and "sha256sum" in argv[2]:
            head = card.read_bytes()[len(before) :][:HEAD_BYTES]
            return CommandResult(argv, 0, f"{hashlib.sha256(head).hexdigest()}  -\n")
        device = f"/sys/devices/mmcblk1p3 {part // SECTOR_BYTES} {len(before) // SECTOR_BYTES}\n"
        return CommandResult(argv, 0, device) if "/sys/dev/block" in " ".join(argv) else aged_answer(argv)

    for run in range(2):
        fake = bench_of(shell=FakeShell(answered), meter=FakeMeter(None))
        assert isinstance(fake.board, FakeBoard)
        board = fake.board
        board.card = card
        bench = replace(fake, profile=replace(fake.profile, guest_time=True))
        chosen = replace(entry(bench, "write-16k"), filesystem="ext4@1y-logger")
        for number in (101, 102):
            card.write_bytes(before + bytes(part) + after)
            aged = bench.measure(replace(chosen, number=number)).aged
            assert aged is not None
            assert aged.image_sha256 == hashlib.sha256(b"aged".ljust(part, b"!")).hexdigest()
            assert card.read_bytes() == before + b"aged".ljust(part, b"!") + after
        assert (board.boots, board.seeds[0] == 1) == ((2, True) if run == 0 else (1, False))
    assert replayed == [1]


def test_a_board_that_tells_no_size_ends_the_attempt() -> None:
    with pytest.raises(BoardError, match="does not tell the size"):
        _measured(answer)


def _measured(answered: Callable[[tuple[str, ...]], CommandResult]) -> Measurement:
    bench = bench_of(shell=FakeShell(answered), meter=FakeMeter())
    chosen = replace(entry(bench, "write-16k"), filesystem="ext4@1y-logger")
    trace = traced(f"S{chosen.number}", f"E{chosen.number}", runtime_s=runtime_s() + 0.01)
    return replace(bench, meter=FakeMeter(trace)).measure(chosen)


def test_what_begins_with_a_new_filesystem_is_left_out() -> None:
    arranged = plan_entries(suite("quick"), Planning(("ext4", "ext4@1y-logger"), ("6.1",), repeat=1, seed=1))
    made = [each.filesystem for each in arranged.entries if each.workload.operation is TimedKind.MKFS]
    assert made == ["ext4"]
    assert arranged.left_out == ("quick, mkfs: ext4@1y-logger has been used, and this begins with a new filesystem",)


def test_an_aged_root_is_refused() -> None:
    planning = Planning(("ext4@1y-logger",), ("6.1",), repeat=1, seed=1, provision=Provision.ROOT)
    with pytest.raises(ConfigError, match="no card image can have 'ext4@1y-logger' as its root"):
        plan_entries(suite("quick"), planning)
