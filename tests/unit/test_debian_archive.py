from __future__ import annotations

import pytest

from fsjoule.host.apt import DebianArchive, debian_mirror


def test_the_mirror_can_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FSJOULE_DEBIAN_MIRROR", "http://mirror.example/debian/")
    assert debian_mirror() == "http://mirror.example/debian"


def test_signatures_are_always_checked() -> None:
    line = DebianArchive("http://mirror.example/debian", "sid", check_valid_until=False).line
    assert line.startswith("deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg ")
    assert line.endswith(" check-valid-until=no] http://mirror.example/debian sid main")
    assert "trusted" not in line
    assert "check-valid-until" not in DebianArchive("http://mirror.example/debian", "bookworm").line
