"""The golden vectors as a C header, for the tests of the meter's firmware. golden_frames.py has the vectors."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

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
    parts = ["/* Written by tests/helpers/golden_frames.py: do not edit. */\n"]
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
