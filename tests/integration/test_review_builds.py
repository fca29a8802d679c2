"""A patch series of mails whose kernels are really built: with a toy of a kernel, real git, make and tuxmake."""

from __future__ import annotations

from pathlib import Path

import pytest
from kernel_trees import git
from toy_kernel import changed, new_kernel, tools_for_it

from fsjoule.kernels.configuration import board_configuration
from fsjoule.kernels.recipe import load_recipe, recipes_folder
from fsjoule.kernels.tree.builder import CommitBuilds
from fsjoule.kernels.tree.frozen import Frozen
from fsjoule.kernels.tree.patch_series import find_patch_series
from fsjoule.kernels.tree.repository import open_repository
from fsjoule.model import DEFAULT_RECIPE
from fsjoule.runs.bisect.bisection import TreeBuilds
from fsjoule.runs.gate import Sides
from fsjoule.runs.review import LineJudge
from fsjoule.statistics.policy import Policy
from fsjoule.store.gate import Gated, GateSide, GateVerdict
from fsjoule.store.review import PatchState

pytestmark = pytest.mark.slow


def test_patches_that_change_no_kernel_are_not_measured_and_one_that_breaks_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FSJOULE_CACHE_DIR", str(tmp_path / "cache"))
    tools_for_it(tmp_path / "tools", monkeypatch)
    tree = new_kernel(tmp_path / "linux")
    changed(tree, "fs/ext4/file.c", "x +", "x * 2 +")
    changed(tree, "Documentation/index.rst", "A kernel", "The kernel")
    changed(tree, "include/linux/fs.h", "FS 1", "FS 1 /* one */")
    changed(tree, "fs/ext4/file.c", "int write_iter(", "int write_iter((")
    changed(tree, "fs/ext4/file.c", "int write_iter((", "int write_iter(")
    git(tree, "format-patch", "--quiet", f"--output-directory={tmp_path / 'patches'}", "v6.1..main")
    git(tree, "checkout", "--quiet", "v6.1")
    repository = open_repository(tree)
    line = find_patch_series(repository, str(tmp_path / "patches"), "v6.1")
    policy, judged = Policy(), list[tuple[str, str]]()

    def gate(names: Sides, folders: Sides) -> Gated:
        judged.append((names.baseline, names.candidate))
        assert all((Path(folder) / "zImage").exists() for folder in (folders.baseline, folders.candidate))
        baseline, candidate = (GateSide(name, name) for name in (names.baseline, names.candidate))
        return Gated(GateVerdict.PASSED, baseline, candidate, policy, "decided")

    recipe = load_recipe(recipes_folder(), DEFAULT_RECIPE)
    plain = CommitBuilds(repository, Frozen(board_configuration(recipe, ()), ()), 2)
    with TreeBuilds(repository, plain, lambda: plain) as builds:
        builds.add(line)
        judge = LineJudge(line, Sides("v6.1", "patches"), policy, gate)
        review = judge.judged(builds, each=True)
    assert judged == [("v6.1", "patches")]
    first, text, comment, broken, mended = review.patches
    assert first.gated is review.whole
    assert [(each.state, each.gated) for each in (text, comment, mended)] == [(PatchState.SAME, None)] * 3
    assert broken.state is PatchState.UNBUILT
    assert "fs/ext4/file.c" in broken.why
