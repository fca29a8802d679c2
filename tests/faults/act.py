"""The harm that is done, one function each: it does it to a scene, and says to what it did it."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Final

from faults.scene import Bench, Scene
from faults.watch import await_condition
from fsjoule.host.process_ref import ProcessRef, descendants

Act = Callable[[Scene, Bench], str]

QEMU: Final = "qemu"
CONSOLE_BRIDGE: Final = "console-bridge"
METER_BRIDGE: Final = "meter-bridge"
_BRIDGES: Final = {CONSOLE_BRIDGE: "console", METER_BRIDGE: "meter"}


def signalled(service: str, sig: signal.Signals) -> Act:
    """Signal a process of the lab, once it is there."""

    def act(scene: Scene, bench: Bench) -> str:
        await_condition(bench, lambda: _process(scene, service) is not None, f"a process {service}")
        found = _process(scene, service)
        assert found is not None
        if sig is signal.SIGSTOP:
            # For whatever comes after the lab: a stopped process that it left is no harm to the machine.
            scene.closing.callback(found.send, signal.SIGCONT)
        found.send(sig)
        return f"{sig.name} to {service} ({found.pid})"

    return act


def _process(scene: Scene, service: str) -> ProcessRef | None:
    """A living process of the lab by the name of its service, or of what a service has started."""
    record = scene.lab
    if record is None:
        return None
    services = {each.name: each.process for each in record.services}
    match service:
        case "supervisor" | "guardian":
            found = getattr(record, service)
        case "qemu":
            found = scene.emulator()
        case "console-bridge" | "meter-bridge":
            tty = f",{Path(record.devices) / _BRIDGES[service]},"
            below = descendants(services["exporter"].pid) if "exporter" in services else []
            found = next((each for each in below if tty in _command(each.pid)), None)
        case _:
            found = services.get(service)
    return found if found is not None and found.alive() else None


# The program itself, and `timeout`, which starts it; not the shell that waits for both.
_WRITER: Final = re.compile(r",fsjoule-writes:/dev/\w+,")


def writers(scene: Scene) -> list[ProcessRef]:
    """What writes the card on the exporter's side: started over ssh, it has nothing of the lab in its environment."""
    record = scene.lab
    if record is None or record.guardian is None:
        return []
    return [each for each in descendants(record.guardian.pid) if _WRITER.search(_command(each.pid))]


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b",").decode(errors="replace") + ","
    except OSError:
        return ""
