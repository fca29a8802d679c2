"""What of the lab is open to more people than need it: told beside the checks, because no figure suffers by it."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")
_LISTENS: Final = "0A"  # TCP_LISTEN in /proc/net/tcp (Linux: include/net/tcp_states.h)
_WORKER: Final = "lava-worker"


def open_doors(coordinator: str, proc: Path = _PROC) -> Iterator[str]:
    """A line for each. `coordinator` is HOST:PORT."""
    host, _, port = coordinator.rpartition(":")
    if not _is_own(host) or (port.isdecimal() and _listens_beyond(int(port), proc)):
        yield f"the coordinator at {coordinator} listens beyond its computer, and asks nobody for a password"
    for each in proc.glob("[0-9]*"):
        try:
            is_worker = (each / "comm").read_text().strip() == _WORKER
            if is_worker and each.stat().st_uid == 0:
                yield f"{_WORKER} (process {each.name}) is root: so is whoever may submit a job"
        except OSError:
            continue  # it has ended


def _is_own(host: str) -> bool:
    """Whether a host's name leads to this computer's loopback; a name that nobody knows leads nowhere."""
    try:
        found = {str(address[0]) for *_, address in socket.getaddrinfo(host.strip("[]"), None)}
    except OSError:
        return True
    return all(ipaddress.ip_address(each.partition("%")[0]).is_loopback for each in found)


def _listens_beyond(port: int, proc: Path) -> bool:
    for name in ("tcp", "tcp6"):
        try:
            lines = (proc / "net" / name).read_text().splitlines()[1:]
        except OSError:
            continue
        for _, local, _, state, *_ in map(str.split, lines):
            address, _, number = local.partition(":")
            if state == _LISTENS and int(number, 16) == port and not _is_loopback(bytes.fromhex(address)):
                return True
    return False


def _is_loopback(raw: bytes) -> bool:
    """The kernel writes words of 32 bits in the computer's own order."""
    words = (int.from_bytes(raw[at : at + 4], "little").to_bytes(4, "big") for at in range(0, len(raw), 4))
    address = ipaddress.ip_address(b"".join(words))
    # gRPC listens by IPv6 at the mapped 127.0.0.1, which ipaddress calls no loopback before Python 3.13.
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback
