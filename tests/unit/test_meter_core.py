"""The meter's own tests in C, built with AddressSanitizer and UndefinedBehaviorSanitizer."""

from __future__ import annotations

from pathlib import Path

from fsjoule.paths import project_dir
from fsjoule.process import run


def test_the_core_and_the_simulators_parts(tmp_path: Path) -> None:
    options = ["-DFSJOULE_METER_TESTS=ON", "-DFSJOULE_METER_SANITIZE=ON", "-DCMAKE_BUILD_TYPE=Debug"]
    run(["cmake", "-S", project_dir() / "meter" / "host", "-B", tmp_path, "-GNinja", *options], timeout_s=120)
    run(["ninja", "-C", tmp_path], timeout_s=300)
    done = run(["ctest", "--test-dir", tmp_path, "--output-on-failure"], timeout_s=300, check=False)
    assert done.returncode == 0, done.stdout.decode()
    assert b"100% tests passed" in done.stdout


def test_the_core_needs_nothing_but_memory_functions(tmp_path: Path) -> None:
    """No OS, no allocation, no floating point: what the library does not define is what a compiler may call itself."""
    run(["cmake", "-S", project_dir() / "meter" / "host", "-B", tmp_path, "-GNinja"], timeout_s=120)
    run(["ninja", "-C", tmp_path, "fsjoule_meter"], timeout_s=300)
    listing = run(["nm", "-u", tmp_path / "lib" / "libfsjoule_meter.a"], timeout_s=60).stdout.decode()
    needed = {line.split()[-1] for line in listing.splitlines() if line.split()[:1] == ["U"]}
    outside = {name for name in needed if not name.startswith("fsj_")}
    assert outside <= {"memcpy", "memset", "memmove", "__stack_chk_fail", "_GLOBAL_OFFSET_TABLE_"}
    core = project_dir() / "meter" / "lib"
    sources = [path.read_text() for path in sorted(core.rglob("*.[ch]"))]
    assert len(sources) >= 12
    assert not any(f"{word} " in source for source in sources for word in ("float", "double"))
