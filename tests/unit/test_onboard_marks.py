from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import meter_wire as wire
import pytest
from busybox import path_with

from fsjoule.bench.onboard import marks as onboard
from fsjoule.errors import LabError, MeasurementInvalid
from fsjoule.model import DeviceCounters, MarkLine

BEFORE = "cpu  100 0 50 800 20 0 5 0 0 0\ncpu0 1 2 3\nintr 5 6\n 10 0 80 5 20 0 160 9 0 30 14 0 0 0 0 2 1\n"
AFTER = "cpu  150 0 80 900 30 0 10 0 0 0\ncpu0 1 2 3\nintr 5 6\n 14 0 112 9 30 0 1184 14 0 75 14 1 0 8 0 5 1\n"


def device_of(before: str, after: str) -> DeviceCounters:
    device = onboard.usage(before, after).device
    assert device is not None
    return device


def test_counters_are_differences_in_bytes() -> None:
    usage = onboard.usage(BEFORE, AFTER)
    assert usage.cpu_busy_s == pytest.approx((50 + 30 + 5) / 100)
    device = device_of(BEFORE, AFTER)
    assert (device.reads, device.read_bytes) == (4, 32 * 512)
    assert (device.writes, device.written_bytes) == (10, 1024 * 512)
    assert (device.flushes, device.discards, device.request_ms) == (3, 1, 9)


def test_a_device_that_worked_and_was_never_busy_was_not_counted() -> None:
    """A kernel of 32 bits counts from five minutes after its boot: neither 0 nor a part of the window is the answer."""
    assert device_of(BEFORE, AFTER).busy_ms == 45
    never = BEFORE.replace("0 30 14", "0 0 14")
    assert device_of(never, AFTER).busy_ms is None
    assert device_of(never, never).busy_ms is None
    unused = BEFORE.replace("10 0 80 5 20 0 160 9 0 30 14", "0 0 0 0 0 0 0 0 0 0 0")
    assert device_of(unused, AFTER).busy_ms == 75
    assert device_of(unused, unused).busy_ms == 0


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


@pytest.fixture
def board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the real scripts, which takes the place of the board's, and a file `uart` for the marks."""
    monkeypatch.setenv("PATH", path_with(tmp_path / "tools", "cat"))
    write_scripts(tmp_path)
    os.mkfifo(tmp_path / Path(onboard.GATE).name)
    return tmp_path


def write_scripts(folder: Path, *, events: tuple[str, ...] = ()) -> None:
    counters = (f"/sys/class/block/{next(Path('/sys/class/block').iterdir()).name}/stat",)
    mark = folder / "uart"
    for path, text in onboard.scripts(mark_line=MarkLine(str(mark)), counters=counters, events=events).items():
        script = folder / Path(path).name
        here = text.decode().replace(onboard.DIRECTORY, str(folder))
        script.write_text(here.replace(f" > {mark}", f" >> {mark}"))
        script.chmod(0o755)


def marks(board: Path) -> list[str]:
    """The texts of the lines on the UART, each of which has its check."""
    lines = (board / "uart").read_text().split() if (board / "uart").exists() else []
    assert lines == [wire.checked(line.split("~")[1]) for line in lines]
    return [line.split("~")[1] for line in lines]


def test_the_scripts_run_in_a_plain_shell(board: Path) -> None:
    """The real scripts in the host's shell."""
    done = subprocess.run([board / "timed", "17", "", "sh", "-c", "exit 3"], check=False, timeout=30)
    assert done.returncode == 3
    assert marks(board) == ["S17", "E17"]
    spent = onboard.spent((board / "duration").read_text(), unmounted=False)
    assert 0 <= spent.duration_s < 30
    assert spent.unmount_s is None
    assert 0 <= spent.user_s + spent.sys_s < 30
    onboard.usage((board / "before").read_text(), (board / "after").read_text())
    unmount = f"sh -c 'touch \"$1\"; exit 4' sh '{board}/two words'"
    done = subprocess.run([board / "timed", "17", unmount, "true"], check=False, timeout=30)
    assert done.returncode == 1
    assert (board / "two words").exists()
    subprocess.run([board / "start", "18", "1", "threads"], check=True, timeout=30)
    subprocess.run([board / "stop", "18", "threads"], check=True, timeout=30)
    assert marks(board)[2:] == ["S17", "E17", "S18", "E18"]
    assert onboard.kernel_thread_count((board / "threads-before").read_text()) >= 0
    assert (board / "threads-after").exists()


def test_jobs_begin_when_the_last_of_them_has_come(board: Path) -> None:
    early = [subprocess.Popen([board / "start", "3", "3"]) for _ in range(2)]
    wait_for((board / "start-3-2").exists)
    assert not marks(board)
    assert [job.poll() for job in early] == [None, None]
    subprocess.run([board / "start", "3", "3"], check=True, timeout=30)
    assert [job.wait(timeout=30) for job in early] == [0, 0]
    assert marks(board) == ["S3"]
    onboard.usage((board / "before").read_text(), (board / "before").read_text())


def test_the_mark_at_the_end_of_several_jobs_comes_when_all_have_ended(board: Path) -> None:
    seen = f"test ! -s {board / 'uart'} && exit 3"
    done = subprocess.run([board / "jobs", "5", "", "sh", "-c", seen], check=False, timeout=30)
    assert done.returncode == 3
    assert marks(board) == ["E5"]
    assert (board / "after").exists()
    assert not (board / "threads-after").exists()


def test_a_counter_counts_around_both_marks(board: Path) -> None:
    """The scripts wait for its answers."""
    write_scripts(board, events=("instructions",))
    orders, answers = (board / Path(each).name for each in (onboard.COUNTER, onboard.COUNTER_ANSWER))
    for fifo in (orders, answers):
        os.mkfifo(fifo)
    heard: list[tuple[str, int]] = []

    # Open both ways, as perf has them: nobody waits for the other end.
    with os.fdopen(os.open(orders, os.O_RDWR)) as asked, os.fdopen(os.open(answers, os.O_RDWR), "w") as told:

        def count() -> None:
            while len(heard) < 4:
                heard.append((asked.readline().strip(), len(marks(board))))
                told.write("ack\n")
                told.flush()

        with ThreadPoolExecutor(1) as threads:
            counter = threads.submit(count)
            for words in (("timed", "7", "", "true"), ("start", "8", "1"), ("stop", "8", "")):
                subprocess.run([board / words[0], *words[1:]], check=True, timeout=30)
            counter.result(timeout=30)
    assert heard == [("enable", 0), ("disable", 2), ("enable", 2), ("disable", 4)]


def test_a_missing_duration_is_refused() -> None:
    with pytest.raises(MeasurementInvalid, match="cannot be read"):
        onboard.spent("", unmounted=False)


def listing(proc: Path) -> str:
    """The shell's line that lists all processes, for a folder that takes the place of /proc."""
    command = onboard.THREADS[-1]
    assert command.count("/proc/") == 1
    return command.replace("/proc/", f"{proc}/")


def test_a_process_that_ends_while_all_are_listed_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A link that leads nowhere is what cat meets then: listed, and gone when it is opened."""
    for pid, line in enumerate(THREADS.splitlines(), 1):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "stat").write_text(f"{line}\n")
    (tmp_path / "3" / "stat").unlink()
    (tmp_path / "3" / "stat").symlink_to("ended")
    argv = (*onboard.THREADS[:-1], listing(tmp_path))
    monkeypatch.setenv("PATH", path_with(tmp_path / "tools", "cat"))
    done = subprocess.run(argv, check=False, capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "".join(f"{line}\n" for line in THREADS.splitlines() if not line.startswith("12 "))


def test_a_board_without_any_process_is_not_believed() -> None:
    with pytest.raises(LabError, match="shows no process"):
        onboard.kernel_thread_count("")


def wait_for(seen: Callable[[], bool]) -> None:
    end_s = time.monotonic() + 30
    while not seen():
        assert time.monotonic() < end_s
        time.sleep(0.01)


THREADS = """\
2 (kthreadd) S 0 0 0 0 -1 2129984 0 0 0 0 0 1 0 0 20 0 1 0 0 0 0
11 (kworker/u2:0-btrfs-endio) I 2 0 0 0 -1 69238880 0 0 0 0 0 40 0 0 20 0 1 0 0 0 0
12 (kworker/u2:1+btrfs-endio) I 2 0 0 0 -1 69238880 0 0 0 0 0 10 0 0 20 0 1 0 0 0 0
13 (mmcqd/1) S 2 0 0 0 -1 69238880 0 0 0 0 1 2 0 0 20 0 1 0 0 0 0
90 (sh (x) S) S 1 90 90 0 -1 0 0 0 0 0 500 500 0 0 20 0 1 0 0 0 0
"""


def test_kernel_threads_are_told_by_name() -> None:
    after = THREADS.replace(" 0 40 0", " 3 90 0").replace(" 0 10 0", " 0 20 0").replace(" 1 2 0", " 1 4 0")
    after += "14 (kworker/0:3) I 2 0 0 0 -1 69238880 0 0 0 0 0 7 0 0 20 0 1 0 0 0 0\n"
    found = onboard.kernel_threads_s(THREADS, after)
    assert found == pytest.approx({"kworker btrfs-endio": 0.63, "kworker": 0.07, "mmcqd": 0.02})
    assert onboard.kernel_threads_s(THREADS, THREADS) == {}
    assert (onboard.kernel_thread_count(THREADS), onboard.kernel_thread_count(after)) == (1, 1)
    after += "15 (nilfs_segctord) S 2 0 0 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 0 0 0\n"
    assert onboard.kernel_thread_count(after) == 2


def test_what_timed_leaves_is_read() -> None:
    text = "1000000000 3500000000 4000000000 1e-9\n0m0.01s 0m0.02s\n1m0.500000s 0m1.25s\n"
    found = onboard.spent(text, unmounted=True)
    assert (found.duration_s, found.unmount_s) == pytest.approx((2.5, 0.5))
    assert (found.user_s, found.sys_s) == pytest.approx((60.5, 1.25))
    assert onboard.spent(text, unmounted=False).unmount_s is None
