"""Filesystems with options of one's own: their names, the project's file, and what is refused before anything runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fsjoule.errors import ConfigError
from fsjoule.filesystems import filesystem, named_filesystems
from fsjoule.model import Provision, SeriesKey
from fsjoule.model.filesystem import file_name, is_unflushed, titled
from fsjoule.model.labels import series_labels
from fsjoule.model.series import Series, Where, what_differs


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FSJOULE_PROJECT", "")
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path / "fsjoule.toml"


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ("ext4,btrfs:zstd+noatime", ["ext4", "btrfs:noatime+zstd"]),
        ("ext4:mkfs=-O ^has_journal,mount=commit=60", ["ext4:nojournal+commit=60"]),
        ("ext4:nodelalloc+dioread_nolock,ext4", ["ext4:nodelalloc+dioread_nolock", "ext4"]),
        ("ext4:mount=commit=60,data=writeback,xfs", ["ext4:commit=60+data=writeback", "xfs"]),
        ("ext4:mkfs=-I 128 -O ^huge_file,^has_journal,f2fs", ["ext4:nojournal+mkfs=-I 128 -O ^huge_file", "f2fs"]),
        ("ext4:mount=a=1,b=1,btrfs:mount=a=1,b=1", ["ext4:a=1+b=1", "btrfs:a=1+b=1"]),
        ("ext4:mount=nodiscard", ["ext4:mount=nodiscard"]),
        ("mine=ext4:noatime,ext4", ["mine=ext4:noatime", "ext4"]),
        ("f2fs:mkfs=-O extra_attr,compression+mount=compress_extension=*,compress_algorithm=zstd", ["f2fs:zstd"]),
    ],
)
def test_a_list_of_filesystems_with_options_is_read(given: str, names: list[str]) -> None:
    assert list(named_filesystems(given)) == names
    assert list(named_filesystems(",".join(names))) == names
    assert [filesystem(name).name for name in names] == names


@pytest.mark.parametrize(
    ("one", "same"),
    [
        ("ext4:mount=noatime,commit=60", "ext4:commit=60+noatime"),
        ("ext4:mkfs=-O ^has_journal", "ext4:nojournal"),
        ("ext4:mkfs=-O ^huge_file -I 128 -O ^has_journal", "ext4:mkfs=-I 128 -O ^has_journal,^huge_file"),
        ("btrfs:compress=zstd", "btrfs:zstd"),
    ],
)
def test_the_order_and_way_of_writing_make_no_other_series(one: str, same: str) -> None:
    assert named_filesystems(one) == named_filesystems(same)


def test_the_last_of_two_equal_options_counts_and_stays_last() -> None:
    assert filesystem("ext4:commit=60+commit=5").mount_options[-1] == "commit=5"
    assert filesystem("ext4:commit=5+commit=60").mount_options[-1] == "commit=60"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("ext4:mkfs=-E stride=2", "-q -F -E nodiscard,lazy_itable_init=1,lazy_journal_init=1,stride=2"),
        ("ext4:mkfs=-E discard", "-q -F -E lazy_itable_init=1,lazy_journal_init=1,discard"),
        ("vfat:mkfs=-F 16", "-F 16"),
        ("xfs:mkfs=-i nrext64=1,size=1024", "-q -f -K -i nrext64=1,size=1024"),
        ("zfs:mkfs=-o ashift=13", "create -f -O direct=disabled -m / -R /run/zpool -o ashift=13"),
    ],
)
def test_options_take_the_place_of_the_rows_own(name: str, words: str) -> None:
    assert " ".join(filesystem(name).make[1:]) == words


OWN = '# ours\n[filesystems.fast]\nbase = "ext4"\nmkfs = "-O ^has_journal"\nmount = ["commit=60", "nodelalloc"]\n'


def test_the_projects_file_names_filesystems(project: Path) -> None:
    project.write_text(OWN)
    assert named_filesystems("fast,ext4") == ("fast=ext4:nojournal+commit=60+nodelalloc", "ext4")
    assert named_filesystems("fast:noatime") == ("ext4:noatime+nojournal+commit=60+nodelalloc",)
    with pytest.raises(ConfigError, match=r"(?s)unknown filesystem 'fats'.*did you mean vfat or fast"):
        named_filesystems("fats")
    with pytest.raises(ConfigError, match="are the same filesystem"):
        named_filesystems("fast,ext4:nojournal+nodelalloc+commit=60")
    assert named_filesystems("fats,fast", lenient=True) == ("fats", "fast=ext4:nojournal+commit=60+nodelalloc")


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ('[filesystems.fast]\nmkfs = "-q"\n', ":1: 'fast' has no base"),
        ('[filesystems]\nfast = "ext4"\n', ":2: 'fast' has no base"),
        ('[filesystems.fast]\nbase = "ext5"\n', ":1: unknown filesystem 'ext5'"),
        ('[filesystems.fast]\nbase = "ext4"\nmkf = "-q"\n', ":3: unknown key 'mkf'"),
        ('[filesystems.fast]\nbase = "ext4"\nmount = 60\n', ":3: mount: 60 is no option"),
        ('[filesystems.fast]\nbase = "ext4"\nmkfs = ["-L", "a+b"]\n', ":3: mkfs: "),
        ('[filesystems.fast]\nbase = "ext4"\nmkfs = "-d /etc"\n', ":1: with -d mkfs.ext4 uses a file of the board's"),
        ('[filesystems.btrfs]\nbase = "ext4"\n', ":1: 'btrfs' cannot be the name"),
        ('[filesystems."My FS"]\nbase = "ext4"\n', ":1: 'My FS' cannot be the name"),
        ('[filesystems.mount]\nbase = "ext4"\n', ":1: 'mount' cannot be the name"),
    ],
)
def test_a_wrong_filesystem_of_the_project_is_told_by_line(text: str, what: str, project: Path) -> None:
    project.write_text(text)
    with pytest.raises(ConfigError, match=f"fsjoule.toml{what}"):
        named_filesystems("ext4")


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ("ext4:nojournl", "unknown variant of ext4 'nojournl'.*did you mean nojournal.*mount=nojournl"),
        ("ext4:mount=commit=60,btrsf", "unknown filesystem 'btrsf'.*did you mean btrfs"),
        ("ext4:commit=60,nodelalloc", "unknown filesystem 'nodelalloc'.*a plus sign joins"),
        ("ext4:mkfs='-O", "No closing quotation"),
        ("ext4:mkfs=", "mkfs= has no option"),
        ("ext4:mount=", "'' is no option"),
        ("ext4:mkfs=-I128", "'-I128': a word has one option"),
        ("ext4:mkfs=-n", "with -n mkfs.ext4 does not make a whole ext4"),
        ("udf:mkfs=--no-wri", "does not make a whole udf"),
        ("ext4:mkfs=/dev/sdb", "'/dev/sdb' belongs to no option: no device may be named"),
        ("ext4:mkfs=-F /dev/sdb", "names a device or a file"),
        ("ext4:mkfs=-J device=UUID=1", "names a device or a file"),
        ("xfs:mount=logdev=sdb", "names a device or a file"),
        ("ext4:mount=bind", "mounts something else"),
        ("ext4:mkfs=-L $(reboot)", "is no option"),
        ("raw:mount=noatime", "raw is the device itself"),
        ("a=ext4:noatime,b=ext4:noatime", "are the same filesystem"),
        ("a=ext4:noatime,a=ext4", "two filesystems are called a"),
        ("ext4:" + "+".join(f"option{i}=1" for i in range(30)), "so many options"),
    ],
)
def test_a_wrong_option_is_refused_before_anything_runs(given: str, what: str) -> None:
    with pytest.raises(ConfigError, match=f"(?s){what}"):
        named_filesystems(given)


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("btrfs:noatime+zstd", "btrfs.noatime+zstd"),
        ("mine=ext4:mkfs=-I 128", "mine"),
        ("ext4:nodelalloc", "ext4.nodelalloc"),
        ("ext4:mkfs=-O ^huge_file", r"ext4.mkfs-O-huge_file-[0-9a-f]{6}"),
    ],
)
def test_a_name_becomes_a_safe_name_of_files(name: str, file: str) -> None:
    assert re.fullmatch(file.replace("+", "[+]") if "[" not in file else file, file_name(name))
    assert file_name("ext4:mkfs=-O huge_file") != file_name("ext4:mkfs=-O ^huge_file")


@pytest.mark.parametrize(
    ("name", "unflushed"),
    [
        ("ext4", False),
        ("ext4:nobarrier", True),
        ("ext4:barrier=0", True),
        ("ext4:nobarrier+mount=barrier=1", False),
        ("mine=f2fs:fsync_mode=nobarrier", True),
        ("zfs:mkfs=-O sync=disabled", True),
        ("ext4:nojournal", False),
    ],
)
def test_without_flushes_is_told_by_the_options(name: str, unflushed: bool) -> None:
    kind = filesystem(name)
    assert is_unflushed(kind.make, kind.mount_options) is unflushed


def series_of(name: str) -> Series:
    kind = filesystem(name)
    title, content = titled(kind.name)
    options = kind.make[1:], kind.mount_options
    return Series(SeriesKey("quick", "b", "card", content, *options, Provision.SCRATCH, "read-16k", title), True)


def test_a_series_is_known_by_its_options_not_by_its_name() -> None:
    plain, mine, yours = map(series_of, ("ext4:commit=60", "mine=ext4:mount=commit=60", "yours=ext4:commit=60"))
    other = series_of("mine=ext4:commit=5")
    assert plain == mine == yours
    assert plain.key == mine.key == yours.key
    assert what_differs(mine, yours) == {}
    assert mine != other
    assert mine.key != other.key
    assert set(what_differs(mine, other)) == {"filesystem", "mount_options"}


def test_tables_have_the_title_and_options_where_it_is_ambiguous() -> None:
    mine, other = series_of("mine=ext4:commit=60").series, series_of("mine=ext4:commit=5").series
    assert series_labels([mine]) == {mine: "mine"}
    assert [label.startswith("mine (-q ") for label in series_labels([mine, other]).values()] == [True, True]


@pytest.mark.parametrize("name", ["mine", "ext4:commit=60", "mine=ext4:commit=60"])
def test_a_series_is_selected_by_title_and_by_options(name: str) -> None:
    assert Where(filesystems=(name,)).takes_series(series_of("mine=ext4:commit=60"))
    assert not Where(filesystems=(name,)).takes_series(series_of("ext4"))
