"""The commits of a range: in a line, inside of merges, without one of them. With real repositories."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from kernel_trees import commit, git, new_tree

from fsjoule.errors import ConfigError
from fsjoule.kernels.source_tree import check_out, find_revision
from fsjoule.kernels.tree.commits import Conflict, Line, find_line, inside, merged, without
from fsjoule.kernels.tree.repository import Repository, open_repository


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FSJOULE_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return new_tree(tmp_path / "linux")


def on_branch(tree: Path, name: str, start: str, *files: str) -> list[str]:
    """Commits on a new branch, one for each file."""
    git(tree, "checkout", "--quiet", "-b", name, start)
    return [commit(tree, file, f"{name}'s {file}") for file in files]


def merge(tree: Path, into: str, *branches: str) -> str:
    git(tree, "checkout", "--quiet", into)
    git(tree, "merge", "--quiet", "--no-ff", "--no-edit", *branches)
    return git(tree, "rev-parse", "HEAD")


def adds(line: Line) -> list[str]:
    return [each.adds for each in line]


def files(repository: Repository, each: str) -> set[str]:
    return set(repository.git("ls-tree", "-r", "--name-only", each).split())


def contents(tree: Path) -> dict[Path, bytes]:
    """All of it but the index, in which git keeps times."""
    return {path: path.read_bytes() for path in tree.rglob("*") if path.is_file() and path.name != "index"}


# ---------------------------------------------------------------------------------------------------------------- lines


def test_a_line_follows_first_parents(tree: Path) -> None:
    first = commit(tree, "a", "1")
    on_branch(tree, "side", "main", "s1", "s2")
    git(tree, "checkout", "--quiet", "main")
    second = commit(tree, "b", "2\u2028\x0b tab\there")
    merging = merge(tree, "main", "side")
    last = commit(tree, "c", "3")
    line = find_line(open_repository(tree), ["v6.1"], ["HEAD"])
    assert adds(line)[1:] == [first, second, merging, last]
    assert [each.is_merge for each in line] == [False, False, False, True, False]
    assert line[2].subject.startswith("b: 2")
    assert all(each.id == each.adds and not each.conflict for each in line)
    assert line[1].content == git(tree, "rev-parse", f"{first}^{{tree}}")


def test_inside_of_a_merge_are_its_branchs_commits_on_top_of_what_was_there(tree: Path) -> None:
    side = on_branch(tree, "side", "main", "s1", "s2", "s3")
    git(tree, "checkout", "--quiet", "main")
    commit(tree, "main.c", "of main")
    merging = merge(tree, "main", "side")
    repository = open_repository(tree)
    line = find_line(repository, ["v6.1"], ["HEAD"])
    entered = inside(repository, line[1], line[2])
    assert adds(entered) == [line[1].id, *side]
    assert (entered[0].content, entered[-1].content) == (line[1].content, line[2].content)
    assert entered[-1].id == merging
    # Neither end differs from the line outside, and what main has is in every position.
    assert files(repository, entered[1].id) == {"arch/arm/Kconfig", "main.c", "s1"}
    assert files(repository, entered[2].id) == {"arch/arm/Kconfig", "main.c", "s1", "s2"}
    assert inside(repository, line[1], line[2]) == entered
    assert inside(repository, line[0], line[1]) == ()


def test_a_merge_within_a_branch_is_entered_in_turn(tree: Path) -> None:
    inner = on_branch(tree, "inner", "main", "i1", "i2")
    on_branch(tree, "side", "main", "s1")
    merge(tree, "side", "inner")
    git(tree, "checkout", "--quiet", "main")
    commit(tree, "main.c", "of main")
    merge(tree, "main", "side")
    repository = open_repository(tree)
    line = find_line(repository, ["v6.1"], ["HEAD"])
    entered = inside(repository, line[1], line[2])
    assert [each.is_merge for each in entered] == [False, False, True]
    deeper = inside(repository, entered[1], entered[2])
    assert adds(deeper)[1:] == inner
    assert files(repository, deeper[1].id) == {"arch/arm/Kconfig", "main.c", "s1", "i1"}
    assert deeper[-1].content == line[2].content


def test_all_branches_of_a_merge_are_gone_through(tree: Path) -> None:
    one = on_branch(tree, "one", "main", "o1", "o2")
    two = on_branch(tree, "two", "main", "t1")
    git(tree, "checkout", "--quiet", "main")
    commit(tree, "main.c", "of main")
    merge(tree, "main", "one", "two")
    repository = open_repository(tree)
    line = find_line(repository, ["v6.1"], ["HEAD"])
    assert len(line[2].parents) == 3
    entered = inside(repository, line[1], line[2])
    assert adds(entered)[1:] == [*one, *two]
    assert entered[-1].content == line[2].content


def test_what_a_merge_adds_of_its_own_is_its_last_position(tree: Path) -> None:
    """A conflict that somebody resolved: the branch's last commit does not go on top by itself."""
    [first, second] = on_branch(tree, "side", "main", "s1", "both")
    git(tree, "checkout", "--quiet", "main")
    commit(tree, "both", "main's")
    git(tree, "merge", "--quiet", "--strategy=ours", "--no-edit", "side")
    git(tree, "checkout", "--quiet", "side", "--", "s1")
    git(tree, "commit", "--quiet", "--amend", "--no-edit")
    repository = open_repository(tree)
    line = find_line(repository, ["v6.1"], ["HEAD"])
    entered = inside(repository, line[1], line[2])
    assert adds(entered)[1:] == [first, second, line[2].id]
    assert not entered[1].conflict
    assert entered[2].conflict == f"{second[:12]} does not merge into {line[1].id[:12]}: conflicts in both"
    assert entered[3].content == line[2].content
    assert not entered[3].is_merge  # it was entered already


def test_a_good_revision_that_came_in_by_a_merge_is_in_every_position(tree: Path) -> None:
    """With first parents alone, main's own commits before the merge would be tested without the good one."""
    [good] = on_branch(tree, "side", "main", "good")
    later = commit(tree, "side.c", "after good")
    git(tree, "checkout", "--quiet", "main")
    mains = [commit(tree, name, name) for name in ("m1", "m2")]
    merging = merge(tree, "main", "side")
    last = commit(tree, "last", "last")
    repository = open_repository(tree)
    line = find_line(repository, [good], ["HEAD"])
    assert adds(line) == [good, merging, last]
    entered = inside(repository, line[0], line[1])
    assert adds(entered) == [good, later, *mains]
    assert all("good" in files(repository, each.id) for each in entered)
    assert entered[-1].content == line[1].content


def test_a_line_of_several_good_revisions_begins_with_all_of_them(tree: Path) -> None:
    [one] = on_branch(tree, "one", "main", "o1")
    [two] = on_branch(tree, "two", "main", "t1")
    git(tree, "checkout", "--quiet", "main")
    merge(tree, "main", "one")
    merging = merge(tree, "main", "two")
    last = commit(tree, "last", "last")
    repository = open_repository(tree)
    line = find_line(repository, [one, two, "v6.1"], ["HEAD"])
    assert adds(line)[1:] == [merging, last]
    assert files(repository, line[0].id) == {"arch/arm/Kconfig", "o1", "t1"}
    [ancestor, *_] = find_line(repository, ["v6.1", one], [merging])
    assert ancestor.id == one  # which has the other


def test_a_line_of_several_bad_revisions_ends_with_their_last_common_commit(tree: Path) -> None:
    shared = commit(tree, "a", "1")
    on_branch(tree, "one", "main", "o1")
    on_branch(tree, "two", "main", "t1")
    line = find_line(open_repository(tree), ["v6.1"], ["one", "two"])
    assert adds(line)[1:] == [shared]
    with pytest.raises(ConfigError, match=r"one and two have no commit in common that the good revisions have not"):
        find_line(open_repository(tree), [shared], ["one", "two"])


# ------------------------------------------------------------------------------------------------------------ bad input


@pytest.mark.parametrize(
    ("good", "bad", "said"),
    [
        ("main", "v6.1", r"main \(good\) comes after v6\.1 \(bad\): they look swapped"),
        ("main", "main", "main is both good and bad"),
        ("side", "main", r"side \(good\) is not an ancestor of main \(bad\)"),
        ("stranger", "main", r"stranger \(good\) is not an ancestor of main \(bad\)"),
        ("nowhere", "main", "has no revision 'nowhere'"),
        ("main", "nowhere", "has no revision 'nowhere'"),
    ],
)
def test_ends_that_do_not_fit_are_refused(good: str, bad: str, said: str, tree: Path) -> None:
    commit(tree, "a", "1")
    on_branch(tree, "side", "v6.1", "s1")
    git(tree, "checkout", "--quiet", "--orphan", "stranger")
    git(tree, "commit", "--quiet", "--message=no history")
    with pytest.raises(ConfigError, match=said):
        find_line(open_repository(tree), [good], [bad])


def test_changes_that_are_not_committed_stay_as_they_are(tree: Path) -> None:
    (tree / "untracked").write_text("is in nobody's way")
    changed = tree / "arch" / "arm" / "Kconfig"
    changed.write_text("changed")
    open_repository(tree)
    assert changed.read_text() == "changed"


def test_a_shallow_tree_is_refused(tree: Path, tmp_path: Path) -> None:
    commit(tree, "a", "1")
    git(tmp_path, "clone", "--quiet", "--depth=1", f"file://{tree}", "shallow")
    with pytest.raises(ConfigError, match="is a shallow repository"):
        open_repository(tmp_path / "shallow")


def test_a_partial_clone_is_refused(tree: Path, tmp_path: Path) -> None:
    git(tree, "config", "uploadpack.allowFilter", "true")
    git(tmp_path, "clone", "--quiet", "--filter=blob:none", f"file://{tree}", "partial")
    with pytest.raises(ConfigError, match="is a partial clone"):
        open_repository(tmp_path / "partial")


def test_a_hooks_repository_is_left_alone(tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hook is told which repository it is for, and so is every git below it."""
    commit(tree, "a", "1")
    other = new_tree(tmp_path / "other")
    before = contents(other)
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(other / ".git" / "index"))
    repository = open_repository(tree)
    [_, last] = find_line(repository, ["v6.1"], ["HEAD"])
    check_out(repository.made(last.id, "last"), repository.scratch)
    assert (repository.scratch / "a").read_text() == "1"
    assert contents(other) == before
    assert not (other / "a").exists()


def test_what_is_no_repository_is_refused(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for place in ("folder", "nowhere"):
        with pytest.raises(ConfigError, match="not a readable git repository"):
            open_repository(tmp_path / place)


def test_the_users_repository_is_not_written_to(tree: Path) -> None:
    on_branch(tree, "side", "main", "s1", "s2")
    git(tree, "checkout", "--quiet", "main")
    commit(tree, "main.c", "of main")
    merge(tree, "main", "side")
    before = contents(tree)
    repository = open_repository(tree)
    line = find_line(repository, ["v6.1"], ["HEAD"])
    inside(repository, line[1], line[2])
    without(repository, line[2].id, line[1].id)
    assert contents(tree) == before


# -------------------------------------------------------------------------------------------------------------- reverts


def test_the_tip_without_a_commit(tree: Path) -> None:
    culprit = commit(tree, "file", "one\n\n\ntwo\n")
    bad = commit(tree, "file", "one, slower\n\n\ntwo\n")
    commit(tree, "file", "one, slower\n\n\ntwo, and more\n")
    tip = commit(tree, "other", "other")
    repository = open_repository(tree)
    found = without(repository, tip, bad)
    assert isinstance(found, str)
    assert repository.git("show", f"{found}:file") == "one\n\n\ntwo, and more"
    assert files(repository, found) == {"arch/arm/Kconfig", "file", "other"}
    assert without(repository, tip, bad) == found
    assert without(repository, tip, culprit) == Conflict(("file",))


def test_a_revert_is_what_git_itself_reverts(tree: Path) -> None:
    on_branch(tree, "side", "main", "s1", "s2")
    git(tree, "checkout", "--quiet", "main")
    commit(tree, "main.c", "of main")
    merging = merge(tree, "main", "side")
    tip = commit(tree, "last", "last")
    found = without(open_repository(tree), tip, merging)
    git(tree, "revert", "--no-edit", "--mainline=1", merging)
    assert find_revision(tree, "HEAD").tree == open_repository(tree).git("rev-parse", f"{found}^{{tree}}")


def test_a_commit_that_we_made_can_be_checked_out(tree: Path) -> None:
    on_branch(tree, "side", "main", "s1")
    git(tree, "checkout", "--quiet", "main")
    tip = commit(tree, "main.c", "of main")
    repository = open_repository(tree)
    both = merged(repository, tip, git(tree, "rev-parse", "side"))
    assert isinstance(both, str)
    revision = repository.made(both, "both")
    check_out(revision, repository.scratch)
    assert (repository.scratch / "s1").exists()
    assert (repository.scratch / "main.c").exists()


def test_a_scratch_repository_that_was_killed_while_it_was_made_is_mended(tree: Path) -> None:
    repository = open_repository(tree)
    (repository.scratch / ".git" / "HEAD").unlink()
    assert len(find_line(open_repository(tree), ["v6.1"], [commit(tree, "a", "1")])) == 2


def test_a_repository_of_another_user_comes_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    subprocess.run(["git", "init", "-q", tmp_path / "linux"], check=True)
    # Git's own tests have it: t/t0033-safe-directory.sh.
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    monkeypatch.setenv("GIT_CONFIG_SYSTEM", "/dev/null")
    monkeypatch.delenv("GIT_CONFIG_COUNT", raising=False)
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    monkeypatch.setenv("LANGUAGE", "de")
    (tmp_path / "linux" / "fs").mkdir()
    for folder in (tmp_path / "linux", tmp_path / "linux" / "fs"):  # git takes no folder below the top
        with pytest.raises(ConfigError, match=r"another user's: git config --global --add safe\.directory .*linux$"):
            find_revision(folder, "HEAD")
