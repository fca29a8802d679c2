"""Filesystems as data: their programs' arguments."""

from __future__ import annotations

import re
from uuid import UUID

import pytest

from fsjoule.filesystems import FILESYSTEMS, filesystem

ONE = UUID("01234567-89ab-4def-8123-456789abcdef")


def test_a_uuid_of_ones_own_is_given_as_each_program_takes_it() -> None:
    assert filesystem("btrfs").make_argv("/dev/x", ONE)[-3:] == ("-U", str(ONE), "/dev/x")
    assert filesystem("xfs").make_argv("/dev/x", ONE)[-3:] == ("-m", f"uuid={ONE}", "/dev/x")
    assert filesystem("vfat").make_argv("/dev/x", ONE)[-3:] == ("-i", "01234567", "/dev/x")
    assert filesystem("udf").make_argv("/dev/x", ONE)[-2:] == ("--uuid=0123456789ab4def", "/dev/x")


@pytest.mark.parametrize("name", FILESYSTEMS)
def test_without_one_nothing_is_said_of_it(name: str) -> None:
    kind = filesystem(name)
    assert kind.make_argv("/dev/x") == (*kind.make, "/dev/x")
    assert not re.search(r"[{}]", " ".join(kind.make_argv("/dev/x", ONE)))
