"""How well erasures tell how long raw flash lasts: predicted against the death of a simulated chip.

Boots the virtual board in guest time. Its nandsim has blocks that fail after so many erasures. Files are written,
synced and removed on UBIFS until nothing can be written any more. The prediction is made after a quarter of what the
chip would endure if erasures spread evenly: `even` takes the mean erasures of its blocks, `most erased` those of UBI's
most erased block. UBI lets that one be 4,096 ahead (CONFIG_MTD_UBI_WL_THRESHOLD), more than a block here endures:
`even` is too hopeful for such a chip, and by at most 4 % for one that endures 100,000.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from common import show

from fsjoule import images
from fsjoule.bench.media import MEDIA, counter_files
from fsjoule.bench.onboard import marks
from fsjoule.bench.scratch import checked
from fsjoule.filesystems import filesystem
from fsjoule.host.messages import lines_to
from fsjoule.host.paths import project_dir
from fsjoule.model import FlashCounters, Medium
from fsjoule.ports import Shell
from fsjoule.runs.held_lab import equipment
from fsjoule.runs.meter import environment_target
from fsjoule.suites import SCRATCH_ROOT

_KERNEL: Final = "6.1"
_NODE: Final = "/dev/mtd0"
_DIRECTORY: Final = "/tmp/worn"  # noqa: S108 - on the board
_EXPONENT: Final = 6  # 64 blocks: a module's parameters cannot name many more
_ROUND_MIB: Final = 4
_ROUND: Final = f"for i in 1 2 3 4; do cp /tmp/random {_DIRECTORY}/$i && sync || exit 1; rm {_DIRECTORY}/$i; done"
_LIMIT_S: Final = 300.0


@contextmanager
def _worn_board(erasures: int) -> Generator[Shell]:
    """The board with UBIFS mounted on a chip whose blocks fail after so many erasures."""
    card = images.build_card(_KERNEL, SCRATCH_ROOT)
    kind = filesystem("ubifs")
    weak = ",".join(f"{block}:{erasures}" for block in range(1 << _EXPONENT))
    chip = ("nandsim", "id_bytes=0x98,0xd1,0x90,0x15", f"overridesize={_EXPONENT}", f"weakblocks={weak}")
    with environment_target(project_dir() / "env" / "deterministic.yaml") as (target, _):
        board, _, _ = equipment(target, {(_KERNEL, SCRATCH_ROOT): card}, ("", "deterministic"))
        board.prepare(_KERNEL, SCRATCH_ROOT)
        shell = board.boot()
        try:
            checked(shell, "/usr/lib/fsjoule/attach", "mtd0", *chip, timeout_s=60.0)
            checked(shell, "sh", "-c", MEDIA[Medium.MTD].prepare)
            for module in kind.modules:
                shell.run(("modprobe", module))
            checked(shell, "mkdir", "-p", _DIRECTORY)
            checked(shell, *kind.make_argv(_NODE), timeout_s=_LIMIT_S)
            checked(shell, *kind.mount_argv(_NODE, _DIRECTORY), timeout_s=_LIMIT_S)
            checked(shell, "dd", "if=/dev/urandom", "of=/tmp/random", "bs=1024", "count=1024")
            yield shell
        finally:
            board.off()


def _counters(shell: Shell) -> str:
    return checked(shell, *marks.counters_argv(counter_files("mtd0", Medium.MTD))).stdout


def _flash(before: str, after: str) -> FlashCounters:
    device = marks.usage(before, after).device
    if device is None or device.flash is None:
        sys.exit("the board's kernel does not count erasures")
    return device.flash


def wear(erasures: int) -> dict[str, object]:
    """MiB written until the chip died, and predicted."""
    blocks = 1 << _EXPONENT
    with _worn_board(erasures) as shell:
        before, written_mib = _counters(shell), 0
        predicted: dict[str, float] = {}
        while True:
            done = shell.run(("sh", "-c", _ROUND), timeout_s=_LIMIT_S)
            flash = _flash(before, _counters(shell))
            if done.exit_code != 0:
                break
            written_mib += _ROUND_MIB
            if not predicted and flash.erases >= blocks * erasures / 4 and flash.most_erased:
                predicted = {
                    "even": blocks * erasures * written_mib / flash.erases,
                    "most erased": erasures * written_mib / flash.most_erased,
                }
            print(f"{written_mib} MiB, {flash.erases} erasures, {flash.bad_blocks} bad blocks", file=sys.stderr)
    return {
        "blocks": blocks,
        "erasures a block endures": erasures,
        "MiB until nothing can be written": written_mib,
        "erasures until then": flash.erases,
        "bad blocks then": flash.bad_blocks,
        **{f"predicted, {name}, MiB": round(mib, 1) for name, mib in predicted.items()},
        **{f"predicted, {name}, ratio": round(mib / written_mib, 3) for name, mib in predicted.items() if written_mib},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--erasures", type=int, default=40, help="that a block endures")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with lines_to(lambda text: print(text, file=sys.stderr)):
        show("wear of raw flash", wear(options.erasures), as_json=options.json)


if __name__ == "__main__":
    main()
