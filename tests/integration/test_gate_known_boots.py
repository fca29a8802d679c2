"""Comparisons that share a kernel: in guest time it boots once for all of them."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from fresh_boots import FreshBoots, kernel_folder

from fsjoule.lab import read_environment
from fsjoule.runs import gate
from fsjoule.runs.gate import Sides, gate_measured
from fsjoule.runs.options import BenchOptions
from fsjoule.runs.request import choose
from fsjoule.runs.review import GUEST_TIME_POLICY, with_figures
from fsjoule.store.gate import Gated
from fsjoule.store.reader import load_run

PROJECT = Path(__file__).parents[2]
RELEASES = ("6.1.1", "6.1.2", "6.1.3")


@pytest.fixture
def kernels(tmp_path: Path) -> list[Path]:
    return [kernel_folder(tmp_path / each, f"{each}-armmp", recipe="imx6ul") for each in RELEASES]


def gated(kernels: tuple[Path, Path], results: Path, board: str, *, seed: int = 1, earlier: list[Path]) -> Gated:
    environment = read_environment(PROJECT / "env" / f"{board}.yaml")
    baseline, candidate = map(str, kernels)
    options = BenchOptions(fs="ext4", suite="quick", repeat=4, provision="scratch", results=results, seed=seed)
    request = with_figures(choose(options, environment, pair=(baseline, candidate)), GUEST_TIME_POLICY)
    sides = Sides(Path(baseline).name, Path(candidate).name)
    return gate_measured(sides, request, environment, GUEST_TIME_POLICY, command=("fsjoule", "review"), earlier=earlier)


@pytest.mark.parametrize(
    ("board", "seed", "shared"), [("deterministic", 1, True), ("deterministic", 2, False), ("virtual", 1, False)]
)
def test_a_kernel_of_two_comparisons_boots_once(
    kernels: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, board: str, seed: int, shared: bool
) -> None:
    """Another seed would be another boot, and so would each boot in real time."""
    monkeypatch.setattr(gate, "measure_pairs", FreshBoots(speeds={"6.1.3": 0.5}).measure_pairs)
    one, two = pairwise(kernels)
    first = gated(one, tmp_path / "first", board, earlier=[])
    assert first.pairs > 1
    assert first.folder is not None
    alone = gated(two, tmp_path / "alone", board, seed=seed, earlier=[])
    second = gated(two, tmp_path / "second", board, seed=seed, earlier=[Path(first.folder)])
    assert (second.verdict, second.pairs, second.findings) == (alone.verdict, alone.pairs, alone.findings)
    assert second.folder is not None
    measured = load_run(Path(second.folder)).measurements
    known = min(first.pairs, second.pairs) if shared else 0
    assert second.known_boots == known
    assert len({(each.kernel, each.repetition) for each in measured}) == 2 * second.pairs - known
    assert any("not made again" in note for note in second.notes) == shared
