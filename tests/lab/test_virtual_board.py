"""The virtual board as a program: QEMU with Debian's kernel behind an outlet, a mux, a console and a power model."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from labgrid.driver.power import rest
from virtual_board import BOOT_TIMEOUT_S, PROMPT, BoardProgram, MeterTty, board_config, read_feed
from waiting import wait_for

from fsjoule.host import process
from fsjoule.images import build_card
from fsjoule.model import MIB
from fsjoule.virtual.board.power import ActivityReader
from fsjoule.virtual.lab.services import board_template

SPAN_S = 3.0


@pytest.fixture(scope="module")
def card() -> Path:
    return build_card("6.1", "ext4").path


@pytest.fixture(scope="module")
def board(card: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BoardProgram]:
    """One board with a real card in it, which the tests leave powered or not as they like."""
    folder = tmp_path_factory.mktemp("board")
    insert_copy(card, folder)
    config = replace(board_config(folder), disks=board_template("board").disks)
    with BoardProgram(config) as program:
        yield program


@pytest.fixture
def empty_board(tmp_path: Path) -> Iterator[BoardProgram]:
    """A board with a card on which there is nothing."""
    with BoardProgram(board_config(tmp_path)) as program:
        yield program


def insert_copy(card: Path, folder: Path) -> None:
    process.run(["cp", "--sparse=always", card, folder / "card.img"], timeout_s=120)


def booted(board: BoardProgram) -> None:
    """Make sure that somebody is logged in at the console."""
    if board.status()["state"] == "running":
        return
    board.power(on=False)
    assert board.mux("dut").returncode == 0
    with board.console() as console:
        board.power(on=True)
        console.login()
        console.run("dmesg -n 1")


def exists(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def host_has_card(board: BoardProgram) -> bool:
    link = Path(board.ready.card_device)
    return link.is_symlink() and link.samefile(board.config.card.image)


def watts_of(board: BoardProgram, act: Callable[[], object]) -> float:
    start_ns = time.monotonic_ns()
    act()
    stop_ns = time.monotonic_ns()
    return read_feed(board.config.feed).mean_watts(start_ns, stop_ns)


def test_boots_to_a_prompt_and_marks_its_way_there(board: BoardProgram) -> None:
    with MeterTty(board.config.wires.mark) as meter, board.console() as console:
        board.power(on=True)
        meter.expect(b"~Sboot~5184\n", BOOT_TIMEOUT_S)
        meter.expect(b"~Eboot~5545\n", BOOT_TIMEOUT_S)
        console.login()
        assert "6.1." in console.run("uname -r")
        assert "1048576 mmcblk1\n" in console.run("dmesg -n 1; cat /proc/partitions")
    assert board.status()["state"] == "running"


def test_the_outlet_speaks_labgrids_rest_model(board: BoardProgram) -> None:
    booted(board)
    pid = board.status()["qemu_pid"]
    assert rest.power_get(board.ready.outlet_url, None, 0)
    rest.power_set(board.ready.outlet_url, None, 0, value=True)
    assert board.status()["qemu_pid"] == pid, "on when on already does nothing"


def test_the_feed_follows_what_the_board_does(board: BoardProgram) -> None:
    booted(board)
    power = board.config.power
    with board.console() as console:
        idle_w = watts_of(board, lambda: console.run(f"sleep {SPAN_S}"))
        busy_w = watts_of(board, lambda: console.run("i=0; while [ $i -lt 50000 ]; do i=$((i+1)); done"))
        read_w = watts_of(board, lambda: console.run("dd if=/dev/mmcblk1 of=/dev/null bs=1M count=48 iflag=direct"))
        start_ns = time.monotonic_ns()
        console.run("dd if=/dev/zero of=/dev/mmcblk1p3 bs=1M count=48 oflag=direct")
        write_s = (time.monotonic_ns() - start_ns) / 1e9
        write_w = read_feed(board.config.feed).mean_watts(start_ns, start_ns + int(write_s * 1e9))
    assert power.idle_w <= idle_w < power.idle_w + 0.25 * power.cpu_w
    assert power.idle_w + 0.75 * power.cpu_w < busy_w < power.idle_w + 1.05 * power.cpu_w
    assert read_w > idle_w + 0.02
    # The card's own part, and no more CPU than there is.
    card_w = power.card_write_mj_per_mib * 48e-3 / write_s
    assert power.idle_w + 0.9 * card_w < write_w < power.idle_w + power.cpu_w + 1.1 * card_w


def test_a_stick_is_there_when_it_is_asked_for(board: BoardProgram) -> None:
    booted(board)
    image = board.config.disk_image("stick")
    with board.console() as console:
        assert "sda" not in console.run("cat /proc/partitions"), "no boot waits for it"
        console.run("/usr/lib/fsjoule/attach sda")
        assert "write back" in console.run("cat /sys/block/sda/queue/write_cache"), "it takes flushes"
        activity = ActivityReader(board.status()["qemu_pid"], [board.status()["qemu_pid"]])
        before = activity.read()
        console.run("yes fsjoule | dd of=/dev/sda bs=64k count=256 iflag=fullblock conv=fsync")
        after = activity.read()
        activity.close()
        flushes = console.run("cat /sys/block/sda/stat").split()[-2]
    assert int(flushes) == 1
    with image.open("rb") as file:
        assert file.read(16 * MIB) == (b"fsjoule\n" * (2 * MIB))
    # The power model takes them for bytes of the card.
    assert after.card_written_bytes - before.card_written_bytes == pytest.approx(16 * MIB, rel=0.03)


def test_the_feed_is_steady_and_never_behind(board: BoardProgram) -> None:
    booted(board)
    start_ns, start_records = time.monotonic_ns(), board.status()["supply"]["records"]
    time.sleep(SPAN_S)
    elapsed_s, records = (time.monotonic_ns() - start_ns) / 1e9, board.status()["supply"]["records"] - start_records
    assert records > 500 * elapsed_s, "1000 a second on a machine that has time for it"
    feed = read_feed(board.config.feed)
    assert (feed.time_ns[1:] > feed.time_ns[:-1]).all()
    assert feed.time_ns[-1] > start_ns


def test_marks_survive_a_meter_that_goes_away(board: BoardProgram) -> None:
    booted(board)
    mark = board.config.wires.mark
    with board.console() as console:
        with MeterTty(mark) as meter:
            console.run("echo S1 > /dev/ttymxc1")
            meter.expect(b"S1\n")
        console.run("for i in $(seq 1000); do echo lost; done > /dev/ttymxc1")
        wait_for(lambda: board.status()["mark"]["dropped_bytes"] >= len("lost\n") * 1000, "the marks are dropped")
        with MeterTty(mark) as meter:
            console.run("echo E1 > /dev/ttymxc1")
            meter.expect(b"E1\n")


def test_a_console_that_nobody_reads_does_not_stop_the_board(board: BoardProgram) -> None:
    booted(board)
    with MeterTty(board.config.wires.mark) as meter:
        with board.console() as console:
            console.type("seq 30000; echo S2 > /dev/ttymxc1")
        meter.expect(b"S2\n")
        assert board.status()["console"]["dropped_bytes"] > 0
        with board.console() as console:
            console.type("echo S3 > /dev/ttymxc1")
            meter.expect(b"S3\n")
            assert "100" not in console.expect(PROMPT), "what nobody read is gone"


def test_power_off_cuts_and_the_console_outlives_it(board: BoardProgram) -> None:
    booted(board)
    pid = board.status()["qemu_pid"]
    with board.console() as console:
        rest.power_set(board.ready.outlet_url, None, 0, value=False)
        assert not rest.power_get(board.ready.outlet_url, None, 0)
        assert not exists(pid)
        assert watts_of(board, lambda: time.sleep(0.3)) == 0.0
        board.power(on=True)
        console.login()
        assert board.status()["qemu_pid"] != pid


@pytest.mark.parametrize(
    ("sig", "how"),
    [
        pytest.param(signal.SIGSEGV, "was killed by SIGSEGV", id="crashed"),
        pytest.param(signal.SIGTERM, "was ended by another program (host-signal)", id="ended", marks=pytest.mark.slow),
    ],
)
def test_qemus_own_end_is_noticed(board: BoardProgram, sig: signal.Signals, how: str) -> None:
    booted(board)
    pid = board.status()["qemu_pid"]
    os.kill(pid, sig)
    board.wait_state("ended")
    assert board.status()["power"] == "on"
    assert f"QEMU (process {pid}) {how}" in board.status()["message"]
    board.power(on=False)
    assert board.status()["state"] == "off"


def test_a_guest_that_switches_itself_off_is_told_from_a_qemu_that_ended(board: BoardProgram) -> None:
    booted(board)
    with board.console() as console:
        console.type("poweroff -f")
        board.wait_state("ended")
    assert board.status()["message"].startswith("the guest switched the board off")


def test_a_main_loop_that_gets_no_cpu_at_once_does_not_stop_the_board(board: BoardProgram) -> None:
    """QEMU's main loop, asleep until a timer of minutes, missed that an earlier one was set."""
    board.power(on=False)
    assert board.mux("dut").returncode == 0
    with board.console() as console:
        board.power(on=True)
        os.sched_setscheduler(board.status()["qemu_pid"], os.SCHED_IDLE, os.sched_param(0))
        console.login()
    board.power(on=False)


def test_a_card_pulled_out_under_power_is_gone_for_the_board(board: BoardProgram) -> None:
    booted(board)
    with board.console() as console:
        console.run("dmesg -n 8")
        assert board.mux("host").returncode == 0
        console.expect(" removed\n")
        console.expect("I/O error")
        assert host_has_card(board)
        assert board.mux("dut").returncode == 0
        console.expect("mmc1: new high speed SD card")
    assert board.status()["state"] == "running"
    board.power(on=False)


@pytest.mark.slow
def test_a_card_pulled_out_while_it_is_read_harms_only_the_guest(board: BoardProgram) -> None:
    """The test before this one pulls it out of a board that is idle."""
    booted(board)
    with board.console() as console:
        console.type("dd if=/dev/mmcblk1p3 of=/dev/null bs=64k iflag=direct")
        console.expect("iflag=direct")
        assert board.mux("host").returncode == 0
    assert host_has_card(board)
    assert board.status()["state"] == "running"
    board.power(on=False)
    assert board.status()["state"] == "off"


def test_the_host_writes_and_the_board_reads(board: BoardProgram) -> None:
    board.power(on=False)
    text = b"written by the host, read by the board\n"
    offset_bytes = 1000 * MIB
    assert board.mux("host").returncode == 0
    with Path(board.ready.card_device).open("rb+", buffering=0) as device:
        device.seek(offset_bytes)
        device.write(text.ljust(512, b"\0"))
    assert board.mux("get").stdout == b"host\n"
    assert board.mux("client").returncode == 0
    assert board.mux("get").stdout == b"dut\n"
    assert not host_has_card(board)
    booted(board)
    with board.console() as console:
        output = console.run(f"dd if=/dev/mmcblk1 bs=1M skip={offset_bytes // MIB} count=1 | head -n 1")
        assert text.decode().strip() in output.splitlines()


@pytest.mark.slow
def test_two_boards_side_by_side(board: BoardProgram, card: Path, tmp_path: Path) -> None:
    """test_parallel_boards.py measures on two at once."""
    booted(board)
    insert_copy(card, tmp_path)
    with BoardProgram(board_config(tmp_path, "second")) as second:
        booted(second)
        with board.console() as console, second.console() as second_console:
            console.run("hostname one")
            second_console.run("hostname two")
            assert "one" in console.run("hostname").splitlines()
            assert "two" in second_console.run("hostname").splitlines()
        first_status, second_status = board.status(), second.status()
        assert first_status["card"]["host_device"] != second_status["card"]["host_device"]
        qemu_pid = second_status["qemu_pid"]
    assert not exists(qemu_pid)
    assert board.status()["qemu_pid"] == first_status["qemu_pid"]


def test_a_killed_board_leaves_nothing(card: Path, tmp_path: Path) -> None:
    insert_copy(card, tmp_path)
    with BoardProgram(board_config(tmp_path)) as board:
        board.power(on=True)
        qemu_pid = board.status()["qemu_pid"]
        # The card pulled out, so that there is a link to it as well as a QEMU.
        assert board.mux("host").returncode == 0
        assert host_has_card(board)
        board.kill()
        wait_for(lambda: not exists(qemu_pid), "QEMU is gone")
    with BoardProgram(board_config(tmp_path)) as again:
        assert again.status()["state"] == "off"
        assert not host_has_card(again)


def test_without_a_card_the_boot_rom_says_so(empty_board: BoardProgram) -> None:
    assert empty_board.mux("host").returncode == 0
    with empty_board.console() as console:
        empty_board.power(on=True)
        console.expect("nothing to boot: there is no card in the board's slot")
        assert empty_board.status()["state"] == "no-boot"
        assert watts_of(empty_board, lambda: time.sleep(0.3)) == pytest.approx(empty_board.config.power.idle_w)
        empty_board.power(on=False)
        assert empty_board.mux("dut").returncode == 0
        empty_board.power(on=True)
        console.expect("nothing to boot: the card has no partition table")


def test_a_card_in_use_is_not_taken_from_the_host(empty_board: BoardProgram) -> None:
    assert empty_board.mux("host").returncode == 0
    with Path(empty_board.ready.card_device).open("rb"):
        refused = empty_board.mux("dut")
        assert refused.returncode == 1
        assert f"the card is still open in process {os.getpid()} (".encode() in refused.stderr
        assert empty_board.mux("get").stdout == b"host\n"
    assert empty_board.mux("dut").returncode == 0


def test_a_second_program_on_the_same_config_is_refused(empty_board: BoardProgram) -> None:
    toml = empty_board.config.ready_file.with_name("board.toml")
    second = process.run([sys.executable, "-m", "fsjoule.virtual.board.program", toml], timeout_s=60, check=False)
    assert second.returncode == 4
    assert b"is already running on" in second.stderr
    assert empty_board.status()["state"] == "off"


def test_a_terminated_board_cleans_up(empty_board: BoardProgram) -> None:
    assert empty_board.mux("host").returncode == 0
    process.stop(empty_board.process, timeout_s=30)
    assert empty_board.process.returncode == 0
    config = empty_board.config
    for path in (config.ready_file, config.wires.console, config.card.control_socket, config.card.host_device):
        assert not path.is_symlink()
        assert not path.exists()


def test_a_wrong_config_exits_with_2_and_says_where(tmp_path: Path) -> None:
    toml = tmp_path / "board.toml"
    toml.write_text(board_config(tmp_path).to_toml().replace("size_mib = 1024", "size_mib = 1000"))
    done = process.run([sys.executable, "-m", "fsjoule.virtual.board.program", toml], timeout_s=60, check=False)
    assert done.returncode == 2
    assert b"card.size_mib = 1000 is wrong" in done.stderr
    assert b"512 or 1024" in done.stderr
