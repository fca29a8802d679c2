"""Busybox's programs before this computer's own: a board has busybox's, and they differ in words and options."""

from __future__ import annotations

import os
import shutil
from pathlib import Path


def path_with(tools: Path, *applets: str) -> str:
    """A PATH on which these programs are busybox's. `tools` is a folder for the links."""
    busybox = shutil.which("busybox")
    assert busybox is not None, "busybox is not installed: `make setup` installs it"
    tools.mkdir(exist_ok=True)
    for applet in applets:
        (tools / applet).symlink_to(busybox)
    return f"{tools}:{os.environ['PATH']}"
