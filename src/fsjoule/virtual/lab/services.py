"""The programs of a virtual lab: the command of each, the sign that it is ready, and the files that it starts from.

labgrid writes images through ssh to the exporter's host. In the virtual lab this host is 127.0.0.1, with its own ssh
server, and labgrid finds the lab's `ssh` first on its PATH. The user's ssh configuration is neither read nor changed.

Two are compiled here: the meter's simulator from meter/, and from probe/ the library that reports power and
instructions of a board in guest time.
"""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import logging
import os
import pwd
import random
import shlex
import shutil
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from string import Template
from typing import Any, Final

import yaml

from fsjoule.errors import ConfigError, LabError
from fsjoule.host.cache.libraries import compiler_version, shared_library
from fsjoule.host.cache.stages import build_once, cache_key, folder_digest
from fsjoule.host.paths import cache_dir, project_dir
from fsjoule.host.process import find_tool, run
from fsjoule.images.boot_loader import package_files
from fsjoule.virtual.board.config import BoardConfig, BoardReady, FlashMemoryConfig, NetworkConfig, WiresConfig
from fsjoule.virtual.lab import usbsdmux
from fsjoule.virtual.lab.files import BoardPaths, BoardRecord, LabPaths, LabRecord, numbered
from fsjoule.virtual.lab.instruments import programs, resources

_CONNECT_TIMEOUT_S: Final = 1.0
_START_TIMEOUT_S: Final = 60.0
# In guest time a meter follows its board exactly: which lab's it is makes no difference to a joule.
_SERIAL_IN_GUEST_TIME: Final = "SIM-guest-time"
_LOWEST_PORT: Final = 10000
_KERNELS_PORTS: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
_PLACES_FILE: Final = "places.yaml"
_PRIVILEGE_SEPARATION: Final = Path("/run/sshd")
_KEYGEN_TIMEOUT_S: Final = 20.0
# labgrid asks /sys for the size of a disk, and the lab's card is a file.
_CAT: Final = """\
case "$1" in
/sys/class/block/shm/fsjoule-*/card/size)
    card=/dev/${{1#/sys/class/block/}}
    bytes=$(stat -L -c %s "${{card%/size}}") && echo $((bytes / 512)) ;;
*) exec {cat} "$@" ;;
esac"""
# Of the files that a template names, until a lab says where they are: whatever used them too early would fail.
_NOWHERE: Final = Path("/nonexistent")
_SYSTEM_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_log: Final = logging.getLogger(__name__)

SIMULATOR: Final = "fsjoule-meter-sim"
_LOADER: Final = "flash-memory"
_FOLDERS: Final = ("host", "lib", "emulated", "sim")
_BUILD_TIMEOUT_S: Final = 300.0


@dataclass(frozen=True, slots=True)
class Service:
    """A program of the lab; see `ServiceRecord`."""

    name: str
    argv: tuple[str, ...]
    ready: Callable[[], bool]
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    cwd: Path | None = None
    stop_signal: signal.Signals = signal.SIGTERM
    timeout_s: float = _START_TIMEOUT_S
    boards: tuple[int, ...] = ()

    @property
    def part(self) -> str:
        return self.name.partition("-")[0]


def board_template(board: str) -> BoardConfig:
    """The config of that name in labgrid/virtual; its files are nowhere yet. Raises ConfigError for an unknown name."""
    boards = project_dir() / "labgrid" / "virtual"
    known = [each.stem for each in boards.glob("*.toml")]
    if board not in known:
        raise ConfigError.unknown("virtual board", board, known)
    return BoardConfig.from_toml(boards / f"{board}.toml", folder=_NOWHERE)


def board_config(
    paths: BoardPaths,
    devices: Path,
    emulator: str,
    board: str,
    probe: Path | None,
    *,
    network: NetworkConfig,
) -> BoardConfig:
    """The config of a lab's board: the template with the lab's own paths, QEMU, probe, and network if it has one."""
    base = board_template(board)
    guest = base.guest_time
    if guest is not None and probe is not None:
        guest = dataclasses.replace(guest, mailbox=devices / "mailbox", probe=probe)
    flash = base.flash_memory
    if flash is not None:
        flash = dataclasses.replace(flash, image=paths.flash_memory)
    return dataclasses.replace(
        base,
        flash_memory=flash,
        network=None if base.network is None else dataclasses.replace(network, fastboot=base.network.fastboot),
        name=paths.name,
        log_dir=paths.logs,
        ready_file=paths.board_ready,
        feed=devices / "feed",
        card=dataclasses.replace(base.card, image=paths.card, control_socket=devices / "mux"),
        wires=WiresConfig(devices / "console", devices / "marks", devices / "pin"),
        qemu=dataclasses.replace(base.qemu, program=emulator),
        outlet=dataclasses.replace(base.outlet, address="127.0.0.1", port=0),
        guest_time=guest,
    )


def first_services(paths: LabPaths, record: LabRecord) -> tuple[Service, ...]:
    """Services that need no other. They start concurrently."""
    port = record.coordinator.rsplit(":", 1)[1]
    coordinator_log = paths.log("coordinator")
    return (
        Service(
            name="coordinator",
            argv=(sys.executable, "-m", "fsjoule.virtual.lab.coordinator", "--listen", record.coordinator),
            ready=lambda: "Coordinator ready" in _text(coordinator_log) and listens(int(port)),
            cwd=paths.coordinator,
            # SIGTERM would make it wait 5 s for its clients; its whole state is in places.yaml.
            stop_signal=signal.SIGKILL,
        ),
        Service(
            name="sshd",
            argv=(find_tool("sshd"), "-D", "-e", "-f", str(paths.ssh / "sshd_config")),
            ready=lambda: listens(record.ssh_port),
        ),
        *(_board(paths, each.number) for each in record.boards),
        *(_meter(paths, record, each.number) for each in record.boards),
        *(service for each in record.boards for service in _instruments(paths, record, each.number)),
    )


def _board(paths: LabPaths, number: int) -> Service:
    files = paths.of_board(number)
    return Service(
        name=numbered("board", number),
        argv=(sys.executable, "-m", "fsjoule.virtual.board.program", str(files.board_config)),
        ready=files.board_ready.exists,
        boards=(number,),
    )


def _meter(paths: LabPaths, record: LabRecord, number: int) -> Service:
    name, files, devices = numbered("meter", number), paths.of_board(number), record.devices_of(number)
    board = BoardConfig.from_toml(files.board_config)
    feed, stream, marks = devices / "feed", devices / "meter", devices / "marks"
    own = ("--stream-link", str(stream), "--storage", str(files.meter_storage))
    if board.guest_time is not None:
        own += ("--serial-number", _SERIAL_IN_GUEST_TIME)
        argv = (record.meter_program, "--follow", str(feed), *own)
        return Service(name, argv, ready=stream.exists, boards=(number,))
    own += ("--serial-number", meter_serial(files))
    links = {"--marks-link": marks} | ({} if board.mark_gpio is None else {"--pin-link": board.wires.pin})
    wired = (word for option, link in links.items() for word in (option, str(link)))
    return Service(
        name=name,
        argv=(record.meter_program, "--feed", str(feed), *wired, *own),
        ready=lambda: stream.exists() and all(link.exists() for link in links.values()),
        boards=(number,),
    )


def _instruments(paths: LabPaths, record: LabRecord, number: int) -> Iterator[Service]:
    """The instruments beside the meter."""
    board = BoardConfig.from_toml(paths.of_board(number).board_config)
    for each in programs(board, record.devices_of(number)):
        yield Service(
            numbered(each.name, number),
            each.argv,
            ready=lambda files=each.files: all(file.exists() for file in files),
            boards=(number,),
        )


def meter_serial(paths: BoardPaths) -> str:
    """A serial number that is unique to this board and constant."""
    return f"SIM-{hashlib.sha256(bytes(paths.root)).hexdigest()[:8]}"


def exporters(paths: LabPaths, record: LabRecord) -> tuple[Service, ...]:
    """The exporters, with neighbouring boards each. They need the coordinator, the ttys and the boards' ready files.

    Raises LabError for a board that has ended.
    """
    of_boards: dict[int, list[BoardRecord]] = {}
    for board in record.boards:
        of_boards.setdefault(record.exporter_of(board.number), []).append(board)
    return tuple(_exporter(paths, record, number, boards) for number, boards in of_boards.items())


def _exporter(paths: LabPaths, record: LabRecord, number: int, boards: Sequence[BoardRecord]) -> Service:
    name = numbered("exporter", number)
    log = paths.log(name)
    # labgrid gives the template this environment.
    resources = {"PLACES": " ".join(each.place for each in boards)}
    for index, board in enumerate(boards, 1):
        own = _resources(paths, record, board.number)
        resources |= {f"{key}_{index}": value for key, value in own.items()}
    return Service(
        name=name,
        argv=(
            beside_python("labgrid-exporter"),
            *("--coordinator", record.coordinator),
            *("--name", record.exporter_name(number)),
            *("--hostname", "127.0.0.1"),
            str(project_dir() / "labgrid" / "virtual" / "exporter.yaml"),
        ),
        ready=lambda: "Exporter ready" in _text(log),
        env={"PATH": lab_path(paths)} | {f"FSJOULE_LAB_{key}": value for key, value in resources.items()},
        boards=tuple(each.number for each in boards),
    )


def _resources(paths: LabPaths, record: LabRecord, number: int) -> dict[str, str]:
    files = paths.of_board(number)
    board = ready_board(paths, number)
    config = BoardConfig.from_toml(files.board_config)
    network = config.network
    return {
        "DEVICES": str(record.devices_of(number)),
        "OUTLET": board.outlet_url,
        "OUTLET_INDEX": str(config.outlet.index),
        "CARD": board.card_device,
        "TFTP": "" if network is None else f"{network.tftp}/",
        "BOARD_SSH": "" if network is None else str(network.ssh_port),
        "FASTBOOT": "" if not (network and network.fastboot) else str(network.fastboot_port),
        "USB": "1" if config.card.usb else "",
        "MUX": board.mux_control,
        **resources(config, record.devices_of(number), number),
    }


def ready_board(paths: LabPaths, number: int) -> BoardReady:
    """What a board that has started says of itself. Raises LabError if it has ended."""
    board = BoardReady.read(paths.of_board(number).board_ready)
    if board is None:
        name = numbered("board", number)
        raise LabError(f"the lab's {name} ended as soon as it was ready", hint=f"its log is {paths.log(name)}")
    return board


def listens(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=_CONNECT_TIMEOUT_S):
            return True
    except OSError:
        return False


def free_ports(count: int) -> list[int]:
    """Ports of the loopback interface that are free now, and that nothing gets by chance before our services listen.

    The kernel gives ports of its own range to outgoing connections and to whoever asks for any port: ours are below it.
    """
    end = int(_KERNELS_PORTS.read_text().split()[0])
    below = range(min(_LOWEST_PORT, end), end)
    candidates = [*random.SystemRandom().sample(below, len(below)), *[0] * count]
    sockets: list[socket.socket] = []
    try:
        while len(sockets) < count:
            sockets.append(socket.socket())
            try:
                sockets[-1].bind(("127.0.0.1", candidates.pop(0)))
            except OSError as error:
                sockets.pop().close()
                if error.errno != errno.EADDRINUSE:
                    raise
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


def _text(log: Path) -> str:
    try:
        return log.read_text(errors="replace")
    except FileNotFoundError:
        return ""


def beside_python(program: str) -> str:
    """A program of labgrid from this Python environment."""
    return find_tool(str(Path(sys.executable).parent / program))


def write_places(paths: LabPaths, record: LabRecord, template: BoardConfig) -> None:
    """Write the coordinator's file of places: one for each board, with tags by which a run can choose it.

    It is in the coordinator's working directory, where it reads the file when it starts.
    """
    places = {each.place: _place_entry(each, record, template.soc) for each in record.boards}
    (paths.coordinator / _PLACES_FILE).write_text(yaml.safe_dump(places))


def _place_entry(board: BoardRecord, record: LabRecord, soc: str) -> dict[str, Any]:
    exporter = record.exporter_name(record.exporter_of(board.number))
    return {
        "aliases": [],
        "comment": f"an emulated {soc} with its card, outlet, console and meter",
        "tags": {"board": "virtual", "kind": record.board, "soc": soc, "number": str(board.number)},
        "matches": [{"exporter": exporter, "group": board.place, "cls": "*"}],
        "created": 0.0,
        "changed": 0.0,
    }


def lab_path(paths: LabPaths) -> str:
    """PATH of all programs in the lab: its own wrappers first, then the caller's, then the system's."""
    return ":".join((str(paths.bin), os.environ.get("PATH", ""), _SYSTEM_PATH))


def prepare_ssh(paths: LabPaths, port: int) -> None:
    """Write keys of ssh (once), both configurations and the wrappers. Raises MissingToolError."""
    for key in ("host_key", "client_key"):
        if not (paths.ssh / key).exists():
            _make_key(paths.ssh / key)
    host_key = (paths.ssh / "host_key.pub").read_text()
    (paths.ssh / "known_hosts").write_text(f"fsjoule-lab {host_key}")
    values = {
        "port": str(port),
        "user": pwd.getpwuid(os.getuid()).pw_name,
        "ssh_dir": str(paths.ssh),
        "bin": str(paths.bin),
        "use_pam": "yes" if _needs_pam() else "no",
    }
    templates = project_dir() / "labgrid" / "virtual"
    for name in ("sshd_config", "ssh_config"):
        (paths.ssh / name).write_text(Template((templates / name).read_text()).substitute(values))
    with_path = f'export PATH={shlex.quote(lab_path(paths))}; exec /bin/sh -c "$SSH_ORIGINAL_COMMAND"'
    _write_program(paths.bin / "lab-command", with_path)
    _wrap(paths.bin / "ssh", [find_tool("ssh"), "-F", str(paths.ssh / "ssh_config")])
    usbsdmux.install(paths.bin)
    _write_program(paths.bin / "cat", _CAT.format(cat=find_tool("cat")))
    _wrap(paths.bin / "ser2net", [sys.executable, "-m", "fsjoule.virtual.lab.ser2net", find_tool("ser2net")])
    if os.getuid() == 0:
        # Debian's service manager makes this only for the system's own sshd, which need not run.
        _PRIVILEGE_SEPARATION.mkdir(mode=0o755, exist_ok=True)


def _make_key(path: Path) -> None:
    run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "fsjoule-lab", "-f", path], timeout_s=_KEYGEN_TIMEOUT_S)


def _needs_pam() -> bool:
    """Without PAM, sshd refuses root if root's password is locked with '!' (a system with only sudo)."""
    if os.getuid() != 0:
        return False
    for line in Path("/etc/shadow").read_text().splitlines():
        name, password = line.split(":")[:2]
        if name == "root":
            return password.startswith("!")
    return False


def _wrap(path: Path, command: list[str]) -> None:
    _write_program(path, f'exec {shlex.join(command)} "$@"')


def _write_program(path: Path, line: str) -> None:
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)


def simulator() -> Path:
    """The simulator's program, from the cache or built now.

    Raises MissingToolError if cmake, ninja or the C compiler is missing, LabError if the build fails.
    """
    sources = project_dir() / "meter"
    inputs = {"compiler": compiler_version(), **{name: folder_digest(sources / name) for name in _FOLDERS}}

    def build(folder: Path) -> None:
        _log.info("building the meter's simulator")
        work = folder / "work"
        run(["cmake", "-S", sources / "host", "-B", work, "-GNinja"], timeout_s=_BUILD_TIMEOUT_S)
        run(["ninja", "-C", work, SIMULATOR], timeout_s=_BUILD_TIMEOUT_S)
        (work / "sim" / SIMULATOR).rename(folder / SIMULATOR)
        shutil.rmtree(work)

    return build_once("meter", "simulator", cache_key(inputs), build, root=cache_dir()) / SIMULATOR


def flash_memory(config: FlashMemoryConfig) -> Path:
    """The boot loader of a board that has it in its own flash memory. Raises ConfigError, LabError."""
    wanted = {_LOADER: (config.package, config.file)}
    return package_files("armhf", config.suite, ("main",), wanted) / _LOADER


def probe() -> Path:
    """The library that reports power and instructions of a board in guest time. Raises like `simulator`."""
    source = project_dir() / "probe" / "guest_probe.c"
    beside = sorted(each for each in source.parent.glob("*.[ch]") if each != source)
    return shared_library(source, "probe", beside=beside, root=cache_dir())
