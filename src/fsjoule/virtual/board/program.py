"""A virtual board: `python -m fsjoule.virtual.board.program CONFIG.toml`.

An outlet, a console, a mark wire, a card behind a mux, and a supply that a meter measures, around one QEMU. The program
runs until SIGTERM or SIGINT. However it ends, it leaves no QEMU.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import shutil
import signal
import socket
import sys
import threading
import time
import tty
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from fsjoule.errors import ConfigError, FsjouleError, InfrastructureError, LabError
from fsjoule.host import process
from fsjoule.host.clock import prefer_this_thread
from fsjoule.host.process_ref import ending
from fsjoule.virtual.board import boot_partition
from fsjoule.virtual.board.config import BoardConfig, BoardReady, MarkGpioConfig, Serial
from fsjoule.virtual.board.console import Console
from fsjoule.virtual.board.guest import Guest
from fsjoule.virtual.board.orders import MuxControl, OrderQueue, Outlet, OutletActions, claim_control_socket
from fsjoule.virtual.board.power import PowerFeed
from fsjoule.virtual.board.qemu import PINNING_PROGRAM, GuestTime, HostCpu, Qemu
from fsjoule.virtual.disks.card import Card, CardPosition, UsbCable, prepare_disk
from fsjoule.virtual.disks.lossy_disk import Cache, LossyDisk

_log: Final = logging.getLogger("fsjoule.virtual.board")
_SEED_BITS: Final = 32
# A busy thread must not delay the marks by the interpreter's usual 5 ms.
_SWITCH_INTERVAL_S: Final = 0.0005

_CHUNK_BYTES: Final = 4096
_LEVELS: Final = {"raise": b"1", "lower": b"0"}


class MarkWire:
    """Passes on the board's output at once. Without a meter it is lost, as on a wire."""

    def __init__(self, meter_tty: Path | None, also: Sequence[Path] = ()) -> None:
        """Without a tty the marks reach the meter another way, and are only read here. `also` are more listeners'."""
        self._path = meter_tty
        self._also = [MarkWire(path) for path in also]
        self._fd: int | None = None
        self.passed_bytes = 0
        self.dropped_bytes = 0

    def connect(self, line: socket.socket) -> None:
        """Pass on this line's data, in its own thread, until its other end closes."""
        threading.Thread(target=self._run, args=(line,), name="mark wire", daemon=True).start()

    def carry(self, data: bytes) -> None:
        """Pass on what the board said, for one thread at a time."""
        for each in self._also:
            each.carry(data)
        written = self._write(data)
        if written is None:
            # The meter's tty ends with its meter: a second try opens the tty of a new one.
            written = self._write(data) or 0
        self.passed_bytes += written
        self.dropped_bytes += len(data) - written

    def close(self) -> None:
        for each in self._also:
            each.close()
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _run(self, line: socket.socket) -> None:
        prefer_this_thread()
        with line, suppress(OSError):
            while data := line.recv(_CHUNK_BYTES):
                self.carry(data)

    def _write(self, data: bytes) -> int | None:
        """The number of bytes that the meter took; None if its tty is gone."""
        if self._path is None:
            return len(data)
        try:
            if self._fd is None:
                self._fd = os.open(self._path, os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
                with suppress(OSError):
                    tty.setraw(self._fd)
            return os.write(self._fd, data)
        except BlockingIOError:
            return 0  # a wire does not wait
        except OSError:
            self.close()
            return None


class MarkPin:
    """The wire from a GPIO of the board to the meter's mark pin.

    It passes on each new level of the board's pin at once, as QEMU's test protocol tells it.
    """

    def __init__(self, gpio: MarkGpioConfig, meter_tty: Path, also: Sequence[Path] = ()) -> None:
        self._gpio = gpio
        self._wire = MarkWire(meter_tty, also)

    @property
    def passed_edges(self) -> int:
        return self._wire.passed_bytes

    def connect(self, protocol: socket.socket) -> None:
        """Pass on the levels of a QEMU that was just started, in an own thread, until it ends."""
        threading.Thread(target=self._run, args=(protocol,), name="mark pin", daemon=True).start()

    def close(self) -> None:
        self._wire.close()

    def _run(self, protocol: socket.socket) -> None:
        """A level is a line such as `IRQ raise 17`, and only a changed one is told. A board without power has 0 V."""
        prefer_this_thread()
        with protocol, protocol.makefile() as lines, suppress(OSError):
            protocol.sendall(f"irq_intercept_out {self._gpio.controller}\n".encode())
            for line in lines:
                match line.split():
                    case ["IRQ", level, number] if int(number) == self._gpio.line:
                        self._wire.carry(_LEVELS[level])
                    case ["FAIL", *_]:
                        _log.error("QEMU has no outputs at %s, which mark_gpio names", self._gpio.controller)
                    case _:
                        pass
        self._wire.carry(_LEVELS["lower"])


class BoardState(StrEnum):
    OFF = "off"
    RUNNING = "running"
    NO_BOOT = "no-boot"  # powered, but its boot ROM found nothing to boot
    ENDED = "ended"  # powered, but QEMU ended: the guest switched itself off, or QEMU crashed


class VirtualBoard:
    """The board's parts together.

    Only `status`, `set_seed`, `profile_next`, `record_next`, `take_profile`, `end_qemu` and properties are for other
    threads.
    """

    def __init__(self, config: BoardConfig, closing: ExitStack) -> None:
        """Make the parts. `closing` removes them. Raises ConfigError, LabError."""
        self._config = config
        self._card = Card(config.card.image, config.card.size_bytes, config.card.host_device)
        closing.callback(self._card.close)
        self._usb = UsbCable(self._card)
        self._lossy: dict[str, LossyDisk] = {}
        for name, disk in config.disks.items():
            prepare_disk(config.disk_image(name), disk.size_bytes)
            if disk.served:
                image, socket = config.disk_image(name), config.disk_socket(name)
                self._lossy[name] = LossyDisk(name, image, socket, disk.cache, disk.flash)
                closing.callback(self._lossy[name].close)
        self._record_next = False
        self._recorded: LossyDisk | None = None
        self._seed: int | None = None
        self._guest = guest = None if config.guest_time is None else Guest(config, config.guest_time)
        if guest is not None:
            closing.callback(guest.close)
        # In guest time the probe timestamps the marks and sends them to the meter.
        self._marks = MarkWire(config.wires.mark if guest is None else None, config.adapter)
        closing.callback(self._marks.close)
        self._console = Console(
            config.wires.console,
            config.log_dir / "console.log",
            None if guest is None else guest.mailbox,
            self._usb.hear if config.card.usb else lambda _output: None,
            None if Serial.MARK in config.qemu.serials or config.mark_gpio else self._marks.carry,
        )
        closing.callback(self._console.close)
        self._pin = None if config.mark_gpio is None else MarkPin(config.mark_gpio, config.wires.pin, config.ppk2_pin)
        if self._pin is not None:
            closing.callback(self._pin.close)
        self._feed = PowerFeed(config.feed, config.power) if guest is None else guest.supply
        closing.callback(self._feed.close)
        closing.callback(self.power_off)
        self._qemu: Qemu | None = None
        self._state = BoardState.OFF
        self._message = "switched off"
        self._power_ons = 0
        self._powered_s = 0.0
        host_cpu = HostCpu(os.sched_getaffinity(0))
        closing.callback(host_cpu.close)
        self._host_cpu = host_cpu.number

    @property
    def powered(self) -> bool:
        return self._state is not BoardState.OFF

    @property
    def card_position(self) -> CardPosition:
        return self._card.position

    @property
    def card_device(self) -> Path:
        return self._card.host_device

    def status(self) -> dict[str, Any]:
        """The status for people and `fsjoule lab status`, as plain JSON."""
        qemu = self._qemu
        return {
            "name": self._config.name,
            "power": "on" if self.powered else "off",
            "state": self._state.value,
            "message": self._message,
            "power_ons": self._power_ons,
            "qemu_pid": None if qemu is None else qemu.pid,
            "card": {
                "position": self._card.position.value,
                "image": str(self._card.image),
                "powered": None if self._guest is None else str(self._guest.card),
                "writes": str(self._writes),
                "host_device": str(self._card.host_device),
                "on_usb": self._card.on_usb,
            },
            "losses": {
                name: str(disk.last_loss)
                for name, disk in self._lossy.items()
                if disk.last_loss and disk.last_loss.unflushed
            },
            "flash": {name: disk.flash.facts() for name, disk in self._lossy.items() if disk.flash},
            "console": {"tty": str(self._console.tty), "dropped_bytes": self._console.dropped_bytes},
            "mark": {"passed_bytes": self._marks.passed_bytes, "dropped_bytes": self._marks.dropped_bytes},
            "mark_gpio": None if self._pin is None else {"passed_edges": self._pin.passed_edges},
            "supply": {"volts": self._feed.volts, "watts": round(self._feed.watts, 4), "records": self._feed.records},
            "guest_time": None if self._guest is None else self._guest.status(),
        }

    def set_power(self, on: bool) -> None:
        """The outlet's switch. Switching on twice does nothing. Raises LabError."""
        if on and not self.powered:
            self._power_on()
        elif not on:
            self.power_off()

    def set_seed(self, seed: int) -> None:
        """Seed of the next power-on of a board in guest time, and of the next loss of a disk's cache."""
        self._seed = seed
        if self._guest is not None:
            self._guest.seed = seed

    def profile_next(self) -> None:
        """Let the next power-on count instructions. Raises LabError for a board not in guest time."""
        if self._guest is None:
            raise LabError("this board is not in guest time: it cannot count instructions")
        self._guest.profile_next = True

    def record_next(self) -> None:
        """Let the next power-on record all writes to the card. Raises LabError for a board in guest time."""
        if self._guest is not None:
            raise LabError("this board is in guest time: it cannot record the writes to its card")
        self._record_next = True

    def take_profile(self, window: str) -> bytes | None:
        """A window's profile (see `GuestSupply`), or None."""
        return None if self._guest is None else self._guest.supply.take_profile(window)

    def end_qemu(self) -> None:
        """Kill a QEMU that the main thread waits for: a stopped one would never answer."""
        qemu = self._qemu
        if qemu is not None:
            _log.warning("QEMU (process %d) is killed to switch the power off", qemu.pid)
            qemu.send_kill()

    def power_off(self) -> None:
        """Cut the supply: QEMU is killed at once, and disks lose unwritten data."""
        if self._qemu is not None:
            self._qemu.kill()
            self._qemu = None
            self._end_record()
            seed = secrets.randbits(_SEED_BITS) if self._seed is None else self._seed
            self._seed = None
            for name, disk in self._lossy.items():
                disk.cut(seed)
                if disk.flash is not None:
                    text = json.dumps(disk.flash.facts(), indent=2) + "\n"
                    (self._config.log_dir / f"flash-{name}.json").write_text(text)
        if self._guest is not None:
            self._guest.power_off()
        self._feed.switch_off()
        self._usb.follow(running=False)
        if self.powered:
            self._become(BoardState.OFF, "switched off")

    def move_card(self, position: CardPosition) -> None:
        """Switch the mux. Under power this pulls the card out of the running board or inserts it. Raises LabError."""
        self.watch()
        before = self._card.position
        if position is before:
            return
        running = self._qemu if self._state is BoardState.RUNNING else None
        if running is not None and self._guest is not None:
            # QEMU may be stopped in a wait for input, and could not answer.
            raise LabError("in guest time a card cannot be moved under power", hint="switch the board off first")
        if before is CardPosition.DUT and running is not None:
            running.pull_card()
        self._card.release()
        self._card.give(position)
        if position is CardPosition.DUT and running is not None:
            running.insert_card(self._card.image)
        _log.info("card: %s -> %s%s", before, position, " under power" if self.powered else "")

    def plug_usb(self, plugged: bool) -> None:
        """Plug the USB cable in, or pull it out. Raises LabError for a board without one."""
        if not self._config.card.usb:
            raise LabError("this board has no USB cable to the exporter's computer")
        self._usb.plugged = plugged

    def reset(self) -> None:
        """Press the reset button of a running board. Raises LabError."""
        if self._qemu is not None and self._state is BoardState.RUNNING:
            self._qemu.reset()

    def watch(self) -> None:
        """Detect that QEMU has ended by itself, and a card that U-Boot offers over USB or no longer offers."""
        self._usb.follow(running=self._state is BoardState.RUNNING)
        if self._qemu is None or self._state is not BoardState.RUNNING:
            return
        code = self._qemu.exit_code()
        if code is not None:
            self._feed.halted()
            self._become(BoardState.ENDED, self._how_it_ended(self._qemu, code))

    def _how_it_ended(self, qemu: Qemu, code: int) -> str:
        after = f"{time.monotonic() - self._powered_s:.1f} s after power-on"
        cause = "" if code else qemu.shutdown_cause()
        if code == 0 and not cause.startswith("host-"):
            return f"the guest switched the board off {after}"
        # The exit code is also 0 if a user of this computer ends it.
        how = ending(code) if code else f"was ended by another program ({cause})"
        return f"QEMU (process {qemu.pid}) {how} {after}; its log is {self._config.log_dir / 'qemu.log'}"

    def _power_on(self) -> None:
        self._power_ons += 1
        self._powered_s = time.monotonic()
        self._feed.idle()
        if self._card.position is not CardPosition.DUT:
            self._no_boot("there is no card in the board's slot")
            return
        image = self._card.image
        loaded = image.with_name(image.name + ".boot")
        loaded.mkdir(exist_ok=True)
        try:
            if self._guest is None:
                self._boot(boot_partition.boot_files(self._config.qemu.boot, image, loaded), image, None)
            else:
                power_on = self._guest.power_on(image, loaded)
                self._boot(power_on.files, power_on.card, power_on.qemu)
        except InfrastructureError as error:
            self._no_boot(error.what)
        finally:
            # QEMU has loaded the files by now.
            shutil.rmtree(loaded, ignore_errors=True)

    def _boot(self, files: boot_partition.BootFiles | None, card: Path, guest_time: GuestTime | None) -> None:
        log = self._config.log_dir / "qemu.log"
        server = None
        if self._record_next:
            server, self._record_next = self._config.disk_socket("card"), False
            self._recorded = LossyDisk("card", card, server, Cache.KEPT, record=self._writes)
        self._qemu = qemu = Qemu(
            self._config,
            files,
            card,
            log=log,
            host_cpu=self._host_cpu,
            guest_time=guest_time,
            card_server=server,
        )
        self._console.connect(qemu.console)
        self._marks.connect(qemu.mark)
        if self._pin is None:
            qemu.pin.close()
        else:
            self._pin.connect(qemu.pin)
        try:
            self._feed.follow(qemu.attach())
        except (InfrastructureError, OSError) as error:
            qemu.kill()
            self._end_record()
            self._feed.halted()
            self._become(BoardState.ENDED, f"QEMU did not start: {error}; see {log}")
            return
        self._become(BoardState.RUNNING, f"running as process {qemu.pid}")

    @property
    def _writes(self) -> Path:
        """The writes to the card since the last power-on that recorded them (`model/card_writes.py`)."""
        return self._card.image.with_name(f"{self._card.image.name}.writes")

    def _end_record(self) -> None:
        if self._recorded is not None:
            self._recorded.close()
            self._recorded = None

    def _no_boot(self, reason: str) -> None:
        self._become(BoardState.NO_BOOT, reason)
        self._console.say(f"\r\nBoot ROM: nothing to boot: {reason}\r\n")

    def _become(self, state: BoardState, message: str) -> None:
        _log.info("%s: %s", state, message)
        self._state, self._message = state, message


def run(config: BoardConfig) -> None:
    """Run a board in the main thread until SIGTERM or SIGINT. Raises ConfigError, LabError."""
    for tool in (config.qemu.program, PINNING_PROGRAM, "mcopy"):
        process.find_tool(tool)
    claim_control_socket(config.card.control_socket)
    _make_directories(config)
    orders = OrderQueue()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, orders.end)
    with ExitStack() as closing:
        board = VirtualBoard(config, closing)
        mux = MuxControl(
            config.card.control_socket,
            lambda: board.card_position,
            lambda position: orders.do(lambda: board.move_card(position)),
        )
        closing.callback(mux.close)
        actions = OutletActions(
            lambda: board.powered,
            lambda on: orders.do(lambda: board.set_power(on), hurry=None if on else board.end_qemu),
            board.status,
            board.set_seed,
            board.profile_next,
            board.take_profile,
            board.record_next,
            lambda plugged: orders.do(lambda: board.plug_usb(plugged)),
            lambda: orders.do(board.reset),
        )
        outlet = Outlet(config.outlet, actions)
        closing.callback(outlet.close)
        ready = BoardReady(
            pid=os.getpid(),
            outlet_url=f"{outlet.base_url}/outlet/{{index}}",
            status_url=f"{outlet.base_url}/status",
            card_device=str(board.card_device),
            mux_control=str(config.card.control_socket),
            console=str(config.wires.console),
        )
        closing.callback(lambda: config.ready_file.unlink(missing_ok=True))
        ready.write(config.ready_file)
        _log.info("ready: outlet %s, card %s", ready.outlet_url, ready.card_device)
        orders.serve(board.watch)
        _log.info("ending")


def _make_directories(config: BoardConfig) -> None:
    for folder in (config.log_dir, config.ready_file.parent, config.feed.parent, config.card.image.parent):
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"the folder {folder} cannot be made: {error}") from error
    config.ready_file.unlink(missing_ok=True)


def main() -> int:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    if len(sys.argv) != 2:  # noqa: PLR2004 - the program and its one argument
        sys.stderr.write("usage: python -m fsjoule.virtual.board.program CONFIG.toml\n")
        return ConfigError.exit_code
    try:
        run(BoardConfig.from_toml(Path(sys.argv[1])))
    except FsjouleError as error:
        sys.stderr.write(f"virtual board: {error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
