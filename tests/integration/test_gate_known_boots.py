"""Comparisons that share a kernel: in guest time it boots once for all of them."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from fresh_boots import FreshBoots, kernel_folder

from fsjoule.lab import read_environment
from fsjoule.runs.options import BenchOptions
from fsjoule.runs.pairs import PairedRun
from fsjoule.runs.request import choose
from fsjoule.runs.review import GUEST_TIME_POLICY, with_figures
from fsjoule.store.gate import Tested
from fsjoule.store.reader import load_run
from fsjoule.verdicts.gate import Judge

PROJECT = Path(__file__).parents[2]
RELEASES = ("6.1.1", "6.1.2", "6.1.3")
BOOTS = FreshBoots(speeds={"6.1.3": 0.5})


def compared(
    kernels: tuple[Path, Path], results: Path, *, seed: int = 1, earlier: tuple[Path, ...] = ()
) -> tuple[PairedRun, tuple[Tested, ...]]:
    """The run of a comparison, and what a gate finds in it."""
    environment = read_environment(PROJECT / "env" / "deterministic.yaml")
    baseline, candidate = map(str, kernels)
    options = BenchOptions(fs="ext4", suite="quick", repeat=4, provision="scratch", results=results, seed=seed)
    request = with_figures(choose(options, environment, pair=(baseline, candidate)), GUEST_TIME_POLICY)
    judge = Judge(GUEST_TIME_POLICY, guest_time=True)
    run = BOOTS.measure_pairs(request, environment, enough=judge.see, command=("fsjoule", "review"), earlier=earlier)
    judge.finish()
    return run, judge.findings


@pytest.mark.parametrize(("seed", "shared"), [(1, True), (2, False)])
def test_a_kernel_of_two_comparisons_boots_once(tmp_path: Path, seed: int, shared: bool) -> None:
    """With another seed it would be another boot."""
    kernels = [kernel_folder(tmp_path / each, f"{each}-armmp", recipe="imx6ul") for each in RELEASES]
    one, two = pairwise(kernels)
    first, _ = compared(one, tmp_path / "first")
    assert first.pairs > 1
    alone, expected = compared(two, tmp_path / "alone", seed=seed)
    second, found = compared(two, tmp_path / "second", seed=seed, earlier=(first.folder,))
    assert (second.pairs, found) == (alone.pairs, expected)
    known = min(first.pairs, second.pairs) if shared else 0
    assert second.known_boots == known
    measured = load_run(second.folder).measurements
    assert len({(each.kernel, each.repetition) for each in measured}) == 2 * second.pairs - known
