"""The meter's own tests in C, with AddressSanitizer and UndefinedBehaviorSanitizer and on 32 bits, and its fuzzer."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from fsjoule.host.paths import project_dir
from fsjoule.host.process import run

_METER = project_dir() / "meter"


def _build(folder: Path, *options: str, target: str = "all") -> None:
    run(["cmake", "-S", _METER / "host", "-B", folder, "-GNinja", *options], timeout_s=120)
    run(["ninja", "-C", folder, target], timeout_s=300)


def _test(folder: Path, *options: str) -> None:
    done = run(["ctest", "--test-dir", folder, "--output-on-failure", *options], timeout_s=300, check=False)
    assert done.returncode == 0, done.stdout.decode()
    assert b"100% tests passed" in done.stdout


def test_the_core_and_the_emulated_hardware(tmp_path: Path) -> None:
    _build(tmp_path, "-DFSJOULE_METER_TESTS=ON", "-DFSJOULE_METER_SANITIZE=ON", "-DCMAKE_BUILD_TYPE=Debug")
    _test(tmp_path)


def test_the_core_on_32_bits(tmp_path: Path) -> None:
    """With the microcontroller's size of a pointer and of a size_t."""
    program = b"#include <stdio.h>\nint main(void) { return 0; }\n"
    probe = ["cc", "-m32", "-xc", "-", "-o", tmp_path / "probe"]
    if run(probe, input_bytes=program, timeout_s=60, check=False).returncode != 0:
        pytest.skip("cc builds no programs of 32 bits here; with Debian's gcc-multilib it does")
    _build(tmp_path, "-DFSJOULE_METER_TESTS=ON", "-DCMAKE_C_FLAGS=-m32", target="core_tests")
    _test(tmp_path, "--tests-regex", "^core_")


def test_the_core_needs_nothing_but_memory_functions(tmp_path: Path) -> None:
    """No OS, no allocation, no floating point: what the library does not define is what a compiler may call itself."""
    _build(tmp_path, target="fsjoule_meter")
    listing = run(["nm", "-u", tmp_path / "lib" / "libfsjoule_meter.a"], timeout_s=60).stdout.decode()
    needed = {line.split()[-1] for line in listing.splitlines() if line.split()[:1] == ["U"]}
    outside = {name for name in needed if not name.startswith("fsj_")}
    assert outside <= {"memcpy", "memset", "memmove", "__stack_chk_fail", "_GLOBAL_OFFSET_TABLE_"}
    sources = [path.read_text() for path in sorted((_METER / "lib").rglob("*.[ch]"))]
    assert len(sources) >= 30
    assert not any(f"{word} " in source for source in sources for word in ("float", "double"))


def test_the_fuzzer_finds_nothing_at_once(tmp_path: Path) -> None:
    """Shows that it builds and runs; meter/README.md says how to let it run for longer."""
    clang = next((name for name in ("clang", "clang-14") if shutil.which(name)), None)
    if clang is None:
        pytest.skip("clang is not installed")
    _build(tmp_path, "-DFSJOULE_METER_FUZZ=ON", f"-DCMAKE_C_COMPILER={clang}", target="fuzz_commands")
    done = run(
        [tmp_path / "fuzz" / "fuzz_commands", "-seed=1", "-runs=20000"], timeout_s=300, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    assert b"Done 20000 runs" in done.stderr
