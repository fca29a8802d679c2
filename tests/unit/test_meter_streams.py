"""The telnet layer between ser2net and the meter driver, on bytes alone."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsjoule.meter.streams import TelnetDecoder

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
