"""The main job as its user starts it: pytest on tests/bench in a process of its own, with the virtual lab."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from bench_runs import (
    ENVIRONMENT,
    PROJECT,
    TIMEOUT_S,
    as_good_as_can_be,
    command,
    only_late_marks,
    only_run,
    run_bench,
)
from interruptible import interruptible
from lab_leftovers import assert_nothing_left

from fsjoule.bench.measurer import lost_energy
from fsjoule.host.process_ref import ProcessRef
from fsjoule.model import MIB, FioWorkload, Ina219Trace, RunStatus
from fsjoule.report.allure.builds import read_builds
from fsjoule.report.allure.results import write_results
from fsjoule.store.reader import LoadedRun
from fsjoule.store.schemas import STEPS_FILE, decode_steps
from fsjoule.virtual.lab import lab
from fsjoule.virtual.lab.files import LabPaths
from fsjoule.virtual.lab.services import meter_serial


class Started:
    """A bench in the background whose output is read line by line."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.output = ""

    def wait_for(self, pattern: str) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.output += line
            if re.search(pattern, line):
                return
            assert time.monotonic() < deadline, self.output
        pytest.fail(f"it ended before {pattern!r}:\n{self.output}")

    def finish(self) -> str:
        rest, _ = self.process.communicate(timeout=TIMEOUT_S)
        self.output += rest
        return self.output


@contextmanager
def started(results: Path, *options: str) -> Generator[Started]:
    with subprocess.Popen(
        interruptible(*command(results, *options)),
        cwd=PROJECT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        bufsize=1,
    ) as process:
        try:
            yield Started(process)
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait(120)


@pytest.fixture(scope="module")
def quick(module_state: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, LoadedRun]:
    """What one repetition of the quick suite printed, and its run; random I/O takes longest."""
    results = tmp_path_factory.mktemp("quick")
    done = run_bench(results, "--fs", "ext4", "--repeat", "1", "--seed", "7", "-k", "not rand")
    assert as_good_as_can_be(done.returncode, only_run(results)), done.stdout + done.stderr
    assert_nothing_left(module_state, module_state / "devices")
    return done.stdout, only_run(results)


def test_every_measurement_is_valid_and_no_sample_is_lost(quick: tuple[str, LoadedRun]) -> None:
    run = quick[1]
    assert run.run.status is RunStatus.COMPLETE
    assert run.run.simulated
    assert [m.slug for m in run.measurements] == [e.slug for e in run.run.plan.entries if "rand" not in e.slug]
    for measurement in run.measurements:
        assert only_late_marks(measurement), measurement.invalid_reasons
        assert measurement.simulated
        assert measurement.samples is not None
        assert (measurement.samples.missed, measurement.samples.lost) == (0, 0)
        assert measurement.energy is not None
        assert measurement.energy.net_mj.value < measurement.energy.gross_mj.value


def test_samples_add_up_to_the_meters_cumulative_energy(quick: tuple[str, LoadedRun]) -> None:
    for measurement in quick[1].measurements:
        energy = measurement.energy
        assert energy is not None
        assert energy.check_mj == pytest.approx(energy.check_sum_mj, rel=1e-12)
        # The window begins and ends anywhere in a tick: at most one tick's energy at each end.
        trace = quick[1].trace(measurement.number)
        assert trace is not None
        tick_mj = float(trace.power_w.max()) * 1e3 / trace.info.rate_hz
        assert abs(energy.check_sum_mj - energy.gross_mj.value) <= 2 * tick_mj


def test_the_papers_formula_gives_the_same_energy(quick: tuple[str, LoadedRun]) -> None:
    """Mean power times time over the amount of data, by hand from fio's JSON and the raw samples in the window."""
    for measurement in quick[1].measurements:
        if not isinstance(measurement.workload, FioWorkload):
            continue
        trace = quick[1].trace(measurement.number)
        assert isinstance(trace, Ina219Trace)
        assert measurement.window is not None
        assert measurement.energy_mj_per_mib is not None
        inside = (trace.times_us >= measurement.window.start_us) & (trace.times_us < measurement.window.stop_us)
        watts = float((trace.shunt_raw[inside] * 1e-5 / 0.1 * (trace.bus_raw[inside] * 4e-3)).mean())
        fio = json.loads(quick[1].attachment(measurement.number, "fio.json") or b"")
        side = fio["jobs"][0]["write" if measurement.workload.operation.writes else "read"]
        mib = side["io_bytes"] / MIB
        assert measurement.energy_mj_per_mib.value == pytest.approx(
            watts * measurement.window.duration_s * 1e3 / mib, rel=1e-3
        )
        assert measurement.throughput_mib_per_s == pytest.approx(mib / (side["runtime"] / 1e3), rel=1e-9)


def test_the_output_says_simulated_and_where_everything_is(quick: tuple[str, LoadedRun]) -> None:
    output, run = quick
    assert "Throughput and energy  simulated" in output
    assert str(run.path) in output
    assert (run.path / "report.html").stat().st_size > 10_000


def test_the_run_can_be_repeated_from_what_it_keeps(quick: tuple[str, LoadedRun]) -> None:
    run = quick[1].run
    assert run.board is not None
    assert run.board.kernel_release.startswith("6.1")
    assert run.image is not None
    assert re.fullmatch(r"[0-9a-f]{64}", run.image.card_sha256)
    assert {"fsjoule", "labgrid", "qemu"} <= run.versions.keys()
    assert run.plan.seed == 7
    assert {"setup", "flash", "boot", "provisioning", "fio", "timed", "board_on"} <= run.phases_s.keys()


def test_what_labgrid_did_is_kept_and_reported(quick: tuple[str, LoadedRun], tmp_path: Path) -> None:
    run = quick[1]
    steps = {m.number: decode_steps(run.attachment(m.number, STEPS_FILE) or b"") for m in run.measurements}
    everything = [step for of in steps.values() for step in of]
    assert ("BoardStrategy", "transition") in {(step.source, step.title) for step in everything}
    assert ("NetworkPowerDriver", "on") in {(step.source, step.title) for step in everything}
    assert not [step for step in everything if step.error]
    for measurement in run.measurements:
        if isinstance(measurement.workload, FioWorkload):
            # The one before it lays out the files that are read.
            *_, fio = [s for s in steps[measurement.number] if s.args.get("argv", "").startswith("fio ")]
            assert fio.duration_ms >= 1000 * (measurement.duration_s or 0)
    write_results(read_builds([run.path]), tmp_path / "allure")
    results = [json.loads(file.read_text()) for file in (tmp_path / "allure").glob("*-result.json")]
    left_out = [result["statusDetails"]["message"] for result in results if result["status"] == "skipped"]
    assert left_out == ["not measured: it was not chosen"] * 2
    told = [result for result in results if result["status"] == "passed"]
    assert len(told) == len(run.measurements)
    assert all(result["steps"] for result in told)
    assert all(any(each["name"] == "power trace.svg" for each in result["attachments"]) for result in told)


def test_show_prints_the_run_again_and_as_json(quick: tuple[str, LoadedRun]) -> None:
    show = [Path(sys.executable).with_name("fsjoule"), "show", quick[1].path]
    text = subprocess.run(show, capture_output=True, text=True, timeout=120, check=True).stdout
    assert "Throughput and energy" in text
    document = json.loads(subprocess.run([*show, "--json"], capture_output=True, timeout=120, check=True).stdout)
    assert document["simulated"] is True
    assert len(document["measurements"]) == len(quick[1].measurements)


@pytest.mark.slow
def test_operations_on_a_root_filesystem(state: Path, tmp_path: Path) -> None:
    results = tmp_path / "results"
    done = run_bench(results, "--fs", "btrfs", "--provision", "root", "--suite", "operations", "--repeat", "1")
    run = only_run(results)
    assert as_good_as_can_be(done.returncode, run), done.stdout + done.stderr
    assert run.run.board is not None
    assert run.run.board.root_filesystem == "btrfs"
    assert {m.workload.operation.value for m in run.measurements} == {
        "boot", "mkfs", "mount", "umount", "fsck", "copy",
    }  # fmt: skip
    assert all(m.energy is not None and m.counters is not None and m.duration_s for m in run.measurements)
    assert_nothing_left(state, state / "devices")


@pytest.mark.slow
def test_no_space_on_the_card_makes_measurements_invalid_and_the_others_go_on(state: Path, tmp_path: Path) -> None:
    """Files larger than the partition: of the boot partition, once its kernel has been read, nobody needs anything."""
    environment = tmp_path / "tiny.yaml"
    text = ENVIRONMENT.read_text().replace("/dev/mmcblk1p3", "/dev/mmcblk1p1")
    environment.write_text(re.sub(r"size_factor: .*", "size_factor: 0.13", text))
    results = tmp_path / "results"
    options = ("--fs", "ext4", "--suite", "energy-emmc-2025", "--repeat", "1", "-k", "64k")
    done = run_bench(results, *options, environment=environment)
    assert done.returncode == 1, done.stdout + done.stderr
    run = only_run(results)
    writes = [m for m in run.measurements if m.workload.slug.endswith("write-64k")]
    assert len(writes) == 2
    for measurement in writes:
        assert any("no space left" in reason.lower() for reason in measurement.invalid_reasons)
    assert len(run.measurements) == 4
    assert "no space left" in done.stdout.lower()
    assert_nothing_left(state, state / "devices")


# test_interrupted_runs.py has signals earlier in a run, and the next test a run that ends after its first figures.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("sig", "say"),
    [
        (signal.SIGINT, "interrupted"),
        (signal.SIGTERM, "interrupted by SIGTERM"),
        (signal.SIGHUP, "interrupted by SIGHUP"),
    ],
)
def test_an_interrupted_run_keeps_and_shows_what_was_measured(
    state: Path, tmp_path: Path, sig: signal.Signals, say: str
) -> None:
    results = tmp_path / "results"
    with started(results, "--fs", "ext4", "--repeat", "1") as bench:
        bench.wait_for(r"^\[ +2/")
        os.kill(bench.process.pid, sig)
        output = bench.finish()
    assert bench.process.returncode == 128 + sig, output
    run = only_run(results)
    assert (run.run.status, run.run.abort_reason) == (RunStatus.ABORTED, say)
    assert len(run.measurements) >= 2
    assert "aborted: interrupted" in output
    assert (run.path / "report.html").exists()
    assert_nothing_left(state, state / "devices")


def test_a_meter_that_died_ends_the_run_at_once_and_it_goes_on_with_the_next_lab(state: Path, tmp_path: Path) -> None:
    results = tmp_path / "results"
    only = ("-k", "mkfs or (write and not rand)", "--seed", "2")
    with started(results, "--fs", "ext4", "--repeat", "1", *only) as bench:
        bench.wait_for(r"^\[ +1/")
        unplugged()
        output = bench.finish()
    assert bench.process.returncode == 4, output
    assert "was killed by SIGKILL" in output
    assert "trying again" not in output
    run = only_run(results)
    assert run.run.status is RunStatus.ABORTED
    assert "aborted: " in output
    assert (run.path / "report.html").exists()
    [fault] = run.run.faults
    assert fault.what.startswith("the lab's meter (process ")
    assert not fault.transient
    # What was under way keeps its time, and says why it has no energy.
    assert all(each.energy or "was killed by SIGKILL" in lost_energy(each.notes) for each in run.measurements)
    with started(results, "--resume", str(run.path), *only) as again:
        output = again.finish()
    run = only_run(results)
    assert run.run.status is RunStatus.COMPLETE, output
    assert run.run.meter is not None
    count = len(run.measurements)
    assert f"[{count:>3}/{count}] " in output, "progress counts what was chosen, with what was there before"
    assert run.run.meter.serial_number == meter_serial(LabPaths.of("virtual"))
    assert run.run.lab is not None
    assert (run.run.lab.place, run.run.lab.exporter_names) == ("virtual", "fsjoule-virtual")
    traces = [trace for each in run.measurements if (trace := run.trace(each.number))]
    assert {trace.info for trace in traces} == {run.run.meter}
    assert_nothing_left(state, state / "devices")


def unplugged() -> None:
    """Kill the lab's meter."""
    [pid] = [service.pid for service in lab.status().services if service.name == "meter"]
    meter = ProcessRef.of(pid)
    assert meter is not None
    meter.send(signal.SIGKILL)
