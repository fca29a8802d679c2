"""Commands: golden vectors, an independent encoder, and every value that the meter would refuse."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import golden_frames
import meter_wire as wire
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsjoule.errors import ConfigError
from fsjoule.meter.protocol import commands
from fsjoule.meter.protocol.commands import MeterCommand, ReplyStatus

_VECTORS: list[dict[str, Any]] = json.loads(golden_frames.JSON_FILE.read_text())["commands"]

_U32 = st.integers(0, 2**32 - 1)
_DATE = st.integers(1, 2**32 - 1)
_RATES = [hz for hz in range(100, 2001) if 1_000_000 % hz == 0]
_MARK = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), min_size=1, max_size=16)


@pytest.mark.parametrize("vector", _VECTORS, ids=lambda vector: vector["name"])
def test_golden_vector(vector: dict[str, Any]) -> None:
    encoded = commands.encode(MeterCommand(vector["command"]), vector["seq"], bytes.fromhex(vector["payload"]))
    assert encoded.hex() == vector["encoded"]


def test_every_command_has_a_vector() -> None:
    assert {vector["command"] for vector in _VECTORS} == set(MeterCommand)


@given(seq=_U32, command=st.sampled_from(MeterCommand), payload=st.binary(max_size=200))
def test_encode_as_another_does(seq: int, command: MeterCommand, payload: bytes) -> None:
    assert commands.encode(command, seq, payload) == wire.frame(command.value, seq, payload)


@given(
    hz=st.sampled_from(_RATES),
    range_mv=st.sampled_from([40, 80, 160, 320]),
    uohm=st.integers(1000, 1_000_000),
    date=_DATE,
    text=_MARK,
)
def test_payloads_as_another_makes_them(hz: int, range_mv: int, uohm: int, date: int, text: str) -> None:
    assert commands.rate(hz) == wire.rate(rate_hz=hz)
    assert commands.measuring_range(range_mv) == wire.shunt_range(range_mv=range_mv)
    assert [commands.bus_range(volts) for volts in (16, 32)] == [wire.bus_range(range_v=volts) for volts in (16, 32)]
    assert commands.shunt(uohm) == wire.shunt(shunt_uohm=uohm)
    assert commands.zero(date) == wire.zero(date=date)
    assert commands.mark(text) == wire.host_mark(text=text)


@given(
    point=st.sampled_from([1, 2]),
    ua=st.integers(-(2**31), 2**31 - 1),
    uv=st.integers(1, 2**32 - 1),
    ppm=st.integers(0, 1_000_000),
    date=_DATE,
)
def test_gain_as_another_makes_it(point: int, ua: int, uv: int, ppm: int, date: int) -> None:
    expected = wire.gain(point=point, true_ua=ua, true_uv=uv, uncertainty_ppm=ppm, date=date)
    assert commands.gain(point, ua, uv, ppm, date) == expected


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        (lambda: commands.rate(99), "use 100 to 2000 Hz, a divisor of 1,000,000: 100 or 125"),
        (lambda: commands.rate(2001), "1600 or 2000"),
        (lambda: commands.rate(999), "800 or 1000"),
        (lambda: commands.rate(0), "a rate of 0 Hz"),
        (lambda: commands.measuring_range(100), "choose from: 40, 80, 160, 320"),
        (lambda: commands.bus_range(26), "no bus range of 26 V"),
        (lambda: commands.shunt(999), "use 1000 to 1000000 microohm"),
        (lambda: commands.shunt(1_000_001), "a shunt of 1000001 microohm"),
        (lambda: commands.zero(0), "0 is not the date"),
        (lambda: commands.zero(2**32), "4294967296 is not the date"),
        (lambda: commands.gain(3, 1, 1, 1, 1), "no point 3"),
        (lambda: commands.gain(1, 2**31, 1, 1, 1), "current of 2147483648 uA"),
        (lambda: commands.gain(1, -(2**31) - 1, 1, 1, 1), "current of -2147483649 uA"),
        (lambda: commands.gain(1, 1, 0, 1, 1), "bus voltage of 0 uV"),
        (lambda: commands.gain(1, 1, 2**32, 1, 1), "bus voltage of 4294967296 uV"),
        (lambda: commands.gain(1, 1, 1, 1_000_001, 1), "uncertainty of 1000001 ppm"),
        (lambda: commands.gain(1, 1, 1, -1, 1), "uncertainty of -1 ppm"),
        (lambda: commands.gain(1, 1, 1, 1, 0), "not the date"),
        (lambda: commands.mark(""), "'' cannot be a mark"),
        (lambda: commands.mark("x" * 17), "xxx' cannot be a mark"),
        (lambda: commands.mark("a\nb"), "'a\\nb' cannot be a mark"),
        (lambda: commands.mark("\u00e4"), "cannot be a mark"),
    ],
)
def test_values_that_the_meter_would_refuse(payload: Callable[[], bytes], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        payload()
    assert words in str(caught.value)


def test_a_payload_that_no_frame_can_hold_is_refused() -> None:
    with pytest.raises(ValueError, match="at most 243 bytes"):
        commands.encode(MeterCommand.MARK, 0, bytes(244))


def test_replies_in_words() -> None:
    assert commands.status_text(ReplyStatus.BUSY) == "the meter is busy with a calibration"
    assert commands.status_text(77) == "the meter answered with the unknown status 77"
    assert len({status.text for status in ReplyStatus}) == len(ReplyStatus)
    assert commands.self_test_failures(0) == ()
    assert commands.self_test_failures(0x21) == (
        "the chip does not answer",
        "there is no storage for settings",
    )
    assert commands.self_test_failures(0x40) == ("unknown failures 0x40",)
    assert [command.title for command in (MeterCommand.RATE, MeterCommand.SELF_TEST, MeterCommand.RESET_ENERGY)] == [
        "rate",
        "self-test",
        "reset energy",
    ]
