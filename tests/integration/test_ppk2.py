"""The emulated PPK2 over its terminals: all commands, both kinds of marks, faults, and our own meter beside it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import meter_wire as wire
import numpy as np
import pytest
from command_line import CommandLine
from meter_desk import desk
from waiting import wait_for

from fsjoule.errors import ConfigError, MeterError
from fsjoule.host import process
from fsjoule.meter.energy import energy
from fsjoule.meter.links import ppk2
from fsjoule.meter.links.client import MeterClient
from fsjoule.meter.links.mark_listener import MarkListener
from fsjoule.meter.links.pumped import PumpedTty
from fsjoule.meter.links.receiver import Receiver
from fsjoule.meter.links.streams import PortHeldError, TtyStream
from fsjoule.meter.protocol.ppk2 import STOP
from fsjoule.model import MarkSource, Window
from fsjoule.store.traces import read_trace
from fsjoule.virtual.board.power import FeedWriter


@dataclass(frozen=True)
class Ppk2Desk:
    devices: Path
    program: subprocess.Popen[bytes]

    @property
    def stream(self) -> Path:
        return self.devices / "ppk2"

    @property
    def mark_line(self) -> Path:
        return self.devices / "mark-line"

    def address(self, **settings: object) -> str:
        return f"ppk2:{self.stream},{','.join(f'{name}={value}' for name, value in settings.items())}"

    def pin(self, level: str) -> None:
        self._write("pin", level.encode())

    def board_says(self, text: str) -> None:
        self._write("wire", text.encode())

    def _write(self, name: str, data: bytes) -> None:
        descriptor = os.open(self.devices / name, os.O_WRONLY | os.O_NOCTTY)
        os.write(descriptor, data)
        os.close(descriptor)

    def unplug(self) -> None:
        self.program.kill()
        self.program.wait()


@contextmanager
def ppk2_desk(*source: str) -> Generator[Ppk2Desk]:
    """The program with a load, `--amperes A` or `--feed PATH`, beside a serial adapter at the board's mark line."""
    devices = Path(tempfile.mkdtemp(prefix="fsjoule-test-", dir="/dev/shm"))
    program = _started("ppk2", devices, {"stream": "ppk2", "pin": "pin"}, *source)
    adapter = _started("serial_adapter", devices, {"wire": "wire", "port": "mark-line"})
    try:
        wait_for(lambda: all((devices / name).exists() for name in ("ppk2", "pin", "wire", "mark-line")), "no PPK2")
        yield Ppk2Desk(devices, program)
    finally:
        process.stop(program)
        process.stop(adapter)
        shutil.rmtree(devices)


def _started(module: str, devices: Path, names: dict[str, str], *more: str) -> subprocess.Popen[bytes]:
    links = [word for option, name in names.items() for word in (f"--{option}-link", str(devices / name))]
    return process.start([sys.executable, "-m", f"fsjoule.virtual.instruments.{module}", *links, *more])


@pytest.fixture
def plugged() -> Generator[Ppk2Desk]:
    with ppk2_desk("--amperes", "0.22") as found:
        yield found


def test_the_commands_take_it(plugged: Ppk2Desk, fsjoule: CommandLine, tmp_path: Path) -> None:
    address = ("--meter", plugged.address(volts=5))
    told = fsjoule("meter", "info", *address, "--json").document
    assert (told["instrument"], told["simulated"], told["settings"]["volts"]) == ("ppk2", True, 5.0)
    assert told["expected_uncertainty"]["gain_w"] == pytest.approx(0.0913 * 1.25, rel=1e-2)
    watched = fsjoule("meter", "watch", *address, "--seconds", "1", "--json").out.splitlines()
    assert json.loads(watched[-1])["watts"] == pytest.approx(1.1, rel=2e-3)
    kept = tmp_path / "trace.parquet"
    recorded = fsjoule("meter", "record", *address, "--seconds", "1", "-o", str(kept), "--json").document
    assert recorded["mean_watts"] == pytest.approx(1.1, rel=2e-3)
    assert len(read_trace(kept).ticks) == recorded["received"] > 900
    ran = fsjoule("meter", "run", *address, "--idle", "0.3", "--json", "--", "sleep", "0.4")
    (run,) = json.loads(ran.err.strip().split("\n")[-1])["runs"]
    assert run["watts"]["value"] == pytest.approx(1.1, rel=2e-3)
    refused = fsjoule("meter", "set", *address, "--rate", "800")
    assert refused.code == 2


def test_a_source_meter_supplies_its_device_while_it_is_open(plugged: Ppk2Desk) -> None:
    """The emulator's device draws only while the output is on, and Ppk2Meter switches it on in either mode."""
    for mode, volts in (("source", 3.3), ("ampere", 5.0)):
        with ppk2.meter(f"{plugged.stream},volts={volts},mode={mode}") as meter:
            meter.arm()
            time.sleep(0.1)
            trace = meter.disarm()
        assert trace.power_w.mean() == pytest.approx(0.22 * volts, rel=5e-3)
        assert trace.info.settings["source"] == (mode == "source")


def test_a_silent_one_is_told_to_stop_and_may_speak_again(plugged: Ppk2Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[bytes] = []
    write = TtyStream.write

    def heard(self: TtyStream, data: bytes) -> None:
        sent.append(data)
        write(self, data)

    monkeypatch.setattr(TtyStream, "write", heard)
    with ppk2.meter(f"{plugged.stream},volts=5") as meter:
        meter.arm()
        plugged.program.send_signal(signal.SIGSTOP)
        time.sleep(0.5)
        meter.take()
        with pytest.raises(MeterError, match="sends no samples"):
            meter.take(whole=True)
        plugged.program.send_signal(signal.SIGCONT)
        wait_for(lambda: meter.take(whole=True).ticks.size > 0, "no samples")
        plugged.program.send_signal(signal.SIGSTOP)
        time.sleep(0.5)
        with pytest.raises(MeterError, match="sends no samples"):
            meter.disarm()
        assert sent[-1] == STOP
        plugged.program.send_signal(signal.SIGCONT)


def test_edges_of_a_pin_and_lines_that_the_host_stamps_agree(plugged: Ppk2Desk) -> None:
    with ppk2.meter(f"{plugged.stream},volts=5,marks=D0") as meter:
        meter.arm()
        listener = MarkListener(lambda: TtyStream(str(plugged.mark_line)), meter.mark_now)
        wait_for(lambda: meter.take().ticks.size > 0, "no samples")
        for number in range(5):
            # As on a busy computer, the emulator may sleep through both edges of a pulse.
            held_up = number == 2
            if held_up:
                plugged.program.send_signal(signal.SIGSTOP)
            plugged.pin("1")
            plugged.board_says(f"{wire.checked(f'S{number}')}\r\n")
            time.sleep(0.1)
            plugged.pin("0")
            if held_up:
                plugged.program.send_signal(signal.SIGCONT)
            time.sleep(0.1)
        listener.close()
        trace = meter.disarm()
    lines = [mark for mark in trace.marks if mark.source is MarkSource.HOST]
    rises = [mark for mark in trace.marks if mark.source is MarkSource.RISING]
    assert [mark.text for mark in lines] == [wire.checked(f"S{number}") for number in range(5)]
    # Steps of the same process, a moment after one another; a busy computer is late.
    late_ms = [(line.time_us - rise.time_us) / 1e3 for line, rise in zip(lines, rises, strict=True)]
    assert np.median(late_ms) == pytest.approx(0, abs=100)


def test_another_device_is_told_from_a_ppk2() -> None:
    with desk() as other:
        other.start_meter()
        with (
            pytest.raises(MeterError, match=r"does not say that it is a PPK2: it answers"),
            ppk2.meter(f"{other.stream},volts=5"),
        ):
            pass
    with desk() as nobody:
        nobody.start_nothing()
        with pytest.raises(MeterError, match="it answers nothing"), ppk2.meter(f"{nobody.stream},volts=5"):
            pass
    with pytest.raises(MeterError, match="there is no port"):
        ppk2.meter("/dev/shm/fsjoule-nothing,volts=5")


def test_a_port_in_use_is_refused(plugged: Ppk2Desk) -> None:
    with ppk2.meter(f"{plugged.stream},volts=5"), pytest.raises(PortHeldError, match="is in use by"):
        PumpedTty(str(plugged.stream))


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        ("", "a PPK2 measures no voltage"),
        ("volts=nine", "volts=nine is no number"),
        ("volts=5.5", "works with 0.8 to 5.0 V"),
        ("volts=5,mode=both", "mode of a PPK2"),
        ("volts=5,marks=D8", "logic input of a PPK2"),
        ("volts=5,rate=1", "no setting 'rate'"),
    ],
)
def test_wrong_settings_are_refused_before_anything_is_opened(words: str, fault: str) -> None:
    with pytest.raises(ConfigError, match=fault):
        ppk2.meter(f"/dev/ttyACM0,{words}" if words else "/dev/ttyACM0")


def test_what_was_recorded_is_kept_when_it_is_unplugged(
    plugged: Ppk2Desk, fsjoule: CommandLine, tmp_path: Path
) -> None:
    threading.Timer(3.0, plugged.unplug).start()
    kept = tmp_path / "trace.parquet"
    done = fsjoule("meter", "record", "--meter", plugged.address(volts=5), "--seconds", "60", "-o", str(kept))
    assert done.code == 4
    assert "is gone" in done.err
    trace = read_trace(kept)
    assert len(trace.ticks) > 500
    assert trace.power_w.mean() == pytest.approx(1.1, rel=5e-3)


def _fed(path: Path, seconds: float, until: Callable[[], bool]) -> None:
    """A board's feed: 1.1 W, and 1.3 W in every other fifth of a second."""
    writer = FeedWriter(path)
    begin = time.monotonic()
    while not until() and time.monotonic() - begin < seconds:
        now = time.monotonic()
        writer.append(time.monotonic_ns(), 5.0, 0.26 if (now - begin) % 0.4 > 0.2 else 0.22)
        time.sleep(0.001)
    writer.close()


def test_it_agrees_with_our_own_meter_at_the_same_supply(tmp_path: Path) -> None:
    """Both follow one feed. Their true difference is the rounding of both, far below the uncertainty of either."""
    feed, ended = tmp_path / "feed", threading.Event()
    board = threading.Thread(target=_fed, args=(feed, 60.0, ended.is_set))
    board.start()
    with desk() as ours, ppk2_desk("--feed", str(feed)) as theirs:
        ours.start_meter("--feed", str(feed))
        client = MeterClient(Receiver(lambda: TtyStream(str(ours.stream))))
        with ppk2.meter(f"{theirs.stream},volts=5") as other:
            client.receiver.wait_info()
            client.receiver.arm()
            other.arm()
            time.sleep(3.0)
            mine, others = client.receiver.disarm(), other.disarm()
        client.receiver.close()
    ended.set()
    board.join()
    found = []
    for trace in (mine, others):
        begin = float(trace.times_us[0])
        # Whole periods of the load, so that it does not matter where they begin.
        found.append(energy(trace, Window(begin + 1e5, begin + 1e5 + 2.4e6), Window(begin + 1e5, begin + 5e5)))
    own, ppk = (each.mean_power_w for each in found)
    assert own.value == pytest.approx(1.2, rel=0.02)
    assert ppk.value == pytest.approx(own.value, rel=0.01)
    assert abs(ppk.value - own.value) < np.hypot(own.uncertainty, ppk.uncertainty)
