"""`fsjoule meter record` and `run` on the real simulator."""

from __future__ import annotations

import csv
import json
import re
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
from command_line import PROGRAM, CommandLine, finished, started
from meter_desk import LIMIT_S, Desk
from waiting import wait_for

from fsjoule.host import process
from fsjoule.host.files import PARTIAL_SUFFIX
from fsjoule.model import Ina219Trace
from fsjoule.store.traces import read_trace

# ---------------------------------------------------------------------------------------------------------- recording


def wait_until_recorded(path: Path) -> None:
    """Wait for the file itself: a probe of the folder comes and goes before the command takes signals."""
    partial = path.with_name(path.name + PARTIAL_SUFFIX)
    wait_for(partial.exists, "nothing is recorded")


def test_record_writes_what_the_meter_sent_twice(desk: Desk, fsjoule: CommandLine, tmp_path: Path) -> None:
    desk.start_meter()
    parquet, table = tmp_path / "trace.parquet", tmp_path / "trace.csv"
    with desk.marking():
        document = fsjoule("meter", "record", "--seconds", "5", "-o", parquet, "-o", table, "--json").document
    trace = read_trace(parquet)
    assert trace.counts.received == document["received"]
    assert (trace.missed, trace.lost) == (document["missed"], document["lost"]) == (0, 0)
    assert 5 * 625 <= document["received"] < 7 * 625
    assert {mark.text for mark in trace.marks} == {"S1"}
    assert float(trace.power_w.sum()) / 625 == pytest.approx(document["joules"], rel=1e-9)
    with table.open() as file:
        rows = list(csv.DictReader(file))
    assert [int(row["timestamp_time_us"]) for row in rows] == trace.times_us.tolist()
    assert np.allclose([float(row["board_power"]) for row in rows], trace.power_w, atol=1e-6)
    # The emulated meter's clock is the host's own.
    drift = document["drift"]
    assert abs(drift["ppm"]) < max(5 * drift["uncertainty_ppm"], 200)


def test_a_supply_above_16_volts_has_a_range_of_its_own(desk: Desk, fsjoule: CommandLine, tmp_path: Path) -> None:
    """20 V times 0.2 A: at first 16 V are the most, and each sample says so; the saved range outlives the power."""
    flash = ("--storage", str(desk.devices / "flash"))
    simulator = desk.start_meter(*flash, load="20.0,0.2")

    def recorded(name: str) -> Ina219Trace:
        fsjoule("meter", "record", "--seconds", "1", "-o", tmp_path / name, "--json")
        trace = read_trace(tmp_path / name)
        assert isinstance(trace, Ina219Trace)
        return trace

    narrow = recorded("narrow.parquet")
    assert float(narrow.power_w.mean()) == pytest.approx(3.2, rel=1e-3)
    (bus,) = [each for each in narrow.clipped if each.samples.all()]
    assert bus.limit == "the end of the bus voltage's range of 16 V"
    assert bus.advice.startswith("set --bus-range 32")
    assert fsjoule("meter", "set", "--bus-range", "26").code == 2
    assert "up to 32 V" in fsjoule("meter", "set", "--bus-range", "32", "--save").out
    process.stop(simulator)
    desk.start_meter(*flash, load="20.0,0.2")
    wide = recorded("wide.parquet")
    assert wide.info.bus_range_v == 32
    assert float(wide.power_w.mean()) == pytest.approx(4.0, rel=1e-3)
    assert not any(each.samples.any() for each in wide.clipped)


def test_samples_that_come_late_are_waited_for(desk: Desk, tmp_path: Path) -> None:
    """A busy computer holds the meter's last samples back until its seconds are over."""
    simulator = desk.start_meter()
    path = tmp_path / "trace.parquet"
    command = started(desk.closing, "meter", "record", "--seconds", "2", "--json", "-o", path, "--meter", desk.stream)
    wait_until_recorded(path)
    simulator.send_signal(signal.SIGSTOP)
    time.sleep(3.0)
    simulator.send_signal(signal.SIGCONT)
    document = finished(command).document
    assert document["received"] == read_trace(path).counts.received >= 2 * 625


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_recording_that_is_ended_is_whole(desk: Desk, tmp_path: Path, number: signal.Signals) -> None:
    desk.start_meter()
    path = tmp_path / "trace.parquet"
    command = started(desk.closing, "meter", "record", "-o", path, "--meter", desk.stream)
    wait_until_recorded(path)
    time.sleep(1.5)
    command.send_signal(number)
    done = finished(command)
    assert done.code == 0, done.err
    assert read_trace(path).counts.received > 625
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


def test_a_recording_ends_with_its_stream_and_keeps_it(desk: Desk, tmp_path: Path) -> None:
    simulator = desk.start_meter()
    path = tmp_path / "trace.parquet"
    command = started(desk.closing, "meter", "record", "-o", path, "--meter", desk.stream)
    wait_until_recorded(path)
    time.sleep(1.5)
    process.stop(simulator)
    desk.start_meter()
    done = finished(command)
    assert done.code == 4
    assert re.search(r"the recording ends after \d+ s: the meter began another stream", done.err), done.err
    assert read_trace(path).counts.received > 625


def test_a_full_disk_costs_the_file_on_it_only(desk: Desk, tmp_path: Path) -> None:
    desk.start_meter()
    full, other = tmp_path / "trace.csv", tmp_path / "trace.parquet"
    # A limit of the size of files, 64 KiB, is as good as a small disk; a second of samples is 15 KiB of text.
    record = f"{PROGRAM} meter record --seconds 6 --meter {desk.stream} -o {full} -o {other} --json"
    done = finished(
        subprocess.Popen(
            ["bash", "-c", f"ulimit -f 64; exec {record}"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
    )
    assert done.code == 4
    assert re.search(
        r"trace.csv could not be written: File too large; its content is lost\n  hint: make room", done.err
    )
    assert not full.exists()
    assert read_trace(other).counts.received == done.document["received"] >= 6 * 625


def test_a_gap_is_counted(desk: Desk, tmp_path: Path) -> None:
    desk.start_meter()
    ser2net = desk.start_ser2net()
    path = tmp_path / "trace.parquet"
    command = started(
        desk.closing,
        "meter",
        "record",
        "--seconds",
        "12",  # ser2net takes seconds to start on a busy computer
        "--json",
        "-o",
        path,
        "--meter",
        f"rfc2217://127.0.0.1:{desk.port}",
    )
    wait_until_recorded(path)
    time.sleep(1.0)
    process.stop(ser2net)
    time.sleep(0.5)
    desk.start_ser2net()
    document = finished(command).document
    trace = read_trace(path)
    assert trace.lost == document["lost"] > 0
    assert trace.counts.expected == trace.ticks[-1] - trace.ticks[0] + 1
    # The meter's own sums bridge the gap.
    assert document["joules"] == pytest.approx(1.25 * document["seconds"], rel=0.01)


# ------------------------------------------------------------------------------------------------------------ running


def test_run_leaves_the_command_alone_and_tells_its_energy(desk: Desk) -> None:
    desk.start_meter()
    command = ["sh", "-c", "cat; echo beside >&2; sleep 0.5; exit 7"]
    done = subprocess.run(
        [str(PROGRAM), "meter", "run", "--meter", str(desk.stream), "--json", "--", *command],
        input="through\n",
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert (done.returncode, done.stdout) == (7, "through\n")
    assert "beside\n" in done.stderr
    document = json.loads(done.stderr.splitlines()[-1])
    [figures] = document["runs"]
    assert document["simulated"] is True
    assert figures["exit_code"] == 7
    assert figures["seconds"]["value"] > 0.5
    joules, idle = figures["joules"], figures["idle_watts"]
    assert joules["value"] == pytest.approx(1.25 * figures["window_seconds"], rel=0.01)
    assert idle["value"] == pytest.approx(1.25, rel=0.01)
    assert 0 < joules["uncertainty"] < 0.05 * joules["value"]
    assert abs(figures["net_joules"]["value"]) <= 3 * figures["net_joules"]["uncertainty"]
    assert figures["remarks"] == []


def test_run_repeats_and_keeps_each_trace(desk: Desk, fsjoule: CommandLine, tmp_path: Path) -> None:
    desk.start_meter()
    path = tmp_path / "run.parquet"
    done = fsjoule("meter", "run", "--repeat", "3", "--idle", "0.2", "-o", path, "--", "sleep", "0.2")
    assert done.code == 0
    assert re.search(r"SD +0\.\d+ +0\.\d+", done.err), done.err
    assert sorted(each.name for each in tmp_path.iterdir()) == ["run-2.parquet", "run-3.parquet", "run.parquet"]
    marks = read_trace(tmp_path / "run-3.parquet").marks
    assert [mark.text for mark in marks] == ["run 3 begin", "run 3 end"]


def test_run_without_idle_power_tells_no_net_energy(desk: Desk, fsjoule: CommandLine) -> None:
    desk.start_meter()
    text = fsjoule("meter", "run", "--idle", "0", "--", "sleep", "0.2").err
    assert "gross" in text
    assert "net" not in text


def test_run_stops_at_a_run_that_fails(desk: Desk, fsjoule: CommandLine, tmp_path: Path) -> None:
    desk.start_meter()
    counter = tmp_path / "counter"
    done = fsjoule(
        "meter", "run", "--repeat", "3", "--idle", "0.1", "--", "sh", "-c", f"echo run >> {counter}; kill -9 $$"
    )
    assert done.code == 128 + signal.SIGKILL
    assert counter.read_text() == "run\n"


def test_a_command_that_is_not_there_is_an_error(desk: Desk, fsjoule: CommandLine) -> None:
    desk.start_meter()
    done = fsjoule("meter", "run", "--idle", "0", "--", "fsjoule-nothing")
    assert done.code == 2
    assert "'fsjoule-nothing' cannot be run: No such file or directory" in done.err


def test_a_meter_that_goes_away_does_not_touch_the_command(desk: Desk, fsjoule: CommandLine, tmp_path: Path) -> None:
    simulator = desk.start_meter()
    witness = tmp_path / "witness"
    done = fsjoule(
        "meter", "run", "--idle", "0", "--", "sh", "-c", f"kill {simulator.pid}; sleep 1; echo done > {witness}"
    )
    assert done.code == 0
    assert witness.read_text() == "done\n"
    assert "no energy: the meter" in done.err


def test_sigterm_is_passed_on_to_the_command(desk: Desk) -> None:
    desk.start_meter()
    script = 'trap "echo got it; exit 3" TERM; echo ready; while :; do sleep 0.1; done'
    command = started(desk.closing, "meter", "run", "--idle", "0", "--meter", desk.stream, "--", "sh", "-c", script)
    assert command.stdout is not None
    assert command.stdout.readline() == "ready\n"
    time.sleep(0.3)  # both marks of a command that ends at once may fall into one moment of the meter's clock
    command.send_signal(signal.SIGTERM)
    done = finished(command)
    assert (done.code, done.out) == (3, "got it\n")
    assert "gross" in done.err
