"""A running board's network: its address by DHCP, and files that it fetches by TFTP, too large for a console."""

from __future__ import annotations

import hashlib
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from labgrid import Target

from fsjoule.errors import BoardError, LabError
from fsjoule.lab.tftp import staged
from fsjoule.lab.translate import lab_errors
from fsjoule.ports import Shell

_ATTEMPTS: Final = 3
# The first packet, and a driver that finds its PHY, may take long on a busy emulated board.
NETWORK_TIMEOUT_S: Final = 300.0
_FETCH_TIMEOUT_S: Final = 600.0
_SETTER: Final = "/tmp/fsjoule-address"  # noqa: S108 - the board's /tmp is only ours
# udhcpc calls this with the values of DHCP in its environment.
_SET_ADDRESS: Final = b"""\
#!/bin/sh
[ "$1" = bound ] || exit 0
busybox ifconfig "$interface" "$ip" netmask "${subnet:-255.255.255.0}" up
[ -z "$router" ] || busybox route add default gw "${router%% *}"
echo "address=$ip"
echo "server=${siaddr:-$serverid}"
"""


@dataclass(frozen=True, slots=True)
class DhcpLease:
    """What DHCP has told: the board's address, and its server's or an empty text."""

    address: str
    server: str


def dhcp_lease(board: FailingBoard, shell: Shell, driver: str, interface: str) -> DhcpLease:
    """Bring up the board's network by DHCP. `driver` is the module of its interface, or empty. Raises LabError."""
    if driver:
        checked(board, shell, f"modprobe {shlex.quote(driver)}", "cannot load the driver of its network")
    shell.put(_SETTER, _SET_ADDRESS)
    name = shlex.quote(interface)
    checked(board, shell, f"chmod +x {_SETTER} && busybox ifconfig {name} up", "has no network")
    ask = f"busybox udhcpc -i {name} -n -q -t 10 -s {_SETTER} 2>&1"
    said = checked(board, shell, ask, "gets no address by DHCP")
    told = dict(line.split("=", 1) for line in said.splitlines() if line.startswith(("address=", "server=")))
    return DhcpLease(told.get("address", ""), told.get("server", ""))


class FailingBoard(Protocol):
    """A board that words errors about itself."""

    def error(self, what: str) -> BoardError:
        """An error about this board, with the last lines of its console."""
        ...


def checked(board: FailingBoard, shell: Shell, command: str, failure: str, timeout_s: float = NETWORK_TIMEOUT_S) -> str:
    """The output of a command of the board's shell. Raises BoardError with `failure` and its last line."""
    result = shell.run(["sh", "-c", command], timeout_s=timeout_s)
    if result.exit_code != 0:
        said = result.stdout.replace("\r", "\n").split("\n")
        raise board.error(f"{failure}: {next(filter(None, reversed(said)), 'it said nothing')}")
    return result.stdout


class BoardNetwork:
    """The network of a board that runs Linux, from which it fetches files by TFTP."""

    def __init__(self, board: FailingBoard, shell: Shell, target: Target, tftp: Any) -> None:  # noqa: ANN401 - labgrid's
        self._board = board
        self._shell = shell
        self._target = target
        self._tftp = tftp
        self._server = ""

    def connect(self, driver: str, interface: str, server: str) -> None:
        """Get an address by DHCP; the TFTP server is the one that DHCP tells, unless it is given. Raises LabError."""
        with lab_errors("reaching the TFTP server"):
            self._target.activate(self._tftp)
        told = dhcp_lease(self._board, self._shell, driver, interface)
        self._server = server or told.server
        if not self._server:
            raise self._board.error("is told no TFTP server by DHCP: name it, server: of the flasher")

    def upload(self, path: str, content: bytes) -> None:
        """Have the board fetch a file. Raises BoardError, or LabError for one that arrives damaged."""
        wanted = hashlib.sha256(content).hexdigest()
        with staged(self._tftp, f"{Path(path).name}-{wanted[:8]}", content) as there:
            server = shlex.quote(self._server)
            fetch = f"busybox tftp -g -b 1428 -l {shlex.quote(path)} -r {shlex.quote(there)} {server} 2>&1"
            for attempt in range(1, _ATTEMPTS + 1):
                try:
                    checked(self._board, self._shell, fetch, f"cannot fetch {there}", _FETCH_TIMEOUT_S)
                except BoardError:
                    if attempt == _ATTEMPTS:
                        raise
                    continue
                told = checked(self._board, self._shell, f"sha256sum {shlex.quote(path)}", "cannot read a file")
                if told.split()[0] == wanted:
                    return
        raise LabError(f"{there} arrived damaged {_ATTEMPTS} times", transient=True)
