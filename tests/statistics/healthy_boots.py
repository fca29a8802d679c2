"""healthy_boots.py [--boots N] [ENVIRONMENT...]: does the judge of kernel logs complain of boards that are well?

Boots the emulated boards and counts what the judge says of each kernel's log, from power-on to the shell. Ends with 1
if it says anything at all. Ten boots of five boards take half an hour on two cores.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

from fsjoule.bench.kernel_log import messages
from fsjoule.store.reader import load_run
from fsjoule.store.run_folders import runs_below

_INVALID = 1  # some boots: their logs count like the others
_BOARDS = ("virtual", "virtual-orangepi", "virtual-rpi3", "virtual-sabrelite", "virtual-x86")


def _boots(environment: str, boots: int, results: Path) -> list[str]:
    command = ["fsjoule", "bench", "--lg-env", f"env/{environment}.yaml", "--suite", "quick", "--fs", "ext4"]
    command += ["-k", "boot", "--repeat", str(boots), "--results", str(results)]
    ended = subprocess.run(command, check=False, stdout=sys.stderr, timeout=boots * 600)
    if ended.returncode not in (0, _INVALID):
        ended.check_returncode()
    logs: list[str] = []
    for folder in runs_below([results])[0]:
        run = load_run(folder)
        contents = (run.attachment(each.number, "kernel.log") for each in run.measurements if each.workload.is_boot)
        logs += [content.decode(errors="replace") for content in contents if content is not None]
    return logs


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--boots", type=int, default=40)
    parser.add_argument("environments", nargs="*", default=_BOARDS)
    asked = parser.parse_args()
    found = Counter[str]()
    for environment in asked.environments:
        with TemporaryDirectory(prefix="fsjoule-boots-") as results:
            logs = _boots(environment, asked.boots, Path(results))
        said = [each for log in logs for each in messages(log)]
        found.update(each.named for each in said)
        lines = sum(log.count("\n") for log in logs)
        print(f"{environment:<20} {len(logs):>4} boots {lines:>7} lines {len(said):>4} complaints", flush=True)
        for each in {each.named: each for each in said}.values():
            print(f"    {each.named}: {each.line}", flush=True)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
