"""`fsjoule place drift`: its table, chart, JSON and exit code, and what `fsjoule compare` says of such a place."""

from __future__ import annotations

import shutil
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from command_line import CommandLine
from compared_runs import write_kernels
from fresh_boots import FreshBoots, kernel_folder
from index_runs import edit
from place_checks import PlaceNights
from results_factory import LAB, METER

from fsjoule.model import Exporter
from fsjoule.runs import gate

PROJECT = Path(__file__).parents[2]
BENCH_3 = replace(LAB, place="bench-3", exporters=(Exporter("rack", ""),))


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """bench-3 measures 1 % more since the 2nd of March, bench-4 is fine, and bench-5 is new."""
    folder = tmp_path_factory.mktemp("results")
    PlaceNights(gain=lambda night: 1.01 if night >= 60 else 1.0).write(folder, 75)
    PlaceNights("bench-4", seed=2, meter=lambda _: replace(METER, serial_number="T2")).write(folder, 20)
    PlaceNights("bench-5", seed=3).write(folder, 5)
    return folder


def test_the_table_says_which_place_is_out_of_control(fsjoule: CommandLine, results: Path) -> None:
    done = fsjoule("place", "drift", "--results", results)
    assert done.code == 1
    rows = [" ".join(line.split()) for line in done.out.splitlines()]
    assert any(row.startswith("bench-3 idle power 75 out of control since 2026-03-02: +") for row in rows)
    assert any(row.startswith("bench-4 cpu duration 20 in control") for row in rows)
    assert any(row.startswith("bench-5 cpu power 5 too few checks: 5 of 8") for row in rows)


def test_a_lab_in_control_ends_with_0(fsjoule: CommandLine, tmp_path: Path) -> None:
    PlaceNights().write(tmp_path / "results", 10)
    assert fsjoule("place", "drift").code == 0


def test_json_has_charts_and_agreements(fsjoule: CommandLine, results: Path) -> None:
    done = fsjoule("place", "drift", "--results", results, "--between", "bench-3,bench-4", "--json")
    document = done.document
    assert (done.code, document["schema"]) == (1, "fsjoule.drift/1")
    assert [each["state"] for each in document["places"]] == ["out of control", "in control", "too few checks"]
    chart = next(each for each in document["charts"] if (each["work"], each["metric"]) == ("idle", "power"))
    assert len(chart["checks"]) == 75
    assert chart["checks"][0]["q"] is None
    assert chart["alarms"][-1]["end"] is None
    assert [each["agree"] for each in document["agreements"]] == [True, True]


def test_two_places_are_compared_by_their_normalised_error(fsjoule: CommandLine, results: Path) -> None:
    done = fsjoule("place", "drift", "--results", results, "--between", "bench-4,bench-5")
    assert done.code == 1
    assert "E_n" in done.out
    assert "±" in done.out
    assert "one meter measured both places" not in done.out


def test_the_chart_is_a_picture_of_each_figure(fsjoule: CommandLine, results: Path, tmp_path: Path) -> None:
    fsjoule("place", "drift", "--results", results, "--chart", tmp_path / "drift.svg")
    text = "".join(ET.fromstring((tmp_path / "drift.svg").read_text()).itertext())
    assert "bench-3: power of idle, out of control since 2026-03-02" in text
    assert "Check standards of places (simulated)" in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--between", "bench-3"), "does not name two places"),
        (("--restart", "shunt replaced"), "--restart needs a place and a reason"),
        (("bench-3", "--restart", " "), "--restart needs a place and a reason"),
        (("bench-9",), "bench-9"),
        (("--false-alarms", "0.5"), "is not between 0 and 0.1"),
        (("--suite", "logger"), "there is no run of the suite logger at a place"),
    ],
)
def test_wrong_input_is_refused(fsjoule: CommandLine, results: Path, words: tuple[str, str], message: str) -> None:
    done = fsjoule("place", "drift", "--results", results, *words)
    assert done.code == 2
    assert message in done.err


def test_a_place_is_restarted_after_a_repair(fsjoule: CommandLine, results: Path, tmp_path: Path) -> None:
    here = shutil.copytree(results, tmp_path / "results")
    done = fsjoule("place", "drift", "bench-3", "--restart", "shunt replaced")
    assert done.code == 0, done.err
    text = " ".join(done.out.split())
    assert f"note bench-3: begun anew {datetime.now(UTC):%Y-%m-%d}, shunt replaced" in text
    assert "out of control since 2026-03-02: +" in text
    assert f"% until {datetime.now(UTC):%Y-%m-%d}" in text
    assert "bench-4" not in text
    whole = fsjoule("place", "drift", "--json").document
    assert {each["place"]: each["state"] for each in whole["places"]}["bench-3"] == "too few checks"
    assert [(each["place"], each["why"]) for each in whole["restarts"]] == [("bench-3", "shunt replaced")]
    assert len(list((here / "states").iterdir())) == 1


def test_compare_remarks_a_place_that_was_out_of_control(fsjoule: CommandLine, tmp_path: Path) -> None:
    PlaceNights(gain=lambda night: 1.01 if night >= 60 else 1.0).write(tmp_path, 75)
    before = write_kernels(tmp_path, "aaaaaa", speeds={"6.1": 1.0}, started="2026-02-20T10:00:00+00:00")
    after = write_kernels(tmp_path, "bbbbbb", speeds={"6.1": 1.0}, started="2026-03-09T10:00:00+00:00", seed=2)
    for folder in (before, after):
        edit(folder / "run.json", lab=asdict(BENCH_3))
    done = fsjoule("compare", before, after)
    assert done.code == 0
    text = " ".join(done.out.split())
    assert "candidate: place bench-3 was out of control from 2026-03-02 on: power of cpu +" in text
    assert "% (fsjoule place drift)" in text
    assert "baseline: place bench-3" not in text


def test_a_gate_remarks_a_place_that_is_out_of_control(fsjoule: CommandLine, tmp_path: Path) -> None:
    PlaceNights(gain=lambda night: 1.01 if night >= 60 else 1.0).write(tmp_path, 75)
    run = write_kernels(tmp_path, "aaaaaa", speeds={"6.1": 1.0, "6.12": 1.0})
    edit(run / "run.json", lab=asdict(BENCH_3))
    text = " ".join(fsjoule("gate", f"6.1@{run}", f"6.12@{run}").out.split())
    assert "both sides: place bench-3 was out of control from 2026-03-02 on: power of cpu +" in text


def test_a_gate_remarks_a_place_where_it_measures(
    fsjoule: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    PlaceNights(gain=lambda night: 1.01 if night >= 40 else 1.0).write(tmp_path / "results", 55)
    boots = FreshBoots(lab=BENCH_3)
    suite = tmp_path / "mine.toml"
    suite.write_text(
        """[suite]
title = "a suite that names its filesystems"
filesystems = ["xfs"]
workload = [{ operation = "read", block_kib = 16, size_mib = 32 }]
"""
    )
    monkeypatch.setattr(gate, "measure_pairs", boots.measure_pairs)
    sides = (kernel_folder(tmp_path / each, f"{each}-armmp", recipe="imx6ul") for each in ("6.1.1", "6.1.2"))
    done = fsjoule("gate", *sides, "--lg-env", PROJECT / "env/virtual.yaml", "--suite", suite, "--json")
    assert boots.choices[0].filesystems == ("xfs",)
    assert done.code == 3, done.err
    (note,) = done.document["notes"]
    assert note.startswith("both sides: place bench-3 was out of control from 2026-02-10 on: power of cpu +")
