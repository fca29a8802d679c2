"""Building kernels, as far as that goes without a compiler: configurations, revisions, what is missing."""

from __future__ import annotations

from pathlib import Path

import pytest
from kernel_trees import commit, git, new_tree

from fsjoule.errors import ConfigError, MissingToolError
from fsjoule.host.setup.needs import needed_programs
from fsjoule.kernels.build import build_kernel
from fsjoule.kernels.configuration import board_configuration, check_fragment, not_granted, parse_config
from fsjoule.kernels.recipe import load_recipe, recipes_folder
from fsjoule.kernels.source_tree import check_out, find_revision, has_changes

FRAGMENT = Path(__file__).parents[2] / "images" / "imx6ul.config"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return new_tree(tmp_path / "linux")


# ------------------------------------------------------------------------------------------------------- configuration


def test_the_boards_fragment_is_well_formed_and_builds_everything_in() -> None:
    text = FRAGMENT.read_text()
    check_fragment(text, file=FRAGMENT)
    wanted = parse_config(text)
    assert "m" not in wanted.values()
    board = board_configuration(load_recipe(recipes_folder()), ["CONFIG_SCHEDSTATS=y"]).wanted
    assert wanted.items() < board.items()
    for name in ("EXT4_FS", "BTRFS_FS", "F2FS_FS", "XFS_FS", "UDF_FS", "VFAT_FS", "SCHEDSTATS"):
        assert board[f"CONFIG_{name}"] == "y"


def test_a_later_line_of_a_configuration_wins() -> None:
    assert parse_config("CONFIG_A=y\n# CONFIG_B is not set\n# a word\nCONFIG_A=n\n") == {
        "CONFIG_A": "n",
        "CONFIG_B": "n",
    }


@pytest.mark.parametrize("line", ["EXT4_FS=y", "CONFIG_EXT4_FS", "CONFIG_EXT4_FS = y"])
def test_a_line_that_kconfig_would_pass_over_is_refused(line: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=rf"mine:2: '{line}' is not a line"):
        check_fragment(f"# mine\n{line}\n", file=tmp_path / "mine")


def test_wishes_that_were_not_granted_are_named() -> None:
    config = parse_config('CONFIG_A=y\nCONFIG_B=m\nCONFIG_C="x"\n# CONFIG_D is not set\n')
    wanted = {"CONFIG_A": "y", "CONFIG_B": "y", "CONFIG_C": '"x"', "CONFIG_D": "n", "CONFIG_E": "n", "CONFIG_F": "y"}
    assert not_granted(wanted, config) == ["CONFIG_B=y", "CONFIG_F=y"]


# ----------------------------------------------------------------------------------------------------------- revisions


def test_a_revision_is_known_by_its_content(repository: Path) -> None:
    first = find_revision(repository, "v6.1")
    assert first.describe == "v6.1"
    commit(repository, "Makefile", "one")
    changed = find_revision(repository, "HEAD")
    assert changed.describe.startswith("v6.1-1-g")
    assert changed.tree != first.tree
    git(repository, "revert", "--no-edit", "HEAD")
    reverted = find_revision(repository, "HEAD")
    assert reverted.commit != first.commit
    assert reverted.tree == first.tree
    assert reverted.repository_id == first.repository_id


def test_what_is_no_revision_of_a_kernel_is_refused(repository: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has no revision 'v9'"):
        find_revision(repository, "v9")
    with pytest.raises(ConfigError, match="has no revision '--all'"):
        find_revision(repository, "--all")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match="not a readable git repository"):
        find_revision(tmp_path / "empty", "HEAD")
    git(repository, "rm", "--quiet", "arch/arm/Kconfig")
    commit(repository, "README", "no kernel any more")
    with pytest.raises(ConfigError, match="not a kernel's source"):
        find_revision(repository, "HEAD")


def test_switching_between_revisions_leaves_alone_what_both_have(repository: Path, tmp_path: Path) -> None:
    commit(repository, "kept", "the same")
    first = commit(repository, "changed", "one")
    second = commit(repository, "changed", "two")
    commit(repository, "new", "new")
    source = tmp_path / "source"
    check_out(find_revision(repository, first), source)
    kept, changed = ((source / name).stat().st_mtime_ns for name in ("kept", "changed"))
    assert (source / "changed").read_text() == "one"
    check_out(find_revision(repository, second), source)
    assert (source / "changed").read_text() == "two"
    assert (source / "kept").stat().st_mtime_ns == kept
    assert (source / "changed").stat().st_mtime_ns > changed
    assert not (source / "new").exists()


def test_a_checkout_that_was_killed_does_not_stop_the_next(repository: Path, tmp_path: Path) -> None:
    revision = find_revision(repository, "HEAD")
    source = tmp_path / "source"
    check_out(revision, source)
    (source / ".git" / "index.lock").touch()
    (source / "arch" / "arm" / "Kconfig").write_text("half a fi")
    check_out(revision, source)
    assert (source / "arch" / "arm" / "Kconfig").read_text() == "config ARM"


def test_the_users_tree_is_not_touched(repository: Path, tmp_path: Path) -> None:
    first = find_revision(repository, "HEAD")
    commit(repository, "Makefile", "one")
    before = sorted(path.relative_to(repository) for path in repository.rglob("*"))
    check_out(first, tmp_path / "source")
    assert sorted(path.relative_to(repository) for path in repository.rglob("*")) == before
    assert git(repository, "status", "--porcelain") == ""


def test_changes_that_are_not_committed_are_seen(repository: Path) -> None:
    revision = find_revision(repository, "HEAD")
    assert not has_changes(repository, revision)
    (repository / "arch" / "arm" / "Kconfig").write_text("changed")
    assert has_changes(repository, revision)
    commit(repository, "Makefile", "one")
    assert not has_changes(repository, revision)  # they are no changes to that one


# -------------------------------------------------------------------------------------------------------- what is said


def test_a_missing_tool_is_named_with_its_package(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A path with every tool but the cross-compiler."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in needed_programs("kernels"):
        if name != "arm-linux-gnueabihf-gcc":
            (tools / name).symlink_to("/usr/bin/git" if name == "git" else "/bin/true")
    monkeypatch.setenv("PATH", str(tools))
    monkeypatch.setenv("FSJOULE_CACHE_DIR", str(tmp_path / "cache"))
    with pytest.raises(MissingToolError, match="apt-get install gcc-arm-linux-gnueabihf"):
        build_kernel(repository, "HEAD")
    assert not list((tmp_path / "cache").rglob("zImage"))


def test_a_fragment_that_is_not_there_is_named(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FSJOULE_CACHE_DIR", str(tmp_path / "cache"))
    with pytest.raises(ConfigError, match=r"fragment '.*/no\.config' cannot be read"):
        build_kernel(repository, "HEAD", [str(tmp_path / "no.config")])
