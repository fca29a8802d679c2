"""The table of packages, and which distribution a computer has."""

from __future__ import annotations

import pytest

from fsjoule.errors import ConfigError
from fsjoule.filesystems import FILESYSTEMS
from fsjoule.host.setup import needs
from fsjoule.host.setup.install import by_hand

DEBIAN_13 = 'PRETTY_NAME="Debian GNU/Linux 13 (trixie)"\nVERSION_ID="13"\nVERSION_CODENAME=trixie\nID=debian\n'
UBUNTU = "ID=ubuntu\nID_LIKE=debian\nVERSION_CODENAME={0}\nUBUNTU_CODENAME={0}\n"
MINT = 'NAME="Linux Mint"\nID=linuxmint\nID_LIKE="ubuntu debian"\nVERSION_CODENAME=wilma\nUBUNTU_CODENAME=noble\n'
RASPBERRY = "ID=raspbian\nID_LIKE=debian\nVERSION_CODENAME=bookworm\n"
FEDORA = "NAME='Fedora Linux'\nID=fedora\nVERSION_ID=43\nVERSION_CODENAME=\"\"\n"
ROCKY = 'ID="rocky"\nID_LIKE="rhel centos fedora"\n'


def distribution(key: str) -> needs.Distribution:
    return next(each for each in needs.distributions() if each.key == key)


@pytest.mark.parametrize("column", needs.distributions(), ids=lambda each: each.key)
def test_each_package_has_a_name_or_a_reason_everywhere(column: needs.Distribution) -> None:
    for row in needs.rows():
        assert bool(row.packages(column)) != bool(row.why_not(column)), row.name
        # What Debian 12 calls it is no name of another family's.
        assert column.has_apt or row.on.get(column.key) or row.why_not(column), row.name


def test_each_row_says_what_it_is_for_and_how_it_is_found() -> None:
    keys = {each.key for each in needs.distributions()}
    assert [row.name for row in needs.rows()] == sorted({row.name for row in needs.rows()})
    for row in needs.rows():
        assert row.why, row.name
        assert set(row.purposes) <= set(needs.purposes()), row.name
        assert bool(row.programs) + bool(row.files) + bool(row.module) == 1, row.name
        assert {*row.on, *row.lacking} <= keys, row.name


def test_a_bench_has_what_makes_root_partitions() -> None:
    """A root that the board makes itself needs nothing here."""
    installed = {row.name for row in needs.needed("bench")}
    for row in FILESYSTEMS.values():
        if row.is_image_of_disk or (row.root is not None and row.root.make):
            assert set(row.packages) <= installed, row.name


def test_tests_need_all_that_a_bench_needs() -> None:
    assert {row.name for row in needs.needed("bench")} < {row.name for row in needs.needed("tests")}


def test_an_unknown_purpose_is_refused_with_the_choices() -> None:
    with pytest.raises(ConfigError, match="bench, exporter"):
        needs.needed("frogs")


@pytest.mark.parametrize(
    ("text", "like", "tried"),
    [
        (DEBIAN_13, "debian-13", True),
        (UBUNTU.format("noble"), "ubuntu-24.04", True),
        (UBUNTU.format("resolute"), "ubuntu-24.04", False),
        (MINT, "ubuntu-24.04", True),
        (RASPBERRY, "debian-12", True),
        ("ID=debian\nVERSION_CODENAME=forky\n", "debian-13", False),
        (FEDORA, "fedora", True),
        (ROCKY, "fedora", False),
        ("ID=arch\n", None, False),
        ("", None, False),
        ('# ID=debian\nNAME="no end\nID=void\n', None, False),
    ],
    ids=["13", "24.04", "26.04", "Mint", "Raspberry", "14", "Fedora", "Rocky", "Arch", "empty", "broken"],
)
def test_the_distribution_is_known_by_its_os_release(text: str, like: str | None, tried: bool) -> None:
    found = needs.system_of(text)
    assert (found.like and found.like.key, found.tried) == (like, tried)
    assert found.title


def test_names_differ_where_the_distributions_differ() -> None:
    magic = next(row for row in needs.rows() if row.name == "libmagic1")
    assert magic.packages(distribution("debian-12")) == ("libmagic1",)
    assert magic.packages(distribution("debian-13")) == ("libmagic1t64",)
    browser = next(row for row in needs.rows() if row.name == "chromium")
    assert browser.packages(distribution("ubuntu-24.04")) == ()
    assert "snap" in browser.why_not(distribution("ubuntu-24.04"))


def test_an_unknown_distribution_gets_programs_and_what_they_are_for() -> None:
    rows = [row for row in needs.rows() if row.name in ("ser2net", "e2fsprogs")]
    said = by_hand(rows, needs.system_of("ID=arch\n"))
    assert said == "mke2fs, fsck.ext4 (mke2fs -d for card images); ser2net (serial ports over the network)"
    assert by_hand(rows, needs.system_of(FEDORA)) == "dnf install e2fsprogs ser2net"


def test_a_missing_program_is_named_by_its_package_here() -> None:
    like = needs.this_system().like
    assert needs.package_of("mkfs.vfat")[0] == "dosfstools"
    assert needs.package_of("apt-get")[0] == "apt"
    assert needs.package_of("frogs") == ("frogs", "apt-get install" if like is None else like.install)
