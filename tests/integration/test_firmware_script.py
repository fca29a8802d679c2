"""What `make firmware` says where its tools are missing: everything at once, with what to do, before it builds."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from fsjoule.host.paths import project_dir

_LIMIT_S = 60


def _build(home: Path, **environment: str) -> str:
    done = subprocess.run(
        [str(project_dir() / "meter/firmware.sh"), "build"],
        env={"PATH": "/usr/bin:/bin", "HOME": str(home), **environment},
        capture_output=True,
        text=True,
        timeout=_LIMIT_S,
        check=False,
    )
    assert done.returncode == 1
    assert done.stdout == ""
    return done.stderr


def _zephyr(folder: Path, major: int, minor: int) -> Path:
    package = folder / "share/zephyr-package/cmake"
    package.mkdir(parents=True)
    (package / "ZephyrConfig.cmake").touch()
    (folder / "VERSION").write_text(f"VERSION_MAJOR = {major}\nVERSION_MINOR = {minor}\nPATCHLEVEL = 0\n")
    return folder


def test_a_machine_without_zephyr_is_told_all_that_it_needs(tmp_path: Path) -> None:
    said = _build(tmp_path)
    assert "west init -l --mf meter/west.yml" in said
    assert "apt install gcc-arm-none-eabi" in said
    assert "docs/firmware.md" in said


def test_a_folder_that_is_not_zephyr_is_named(tmp_path: Path) -> None:
    assert f"ZEPHYR_BASE is {tmp_path}" in _build(tmp_path, ZEPHYR_BASE=str(tmp_path))


@pytest.mark.parametrize(("major", "minor", "too_old"), [(3, 2, True), (3, 7, False), (4, 10, False)])
def test_a_zephyr_that_is_too_old_is_named(tmp_path: Path, major: int, minor: int, too_old: bool) -> None:
    said = _build(tmp_path, ZEPHYR_BASE=str(_zephyr(tmp_path / "zephyr", major, minor)))
    assert (f"is {major}.{minor}, and the firmware needs 3.7 or later" in said) == too_old
    assert "hal_stm32" in said  # there is no workspace around it, and no ZEPHYR_MODULES


def test_modules_and_a_compiler_that_are_not_there_are_named(tmp_path: Path) -> None:
    zephyr = _zephyr(tmp_path / "zephyr", 4, 2)
    said = _build(
        tmp_path,
        ZEPHYR_BASE=str(zephyr),
        ZEPHYR_MODULES=f"{tmp_path}/cmsis_6;{tmp_path}/hal_stm32",
        GNUARMEMB_TOOLCHAIN_PATH=str(tmp_path),
    )
    assert f"{tmp_path}/cmsis_6 {tmp_path}/hal_stm32" in said
    assert "bin/arm-none-eabi-gcc" in said
