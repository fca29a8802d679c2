"""Programs of commits, built by a command, with real git: a loader here is a text that a shell makes of another."""

from __future__ import annotations

from pathlib import Path

import pytest
from kernel_trees import commit, git

from fsjoule.errors import ConfigError, HostError
from fsjoule.images.boot_loader import boot_loader
from fsjoule.images.userland import own_files
from fsjoule.kernels.recipe import load_recipe, recipes_folder
from fsjoule.kernels.tree.builder import BuildOutcome, BuiltCommit, Unbuildable
from fsjoule.kernels.tree.commits import Conflict, Line, find_line, without_commit
from fsjoule.kernels.tree.program_builds import ProgramBuilds, program_of, recipe_in
from fsjoule.kernels.tree.repository import open_repository

BOARD = "orangepi"
COMMAND = r"test ! -e left; touch left; grep -q fine source; { printf '\0\0\0\0eGON.BT0'; cat source; } > spl; rm left"


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program's history that is no kernel's: fine, the same with a text, finer, broken, fine again."""
    monkeypatch.setenv("FSJOULE_CACHE_DIR", str(tmp_path / "cache"))
    folder = tmp_path / "loader"
    folder.mkdir()
    git(folder, "init", "--quiet", "--initial-branch=main")
    commit(folder, "source", "fine\n")
    git(folder, "tag", "good")
    commit(folder, "README", "it is fine\n")
    commit(folder, "source", "fine, and finer\n")
    commit(folder, "source", "broken\n")
    commit(folder, "source", "fine at last\n")
    return folder


def builds_of(tree: Path, command: str = COMMAND) -> tuple[ProgramBuilds, Line]:
    repository = open_repository(tree, kernel=False)
    program = program_of(command, ["spl=spl"], ["/usr/bin/app=source"], BOARD)
    return ProgramBuilds(repository, program, BOARD), find_line(repository, ["good"], ["main"])


def built(outcome: BuildOutcome) -> BuiltCommit:
    assert isinstance(outcome, BuiltCommit), outcome
    return outcome


def test_each_commit_has_its_loader_and_a_broken_one_says_why(tree: Path) -> None:
    builds, line = builds_of(tree)
    good, text, finer, broken, last = map(builds.build, line)
    assert built(good).image == built(text).image != built(finer).image
    assert isinstance(broken, Unbuildable)
    assert "the command failed and said nothing" in broken.reason
    # It built in vain twice, and what that left does no harm to the next one.
    assert (built(last).folder / "loader" / "spl").read_bytes().endswith(b"fine at last\n")
    # A failure is asked again, what was built is not.
    assert builds.kept(line[3]) is None
    assert builds.kept(line[2]) == finer
    reverted = without_commit(builds.repository, line[-1], line[1])
    assert not isinstance(reverted, Conflict)
    assert built(builds.build(reverted)).image == built(last).image
    # The user's tree has only what was there.
    assert sorted(each.name for each in tree.iterdir()) == [".git", "README", "source"]


def test_a_built_program_is_a_recipe_of_the_board(tree: Path) -> None:
    builds, line = builds_of(tree)
    name = recipe_in(built(builds.build(line[0])).folder)
    assert name is not None
    recipe, board = load_recipe(recipes_folder(), name), load_recipe(recipes_folder(), BOARD)
    assert (
        recipe.model_copy(update={"file": board.file, "boot_loader": board.boot_loader, "userland": board.userland})
        == board
    )
    [piece] = boot_loader(recipe).files
    assert piece.content == b"\0\0\0\0eGON.BT0fine\n"
    assert own_files(recipe) == {"usr/bin/app": b"fine\n"}
    assert piece.piece.sector == board.boot_loader.pieces["spl"].sector
    assert recipe_in(tree) is None


def test_what_another_commit_left_is_removed_before_a_commit_is_blamed(tree: Path) -> None:
    builds, line = builds_of(tree)
    builds.build(line[0])
    (builds.repository.scratch.parent / "program" / "left").touch()
    assert built(builds.build(line[2])).folder.is_dir()


def test_a_missing_program_is_no_fault_of_the_commit(tree: Path) -> None:
    builds, line = builds_of(tree, "sh -c no-such-compiler")
    with pytest.raises(HostError, match="needs the program 'no-such-compiler'"):
        builds.build(line[0])


def test_a_command_that_makes_nothing_says_so(tree: Path) -> None:
    builds, line = builds_of(tree, "true")
    assert builds.build(line[0]) == Unbuildable("the command makes no spl")


@pytest.mark.parametrize(
    ("recipe", "loader", "install", "told"),
    [
        ("imx6ul", "spl", "", "cards of the recipe imx6ul have no boot loader"),
        (BOARD, "", "", "--build needs --loader or --install"),
        ("rpi3", "u-boot.bin", "", "which piece is it"),
        (BOARD, "sql=SPL", "", "unknown piece of the boot loader 'sql'"),
        (BOARD, "spl=/etc/passwd", "", "it is no file in the tree"),
        (BOARD, "spl=../SPL", "", "it is no file in the tree"),
        (BOARD, "", "app", "it names no path on the board"),
        (BOARD, "", "/usr/../app=app", "it names no path on the board"),
        (BOARD, "", "/usr/bin/app=", "it is no file in the tree"),
    ],
)
def test_a_file_without_a_place_is_refused(recipe: str, loader: str, install: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        program_of("make", list(filter(None, [loader])), list(filter(None, [install])), recipe)
