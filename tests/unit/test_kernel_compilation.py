"""What a kernel's build folder keeps of a compilation that was killed."""

from __future__ import annotations

import os
from pathlib import Path

from fsjoule.kernels.compilation import _MARKER, Compilation
from fsjoule.kernels.configuration import Configuration


def test_what_a_killed_compiler_left_goes_and_what_kconfig_wrote_stays(tmp_path: Path) -> None:
    """Without auto.conf make compiles all files again, which took 444 s instead of 30."""
    names = ("fs/old.o", _MARKER, "fs/half.o", "include/config/auto.conf", "include/generated/autoconf.h")
    for second, name in enumerate(names):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
        os.utime(file, (second, second))
    compilation = Compilation(tmp_path, tmp_path, tmp_path, Configuration("allnoconfig", ()), 1)
    with compilation._undisturbed():
        assert {str(each.relative_to(tmp_path)) for each in tmp_path.rglob("*") if each.is_file()} == {*names} - {
            "fs/half.o"
        }
    assert not (tmp_path / _MARKER).exists()
