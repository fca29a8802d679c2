"""Facts that a booted board reports about itself."""

from __future__ import annotations

import re
from typing import Final

from fsjoule.model import BoardFacts
from fsjoule.ports import Shell

_SECTOR_BYTES: Final = 512
_KIB: Final = 1024


def board_facts(shell: Shell, name: str, card_device: str) -> BoardFacts:
    """Read the named board's facts from uname, /proc and /sys. Unknown facts are empty or 0."""
    cpu = _read(shell, "/proc/cpuinfo")
    block = f"/sys/class/block/{card_device}"
    sectors = _read(shell, f"{block}/size").strip()
    return BoardFacts(
        name=name,
        machine=_machine(shell) or _field(cpu, "Hardware"),
        kernel_release=shell.run(["uname", "-r"]).stdout.strip(),
        kernel_version=shell.run(["uname", "-v"]).stdout.strip(),
        cpu=_field(cpu, "model name") or _field(cpu, "Processor"),
        cpus=len(re.findall(r"^processor\s*:", cpu, re.MULTILINE)),
        memory_bytes=int(_field(_read(shell, "/proc/meminfo"), "MemTotal").removesuffix("kB") or 0) * _KIB,
        storage=_read(shell, f"{block}/device/name").strip(),
        storage_bytes=int(sectors or 0) * _SECTOR_BYTES,
        storage_bus=_bus(shell, card_device),
        root_filesystem=_root_filesystem(_read(shell, "/proc/mounts")),
    )


def _read(shell: Shell, path: str) -> str:
    result = shell.run(["cat", path])
    return result.stdout if result.exit_code == 0 else ""


def _machine(shell: Shell) -> str:
    tree, tables = "/proc/device-tree/model", "/sys/class/dmi/id/product_name"
    return (_read(shell, tree) or _read(shell, tables)).strip("\0\n ")


def _field(text: str, name: str) -> str:
    found = re.search(rf"^{re.escape(name)}\s*:\s*(.*?)\s*$", text, re.MULTILINE)
    return found.group(1) if found else ""


def _root_filesystem(mounts: str) -> str:
    """The root's filesystem type. The last mount counts: an initial `rootfs` comes first."""
    types = [fields[2] for line in mounts.splitlines() if (fields := line.split())[1:2] == ["/"]]
    return types[-1] if types else ""


def _bus(shell: Shell, card_device: str) -> str:
    """Clock, width and timing of the card's bus, which an SD mux can limit: from the mmc host's `ios` in debugfs."""
    host = re.search(r"/mmc_host/(mmc\d+)/", shell.run(["readlink", "-f", f"/sys/class/block/{card_device}"]).stdout)
    if host is None:
        return ""
    if shell.run(["test", "-d", "/sys/kernel/debug/block"]).exit_code != 0:
        shell.run(["mount", "-t", "debugfs", "debugfs", "/sys/kernel/debug"])
    ios = _read(shell, f"/sys/kernel/debug/{host.group(1)}/ios")
    parts = [_field(ios, name) for name in ("clock", "bus width", "timing spec")]
    return ", ".join(re.sub(r"^\d+ \((.*)\)$", r"\1", part) for part in parts if part)
