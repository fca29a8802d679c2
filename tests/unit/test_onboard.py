from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from fsjoule import onboard
from fsjoule.errors import MeasurementInvalid

BEFORE = "cpu  100 0 50 800 20 0 5 0 0 0\ncpu0 1 2 3\nintr 5 6\n 10 0 80 5 20 0 160 9 0 30 14 0 0 0 0 2 1\n"
AFTER = "cpu  150 0 80 900 30 0 10 0 0 0\ncpu0 1 2 3\nintr 5 6\n 14 0 112 9 30 0 1184 14 0 75 14 1 0 8 0 5 1\n"


def test_counters_are_differences_in_bytes() -> None:
    usage = onboard.usage(BEFORE, AFTER)
    assert usage.cpu_busy_s == pytest.approx((50 + 30 + 5) / 100)
    device = usage.device
    assert (device.reads, device.read_bytes) == (4, 32 * 512)
    assert (device.writes, device.written_bytes) == (10, 1024 * 512)
    assert (device.flushes, device.discards, device.request_ms) == (3, 1, 9)


def test_the_schedulers_count_goes_before_the_ticks() -> None:
    version = "version 15\ntimestamp 4294\n"
    before = BEFORE.replace("\n 10", f"\n{version}cpu0 0 0 0 0 0 0 1500000000 7 8\ncpu1 0 0 0 0 0 0 20 7 8\n 10")
    after = AFTER.replace("\n 14", f"\n{version}cpu0 0 0 0 0 0 0 1750000003 7 8\ncpu1 0 0 0 0 0 0 30 7 8\n 14")
    assert onboard.usage(before, after).cpu_busy_s == pytest.approx(0.250000013)
    assert onboard.usage(BEFORE, after).cpu_busy_s == pytest.approx(0.85)
    old = (text.replace("version 15", "version 13") for text in (before, after))
    assert onboard.usage(*old).cpu_busy_s == pytest.approx(0.85)


@pytest.mark.parametrize(
    "text", ["", "cpu 1 2 3\n", BEFORE.split("\n 10", maxsplit=1)[0], "cat: /sys/x: No such file\n"]
)
def test_incomplete_counters_are_refused(text: str) -> None:
    with pytest.raises(MeasurementInvalid, match="incomplete"):
        onboard.usage(text, AFTER)


def test_the_scripts_run_in_a_plain_shell(tmp_path: Path) -> None:
    """The real scripts in the host's shell, with a file for the UART and a folder for the board's."""
    marks = tmp_path / "uart"
    block = next(Path("/sys/class/block").iterdir()).name
    for path, text in onboard.scripts(mark_device=str(marks), card_device=block).items():
        script = tmp_path / Path(path).name
        script.write_bytes(text.replace(onboard.DIRECTORY.encode(), str(tmp_path).encode()).replace(b" > ", b" >> "))
        script.chmod(0o755)
    done = subprocess.run([tmp_path / "timed", "17", "sh", "-c", "exit 3"], check=False, timeout=30)
    assert done.returncode == 3
    assert marks.read_text().split() == ["S17", "E17"]
    assert 0 <= onboard.duration_s((tmp_path / "duration").read_text()) < 30
    onboard.usage((tmp_path / "before").read_text(), (tmp_path / "after").read_text())
    subprocess.run([tmp_path / "start", "18"], check=True, timeout=30)
    subprocess.run([tmp_path / "stop", "18"], check=True, timeout=30)
    assert marks.read_text().split()[2:] == ["S18", "E18"]


def test_a_missing_duration_is_refused() -> None:
    with pytest.raises(MeasurementInvalid, match="cannot be read"):
        onboard.duration_s("")
