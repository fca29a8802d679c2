"""The range that tests/statistics/planted_range.py plants for a real bisection, without the kernel's source."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from planted_range import COMMITS, Change, Merge, Patch, breaks, plan

# Every text that a commit looks for.
_TEXT = (
    "// SPDX\n#include <a.h>\nconfig EXT4_FS\n\tkernel_init_freeable();\n\twait_for_device_probe();\n"
    "config EXT4_FS_POSIX_ACL\n"
)


def every_change() -> Iterator[Change | Patch]:
    for each in plan():
        yield from each.changes if isinstance(each, Merge) else (each,)


def test_the_last_commit_has_mended_everything_that_one_broke() -> None:
    texts: dict[str, str] = {}
    breaking: set[str] = set()
    for each in every_change():
        if isinstance(each, Patch):
            continue
        before = texts.get(each.path, _TEXT)
        texts[each.path] = each.edit(before)
        assert texts[each.path] != before
        if each.subject.startswith("mended"):
            assert texts[each.path] == _TEXT
            breaking.remove(each.path)
        elif f"mended: {each.subject}" in {other.subject for other in every_change() if isinstance(other, Change)}:
            breaking.add(each.path)
    assert not breaking


def test_no_other_commit_touches_a_file_twice_and_one_plants_the_loss() -> None:
    found = list(every_change())
    twice = {path: n for path, n in Counter(each.path for each in found if isinstance(each, Change)).items() if n > 1}
    assert set(twice.values()) == {2}
    assert sum(isinstance(each, Patch) for each in found) == 1
    assert len(plan()) == COMMITS


def test_a_source_that_lacks_what_is_to_be_changed_is_told() -> None:
    broken, _ = breaks("a.c", "panics", "init();", "panic();")
    with pytest.raises(ValueError, match="init"):
        broken.edit("int main(void);")
