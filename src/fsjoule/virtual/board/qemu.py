"""One run of QEMU, from power on to power off: its arguments, its machine protocol, and the CPU of the host for it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from fsjoule.errors import LabError
from fsjoule.host import process
from fsjoule.host.locks import LOCKS, try_lock
from fsjoule.virtual.board import confined
from fsjoule.virtual.board.boot_partition import MAILBOX_INDEX, BootFiles
from fsjoule.virtual.board.config import BoardConfig, CardConfig, FlashMemoryConfig, NetworkConfig, Serial
from fsjoule.virtual.board.power import ActivityReader

PINNING_PROGRAM: Final = "taskset"
CARD_ID: Final = "card"
_SERIALS: Final = {Serial.CONSOLE: "chardev:console", Serial.MARK: "chardev:mark", Serial.NONE: "null"}
# For a kernel under test that breaks out of the emulator: it starts no program and gets no rights.
_SANDBOX: Final = ("-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny")
# Root keeps the power over other users' files: a card or a kernel may be theirs.
_WITHOUT_POWERS: Final = ("setpriv", "--bounding-set=-all,+dac_override", "--inh-caps=-all", "--no-new-privs")
# Of our environment, which may have tokens and passwords.
_VARIABLES: Final = frozenset({"PATH", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH", "FSJOULE_STATE_DIR"})
_START_TIMEOUT_S: Final = 30.0
_KILL_TIMEOUT_S: Final = 10.0
_AWAKE_S: Final = 0.05
_CHUNK_BYTES: Final = 65536
_LEFT_TIMEOUT_S: Final = 1.0
_CPU_SLOTS: Final = 64
_CHOICE_WAIT_S: Final = 5.0
_CHOICE_LOOK_S: Final = 0.01


# Debian's U-Boot 2025.01 starts USB for keyboards, and leaves the four OHCI controllers running: each writes its frame
# number into the kernel's memory every millisecond (Host Controller Communication Area, OpenHCI 1.0a, 4.4), which was a
# wrong word or more in a copy of 55 MiB. Nothing is plugged into them: they stop, because their DMA goes to no memory.
_QUIRKS: Final = {"orangepi-pc": ("-global", "sysbus-ohci.dma-offset=0x100000000")}


@dataclass(frozen=True, slots=True)
class GuestTime:
    """QEMU's options in guest time: an instruction takes `2 ** shift` ns.

    With `mailbox` input comes from this socket, as a second card. `environment` gives the probe's environment for
    QEMU's ends of console and mark line. All random numbers come from `seed`.
    `counter` is the probe as QEMU's plugin, which counts the instructions of programs; with `by_address` all others
    too, each by its address. `written` lists what the probe writes.
    """

    shift: int
    mailbox: Path | None
    environment: Callable[[int, int], Mapping[str, str]]
    seed: int
    counter: Path
    by_address: bool = False
    written: tuple[Path, ...] = ()

    @property
    def arguments(self) -> list[str]:
        """QEMU's additional arguments.

        With `sleep=off` an idle guest does not wait for the host's clock. The time of day, which Linux reads once, is
        constant and follows the guest's time. Nothing runs before `cont`.
        """
        return [
            *("-icount", f"shift={self.shift},sleep=off", "-S", "-seed", str(self.seed)),
            *("-rtc", "base=2026-01-01T00:00:00,clock=vm"),
            *([] if self.mailbox is None else _second_card(self.mailbox)),
            *("-plugin", f"file={_escaped(self.counter)}" + ("" if self.by_address else ",programs=on")),
        ]


def arguments(
    config: BoardConfig,
    boot: BootFiles | None,
    card: Path,
    *,
    console: int,
    mark: int,
    control: int,
    pin: int = -1,
    card_server: Path | None = None,
) -> list[str]:
    """QEMU's arguments; `console`, `mark`, `control`, and `pin` with a GPIO, are descriptors of connected sockets.

    Without boot files the machine's own boot ROM starts the boot loader on the card, or that in flash memory starts.
    With `card_server`, a socket of NBD's, the card is served there.
    """
    qemu = config.qemu
    return [
        *("-machine", qemu.machine, "-m", f"{qemu.memory_mib}M"),
        *(("-monitor", "none") if qemu.defaults else ("-nodefaults",)),
        *("-display", "none", "-nic", _network(config.network), *_SANDBOX),
        *([] if boot is None else _kernel(boot)),
        *([] if config.flash_memory is None else _loader(config.flash_memory)),
        *("-chardev", f"socket,id=console,fd={console}"),
        *("-chardev", f"socket,id=mark,fd={mark}"),
        *(word for serial in qemu.serials for word in ("-serial", _SERIALS[serial])),
        *_control("control", control),
        *([] if config.mark_gpio is None else _levels(pin)),
        *_QUIRKS.get(qemu.machine.partition(",")[0], ()),
        *qemu.extra_args,
        *_card(config.card, card, card_server),
        *(each for name in config.disks for each in _disk(name, config)),
    ]


def _control(name: str, descriptor: int) -> list[str]:
    return ["-chardev", f"socket,id={name},fd={descriptor}", "-mon", f"chardev={name},mode=control"]


def _levels(descriptor: int) -> list[str]:
    """QEMU's test protocol beside the board, which can tell each new level of a device's outputs."""
    return ["-chardev", f"socket,id=pin,fd={descriptor}", "-object", "qtest,id=levels,chardev=pin,log=none"]


def _kernel(boot: BootFiles) -> list[str]:
    tree = [] if boot.device_tree is None else ["-dtb", str(boot.device_tree)]
    initrd = [] if boot.initrd is None else ["-initrd", str(boot.initrd)]
    return ["-kernel", str(boot.kernel), *initrd, *tree, "-append", boot.command_line]


def _network(network: NetworkConfig | None) -> str:
    """The board reaches nothing of the host but the folder; the host reaches the board's ssh server."""
    if network is None:
        return "none"
    server = f",hostfwd=tcp:127.0.0.1:{network.ssh_port}-:22" if network.ssh_port else ""
    if network.fastboot:
        server += f",hostfwd=udp:127.0.0.1:{network.fastboot_port}-:5554"
    restrict = "off" if network.fastboot else "on"
    return f"user,restrict={restrict},tftp={_escaped(network.tftp)}{server}"


def _loader(flash: FlashMemoryConfig) -> list[str]:
    return ["-device", f"loader,file={_escaped(flash.image)},addr={flash.address:#x},cpu-num=0,force-raw=on"]


def _card(config: CardConfig, image: Path, server: Path | None) -> list[str]:
    place = "if=none" if config.device else f"if=sd,index={config.slot}"
    served = server and ["-drive", f"{place},id={CARD_ID},format=raw,cache=writeback,{_nbd(server)}"]
    device = ["-device", f"{config.device},drive={CARD_ID}"] if config.device else []
    return [*(served or _drive(CARD_ID, image, place)), *device]


def _second_card(server: Path) -> list[str]:
    return ["-drive", f"if=sd,index={MAILBOX_INDEX},format=raw,{_nbd(server)}"]


def _disk(name: str, config: BoardConfig) -> list[str]:
    disk, drive = config.disks[name], f"disk-{name}"
    if disk.is_raw_flash:
        return _drive(drive, config.disk_image(name), disk.device)
    if not disk.served:
        backing = _drive(drive, config.disk_image(name), "if=none")
    else:
        served = _nbd(config.disk_socket(name))
        backing = ["-drive", f"if=none,id={drive},format=raw,cache=writeback,{served}"]
    return [*backing, "-device", f"{disk.device},drive={drive},id={name}"]


def _nbd(server: Path) -> str:
    return f"file.driver=nbd,file.server.type=unix,file.server.path={_escaped(server)}"


def _drive(drive: str, image: Path, place: str) -> list[str]:
    """A drive for the file `image`. Written data survives a kill of QEMU, in the host's memory.

    `cache=unsafe`: a flush must not wait for the host's disk. `discard=unmap` keeps the image sparse. `aio=threads`:
    `ActivityReader` can count these transfers, but not transfers of io_uring.
    """
    return ["-drive", f"{place},id={drive},format=raw,cache=unsafe,discard=unmap,aio=threads,file={_escaped(image)}"]


def _escaped(path: Path) -> str:
    """A path as a value of -drive, with doubled commas."""
    return str(path).replace(",", ",,")


def _confined(config: BoardConfig, card: Path, guest_time: GuestTime | None) -> list[str]:
    """The words before a QEMU that can change its own files only, and reach nothing of the host."""
    own = (config.disk_image(name) for name, disk in config.disks.items() if not disk.served)
    written = [card, *own, *(() if guest_time is None else guest_time.written)]
    port = 0 if config.network is None else config.network.ssh_port
    bound = ("--bind", str(port)) if port else ()
    return [sys.executable, "-I", "-S", confined.__file__, *bound, *map(str, written), "--"]


def _keep_awake(connection: socket.socket) -> None:
    """Have QEMU's main loop look at its timers, again and again until QEMU ends.

    It sleeps until its earliest timer, and is woken when an earlier one is set. But the CPU's thread can take that call
    for itself while it waits for a block of the card. On a busy host the main loop slept on, and the board with it: no
    login within three minutes.
    """
    with connection, suppress(OSError):
        question = b'{"execute": "qmp_capabilities"}'
        while connection.recv(_CHUNK_BYTES):
            time.sleep(_AWAKE_S)
            connection.sendall(question)
            question = b'{"execute": "query-status"}'


class Qemu:
    """A running QEMU. `console` and `mark` are our ends of its serial lines; their users close them.

    So is `pin` of its test protocol, which tells the levels of a board with `mark_gpio`.
    """

    def __init__(
        self,
        config: BoardConfig,
        boot: BootFiles | None,
        card: Path,
        *,
        log: Path,
        host_cpu: int,
        guest_time: GuestTime | None = None,
        card_server: Path | None = None,
    ) -> None:
        """Start it; `attach` waits until it runs. Call from a thread that outlives it (see `process.start`).

        All its threads share one CPU of the host: each 512-byte block of the card passes between two threads and back,
        which takes two to three times longer from CPU to CPU.
        """
        pairs = [socket.socketpair() for _ in range(5)]
        ours, theirs = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        console, mark, control, awake, pin = (each.fileno() for each in theirs)
        self._guest_time = guest_time
        forgotten: dict[str, str | None] = dict.fromkeys(os.environ.keys() - _VARIABLES)
        given: Mapping[str, str] = {} if guest_time is None else guest_time.environment(console, mark)
        powers = _WITHOUT_POWERS if os.geteuid() == 0 else ()
        try:
            self._process = process.start(
                [
                    *(PINNING_PROGRAM, "-c", str(host_cpu), *powers, *_confined(config, card, guest_time)),
                    process.find_tool(config.qemu.program),
                    *arguments(
                        config,
                        boot,
                        card,
                        console=console,
                        mark=mark,
                        control=control,
                        pin=pin,
                        card_server=card_server,
                    ),
                    *(_control("awake", awake) if guest_time is None else guest_time.arguments),
                ],
                log=log,
                env={**forgotten, **given},
                pass_fds=(console, mark, control, awake, pin),
            )
        finally:
            for each in theirs:
                each.close()
        self.console, self.mark, self._control, awake_socket, self.pin = ours
        if guest_time is None:
            threading.Thread(target=_keep_awake, args=(awake_socket,), name="awake", daemon=True).start()
        self._qmp: Qmp | None = None

    @property
    def pid(self) -> int:
        return self._process.pid

    def exit_code(self) -> int | None:
        """The exit code, negative for a signal; None while it runs."""
        return self._process.poll()

    def shutdown_cause(self) -> str:
        """The ShutdownCause of a QEMU that ended with exit code 0: guest-shutdown, host-signal; empty if unknown."""
        event = None if self._qmp is None else self._qmp.last_event("SHUTDOWN")
        return "" if event is None else str(event["reason"])

    def attach(self) -> ActivityReader | None:
        """Wait until it runs. Returns its activity's reader, None in guest time. Raises QmpError, OSError."""
        self._qmp = Qmp(self._control, timeout_s=_START_TIMEOUT_S)
        if self._guest_time is not None:
            self._qmp.execute("cont")
            return None
        cpus = self._qmp.execute("query-cpus-fast")
        return ActivityReader(self.pid, [cpu["thread-id"] for cpu in cpus])

    def reset(self) -> None:
        """Press the board's reset button. Raises QmpError."""
        if self._qmp is not None:
            self._qmp.execute("system_reset")

    def pull_card(self) -> None:
        """Take the card out of the running board. Raises QmpError."""
        if self._qmp is not None:
            self._qmp.execute("eject", device=CARD_ID, force=True)

    def insert_card(self, card: Path) -> None:
        """Put the card into the running board. Raises QmpError."""
        if self._qmp is not None:
            self._qmp.execute("blockdev-change-medium", device=CARD_ID, filename=str(card), format="raw")

    def send_kill(self) -> None:
        """Send SIGKILL, from any thread. It also ends a stopped process."""
        self._process.kill()

    def kill(self) -> None:
        """Cut the power: send SIGKILL and wait for the end. Raises LabError if it does not end."""
        self.send_kill()
        try:
            self._process.wait(_KILL_TIMEOUT_S)
        except subprocess.TimeoutExpired as error:
            raise LabError(f"QEMU (process {self.pid}) does not end after SIGKILL") from error
        self._control.close()


class QmpError(LabError):
    """QEMU refused a command, does not answer, or is gone."""


class Qmp:
    """QEMU's machine protocol over a connected socket, in command mode: one command at a time, for one thread."""

    def __init__(self, connection: socket.socket, *, timeout_s: float) -> None:
        """Do the handshake. Raises QmpError after the time limit."""
        self._connection = connection
        self._buffer = b""
        self._receive(time.monotonic() + timeout_s)
        self.execute("qmp_capabilities", timeout_s=timeout_s)

    def execute(self, command: str, *, timeout_s: float = 5.0, **arguments: str | bool) -> Any:  # noqa: ANN401 - JSON
        """Run a command. Returns its result. Raises QmpError."""
        deadline = time.monotonic() + timeout_s
        message = {"execute": command, "arguments": {key.replace("_", "-"): value for key, value in arguments.items()}}
        try:
            self._connection.settimeout(timeout_s)
            self._connection.sendall(json.dumps(message).encode() + b"\n")
        except OSError as error:
            raise QmpError(f"QEMU does not accept the command {command}: {error}") from error
        while True:
            answer = self._receive(deadline)
            if "error" in answer:
                raise QmpError(f"QEMU refuses {command}: {answer['error'].get('desc')}")
            if "return" in answer:
                return answer["return"]

    def last_event(self, name: str) -> dict[str, Any] | None:
        """The data of the last unread event of this name from a QEMU that has ended; None without one."""
        found: dict[str, Any] | None = None
        while True:
            try:
                message = self._receive(time.monotonic() + _LEFT_TIMEOUT_S)
            except QmpError:
                return found
            if message.get("event") == name:
                found = message["data"]

    def close(self) -> None:
        self._connection.close()

    def _receive(self, deadline: float) -> dict[str, Any]:
        while b"\n" not in self._buffer:
            remaining_s = deadline - time.monotonic()
            if remaining_s <= 0:
                raise QmpError("QEMU does not answer its control socket in time", transient=True)
            self._connection.settimeout(remaining_s)
            try:
                chunk = self._connection.recv(_CHUNK_BYTES)
            except TimeoutError:
                continue
            except OSError as error:
                raise QmpError(f"QEMU's control socket broke: {error}") from error
            if not chunk:
                raise QmpError("QEMU ended")
            self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        return cast(dict[str, Any], json.loads(line))


class HostCpu:
    """A CPU of the host for a board's QEMU: one with the fewest boards of this computer, whichever labs they are in.

    Each board holds the lock of a slot of its CPU while it lives, so the kernel frees the slot however the board ends.
    Call `close` then.
    """

    def __init__(self, cpus: Collection[int], locks: Path = LOCKS) -> None:
        """Choose one of the `cpus`. Without the right to lock, boards may share it though another one is free."""
        self._slot: int | None = None
        with _choosing_alone(locks):
            boards = {cpu: _boards_of(locks, cpu) for cpu in cpus}
            # Of equals the last one: the first ones have more of the system's own work.
            self.number: Final = min(boards, key=lambda cpu: (boards[cpu], -cpu))
            for slot in range(_CPU_SLOTS):
                with suppress(OSError):
                    self._slot = try_lock(_slot_name(self.number, slot), locks)
                if self._slot is not None:
                    break

    def close(self) -> None:
        if self._slot is not None:
            os.close(self._slot)
            self._slot = None


@contextmanager
def _choosing_alone(locks: Path) -> Generator[None]:
    """Keep other boards from choosing meanwhile, unless one of them stands still while it chooses."""
    deadline = time.monotonic() + _CHOICE_WAIT_S
    lock = None
    # Without the right to lock there is nothing to wait for.
    with suppress(OSError):
        while (lock := try_lock("fsjoule-cpus", locks)) is None and time.monotonic() < deadline:
            time.sleep(_CHOICE_LOOK_S)
    try:
        yield
    finally:
        if lock is not None:
            os.close(lock)


def _boards_of(locks: Path, cpu: int) -> int:
    return sum(_is_slot_held(locks, _slot_name(cpu, slot)) for slot in range(_CPU_SLOTS))


def _slot_name(cpu: int, slot: int) -> str:
    return f"fsjoule-cpu{cpu}-{slot}"


def _is_slot_held(locks: Path, name: str) -> bool:
    if not (locks / name).exists():
        return False
    try:
        lock = try_lock(name, locks)
    except OSError:
        # Another user has or had it: it counts as held.
        return True
    if lock is not None:
        os.close(lock)
    return lock is None
