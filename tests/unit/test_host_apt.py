from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from fsjoule.host.apt import DebianArchive, PrivateApt, parse_packages
from fsjoule.model.version import parse_version

SHOWN = """\
Package: linux-image-7.2.13+deb14-armmp
Source: linux
Version: 7.2.13-1
Depends: dracut | initramfs-tools (>= 0.120+deb8u2) | linux-initramfs-tool,
 linux-binary-7.2.13+deb14-armmp (= 7.2.13-1), linux-modules-7.2.13+deb14-armmp (= 7.2.13-1), python3:any
Pre-Depends: linux-base (>= 4.17~)
Size: 1924
SHA256: 00ff
Description: Linux
 more of it

Package: busybox-static
Version: 1:1.37.0-6+b9
Size: 100
SHA256: 11ee
"""


def test_packages_are_read_with_all_they_depend_on() -> None:
    image, busybox = parse_packages(SHOWN)
    assert (image.name, image.version, image.size_bytes, image.sha256) == (
        "linux-image-7.2.13+deb14-armmp",
        "7.2.13-1",
        1924,
        "00ff",
    )
    assert image.depends == (
        "linux-base",
        "dracut",
        "initramfs-tools",
        "linux-initramfs-tool",
        "linux-binary-7.2.13+deb14-armmp",
        "linux-modules-7.2.13+deb14-armmp",
        "python3",
    )
    assert busybox.depends == ()


def test_a_host_that_takes_unsigned_lists_changes_nothing(tmp_path: Path) -> None:
    host = tmp_path / "host.conf"
    options = ("Acquire::AllowInsecureRepositories", "Acquire::AllowWeakRepositories", "APT::Get::AllowUnauthenticated")
    host.write_text("".join(f'{option} "true";\n' for option in options))
    PrivateApt(
        tmp_path / "apt", archive=DebianArchive("http://deb.debian.org/debian", "bookworm"), architecture="armhf"
    )
    argv = ("apt-config", "-c", tmp_path / "apt" / "apt.conf", "dump", "--format", "%F=%v%n", *options)
    told = subprocess.run(argv, env=os.environ | {"APT_CONFIG": str(host)}, capture_output=True, text=True, check=True)
    assert {line.strip() for line in told.stdout.splitlines()} == {f"{option}=false" for option in options}


def test_no_packages() -> None:
    assert parse_packages("") == []


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18)\nCopyright (c) 2003-2022", (7, 2, 22)),
        ("8.2", (8, 2)),
        ("0.0", (0, 0)),
        ("none", ()),
    ],
)
def test_versions_compare_as_numbers(text: str, version: tuple[int, ...]) -> None:
    assert parse_version(text) == version
