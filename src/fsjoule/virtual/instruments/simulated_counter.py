"""A counter of the powercap class on an emulated board, which has none: files that a program on the board keeps.

It counts a steady power, twenty times a second, by the kernel's monotonic clock.
"""

from __future__ import annotations

import shlex
from pathlib import PurePosixPath
from typing import Final

from fsjoule.errors import MeterError
from fsjoule.ports import Shell

_PROGRAM: Final = "/tmp/fsjoule-simulated-counter"  # noqa: S108 - on the board, whose /tmp is ours alone
_UPDATE_S: Final = 0.05
# That of a package zone with 61 microjoules a step, as Intel's processors have it.
_RANGE_UJ: Final = 262_143_328_850
_START_S: Final = 20.0
# The file is written in place: a reader never finds it empty.
_TEXT: Final = """\
cd "$1" && milliwatts=$2
mkfifo timer && exec 3<> timer
while :; do
    { read -r _; read -r _; read -r _ _ ns _; } < /proc/timer_list
    echo $(((ns / 1000 * milliwatts / 1000) % @RANGE@)) 1<> energy_uj
    read -r -t @UPDATE@ _ <&3
done
"""


def start(shell: Shell, device: str, watts: float) -> None:
    """Start it on a booted board. It ends with the board's power. Raises MeterError if it does not count."""
    zone = PurePosixPath(device).parent
    shell.put(_PROGRAM, _TEXT.replace("@RANGE@", str(_RANGE_UJ)).replace("@UPDATE@", str(_UPDATE_S)).encode())
    at = shlex.quote(str(zone))
    command = (
        f"mkdir -p {at} && echo simulated > {at}/name && echo {_RANGE_UJ} > {at}/max_energy_range_uj "
        f"&& echo {_UPDATE_S * 1e6:.0f} > {at}/simulated || exit 1; "
        f"busybox sh {_PROGRAM} {at} {round(watts * 1000)} < /dev/null > {at}/log 2>&1 & "
        f"until [ -s {shlex.quote(device)} ]; do sleep 0.1; done"
    )
    done = shell.run(("sh", "-c", command), timeout_s=_START_S)
    if done.exit_code != 0:
        raise MeterError(f"the simulated counter {device} cannot be made: {done.stdout.strip()[-200:]}")
