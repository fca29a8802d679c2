"""Emulated instruments that are asked for readings, as programs; `python -m fsjoule.virtual.instruments.asked --help`.

Each measures what a virtual board draws, at 5 V. Once it answers, its address for `fsjoule meter` is in a file.
"""

from __future__ import annotations

import argparse
import select
import sys
from pathlib import Path

from fsjoule.host.clock import prefer_this_thread
from fsjoule.meter.instruments import INSTRUMENTS
from fsjoule.virtual.instruments.emulator import emulator_of
from fsjoule.virtual.instruments.load import Moments
from fsjoule.virtual.instruments.terminal import end_asked


def main() -> int:
    parser = argparse.ArgumentParser(description="An emulated instrument that is asked for readings.")
    parser.add_argument("kind", choices=sorted(INSTRUMENTS))
    parser.add_argument(
        "--feed", type=Path, required=True, help="ring file in which a virtual board says what it draws"
    )
    parser.add_argument("--address-file", type=Path, required=True, help="where its address will be")
    chosen = parser.parse_args()
    serve = emulator_of(chosen.kind).serve
    if serve is None:
        parser.error(f"{chosen.kind} is not asked for readings")
    ended = end_asked()
    prefer_this_thread()
    with serve(Moments(chosen.feed).amperes, chosen.address_file) as address:
        beside = chosen.address_file.with_name(f"{chosen.address_file.name}.new")
        beside.write_text(address)
        beside.replace(chosen.address_file)
        select.select([ended], [], [])
    chosen.address_file.unlink(missing_ok=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
