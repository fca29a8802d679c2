"""The board's shell over ssh beside the one on its console, on one boot: commands a second, and uploads.

Boots the emulated Orange Pi PC with a network once. Short commands go by turns over the console and over ssh, so that
both meet the same load of this computer. The uploaded files are random: the console's compression gains nothing.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from common import show

from fsjoule import images
from fsjoule.host.messages import lines_to
from fsjoule.host.paths import project_dir
from fsjoule.lab import BoardStrategy, LabgridShell, SshShell, read_environment
from fsjoule.lab.shell import BoardShell
from fsjoule.model import MIB
from fsjoule.runs.meter import environment_target

_ENVIRONMENT: Final = "virtual-orangepi-ssh.yaml"
_KERNEL: Final = "6.1"
_ROOT: Final = "ext4"
_FILE: Final = "/tmp/shell-speed"  # noqa: S108 - on the board


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _took_s(act: Callable[[], object]) -> float:
    begin_s = time.monotonic()
    act()
    return time.monotonic() - begin_s


def commands(shells: dict[str, BoardShell], times: int) -> dict[str, list[float]]:
    """Seconds of each of so many short commands, by shell and by whether they have an output."""
    took: dict[str, list[float]] = {f"{name}_{kind}": [] for name in shells for kind in ("silent", "spoken")}
    for number in range(times):
        for name, shell in shells.items():
            took[f"{name}_silent"].append(_took_s(lambda shell=shell: _expect(shell, ["true"], "")))
            wanted = str(number)
            said = _took_s(lambda shell=shell, wanted=wanted: _expect(shell, ["echo", wanted], f"{wanted}\n"))
            took[f"{name}_spoken"].append(said)
    return took


def _expect(shell: BoardShell, argv: list[str], wanted: str) -> None:
    said = shell.run(argv).stdout
    if said != wanted:
        raise SystemExit(f"{' '.join(argv)}: {said!r}")


def upload(name: str, shell: BoardShell, content: bytes) -> float:
    """Seconds that a file takes."""
    took_s = _took_s(lambda: shell.upload(_FILE, content))
    if shell.run(["stat", "-c", "%s", _FILE]).stdout != f"{len(content)}\n":
        raise SystemExit(f"{name}: the file has another size")
    _say(f"{name}: {len(content) / MIB:g} MiB in {took_s:.1f} s")
    return took_s


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=100, help="short commands over each")
    parser.add_argument("--mib", type=float, default=10.0, help="size of the file that is uploaded over ssh")
    parser.add_argument("--console-mib", type=float, default=10.0, help="and over the console: 10 MiB may take hours")
    parser.add_argument("--json", action="store_true", help="the result as JSON")
    arguments = parser.parse_args()
    environment = project_dir() / "env" / _ENVIRONMENT
    card = images.build_card(_KERNEL, _ROOT, recipe=read_environment(environment).profile.recipe)
    with environment_target(environment, kernel=_KERNEL) as (target, _):
        strategy: Any = target.get_driver("BoardStrategy")
        result = _measured(strategy, card, arguments)
    show("the board's shell", result, as_json=arguments.json)
    return 0


def _measured(strategy: Any, card: images.CardImage, arguments: argparse.Namespace) -> dict[str, Any]:  # noqa: ANN401
    board: BoardStrategy = strategy
    board.card = card
    try:
        board.transition("booted")
        ssh = board.board_shell
        if not isinstance(ssh, SshShell):
            raise SystemExit(f"{_ENVIRONMENT} has no SSHDriver")
        console = LabgridShell(strategy.shell, board.recorder, board.lose, board.look)
        took = commands({"console": console, "ssh": ssh}, arguments.times)
        content = np.random.default_rng(0).bytes(round(max(arguments.mib, arguments.console_mib) * MIB))
        rate = {
            name: mib / upload(name, shell, content[: round(mib * MIB)])
            for name, shell, mib in (("ssh", ssh, arguments.mib), ("console", console, arguments.console_mib))
        }
    finally:
        board.transition("off")
    total = {name: sum(each) for name, each in took.items()}
    return {
        "commands": arguments.times,
        **{f"{name}_seconds": each for name, each in total.items()},
        **{f"{name}_median_ms": statistics.median(each) * 1000 for name, each in took.items()},
        **{f"{kind}_ratio": total[f"console_{kind}"] / total[f"ssh_{kind}"] for kind in ("silent", "spoken")},
        **{f"{name}_kib_per_s": each * 1024 for name, each in rate.items()},
        "upload_ratio": rate["ssh"] / rate["console"],
    }


if __name__ == "__main__":
    with lines_to(_say):
        sys.exit(main())
