"""What another account of this computer can do at a lab's ports, which are open to all of them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from unprivileged import SOMEBODY_ELSE

from fsjoule.host import process
from fsjoule.host.peer import peer_user
from fsjoule.virtual.board.config import OutletConfig
from fsjoule.virtual.board.orders import Outlet
from fsjoule.virtual.lab.services import free_ports, listens

LIMIT_S = 60.0
# Becomes the user once its modules are loaded: another user may read no Python below /root.
CLIENT = """\
import os, sys
import grpc
from labgrid.remote.generated import labgrid_coordinator_pb2 as messages
from labgrid.remote.generated import labgrid_coordinator_pb2_grpc as services
address, user = sys.argv[1], int(sys.argv[2])
if user != os.getuid():
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)
stub = services.CoordinatorStub(grpc.insecure_channel(address))
def tried(name, call):
    try:
        call()
    except grpc.RpcError as error:
        print(name, error.code().name, error.details())
    else:
        print(name, "OK")
start = messages.ClientInMessage(sync=messages.Sync(id=1))
export = messages.ExporterInMessage(startup=messages.StartupDone(version="26", name="evil"))
tried("add a place", lambda: stub.AddPlace(messages.AddPlaceRequest(name="mine")))
tried("list places", lambda: stub.GetPlaces(messages.GetPlacesRequest()))
tried("listen", lambda: next(stub.ClientStream(iter([start]))))
tried("export", lambda: next(stub.ExporterStream(iter([export]))))
"""


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_another_user_gets_nothing_from_a_labs_coordinator(tmp_path: Path) -> None:
    [port] = free_ports(1)
    address = f"127.0.0.1:{port}"
    program = [sys.executable, "-m", "fsjoule.virtual.lab.coordinator", "--listen", address]
    coordinator = process.start(program, log=tmp_path / "log", cwd=tmp_path)
    try:
        deadline = time.monotonic() + LIMIT_S
        while not listens(port) and time.monotonic() < deadline:
            time.sleep(0.1)

        def asked(user: int) -> list[str]:
            said = subprocess.run(
                [sys.executable, "-c", CLIENT, address, str(user)],
                capture_output=True,
                text=True,
                timeout=LIMIT_S,
                check=True,
            )
            return said.stdout.splitlines()

        refused = "PERMISSION_DENIED this lab is another user's"
        doing = ("add a place", "list places", "listen", "export")
        assert asked(SOMEBODY_ELSE) == [f"{each} {refused}" for each in doing]
        assert asked(0)[:3] == [f"{each} OK" for each in doing[:3]]
    finally:
        process.stop(coordinator, timeout_s=LIMIT_S)


# A request to the outlet, as a user, with a Host of a page's choice.
REQUEST = """\
import os, socket, sys
if int(sys.argv[2]) != os.getuid():
    os.setuid(int(sys.argv[2]))
with socket.socket() as connection:
    connection.connect(("127.0.0.1", int(sys.argv[1])))
    head = f"PUT /outlet/0 HTTP/1.0\\r\\nHost: {sys.argv[3] or '127.0.0.1:' + sys.argv[1]}\\r\\nContent-Length: 1"
    connection.sendall(f"{head}\\r\\n\\r\\n0".encode())
    try:
        print(connection.makefile().readline())
    except ConnectionResetError:
        print()
"""


@pytest.mark.parametrize(
    ("user", "host", "answer"),
    [
        (os.geteuid(), "", "HTTP/1.0 200 OK"),
        (os.geteuid(), "evil.example", "HTTP/1.0 421 Misdirected Request"),
        pytest.param(
            *(SOMEBODY_ELSE, "", ""),
            marks=pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user"),
        ),
    ],
)
def test_a_boards_outlet_obeys_its_user_alone(user: int, host: str, answer: str) -> None:
    switched: list[bool] = []
    actions: Any = SimpleNamespace(set_power=switched.append)
    outlet = Outlet(OutletConfig(), actions)
    try:
        port = outlet.base_url.rpartition(":")[2]
        asked = [sys.executable, "-c", REQUEST, port, str(user), host]
        said = subprocess.run(asked, capture_output=True, text=True, timeout=LIMIT_S, check=True)
    finally:
        outlet.close()
    assert said.stdout.strip() == answer
    assert switched == ([False] if answer.endswith("OK") else [])


def test_the_kernel_knows_whose_a_connection_is() -> None:
    """Of each kind of socket; one that its process has closed is nobody's, not root's."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        own = server.getsockname()
        for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::ffff:127.0.0.1")):
            with socket.socket(family) as client:
                client.connect((host, own[1]))
                with server.accept()[0] as accepted:
                    peer = accepted.getpeername()
                    assert peer_user(peer, own) == os.getuid()
                    assert peer_user(peer, ("127.0.0.1", 1)) is None
                    assert peer_user(("127.0.0.2", peer[1]), own) is None
                    assert peer_user(("fe80::1", peer[1]), own) is None
                    client.close()
                    assert peer_user(peer, own) is None
