"""The telnet layer between ser2net and the meter, on bytes alone; terminals and sockets as they are."""

from __future__ import annotations

import os
import socket
import subprocess
import time
import tty
from collections.abc import Generator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsjoule.errors import ConfigError
from fsjoule.meter.links import streams
from fsjoule.meter.links.streams import NetworkStream, PortHeldError, TelnetDecoder, TtyStream, holders, opener

_IAC = b"\xff"
# What ser2net 4.3 says first: options that it offers and asks for.
_GREETING = bytes.fromhex("fffb03fffd03fffb01fffe01fffd00fffb00fffd2c")


def _escaped(payload: bytes) -> bytes:
    return payload.replace(_IAC, _IAC * 2)


def _fed(decoder: TelnetDecoder, data: bytes, cuts: list[int]) -> tuple[bytes, bytes]:
    payload, answer = b"", b""
    borders = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    for begin, end in pairwise(borders):
        more, reply = decoder.feed(data[begin:end])
        payload += more
        answer += reply
    return payload, answer


@given(st.binary(max_size=300), st.lists(st.integers(min_value=0), max_size=8))
def test_any_payload_arrives_however_the_stream_is_cut(payload: bytes, cuts: list[int]) -> None:
    assert _fed(TelnetDecoder(), _escaped(payload), cuts) == (payload, b"")


@given(st.binary(max_size=60), st.binary(max_size=60), st.lists(st.integers(min_value=0), max_size=8))
def test_options_are_taken_out_and_only_binary_is_agreed_to(before: bytes, after: bytes, cuts: list[int]) -> None:
    payload, answer = _fed(TelnetDecoder(), _escaped(before) + _GREETING + _escaped(after), cuts)
    assert payload == before + after
    dont, wont, will, do = 0xFE, 0xFC, 0xFB, 0xFD
    expected = [(dont, 3), (wont, 3), (dont, 1), (will, 0), (do, 0), (wont, 0x2C)]
    assert answer == b"".join(bytes((0xFF, *pair)) for pair in expected)


@pytest.mark.parametrize("inside", [b"", b"\x2c\x6a\x00", _IAC * 2 + b"x"])
def test_subnegotiations_are_left_out(inside: bytes) -> None:
    decoder = TelnetDecoder()
    assert decoder.feed(b"a\xff\xfa" + inside + b"\xff\xf0b") == (b"ab", b"")


@given(st.binary(max_size=300))
def test_garbage_never_raises(data: bytes) -> None:
    TelnetDecoder().feed(data)


# ------------------------------------------------------------------------------------------------ terminals and sockets


@pytest.fixture
def terminal() -> Generator[tuple[int, str]]:
    """The master of a pseudo terminal, and its slave's name."""
    master, slave = os.openpty()
    tty.setraw(slave)
    name = os.ttyname(slave)
    os.close(slave)
    yield master, name
    os.close(master)


def test_a_terminal_is_read_and_written(terminal: tuple[int, str]) -> None:
    master, name = terminal
    with TtyStream(name) as stream:
        os.write(master, b"from the meter\xff\0")
        assert stream.read(5.0) == b"from the meter\xff\0"
        stream.write(b"to the meter\xff\0")
        assert os.read(master, 100) == b"to the meter\xff\0"
        assert stream.read(0.01) == b""
        stream.raise_if_shared()


def test_a_terminal_is_held_against_others_and_given_up_at_the_end(terminal: tuple[int, str]) -> None:
    _, name = terminal
    with TtyStream(name), pytest.raises(PortHeldError, match=rf"process {os.getpid()}"):
        TtyStream(name)
    with TtyStream(name):
        pass


def test_who_has_a_terminal_is_named(terminal: tuple[int, str]) -> None:
    _, name = terminal
    assert holders(name) == ()
    with open(name, "rb+", buffering=0) as file, subprocess.Popen(["sleep", "60"], stdin=file) as sleeper:  # noqa: PTH123
        # This process has it, too, and does not count itself.
        assert [str(holder) for holder in holders(name)] == [f"sleep (process {sleeper.pid})"]
        assert {holder.pid for holder in holders(name, ours=True)} == {sleeper.pid, os.getpid()}
        sleeper.kill()
    assert holders("/dev/fsjoule-nothing") == ()


def test_a_program_that_lets_go_in_a_moment_is_waited_for(
    terminal: tuple[int, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, name = terminal
    monkeypatch.setattr(streams, "_BETWEEN_LOOKS_S", 2.0)  # the other one may be slow to end
    with open(name, "rb+", buffering=0) as file, subprocess.Popen(["sleep", "0.1"], stdin=file):  # noqa: PTH123
        TtyStream(name).close()


def test_a_program_that_stays_is_named(terminal: tuple[int, str]) -> None:
    _, name = terminal
    with open(name, "rb+", buffering=0) as file, subprocess.Popen(["sleep", "60"], stdin=file) as sleeper:  # noqa: PTH123
        with pytest.raises(PortHeldError, match=rf"sleep \(process {sleeper.pid}\)"):
            TtyStream(name)
        sleeper.kill()


def test_a_terminal_that_is_not_there_says_so_once() -> None:
    with pytest.raises(FileNotFoundError, match="No such file or directory: '/dev/fsjoule-nothing'"):
        TtyStream("/dev/fsjoule-nothing")


def _connected(server: socket.socket, *, telnet: bool) -> NetworkStream:
    return NetworkStream("127.0.0.1", server.getsockname()[1], telnet=telnet)


@pytest.mark.parametrize("telnet", [False, True])
def test_a_socket_is_written_as_its_telnet_layer_wants(telnet: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, _connected(server, telnet=telnet) as stream:
        other, _ = server.accept()
        with other:
            stream.write(b"a\xffb")
            assert other.recv(10) == (b"a\xff\xffb" if telnet else b"a\xffb")
            other.sendall(b"c\xff\xffd")
            assert stream.read(5.0) == (b"c\xffd" if telnet else b"c\xff\xffd")
        with pytest.raises(ConnectionError):
            stream.read(5.0)


def test_a_socket_that_takes_nothing_is_an_error_within_the_limit() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, _connected(server, telnet=False) as stream:
        begin = time.monotonic()
        with pytest.raises(TimeoutError, match="takes no bytes"):
            stream.write(bytes(50_000_000))
        assert time.monotonic() - begin < 10
        stream.close()  # as another thread does
        with pytest.raises(ConnectionError, match="has been closed"):
            stream.write(b"x")


@pytest.mark.parametrize("address", ["ttyUSB0", "host", "host:", ":2000", "host:0", "host:70000", "http://host:80", ""])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(ConfigError, match="is not a meter's address"):
        opener(address)


@pytest.mark.parametrize("address", ["/dev/ttyUSB0", "host:2000", "[::1]:2000", "rfc2217://host:2000"])
def test_addresses_are_not_opened_before_they_are_needed(address: str) -> None:
    opener(address)


def test_writing_to_a_terminal_that_another_thread_closes_is_an_error_of_the_port(
    terminal: tuple[int, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with TtyStream(terminal[1]) as stream:
        # Between pyserial's look at whether it is open, and its use of the descriptor.
        monkeypatch.setattr(stream._serial, "fd", None)
        with pytest.raises(OSError, match="the port was closed"):
            stream.write(b"x")
        monkeypatch.undo()


def test_a_busy_computer_that_holds_the_writer_up_is_no_lost_port(
    terminal: tuple[int, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "_WRITE_TIMEOUT_S", 0.05)
    written = os.write

    def late(descriptor: int, data: bytes) -> int:
        time.sleep(0.1)
        return written(descriptor, data)

    with TtyStream(terminal[1]) as stream:
        monkeypatch.setattr(os, "write", late)
        stream.write(b"x")
