"""What a LAVA job adds to a bench: the same suite by turns with and without lava-run, on one virtual lab.

Brings a lab up, fetches Debian's lava-run if the cache does not have it, and measures the suite in turns: bench, job,
job, bench, and so on, so that both meet the same load of this computer. A job takes from the start of lava-run to its
end, and its figures must be those of its run folder. Needs root, as lava-run does. Exit code 1 if the median of the
differences of the rounds is above the limit.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from common import show

from fsjoule import images
from fsjoule.errors import ConfigError
from fsjoule.host import process
from fsjoule.host.messages import lines_to
from fsjoule.host.paths import project_dir
from fsjoule.lab import read_environment
from fsjoule.virtual.lab import lab

# The dispatcher is that of the tests.
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "helpers"))
from lava_dispatcher import Dispatcher, dispatcher, output, results
from lava_place import LavaPlace, figures_of

_LIMIT_S: Final = 60.0
_TURN_LIMIT_S: Final = 3600.0
_KERNEL: Final = "6.1"
# Exit codes of a bench that has measured: on a busy computer the emulated board's marks may be late.
_MEASURED: Final = (0, 1)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _bench(place: LavaPlace, options: list[str]) -> None:
    words = [sys.executable, "-m", "pytest", "tests/bench", "-p", "no:cacheprovider", "--lg-env", place.lg_env]
    done = process.run(
        [*words, "--results", str(place.folder / "benches"), *options],
        timeout_s=_TURN_LIMIT_S,
        cwd=project_dir(),
        env=place.environment,
        check=False,
    )
    if done.returncode not in _MEASURED:
        raise SystemExit(f"the bench ended with {done.returncode}: {done.stdout.decode()[-3000:]}")


def _job(place: LavaPlace, lava: Dispatcher, device: str, job: str, number: int) -> None:
    out = place.folder / f"job-{number}"
    with lava.run(number, out, device, job) as running:
        code = running.wait(_TURN_LIMIT_S)
    if code != 0:
        raise SystemExit(f"the job ended with {code}: {output(out)[-3000:]}")
    run = place.newest()
    expected = dict(pair for each in run.measurements if each.valid for pair in figures_of(each))
    told = {
        each["case"]: (float(each["measurement"]), each.get("units", ""))
        for each in results(out)
        if "set" in each and "measurement" in each
    }
    if not expected or told != expected:
        raise SystemExit(f"LAVA was told other figures than {run.path} has: {told} {expected}")
    _say(f"job {number}: {len(run.measurements)} measurements, {len(expected)} figures are the run folder's")


@dataclass(frozen=True)
class Turn:
    """The time of a bench or a job, and the processor time of what it has started and waited for."""

    took_s: float
    cpu_s: float


def _turn(what: str, act: Callable[[], None]) -> Turn:
    begin_s, before_s = time.monotonic(), _cpu_s()
    act()
    turn = Turn(time.monotonic() - begin_s, _cpu_s() - before_s)
    _say(f"{what}: {turn.took_s:.1f} s, {turn.cpu_s:.1f} s of processor time, load {os.getloadavg()[0]:.1f}")
    return turn


def _cpu_s() -> float:
    used = os.times()
    return used.children_user + used.children_system


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="benches, and as many jobs")
    parser.add_argument("--suite", default="quick")
    parser.add_argument("--fs", default="ext4")
    parser.add_argument("-k", dest="select", default="", help="only some measurements, as pytest has it: mkfs")
    parser.add_argument(
        "--board", default="deterministic", choices=("deterministic", "virtual"), help="in guest time, or in real time"
    )
    parser.add_argument("--limit", type=float, default=_LIMIT_S, help="seconds that a job may take longer than a bench")
    parser.add_argument("--json", action="store_true", help="the result as JSON")
    arguments = parser.parse_args()
    if os.geteuid() != 0:
        raise ConfigError("lava-run runs as root only", hint="run the same command with sudo")
    with tempfile.TemporaryDirectory(prefix="fsjoule-lava-overhead-") as folder:
        os.environ["FSJOULE_STATE_DIR"] = f"{folder}/state"
        with dispatcher() as lava:
            handle = lab.up(arguments.board, owner_pid=os.getpid(), board=arguments.board)
            try:
                own = {"FSJOULE_STATE_DIR": f"{folder}/state"}
                place = LavaPlace(arguments.board, Path(folder), handle.environment | own)
                benches, jobs = _measured(place, lava, arguments)
            finally:
                lab.down(arguments.board)
    overheads = [job.took_s - bench.took_s for bench, job in zip(benches, jobs, strict=True)]
    overhead_s = statistics.median(overheads)
    result = {
        "rounds": arguments.rounds,
        "bench_median_s": statistics.median(each.took_s for each in benches),
        "job_median_s": statistics.median(each.took_s for each in jobs),
        "overhead_median_s": overhead_s,
        "overhead_least_s": min(overheads),
        "overhead_most_s": max(overheads),
        "limit_s": arguments.limit,
        "bench_median_cpu_s": statistics.median(each.cpu_s for each in benches),
        "job_median_cpu_s": statistics.median(each.cpu_s for each in jobs),
        "load": os.getloadavg()[0],
    }
    show("a LAVA job beside the same bench", result, as_json=arguments.json)
    return 0 if overhead_s <= arguments.limit else 1


def _measured(place: LavaPlace, lava: Dispatcher, arguments: argparse.Namespace) -> tuple[list[Turn], list[Turn]]:
    """The turns of the benches and of the jobs, in pairs."""
    suite = ["--suite", arguments.suite, "--fs", arguments.fs, "--repeat", "1", "--seed", "5"]
    chosen = ["-k", arguments.select] if arguments.select else []
    # Neither is to build the card that the other then finds.
    images.build_card(_KERNEL, "ext4", recipe=read_environment(Path(place.lg_env)).profile.recipe)
    device, job = place.device(), place.fsjoule("job", *suite, "--lg-env", place.lg_env, "--", *chosen)
    took: dict[str, list[Turn]] = {"bench": [], "job": []}
    for number in range(1, arguments.rounds + 1):
        turns: dict[str, Callable[[], None]] = {
            "bench": lambda: _bench(place, [*suite, *chosen]),
            "job": lambda number=number: _job(place, lava, device, job, number),
        }
        for kind in sorted(turns, reverse=number % 2 == 0):
            took[kind].append(_turn(f"round {number}, {kind}", turns[kind]))
    return took["bench"], took["job"]


if __name__ == "__main__":
    with lines_to(_say):
        sys.exit(main())
