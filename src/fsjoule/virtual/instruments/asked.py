"""Emulated instruments that are asked for readings, as programs; `python -m fsjoule.virtual.instruments.asked --help`.

Each measures what a virtual board draws, at 5 V. Once it answers, its address for `fsjoule meter` is in a file.
"""

from __future__ import annotations

import argparse
import select
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from fsjoule.host.realtime import prefer_this_thread
from fsjoule.virtual.instruments.iio import iiod, ina226
from fsjoule.virtual.instruments.load import Moments
from fsjoule.virtual.instruments.powercap import zone
from fsjoule.virtual.instruments.scpi import supply
from fsjoule.virtual.instruments.terminal import end_asked

VOLTS: Final = 5.0
_ZONE: Final = "intel-rapl:0"
# A supply's converter integrates over a cycle of the mains.
_CYCLE_S: Final = 0.02
_PARTS: Final = 20

Amperes = Callable[[float], float]


@contextmanager
def _iio(amperes: Amperes, _address_file: Path) -> Generator[str]:
    with iiod(ina226(amperes, volts=VOLTS)) as server:
        yield f"iio:{server.uri}/ina226"


@contextmanager
def _scpi(amperes: Amperes, _address_file: Path) -> Generator[str]:
    def over_a_cycle() -> float:
        begin_s = time.monotonic()
        time.sleep(_CYCLE_S)
        return sum(amperes(begin_s + (part + 0.5) / _PARTS * _CYCLE_S) for part in range(_PARTS)) / _PARTS

    with supply(volts=VOLTS, amperes=over_a_cycle) as emulated:
        yield emulated.address


@contextmanager
def _powercap(amperes: Amperes, address_file: Path) -> Generator[str]:
    folder = address_file.with_name(f"{address_file.name}-zones")
    with zone(folder, _ZONE, lambda seconds: VOLTS * amperes(seconds)) as path:
        yield f"powercap:{path}"


KINDS: Final = {"iio": _iio, "scpi": _scpi, "powercap": _powercap}


def main() -> int:
    parser = argparse.ArgumentParser(description="An emulated instrument that is asked for readings.")
    parser.add_argument("kind", choices=sorted(KINDS))
    parser.add_argument(
        "--feed", type=Path, required=True, help="ring file in which a virtual board says what it draws"
    )
    parser.add_argument("--address-file", type=Path, required=True, help="where its address will be")
    chosen = parser.parse_args()
    ended = end_asked()
    prefer_this_thread()
    with KINDS[chosen.kind](Moments(chosen.feed).amperes, chosen.address_file) as address:
        beside = chosen.address_file.with_name(f"{chosen.address_file.name}.new")
        beside.write_text(address)
        beside.replace(chosen.address_file)
        select.select([ended], [], [])
    chosen.address_file.unlink(missing_ok=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
