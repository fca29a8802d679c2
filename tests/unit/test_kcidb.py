"""A run in KCIDB's JSON follows the schema of KernelCI's own library."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from command_line import CommandLine
from index_runs import write_run
from kcidb_io.schema import V5_3  # pyright: ignore[reportMissingTypeStubs]
from results_factory import make_run

from fsjoule.bench.measurer import recorded
from fsjoule.errors import ConfigError
from fsjoule.lab.meterdriver import NoMeter
from fsjoule.model import INSTRUCTIONS, JobFacts
from fsjoule.model.metrics import Metric, figure_of, metrics_told
from fsjoule.report.kcidb import to_kcidb


def test_a_build_that_kcidb_knows_is_only_referred_to() -> None:
    made = make_run(repeat=1)
    document = checked(to_kcidb(made.run, made.measurements, "mylab", "maestro:65a1355ee98651d0fe81e412"))
    assert (document["checkouts"], document["builds"]) == ([], [])
    assert {test["build_id"] for test in document["tests"]} == {"maestro:65a1355ee98651d0fe81e412"}
    assert {test["origin"] for test in document["tests"]} == {"mylab"}
    two = make_run(kernels=("6.1", "next"), repeat=1)
    for run, build in ((made, "65a1355ee98651d0fe81e412"), (two, "maestro:65a1355ee98651d0fe81e412")):
        with pytest.raises(ConfigError, match="is not the build of this run's"):
            to_kcidb(run.run, run.measurements, "mylab", build)


def checked(text: str) -> dict[str, Any]:
    document = json.loads(text)
    V5_3.validate(document)  # pyright: ignore[reportUnknownMemberType]
    return document


def test_each_figure_is_a_test_with_its_number_or_why_it_has_none() -> None:
    made = make_run(kernels=("6.1", "next"), repeat=1)
    kernels = tuple(replace(kernel, digest=f"{number}" * 64) for number, kernel in enumerate(made.run.kernels))
    job = JobFacts("7", "virtual", "bench", "https://lava.example.org/scheduler/job/7")
    run = replace(made.run, job=job, kernels=kernels)
    document = checked(to_kcidb(run, made.measurements, "mylab"))
    assert document["version"] == {"major": 5, "minor": 3}
    assert len(document["checkouts"]) == len(document["builds"]) == 2
    tests = {test["id"]: test for test in document["tests"]}
    assert len(tests) == len(document["tests"]) == sum(len(metrics_told(m)) for m in made.measurements)
    for measurement in made.measurements:
        for metric in metrics_told(measurement):
            test = tests[f"mylab:{run.run_id}-{measurement.number}-{metric.value}"]
            figure = figure_of(measurement, metric)
            wanted = "ERROR" if not measurement.valid else "MISS" if figure is None else "DONE"
            assert test["status"] == wanted
            assert test["path"].startswith("fsjoule-simulated.quick.")
            assert test["log_url"] == job.url
            if wanted == "DONE":
                assert test["number"]["value"] == figure
                assert test["number"].get("unit", "") == metric.unit
    energies = [test for name, test in tests.items() if name.endswith(f"-{Metric.ENERGY.value}")]
    assert any("standard_uncertainty" in test["misc"]["fsjoule"] for test in energies)


def test_energies_are_skipped_without_a_meter_and_missed_if_the_meter_failed() -> None:
    made = make_run(repeat=1)
    [lost] = [each for each in made.measurements if each.number == 3]  # has no energy
    with recorded(NoMeter(), lambda _: None) as recording:
        pass
    for note, status in ((recording.note, "SKIP"), ("no energy: the meter is silent", "MISS")):
        document = checked(to_kcidb(made.run, [replace(lost, notes=(note,))], "mylab"))
        statuses = {Metric(test["path"].rpartition(".")[2]): test["status"] for test in document["tests"]}
        energies = {metric for metric in statuses if metric.row.metered}
        assert energies
        assert {statuses[metric] for metric in energies} == {status}
        assert "SKIP" not in {statuses[metric] for metric in statuses.keys() - energies}


def test_instructions_are_told_only_with_a_profile() -> None:
    made = make_run(repeat=1)
    for counts, wanted in (
        ({}, set[str]()),
        ({INSTRUCTIONS: 5_000_000_000}, {"instructions", "operation-instructions"}),
    ):
        measurements = [replace(measurement, counts=counts) for measurement in made.measurements]
        tests = checked(to_kcidb(made.run, measurements, "mylab"))["tests"]
        told = [test for test in tests if test["path"].endswith("instructions")]
        assert {test["path"].rpartition(".")[2] for test in told} == wanted
        assert {test["status"] for test in told} <= {"DONE", "ERROR"}


def test_equal_kernels_are_one_build() -> None:
    made = make_run(kernels=("6.1", "again"), repeat=1)
    kernels = tuple(replace(kernel, digest="0" * 64) for kernel in made.run.kernels)
    document = checked(to_kcidb(replace(made.run, kernels=kernels), made.measurements, "mylab"))
    [checkout], [build] = document["checkouts"], document["builds"]
    assert build["comment"].startswith("kernel 6.1,")
    assert {test["build_id"] for test in document["tests"]} == {build["id"]} == {checkout["id"]}
    assert len(document["tests"]) == len({test["id"] for test in document["tests"]})


def test_a_stored_run_is_exported(fsjoule: CommandLine, tmp_path: Path) -> None:
    folder = write_run(tmp_path, simulated=False).path
    done = fsjoule("export", folder)
    assert done.code == 0
    assert {test["path"].partition(".")[0] for test in checked(done.out)["tests"]} <= {"fsjoule", "fsjoule-simulated"}
    assert fsjoule("export", folder, "--kcidb").out == done.out


def test_a_wrong_origin_and_a_run_without_kernels_are_refused() -> None:
    made = make_run()
    with pytest.raises(ConfigError, match="is no name of a CI system"):
        to_kcidb(made.run, made.measurements, "My Lab")
    with pytest.raises(ConfigError, match="on which kernel it measured"):
        to_kcidb(replace(made.run, kernels=()), made.measurements, "mylab")
