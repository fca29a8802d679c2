"""`fsjoule advise`: a day and a year by hand, what differs, and what is refused."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from advised_runs import IDLE_W, PLAIN, UNCERTAINTY, changed, write_cuts, write_parts
from command_line import CommandLine
from results_factory import LAB, METER

from fsjoule.host.terminal import PlainConsole
from fsjoule.model import PoolPlace
from fsjoule.report.advice.tables import print_advice
from fsjoule.report.advice.words import headline, relations
from fsjoule.suites.profile import profile_of
from fsjoule.verdicts.advice.advise import Axis, advise, parse_weights
from fsjoule.verdicts.advice.evidence import evidence

QUICK = {"ext4": PLAIN, "ext4:nobarrier": changed("write-4k-fsync1", joules=1.0, seconds=0.7, p99_ms=8.0)}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two filesystems: nobarrier uses less energy and is quicker with fsyncs, and loses files in every power cut."""
    folder = tmp_path_factory.mktemp("results")
    write_parts(folder, "aaaaaa", QUICK)
    write_cuts(folder, "bbbbbb", {"ext4": (0,) * 8, "ext4:nobarrier": (7, 8, 9, 10, 7, 8, 9, 6)})
    return folder


def _of(document: Any, name: str) -> dict[str, Any]:
    return next(one for one in document["filesystems"] if one["filesystem"] == name)


def test_the_answer_comes_first_and_says_what_speaks_against_the_thriftiest(
    fsjoule: CommandLine, results: Path
) -> None:
    done = fsjoule("advise", results, "--profile", "logger")
    assert done.code == 0
    answer = " ".join(done.out.split())
    assert answer.startswith(
        "ext4 for a logger on virtual (simulated): the fewest lost files; last ext4:nobarrier (the "
    )
    assert "the least energy, 38." in answer
    assert " years of battery; the shortest wait, 8.0" in answer
    assert " ms; but it lost files in 8 of 8 power cuts) " in answer
    assert re.search(r"energy ext4:nobarrier is less than ext4 \(4\d\.\d %\)", answer)
    document = fsjoule("advise", results, "--profile", "logger", "--json").document
    assert (document["ranked"], document["loses_files"]) == (["ext4", "ext4:nobarrier"], ["ext4:nobarrier"])


def test_a_filesystem_that_lost_synced_files_beats_no_other_one(tmp_path: Path) -> None:
    write_parts(tmp_path, "aaaaaa", QUICK)
    write_cuts(tmp_path, "bbbbbb", {"ext4": (0,) * 4, "ext4:nobarrier": (0, 0, 1, 0)})
    told = headline(advise(evidence([tmp_path]), *profile_of("logger")))
    assert told.startswith(
        "ext4 for a logger on virtual (simulated): it lost no synced file in 4 power cuts; last ext4:"
    )
    assert "but it lost files in 1 of 4 power cuts)" in told
    write_parts(tmp_path / "other", "aaaaaa", QUICK)
    told = headline(advise(evidence([tmp_path / "other"]), *profile_of("logger")))
    assert told.startswith("ext4 for a logger on virtual (simulated): it flushes what is synced; last ext4:nobarrier (")
    weighted = advise(evidence([tmp_path]), *profile_of("logger"), weights=parse_weights("energy=1"))
    assert headline(weighted).startswith("ext4:nobarrier for a logger on virtual (simulated): the lowest score, ")
    assert headline(weighted).endswith("with your weights; but it lost files in 1 of 4 power cuts")


def test_a_lower_figure_that_cannot_be_told_from_the_best_one_is_named(tmp_path: Path) -> None:
    quick = changed("write-4k-fsync1", joules=1.0, seconds=0.7, p99_ms=8.0)
    quicker = changed("write-4k-fsync1", joules=1.1, seconds=0.7, p99_ms=7.98)
    write_parts(tmp_path, "aaaaaa", {"ext4": PLAIN, "f2fs": quick, "btrfs": quicker})
    write_cuts(tmp_path, "bbbbbb", {"ext4": (0,) * 8, "f2fs": (0,) * 8, "btrfs": (0,) * 8})
    told = headline(advise(evidence([tmp_path]), *profile_of("logger")))
    assert re.search(
        r"^f2fs for .*: the least energy, [\d.]+ J a day and [\d.]+ years of battery; .*the shortest wait, 8\.\d+ ms, "
        r"btrfs's 7\.\d+ is not shown to be less$",
        told,
    ), told


def test_a_day_and_a_year_are_what_one_computes_by_hand(fsjoule: CommandLine, tmp_path: Path) -> None:
    write_parts(tmp_path, "aaaaaa", {"ext4": PLAIN}, noise=0.0)
    write_cuts(tmp_path, "bbbbbb", {"ext4": (0, 5)})
    found = _of(fsjoule("advise", tmp_path, "--profile", "logger", "--json").document, "ext4")
    # 50 MiB read; 24 x 360 fsyncs of 4 KiB are 33.75 MiB, so 16.25 MiB are written without; 24 files are 1.2 times 20.
    joules = 50 * 0.05 + 16.25 * 0.10 + 33.75 * 2.0 + 1.2 * 0.5
    assert found["energy_j_per_day"]["value"] == pytest.approx(joules)
    # No spread: only the meter's, which is the same for all parts; 1.96 of it.
    assert found["energy_j_per_day"]["high"] == pytest.approx(joules * (1 + 1.96 * UNCERTAINTY), rel=1e-4)
    assert found["battery_days"]["value"] == pytest.approx(40 * 3600 / joules)
    written = 16.25 * 1.1 + 33.75 * 4.0 + 1.2 * 0.3
    assert found["written_mib_per_day"]["value"] == pytest.approx(written, rel=1e-5)
    assert found["card_years"]["value"] == pytest.approx(10 * 1024 * 1024 / written / 365.25, rel=1e-5)
    assert found["work_s_per_day"]["value"] == pytest.approx(50 * 0.04 + 16.25 * 0.08 + 33.75 * 1.5 + 1.2 * 0.4)
    assert (found["wait_p99_s"]["value"], found["slowest"]) == (pytest.approx(0.020), "writes with fsync")
    cuts = found["power_cuts"]
    assert cuts["files_lost_per_year"]["value"] == 12 * 2.5
    assert cuts["share_interval"] == pytest.approx([0.0126, 0.9874], abs=1e-4)  # 1 of 2, Clopper and Pearson
    assert found["mount_after_cut_s"]["value"] == pytest.approx((0.101 + 0.102) / 2)


def test_idle_power_counts_for_the_time_that_the_board_is_on_and_does_nothing(
    fsjoule: CommandLine, tmp_path: Path
) -> None:
    write_parts(tmp_path, "aaaaaa", {"ext4": PLAIN}, noise=0.0)
    own = tmp_path / "own.toml"
    own.write_text(OWN)
    found = _of(fsjoule("advise", tmp_path, "--profile", own, "--json").document, "ext4")
    work_j, work_s = 1000 * 0.05, 1000 * 0.04
    expected = work_j + IDLE_W * 0.5 * (86_400 - work_s)
    assert found["energy_j_per_day"]["value"] == pytest.approx(expected)
    assert found["energy_j_per_day"]["high"] == pytest.approx(expected * (1 + 1.96 * UNCERTAINTY), rel=1e-4)
    assert found["battery_days"] is None
    assert found["card_years"] is None


def test_noise_may_leave_a_battery_without_an_upper_bound(fsjoule: CommandLine, tmp_path: Path) -> None:
    write_parts(tmp_path, "aaaaaa", {"ext4": PLAIN}, boots=2, noise=1.0)
    done = fsjoule("advise", tmp_path, "--profile", "logger", "--json")
    found = _of(done.document, "ext4")
    assert found["energy_j_per_day"]["low"] == 0
    assert found["battery_days"]["high"] is None
    assert "to ∞)" in fsjoule("advise", tmp_path, "--profile", "logger").out


def test_a_profile_that_writes_nothing_wears_nothing(fsjoule: CommandLine, tmp_path: Path) -> None:
    write_parts(tmp_path, "aaaaaa", {"ext4": PLAIN, "f2fs": PLAIN})
    (tmp_path / "own.toml").write_text(OWN)
    document = fsjoule("advise", tmp_path, "--profile", tmp_path / "own.toml", "--json").document
    assert _of(document, "ext4")["written_mib_per_day"] is None
    assert not [one for one in document["relations"] if one["axis"] == "wear"]
    # The board was on and idle for half a day, which is the same for both.
    assert [one["same"] for one in document["relations"] if one["axis"] == "energy"] == [True]


def test_filesystems_that_cannot_be_told_apart_are_said_to_be_so(fsjoule: CommandLine, tmp_path: Path) -> None:
    write_parts(tmp_path, "aaaaaa", {"ext4": PLAIN, "f2fs": PLAIN})
    write_cuts(tmp_path, "bbbbbb", {"ext4": (0,) * 4, "f2fs": (0, 0, 0, 3)})
    done = fsjoule("advise", tmp_path, "--profile", "logger")
    text = " ".join(done.out.split())
    assert text.startswith(
        "ext4 for a logger on virtual (simulated): it lost no synced file in 4 power cuts; last f2fs "
    )
    assert "equal within 5 %: ext4 and f2fs" in text
    assert re.search(r"loss not yet decided: ext4 and f2fs \(\d+ more cuts of each\)", text)


def test_the_answer_says_what_it_does_not_know(fsjoule: CommandLine, tmp_path: Path) -> None:
    write_parts(tmp_path, "aaaaaa", QUICK)
    done = fsjoule("advise", tmp_path, "--profile", "logger", "--json")
    assert done.document["answer"].endswith("; not measured: loss")
    assert fsjoule("advise", tmp_path, "--profile", "camera").out.startswith(
        "no answer yet for a camera on virtual (simulated): too little of what this profile does was measured"
    )


def test_a_single_boot_decides_nothing(fsjoule: CommandLine, tmp_path: Path) -> None:
    write_parts(tmp_path, "aaaaaa", QUICK, boots=1)
    done = fsjoule("advise", tmp_path, "--profile", "logger")
    assert "not yet decided: ext4 and ext4:nobarrier (" in done.out
    assert "a single boot shows no spread" in done.out
    assert re.search(r"ext4 .* \d+\.\d \(one boot\)", done.out)
    document = fsjoule("advise", tmp_path, "--profile", "logger", "--json").document
    wait = _of(document, "ext4")["wait_p99_s"]
    assert (wait["n"], wait["low"], wait["high"]) == (1, None, None)


def test_a_repetition_that_an_interruption_divided_counts_as_one(tmp_path: Path) -> None:
    # The first boot ended after three entries.
    write_parts(tmp_path, "aaaaaa", QUICK, boots=3, change=lambda m: replace(m, boot=m.boot + (m.number > 3)))
    found = advise(evidence([tmp_path]), *profile_of("logger"))
    assert [one.energy_j and one.energy_j.n for one in found.figures] == [3, 3]
    assert found.less(Axis.ENERGY, "ext4") == ("ext4:nobarrier",)


def test_if_no_two_can_be_told_apart_it_is_said_once(fsjoule: CommandLine, tmp_path: Path) -> None:
    write_parts(tmp_path, "aaaaaa", {"ext4": PLAIN, "btrfs": PLAIN, "f2fs": PLAIN}, boots=2)
    text = " ".join(fsjoule("advise", tmp_path, "--profile", "logger").out.split())
    assert re.search(r"energy not yet decided: all \(\d+ more boots? of each\) ", text)


def test_what_was_not_measured_is_named_with_its_command(fsjoule: CommandLine, tmp_path: Path) -> None:
    parts = {slug: part for slug, part in PLAIN.items() if slug != "write-4k-fsync1"}
    write_parts(tmp_path, "aaaaaa", {"ext4": PLAIN, "btrfs": parts})
    done = fsjoule("advise", tmp_path, "--profile", "logger", "--json")
    assert _of(done.document, "btrfs")["energy_j_per_day"] is None
    command = "fsjoule advise --profile logger --lg-env env/virtual-lossy.yaml --fs ext4,btrfs"
    workloads = "power-loss-async, write-4k-fsync1"
    assert done.document["not_measured"] == [{"workloads": workloads, "command": command}]
    text = fsjoule("advise", tmp_path, "--profile", "logger").out
    assert f"not measured: {workloads}\n  {command}" in text


def test_a_score_is_made_only_with_weights(fsjoule: CommandLine, results: Path) -> None:
    assert fsjoule("advise", results, "--profile", "logger", "--json").document["scores"] == {}
    scored = fsjoule("advise", results, "--profile", "logger", "--weights", "energy=1,loss=3", "--json").document
    energies = {name: _of(scored, name)["energy_j_per_day"]["value"] for name in QUICK}
    assert scored["scores"]["ext4"]["value"] == pytest.approx(0.25)
    expected = 0.25 * energies["ext4:nobarrier"] / energies["ext4"] + 0.75
    assert scored["scores"]["ext4:nobarrier"]["value"] == pytest.approx(expected)
    assert scored["answer"].startswith(
        "ext4 for a logger on virtual (simulated): the lowest score, 0.25, with your weights"
    )


def test_the_page_has_the_answer_the_figures_the_reason_and_pictures(fsjoule: CommandLine, results: Path) -> None:
    done = fsjoule("advise", results, "--profile", "logger", "-o", "advice.html")
    assert done.code == 0
    page = Path("advice.html").read_text()
    assert page.count("<svg") == 3
    assert "<script" not in page
    assert "http" not in re.sub(r"http://www\.w3\.org/\S+", "", page)
    assert "Where the joules go" in page
    assert "writes with fsync" in page
    assert "8 of 8" in page
    assert page.count("simulated") >= 5
    assert "lost files in 8 of 8 power cuts" in page


def test_json_is_whole(fsjoule: CommandLine, results: Path) -> None:
    document = fsjoule("advise", results, "--profile", "logger", "--json").document
    assert document["schema"] == "fsjoule.advice/1"
    assert document["simulated"] is True
    assert document["runs"] == ["aaaaaa", "bbbbbb"]
    assert document["sensible"] == ["ext4", "ext4:nobarrier"]
    energy = next(one for one in document["relations"] if one["axis"] == "energy")
    assert energy["less"] == "ext4:nobarrier"
    low, high = energy["interval"]
    assert low < energy["ratio"] < high < 1
    json.dumps(document, allow_nan=False)


def test_it_fits_80_columns(results: Path) -> None:
    name, profile = profile_of("logger")
    shown = StringIO()
    print_advice(PlainConsole(width=80, file=shown), advise(evidence([results]), name, profile))
    lines = [line for line in shown.getvalue().splitlines() if not line.startswith("  fsjoule")]
    assert max(map(len, lines)) <= 80


OWN = """\
[profile]
title = "reads only"
fsyncs_per_hour = 0
files_per_day = 0
idle_share = 0.5
power_cuts_per_year = 0

[profile.reads]
mib_per_day = 1000
block_kib = 64

[profile.writes]
mib_per_day = 0
block_kib = 4
random_share = 0.0
"""


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("mib_per_day = 1000", "mib_per_day = -1", 9, "reads.mib_per_day: Input should be greater than or equal to 0"),
        ("random_share = 0.0", "random_share = 1.1", 15, "less than or equal to 1 (given: 1.1)"),
        ("idle_share = 0.5", "idle_share = nan", 5, "given: nan"),
        ("idle_share = 0.5", 'idle_share = "half"', 5, "given: 'half'"),
        ("block_kib = 64", "block_kib = 0", 10, "greater than or equal to 1"),
        ("files_per_day = 0", "files_per_day = inf", 4, "finite number"),
        ("files_per_day = 0", "files_a_day = 0", 4, "files_a_day: Unexpected keyword argument"),
        ("fsyncs_per_hour = 0", "fsyncs_per_hour = 10", 3, "10 fsyncs of 4 KiB are 0.9375 MiB a day, but only 0 MiB"),
        ("[profile.writes]", "[profile.write]", 12, "write: Unexpected keyword argument"),
        ("[profile]", "[usage]", 1, "unknown table or key 'usage'"),
        ('title = "reads only"', "title = reads only", 2, "not valid TOML"),
    ],
)
def test_a_wrong_profile_is_refused_with_its_line(
    fsjoule: CommandLine, results: Path, *, old: str, new: str, line: int, message: str
) -> None:
    Path("own.toml").write_text(OWN.replace(old, new, 1))
    done = fsjoule("advise", results, "--profile", "own.toml")
    assert done.code == 2
    assert done.err.startswith(f"error: own.toml:{line}: "), done.err
    assert message in done.err


def test_other_wrong_input_is_refused(fsjoule: CommandLine, results: Path, tmp_path: Path) -> None:
    wrong = {
        ("--profile", "toaster"): "unknown profile 'toaster'\n  hint: choose from camera, desktop, gateway, logger, ",
        ("--profile", "no.toml"): "no.toml: the profile cannot be read: ",
        ("--profile", "logger", "--weights", "price=1"): "unknown weight 'price'",
        ("--profile", "logger", "--weights", "energy=-1"): "--weights energy=-1: not a number from 0 on",
        ("--profile", "logger", "--weights", "energy=0"): "all weights are zero",
        ("--profile", "logger", "--fs", "xfs"): "unknown filesystem of these runs 'xfs'",
        ("--profile", "logger", "--kernel", "5.10"): "unknown kernel of these runs '5.10'",
        ("--profile", "logger", "--storage", "nvme"): "unknown storage device of these runs 'nvme'",
    }
    for words, message in wrong.items():
        done = fsjoule("advise", results, *words)
        assert (done.code, message in done.err) == (2, True), done.err
    (tmp_path / "empty").mkdir()
    assert fsjoule("advise", tmp_path / "empty", "--profile", "logger").code == 2


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"board": "rack"}, "the runs are of different boards: rack (run bbbbbb), virtual (run aaaaaa)"),
        ({"lab": replace(LAB, place="rack-2")}, "the runs are of different places: rack-2 of fsjoule-virtual"),
        ({"meter": replace(METER, serial_number="T2")}, "the runs are of different meters: T1 (run aaaaaa), T2"),
        ({"kernel": "6.12"}, "the runs measured different kernels: 6.1.0-armmp (6.1.7-1), 6.12.0-armmp (6.12.7-1)"),
        ({"kernel": "6.12"}, "hint: choose one, for example --kernel '6.12.0-armmp (6.12.7-1)'"),
        ({"simulated": False}, "the runs are of different sorts: real (run bbbbbb), simulated (run aaaaaa)"),
    ],
)
def test_runs_whose_figures_do_not_add_up_are_refused(
    fsjoule: CommandLine, tmp_path: Path, other: dict[str, Any], message: str
) -> None:
    write_parts(tmp_path, "aaaaaa", {"ext4": PLAIN}, boots=1)
    write_parts(tmp_path, "bbbbbb", {"ext4": PLAIN}, boots=1, **other)
    done = fsjoule("advise", tmp_path, "--profile", "logger")
    assert done.code == 2
    assert message in done.err


def test_a_run_on_several_boards_with_levels_of_their_own_is_refused(fsjoule: CommandLine, tmp_path: Path) -> None:
    two = PoolPlace(LAB, METER), PoolPlace(replace(LAB, place="rack-2"), replace(METER, serial_number="T2"))
    for name, places in {"real": two, "guest time": tuple(replace(each, meter=METER) for each in two)}.items():
        write_parts(
            tmp_path / name,
            "aaaaaa",
            {"ext4": PLAIN},
            boots=1,
            places=places,
            change=lambda m: replace(m, place=two[m.number % 2].lab.place),
        )
    done = fsjoule("advise", tmp_path / "real", "--profile", "logger")
    assert done.code == 2
    assert "the runs are of different places: rack-2 of " in done.err
    # Boards in guest time share one meter, and have no levels of their own.
    assert fsjoule("advise", tmp_path / "guest time", "--profile", "logger").code == 0


def test_invalid_measurements_are_refused_or_counted(fsjoule: CommandLine, tmp_path: Path) -> None:
    write_parts(
        tmp_path / "all",
        "aaaaaa",
        {"ext4": PLAIN},
        boots=1,
        change=lambda m: replace(m, invalid_reasons=("no end mark",)),
    )
    done = fsjoule("advise", tmp_path / "all", "--profile", "logger")
    assert done.code == 2
    assert "their 4 measurements of filesystems are invalid" in done.err
    write_parts(
        tmp_path / "one",
        "bbbbbb",
        {"ext4": PLAIN},
        boots=3,
        change=lambda m: replace(m, invalid_reasons=("no end mark",)) if m.number == 1 else m,
    )
    document = fsjoule("advise", tmp_path / "one", "--profile", "logger", "--json").document
    assert _of(document, "ext4")["energy_j_per_day"]["n"] == 2
    assert "1 invalid measurement not used" in document["notes"]


def test_runs_without_a_meter_have_no_energy_and_say_so(fsjoule: CommandLine, tmp_path: Path) -> None:
    write_parts(tmp_path, "aaaaaa", {"ext4": PLAIN}, boots=2, change=lambda m: replace(m, energy=None))
    document = fsjoule("advise", tmp_path, "--profile", "gateway", "--json").document
    assert _of(document, "ext4")["energy_j_per_day"] is None
    assert any("there is no energy" in note for note in document["notes"])


def test_one_of_several_kernels_can_be_chosen(fsjoule: CommandLine, tmp_path: Path) -> None:
    write_parts(tmp_path, "aaaaaa", {"ext4": PLAIN}, boots=1)
    write_parts(tmp_path, "bbbbbb", {"ext4": PLAIN}, boots=1, kernel="6.12")
    document = fsjoule("advise", tmp_path, "--profile", "logger", "--kernel", "6.12", "--json").document
    assert document["runs"] == ["bbbbbb"]


def test_a_headline_of_many_filesystems_names_the_first(tmp_path: Path) -> None:
    many = {f"ext4 (stripe={n})": PLAIN for n in range(20)}
    write_parts(tmp_path, "aaaaaa", many, boots=2)
    write_cuts(tmp_path, "bbbbbb", dict.fromkeys(many, (1, 0)))
    asked = advise(evidence([tmp_path]), *profile_of("logger"))
    told = headline(asked)
    assert "ext4 (stripe=0), ext4 (stripe=1), ext4 (stripe=2), ext4 (stripe=3) or 16 others" in told
    assert "but 20 of them lost files in power cuts" in told
    assert len(told) < 300
    assert all(len(text) < 300 for _, text in relations(asked))
