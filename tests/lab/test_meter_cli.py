"""`fsjoule meter` on the real simulator: a meter at a desk, without labgrid."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pexpect
import pytest
from command_line import PROGRAM, CommandLine, Done, command_line, started
from meter_desk import LIMIT_S, Desk, desk, wait
from meter_wire import INFO, frame

from fsjoule import process
from fsjoule.meter.finder import Candidate, find
from fsjoule.meter.streams import NetworkStream, TtyStream
from fsjoule.store import read_trace
from fsjoule.virtual.feed import FeedWriter


@pytest.fixture(name="desk")
def _desk() -> Generator[Desk]:
    with desk() as empty:
        yield empty


@pytest.fixture
def fsjoule(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], desk: Desk) -> CommandLine:
    """The command line, with the meter of the desk."""
    monkeypatch.setenv("FSJOULE_METER", str(desk.stream))
    return command_line(monkeypatch, capfd)


def finished(command: subprocess.Popen[str]) -> Done:
    out, err = command.communicate(timeout=LIMIT_S)
    return Done(command.returncode, out, err)


@contextmanager
def babble(master: int) -> Generator[None]:
    """Something else than a meter at the other side of a terminal: a boot loader's prompt, again and again."""
    ended = threading.Event()

    def run() -> None:
        while not ended.wait(0.05):
            os.write(master, b"\r\n=> ")

    thread = threading.Thread(target=run)
    thread.start()
    yield
    ended.set()
    thread.join()


@contextmanager
def marking(desk: Desk) -> Generator[None]:
    """A board that sends a mark every now and then."""
    ended = threading.Event()

    def run() -> None:
        while not ended.wait(0.3):
            desk.mark("S1")

    thread = threading.Thread(target=run)
    thread.start()
    yield
    ended.set()
    thread.join()


# ----------------------------------------------------------------------------------------------- finding and knowing


def test_the_finder_tells_what_is_at_each_place(desk: Desk) -> None:
    desk.start_meter("--serial-number", "DESK 1")
    desk.start_ser2net()
    with desk_of("other") as other, desk_of("silent") as silent, desk_of("garbage") as garbage:
        other.start_meter()
        thief = other.thief()
        silent.start_nothing()
        with babble(garbage.start_nothing()):
            begin = time.monotonic()
            found = find(
                [
                    Candidate("telnet", "", lambda: NetworkStream("127.0.0.1", desk.port, telnet=True)),
                    Candidate("held", "", lambda: TtyStream(str(other.stream))),
                    Candidate("silent", "", lambda: TtyStream(str(silent.stream))),
                    Candidate("garbage", "", lambda: TtyStream(str(garbage.stream))),
                    Candidate("nothing", "", lambda: TtyStream("/dev/fsjoule-nothing")),
                ]
            )
            assert time.monotonic() - begin < 10
    telnet, *others = found
    assert telnet.info is not None
    assert telnet.info.info.serial_number == "DESK 1"
    why_not = {each.address: each.why_not for each in others if each.info is None}
    assert f"in use by cat (process {thief.pid})" in why_not["held"]
    assert why_not["silent"] == "silent"
    assert why_not["garbage"] == "something else than a meter"
    assert why_not["nothing"] == "cannot be opened: No such file or directory"


@contextmanager
def desk_of(_name: str) -> Generator[Desk]:
    with desk() as another:
        yield another


def test_info_tells_what_the_meter_is_and_what_follows_from_it(desk: Desk, fsjoule: CommandLine) -> None:
    desk.start_meter("--serial-number", "DESK 1", "--range-mv", "40", "--storage", str(desk.devices / "flash"))
    text = fsjoule("meter", "info").out
    for part in ("DESK 1  simulated", "1000 a second; shunt 12 bits, bus 11 bits", "40 mV: up to 0.4 A", "never"):
        assert part in text
    assert re.search(r"uncertainty +\d\.\d+ mW, 0\.\d+% at 5 V, 0\.25 A", text)
    assert "never calibrated" in text
    document = fsjoule("meter", "info", "--volts", "3.3", "--amperes", "0.1", "--json").document
    assert document["shunt_range_mv"] == 40
    assert document["calibration"]["gain_date"] is None
    uncertainty = document["expected_uncertainty"]
    # By hand from the data sheet's limits, at 40 mV: 1 % of the resistor alone are 1.9 mW.
    assert uncertainty["shunt_w"] == pytest.approx(3.3 * 0.1 * 0.01 / 3**0.5)
    assert 0.0019 < uncertainty["total_w"] < 0.008


@pytest.mark.parametrize("telnet", [False, True], ids=["raw", "rfc2217"])
def test_addresses_of_the_network(desk: Desk, fsjoule: CommandLine, telnet: bool) -> None:
    desk.start_meter()
    desk.start_ser2net(telnet=telnet)
    address = f"{'rfc2217://' if telnet else ''}127.0.0.1:{desk.port}"
    assert fsjoule("meter", "set", "--rate", "500", "--meter", address, "--json").document["rate_hz"] == 500


def test_errors_say_what_to_do(desk: Desk, fsjoule: CommandLine) -> None:
    for address, code, complaint in (
        ("ttyUSB0", 2, "'ttyUSB0' is no meter's address\n  hint: an address is /dev/ttyUSB0, HOST:PORT"),
        ("host:99999", 2, "is no meter's address"),
        ("/dev/fsjoule-nothing", 4, "there is no port /dev/fsjoule-nothing\n  hint: fsjoule meter list"),
        ("lab:nothing", 4, "the lab 'nothing' is down\n  hint: fsjoule lab up --name nothing"),
        ("127.0.0.1:1", 4, r"the meter did not say what it is \(.*refused.*\)\n  hint: is it plugged in"),
    ):
        done = fsjoule("meter", "info", "--meter", address)
        assert done.code == code
        assert re.search(complaint, done.err), done.err
    assert fsjoule("meter", "set").code == 2
    both = fsjoule("meter", "info", "--lg-env", "env/virtual.yaml")
    assert "both a meter's address and an environment file are given" in both.err
    with babble(desk.start_nothing()):
        assert "no frame among them: is it a meter" in fsjoule("meter", "info").err


def test_a_meter_of_another_protocol_is_told_so_and_sent_nothing(desk: Desk) -> None:
    master = desk.start_nothing()
    command = started(desk.closing, "meter", "info", "--meter", desk.stream)
    os.set_blocking(master, False)
    heard = b""
    while command.poll() is None:
        os.write(master, frame(INFO, 0, b"", protocol=7))
        time.sleep(0.05)
        try:
            heard += os.read(master, 4096)
        except (BlockingIOError, OSError):
            continue
    done = finished(command)
    assert done.code == 4
    assert "the meter speaks protocol 7; this version of fsjoule knows protocol 2" in done.err
    assert heard == b""


# ------------------------------------------------------------------------------------------------------------ setting


def test_settings_that_are_saved_survive_a_loss_of_power(desk: Desk, fsjoule: CommandLine) -> None:
    flash = str(desk.devices / "flash")
    simulator = desk.start_meter("--storage", flash)
    saved = fsjoule("meter", "set", "--rate", "200", "--range", "160", "--shunt", "50000", "--save", "--json").document
    assert (saved["rate_hz"], saved["shunt_range_mv"], saved["shunt_uohm"], saved["unsaved"]) == (
        200,
        160,
        50000,
        False,
    )
    lost = fsjoule("meter", "set", "--rate", "1000")
    assert "set, not saved" in lost.err
    assert fsjoule("meter", "info", "--json").document["unsaved"] is True
    process.stop(simulator)
    desk.start_meter("--storage", flash)
    again = fsjoule("meter", "info", "--json").document
    assert (again["rate_hz"], again["shunt_range_mv"], again["shunt_uohm"], again["unsaved"]) == (
        200,
        160,
        50000,
        False,
    )


def test_settings_that_cannot_be_are_refused_with_those_that_can(desk: Desk, fsjoule: CommandLine) -> None:
    desk.start_meter()
    for options, complaint in (
        (("--rate", 300), "a rate of 300 Hz is not possible\n  hint: .*250 or 320"),
        (("--range", 100), "no range of 100 mV\n  hint: choose from: 40, 80, 160, 320"),
        (("--shunt", 1), "a shunt of 1 microohm is not possible"),
    ):
        done = fsjoule("meter", "set", *options)
        assert done.code == 2
        assert re.search(complaint, done.err), done.err
    assert fsjoule("meter", "info", "--json").document["rate_hz"] == 1000


def test_a_stopped_meter_is_said_to_be(desk: Desk, fsjoule: CommandLine) -> None:
    desk.start_meter()
    assert fsjoule("meter", "set", "--stop", "--json").document["sampling"] is False
    assert "it is stopped and takes no samples: fsjoule meter set --start" in fsjoule("meter", "info").out
    done = fsjoule("meter", "run", "--", "true")
    assert done.code == 4
    assert "start it: fsjoule meter set --start" in done.err
    assert fsjoule("meter", "set", "--start", "--json").document["sampling"] is True


# ----------------------------------------------------------------------------------------------------------- watching


def test_watch_as_json_gives_a_line_a_second(desk: Desk, fsjoule: CommandLine) -> None:
    desk.start_meter()
    with marking(desk):
        done = fsjoule("meter", "watch", "--seconds", "2.2", "--json")
    lines = [json.loads(line) for line in done.out.splitlines()]
    assert len(lines) == 3
    last = lines[-1]
    assert last["watts"] == pytest.approx(1.25, rel=0.01)
    assert last["joules"] == pytest.approx(1.25 * last["seconds"], rel=0.01)
    assert (last["missed"], last["lost"], last["simulated"]) == (0, 0, True)
    assert {mark["text"] for line in lines for mark in line["marks"]} == {"S1"}


def test_watch_without_a_terminal_gives_plain_lines(desk: Desk, fsjoule: CommandLine) -> None:
    desk.start_meter()
    done = fsjoule("meter", "watch", "--seconds", "1")
    assert re.fullmatch(r" +\d\.\d s +1\.2\d+ W +\d\.\d+ V +0\.2\d+ A +\d\.\d+ J  simulated\n", done.out), done.out


def test_watch_on_a_terminal_plots_until_ctrl_c(desk: Desk) -> None:
    desk.start_meter()
    watch = pexpect.spawn(
        str(PROGRAM),
        ["meter", "watch", "--meter", str(desk.stream)],
        dimensions=(40, 100),
        timeout=LIMIT_S,
        encoding="utf-8",
    )
    watch.expect("meter SIM0")
    desk.mark("S1")
    watch.expect(r"S1 \(mark line\)")
    watch.expect("[\u2801-\u28ff]")  # a dot of the plot
    watch.expect("0 missed, 0 lost")
    watch.sendintr()
    watch.expect(pexpect.EOF)
    watch.close()
    assert watch.exitstatus == 0


def test_watch_says_that_the_meter_is_gone(desk: Desk) -> None:
    simulator = desk.start_meter()
    watch = pexpect.spawn(
        str(PROGRAM),
        ["meter", "watch", "--meter", str(desk.stream)],
        dimensions=(40, 100),
        timeout=LIMIT_S,
        encoding="utf-8",
    )
    watch.expect("0 missed, 0 lost")
    process.stop(simulator)
    watch.expect("the meter has been silent for")
    desk.start_meter()
    watch.expect("Ctrl-C ends")
    watch.sendintr()
    watch.expect(pexpect.EOF)
    watch.close()
    assert watch.exitstatus == 0


# ---------------------------------------------------------------------------------------------------------- recording


def test_record_writes_what_the_meter_sent_twice(desk: Desk, fsjoule: CommandLine, tmp_path: Path) -> None:
    desk.start_meter()
    parquet, table = tmp_path / "trace.parquet", tmp_path / "trace.csv"
    with marking(desk):
        document = fsjoule("meter", "record", "--seconds", "5", "-o", parquet, "-o", table, "--json").document
    trace = read_trace(parquet)
    assert trace.counts.received == document["received"]
    assert (trace.missed, trace.lost) == (document["missed"], document["lost"]) == (0, 0)
    assert 5000 <= document["received"] < 7000
    assert {mark.text for mark in trace.marks} == {"S1"}
    assert float(trace.power_w.sum()) / 1000 == pytest.approx(document["joules"], rel=1e-9)
    with table.open() as file:
        rows = list(csv.DictReader(file))
    assert [int(row["timestamp_time_us"]) for row in rows] == trace.times_us.tolist()
    assert np.allclose([float(row["board_power"]) for row in rows], trace.power_w, atol=1e-6)
    # The emulated meter's clock is the host's own.
    drift = document["drift"]
    assert abs(drift["ppm"]) < max(5 * drift["uncertainty_ppm"], 200)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_recording_that_is_ended_is_whole(desk: Desk, tmp_path: Path, number: signal.Signals) -> None:
    desk.start_meter()
    path = tmp_path / "trace.parquet"
    command = started(desk.closing, "meter", "record", "-o", path, "--meter", desk.stream)
    wait(lambda: any(tmp_path.iterdir()), "nothing is recorded")
    time.sleep(1.5)
    command.send_signal(number)
    done = finished(command)
    assert done.code == 0, done.err
    assert read_trace(path).counts.received > 1000
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


def test_a_recording_ends_with_its_stream_and_keeps_it(desk: Desk, tmp_path: Path) -> None:
    simulator = desk.start_meter()
    path = tmp_path / "trace.parquet"
    command = started(desk.closing, "meter", "record", "-o", path, "--meter", desk.stream)
    wait(lambda: any(tmp_path.iterdir()), "nothing is recorded")
    time.sleep(1.5)
    process.stop(simulator)
    desk.start_meter()
    done = finished(command)
    assert done.code == 4
    assert re.search(r"the recording ends after \d+ s: the meter began another stream", done.err), done.err
    assert read_trace(path).counts.received > 1000


def test_a_full_disk_costs_the_file_on_it_only(desk: Desk, tmp_path: Path) -> None:
    desk.start_meter()
    full, other = tmp_path / "trace.csv", tmp_path / "trace.parquet"
    # A limit of the size of files, 64 KiB, is as good as a small disk; a second of samples is 24 KiB of text.
    record = f"{PROGRAM} meter record --seconds 6 --meter {desk.stream} -o {full} -o {other} --json"
    done = finished(
        subprocess.Popen(
            ["bash", "-c", f"ulimit -f 64; exec {record}"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
    )
    assert done.code == 4
    assert re.search(
        r"trace.csv could not be written: File too large; what it held is lost\n  hint: make room", done.err
    )
    assert not full.exists()
    assert read_trace(other).counts.received == done.document["received"] >= 6000


def test_a_gap_is_counted(desk: Desk, tmp_path: Path) -> None:
    desk.start_meter()
    ser2net = desk.start_ser2net()
    path = tmp_path / "trace.parquet"
    command = started(
        desk.closing,
        "meter",
        "record",
        "--seconds",
        "5",
        "--json",
        "-o",
        path,
        "--meter",
        f"rfc2217://127.0.0.1:{desk.port}",
    )
    wait(lambda: any(tmp_path.iterdir()), "nothing is recorded")
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
    command.send_signal(signal.SIGTERM)
    done = finished(command)
    assert (done.code, done.out) == (3, "got it\n")
    assert "gross" in done.err


# -------------------------------------------------------------------------------------------------------- calibration

OFFSET_UV, GAIN_PPM, BUS_PPM = 42.0, 7000, -4000


class Bench:
    """A supply and a load that can be changed, as the emulated meter's feed."""

    def __init__(self, path: Path) -> None:
        self.volts, self.amperes = 5.0, 0.0
        self._feed = FeedWriter(path)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def draw(self, volts: float, amperes: float) -> None:
        self.volts, self.amperes = volts, amperes
        time.sleep(0.3)  # the meter is behind the feed

    def close(self) -> None:
        self._ended.set()
        self._thread.join()
        self._feed.close()

    def _run(self) -> None:
        while not self._ended.wait(0.002):
            self._feed.append(time.monotonic_ns(), self.volts, self.amperes)


@pytest.fixture
def load(desk: Desk) -> Generator[Bench]:
    """A meter that is off in every way, and what is connected to it."""
    feed = desk.devices / "feed"
    connected = Bench(feed)
    errors = ("--chip-offset-uv", str(OFFSET_UV), "--chip-gain-ppm", str(GAIN_PPM), "--chip-bus-gain-ppm", str(BUS_PPM))
    desk.start_meter("--feed", str(feed), "--storage", str(desk.devices / "flash"), "--chip-noise-uv", "15", *errors)
    yield connected
    connected.close()


def _reads(fsjoule: CommandLine) -> float:
    done = fsjoule("meter", "watch", "--seconds", "1", "--json")
    return json.loads(done.out.splitlines()[-1])["mean_watts"]


def test_calibration_in_three_calls_makes_the_meter_right(load: Bench, fsjoule: CommandLine) -> None:
    load.draw(5.0, 0.25)
    assert _reads(fsjoule) == pytest.approx(1.25 * (1 + (GAIN_PPM + BUS_PPM) * 1e-6) + 0.0021, rel=0.003)
    load.draw(5.0, 0.0)
    zeroed = fsjoule("meter", "calibrate", "--zero", "--json").document
    assert zeroed["measured"][0]["offset_uv"] == pytest.approx(OFFSET_UV, abs=2)
    assert (
        zeroed["after"]["expected_uncertainty"]["offset_w"] < zeroed["before"]["expected_uncertainty"]["offset_w"] / 10
    )
    load.draw(5.0, 0.05)
    low = fsjoule("meter", "calibrate", "--low-ua", 50_000, "--low-uv", 5_000_000, "--reference-uncertainty", 200)
    assert "the low point is taken" in low.err
    load.draw(4.95, 0.7)
    options = ("--high-ua", 700_000, "--high-uv", 4_950_000, "--reference-uncertainty", 200, "--save")
    done = fsjoule("meter", "calibrate", *options, "--json").document
    calibration = done["after"]["calibration"]
    assert calibration["current_gain_ppm"] == pytest.approx(-GAIN_PPM, abs=150)
    assert calibration["bus_gain_ppm"] == pytest.approx(-BUS_PPM, abs=1000)  # the bus has steps of 8 mV
    assert done["saved"] is True
    assert done["after"]["expected_uncertainty"]["total_w"] < done["before"]["expected_uncertainty"]["total_w"] / 3
    load.draw(5.0, 0.25)
    assert _reads(fsjoule) == pytest.approx(1.25, rel=0.002)
    forgotten = fsjoule("meter", "calibrate", "--forget", "--json").document
    assert forgotten["after"]["calibration"]["gain_date"] is None


def test_calibration_by_hand_asks_for_everything(load: Bench, desk: Desk) -> None:
    walk = pexpect.spawn(
        str(PROGRAM),
        ["meter", "calibrate", "--meter", str(desk.stream)],
        dimensions=(40, 160),
        timeout=LIMIT_S,
        encoding="utf-8",
    )
    walk.expect("before: .*expected uncertainty")
    walk.expect("Zero: disconnect the load.*Ready")
    walk.sendline("y")
    walk.expect(r"offset \+4\d\.\d+ uV")
    walk.expect("Gain: have you a reference")
    walk.sendline("y")
    walk.expect("in ppm")
    walk.sendline("300")
    for name, volts, amperes in (("low", 5.0, 0.05), ("high", 4.95, 0.7)):
        walk.expect(f"Connect the {name} load.*current, in A")
        load.draw(volts, amperes)
        walk.sendline(str(amperes))
        walk.expect("voltage, in V")
        walk.sendline(str(volts))
        walk.expect("the meter reads")
    walk.expect(r"after: .*current -6\d\d\d ppm")
    walk.expect("Save it on the meter")
    walk.sendline("n")
    walk.expect("not saved")
    walk.expect(pexpect.EOF)
    walk.close()
    assert walk.exitstatus == 0


def test_a_calibration_with_the_wrong_load_says_what_it_saw(load: Bench, fsjoule: CommandLine) -> None:
    load.draw(5.0, 0.25)
    zero = fsjoule("meter", "calibrate", "--zero")
    assert zero.code == 4
    assert re.search(r"the shunt reads 252\d\d uV, .*\n  hint: disconnect the load", zero.err), zero.err
    point = ("--low-ua", 50_000, "--low-uv", 5_000_000, "--reference-uncertainty", 200)
    assert fsjoule("meter", "calibrate", *point).code == 0
    point = ("--high-ua", 700_000, "--high-uv", 5_000_000, "--reference-uncertainty", 200)
    high = fsjoule("meter", "calibrate", *point)
    assert high.code == 4
    assert re.search(r"by the reference it should be 70000 uV\n  hint: two points at least 0.2 A apart", high.err), (
        high.err
    )
    assert fsjoule("meter", "info", "--json").document["calibration"]["gain_date"] is None


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ((), "nothing is to be calibrated"),
        (("--low-ua", "1000"), "the low point is not whole"),
        (("--high-ua", "1000", "--high-uv", "1000"), "how well the reference is known is not said"),
        (
            ("--zero", "--low-ua", "1000", "--low-uv", "1000", "--reference-uncertainty", "9"),
            "zero and the two points are different loads",
        ),
    ],
)
def test_calibration_options_that_do_not_fit(fsjoule: CommandLine, options: tuple[str, ...], complaint: str) -> None:
    done = fsjoule("meter", "calibrate", *options)
    assert done.code == 2
    assert complaint in done.err


# ---------------------------------------------------------------------------------------------------------- self-test


def test_the_self_test_passes_and_fails_in_words(desk: Desk, fsjoule: CommandLine) -> None:
    simulator = desk.start_meter("--storage", str(desk.devices / "flash"))
    document = fsjoule("meter", "selftest", "--json").document
    assert (document["passed"], document["failures"]) == (True, [])
    assert document["shunt_mv"] == pytest.approx(25.0, abs=0.1)
    process.stop(simulator)
    desk.start_meter()  # without storage
    done = fsjoule("meter", "selftest")
    assert done.code == 5
    assert "there is no storage for settings" in done.out
    assert "failed" in done.out
