"""Shared libraries that fsjoule compiles for itself from C, once per content and compiler."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from fsjoule.host import process
from fsjoule.host.cache.stages import build_once, cache_key

_log: Final = logging.getLogger(__name__)

_FLAGS: Final = ("-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC")
_TIMEOUT_S: Final = 120.0


def compiler_version() -> str:
    """The C compiler's version. Raises MissingToolError without one."""
    return process.run(["cc", "--version"], timeout_s=30.0).stdout.decode(errors="replace")


def shared_library(source: Path, stage: str, *, beside: Sequence[Path] = (), root: Path | None = None) -> Path:
    """The library of a C file, from the cache or built now; `beside` are its other files and headers.

    Raises MissingToolError without a C compiler, HostError if the build fails.
    """
    inputs: dict[str, object] = {
        "source": source.read_text(encoding="utf-8"),
        "flags": _FLAGS,
        "compiler": compiler_version(),
    }
    if beside:
        inputs["beside"] = {each.name: each.read_text(encoding="utf-8") for each in beside}
    programs = [source, *(each for each in beside if each.suffix == source.suffix)]
    name = f"{source.stem}.so"

    def build(folder: Path) -> None:
        _log.info("building %s", name)
        process.run(["cc", *_FLAGS, "-o", folder / name, *programs, "-ldl"], timeout_s=_TIMEOUT_S)

    return build_once(stage, "host", cache_key(inputs), build, root=root) / name
