"""Made-up profiles and symbols, for tests of what keeps, reads and explains them. No figure here was counted."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from results_factory import make_run
from whole_runs import write_whole

from fsjoule.bench.profiles import PERIOD_NS
from fsjoule.model import SAMPLED, Measurement, Profile, Symbols
from fsjoule.store.profiles import PROFILE_FILE, encode_profile, encode_symbols, symbols_file

INSTRUCTION_NS = 4
_KERNEL_SYMBOLS = {0xC0000000: "vfs_read", 0xBF000000: "btrfs:btrfs_read"}
_OF_TWO = {"6.1": 100, "6.12": 200}


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


def written(*rows: tuple[int, int, int], busy_ns: int = 0, of_programs: int = -1, begun_again: int = 0) -> bytes:
    """A window as the probe writes it; rows are address, page and count."""
    figures = (1000, 9000, busy_ns, INSTRUCTION_NS, of_programs, begun_again)
    header = struct.pack("<8sQqqqqqq", b"FSJPROF\0", len(rows), *figures)
    return header + b"".join(struct.pack("<QQQ", *row) for row in rows)


def write_profiled(
    results: Path,
    executed: Mapping[str, int] = _OF_TWO,
    *,
    symbols: bool = True,
    profiles: bool = True,
    sampled: bool = False,
) -> Path:
    """A run of these kernels, each boot of which executes that many instructions of btrfs, and 7 others.

    With `sampled` they are perf's samples.
    """
    made = make_run(kernels=tuple(executed), repeat=1)
    boots = {kernel: number for number, kernel in enumerate(executed, start=1)}

    def attachments(measurement: Measurement) -> dict[str, bytes]:
        profile = profile_of({0xBF000004: executed[measurement.kernel], 0xC0000004: 7})
        if sampled:
            profile = replace(profile, sampled=True, instruction_ns=PERIOD_NS)
        return {PROFILE_FILE: encode_profile(profile)} if profiles else {}

    reasons = (SAMPLED,) if sampled else ()
    measured = (
        replace(each, boot=boots[each.kernel], invalid_reasons=reasons or each.invalid_reasons)
        for each in made.measurements
    )
    path = write_whole(results, made.run, measured, attachments=attachments)
    for boot in boots.values() if symbols else ():
        (path / symbols_file(boot)).write_bytes(encode_symbols(symbols_of(_KERNEL_SYMBOLS)))
    return path
