"""Writes the golden vectors: frames.json for the Python tests, and the same as a header for the C tests.

Run `python tests/helpers/golden_frames.py` after a change of protocol; tests/unit/test_frames.py holds that both files
are what this script writes. The bytes come from meter_wire.py, and must never be taken from the code under test.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import meter_wire as wire

FOLDER = Path(__file__).parents[1] / "golden"
JSON_FILE = FOLDER / "frames.json"
HEADER_FILE = FOLDER / "frames.h"

Case = dict[str, Any]

CASES: list[Case] = [
    {
        "name": "info at start",
        "type": "info",
        "seq": 0,
        "fields": {
            "rate_hz": 1000,
            "shunt_uohm": 100_000,
            "shunt_range_mv": 80,
            "adc_config": 0x091F,
            "simulated": 1,
            "firmware": "0.1.0",
            "serial_number": "SIM0",
            "boot_id": 0xDEADBEEF,
        },
    },
    {
        "name": "info with names that fill their fields, and the largest numbers",
        "type": "info",
        "seq": 0xFFFFFFFF,
        "fields": {
            "rate_hz": 0xFFFFFFFF,
            "shunt_uohm": 0xFFFFFFFF,
            "shunt_range_mv": 320,
            "adc_config": 0x191F,
            "simulated": 0,
            "firmware": "0123456789abcdef",
            "serial_number": "ABCDEFGHIJKLMNOP",
            "boot_id": 0,
        },
    },
    {
        "name": "one sample: 5 V and 250 mA at 0.1 Ohm",
        "type": "samples",
        "seq": 1,
        "fields": {
            "first_tick": 0,
            "first_time_us": 0,
            "energy_raw": 0,
            "missed_total": 0,
            "flags": 0,
            "values": [[2500, 1250]],
        },
    },
    {
        "name": "a full frame after a day, with ticks missed",
        "type": "samples",
        "seq": 4_320_000,
        "fields": {
            "first_tick": 86_400_000,
            "first_time_us": 86_400_000_000,
            "energy_raw": 270_000_000_000_000,
            "missed_total": 17,
            "flags": 0,
            "values": [[2500 + 7 * i, 1250 - i] for i in range(20)],
        },
    },
    {
        "name": "negative current, extremes of both values, every flag",
        "type": "samples",
        "seq": 0x00FF00FF,
        "fields": {
            "first_tick": 2**63 - 1,
            "first_time_us": 2**63 - 1,
            "energy_raw": -(2**63),
            "missed_total": 0xFFFFFFFF,
            "flags": 7,
            "values": [[-32768, 0], [32767, 8191], [-1, 0x0100], [0, 0]],
        },
    },
    {
        "name": "no samples, ticks missed",
        "type": "samples",
        "seq": 9,
        "fields": {
            "first_tick": 40,
            "first_time_us": 40_000,
            "energy_raw": 62_500_000,
            "missed_total": 20,
            "flags": 4,
            "values": [],
        },
    },
    {"name": "start mark", "type": "mark", "seq": 2, "fields": {"time_us": 1_234_567, "text": "S12"}},
    {"name": "longest mark", "type": "mark", "seq": 3, "fields": {"time_us": 0, "text": "0123456789 abcd~"}},
]


def encode(case: Case) -> bytes:
    """The bytes of a case as they go over the line."""
    return {"info": wire.info, "samples": wire.samples, "mark": wire.mark}[case["type"]](case["seq"], **case["fields"])


def vectors_json() -> str:
    """The content of frames.json."""
    vectors = [{**case, "encoded": encode(case).hex()} for case in CASES]
    return json.dumps({"protocol": 1, "vectors": vectors}, indent=2) + "\n"


def vectors_header() -> str:
    """The content of frames.h."""
    parts = ["/* Written by tests/helpers/golden_frames.py: do not edit. */\n"]
    for kind in ("info", "samples", "mark"):
        cases = [case for case in CASES if case["type"] == kind]
        entries = "".join(_entry(case, kind) for case in cases)
        parts.append(f"static const struct {kind}_vector {kind}_vectors[] = {{\n{entries}}};\n")
    return "\n".join(parts)


def _entry(case: Case, kind: str) -> str:
    encoded = encode(case)
    lines = [", ".join(f"0x{byte:02X}" for byte in encoded[i : i + 16]) for i in range(0, len(encoded), 16)]
    body = ",\n\t\t ".join(lines)
    return (
        f"\t{{\n\t\t.name = {_text(case['name'])},\n\t\t.seq = {case['seq']}u,\n"
        f"\t\t.{kind} = {_fields(kind, case['fields'])},\n"
        f"\t\t.size = {len(encoded)},\n\t\t.encoded =\n\t\t{{{body}}},\n\t}},\n"
    )


def _fields(kind: str, fields: dict[str, Any]) -> str:
    if kind == "samples":
        values = ", ".join(f"{{{shunt}, {bus}}}" for shunt, bus in fields["values"])
        written = [f".{name} = {_number(fields[name])}" for name in fields if name != "values"]
        written += [f".count = {len(fields['values'])}"] + ([f".sample = {{{values}}}"] if values else [])
    elif kind == "mark":
        text = fields["text"]
        written = [f".time_us = {_number(fields['time_us'])}", f".length = {len(text)}", f".text = {_bytes(text)}"]
    else:
        written = [
            f".{name} = {_bytes(value) if isinstance(value, str) else _number(value)}" for name, value in fields.items()
        ]
    return "{" + ", ".join(written) + "}"


def _number(value: int) -> str:
    # The most negative number has no literal in C.
    return "INT64_MIN" if value == -(2**63) else f"{value}{'u' if 2**31 <= value < 2**32 else ''}"


def _bytes(text: str) -> str:
    return "{" + ", ".join(f"0x{byte:02X}" for byte in text.encode("ascii")) + "}"


def _text(value: str) -> str:
    return json.dumps(value)


if __name__ == "__main__":
    JSON_FILE.write_text(vectors_json())
    HEADER_FILE.write_text(vectors_header())
