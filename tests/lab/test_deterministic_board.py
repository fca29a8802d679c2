"""The virtual board in guest time: one power-on is like the other, to the nanosecond, whatever the host does."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import requests
from bench_runs import only_run, run_bench
from guest_time import guest_time, impatient, session, telling_commands, two_sessions_agree
from lab_leftovers import assert_nothing_left
from virtual_board import PROMPT, BoardProgram, ConsoleUser, board_config
from waiting import wait_for

from fsjoule.bench.profiles import COUNTS_FILE, counts_in
from fsjoule.host import process
from fsjoule.host.cache.libraries import shared_library
from fsjoule.host.paths import project_dir
from fsjoule.images import build_card
from fsjoule.model import INSTRUCTIONS, KERNEL_INSTRUCTIONS, USER_INSTRUCTIONS, Value
from fsjoule.report.allure.tests import attach
from fsjoule.store.reader import load_run
from fsjoule.virtual.board.config import GuestTimeConfig
from fsjoule.virtual.lab import services

PROJECT = Path(__file__).parents[2]
SCRIPT = PROJECT / "tests" / "statistics" / "deterministic_repeat.py"
BENCH_TIMEOUT_S = 1200.0


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BoardProgram]:
    with board_with("6.1", tmp_path_factory.mktemp("board")) as program:
        yield program


@pytest.fixture
def board(program: BoardProgram) -> BoardProgram:
    """Switched off, its card in its slot."""
    program.power(on=False)
    return program


@contextmanager
def board_with(kernel: str, folder: Path, *preloaded: Path) -> Generator[BoardProgram]:
    card = build_card(kernel, "ext4").path
    process.run(["cp", "--sparse=always", card, folder / "card.img"], timeout_s=120)
    probe = Path(":".join(map(str, (*preloaded, services.probe()))))
    guest = GuestTimeConfig(mailbox=folder / "box", probe=probe)
    with BoardProgram(replace(board_config(folder), guest_time=guest)) as program:
        yield program


def test_two_power_ons_are_the_same_to_the_nanosecond(board: BoardProgram) -> None:
    first = two_sessions_agree(board, telling_commands("mmcblk1"))
    # Counting instructions changes nothing.
    assert session(board, impatient, commands=telling_commands("mmcblk1"), profiled=True) == first


def test_a_restless_qemu_does_not_move_the_guests_clock(board: BoardProgram, tmp_path: Path) -> None:
    """Its main loop moves an idle guest's clock, and shall not do so before the guest's last instructions count."""
    commands = ("cat /proc/timer_list | sha256sum", "sleep 2.5")
    ordinary = session(board, lambda _: None, commands=commands)
    restless = shared_library(Path(__file__).with_name("restless_qemu.c"), "restless", root=tmp_path)
    with board_with("6.1", tmp_path, restless) as other:
        # It interrupts instructions at devices, too, which the profile counts twice and says so.
        assert session(other, lambda _: None, commands=commands, profiled=True) == ordinary


def test_power_ons_differ_by_their_seed_alone(board: BoardProgram) -> None:
    drawn: list[str] = []
    for seed in (1, 2, 1):
        board.seed(seed)
        with board.console() as console:
            board.power(on=True)
            console.login()
            drawn.append(console.run("head -c 32 /dev/urandom | sha256sum; sha256sum /proc/timer_list"))
        board.power(on=False)
    first, other, again = drawn
    assert other != first
    assert again == first


def test_a_seed_is_a_number(board: BoardProgram) -> None:
    with pytest.raises(requests.HTTPError, match="400"):
        board.seed("many")


def test_what_the_board_tells_is_what_its_kernel_counts(board: BoardProgram) -> None:
    """Bytes of the card, and time that tasks ran, against the guest's own counters over the same stretch."""
    with board.console() as console:
        board.power(on=True)
        console.login()
        before, sectors_before, ran_before = guest_time(board), *counted(console)
        console.run(
            "dd if=/dev/mmcblk1p3 of=/dev/null bs=1M count=24; i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done"
        )
        sectors_after, ran_after = counted(console)
        after = guest_time(board)
    read_bytes = after["card_read_bytes"] - before["card_read_bytes"]
    assert read_bytes >= 24 << 20
    assert read_bytes == pytest.approx((sectors_after - sectors_before) * 512, abs=1 << 20)
    busy_s = after["busy_seconds"] - before["busy_seconds"]
    # Ends of the stretch differ by the programs that read the counters.
    assert busy_s == pytest.approx((ran_after - ran_before) / 1e9, abs=0.15)
    assert 0 < busy_s <= after["seconds"] - before["seconds"]


def counted(console: ConsoleUser) -> tuple[int, int]:
    """Sectors read, and nanoseconds in which tasks ran."""
    lines = console.run("cat /sys/block/mmcblk1/stat; grep ^cpu0 /proc/schedstat").splitlines()
    return int(lines[-2].split()[2]), int(lines[-1].split()[7])


def test_its_time_stands_still_while_it_waits_and_not_while_it_works(board: BoardProgram) -> None:
    with board.console() as console:
        board.power(on=True)
        console.login()
        wait_for(lambda: guest_time(board)["stands_still"], "it waits")
        seen = guest_time(board)
        time.sleep(1.0)
        assert guest_time(board) == seen
        # More than it could sleep in the host's time while this test runs; Ctrl-C ends it.
        console.type("sleep 1000000")
        wait_for(lambda: guest_time(board)["seconds"] > seen["seconds"] + 10, "it sleeps")
        assert not guest_time(board)["stands_still"]
        os.write(console._fd, b"\x03")
        console.expect(PROMPT)
        assert guest_time(board)["stands_still"]
        assert console.run("echo 4$((1+1))").endswith("\n42")


def test_a_mistake_at_the_console_does_not_end_the_shell(board: BoardProgram) -> None:
    with board.console() as console:
        board.power(on=True)
        console.login()
        console.type("if")
        assert "unexpected" in console.expect(PROMPT)
        assert console.run("kept=1; cd /usr; echo $kept $(pwd)").endswith("\n1 /usr")


def test_its_card_is_not_moved_under_power(board: BoardProgram) -> None:
    board.power(on=True)
    refused = board.mux("host")
    assert refused.returncode == 1
    assert b"switch the board off first" in refused.stderr or b"cannot be moved under power" in refused.stderr
    assert board.status()["card"]["position"] == "dut"
    board.power(on=False)
    assert board.mux("host").returncode == 0
    assert board.mux("dut").returncode == 0


def test_power_off_leaves_nothing_of_a_power_on(board: BoardProgram) -> None:
    board.power(on=True)
    powered = board.config.card.image.with_name("card.img.powered")
    assert powered.exists()
    pid = board.status()["qemu_pid"]
    board.power(on=False)
    assert not powered.exists()
    assert not Path(f"/proc/{pid}").exists()
    assert guest_time(board)["seconds"] == 0


def test_a_newer_kernel_takes_input_on_the_same_qemu(tmp_path: Path) -> None:
    """On a serial line 6.12 loses it with QEMU 7.2."""
    with board_with("6.12", tmp_path) as board, board.console() as console:
        board.power(on=True)
        console.login()
        for number in range(20):
            assert console.run(f"echo a-line-that-is-longer-than-a-uart-holds-{number}").endswith(f"holds-{number}")


def test_a_program_without_qemus_clock_is_refused(tmp_path: Path) -> None:
    source = tmp_path / "other.c"
    source.write_text("#define _GNU_SOURCE\n#include <poll.h>\nint main(void) { return ppoll(0, 0, 0, 0); }\n")
    process.run(["cc", "-o", tmp_path / "other", source], timeout_s=60)
    environment = {"LD_PRELOAD": str(services.probe())}
    done = process.run([tmp_path / "other"], timeout_s=30, env=environment, check=False)
    assert done.returncode == 70
    assert b"does not export its clock" in done.stderr


@pytest.mark.slow
def test_a_boot_from_power_on_has_its_joules_by_segment(state: Path, tmp_path: Path) -> None:
    """QEMU starts the kernel, whose lines `quiet` hides: all before init is the segment `power`."""
    results = tmp_path / "results"
    options = ("--suite", "power-on", "--fs", "ext4", "--repeat", "1", "--seed", "1")
    done = run_bench(results, *options, environment=PROJECT / "env" / "deterministic.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    loaded = only_run(results)
    by_label = {m.workload.label: m for m in loaded.measurements}
    whole, power, init = (by_label[name] for name in ("power-on", "power-on/power", "power-on/init"))
    seconds = [m.duration_s or 0.0 for m in (whole, power, init)]
    joules = [m.energy.gross_mj if m.energy else Value(0.0, 0.0) for m in (whole, power, init)]
    assert seconds[0] == pytest.approx(seconds[1] + seconds[2])
    assert abs(joules[0].value - joules[1].value - joules[2].value) <= joules[0].uncertainty
    assert min(seconds) > 0.02
    assert power.notes[-1] == "power has spl and u-boot and kernel in it, which the console does not show"
    for name in ("spl", "u-boot", "kernel"):
        left_out = by_label[f"power-on/{name}"]
        assert (left_out.valid, left_out.duration_s, left_out.energy) == (True, None, None)
        assert left_out.notes[-1].startswith("left out: no line of the console matches")
    assert loaded.trace(whole.number) is not None
    assert loaded.trace(init.number) is None
    assert b"fsjoule login: " in (loaded.attachment(whole.number, "console-times.log") or b"")
    attached: dict[str, bytes] = {}
    attach(loaded, whole, "uuid", attached.__setitem__)
    assert b">power<" in attached["uuid-0-attachment.svg"]
    assert_nothing_left(state, state / "devices")


@pytest.mark.slow
def test_two_benches_agree_in_every_figure(state: Path, tmp_path: Path) -> None:
    """The main job, once on a busy host, by the script that says how well runs agree; what is quick is measured.

    test_parallel_boards.py compares two runs, too, figure by figure and sample by sample.
    """
    argv = [sys.executable, SCRIPT, "--runs", "2", "--load", "1", "--results", tmp_path / "results", "--"]
    argv += ["--fs", "ext4", "--repeat", "1", "-k", "boot or mount or mkfs"]
    done = process.run([*map(str, argv)], timeout_s=BENCH_TIMEOUT_S, check=False)
    output = done.stdout.decode()
    assert done.returncode == 0, output + done.stderr.decode()
    lines = output.splitlines()
    assert any(line.endswith("raw samples of 4 of 4 measurements are those of the first run") for line in lines), output
    figures, _, rest = lines[-1].partition(" figures, ")
    assert rest.startswith(f"{figures} equal; median 0.0000%, largest 0.0000%"), output
    assert int(figures) > 100
    assert "guest" not in done.stderr.decode()
    assert_nothing_left(state, state / "devices")


@pytest.mark.slow
def test_a_device_that_drops_writes_is_measured_as_well(state: Path, tmp_path: Path) -> None:
    """What it tells the board are scripts of several lines, which go over the console of a board in guest time."""
    argv = [
        sys.executable,
        "-m",
        "pytest",
        "tests/bench",
        "--lg-env",
        "env/deterministic.yaml",
        "-p",
        "no:cacheprovider",
    ]
    argv += ["--suite", "elc2015/dm-flakey", "--fs", "ext4", "--repeat", "1", "--results", str(tmp_path / "results")]
    done = process.run(argv, timeout_s=BENCH_TIMEOUT_S, cwd=project_dir(), check=False)
    output = done.stdout.decode()
    assert done.returncode == 0, output + done.stderr.decode()
    (run,) = (tmp_path / "results").iterdir()
    outcomes = [measurement.outcome for measurement in load_run(run).measurements]
    assert len(outcomes) == 2
    assert all(outcome is not None and outcome.promised for outcome in outcomes), output
    assert_nothing_left(state, state / "devices")


@pytest.mark.slow
def test_a_loop_that_wakes_the_board_is_named_and_costs_watts(state: Path, tmp_path: Path) -> None:
    """Two runs of the same states agree to the digit."""
    suite = tmp_path / "restless.toml"
    suite.write_text(
        '[suite]\ntitle = "restless"\nfilesystems = ["ext4"]\nworkload = [\n'
        '{ operation = "state", seconds = 30 },\n{ operation = "state", name = "restless", seconds = 10, '
        'command = ["sh", "-c", "while :; do sleep 0.01; done"] },\n]\n'
    )
    argv = [sys.executable, SCRIPT, "--runs", "2", "--results", tmp_path / "results", "--"]
    done = process.run(
        [*map(str, argv), "--suite", str(suite), "--repeat", "1"], timeout_s=BENCH_TIMEOUT_S, check=False
    )
    output = done.stdout.decode()
    assert done.returncode == 0, output + done.stderr.decode()
    assert " equal; median 0.0000%, largest 0.0000%" in output.splitlines()[-1], output
    run = min((tmp_path / "results").iterdir())
    found = {m.workload.label: m for m in load_run(run).measurements}
    idle, restless = found["idle"].held, found["restless"].held
    assert idle is not None
    assert restless is not None
    assert restless.woken_per_s["sh -c while :; do sleep 0.01; done"] > 20
    assert "sh -c while :; do sleep 0.01; done" not in idle.woken_per_s
    assert (restless.programs_per_s or 0) > 20
    assert (idle.programs_per_s or 0) < 1
    assert (restless.interrupts_per_s or 0) > 2 * (idle.interrupts_per_s or 0)
    powers = [m.energy.mean_power_w.value for m in (found["restless"], found["idle"]) if m.energy]
    assert powers[0] > 1.02 * powers[1]
    assert_nothing_left(state, state / "devices")


@pytest.mark.slow
def test_threads_have_the_joules_of_a_window(state: Path, tmp_path: Path) -> None:
    """Their time is that which the kernel's own statistics have, a little before and after the window."""
    argv = [str(Path(sys.executable).with_name("fsjoule")), "timeline", "--lg-env", "env/deterministic.yaml"]
    argv += ["--fs", "ext4", "-k", "randwrite", "--seed", "1", "--json", "--results", str(tmp_path / "results")]
    done = process.run(argv, timeout_s=BENCH_TIMEOUT_S, cwd=project_dir(), check=False)
    assert done.returncode == 0, done.stderr.decode()
    (found,) = json.loads(done.stdout)["timelines"]
    (measurement,) = only_run(tmp_path / "results").measurements
    threads, functions = found["threads"], found["functions"]
    assert sum(each["energy_mj"] for each in threads.values()) == pytest.approx(found["window"]["value"], rel=1e-3)
    busy_s = sum(each["seconds"] for name, each in threads.items() if name != "idle")
    assert measurement.cpu_busy_s is not None
    assert busy_s == pytest.approx(measurement.cpu_busy_s, rel=0.02)
    assert next(iter(threads)) == "fio"
    assert any("ext4_end_io_rsv_work" in name for name in threads)
    assert sum(each["energy_mj"] for each in functions) == pytest.approx(found["energy_mj"], rel=1e-3)
    assert [each["kind"] for each in found["requests"]] == ["write"]
    assert found["requests"][0]["size_bytes"] >= 32 << 20
    assert_nothing_left(state, state / "devices")


@pytest.mark.slow
def test_the_processors_own_count_is_that_of_the_emulator(state: Path, tmp_path: Path) -> None:
    """QEMU's Cortex-A7 counts as a real one does; perf reads it right before the first mark and after the second."""
    recipe = tmp_path / "with-perf.toml"
    recipe.write_text(
        'base = "imx6ul"\n[userland]\nmore_packages = ["linux-perf"]\nkeep = ["usr/lib/*/libperl.so.*"]\n'
    )
    environment = tmp_path / "env.yaml"
    written = (PROJECT / "env" / "deterministic.yaml").read_text()
    environment.write_text(written.replace("recipe: imx6ul", f"recipe: {recipe}\n        count_instructions: true"))
    done = run_bench(
        *(tmp_path / "results", "--fs", "ext4", "-k", "write", "--repeat", "1"),
        environment=environment,
        timeout_s=BENCH_TIMEOUT_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    run = only_run(tmp_path / "results")
    assert run.measurements
    for measured in run.measurements:
        [file] = run.path.glob(f"measurements/{measured.number:02}-*/{COUNTS_FILE}")
        own = counts_in(file.read_text())
        for name in (INSTRUCTIONS, KERNEL_INSTRUCTIONS, USER_INSTRUCTIONS):
            assert 1 <= own[name] / measured.counts[name] < 1.003, name
    assert_nothing_left(state, state / "devices")
