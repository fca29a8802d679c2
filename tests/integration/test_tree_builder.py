"""The builder in the background: what it builds next, what it leaves, what it knows again, whose fault a failure is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from kernel_trees import commit, git
from toy_kernel import changed, new_kernel, tools_for_it
from waiting import wait_for

from fsjoule.errors import HostError, KernelBuildError, StorageError
from fsjoule.kernels.build import clean_kernels
from fsjoule.kernels.configuration import board_configuration
from fsjoule.kernels.recipe import load_recipe, recipes_folder
from fsjoule.kernels.tree.builder import Builder, BuiltCommit, CommitBuilds, Unbuildable
from fsjoule.kernels.tree.commits import Commit, Line, find_line, inside, without_commit
from fsjoule.kernels.tree.frozen import Frozen, aligned, freeze
from fsjoule.kernels.tree.repository import Repository, open_repository
from fsjoule.model import DEFAULT_RECIPE
from fsjoule.runs.bisect.bisection import TreeBuilds

LIMIT_S = 120.0


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    tools_for_it(tmp_path / "tools", monkeypatch)
    monkeypatch.setenv("FSJOULE_CACHE_DIR", str(tmp_path / "cache"))
    return new_kernel(tmp_path / "linux")


def begun(said: Sequence[str]) -> list[str]:
    """The kernels that the builder began."""
    return [text.rpartition(" ")[2] for text in said if "checking out" in text]


def builds_of(repository: Repository) -> CommitBuilds:
    """Without freezing, which would configure kernels first."""
    return CommitBuilds(
        repository, Frozen(board_configuration(load_recipe(recipes_folder(), DEFAULT_RECIPE), ()), ()), jobs=2
    )


def line_of(tree: Path) -> tuple[Line, CommitBuilds]:
    repository = open_repository(tree)
    return find_line(repository, ["v6.1"], ["HEAD"]), builds_of(repository)


def slow(tree: Path, path: Path) -> None:
    """Let the next commit's build last until a file is there; it says that it began beside it."""
    rule = f"all: wait\nwait: zImage\n\t@touch {path}.begun; while [ ! -e {path} ]; do sleep 0.1; done\nold: zImage"
    changed(tree, "Makefile", "all: zImage", rule)


# ------------------------------------------------------------------------------------------------------------ what next


def test_the_most_urgent_kernel_is_built_next_and_what_is_not_wanted_is_left(
    tree: Path, tmp_path: Path, said: list[str]
) -> None:
    slow(tree, tmp_path / "go")
    for number in range(3):
        changed(tree, "kernel/table.txt", "two", f"two\nmore{number}")
    git(tree, "tag", "end")
    line, builds = line_of(tree)
    with Builder(builds) as builder:
        builder.want(line[1:])
        wait_for(lambda: Path(f"{tmp_path}/go.begun").exists())
        assert builder.outcome(line[1]) is None
        # It hangs, and is not wanted any more as soon as the board wants another.
        builder.want([line[0]])
        found = builder.wait(line[0], LIMIT_S)
        assert isinstance(found, BuiltCommit)
        assert begun(said) == [builds.repository.describe(line[1].id), "v6.1"]
        (tmp_path / "go").touch()
        builder.want([line[4], line[2]])
        assert isinstance(builder.wait(line[2], LIMIT_S), BuiltCommit)
        assert builder.waited_s > 0
    # The first of the two was under way, or was put behind.
    assert begun(said)[2:] in (
        [builds.repository.describe(line[2].id)],
        [builds.repository.describe(each.id) for each in (line[4], line[2])],
    )


def test_what_was_built_or_failed_is_known_again(tree: Path, said: list[str]) -> None:
    broken = changed(tree, "init/main.c", "return FS", "return NOTHING")
    line, builds = line_of(tree)
    with Builder(builds) as builder:
        first = [builder.wait(each, LIMIT_S) for each in line]
    assert len(begun(said)) == 2
    assert isinstance(first[1], Unbuildable)
    assert "NOTHING" in first[1].reason
    # Another process, and another history with the same content: a revert of it all.
    git(tree, "revert", "--no-edit", broken)
    line, builds = line_of(tree)
    with Builder(builds) as builder:
        assert [builder.outcome(each) for each in line] == [*first, first[0]]
        assert [builder.wait(each, LIMIT_S) for each in line] == [*first, first[0]]
    assert len(begun(said)) == 2
    clean_kernels()
    assert [builds.kept(each) for each in line] == [None, None, None]


def test_ccache_is_used_where_it_is_installed_and_changes_nothing(tree: Path, tmp_path: Path) -> None:
    changed(tree, "fs/ext4/file.c", "x +", "x * 2 +")
    line, builds = line_of(tree)
    with Builder(builds) as builder:
        usual = builder.wait(line[1], LIMIT_S)
    clean_kernels()
    asked = tmp_path / "asked"
    ccache = tmp_path / "tools" / "ccache"
    ccache.write_text(f'#!/bin/sh\ncase $1 in -*) exit ;; esac\necho "$*" >>{asked}\nexec "$@"\n')
    ccache.chmod(0o755)
    with Builder(builds) as builder:
        found = builder.wait(line[1], LIMIT_S)
    assert isinstance(usual, BuiltCommit)
    assert isinstance(found, BuiltCommit)
    assert found.image == usual.image
    assert "fs/ext4/file.c" in asked.read_text()


# --------------------------------------------------------------------------------------------------------- interruption


PROGRAM = """
import sys
from pathlib import Path
from test_tree_builder import LIMIT_S, line_of
from fsjoule.kernels.tree.builder import Builder
line, builds = line_of(Path(sys.argv[1]))
with Builder(builds) as builder:
    builder.wait(line[int(sys.argv[2])], LIMIT_S)
"""


def processes_below(folder: Path) -> list[str]:
    """Programs that run with something of that folder."""
    found: list[str] = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = entry.read_bytes().decode(errors="replace")
        except OSError:
            continue
        if str(folder) in line:
            found.append(line.replace("\0", " "))
    return found


def test_a_builder_that_is_killed_leaves_no_process_and_no_half_file(
    tree: Path, tmp_path: Path, said: list[str]
) -> None:
    """The object that was written halfway is newer than its source: make by itself would take it for whole."""
    changed(tree, "init/main.c", "return FS", "return FS + 1")
    slow(tree, tmp_path / "go")
    line, builds = line_of(tree)
    with Builder(builds) as builder:
        first = builder.wait(line[0], LIMIT_S)
    command = [sys.executable, "-c", PROGRAM, str(tree), "2"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    with subprocess.Popen(command, env=environment) as killed:
        wait_for(lambda: Path(f"{tmp_path}/go.begun").exists() or killed.poll() is not None)
        [build] = (tmp_path / "cache" / "kernels" / "trees").glob("*/build-*")
        half = build / "init" / "main.o"
        whole = half.read_bytes()
        half.write_bytes(whole[:100])
        killed.send_signal(signal.SIGKILL)
    wait_for(lambda: not processes_below(tmp_path / "cache"))
    (tmp_path / "go").touch()
    with Builder(builds) as builder:
        found = builder.wait(line[2], LIMIT_S)
        assert "kernel build: removing the files of an interrupted build" in said
        assert isinstance(found, BuiltCommit)
        assert half.read_bytes() == whole
        assert builder.wait(line[0], LIMIT_S) == first
    assert not list((tmp_path / "cache").rglob(".*part-*"))


# --------------------------------------------------------------------------------------------------------- whose fault


@pytest.mark.parametrize(
    ("recipe", "error", "said"),
    [
        ("echo 'as: cannot write: No space left on device' >&2; false", StorageError, "the disk is full"),
        ("echo 'gcc: fatal error: Killed signal terminated program cc1' >&2; false", HostError, "the memory is not"),
        ("no-such-program", HostError, "needs the program 'no-such-program'"),
    ],
)
def test_a_fault_of_this_machine_is_no_fault_of_the_commit(
    recipe: str, error: type[HostError], said: str, tree: Path, tmp_path: Path
) -> None:
    flag = tmp_path / "mended"
    rule = f"all: fault zImage\nfault:\n\t@[ -e {flag} ] || {{ {recipe}; }}\nold: zImage"
    changed(tree, "Makefile", "all: zImage", rule)
    line, builds = line_of(tree)
    with Builder(builds) as builder:
        with pytest.raises(error, match=said):
            builder.wait(line[1], LIMIT_S)
        assert builder.outcome(line[1]) is None
        flag.touch()
        assert isinstance(builder.wait(line[1], LIMIT_S), BuiltCommit)


def test_a_kernel_that_the_board_cannot_boot_is_the_commits_fault(tree: Path) -> None:
    changed(tree, "scripts/modules.builtin", "kernel/drivers/mmc/core/mmc_block.ko\n", "")
    line, builds = line_of(tree)
    with Builder(builds) as builder:
        found = builder.wait(line[1], LIMIT_S)
    assert isinstance(found, Unbuildable)
    assert "has no mmc_block, neither built in nor as a module" in found.reason


def test_who_waits_too_long_is_told(tree: Path, tmp_path: Path) -> None:
    slow(tree, tmp_path / "go")
    line, builds = line_of(tree)
    with Builder(builds) as builder, pytest.raises(HostError, match=r"no kernel of .* after 1 s"):
        builder.wait(line[1], 1.0)


# ------------------------------------------------------------------------------------------------------- configurations


def test_a_configuration_is_frozen_with_what_each_end_knows(tree: Path) -> None:
    changed(tree, "Kconfig", "config EXT4_FS", "config NEWS\n default y\nconfig SCHEDSTATS\nconfig EXT4_FS")
    commit(tree, "Kconfig", (tree / "Kconfig").read_text().replace("config BTRFS_FS\n", ""))
    repository = open_repository(tree)
    line = find_line(repository, ["v6.1"], ["HEAD"])
    board = board_configuration(load_recipe(recipes_folder(), DEFAULT_RECIPE), ["CONFIG_SCHEDSTATS=y"])
    found = freeze([repository.revision(each.id) for each in (line[0], line[-1])], board)
    # Needed are settings that both ends accept.
    assert "CONFIG_EXT4_FS=y" in found.needed
    assert not {"CONFIG_SCHEDSTATS=y", "CONFIG_BTRFS_FS=y"} & set(found.needed)
    text = found.configuration.frozen.splitlines()
    assert {"CONFIG_EXT4_FS=y", "CONFIG_BTRFS_FS=y", "CONFIG_SCHEDSTATS=y"} <= set(text)
    # A default of tomorrow is as it was when no default counted.
    assert "# CONFIG_NEWS is not set" in text
    found = replace(found, needed=("CONFIG_SCHEDSTATS=y",))
    with Builder(CommitBuilds(repository, found, jobs=2)) as builder:
        last = builder.wait(line[-1], LIMIT_S)
        assert isinstance(last, BuiltCommit)
        assert "# CONFIG_NEWS is not set" in (last.folder / "config").read_text()
        assert builder.wait(line[0], LIMIT_S) == Unbuildable("this source does not accept CONFIG_SCHEDSTATS=y")


def test_what_is_configured_again_leaves_the_source_alone(tree: Path, said: list[str]) -> None:
    """A switch to the other end and back would give files new times: the next build would compile them for nothing."""
    changed(tree, "fs/ext4/file.c", "x +", "x * 2 +")
    repository = open_repository(tree)
    line = find_line(repository, ["v6.1"], ["HEAD"])
    ends = [repository.revision(each.id) for each in (line[0], line[-1])]
    configuration = builds_of(repository).frozen.configuration
    first = freeze(ends, configuration)
    said.clear()
    file = ends[0].workplace / "source" / "fs" / "ext4" / "file.c"
    written = file.stat().st_mtime_ns
    assert freeze(ends, configuration) == first
    assert file.stat().st_mtime_ns == written
    assert said == []


def test_an_end_that_cannot_be_configured_is_told(tree: Path) -> None:
    changed(tree, "Kconfig", "config MODULES", "confog MODULES")
    repository = open_repository(tree)
    with pytest.raises(KernelBuildError, match="syntax error"):
        freeze([repository.revision("HEAD")], builds_of(repository).frozen.configuration)


def test_functions_are_aligned_by_the_kernels_own_option_or_by_the_compiler(tree: Path) -> None:
    repository = open_repository(tree)
    builds = builds_of(repository)
    plain = aligned(builds.frozen, repository.revision("HEAD"))
    assert plain.how == "-falign-functions=64, for this kernel has no option of its own"
    assert plain.frozen.configuration.compiler_options == ("-falign-functions=64",)
    changed(tree, "Kconfig", "config MODULES", "config DEBUG_FORCE_FUNCTION_ALIGN_64B\nconfig MODULES")
    granted = aligned(builds.frozen, repository.revision("HEAD"))
    assert granted.how == "CONFIG_DEBUG_FORCE_FUNCTION_ALIGN_64B=y"
    assert granted.frozen.configuration.wanted["CONFIG_DEBUG_FORCE_FUNCTION_ALIGN_64B"] == "y"
    line = find_line(repository, ["v6.1"], ["HEAD"])
    with Builder(builds) as builder:
        usual = builder.wait(line[0], LIMIT_S)
    with Builder(CommitBuilds(repository, plain.frozen, jobs=2)) as builder:
        moved = builder.wait(line[0], LIMIT_S)
    assert isinstance(usual, BuiltCommit)
    assert isinstance(moved, BuiltCommit)
    assert usual.image != moved.image


# -------------------------------------------------------------------------------------------- commits that nobody wrote


def test_positions_inside_of_a_merge_and_reverts_are_built(tree: Path) -> None:
    git(tree, "checkout", "--quiet", "-b", "side")
    changed(tree, "fs/ext4/ext4.h", "EXT4 4", "EXT4 44")
    changed(tree, "fs/ext4/inode.c", "x +", "x -")
    git(tree, "checkout", "--quiet", "main")
    changed(tree, "init/main.c", "return FS", "return FS + 1")
    git(tree, "merge", "--quiet", "--no-ff", "--no-edit", "side")
    line, builds = line_of(tree)
    entered = inside(builds.repository, line[1], line[2])
    cured = without_commit(builds.repository, line[2], entered[2])
    assert isinstance(cured, Commit)
    with Builder(builds) as builder:
        found = [builder.wait(each, LIMIT_S) for each in (*entered, cured)]
    images = [each.image if isinstance(each, BuiltCommit) else None for each in found]
    assert None not in images
    assert len(set(images[:3])) == 3
    assert images[3] == images[1]


def test_a_merge_may_be_looked_at_before_it_is_entered(tree: Path) -> None:
    git(tree, "checkout", "--quiet", "-b", "side")
    changed(tree, "fs/ext4/inode.c", "x +", "x -")
    git(tree, "checkout", "--quiet", "main")
    changed(tree, "init/main.c", "return FS", "return FS + 1")
    git(tree, "merge", "--quiet", "--no-ff", "--no-edit", "side")
    line, builds = line_of(tree)
    before, merge = line[-2].id, line[-1].id
    with TreeBuilds(builds.repository, builds, lambda: builds) as found:
        found.add(line)
        assert [found.is_merge(merge) for _ in range(2)] == [True, True]
        assert not found.is_merge(before)
        inner = found.enter(before, merge)
        assert (inner.commits[0], inner.commits[-1], inner.inside) == (before, merge, merge)
        assert not found.is_merge(merge)
