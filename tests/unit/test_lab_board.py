"""What a lab's board is told and asked over HTTP."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from profiles import written

from fsjoule.errors import LabError
from fsjoule.virtual.lab.board import board_status, losses, profile_next, set_seed, take_profile
from fsjoule.virtual.lab.files import BoardRecord, LabPaths, LabRecord, lab_names
from fsjoule.virtual.lab.health import PlaceFaults

_COORDINATOR = "127.0.0.1:20408"
_PLACE = "virtual"
_STATUS = {"message": "off", "losses": {"sda": "3 of 7 writes"}}
_ANSWERS = {"/status": json.dumps(_STATUS).encode(), "/profile/7": written((4096, 0, 5), busy_ns=20)}


@contextmanager
def _board(told: list[tuple[str, bytes]]) -> Generator[str]:
    """Serves a board's status and takes its seed; gives the address of the status."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path in _ANSWERS else 404)
            self.end_headers()
            self.wfile.write(_ANSWERS.get(self.path, b""))

        def do_PUT(self) -> None:
            told.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/status"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _record(name: str, url: str, coordinator: str = _COORDINATOR) -> LabRecord:
    record = LabRecord(
        name, "2026-01-01T00:00:00+00:00", "/nowhere", coordinator, 22, "", "", boards=(BoardRecord(1, url),)
    )
    paths = LabPaths.of(name)
    paths.make()
    paths.write(record)
    return record


@contextmanager
def _ends_amid(answer: bytes) -> Generator[str]:
    """A board that is killed while it answers: this much has gone out, then its socket is reset."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with server.accept()[0] as connection:
                connection.recv(1000)
                connection.sendall(answer)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", int(not answer), 0))

        thread = Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}/status"
        thread.join()


@pytest.mark.parametrize(
    "answer",
    [b"", b"HTTP/1", b"HTTP/1.0 200 OK\r\nContent-Length: 99\r\n\r\n", b"HTTP/1.0 200 OK\r\n\r\n{"],
    ids=["reset", "no line", "no body", "half a body"],
)
def test_a_board_that_ends_amid_its_answer_says_nothing(
    answer: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FSJOULE_STATE_DIR", str(tmp_path))
    with _ends_amid(answer) as url:
        assert board_status(_record("one", url).boards[0]) is None


def test_only_the_board_of_the_lab_at_the_coordinator_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FSJOULE_STATE_DIR", str(tmp_path))
    assert lab_names() == ()
    told: list[tuple[str, bytes]] = []
    with _board(told) as url:
        record = _record("one", url)
        _record("two", url, "127.0.0.1:1")
        _record("young", "")
        assert lab_names() == ("one", "two", "young")
        set_seed(_COORDINATOR, _PLACE, 42)
        assert told == [("/seed", b"42")]
        assert losses(_COORDINATOR, _PLACE) == ("disk sda: 3 of 7 writes",)
        assert board_status(record.boards[0]) == _STATUS
    # It is gone now: there is nothing to say, and a seed that is not taken is an error.
    assert losses(_COORDINATOR, _PLACE) == ()
    with pytest.raises(LabError, match="the board of the lab 'one' accepts no seed"):
        set_seed(_COORDINATOR, _PLACE, 43)


def test_a_board_counts_when_it_is_told_and_gives_each_window_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FSJOULE_STATE_DIR", str(tmp_path))
    told: list[tuple[str, bytes]] = []
    with _board(told) as url:
        _record("virtual", url)
        profile_next(_COORDINATOR, _PLACE)
        profile = take_profile(_COORDINATOR, _PLACE, "7")
        assert take_profile(_COORDINATOR, _PLACE, "8") is None
        for elsewhere in (
            lambda: profile_next("lab-host:20408", _PLACE),
            lambda: take_profile("lab-host:20408", _PLACE, "7"),
        ):
            with pytest.raises(LabError, match="need a virtual lab of this machine"):
                elsewhere()
    assert told == [("/profile", b"")]
    assert profile is not None
    assert profile.executed.tolist() == [5]
    for gone in (lambda: profile_next(_COORDINATOR, _PLACE), lambda: take_profile(_COORDINATOR, _PLACE, "7")):
        with pytest.raises(LabError, match="'virtual'"):
            gone()


def test_what_is_no_lab_is_none_and_hinders_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FSJOULE_STATE_DIR", str(tmp_path))
    _record("one", "")
    labs = tmp_path / "labs"
    for folder in ("one.bak", "Copy of one", "unreadable/lab.json"):
        (labs / folder).mkdir(parents=True)
    (labs / "notes").touch()
    assert lab_names() == ("one", "unreadable")
    assert LabPaths.of("unreadable").read() is None
    assert losses(_COORDINATOR, _PLACE) == ()
    assert PlaceFaults(_COORDINATOR, _PLACE).faults() == ()
