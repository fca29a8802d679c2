"""`python -m flashing -n 20 --seed 1 --ways ums,tftp,in-place`: flash with faults, and check message and card."""

from __future__ import annotations

import argparse
import os
import random
import re
import secrets
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from ums_board import RIGHT_MESSAGE, UmsBoard, failed, ums_board

from flashing.by_tftp import flash_cards
from flashing.fastboot import try_fastboot
from flashing.in_place import try_kernels
from flashing.in_place_states import try_states
from fsjoule import images

# Seconds until the fault: U-Boot comes to its prompt 10 to 30 s after power-on, and writes for 5 to 15 s.
_LONGEST_S = {"on": 12.0, "usb": 6.0}


def _flash_with_fault(board: UmsBoard, image: Path, kind: str, chance: random.Random) -> str:
    """Inject one fault. Returns what went wrong with that, or nothing."""
    phase = chance.choice(("on", "usb"))
    after_s = round(chance.uniform(0, _LONGEST_S[phase]), 2)
    console = board.flasher.uboot.console
    acts = {"unplugged": lambda: board.plug_usb(False), "reset": board.reset, "power lost": board.cut_power}
    begin = time.monotonic()
    if kind == "prompt missed":
        # Nothing that is typed arrives: the wire to the board's receiver is broken.
        write, console.write = console.write, len
        error = failed(board, image)
        console.write = write
    else:
        with board.fault(acts[kind], phase=phase, after_s=after_s):
            error = failed(board, image)
        board.plug_usb(True)
    took_s = time.monotonic() - begin
    when = "" if kind == "prompt missed" else f" {after_s} s after {'power-on' if phase == 'on' else 'the offer'}"
    # A fault before U-Boot's prompt, or after the last byte, may do no harm.
    said = "no harm" if error is None else str(error).splitlines()[0]
    sys.stdout.write(f"{kind}{when}: {took_s:.0f} s: {said}\n")
    if error is None:
        return "" if board.holds(image) and kind != "prompt missed" else f"{kind}{when}: no error"
    return "" if re.search(RIGHT_MESSAGE[kind], str(error)) else f"{kind}{when}: another message: {error}"


def _flash_by_ums(count: int, chance: random.Random) -> list[str]:
    card = images.build_card("6.1", "ext4", recipe="sabrelite").path
    wrong: list[str] = []
    kinds = list(RIGHT_MESSAGE)
    with ums_board() as board:
        for number in range(count):
            if number % 2:
                kind = kinds[number // 2 % len(kinds)]
                wrong += filter(None, [_flash_with_fault(board, card, kind, chance)])
                continue
            begin = time.monotonic()
            error = failed(board, card)
            whole = error is None and board.holds(card)
            sys.stdout.write(f"flash {number + 1}: {time.monotonic() - begin:.0f} s, {'whole' if whole else error}\n")
            wrong += [] if whole else [f"flash {number + 1}: {error or 'another content'}"]
            sys.stdout.flush()
    return wrong


def _cut_in_place(count: int) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        return try_states(Path(folder), count, 0, ())


def main() -> int:
    parser = argparse.ArgumentParser(prog="flashing")
    parser.add_argument("-n", type=int, default=20, help="flashes by UMS, half of them with a fault; states in place")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1000))
    parser.add_argument("--ways", default="ums,tftp,in-place")
    parsed = parser.parse_args()
    ways: dict[str, Callable[[random.Random], list[str]]] = {
        "ums": lambda chance: _flash_by_ums(parsed.n, chance),
        "tftp": flash_cards,
        "in-place": lambda _: try_kernels(),
        "in-place-states": lambda _: _cut_in_place(parsed.n),
        "fastboot": lambda _: try_fastboot(),
    }
    chosen = parsed.ways.split(",")
    if unknown := set(chosen) - ways.keys():
        parser.error(f"unknown: {', '.join(sorted(unknown))}; choose from {', '.join(ways)}")
    wrong: list[str] = []
    sys.stdout.write(f"seed {parsed.seed}\n")
    for way in chosen:
        with tempfile.TemporaryDirectory() as state:
            os.environ["FSJOULE_STATE_DIR"] = state
            wrong += ways[way](random.Random(parsed.seed))
    sys.stdout.write(
        "".join(f"WRONG {each}\n" for each in wrong) or "every message was right, every next flash whole\n"
    )
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
