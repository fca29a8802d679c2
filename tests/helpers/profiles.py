"""Made-up profiles and symbols, for tests of what keeps, reads and explains them. No figure here was counted."""

from __future__ import annotations

import struct
from collections.abc import Mapping

import numpy as np

from fsjoule.model import Profile, Symbols

INSTRUCTION_NS = 4


def profile_of(executed: Mapping[int, int], *, pages: Mapping[int, int] | None = None, idle_ns: int = 0) -> Profile:
    """So many instructions by address; `pages` are those of programs, by address."""
    addresses = sorted(executed)
    busy_ns = sum(executed.values()) * INSTRUCTION_NS
    return Profile(
        addresses=np.array(addresses, np.uint64),
        pages=np.array([(pages or {}).get(at, 0) for at in addresses], np.uint64),
        executed=np.array([executed[at] for at in addresses], np.uint64),
        window_ns=busy_ns + idle_ns,
        busy_ns=busy_ns,
        instruction_ns=INSTRUCTION_NS,
    )


def symbols_of(functions: Mapping[int, str]) -> Symbols:
    """`module:name` or `name` by address."""
    parts = [functions[at].rpartition(":") for at in sorted(functions)]
    return Symbols(
        np.array(sorted(functions), np.uint64), [name for _, _, name in parts], [module for module, _, _ in parts]
    )


def written(*rows: tuple[int, int, int], busy_ns: int = 0) -> bytes:
    """A window as the probe writes it; rows are address, page and count."""
    header = struct.pack("<8sQqqqq", b"FSJPROF\0", len(rows), 1000, 9000, busy_ns, INSTRUCTION_NS)
    return header + b"".join(struct.pack("<QQQ", *row) for row in rows)
