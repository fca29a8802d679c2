"""Builds the library that tells what a board in guest time draws, from probe/, once for each content and compiler."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from fsjoule.paths import cache_folder, project_dir
from fsjoule.process import run

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
    if not library.exists():
        progress("building the board's probe")
        # Beside its place and renamed: a build that is broken off leaves nothing that looks whole.
        with tempfile.TemporaryDirectory(dir=library.parent, prefix="building-") as folder:
            built = Path(folder) / library.name
            run(["cc", *_FLAGS, "-o", built, source, "-ldl"], timeout_s=_BUILD_TIMEOUT_S)
            built.replace(library)
    return library
