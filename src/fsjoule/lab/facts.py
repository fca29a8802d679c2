"""Facts for the results: of a booted board, of its lab's place and exporters, and labgrid's steps with their times."""

# labgrid ships no types: strict checking would only report their absence.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from labgrid import Target
from labgrid.protocol import ConsoleProtocol
from labgrid.resource.remote import RemotePlace, RemotePlaceManager
from labgrid.step import steps

from fsjoule.lab.board_counter import BoardCounterDriver
from fsjoule.lab.meterdriver import METERS
from fsjoule.lab.translate import lab_errors
from fsjoule.model import BoardFacts, Exporter, LabFacts, LabStep, MeterPort
from fsjoule.ports import Command, CommandResult, Programs

_SECTOR_BYTES: Final = 512
_TREE: Final = "/proc/device-tree/model"
_TABLES: Final = "/sys/class/dmi/id/product_name"
_DEBUG: Final = "/sys/kernel/debug"
_KIB: Final = 1024
_TIMERS: Final = (r"^now at (\d+) nsecs", r"^jiffies: (\d+)")
# The values of HZ in Linux: kernel/Kconfig.hz, and those of single architectures.
_TICKS_HZ: Final = (100, 128, 200, 250, 256, 300, 500, 1000, 1024)
_WRAPS_AFTER_S: Final = 300
_HALF_COUNT: Final = 2**31
# Ticks begin after time does, and a virtual machine's host may stop one of the two.
_TICKS_LATE_S: Final = 0.1
_TICKS_DRIFT: Final = 0.001
_LONGEST: Final = 1000
# Limit for a run of many hours without a measurement.
_MOST: Final = 5000


def board_facts(shell: Programs, name: str, card_device: str) -> BoardFacts:
    """Read the named board's facts from uname, /proc and /sys. Unknown facts are empty or 0."""
    block = f"/sys/class/block/{card_device}"
    files = ("/proc/cpuinfo", f"{block}/size", "/proc/meminfo", f"{block}/device/name", "/proc/mounts")
    timers = ("grep", "-m", "2", "-E", "^(now|jiffies)", "/proc/timer_list")
    further = [("uname", "-r"), ("uname", "-v"), timers, ("readlink", "-f", block), ("cat", _TREE)]
    commands = [*(("cat", path) for path in files), *further]
    cpu, sectors, memory, storage, mounts, release, version, ticks, device, tree = _told(shell, commands)
    # The last mount counts: an initial `rootfs` comes first.
    roots = [fields[2] for line in mounts.splitlines() if (fields := line.split())[1:2] == ["/"]]
    return BoardFacts(
        name=name,
        machine=(tree or _told(shell, [("cat", _TABLES)])[0]).strip("\0\n ") or _field(cpu, "Hardware"),
        kernel_release=release.strip(),
        kernel_version=version.strip(),
        cpu=_field(cpu, "model name") or _field(cpu, "Processor"),
        cpus=len(re.findall(r"^processor\s*:", cpu, re.MULTILINE)),
        memory_bytes=int(_field(memory, "MemTotal").removesuffix("kB") or 0) * _KIB,
        storage=storage.strip(),
        storage_bytes=int(sectors.strip() or 0) * _SECTOR_BYTES,
        storage_bus=_bus(shell, device),
        root_filesystem=roots[-1] if roots else "",
        tick_hz=tick_hz(ticks),
    )


def _told(shell: Programs, commands: Sequence[tuple[str, ...]]) -> list[str]:
    """The output of each command, empty for one that fails, at the cost of few round trips."""
    results: list[CommandResult] = []
    while len(results) < len(commands):
        results += shell.run_all([Command(argv) for argv in commands[len(results) :]])
    return [each.stdout if each.exit_code == 0 else "" for each in results]


def tick_hz(timers: str) -> int:
    """How often the kernel ticks a second (CONFIG_HZ), from its time and its count of ticks; 0 if it is not known.

    `timers` are the lines `now at N nsecs` and `jiffies: N` of /proc/timer_list. Every kernel has them, a configuration
    in /proc or /boot has not, and `getconf CLK_TCK` is 100 whatever HZ is. The count begins 300 seconds before it
    wraps at 32 bits (include/linux/jiffies.h), so that in that moment it tells nothing.
    """
    now, count = (re.search(pattern, timers, re.MULTILINE) for pattern in _TIMERS)
    if now is None or count is None:
        return 0
    since_wrap_s = int(now[1]) * 1e-9 - _WRAPS_AFTER_S
    allowed_s = _TICKS_LATE_S + _TICKS_DRIFT * abs(since_wrap_s)
    fitting = [
        hz
        for hz in _TICKS_HZ
        if abs((int(count[1]) - hz * since_wrap_s + _HALF_COUNT) % (2 * _HALF_COUNT) - _HALF_COUNT) <= hz * allowed_s
    ]
    return fitting[0] if len(fitting) == 1 else 0


def _field(text: str, name: str) -> str:
    found = re.search(rf"^{re.escape(name)}\s*:\s*(.*?)\s*$", text, re.MULTILINE)
    return found.group(1) if found else ""


def _bus(shell: Programs, device: str) -> str:
    """Clock, width and timing of the card's bus, which an SD mux can limit: from the mmc host's `ios` in debugfs."""
    host = re.search(r"/mmc_host/(mmc\d+)/", device)
    if host is None:
        return ""
    mounted = f"[ -d {_DEBUG}/block ] || mount -t debugfs debugfs {_DEBUG}"
    ios = shell.run(["sh", "-c", f"{mounted}; cat {_DEBUG}/{host.group(1)}/ios"])
    told = ios.stdout if ios.exit_code == 0 else ""
    parts = [_field(told, name) for name in ("clock", "bus width", "timing spec")]
    return ", ".join(re.sub(r"^\d+ \((.*)\)$", r"\1", part) for part in parts if part)


def lab_facts(target: Target) -> LabFacts | None:
    remote = next((each for each in target.resources if isinstance(each, RemotePlace)), None)
    if remote is None:
        return None
    manager: Any = RemotePlaceManager.get()
    session = manager.session
    with lab_errors("asking labgrid for the place's resources"):
        place = session.get_place(remote.name)
        hosts: dict[str, str] = {}
        for exporter, group, _cls, name in place.acquired_resources:
            # An exporter that is just ending has no entry any more.
            entry = session.resources.get(exporter, {}).get(group, {}).get(name)
            # A resource reached through its exporter names the exporter's computer.
            host = "" if entry is None else str(entry.extra.get("proxy") or "")
            hosts[exporter] = hosts.get(exporter) or host
        return LabFacts(
            place=place.name,
            coordinator=str(manager.url),
            exporters=tuple(Exporter(name, hosts[name]) for name in sorted(hosts)),
            meter=_meter_port(target),
            user=f"{session.getuser()}@{session.gethostname()}",
        )


def _meter_port(target: Target) -> MeterPort | None:
    driver = next((each for each in target.drivers if isinstance(each, METERS)), None)
    if driver is None:
        return None
    if isinstance(driver, BoardCounterDriver):
        return MeterPort(type(driver).__name__, "", str(target.get_driver("BoardStrategy").mark_device))
    port: Any = getattr(driver, "port", None)
    if port is None:
        kind, address = driver.where
        return MeterPort(kind, "", address)
    host, number = getattr(port, "host", None), getattr(port, "port", None)
    if host is None:
        return MeterPort(type(port).__name__, "", str(number or ""))
    path = (getattr(port, "extra", None) or {}).get("path") or ""
    return MeterPort(type(port).__name__, f"{host}:{number}", str(path))


class _Recorder:
    """Steps in the order in which they began, without consoles, which have their own log."""

    def __init__(self) -> None:
        self._begun: list[tuple[Any, int]] = []

    def notify(self, event: Any) -> None:  # noqa: ANN401 - labgrid's
        step = event.step
        shown = step.tag is None and not isinstance(step.source, ConsoleProtocol)
        if event.data.get("state") == "start" and shown and len(self._begun) < _MOST:
            self._begun.append((step, round(time.time() * 1000)))

    def take(self) -> tuple[LabStep, ...]:
        taken, self._begun = self._begun, []
        return tuple(
            LabStep(
                title=str(step.title).strip("_"),
                source=type(step.source).__name__ if step.source is not None else "",
                level=int(step.level),
                started_utc_ms=started_ms,
                duration_ms=round(step.duration * 1000),
                args={str(name): _text(value) for name, value in (step.args or {}).items()},
                error=_text(step.exception) if step.exception is not None else "",
            )
            for step, started_ms in taken
        )


@contextmanager
def recorded_steps() -> Generator[Callable[[], tuple[LabStep, ...]]]:
    """Record labgrid's steps. Gives a function that returns the steps since its last call."""
    recorder = _Recorder()
    steps.subscribe(recorder.notify)
    try:
        yield recorder.take
    finally:
        steps.unsubscribe(recorder.notify)


def _text(value: object) -> str:
    if isinstance(value, (list, tuple)) and all(isinstance(each, Command) for each in value):
        value = " && ".join(shlex.join(each.argv) for each in value)
    text = shlex.join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
