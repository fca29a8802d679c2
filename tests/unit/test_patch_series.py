"""A patch series as a line of commits: ranges, folders of patches and mailboxes, and what is refused."""

from __future__ import annotations

from pathlib import Path

import planted_series
import pytest
from kernel_trees import commit, git, new_tree

from fsjoule.errors import ConfigError
from fsjoule.kernels.reads import is_documentation
from fsjoule.kernels.tree.commits import Line
from fsjoule.kernels.tree.patch_series import find_patch_series
from fsjoule.kernels.tree.repository import open_repository

CODE = "\n".join(f"line {number}" for number in range(30))
SUBJECTS = ("fs/a.c: line 1 of CODE", "fs/b.c: new", "Documentation/a.rst: A text")


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Main with a commit after v6.1, topic with a series of three on v6.1, and a change that is not committed."""
    monkeypatch.setenv("FSJOULE_CACHE_DIR", str(tmp_path / "cache"))
    tree = new_tree(tmp_path / "linux")
    commit(tree, "fs/a.c", CODE)
    git(tree, "tag", "--force", "v6.1")
    git(tree, "checkout", "--quiet", "-b", "topic")
    for name, text, subject in zip(
        ("fs/a.c", "fs/b.c", "Documentation/a.rst"),
        (CODE.replace("line 15", "a line"), "new", "A text"),
        SUBJECTS,
        strict=True,
    ):
        commit(tree, name, text)
        git(tree, "commit", "--quiet", "--amend", f"--message={subject}")
    git(tree, "checkout", "--quiet", "main")
    commit(tree, "fs/c.c", "of main")
    (tree / "fs/a.c").write_text("not committed")
    return tree


def patches(tree: Path, into: Path, *more: str) -> Path:
    git(tree, "format-patch", "--quiet", "--cover-letter", f"--output-directory={into}", *more, "v6.1..topic")
    return into


def subjects(line: Line) -> tuple[str, ...]:
    return tuple(commit.subject for commit in line[1:])


def test_a_range_begins_where_it_leaves_its_base(tree: Path) -> None:
    line = find_patch_series(open_repository(tree), "main..topic")
    assert subjects(line) == SUBJECTS
    assert line[0].id == git(tree, "rev-parse", "v6.1")
    assert [commit.id for commit in line[1:]] == git(tree, "rev-list", "--reverse", "v6.1..topic").split()


def test_patches_give_the_contents_of_their_commits(tree: Path, tmp_path: Path) -> None:
    refs, status = git(tree, "show-ref"), git(tree, "status", "--porcelain")
    folder = patches(tree, tmp_path / "patches")
    mailbox = tmp_path / "series.mbx"
    mailbox.write_bytes(b"".join(file.read_bytes() for file in sorted(folder.iterdir())))
    repository = open_repository(tree)
    range_line = find_patch_series(repository, "v6.1..topic")
    for series in (folder, mailbox):
        line = find_patch_series(repository, str(series), "v6.1")
        assert subjects(line) == SUBJECTS
        assert [commit.content for commit in line] == [commit.content for commit in range_line]
        assert {commit.adds for commit in line} == {line[0].id}
        assert line == find_patch_series(repository, str(series), "v6.1")
    assert (git(tree, "show-ref"), git(tree, "status", "--porcelain")) == (refs, status)
    assert (tree / "fs/a.c").read_text() == "not committed"
    assert not (tree / ".git" / "rebase-apply").exists()


def test_patches_are_for_the_base_that_they_name(tree: Path, tmp_path: Path) -> None:
    repository, first = open_repository(tree), git(tree, "rev-parse", "v6.1")
    named = patches(tree, tmp_path / "named", "--base=v6.1")
    assert find_patch_series(repository, str(named))[0].id == first
    assert find_patch_series(repository, str(named), "main")[0].id == git(tree, "rev-parse", "main")
    unnamed = patches(tree, tmp_path / "unnamed")
    assert find_patch_series(repository, str(unnamed))[0].id == git(tree, "rev-parse", "main")


def test_a_patch_that_does_not_apply_is_named_with_the_words_of_git(tree: Path, tmp_path: Path) -> None:
    folder = patches(tree, tmp_path / "patches")
    [second] = folder.glob("0002-*")
    second.write_text(second.read_text().replace("new file mode 100644\n", "").replace("--- /dev/null", "--- a/fs/b.c"))
    with pytest.raises(ConfigError, match=r"patch 2, 'fs/b\.c: new', does not apply to v6\.1: fs/b\.c") as refused:
        find_patch_series(open_repository(tree), str(folder), "v6.1")
    assert "--base REV" in str(refused.value.hint)
    assert (tree / "fs/a.c").read_text() == "not committed"


@pytest.mark.parametrize(
    ("series", "base", "words"),
    [
        ("topic..v6.1", None, "is an empty range: topic has all of them"),
        ("v6.1..v6.1", None, "is an empty range"),
        ("topic", None, "topic is no series"),
        ("v6.1...topic", None, "is no series"),
        ("v6.1..nowhere", None, "has no revision 'nowhere'"),
        ("v6.1..topic", "main", "a range has its own base"),
        ("empty", None, "has no patch"),
        ("two", None, "has several series: a.mbx, b.mbx"),
        ("two/a.mbx", None, "a.mbx is no series of patches"),
        ("cover", None, "has no patch"),
        ("thread.mbx", "v6.1", "git would apply the patch in a reply, Re: [PATCH 1/3] fs/a.c: line 1 of CODE"),
    ],
)
def test_what_is_no_series_is_refused(
    series: str, base: str | None, words: str, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tree.parent
    monkeypatch.chdir(here)
    (here / "empty").mkdir()
    (here / "two").mkdir()
    for name in ("a.mbx", "b.mbx"):
        (here / "two" / name).write_text("no mail")
    for patch in patches(tree, here / "cover").glob("000[123]-*"):
        patch.unlink()
    mails = [file.read_text() for file in sorted(patches(tree, here / "thread").iterdir())]
    # A reader proposes what git would apply.
    reply = (
        mails[1].replace("Subject: ", "Subject: Re: ").replace("a/fs/a.c", "a/fs/b.c").replace("b/fs/a.c", "b/fs/b.c")
    )
    (here / "thread.mbx").write_text("".join([*mails, reply]))
    with pytest.raises(ConfigError) as refused:
        find_patch_series(open_repository(tree), series, base)
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("Documentation/admin-guide/ext4.rst", True),
        ("Documentation/Kconfig", False),
        ("Documentation/devicetree/bindings/Makefile", False),
        ("MAINTAINERS", True),
        ("fs/ext4/README.rst", True),
        ("tools/testing/selftests/exec/a.c", True),
        ("tools/objtool/check.c", False),
        ("arch/x86/lib/x86-opcode-map.txt", False),
        ("fs/ext4/inode.c", False),
    ],
)
def test_documentation_is_what_no_build_reads(path: str, expected: bool) -> None:
    assert is_documentation(path) is expected


def test_the_planted_patches_change_what_they_say() -> None:
    texts = {
        "fs/ext4/inode.c": "/*\n * Reserve space for a single cluster\n */\nint a;\n"
        "static int ext4_nonda_switch(int b);\n"
        "static int ext4_da_write_begin(\n\ttrace_ext4_da_write_begin(inode, pos, len);\n",
        "Documentation/admin-guide/ext4.rst": "Disable delayed allocation.\n",
        "mm/vmstat.c": 'seq_printf(m, "%6lu ", data_race(1));\n',
    }
    for each in planted_series.series():
        before = texts[each.path]
        texts[each.path] = each.edit(before)
        assert texts[each.path] != before
    inode = texts["fs/ext4/inode.c"]
    assert inode.index("ext4_nonda_switch") < inode.index("of data alone") < inode.index("unsigned long n = 21;")
