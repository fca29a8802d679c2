"""Builds the library that tells what a board in guest time draws, from probe/, once for each content and compiler."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Final

from fsjoule.host.cache.programs import built
from fsjoule.host.paths import cache_folder, project_dir
from fsjoule.host.process import run

_FLAGS: Final = ("-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC")
_BUILD_TIMEOUT_S: Final = 120.0


def probe(progress: Callable[[str], None]) -> Path:
    """The library, from the cache or built now, of which `progress` is told.

    Raises MissingToolError if the C compiler is missing, LabError if the build fails.
    """
    source = project_dir() / "probe" / "guest_probe.c"
    compiler = run(["cc", "--version"], timeout_s=30.0).stdout
    key = hashlib.sha256(b"\0".join((compiler, " ".join(_FLAGS).encode(), source.read_bytes()))).hexdigest()[:16]
    library = cache_folder("probe") / f"guest_probe-{key}.so"

    def build(folder: Path) -> Path:
        run(["cc", *_FLAGS, "-o", folder / library.name, source, "-ldl"], timeout_s=_BUILD_TIMEOUT_S)
        return folder / library.name

    return built(library, build, progress, what="the board's probe")
