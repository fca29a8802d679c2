"""The lab's own ssh: keys, configurations, and the `ssh` that labgrid finds first on its PATH.

labgrid writes images through ssh to the exporter's host. In the virtual lab this host is 127.0.0.1, with its own ssh
server. The user's ssh configuration is neither read nor changed.
"""

from __future__ import annotations

import os
import pwd
import shlex
import sys
from pathlib import Path
from string import Template
from typing import Final

from fsjoule.host.paths import project_dir
from fsjoule.host.process import find_tool, run
from fsjoule.virtual.lab import usbsdmux
from fsjoule.virtual.lab.files import LabPaths

_PRIVILEGE_SEPARATION: Final = Path("/run/sshd")
_KEYGEN_TIMEOUT_S: Final = 20.0
_SYSTEM_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def lab_path(paths: LabPaths) -> str:
    """PATH of all programs in the lab: its own wrappers first, then the caller's, then the system's."""
    return ":".join((str(paths.bin), os.environ.get("PATH", ""), _SYSTEM_PATH))


def prepare_ssh(paths: LabPaths, port: int) -> None:
    """Write keys (once), both configurations and the wrappers. Raises MissingToolError."""
    for key in ("host_key", "client_key"):
        if not (paths.ssh / key).exists():
            _make_key(paths.ssh / key)
    host_key = (paths.ssh / "host_key.pub").read_text()
    (paths.ssh / "known_hosts").write_text(f"fsjoule-lab {host_key}")
    values = {
        "port": str(port),
        "user": pwd.getpwuid(os.getuid()).pw_name,
        "ssh_dir": str(paths.ssh),
        "bin": str(paths.bin),
        "use_pam": "yes" if _needs_pam() else "no",
    }
    templates = project_dir() / "labgrid" / "virtual"
    for name in ("sshd_config", "ssh_config"):
        (paths.ssh / name).write_text(Template((templates / name).read_text()).substitute(values))
    with_path = f'export PATH={shlex.quote(lab_path(paths))}; exec /bin/sh -c "$SSH_ORIGINAL_COMMAND"'
    _write_program(paths.bin / "lab-command", with_path)
    _wrap(paths.bin / "ssh", [find_tool("ssh"), "-F", str(paths.ssh / "ssh_config")])
    usbsdmux.install(paths.bin)
    _wrap(paths.bin / "ser2net", [sys.executable, "-m", "fsjoule.virtual.lab.ser2net", find_tool("ser2net")])
    if os.getuid() == 0:
        # Debian's service manager makes this only for the system's own sshd, which need not run.
        _PRIVILEGE_SEPARATION.mkdir(mode=0o755, exist_ok=True)


def _make_key(path: Path) -> None:
    run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "fsjoule-lab", "-f", path], timeout_s=_KEYGEN_TIMEOUT_S)


def _needs_pam() -> bool:
    """Without PAM, sshd refuses root if root's password is locked with '!' (a system with only sudo)."""
    if os.getuid() != 0:
        return False
    for line in Path("/etc/shadow").read_text().splitlines():
        name, password = line.split(":")[:2]
        if name == "root":
            return password.startswith("!")
    return False


def _wrap(path: Path, command: list[str]) -> None:
    _write_program(path, f'exec {shlex.join(command)} "$@"')


def _write_program(path: Path, line: str) -> None:
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)
