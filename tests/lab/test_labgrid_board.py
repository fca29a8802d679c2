"""A board through labgrid, end to end: place, flashing, boot, shell and meter, and how each of them fails."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Generator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from labgrid import Environment
from labgrid.binding import BindingState
from labgrid.exceptions import InvalidConfigError
from labgrid_process import forget_coordinator
from shell_contract import check_shell

from fsjoule import images
from fsjoule.errors import BoardError, ConfigError, LabError, PlaceLostError
from fsjoule.host import process
from fsjoule.host.paths import project_dir
from fsjoule.host.process_ref import descendants
from fsjoule.lab import (
    BoardStrategy,
    LabgridBoard,
    MeterDriver,
    acquired_place,
    meter,
)
from fsjoule.lab.flashers import DiskImage
from fsjoule.lab.lease import Guard
from fsjoule.lab.strategy import Status
from fsjoule.model import ImageFacts
from fsjoule.virtual.lab import lab
from fsjoule.virtual.lab.board import board_status
from fsjoule.virtual.lab.files import LabPaths, LabRecord
from fsjoule.virtual.lab.health import PlaceFaults

_KERNEL = "6.1"
_DAC_OVERRIDE = 1 << 1  # capability.h
_CLIENT = Path(sys.executable).parent / "labgrid-client"


@dataclass(frozen=True)
class _Image:
    path: Path
    facts: ImageFacts


@dataclass
class _Bench:
    strategy: BoardStrategy
    meter: MeterDriver
    card: DiskImage

    def board(self, card: DiskImage | None = None, *, coordinator: str = "") -> LabgridBoard:
        assert self.strategy.target is not None
        return LabgridBoard(
            self.strategy.target, {(_KERNEL, "ext4"): card or self.card}, health=PlaceFaults(coordinator, "virtual")
        )

    @property
    def power(self) -> str:
        status = lab.status("virtual")
        assert status.board is not None
        return status.board["power"]


@pytest.fixture(scope="module")
def environment(module_state: Path) -> Generator[dict[str, str]]:
    """A lab; labgrid finds it by its environment variables."""
    assert module_state.is_dir()
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("A_TOKEN", "secret")
        handle = lab.up("virtual", owner_pid=os.getpid())
        for name, value in handle.environment.items():
            monkeypatch.setenv(name, value)
        yield handle.environment
    lab.down("virtual")


@pytest.fixture(scope="module")
def bench(environment: dict[str, str]) -> Generator[_Bench]:
    """The place acquired, and a labgrid target on it."""
    with acquired_place(environment["LG_PLACE"]):
        environment_class: Any = Environment
        labgrid = environment_class(config_file=str(project_dir() / "env" / "virtual.yaml"))
        target = labgrid.get_target()
        card = images.build_card(_KERNEL, "ext4")
        yield _Bench(target.get_driver("BoardStrategy"), meter(target), card)
        labgrid.cleanup()
        forget_coordinator()


def _zeros(folder: Path, name: str = "zeros.img") -> _Image:
    """A card with nothing on it."""
    path = folder / name
    path.write_bytes(bytes(1024 * 1024))
    return _Image(path, ImageFacts("none", "none", "none", str(path), {}, {}))


# ------------------------------------------------------------------------------------------------------ transitions


def test_what_cannot_be_done_is_said_before_anything_is(bench: _Bench) -> None:
    bench.strategy.card = None
    with pytest.raises(InvalidConfigError, match="no card image was chosen; name it in the environment file"):
        bench.strategy.transition("flashed")
    with pytest.raises(ConfigError, match="unknown state 'asleep'"):
        bench.strategy.transition("asleep")
    with pytest.raises(ConfigError, match=r"unknown card image '6\.1 with fat'"):
        bench.board().prepare(_KERNEL, "fat")
    assert bench.power == "off"


class _Guard(Guard):
    """A coordinator's answer."""

    def __init__(self, answer: LabError | None) -> None:
        super().__init__()
        self._answer = answer

    def check(self) -> None:
        if self._answer is not None:
            raise self._answer


@pytest.mark.parametrize(
    ("answer", "switched"),
    [
        (None, True),
        (LabError("the coordinator cannot be reached", transient=True), True),
        (PlaceLostError("virtual", "ada has it"), False),
    ],
    ids=["ours", "nobody knows", "taken away"],
)
def test_the_outlet_is_switched_before_the_console_is_closed_and_only_of_ones_own_board(
    bench: _Bench, monkeypatch: pytest.MonkeyPatch, answer: LabError | None, *, switched: bool
) -> None:
    strategy: Any = bench.strategy
    states: list[object] = []
    strategy.target.activate(strategy.power)
    strategy.target.activate(strategy.console)
    strategy.lose()
    monkeypatch.setattr(strategy, "guard", _Guard(answer))
    monkeypatch.setattr(strategy.power, "off", lambda: states.append(strategy.console.state))
    with nullcontext() if switched else pytest.raises(PlaceLostError):
        strategy.transition("off")
    assert states == ([BindingState.active] if switched else [])
    assert (strategy.console.state is BindingState.active) != switched


def test_a_card_with_nothing_on_it_fails_at_once_with_what_the_boot_loader_says(bench: _Bench, tmp_path: Path) -> None:
    board = bench.board(_zeros(tmp_path))
    board.prepare(_KERNEL, "ext4")
    begin = time.monotonic()
    with pytest.raises(BoardError, match="nothing to boot") as caught:
        board.boot()
    assert time.monotonic() - begin < bench.strategy.boot_timeout / 2
    assert any("nothing to boot" in line for line in caught.value.console_tail)
    assert bench.power == "off"


def test_a_file_name_that_labgrid_would_split_is_refused(bench: _Bench, tmp_path: Path) -> None:
    with pytest.raises(LabError, match="unquoted"):
        bench.board(_zeros(tmp_path, "two words.img")).prepare(_KERNEL, "ext4")


def test_an_image_that_does_not_fit_fails_and_gives_the_card_back(bench: _Bench, tmp_path: Path) -> None:
    image = _zeros(tmp_path)
    with image.path.open("r+b") as file:
        file.truncate(2 * 1024**3)
    with pytest.raises(LabError, match=r"but the image has 2147483648; nothing was written") as caught:
        bench.board(replace(image, facts=replace(image.facts, card_sha256="too large"))).prepare(_KERNEL, "ext4")
    assert not caught.value.transient
    assert _card_position() == "dut"


def _stop_writer_soon(stopped: list[float]) -> threading.Thread:
    """Wait until the card is written on the exporter's side, then let who writes it stand still; tells when."""

    def stop() -> None:
        guardian = _record().guardian
        assert guardian is not None
        deadline = time.monotonic() + 60
        while not stopped and time.monotonic() < deadline:
            for each in descendants(guardian.pid):
                if b"\0fsjoule-writes:" in _arguments(each.pid):
                    os.kill(each.pid, signal.SIGSTOP)
                    stopped.append(time.monotonic())
            time.sleep(0.1)

    thread = threading.Thread(target=stop)
    thread.start()
    return thread


def _arguments(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def test_a_writer_that_stands_still_is_named_and_ended_within_seconds(
    bench: _Bench, environment: dict[str, str]
) -> None:
    board = bench.board(coordinator=environment["LG_COORDINATOR"])
    bench.strategy.forget_card()
    stopped: list[float] = []
    stops = _stop_writer_soon(stopped)
    with pytest.raises(
        LabError, match=r"^\w+ of the lab's sshd \(process \d+\) was stopped .*: writing \S+ was given up"
    ):
        board.prepare(_KERNEL, "ext4")
    took_s = time.monotonic() - stopped[0]
    stops.join()
    assert took_s < 60, "it may write for 900 s"
    assert PlaceFaults(environment["LG_COORDINATOR"], "virtual").faults() == ()
    assert _card_position() == "dut"
    board.prepare(_KERNEL, "ext4")


def _record() -> LabRecord:
    record = LabPaths.of("virtual").read()
    assert record is not None
    return record


def _card_position() -> str:
    status = lab.status("virtual")
    assert status.board is not None
    return status.board["card"]["position"]


def _moves() -> int:
    return LabPaths.of("virtual").log("board").read_text().count("card: dut -> host")


def test_boot_too_slow_or_silent_is_an_error_and_the_board_is_off(
    bench: _Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    board = bench.board()
    board.prepare(_KERNEL, "ext4")
    moves = _moves()
    monkeypatch.setattr(bench.strategy, "boot_timeout", 2)
    with pytest.raises(BoardError, match="no login within 2 s of power-on") as caught:
        board.boot()
    assert caught.value.transient
    assert bench.power == "off"
    board.prepare(_KERNEL, "ext4")
    assert _moves() == moves + 1, "what is on a card that did not boot may be why: it is written anew"
    assert bench.strategy.status is Status.flashed


@pytest.mark.slow
def test_a_board_that_panics_while_it_is_logged_in_to_is_named_and_boots_again(
    bench: _Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next test has a panic under a command, and the boot after it."""
    strategy: Any = bench.strategy
    strategy.card = bench.card

    def panic_first() -> None:
        strategy.console.sendline("echo c > /proc/sysrq-trigger")
        strategy.console.expect("never said", timeout=20)

    with monkeypatch.context() as once:
        # What labgrid's driver does when it has noted that it is logged in.
        once.setattr(strategy.shell, "_inject_run", panic_first)
        with pytest.raises(BoardError, match="did not boot: Kernel panic - not syncing: sysrq"):
            strategy.transition("booted")
    strategy.transition("booted")
    assert bench.board().facts().kernel_release


def test_flash_boot_shell_and_meter_end_to_end(bench: _Bench) -> None:
    board = bench.board()
    board.prepare(_KERNEL, "ext4")
    bench.meter.arm()
    shell = board.boot()
    trace = bench.meter.disarm()
    assert [mark.text for mark in trace.marks] == ["Sboot", "Eboot"]
    assert trace.lost == 0
    assert bench.power == "on"

    # The kernel under test is in a sandbox, without root's powers and our secrets.
    qemu = Path(f"/proc/{_qemu()}")
    assert {"NoNewPrivs:\t1", "Seccomp:\t2"} <= set((qemu / "status").read_text().splitlines())
    powers = int((qemu / "status").read_text().partition("CapEff:")[2].split()[0], 16)
    assert powers & ~_DAC_OVERRIDE == 0
    assert b"A_TOKEN=" not in (qemu / "environ").read_bytes()

    check_shell(shell)

    facts = board.facts()
    assert facts.name == "virtual"
    assert facts.root_filesystem == "ext4"
    assert facts.kernel_release.startswith("6.1.")
    assert facts.storage_bytes == 1024**3
    assert "bits" in facts.storage_bus
    assert facts.memory_bytes > 400 * 1024**2
    assert facts.cpus == 1
    assert board.image() == bench.card.facts

    with pytest.raises(BoardError, match="the kernel panicked while") as caught:
        shell.run(["sh", "-c", "echo c > /proc/sysrq-trigger"], timeout_s=60)
    assert any("Kernel panic" in line for line in caught.value.console_tail)
    # What is left of the panic on the console does not spoil the next boot.
    assert board.boot().run(["true"]).exit_code == 0


def _qemu() -> int:
    status = lab.status("virtual")
    assert status.board is not None
    return int(status.board["qemu_pid"])


def _hit_qemu_later(sig: signal.Signals, hit: list[float]) -> threading.Thread:
    """Wait for the board's QEMU, let it boot a little, then send it a signal; tells when."""

    def send() -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            record = LabPaths.of("virtual").read()
            status = board_status(record.boards[0]) if record else None
            if status and status["state"] == "running":
                time.sleep(1.0)
                hit.append(time.monotonic())
                os.kill(status["qemu_pid"], sig)
                return
            time.sleep(0.1)

    thread = threading.Thread(target=send)
    thread.start()
    return thread


@pytest.mark.parametrize(
    ("sig", "told"),
    [
        (signal.SIGKILL, "was killed by SIGKILL .* after power-on"),
        # The next test stops it under a command.
        pytest.param(signal.SIGSTOP, "was stopped", marks=pytest.mark.slow),
    ],
)
def test_a_qemu_that_dies_or_stands_still_in_the_boot_is_named_within_seconds(
    bench: _Bench, environment: dict[str, str], sig: signal.Signals, told: str
) -> None:
    board = bench.board(coordinator=environment["LG_COORDINATOR"])
    board.prepare(_KERNEL, "ext4")
    hit: list[float] = []
    hits = _hit_qemu_later(sig, hit)
    with pytest.raises(BoardError, match=rf"^the board.*QEMU \(process \d+\) {told}") as caught:
        board.boot()
    took_s = time.monotonic() - hit[0]
    hits.join()
    assert took_s < 20, "it waits 180 s for a login"
    assert "virtual did not boot" in caught.value.what
    assert bench.power == "off"


def test_a_qemu_that_stands_still_under_a_command_is_named_and_goes_off(
    bench: _Bench, environment: dict[str, str]
) -> None:
    board = bench.board(coordinator=environment["LG_COORDINATOR"])
    board.prepare(_KERNEL, "ext4")
    shell = board.boot()
    os.kill(_qemu(), signal.SIGSTOP)
    begin = time.monotonic()
    with pytest.raises(BoardError, match=r"^the board's QEMU \(process \d+\) was stopped \(SIGSTOP\)"):
        shell.run(["sleep", "1"], timeout_s=300)
    board.off()
    assert time.monotonic() - begin < 30
    assert bench.power == "off"


def test_a_stopped_board_program_ends_the_wait_for_its_outlet(bench: _Bench, environment: dict[str, str]) -> None:
    board = bench.board(coordinator=environment["LG_COORDINATOR"])
    program = next(each.process.pid for each in _record().services if each.name == "board")
    bench.strategy.lose()
    os.kill(program, signal.SIGSTOP)
    begin = time.monotonic()
    try:
        with pytest.raises(LabError, match=rf"^the lab's board \(process {program}\) was stopped.*given up"):
            board.off()
        # Also in its second attempt, which a failed transition makes.
        assert time.monotonic() - begin < 30
    finally:
        os.kill(program, signal.SIGCONT)
    board.off()
    assert bench.power == "off"


@pytest.mark.slow
def test_power_cut_under_a_command_is_an_error(bench: _Bench, environment: dict[str, str]) -> None:
    board = bench.board()
    board.prepare(_KERNEL, "ext4")
    shell = board.boot()
    shell.run(["true"])
    process.run([_CLIENT, "-p", "virtual", "power", "off"], timeout_s=60, env=environment)
    with pytest.raises(BoardError, match="did not end within 5 s, and the board does not answer"):
        shell.run(["true"], timeout_s=5)
    board.off()
