"""`fsjoule serve` as a program: its address, its end, its time limit, and an index that is held meanwhile."""

from __future__ import annotations

import http.client
import re
import signal
import socket
import sqlite3
import subprocess
import time
from collections.abc import Generator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from command_line import Done, finished, started
from services import two_runs

_LIMIT_S = 120.0


@dataclass
class Program:
    command: subprocess.Popen[str]
    address: str

    def get(self, path: str) -> tuple[int, str]:
        return get(self.address, path)

    @property
    def workers(self) -> list[int]:
        """Processes that it has started."""
        told = Path(f"/proc/{self.command.pid}/task")
        children = " ".join((each / "children").read_text() for each in told.iterdir())
        return [int(pid) for pid in children.split()]


def get(address: str, path: str) -> tuple[int, str]:
    with closing(http.client.HTTPConnection(urlsplit(address).netloc, timeout=_LIMIT_S)) as connection:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


def waited(look: object, *, what: str) -> None:
    until_s = time.monotonic() + _LIMIT_S
    while not look():  # type: ignore[operator]
        assert time.monotonic() < until_s, what
        time.sleep(0.05)


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return two_runs(tmp_path_factory.mktemp("served")) / "index.sqlite"


@pytest.fixture
def starting() -> Generator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def serve(starting: ExitStack, index: Path, *words: object) -> Program:
    command = started(starting, "serve", "--index", index, "--port", 0, "--time-limit", _LIMIT_S, *words)
    assert command.stdout is not None
    address = command.stdout.readline().strip()
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/", address), command.stderr.read() if command.stderr else ""
    return Program(command, address)


def is_gone(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_and_its_workers_even_while_a_page_is_made(
    starting: ExitStack, index: Path, number: signal.Signals
) -> None:
    program = serve(starting, index)
    assert program.get("/runs")[0] == 200
    workers = program.workers
    assert len(workers) == 2
    with closing(sqlite3.connect(index, isolation_level=None)) as holder:
        holder.execute("BEGIN EXCLUSIVE")
        with closing(http.client.HTTPConnection(urlsplit(program.address).netloc, timeout=_LIMIT_S)) as waiting:
            waiting.request("GET", "/")
            with closing(socket.create_connection(("127.0.0.1", urlsplit(program.address).port or 0))) as silent:
                silent.sendall(b"GET / HT")
                program.command.send_signal(number)
                done = finished(program.command)
        holder.execute("ROLLBACK")
    assert (done.code, done.err) == (0, "")
    assert all(map(is_gone, workers))


def ask_for_ever(reader: socket.socket) -> None:
    requests = b"GET /openapi.json HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 1000
    while True:
        reader.sendall(requests)


def test_a_reader_who_takes_no_answer_does_not_hold_the_end(starting: ExitStack, index: Path) -> None:
    program = serve(starting, index)
    with socket.socket() as reader:
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        reader.connect(("127.0.0.1", urlsplit(program.address).port))
        # When it reads no more requests, an answer waits for this reader.
        reader.settimeout(2.0)
        with pytest.raises(TimeoutError):
            ask_for_ever(reader)
        program.command.send_signal(signal.SIGTERM)
        done = finished(program.command)
    assert (done.code, done.err) == (0, "")


def test_workers_end_when_it_is_killed(starting: ExitStack, index: Path) -> None:
    program = serve(starting, index)
    assert program.get("/runs")[0] == 200
    workers = program.workers
    program.command.kill()
    program.command.wait()
    waited(lambda: all(map(is_gone, workers)), what="workers that nobody ends")


def test_a_page_that_takes_too_long_is_given_up_and_its_worker_ended(starting: ExitStack, index: Path) -> None:
    program = serve(starting, index, "--time-limit", 1, "--processes", 1)
    # A worker that needs longer to start goes on starting.
    waited(lambda: program.get("/compare")[0] == 200, what="a worker that starts")
    with closing(sqlite3.connect(index, isolation_level=None)) as holder:
        holder.execute("BEGIN EXCLUSIVE")
        status, text = program.get("/runs")
        assert status == 503
        assert "this page was not made within 1 s" in text
        assert program.get("/compare")[0] == 200, "what is kept needs no worker"
        holder.execute("ROLLBACK")
    waited(lambda: program.get("/runs")[0] == 200, what="another worker")
    assert 'fsjoule_serve_workers_total{what="ended"}' in program.get("/metrics")[1]
    assert re.search(r'workers_total\{what="ended"\} [1-9]', program.get("/metrics")[1])


def test_a_worker_that_dies_is_replaced(starting: ExitStack, index: Path) -> None:
    program = serve(starting, index, "--processes", 1)
    assert program.get("/runs")[0] == 200
    (worker,) = program.workers
    subprocess.run(["kill", "-KILL", str(worker)], check=True)
    waited(lambda: program.get("/compare")[0] == 200, what="another worker")
    assert program.workers != [worker]


def refused(*words: object) -> Done:
    with ExitStack() as stack:
        return finished(started(stack, "serve", *words))


def test_wrong_input_is_told_before_anything_is_started(index: Path, tmp_path: Path) -> None:
    absent = refused("--index", tmp_path / "none.sqlite", "--port", 0)
    assert absent.code == 2
    assert "there is no index at" in absent.err
    (tmp_path / "text.sqlite").write_text("no database" * 100)
    damaged = refused("--index", tmp_path / "text.sqlite", "--port", 0)
    assert damaged.code == 2
    assert "is damaged, or not an index" in damaged.err
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = refused("--index", index, "--port", other.getsockname()[1])
    assert taken.code == 2
    assert "cannot be used: Address already in use" in taken.err
    for words in (("--root-path", "fsjoule"), ("--root-path", "/a b"), ("--host", "none.invalid")):
        wrong = refused("--index", index, "--port", 0, *words)
        assert wrong.code == 2, wrong.err
