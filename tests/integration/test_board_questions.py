"""What `fsjoule board new` asks at a terminal: only what the chosen flasher needs."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import command_line

from fsjoule.lab import read_environment


class Terminal(io.StringIO):
    """A terminal at which somebody types these lines."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("flasher", "device"),
    [
        ("", "Serial number of the SD mux"),
        ("fastboot", "ID_PATH of the board's USB device"),
        ("fastboot-udp", "The board's address"),
        ("in-place", ""),
        ("kept", ""),
    ],
)
def test_only_what_the_flasher_needs_is_asked(
    flasher: str, device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    # Enter takes what the question shows in brackets, which is the first board here.
    lines = ["", flasher, "", "", "http://outlet7.lab", "A50285BI", "BLACKPILL", "this-one"]
    monkeypatch.setattr(sys, "stdin", Terminal("".join(f"{line}\n" for line in lines)))
    done = command_line(monkeypatch, capfd)("board", "new", "bone7", "--into", tmp_path)
    assert done.code == 0, done.err
    assert "[beaglebone-black]" in done.err
    devices = ("Serial number of the SD mux", "ID_PATH of the board's USB device", "The board's address")
    assert [each for each in devices if each in done.err] == [each for each in (device,) if each]
    exporter = (tmp_path / "labgrid" / "bone7" / "exporter.yaml").read_text()
    assert ("this-one" in exporter) == bool(device)


def test_a_joulescope_takes_one_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    run = command_line(monkeypatch, capfd)
    words = ("--from", "beaglebone-black", "--into", tmp_path, "--instrument")
    where = ("--outlet-host", "http://outlet7.lab", "--console", "A50285BI", "--mux", "1234", "--marks", "A50285BJ")
    assert run("board", "new", "bone7", *words, "joulescope:js110/002557", *where).code == 0
    monkeypatch.chdir(tmp_path)
    done = run("board", "check", "bone7", "--no-loader")  # its name is enough in its folder
    assert (done.code, "nothing wrong was found" in done.out) == (0, True)
    assert "meter:" not in (tmp_path / "labgrid" / "bone7" / "exporter.yaml").read_text()
    wrong = run("board", "new", "bone8", *words, "joulescope")
    assert (wrong.code, "joulescope:MODEL/SERIAL" in wrong.err) == (2, True)
    deaf = run("board", "new", "bone8", *words, "joulescope:js110/002557", "--marks-on-console")
    assert (deaf.code, "only fsjoule's own meter hears the marks on the console" in deaf.err) == (2, True)


def test_without_outlet_and_mux_somebody_switches_and_the_meter_may_be_an_instrument(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    lines = ["", "kept", "", "manual", "A50285BI", "joulescope:js110/002557", "A50285BJ"]
    monkeypatch.setattr(sys, "stdin", Terminal("".join(f"{line}\n" for line in lines)))
    run = command_line(monkeypatch, capfd)
    done = run("board", "new", "bone7", "--into", tmp_path)
    assert (done.code, "values are still" in done.err, "The outlet's address" in done.err) == (0, False, False), (
        done.err
    )
    file = tmp_path / "env" / "bone7.yaml"
    assert run("board", "check", file, "--no-loader").code == 0
    assert "NetworkPowerPort" not in (tmp_path / "labgrid" / "bone7" / "exporter.yaml").read_text()
    found = read_environment(file)
    assert {"ManualPowerDriver", "InstrumentDriver", "MarkLineDriver"} <= {driver.cls for driver in found.drivers}
    assert "without an outlet: somebody must switch the board when asked" in found.does_without


@pytest.mark.parametrize(("at_a_terminal", "code", "said"), [(True, 0, "ON and press enter"), (False, 1, "a terminal")])
def test_pytest_asks_at_the_terminal(at_a_terminal: bool, code: int, said: str, tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "from fsjoule.pytest_plugin import _by_hand\n"
        "def test_it(pytestconfig):\n    _by_hand(pytestconfig, 'Turn it ON and press enter')\n"
    )
    ours, theirs = pty.openpty()
    os.write(ours, b"\n")
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(tmp_path)]
    stdin = theirs if at_a_terminal else subprocess.DEVNULL
    done = subprocess.run(words, stdin=stdin, capture_output=True, text=True, check=False, timeout=60, cwd=tmp_path)
    os.close(ours)
    os.close(theirs)
    assert (done.returncode, said in done.stdout) == (code, True), done.stdout
