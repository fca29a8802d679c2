"""Compares the instructions of each profile of a run with the time that the board was busy.

::

    pytest tests/bench --lg-env env/deterministic.yaml --fs ext4,btrfs --kernel 6.12 --repeat 1 --seed 7 --profile
    python tests/statistics/exact_profiles.py results/RUN

QEMU counts the instructions of the whole window by itself, so that the profile's sum has something to be compared with.
An instruction that faulted is counted twice, which the profile knows. Ends with 1 if a sum is off by an instruction.
That figures are the same without profiles, deterministic_repeat.py --compare tells of two runs with one seed.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from fsjoule.store.reader import LoadedRun, load_run


def rows(run: LoadedRun) -> list[tuple[str, int, int, int]]:
    """Each measurement's slug, its busy time in ns, how many instructions were repeated, and how many are too many."""
    found: list[tuple[str, int, int, int]] = []
    for measurement in run.measurements:
        profile = run.profile(measurement.number)
        if profile is not None:
            instructions = profile.sum_ns // profile.instruction_ns - profile.repeated
            excess = instructions - profile.busy_ns // profile.instruction_ns
            found.append((measurement.slug, profile.busy_ns, profile.repeated, excess))
    return found


def main() -> int:
    """Print a table; the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN")
    off = measured = 0
    for path in parser.parse_args().runs:
        run = load_run(path)
        kernels = ", ".join(run.run.plan.kernels)
        for slug, busy_ns, repeated, excess in rows(run):
            print(f"{kernels:<10} {slug:<22} busy {busy_ns:>13,} ns, {repeated:>5} repeated, off by {excess}")
            measured += 1
            off += excess != 0
    print(f"{measured} profiles, {measured - off} of them exact to the instruction")
    return 0 if measured and not off else 1


if __name__ == "__main__":
    sys.exit(main())
