"""moto's server, an object store in this process, and a proxy before it that fails as it is told."""

from __future__ import annotations

import http.client
import logging
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from typing import Any, Final

from index_runs import measurement_file, write_run

from fsjoule.store.objects.address import Address, parse_address
from fsjoule.store.objects.bucket import Access, Bucket, Limits

KEY_ID: Final = "LABKEYID"
SECRET: Final = "not-to-be-printed"
STALL_S: Final = 60.0
_TIMEOUT_S: Final = 120.0
_numbers = count(1)
_LARGE_BYTES: Final = 70_000
# Enough for a server on this computer, little enough for a test in which it fails.
QUICK: Final = Limits(connect_s=5.0, stall_s=20.0, whole_s=40.0, retries=1, retries_s=5.0)


@dataclass
class ObjectStore:
    """A server at `url` with a bucket of its own for each test."""

    url: str
    bucket: str = ""

    def new_bucket(self) -> str:
        """Make a bucket; gives the address of a folder of runs in it."""
        self.bucket = f"lab-{next(_numbers)}"
        _ask(self.url, "PUT", f"/{self.bucket}")
        return f"s3://{self.bucket}/boards"

    @property
    def variables(self) -> dict[str, str]:
        return {"AWS_ACCESS_KEY_ID": KEY_ID, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_ENDPOINT_URL": self.url}

    def age(self, below: str, days: float) -> None:
        """Let all objects of the test's bucket below a folder be older by so many days."""
        from moto.s3.models import s3_backends  # noqa: PLC0415 - it takes seconds

        for name, key in list(s3_backends["123456789012"]["aws"].buckets[self.bucket].keys.items()):
            if f"/{below}/" in name:
                key.last_modified -= timedelta(days=days)


def bucket_at(url: str, address: str | Address, limits: Limits = QUICK) -> Bucket:
    where = parse_address(address) if isinstance(address, str) else address
    return Bucket(where, Access(url, "us-east-1", KEY_ID, SECRET), limits)


def write_kept(results: Path, run_id: str = "aaaaaa", *, numbers: int = 3, large: bytes = b"", **options: Any) -> Path:
    """A run of some measurements, each with a small and a large attachment; gives its folder.

    Measurement 1 has the content `large` repeated, equal in all runs; others have contents of their own.
    """
    path = write_run(results, run_id, only=range(1, numbers + 1), **options).path
    for number in range(1, numbers + 1):
        folder = measurement_file(path, number).parent
        (folder / "console.log").write_text(f"{run_id} {number}: booted\n")
        own = large or b"the same everywhere"
        content = own if number == 1 else f"{run_id} {number} ".encode()
        (folder / "trace.parquet").write_bytes(content * (_LARGE_BYTES // len(content) + 1))
    return path


def contents(folder: Path) -> dict[str, bytes]:
    """All files below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@contextmanager
def object_store() -> Generator[ObjectStore]:
    from moto.server import ThreadedMotoServer  # noqa: PLC0415 - it takes seconds

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        yield ObjectStore(f"http://{host}:{port}")
    finally:
        server.stop()


# What becomes of a request: `refuse` it (or with one of S3's codes), `lose` it, lose its `answer`, send `half` of that,
# `stall`, or fail for a `while`.
Fault = str
Faults = Callable[[int], Fault | None]
_REFUSED: Final = {
    "refuse": (400, b"<Error><Code>Refused</Code></Error>"),
    "while": (503, b"<Error><Code>SlowDown</Code></Error>"),
    "SignatureDoesNotMatch": (403, b"<Error><Code>SignatureDoesNotMatch</Code><A>secret</A></Error>"),
    "AccessDenied": (403, b"<Error><Code>AccessDenied</Code></Error>"),
    "full": (507, b""),
}


@dataclass
class Proxy:
    """Passes requests on to a server. `faults` decides by a request's number, from 1, what becomes of it."""

    to: str
    url: str = ""
    asked: list[tuple[str, str, int]] = field(default_factory=list[tuple[str, str, int]])
    faults: Faults = lambda _: None
    before: Callable[[str, str], object] = lambda _method, _path: None
    counting: threading.Lock = field(default_factory=threading.Lock)

    def meanwhile(self, number: int, call: Callable[[], object]) -> None:
        """Count from here, and call this just before the request of that number is passed on."""
        self.asked.clear()
        requests = count(1)
        self.before = lambda _method, _path: call() if next(requests) == number else None

    def sent_bytes(self) -> int:
        return sum(size for method, _, size in self.asked if method == "PUT")

    def next_fault(self, method: str, path: str, size: int) -> Fault | None:
        with self.counting:
            self.asked.append((method, path, size))
            fault = self.faults(len(self.asked))
        self.before(method, path)
        return fault


class _Passing(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = _TIMEOUT_S
    proxy: Proxy

    def do_any(self) -> None:
        content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        fault = self.proxy.next_fault(self.command, self.path, len(content))
        if fault in _REFUSED:
            status, answer = _REFUSED[fault]
            self._answer(status, {}, answer)
            return
        if fault in {"lose", "stall"}:
            time.sleep(STALL_S if fault == "stall" else 0.0)
            self.close_connection = True
            return
        status, headers, answer = _ask(self.proxy.to, self.command, self.path, content, dict(self.headers))
        if fault == "answer":
            self.close_connection = True
        else:
            self._answer(status, headers, answer, half=fault == "half")

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = do_any  # noqa: N815 - http.server's names

    def _answer(self, status: int, headers: dict[str, str], content: bytes, *, half: bool = False) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            if name.lower() not in {"connection", "transfer-encoding", "content-length", "server", "date"}:
                self.send_header(name, value)
        length = headers.get("Content-Length", "0") if self.command == "HEAD" else str(len(content))
        self.send_header("Content-Length", length)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content[: len(content) // 2] if half else content)
        self.close_connection |= half

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - http.server's name
        pass


@contextmanager
def proxy(url: str) -> Generator[Proxy]:
    """A proxy before the server at `url`."""
    state = Proxy(url)
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Passing,), {"proxy": state}))
    server.daemon_threads = True
    state.url = f"http://127.0.0.1:{server.server_address[1]}"
    serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    serving.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        serving.join()


def _ask(
    url: str, method: str, path: str, content: bytes = b"", headers: dict[str, str] | None = None
) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=_TIMEOUT_S)
    try:
        connection.request(method, path, content, headers or {})
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()
    finally:
        connection.close()
