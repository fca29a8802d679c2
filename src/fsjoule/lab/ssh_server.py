"""The ssh server of a card of fsjoule's, which starts no daemon and has no keys of its own."""

from __future__ import annotations

import shlex
import tempfile
from pathlib import Path
from typing import Any, Final

import attr
from labgrid.driver import Driver
from labgrid.factory import target_factory
from labgrid.step import step

from fsjoule.host import process
from fsjoule.lab.board_network import FailingBoard, checked, lease
from fsjoule.lab.shell import LabgridShell

_KEYGEN_TIMEOUT_S: Final = 20.0
# In the board's memory: nothing of it survives a power-off.
_FOLDER: Final = "/run/fsjoule-ssh"


@target_factory.reg_driver
@attr.s(eq=False)
class SshServer(Driver):
    """Brings up a card's network and its dropbear over the console, after each login.

    The board makes its host key at each boot. It takes one key: SSHDriver's keyfile, or one that this process makes for
    itself. There is no login by password.

    Args:
        driver (str): the kernel module of the board's network interface; empty if it is built into the kernel
        interface (str): the board's network interface
    """

    bindings = {"ssh": "SSHDriver"}  # noqa: RUF012 - labgrid's way
    driver: str = attr.ib(default="", validator=attr.validators.matches_re(r"[\w-]*"))
    interface: str = attr.ib(default="eth0", validator=attr.validators.matches_re(r"\w+"))

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        self.ssh: Any
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    @step()
    def start(self, shell: LabgridShell, board: FailingBoard) -> str:
        """Start it on a board that is logged in. Returns the board's address. Raises BoardError, LabError."""
        if shell.run(["sh", "-c", "command -v dropbear"]).exit_code != 0:
            error = board.error("has no ssh server on its card")
            error.transient = False
            error.hint = 'add it to the recipe: more_packages = ["dropbear-bin"] in [userland]'
            raise error
        address = lease(board, shell, self.driver, self.interface).address
        key = shlex.quote(self._public_key())
        steps = [
            f"{{ [ ! -e {_FOLDER}/pid ] || kill $(cat {_FOLDER}/pid) 2>/dev/null; rm -rf {_FOLDER}; }}",
            f"umask 077 && mkdir {_FOLDER} && echo {key} >{_FOLDER}/authorized_keys",
            f"dropbearkey -t ed25519 -f {_FOLDER}/host_key 2>&1",
            # No passwords, no forwarding, no message of the day.
            f"dropbear -s -j -k -m -r {_FOLDER}/host_key -D {_FOLDER} -P {_FOLDER}/pid 2>&1",
        ]
        checked(board, shell, " && ".join(steps), "cannot start its ssh server")
        return address

    def _public_key(self) -> str:
        if not self.ssh.keyfile:
            self._folder = tempfile.TemporaryDirectory(prefix="fsjoule-ssh-")
            self.ssh.keyfile = str(Path(self._folder.name) / "key")
            make = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "fsjoule", "-f", self.ssh.keyfile]
            process.run(make, timeout_s=_KEYGEN_TIMEOUT_S)
        keyfile = self.ssh.keyfile
        if self.target is not None and self.target.env is not None:
            keyfile = self.target.env.config.resolve_path(keyfile)
        told = process.run(["ssh-keygen", "-y", "-P", "", "-f", keyfile], timeout_s=_KEYGEN_TIMEOUT_S).stdout
        return told.decode().strip()
