"""Commits that are built, and what is known of those that are not: with a toy of a kernel, real git, make and tuxmake.

One range with everything that a range can have is built as a whole, once; most tests look at that.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from pathlib import Path

import equal_images
import pytest
from equal_images import Everything
from kernel_trees import commit, git
from toy_kernel import changed, new_kernel, tools_for_it

from fsjoule.kernels.reads import FileChange
from fsjoule.kernels.tree.builder import BuiltCommit, Unbuildable
from fsjoule.kernels.tree.pools import pools_of

# What is planted after the good end, in order: the position in the line by name.
PLANTED = (
    "good",
    "slower",
    "documentation",
    "not configured",
    "new header",
    "does not compile",
    "mended",
    "loses a symbol",
    "has it again",
    "table",
    "other architecture",
    "comment",
    "no Kconfig",
    "Kconfig again",
    "merge",
)
AT = {name: position for position, name in enumerate(PLANTED)}


def plant(tree: Path) -> None:
    changed(tree, "fs/ext4/file.c", "x +", "x * 2 +")
    changed(tree, "Documentation/index.rst", "A kernel", "The kernel")
    changed(tree, "fs/xfs/xfs.c", "nothing", "nothing_else")
    commit(tree, "include/linux/xfs.h", "#define XFS 1\n")
    changed(tree, "fs/ext4/file.c", "int write_iter(", "int write_iter((")
    changed(tree, "fs/ext4/file.c", "int write_iter((", "int write_iter(")
    changed(tree, "Kconfig", "config EXT4_FS", "config EXT4")
    changed(tree, "Kconfig", "config EXT4", "config EXT4_FS")
    changed(tree, "kernel/table.txt", "two", "three")
    changed(tree, "arch/x86/Kconfig", "X86", "X86_64")
    changed(tree, "include/linux/fs.h", "FS 1", "FS 1 /* one */")
    changed(tree, "arch/arm/Kconfig", "config ARM", "confog ARM")
    changed(tree, "arch/arm/Kconfig", "confog ARM", "config ARM")
    git(tree, "checkout", "--quiet", "-b", "side", "v6.1")
    changed(tree, "fs/ext4/ext4.h", "EXT4 4", "EXT4 44")
    changed(tree, "fs/btrfs/a.c", "int a", "int b")
    git(tree, "checkout", "--quiet", "main")
    git(tree, "merge", "--quiet", "--no-ff", "--no-edit", "side")


@pytest.fixture(scope="module")
def patched() -> Generator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        yield patch


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory, patched: pytest.MonkeyPatch) -> Everything:
    folder = tmp_path_factory.mktemp("range")
    tools_for_it(folder / "tools", patched)
    patched.setenv("FSJOULE_CACHE_DIR", str(folder / "cache"))
    tree = new_kernel(folder / "linux")
    plant(tree)
    return equal_images.build_all(tree, ["v6.1"], ["HEAD"], 2)


def image(everything: Everything, name: str) -> str:
    outcome = everything.outcomes[AT[name]]
    assert isinstance(outcome, BuiltCommit), outcome
    return outcome.image


def reason(everything: Everything, name: str) -> str:
    outcome = everything.outcomes[AT[name]]
    assert isinstance(outcome, Unbuildable), outcome
    return outcome.reason


# --------------------------------------------------------------------------------------------------------------- images


def test_a_commit_that_changes_nothing_of_a_kernel_gives_the_same_kernel(everything: Everything) -> None:
    assert image(everything, "good") != image(everything, "slower")
    for name in ("documentation", "not configured", "new header", "mended", "has it again"):
        assert image(everything, name) == image(everything, "slower"), name
    assert image(everything, "table") != image(everything, "slower")
    for name in ("other architecture", "comment", "Kconfig again"):
        assert image(everything, name) == image(everything, "table"), name
    assert image(everything, "merge") != image(everything, "table")


def test_a_commit_that_has_no_kernel_says_why_in_one_line(everything: Everything) -> None:
    assert reason(everything, "does not compile").startswith("fs/ext4/file.c:3:")
    assert "error: " in reason(everything, "does not compile")
    assert reason(everything, "loses a symbol") == "this source does not accept CONFIG_EXT4_FS=y"
    assert reason(everything, "no Kconfig") == "arch/arm/Kconfig:1: syntax error: confog ARM"


def test_nobody_is_said_to_have_a_kernel_that_it_has_not(everything: Everything) -> None:
    """From each kernel alone, and from both ends."""
    last = len(PLANTED) - 1
    for known in (*([position] for position in everything.built), [0, last]):
        assert everything.wrong(known) == [], known


def test_pools_are_forecast_from_the_ends(everything: Everything) -> None:
    last = len(PLANTED) - 1
    pools = pools_of(everything.changes, {0: everything.built[0], last: everything.built[last]})
    begins = [
        PLANTED[position] for position in range(1, last + 1) if pools.numbers[position - 1] != pools.numbers[position]
    ]
    assert begins == [
        "slower",
        "does not compile",
        "mended",
        "loses a symbol",
        "has it again",
        "table",
        "comment",
        "no Kconfig",
        "Kconfig again",
        "merge",
    ]
    assert [PLANTED[position] for position in pools.positions(1)] == [
        "slower",
        "documentation",
        "not configured",
        "new header",
    ]
    assert pools.images == {0: image(everything, "good"), 10: image(everything, "merge")}
    assert [PLANTED[position] for position in everything.needless()] == ["comment"]


def test_what_was_built_joins_and_parts_pools(everything: Everything) -> None:
    ends = {position: everything.built[position] for position in (0, len(PLANTED) - 1)}
    comment = {position: everything.built[position] for position in (AT["other architecture"], AT["comment"])}
    numbers = pools_of(everything.changes, ends | comment).numbers
    assert numbers[AT["table"]] == numbers[AT["comment"]] == numbers[AT["no Kconfig"]] - 1
    # Were two that are forecast to be equal ever to differ, whatever is between them is looked into.
    odd = {AT["slower"]: everything.built[1], AT["new header"]: replace(everything.built[4], image="another")}
    numbers = pools_of(everything.changes, ends | odd).numbers
    assert numbers[1:5] == (1, 2, 3, 4)


def test_without_a_build_only_equal_contents_are_pooled() -> None:
    change = (FileChange("a", appeared=False),)
    assert pools_of([change, (), None, ()], {}).numbers == (0, 1, 1, 2, 2)


def test_a_build_tells_what_it_read(everything: Everything) -> None:
    reads = everything.built[0].reads
    assert {"init/main.c", "include/linux/fs.h", "fs/ext4/ext4.h", "Kconfig", "arch/arm/Kconfig"} <= reads.files
    assert not {"fs/xfs/xfs.c", "arch/x86/Kconfig", "Documentation/index.rst"} & reads.files


@pytest.mark.parametrize(
    ("path", "appeared", "read"),
    [
        ("fs/ext4/file.c", False, True),
        ("fs/ext4/unused.c", True, False),
        ("fs/ext4/file.S", True, True),  # make may take it for file.o
        ("include/asm-generic/fs.h", True, True),  # of a name that is included
        ("include/asm-generic/fs.h", False, False),
        ("include/linux/xfs.h", True, False),
        ("Makefile", False, True),
        ("localversion-mine", True, True),
        ("fs/ext4/Makefile", False, True),
        ("fs/xfs/Makefile", False, False),
        ("drivers/Kconfig", False, False),
        ("arch/arm/Makefile", False, True),
        ("arch/arm/tools/syscall.tbl", False, True),
        ("arch/x86/Makefile", False, False),
        ("scripts/link.sh", False, True),
        ("fs/ext4/tables/names.txt", False, True),  # perhaps of a rule in fs/ext4/Makefile
        ("fs/xfs/names.txt", False, False),
        ("tools/testing/selftests/a.sh", False, False),
        ("Documentation/conf.py", False, False),
        ("MAINTAINERS", False, False),
        ("fs/ext4/.gitignore", True, False),
    ],
)
def test_what_a_build_may_notice(path: str, appeared: bool, read: bool, everything: Everything) -> None:
    reads = replace(everything.built[0].reads, folders=everything.built[0].reads.folders | {"arch/arm/boot"})
    assert reads.first([FileChange("README", appeared=False), FileChange(path, appeared=appeared)]) == (
        path if read else None
    )


def test_headers_count_where_the_kernel_carries_them_all(everything: Everything) -> None:
    reads = replace(everything.built[0].reads, all_headers=True)
    assert reads.first([FileChange("include/linux/xfs.h", appeared=False)]) == "include/linux/xfs.h"
    assert reads.first([FileChange("fs/xfs/xfs.h", appeared=False)]) is None


def test_the_script_tells_what_it_found(everything: Everything, capsys: pytest.CaptureFixture[str]) -> None:
    shown = equal_images.report(everything)
    assert shown.settings == {
        "positions": 15,
        "built": 12,
        "pools forecast from both ends": 11,
        "images": 4,
        "wrong": 0,
        "needless": 1,
    }
    shown.show(as_json=False)
    assert "this source does not accept CONFIG_EXT4_FS=y" in capsys.readouterr().out
