"""Builds the meter's simulator from meter/, once for each content of its sources and each compiler."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from fsjoule.host.cache.programs import built
from fsjoule.host.paths import cache_folder, project_dir
from fsjoule.host.process import run

PROGRAM: Final = "fsjoule-meter-sim"
_BUILD_TIMEOUT_S: Final = 300.0


def simulator(progress: Callable[[str], None]) -> Path:
    """The simulator's program, from the cache or built now, of which `progress` is told.

    Raises MissingToolError if cmake, ninja or the C compiler is missing, LabError if the build fails.
    """
    sources = project_dir() / "meter"
    program = cache_folder("meter") / f"{PROGRAM}-{_key(sources)}"
    return built(program, lambda folder: _build(sources, folder), progress, what="the meter's simulator")


def _key(sources: Path) -> str:
    compiler = run(["cc", "--version"], timeout_s=30.0).stdout
    digest = hashlib.sha256(compiler)
    for path in _source_files(sources):
        digest.update(f"{path.relative_to(sources)}\0{path.stat().st_size}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _source_files(sources: Path) -> Iterator[Path]:
    for folder in ("host", "lib", "emulated", "sim"):
        yield from sorted(path for path in (sources / folder).rglob("*") if path.is_file())


def _build(sources: Path, folder: Path) -> Path:
    run(["cmake", "-S", sources / "host", "-B", folder, "-GNinja"], timeout_s=_BUILD_TIMEOUT_S)
    run(["ninja", "-C", folder, PROGRAM], timeout_s=_BUILD_TIMEOUT_S)
    return folder / "sim" / PROGRAM
