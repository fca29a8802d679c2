"""What a user is told to type when a package of an extra is missing."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from fsjoule.host.extras import how_to_install

PROJECT = Path(__file__).parents[2]


def test_in_a_clone_it_is_uv_that_installs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "prefix", str(PROJECT / ".venv"))
    uv, *words = shlex.split(how_to_install("serve"))
    assert uv in {"uv", str(PROJECT / "build" / "uv" / "bin" / "uv")}
    assert words == ["sync", "--project", str(PROJECT), "--frozen", "--inexact", "--no-dev", "--extra", "serve"]


def test_elsewhere_pip_installs_the_packages_as_fsjoule_is_on_no_index(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "prefix", "/usr")
    words = shlex.split(how_to_install("serve"))
    assert words[:4] == [sys.executable, "-m", "pip", "install"]
    assert [word.partition(">")[0] for word in words[4:]] == ["fastapi", "uvicorn"]
