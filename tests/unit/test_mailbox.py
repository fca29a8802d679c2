"""The mailbox as QEMU sees it, over its socket, and as whoever types sees it."""

from __future__ import annotations

import socket
import struct
from collections.abc import Generator
from contextlib import closing
from pathlib import Path
from threading import Event

import pytest
from waiting import wait_for

from fsjoule.virtual.board.mailbox import LINE_BYTES, LINE_OFFSET, SIZE_BYTES, Mailbox

LIMIT_S = 60.0
PROMPT = b"root@here:~# "


class Client:
    """As much of a client of network block devices as QEMU is."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(LIMIT_S)
        self.socket.connect(str(path))
        assert self.receive(18)[:16] == b"NBDMAGICIHAVEOPT"
        self.socket.sendall(struct.pack(">I", 3))
        # Structured replies (8) are declined, GO (7) tells the size.
        assert self.option(8)[0] == (1 << 31) + 1
        kind, information = self.option(7, struct.pack(">IH", 0, 0))
        assert (kind, struct.unpack(">HQH", information)) == (3, (0, SIZE_BYTES, 1))
        assert struct.unpack(">QIII", self.receive(20))[2] == 1

    def close(self) -> None:
        self.socket.close()

    def receive(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            chunk = self.socket.recv(size - len(data))
            assert chunk, "it hung up"
            data += chunk
        return data

    def option(self, number: int, data: bytes = b"") -> tuple[int, bytes]:
        self.socket.sendall(struct.pack(">8sII", b"IHAVEOPT", number, len(data)) + data)
        magic, about, kind, size = struct.unpack(">QIII", self.receive(20))
        assert (magic, about) == (0x3E889045565A9, number)
        return kind, self.receive(size)

    def request(self, kind: int, offset: int, size: int, data: bytes = b"") -> None:
        self.socket.sendall(struct.pack(">IHH8sQI", 0x25609513, 0, kind, b"cookie..", offset, size) + data)

    def answer(self, size: int = 0) -> bytes:
        assert self.receive(16) == struct.pack(">II", 0x67446698, 0) + b"cookie.."
        return self.receive(size)

    def line(self) -> bytes:
        """Ask for a line as the emulated card does, sector by sector."""
        data = b""
        for offset in range(LINE_OFFSET, LINE_OFFSET + LINE_BYTES, 512):
            self.request(0, offset, 512)
            data += self.answer(512)
        return data.rstrip(b"\0")


@pytest.fixture
def mailbox(tmp_path: Path) -> Generator[Mailbox]:
    box = Mailbox(tmp_path / "box")
    yield box
    box.close()


@pytest.fixture
def client(mailbox: Mailbox, tmp_path: Path) -> Generator[Client]:
    assert not mailbox.waiting
    with closing(Client(tmp_path / "box")) as client:
        yield client


def test_lines_come_one_by_one_and_all_else_is_empty(mailbox: Mailbox, client: Client) -> None:
    assert mailbox.type(b"first\r", PROMPT).echo == b"first\r\n"
    mailbox.type(b"second\nthird is typed slow", PROMPT)
    assert client.line() == b"first"
    assert client.line() == b"second"
    mailbox.type(b"ly\n", PROMPT)
    assert client.line() == b"third is typed slowly"
    for offset in (0, LINE_OFFSET - 4096, SIZE_BYTES - 512):
        client.request(0, offset, 512)
        assert client.answer(512) == bytes(512)
    client.request(1, 0, 512, b"x" * 512)
    client.answer()
    client.request(0, 0, 512)
    assert client.answer(512) == bytes(512)


def test_the_board_waits_until_there_is_a_line(mailbox: Mailbox, client: Client) -> None:
    waits = Event()
    mailbox.on_waiting = waits.set
    client.request(0, LINE_OFFSET, 512)
    assert waits.wait(LIMIT_S)
    assert mailbox.waiting
    client.socket.settimeout(0.3)
    with pytest.raises(TimeoutError):
        client.socket.recv(1)
    client.socket.settimeout(LIMIT_S)
    mailbox.type(b"go\n", PROMPT)
    assert client.answer(512).rstrip(b"\0") == b"go"
    assert not mailbox.waiting


def test_an_empty_line_shows_the_prompt_and_is_not_for_the_board(mailbox: Mailbox, client: Client) -> None:
    assert mailbox.type(b"\n", PROMPT).echo == b"\r\n", "the board is busy: its last line is no prompt"
    client.request(0, LINE_OFFSET, 512)
    wait_for(lambda: mailbox.waiting)
    typed = mailbox.type(b"\n \r", PROMPT)
    assert typed.echo == b"\r\n" + PROMPT + b" \r\n" + PROMPT
    assert typed.to_uart == b""
    assert mailbox.type(b"x\n\n", PROMPT).echo == b"x\r\n\r\n"
    assert client.answer(512).rstrip(b"\0") == b"x"


def test_what_is_typed_can_be_corrected(mailbox: Mailbox, client: Client) -> None:
    typed = mailbox.type(b"\x7fecxo\x7f\x08ho\n", PROMPT)
    assert typed.echo == b"ecxo\b \b\b \bho\r\n"
    assert client.line() == b"echo"


def test_ctrl_c_goes_to_a_board_that_works_and_only_clears_the_line_of_one_that_waits(
    mailbox: Mailbox, client: Client
) -> None:
    typed = mailbox.type(b"typed ahead\nhalf\x03", PROMPT)
    assert typed.to_uart == b"\x03"
    client.request(0, LINE_OFFSET, 512)
    wait_for(lambda: mailbox.waiting)
    typed = mailbox.type(b"half\x03", PROMPT)
    assert (typed.to_uart, typed.echo) == (b"", b"half^C\r\n" + PROMPT)
    mailbox.type(b"whole\n", PROMPT)
    assert client.answer(512).rstrip(b"\0") == b"whole"


def test_a_line_too_long_for_the_board_is_cut(mailbox: Mailbox, client: Client) -> None:
    typed = mailbox.type(b"y" * (LINE_BYTES + 10) + b"\n", PROMPT)
    assert len(typed.echo) == LINE_BYTES - 1 + 2
    assert client.line() == b"y" * (LINE_BYTES - 1)


def test_another_power_on_gets_nothing_of_the_one_before(mailbox: Mailbox, client: Client, tmp_path: Path) -> None:
    mailbox.type(b"for the first\n", PROMPT)
    assert client.line() == b"for the first"
    client.request(0, LINE_OFFSET, 512)
    wait_for(lambda: mailbox.waiting)
    with closing(Client(tmp_path / "box")) as second:
        assert client.socket.recv(1) == b""
        mailbox.type(b"for the second\n", PROMPT)
        assert second.line() == b"for the second"


def test_closing_hangs_up_and_leaves_no_file(tmp_path: Path) -> None:
    box = Mailbox(tmp_path / "box")
    with closing(Client(tmp_path / "box")) as client:
        client.request(0, LINE_OFFSET, 512)
        wait_for(lambda: box.waiting)
        box.close()
        assert client.socket.recv(1) == b""
    assert not (tmp_path / "box").exists()
