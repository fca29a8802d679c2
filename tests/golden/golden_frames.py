"""Writes the golden vectors: frames.json for the Python tests, and the same as a header for the C tests.

Run `PYTHONPATH=tests/helpers python tests/golden/golden_frames.py` after a change of protocol; test_golden_frames.py
holds that both files are what this script writes. The bytes come from meter_wire.py, and must never be taken from the
code under test.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import meter_wire as wire

Case = dict[str, Any]

# Of an info frame, in struct fsj_input_counts and struct fsj_calibration.
_INPUTS = ("events_lost", "mark_framing", "mark_overruns", "mark_noise", "marks_damaged")
_CALIBRATION = (
    "shunt_offset_nv",
    "current_gain_ppm",
    "bus_gain_ppm",
    "gain_uncertainty_ppm",
    "zero_date",
    "gain_date",
)


def header(vectors: Sequence[Case], commands: Sequence[Case]) -> str:
    """The content of frames.h, of the vectors and commands of frames.json."""
    parts = ["/* Written by tests/golden/golden_frames.py: do not edit. */\n"]
    for kind in ("info", "samples", "mark", "reply"):
        cases = [case for case in vectors if case["type"].removeprefix("wide_") == kind]
        entries = "".join(_entry(case, f".{kind} = {_fields(case['type'], case['fields'])}") for case in cases)
        parts.append(f"static const struct {kind}_vector {kind}_vectors[] = {{\n{entries}}};\n")
    entries = "".join(_entry(case, _command(case)) for case in commands)
    parts.append(f"static const struct command_vector command_vectors[] = {{\n{entries}}};\n")
    return "\n".join(parts)


def _entry(case: Case, content: str) -> str:
    encoded = bytes.fromhex(case["encoded"])
    lines = [", ".join(f"0x{byte:02X}" for byte in encoded[i : i + 16]) for i in range(0, len(encoded), 16)]
    body = ",\n\t\t ".join(lines)
    return (
        f"\t{{\n\t\t.name = {_text(case['name'])},\n\t\t.seq = {case['seq']}u,\n{_stream(case)}"
        f"\t\t{content},\n"
        f"\t\t.size = {len(encoded)},\n\t\t.encoded =\n\t\t{{{body}}},\n\t}},\n"
    )


def _stream(case: Case) -> str:
    return f"\t\t.stream_id = {case['stream_id']}u,\n" if "stream_id" in case else ""


def _fields(kind: str, fields: dict[str, Any]) -> str:
    if kind in ("samples", "wide_samples"):
        values = ", ".join(f"{{{shunt}, {bus}}}" for shunt, bus in fields["values"])
        written = [_member(name, fields[name]) for name in fields if name != "values"]
        written += [".wide = true"] if kind == "wide_samples" else []
        written += [f".count = {len(fields['values'])}"] + ([f".sample = {{{values}}}"] if values else [])
    elif kind == "mark":
        text = fields["text"]
        written = [_member(name, fields[name]) for name in ("time_us", "source", "flags")]
        written += [f".length = {len(text)}"] + ([f".text = {_bytes(text.encode('ascii'))}"] if text else [])
    elif kind == "reply":
        values = ", ".join(_number(value) for value in fields["values"])
        written = [_member(name, fields[name]) for name in fields if name != "values"] + [f".values = {{{values}}}"]
    else:
        written = [_member(name, fields[name]) for name in fields if name not in (*_CALIBRATION, *_INPUTS)]
        for part, names in (("calibration", _CALIBRATION), ("inputs", _INPUTS)):
            written.append(f".{part} = {{{', '.join(_member(name, fields[name]) for name in names)}}}")
    return "{" + ", ".join(written) + "}"


def _command(case: Case) -> str:
    content = bytes.fromhex(case["payload"])
    bytes_ = f", .payload = {_bytes(content)}" if content else ""
    return f".type = {case['command']}, .length = {len(content)}{bytes_}"


def _member(name: str, value: str | int) -> str:
    return f".{name} = {_bytes(value.encode('ascii')) if isinstance(value, str) else _number(value)}"


def _number(value: int) -> str:
    # The most negative number has no literal in C.
    if value in (-(2**31), -(2**63)):
        return "INT32_MIN" if value == -(2**31) else "INT64_MIN"
    return f"{value}{'u' if 2**31 <= value < 2**32 else ''}"


def _bytes(content: bytes) -> str:
    return "{" + ", ".join(f"0x{byte:02X}" for byte in content) + "}"


def _text(value: str) -> str:
    return json.dumps(value)


FOLDER = Path(__file__).parent
JSON_FILE = FOLDER / "frames.json"
HEADER_FILE = FOLDER / "frames.h"

FRAMES: list[Case] = [
    {
        "name": "info at start",
        "type": "info",
        "seq": 0,
        "stream_id": 0xDEADBEEF,
        "fields": {
            "rate_hz": 1000,
            "shunt_uohm": 100_000,
            "shunt_range_mv": 80,
            "adc_config": 0x091F,
            "flags": wire.SIMULATED | wire.SAMPLING,
            "reset_cause": 1,
            "firmware": "0.1.0",
            "serial_number": "SIM0",
            "i2c_faults": 0,
            "frames_dropped": 0,
            "shunt_offset_nv": -12_345,
            "current_gain_ppm": 4_321,
            "bus_gain_ppm": -1_500,
            "gain_uncertainty_ppm": 250,
            "zero_date": 1_767_225_600,
            "gain_date": 1_767_225_661,
            "events_lost": 0,
            "mark_framing": 0,
            "mark_overruns": 0,
            "mark_noise": 0,
            "marks_damaged": 0,
            "chip": wire.INA219,
            "shunt_unit_pv": 10_000_000,
            "bus_unit_pv": 4_000_000_000,
        },
    },
    {
        "name": "info with names that fill their fields, and the largest numbers",
        "type": "info",
        "seq": 0xFFFFFFFF,
        "stream_id": 0,
        "fields": {
            "rate_hz": 0xFFFFFFFF,
            "shunt_uohm": 0xFFFFFFFF,
            "shunt_range_mv": 320,
            "adc_config": 0x191F,
            "flags": 0x0F,
            "reset_cause": 5,
            "firmware": "0123456789abcdef",
            "serial_number": "ABCDEFGHIJKLMNOP",
            "i2c_faults": 0xFFFFFFFF,
            "frames_dropped": 0xFFFFFFFE,
            "shunt_offset_nv": -(2**31),
            "current_gain_ppm": 2**31 - 1,
            "bus_gain_ppm": -(2**31),
            "gain_uncertainty_ppm": 0xFFFFFFFF,
            "zero_date": 0xFFFFFFFF,
            "gain_date": 0xFFFFFFFF,
            "events_lost": 0xFFFFFFFF,
            "mark_framing": 0xFFFFFFFE,
            "mark_overruns": 0xFFFFFFFD,
            "mark_noise": 0xFFFFFFFC,
            "marks_damaged": 0xFFFFFFFB,
            "chip": wire.INA228,
            "shunt_unit_pv": 0xFFFFFFFF,
            "bus_unit_pv": 0xFFFFFFFE,
        },
    },
    {
        "name": "one sample: 5 V and 250 mA at 0.1 Ohm",
        "type": "samples",
        "seq": 1,
        "stream_id": 1,
        "fields": {
            "first_tick": 0,
            "first_time_us": 0,
            "energy_raw": 0,
            "bus_total": 0,
            "missed_total": 0,
            "flags": 0,
            "values": [[2500, 1250]],
        },
    },
    {
        "name": "a full frame after a day, with ticks missed",
        "type": "samples",
        "seq": 4_320_000,
        "stream_id": 0xFFFFFFFF,
        "fields": {
            "first_tick": 86_400_000,
            "first_time_us": 86_400_000_000,
            "energy_raw": 270_000_000_000_000,
            "bus_total": 108_000_000_000,
            "missed_total": 17,
            "flags": 0,
            "values": [[2500 + 7 * i, 1250 - i] for i in range(20)],
        },
    },
    {
        "name": "negative current, extremes of both values, every flag",
        "type": "samples",
        "seq": 0x00FF00FF,
        "stream_id": 0x80000000,
        "fields": {
            "first_tick": 2**63 - 1,
            "first_time_us": 2**63 - 1,
            "energy_raw": -(2**63),
            "bus_total": 2**63 - 1,
            "missed_total": 0xFFFFFFFF,
            "flags": 0x3F,
            "values": [[-32768, 0], [32767, 0x8000 | 8191], [-1, 0x4000 | 0x0100], [0, 0xC000]],
        },
    },
    {
        "name": "no samples, ticks missed",
        "type": "samples",
        "seq": 9,
        "stream_id": 7,
        "fields": {
            "first_tick": 40,
            "first_time_us": 40_000,
            "energy_raw": 62_500_000,
            "bus_total": 25_000,
            "missed_total": 20,
            "flags": 12,
            "values": [],
        },
    },
    {
        "name": "one wide sample: 5 V and 250 mA at 0.1 Ohm",
        "type": "wide_samples",
        "seq": 10,
        "stream_id": 1,
        "fields": {
            "first_tick": 0,
            "first_time_us": 0,
            "energy_raw": 0,
            "bus_total": 0,
            "missed_total": 0,
            "flags": 0,
            "values": [[80_000, 25_600]],
        },
    },
    {
        "name": "a full frame of wide samples",
        "type": "wide_samples",
        "seq": 11,
        "stream_id": 0xFFFFFFFF,
        "fields": {
            "first_tick": 86_400_000,
            "first_time_us": 86_400_000_000,
            "energy_raw": 2**62,
            "bus_total": 2**45,
            "missed_total": 17,
            "flags": 0,
            "values": [[80_000 + 7777 * i, 25_600 - i] for i in range(20)],
        },
    },
    {
        "name": "negative current, extremes of both wide values, every flag",
        "type": "wide_samples",
        "seq": 12,
        "stream_id": 7,
        "fields": {
            "first_tick": 2**63 - 1,
            "first_time_us": 2**63 - 1,
            "energy_raw": -(2**63),
            "bus_total": 2**63 - 1,
            "missed_total": 0xFFFFFFFF,
            "flags": 0x3F,
            "values": [[-524288, 0], [524287, 0x800000 | 0xFFFFF], [-1, 0x400000 | 0x0100], [0, 0xC00000]],
        },
    },
    {
        "name": "no wide samples, ticks missed",
        "type": "wide_samples",
        "seq": 15,
        "stream_id": 7,
        "fields": {
            "first_tick": 40,
            "first_time_us": 40_000,
            "energy_raw": 40_960_000_000,
            "bus_total": 512_000,
            "missed_total": 20,
            "flags": 12,
            "values": [],
        },
    },
    {
        "name": "start mark",
        "type": "mark",
        "seq": 2,
        "stream_id": 7,
        "fields": {"time_us": 1_234_567, "source": wire.LINE, "flags": wire.CHECKED, "text": "S12"},
    },
    {
        "name": "longest mark, of the host",
        "type": "mark",
        "seq": 3,
        "stream_id": 7,
        "fields": {"time_us": 0, "source": wire.HOST, "flags": 0, "text": "0123456789 abcd~"},
    },
    {
        "name": "plain mark",
        "type": "mark",
        "seq": 13,
        "stream_id": 7,
        "fields": {"time_us": 1, "source": wire.LINE, "flags": 0, "text": "Sboot"},
    },
    {
        "name": "damaged mark",
        "type": "mark",
        "seq": 14,
        "stream_id": 7,
        "fields": {"time_us": 2, "source": wire.LINE, "flags": wire.BROKEN, "text": "~S13~3887"},
    },
    {
        "name": "rising edge",
        "type": "mark",
        "seq": 4,
        "stream_id": 7,
        "fields": {"time_us": 256, "source": wire.RISING, "flags": 0, "text": ""},
    },
    {
        "name": "falling edge, at the end of time",
        "type": "mark",
        "seq": 5,
        "stream_id": 0xDEADBEEF,
        "fields": {"time_us": 2**63 - 1, "source": wire.FALLING, "flags": 0, "text": ""},
    },
    {
        "name": "zero calibration is done",
        "type": "reply",
        "seq": 6,
        "stream_id": 0x00010000,
        "fields": {"request": 0xCAFE0001, "command": 0x16, "status": 0, "values": [-12_345, 30_000, 1000]},
    },
    {
        "name": "a command that could not be read",
        "type": "reply",
        "seq": 7,
        "stream_id": 7,
        "fields": {"request": 0, "command": 0, "status": 8, "values": [0, 0, 0]},
    },
    {
        "name": "a reply with the largest numbers",
        "type": "reply",
        "seq": 0xFFFFFFFE,
        "stream_id": 7,
        "fields": {"request": 0xFFFFFFFF, "command": 0xFF, "status": 9, "values": [-(2**31), 2**31 - 1, -1]},
    },
]

# `command` is the type; `values` are the fields of the payload, in the words of the protocol page.
COMMANDS: list[Case] = [
    {"name": "info", "seq": 0, "command": 0x10, "values": {}},
    {"name": "start", "seq": 1, "command": 0x11, "values": {}},
    {"name": "stop", "seq": 2, "command": 0x12, "values": {}},
    {"name": "rate", "seq": 3, "command": 0x13, "values": {"rate_hz": 2000}},
    {"name": "range", "seq": 4, "command": 0x14, "values": {"range_mv": 320}},
    {"name": "shunt", "seq": 5, "command": 0x15, "values": {"shunt_uohm": 1_000_000}},
    {"name": "zero", "seq": 6, "command": 0x16, "values": {"date": 1_767_225_600}},
    {
        "name": "gain, low point",
        "seq": 7,
        "command": 0x17,
        "values": {
            "point": 1,
            "true_ua": 10_000,
            "true_uv": 5_001_000,
            "uncertainty_ppm": 2_000,
            "date": 1_767_225_600,
        },
    },
    {
        "name": "gain, high point, the largest numbers",
        "seq": 8,
        "command": 0x17,
        "values": {
            "point": 2,
            "true_ua": -(2**31),
            "true_uv": 0xFFFFFFFF,
            "uncertainty_ppm": 0xFFFFFFFF,
            "date": 0xFFFFFFFF,
        },
    },
    {"name": "save", "seq": 9, "command": 0x18, "values": {}},
    {"name": "reset energy", "seq": 10, "command": 0x19, "values": {}},
    {"name": "self-test", "seq": 0xFFFFFFFF, "command": 0x1A, "values": {}},
    {"name": "forget calibration", "seq": 0x01000000, "command": 0x1B, "values": {}},
    {"name": "mark", "seq": 0x00FF00FF, "command": 0x1C, "values": {"text": "S1"}},
    {"name": "longest mark", "seq": 11, "command": 0x1C, "values": {"text": "0123456789 abcd~"}},
    {"name": "bus range", "seq": 12, "command": 0x1D, "values": {"range_v": 32}},
]

_PAYLOADS: dict[int, Callable[..., bytes]] = {
    0x13: wire.rate,
    0x14: wire.shunt_range,
    0x15: wire.shunt,
    0x16: wire.zero,
    0x17: wire.gain,
    0x1C: wire.host_mark,
    0x1D: wire.bus_range,
}


def encode(case: Case) -> bytes:
    """The bytes of a frame of the meter as they go over the line."""
    encoders = {
        "info": wire.info,
        "samples": wire.samples,
        "wide_samples": wire.wide_samples,
        "mark": wire.mark,
        "reply": wire.reply,
    }
    return encoders[case["type"]](case["seq"], stream_id=case["stream_id"], **case["fields"])


def payload(case: Case) -> bytes:
    """The payload of a command."""
    return _PAYLOADS[case["command"]](**case["values"]) if case["values"] else b""


def encode_command(case: Case) -> bytes:
    """The bytes of a command as they go over the line."""
    return wire.frame(case["command"], case["seq"], payload(case))


def vectors_json() -> str:
    """The content of frames.json."""
    return json.dumps({"protocol": 3, "vectors": _vectors(), "commands": _commands()}, indent=2) + "\n"


def vectors_header() -> str:
    """The content of frames.h."""
    return header(_vectors(), _commands())


def _vectors() -> list[Case]:
    return [{**case, "encoded": encode(case).hex()} for case in FRAMES]


def _commands() -> list[Case]:
    return [{**case, "payload": payload(case).hex(), "encoded": encode_command(case).hex()} for case in COMMANDS]


if __name__ == "__main__":
    JSON_FILE.write_text(vectors_json())
    HEADER_FILE.write_text(vectors_header())
