"""A job that finds out whether a device is fit: LAVA itself flashes and boots the board, the worker asks the meter.

LAVA has a shell on the board and one on the worker, each with its own namespace. The board sends marks until it is
switched off; meanwhile the worker looks for one.
"""

from __future__ import annotations

import logging
import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from fsjoule import images, lab
from fsjoule.bench import kernel_log
from fsjoule.ci.lava.device import CONSOLE
from fsjoule.ci.lava.job import AROUND_MINUTES, LavaJob, definition, shell_on_worker, written
from fsjoule.ci.lava.signals import case
from fsjoule.errors import ConfigError
from fsjoule.lab import EnvironmentFile
from fsjoule.lab.environment import Login
from fsjoule.model import MIB, Reach
from fsjoule.runs.meter import environment_target

_log: Final = logging.getLogger(__name__)

_MARK: Final = "Ssmoke"
# A mark a second, for longer than the worker takes to look.
_MARKS: Final = 600
_LOOK_S: Final = 8.0
# Share of the samples that the meter's rate promises.
_ENOUGH: Final = 0.9
_SECTORS_PER_MIB: Final = MIB // 512
_FLASH_MINUTES: Final = 20


@dataclass(frozen=True, slots=True)
class SmokeImage:
    """A card image as LAVA fetches it: an address, and the partition (from 0) that is the root filesystem, ext4."""

    url: str
    root_partition: int = 1


def smoke_job(job: LavaJob, environment: EnvironmentFile, image: SmokeImage) -> str:
    """The smoke job of an environment file's board, in YAML. A board without a meter has no part on the worker.

    Raises ConfigError for a wrong priority, and like `login_of`.
    """
    login = login_of(environment)
    flashed = {
        "to": "flasher",
        "images": {
            "image": {
                "url": image.url,
                "format": "ext4",
                "partition": image.root_partition,
                "overlays": {"lava": True},
            }
        },
        "timeout": {"minutes": int(job.wait_s // 60) + _FLASH_MINUTES},
    }
    booted = {
        "method": "minimal",
        "prompts": [login.prompt],
        "auto_login": {"login_prompt": login.login_prompt, "username": login.username},
        "timeout": {"minutes": int(job.wait_s // 60) + AROUND_MINUTES},
    }
    board = [{"deploy": flashed}, {"boot": booted}, _test("board", _board_steps(environment), job.without)]
    steps = ['cd "$FSJOULE_DIR"', 'fsjoule lava meter --lg-env "$LG_ENV"']
    worker = [*shell_on_worker(job), _test("worker", steps)] if environment.has_meter else []
    actions = [_in_namespace(CONSOLE, action) for action in board]
    return written(job, [*actions, *(_in_namespace("worker", action) for action in worker)])


def login_of(environment: EnvironmentFile) -> Login:
    """LAVA's login on the board. Raises ConfigError if it has none, and for a board whose card LAVA cannot write."""
    if environment.profile.reach is not Reach.CARD:
        raise ConfigError(
            f"a smoke job writes the card, and on this board without an SD mux {environment.without_mux}",
            file=environment.path,
            hint="a job that measures tells as well whether it is fit: fsjoule lava job --suite quick -- -k mkfs",
        )
    login = environment.login
    if login is None or not login.login_prompt:
        raise ConfigError("the environment file has no login", file=environment.path, hint="add a ShellDriver")
    if login.password:
        raise ConfigError(
            "the board asks for a password, and everybody may read a job",
            file=environment.path,
            hint="write the job by hand, with a secret of LAVA's",
        )
    return login


def _in_namespace(name: str, action: dict[str, Any]) -> dict[str, Any]:
    return {kind: {"namespace": name, **parameters} for kind, parameters in action.items()}


def _test(where: str, steps: list[str], without: Sequence[str] = ()) -> dict[str, Any]:
    about = "; ".join((f"is the device fit: seen from the {where}", *without))
    named = definition(f"fsjoule-{where}", about, [*(f"echo {shlex.quote(line)}" for line in without), *steps])
    return {"test": {"definitions": [named], "timeout": {"minutes": AROUND_MINUTES}}}


def _board_steps(environment: EnvironmentFile) -> list[str]:
    profile = environment.profile
    sectors = images.card_bytes(profile.recipe) // MIB * _SECTORS_PER_MIB
    marking: list[str] = []
    if environment.has_meter:
        mark = profile.mark_line.send(_MARK)
        marking = [
            f"marks() {{ i={_MARKS}; while [ $((i -= 1)) -gt 0 ]; do {mark}; sleep 1; done; }}",
            "marks < /dev/null > /dev/null 2>&1 &",
        ]
    return [
        # A message of the kernel in the midst of a signal would spoil it.
        "dmesg -n 1",
        "lava-test-case boot --result pass",
        f"if {kernel_log.grep_command()}; then clean=fail; else clean=pass; fi",
        "lava-test-case kernel-log --result $clean",
        f"read -r sectors < /sys/block/{profile.card_device}/size",
        f"if [ $sectors -ge {sectors} ]; then fits=pass; else fits=fail; fi",
        f"lava-test-case card-size --result $fits --measurement $((sectors / {_SECTORS_PER_MIB})) --units MiB",
        *marking,
    ]


def check_meter(environment_file: Path) -> None:
    """Tell LAVA whether the meter of a board that runs is alive and hears the board's marks.

    Raises ConfigError for a board without a meter, LabError.
    """
    with environment_target(environment_file) as (target, profile):
        info, meter = lab.meter(target).info(), lab.board_meter(target)
        meter.arm()
        time.sleep(_LOOK_S)
        trace = meter.disarm()
    _log.info("the meter %s%s", info.serial_number, " (simulated)" if profile.simulated else "")
    simulated = "-simulated" if profile.simulated else ""
    received = len(trace.ticks)
    case("meter-samples", passed=received >= _ENOUGH * info.rate_hz * _LOOK_S, figure=received / _LOOK_S, unit="1/s")
    case("meter-lost", passed=trace.lost == 0, figure=trace.lost)
    power_w = float(trace.power_w.mean()) if received else 0.0
    case(f"board-power{simulated}", passed=power_w > 0, figure=power_w, unit="W")
    heard = [mark for mark in trace.marks if mark.text == profile.mark_line.heard_as(_MARK)]
    case("mark-reaches-meter", passed=bool(heard), figure=len(heard))
