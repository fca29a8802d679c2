"""`fsjoule meter` on the real simulator: finding a meter, knowing it, setting it, watching it."""

from __future__ import annotations

import json
import os
import re
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager

import pexpect
import pytest
from command_line import PROGRAM, CommandLine, finished, started
from interruptible import interruptible
from meter_desk import LIMIT_S, Desk, desk
from meter_wire import INFO, frame

from fsjoule.host import process
from fsjoule.meter.links.finder import Candidate, find
from fsjoule.meter.links.streams import NetworkStream, TtyStream


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
    assert telnet.info.serial_number == "DESK 1"
    why_not = {each.address: each.why_not for each in others if each.info is None}
    assert f"in use by cat (process {thief.pid})" in why_not["held"]
    assert why_not["silent"] == "silent"
    assert why_not["garbage"] == "not a meter"
    assert why_not["nothing"] == "cannot be opened: No such file or directory"


@contextmanager
def desk_of(_name: str) -> Generator[Desk]:
    with desk() as another:
        yield another


def test_info_tells_what_the_meter_is_and_what_follows_from_it(desk: Desk, fsjoule: CommandLine) -> None:
    desk.start_meter("--serial-number", "DESK 1", "--range-mv", "40", "--storage", str(desk.devices / "flash"))
    text = fsjoule("meter", "info").out
    for part in ("DESK 1  simulated", "625 a second; shunt 12 bits, bus 12 bits", "40 mV: up to 0.4 A", "never"):
        assert part in text
    assert re.search(r"uncertainty +\d\.\d+ mW, 0\.\d+% at 5 V, 0\.25 A", text)
    assert "not calibrated yet: zero, gain" in text
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
        ("ttyUSB0", 2, "'ttyUSB0' is not a meter's address\n  hint: an address is /dev/ttyUSB0, HOST:PORT"),
        ("host:99999", 2, "is not a meter's address"),
        ("/dev/fsjoule-nothing", 4, "there is no port /dev/fsjoule-nothing\n  hint: fsjoule meter list"),
        ("lab:nothing", 4, "the lab 'nothing' is down\n  hint: fsjoule lab up --name nothing"),
        ("127.0.0.1:1", 4, r"the meter sent no info \(.*refused.*\)\n  hint: is it plugged in"),
    ):
        done = fsjoule("meter", "info", "--meter", address)
        assert done.code == code
        assert re.search(complaint, done.err), done.err
    assert fsjoule("meter", "set").code == 2
    both = fsjoule("meter", "info", "--lg-env", "env/virtual.yaml")
    assert "both a meter's address and an environment file are given" in both.err
    with babble(desk.start_nothing()):
        assert "without a single frame: is it a meter" in fsjoule("meter", "info").err


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
    assert "the meter speaks protocol 7; this version of fsjoule supports protocol 3" in done.err
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
    assert fsjoule("meter", "info", "--json").document["rate_hz"] == 625


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
    with desk.marking():
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


def _watch(desk: Desk) -> pexpect.spawn[str]:
    program, *arguments = interruptible(PROGRAM, "meter", "watch", "--meter", desk.stream)
    return pexpect.spawn(
        program,
        arguments,
        dimensions=(40, 100),
        timeout=LIMIT_S,
        encoding="utf-8",
        codec_errors="replace",  # Ctrl-C drops what the terminal has not shown yet
    )


def test_watch_on_a_terminal_plots_until_ctrl_c(desk: Desk) -> None:
    desk.start_meter()
    watch = _watch(desk)
    watch.expect("meter SIM0")
    desk.mark("S1")
    watch.expect(r"S1 \(mark line\)")
    watch.expect("[\u2801-\u28ff]")  # a dot of the plot
    watch.expect("0 missed, 0 lost")
    watch.sendintr()
    watch.expect(pexpect.EOF)
    watch.close()
    assert watch.exitstatus == 0, watch.before


def test_watch_says_that_the_meter_is_gone(desk: Desk) -> None:
    simulator = desk.start_meter()
    watch = _watch(desk)
    watch.expect("0 missed, 0 lost")
    process.stop(simulator)
    watch.expect("the meter has been silent for")
    desk.start_meter()
    watch.expect("Ctrl-C ends")
    watch.sendintr()
    watch.expect(pexpect.EOF)
    watch.close()
    assert watch.exitstatus == 0, watch.before


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
