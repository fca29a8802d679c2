"""KernelCI for tests: API, storage and KCIDB, as far as a lab that polls asks them, on the loopback interface.

It answers as the sources of kernelci-api (api/main.py of July 2026: `get_events`, `put_node`, `authorize_user`),
kernelci-core (`Node.validate_node_state_transition`, the template pull_labs.jinja2) and kcidb-ng (kcidb-restd-rs) do.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit

from kcidb_io.schema import V5_3  # pyright: ignore[reportMissingTypeStubs]

TOKEN = "planted-4711"
KCIDB_TOKEN = "planted-0815"
RUNTIME = "pull-mylab"
KBUILD = "c" * 24
_MOVES = {"running": ["available", "closing", "done"], "available": ["closing", "done"], "closing": ["done"]}


@dataclass
class KernelCI:
    """Nodes by number, events in their order, files by path, and what KCIDB was sent. `faults`: answers by path."""

    url: str = ""
    nodes: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    events: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    files: dict[str, bytes] = field(default_factory=dict[str, bytes])
    sent: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    faults: dict[str, int] = field(default_factory=dict[str, int])
    editors: bool = True
    puts: list[int] = field(default_factory=list[int])  # status of the next changes of nodes; 200 when it is empty
    posts: list[int] = field(default_factory=list[int])  # status of the next documents for KCIDB
    moved: dict[str, str] = field(default_factory=dict[str, str])  # where paths redirect to
    drips: set[str] = field(default_factory=set[str])  # paths whose answer comes byte by byte, and never ends
    cut: set[str] = field(default_factory=set[str])  # paths whose answer breaks off
    authorized: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])

    @property
    def api(self) -> str:
        return f"{self.url}/latest"

    @property
    def kcidb(self) -> str:
        return f"{self.url.replace('//', f'//{KCIDB_TOKEN}@')}/kcidb"

    def serves(self, path: Path) -> str:
        self.files[f"/storage/{path.name}"] = path.read_bytes()
        return f"{self.url}/storage/{path.name}"

    def job(self, number: int, artifacts: dict[str, str], **changed: Any) -> str:
        """A job that waits, as scheduler and template write it. `changed` are keys of node data and definition."""
        identity = f"{number:024x}"
        definition: dict[str, Any] = {
            "artifacts": artifacts,
            "tests": [
                {
                    "id": f"boot-test-{identity[:8]}",
                    "type": changed.get("type", "boot"),
                    "depends": [],
                    "timeout_s": 600,
                    "pre-commands": [],
                    "post-commands": [],
                }
            ],
            "environment": {
                "platform": changed.get("board", changed.get("platform", "imx6ul")),
                "arch": changed.get("arch", "arm"),
                "console": {"method": "serial", "baud": 115200},
            },
            "callback": {"url": f"{self.url}/callback/node/{identity}", "token_name": "kernelci-pull-mylab"},
            "integrity": {"sha256": changed.get("sha256", {"_comment": "Checksums would be populated from metadata"})},
        }
        name = f"/storage/pull_labs_jobs/20261123/{number:032x}.json"
        self.files[name] = json.dumps(definition).encode()
        revision = {"tree": "mainline", "branch": "master", "commit": "1" * 40, "describe": "v6.13-rc2-17-g1234567"}
        self.nodes.setdefault(KBUILD, {"id": KBUILD, "kind": "kbuild", "parent": None, "state": "done"})
        self.nodes[identity] = {
            "id": identity,
            "kind": "job",
            "name": "baseline-arm-pull-mylab",
            "parent": KBUILD,
            "state": changed.get("state", "available"),
            "result": None,
            "artifacts": {"job_definition": f"{self.url}{name}"},
            "data": {
                "platform": changed.get("platform", "imx6ul"),
                "runtime": changed.get("runtime", RUNTIME),
                "arch": "arm",
                "job_id": changed.get("job_id"),
                "kernel_revision": revision,
            },
            "timeout": changed.get("timeout", "2999-11-23T08:00:00"),
            "owner": "staging.kernelci.org",
            "retry_counter": 0,
        }
        self._tell(identity, "created")
        return identity

    def _tell(self, identity: str, op: str) -> None:
        node = self.nodes[identity]
        data = {"op": op, "id": identity, **{key: node[key] for key in ("kind", "name", "state", "result")}}
        stamp = f"2026-11-23T06:00:00.{len(self.events):06}"
        self.events.append({"id": f"{len(self.events):024x}", "timestamp": stamp, "channel": "node", "data": data})

    def answer(self, method: str, path: str, token: str, body: bytes) -> tuple[int, Any]:
        at, query = urlsplit(path).path, {name: each[0] for name, each in parse_qs(urlsplit(path).query).items()}
        self.authorized.append((at, token))
        if at in self.moved:
            return 302, b""
        if at in self.faults:
            return self.faults[at], {"detail": "planted"}
        match method, at.strip("/").split("/"):
            case ["GET", ["storage", *_]]:
                return (200, self.files[at]) if at in self.files else (404, b"")
            case ["POST", ["kcidb", "submit"]]:
                return self._submitted(token, body)
            case [_, ["latest", *rest]]:
                return self._api(method, rest, query, body) if token == TOKEN else (401, {"detail": "Unauthorized"})
            case _:
                return 404, {"detail": "Not Found"}

    def _api(self, method: str, path: list[str], query: dict[str, str], body: bytes) -> tuple[int, Any]:
        match method, path:
            case ["GET", ["whoami"]]:
                return 200, {"username": "mylab", "groups": [{"name": f"runtime:{RUNTIME}:node-editor"}]}
            case ["GET", ["events"]]:
                return self._waiting(query)
            case ["GET", ["node", number]] if number in self.nodes:
                return 200, self.nodes[number]
            case ["PUT", ["node", number]] if number in self.nodes:
                return self._changed(number, json.loads(body))
            case _:
                return 404, {"detail": "Not Found"}

    def _waiting(self, query: dict[str, str]) -> tuple[int, Any]:
        if query.get("recursive") and int(query.get("limit", 9999)) > 1000:
            return 400, {"detail": "Recursive limit is too large, max is 1000"}
        found = [
            each | {"node": self.nodes[each["data"]["id"]]}
            for each in self.events
            if each["timestamp"] > query.get("from", "")
            and all(each["data"][name] == query[name] for name in ("kind", "state") if name in query)
        ]
        return 200, found[: int(query.get("limit", 9999))]

    def _changed(self, number: str, node: dict[str, Any]) -> tuple[int, Any]:
        before = self.nodes[number]
        if self.puts and (status := self.puts.pop(0)) != HTTPStatus.OK:
            return status, {"detail": "planted"}
        if not self.editors:
            return 401, {"detail": "Unauthorized to complete the operation"}
        if node["state"] != before["state"] and node["state"] not in _MOVES.get(before["state"], []):
            return 400, {"detail": f"Transition not allowed with state: {node['state']}"}
        self.nodes[number] = before | node | {"owner": before["owner"]}
        self._tell(number, "updated")
        return 200, self.nodes[number]

    def _submitted(self, token: str, body: bytes) -> tuple[int, Any]:
        if token != KCIDB_TOKEN:
            return 401, {"id": "0", "status": "error", "message": "InvalidToken"}
        if self.posts and (status := self.posts.pop(0)) != HTTPStatus.OK:
            return status, {"id": "0", "status": "error", "message": "planted"}
        document = cast("dict[str, Any]", json.loads(body))
        V5_3.validate(document)  # pyright: ignore[reportUnknownMemberType]
        self.sent.append(document)
        return 200, {"id": "a1b2c3", "status": "ok", "message": f"Received submission with size {len(body)} bytes"}


@contextmanager
def kernelci_server() -> Generator[KernelCI]:
    has = KernelCI()
    ending = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
            status, answer = has.answer(self.command, self.path, token, body)
            content = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            self.send_response(status)
            if self.path in has.moved:
                self.send_header("Location", has.moved[self.path])
            drips = self.path in has.drips
            self.send_header("Content-Length", str(1 << 20 if drips or self.path in has.cut else len(content)))
            self.end_headers()
            self.wfile.write(content)
            with suppress(OSError):
                while drips and not ending.wait(0.05):
                    self.wfile.write(b" ")

        do_GET = do_PUT = do_POST = _answer  # noqa: N815 - the base class's names

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            """Keep quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    has.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield has
    finally:
        ending.set()
        server.shutdown()
        thread.join()
        server.server_close()


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
