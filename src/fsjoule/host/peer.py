"""Who is at the other end of a connection within this computer: a port of 127.0.0.1 is open to all of its users."""

from __future__ import annotations

import os
import socket
import struct
from pathlib import Path
from typing import Final

Address = tuple[str, int]

_ESTABLISHED: Final = "01"
# An IPv4 connection of a socket that can do IPv6, too, as gRPC's, stands in the second table.
_TABLES: Final = ((Path("/proc/net/tcp"), b""), (Path("/proc/net/tcp6"), b"\0" * 10 + b"\xff" * 2))


def peer_user(peer: Address, own: Address) -> int | None:
    """The user of the process that has made the connection from `peer` to `own`, both IPv4 addresses of this computer.

    None if the kernel does not know it, or does not any more, or an address is no IPv4. See proc_net_tcp.rst of the
    kernel's documentation.
    """
    for table, prefix in _TABLES:
        try:
            wanted = [_entry(prefix, each) for each in (peer, own)]
            lines = table.read_text().splitlines()[1:]
        except OSError:
            continue
        for words in map(str.split, lines):
            # A socket whose process has closed it is nobody's, and is listed as root's.
            if words[1:3] == wanted and words[3] == _ESTABLISHED and words[9] != "0":
                return int(words[7])
    return None


def is_ours(peer: Address, own: Address) -> bool:
    """Whether this user, or root, has made the connection."""
    return peer_user(peer, own) in {os.getuid(), 0}


def _entry(prefix: bytes, address: Address) -> str:
    packed = prefix + socket.inet_aton(address[0])
    return "".join(f"{word:08X}" for word in struct.unpack(f"={len(packed) // 4}I", packed)) + f":{address[1]:04X}"
