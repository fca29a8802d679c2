"""Writes the golden stream: stream.bin, what a host hears on a bad line, and stream.json, what a receiver makes of it.

Run `PYTHONPATH=tests/helpers python tests/golden/golden_stream.py` after a change of protocol. The bytes come from
meter_wire.py, and what is expected of them is written down beside them: nothing of both is taken from the code under
test. A decoder written from docs/meter-protocol.md alone can be compared with the two files.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import meter_wire as wire
from golden_frames import FOLDER

STREAM_FILE = FOLDER / "stream.bin"
EXPECTED_FILE = FOLDER / "stream.json"

_SAMPLES = {"samples": wire.samples, "wide_samples": wire.wide_samples}
_KINDS = {**_SAMPLES, "mark": wire.mark, "info": wire.info, "reply": wire.reply}
_ABOUT = {
    "frames": "taken by the rules of docs/meter-protocol.md, in the order in which they come; the bits of bus that are "
    "none of the voltage are in sample_flags",
    "damaged": "pieces between two delimiters that are no frame",
    "lost": "sequence numbers that are missing in the end",
    "duplicates": "frames that came twice and were dropped",
    "reordered": "frames that came late",
    "unknown": "whole frames of other types, commands that came back included",
    "received, missed, lost, energy_j": "of the ticks from the first to the last frame of samples, both included",
    "energy_j": "calibrated, by the meter's own sums and the samples of the last frame",
}


@dataclass
class Meter:
    """One stream of a meter: what it sampled so far."""

    stream_id: int
    info: dict[str, Any]
    tick: int = 0
    begin_us: int = 0
    energy: int = 0
    bus: int = 0
    missed: int = 0

    @property
    def is_wide(self) -> bool:
        return self.info.get("chip") == wire.INA228

    def miss(self, ticks: int) -> None:
        self.tick += ticks
        self.missed += ticks

    def samples(self, count: int, *, flags: int = 0, bits: tuple[int, ...] = ()) -> dict[str, Any]:
        """The fields of the next frame, with values that are never the same."""
        period_us = 1_000_000 // self.info["rate_hz"]
        # Of a converter with 11 bits each second voltage; an INA228's are finer.
        step, finer = (1, 32) if self.is_wide else (2, 1)
        numbers = range(self.tick, self.tick + count)
        values = [[((7 * n) % 3000 - 500) * finer, 1250 * finer - step * (n % 50)] for n in numbers]
        fields = {
            "first_tick": self.tick,
            "first_time_us": self.begin_us + self.tick * period_us,
            "energy_raw": self.energy,
            "bus_total": self.bus,
            "missed_total": self.missed,
            "flags": flags,
            "values": [[shunt, bus | bit] for (shunt, bus), bit in zip(values, [*bits, *[0] * count], strict=False)],
        }
        self.energy += sum(shunt * bus for shunt, bus in values)
        self.bus += sum(bus for _, bus in values)
        self.tick += count
        return fields

    def joules(self, energy_raw: int, bus_total: int) -> float:
        """docs/meter-protocol.md, type 1."""
        shunt_v = (self.info["shunt_unit_pv"] or 10_000_000) * 1e-12
        bus_v = (self.info["bus_unit_pv"] or 4_000_000_000) * 1e-12
        volts = energy_raw * shunt_v - bus_total * self.info["shunt_offset_nv"] * 1e-9
        gains = (1 + self.info["current_gain_ppm"] * 1e-6) * (1 + self.info["bus_gain_ppm"] * 1e-6)
        return volts * bus_v * gains / (self.info["shunt_uohm"] * 1e-6) / self.info["rate_hz"]


@dataclass
class Heard:
    """What arrives, and what is to be made of it."""

    data: bytes = b""
    frames: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    counters: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(("damaged", "lost", "duplicates", "reordered", "unknown"), 0)
    )

    def count(self, **more: int) -> None:
        for name, number in more.items():
            self.counters[name] += number

    def take(self, meter: Meter, kind: str, seq: int, fields: dict[str, Any], *, encoded: bytes | None = None) -> bytes:
        """A frame that arrives whole and is taken. Returns its bytes."""
        kind = "wide_samples" if kind == "samples" and meter.is_wide else kind
        made = encoded or _KINDS[kind](seq, stream_id=meter.stream_id, **fields)
        self.data += made
        self.frames.append({"type": kind, "seq": seq, "stream_id": meter.stream_id, **_shown(kind, fields)})
        return made


def _shown(kind: str, fields: dict[str, Any]) -> dict[str, Any]:
    if kind not in _SAMPLES:
        return {name: value for name, value in fields.items() if value is not None}
    values, voltage = fields["values"], 0x1FFF if kind == "samples" else 0xFFFFF
    return {name: fields[name] for name in fields if name != "values"} | {
        "shunt": [shunt for shunt, _ in values],
        "bus": [bus & voltage for _, bus in values],
        "sample_flags": [bus & ~voltage for _, bus in values],
    }


def _info(**changed: Any) -> dict[str, Any]:
    fields = {
        "rate_hz": 1000,
        "shunt_uohm": 100_000,
        "shunt_range_mv": 80,
        "adc_config": 0x091F,
        "flags": wire.SAMPLING,
        "reset_cause": 1,
        "firmware": "0.4.0",
        "serial_number": "GOLDEN",
        "i2c_faults": 0,
        "frames_dropped": 0,
        "shunt_offset_nv": 0,
        "current_gain_ppm": 0,
        "bus_gain_ppm": 0,
        "gain_uncertainty_ppm": 0,
        "zero_date": 0,
        "gain_date": 0,
        "events_lost": 0,
        "mark_framing": 0,
        "mark_overruns": 0,
        "mark_noise": 0,
        "marks_damaged": 0,
        "chip": wire.INA219,
        "shunt_unit_pv": 10_000_000,
        "bus_unit_pv": 4_000_000_000,
    }
    return fields | changed


def _mark(time_us: int, text: str, source: int = wire.LINE, flags: int = 0) -> dict[str, Any]:
    return {"time_us": time_us, "source": source, "flags": flags, "text": text}


def _first_stream(heard: Heard, meter: Meter) -> None:
    """Joined in the midst of a frame; the info frame comes after the first samples."""
    heard.data += wire.samples(40, stream_id=meter.stream_id, **meter.samples(20))[60:]
    heard.take(meter, "samples", 41, meter.samples(20))
    swapped = meter.samples(20)
    heard.take(meter, "samples", 43, meter.samples(20))
    heard.take(meter, "samples", 42, swapped)
    heard.count(reordered=1)
    heard.take(meter, "info", 44, meter.info)
    damaged = bytearray(wire.samples(45, stream_id=meter.stream_id, **meter.samples(20)))
    damaged[70] ^= 0x10
    heard.data += bytes(damaged)
    heard.count(damaged=1, lost=1)
    heard.take(meter, "mark", 46, _mark(meter.tick * 1000 + 123, "S1", flags=wire.CHECKED))
    meter.miss(3)
    heard.take(meter, "samples", 47, meter.samples(7, flags=0x04))
    heard.take(meter, "mark", 48, _mark(meter.tick * 1000 + 400, "~E1~214", flags=wire.BROKEN))
    heard.data += b"\5noise\0\0"
    heard.count(damaged=1)
    heard.take(meter, "mark", 49, _mark(meter.tick * 1000 + 500, "phase 2"))
    heard.take(meter, "mark", 50, _mark(meter.tick * 1000 + 501, "", wire.RISING))
    heard.take(meter, "mark", 51, _mark(meter.tick * 1000 + 502, "", wire.FALLING))
    again = heard.take(meter, "samples", 52, meter.samples(20))
    heard.data += again
    heard.count(duplicates=1)
    heard.data += wire.frame(0x10, 0xCAFE0001, b"")
    heard.data += wire.frame(9, 53, meter.stream_id.to_bytes(4, "little") + b"of a later firmware")
    heard.count(unknown=2)
    heard.data += wire.frame(wire.SAMPLES, 54, meter.stream_id.to_bytes(4, "little") + bytes(37) + b"\2" + bytes(4))
    heard.count(damaged=1, lost=1)
    bits = (wire.CLIPPED_BIT, 0, wire.OVERFLOW_BIT, wire.CLIPPED_BIT | wire.OVERFLOW_BIT)
    heard.take(meter, "samples", 55, meter.samples(20, flags=0x33, bits=bits))
    heard.take(meter, "samples", 56, meter.samples(0))


def golden() -> tuple[bytes, dict[str, Any]]:
    """The bytes, and the document."""
    heard = Heard()
    calibrated = {
        "shunt_offset_nv": 50_000,
        "current_gain_ppm": 2000,
        "bus_gain_ppm": -1000,
        "zero_date": 1,
        "gain_date": 2,
    }
    first = Meter(0xFFFFFFFF, _info(**calibrated), tick=780, energy=5_000_000_000, bus=900_000)
    second = Meter(0, _info(rate_hz=500, adc_config=0x099F, **calibrated), begin_us=1_000_000)
    third = Meter(0x5A5A5A5A, _info(reset_cause=2))
    other = Meter(0x33330000, _info(serial_number="ANOTHER", shunt_uohm=50_000, marks_damaged=3), tick=1_000_000)
    ina228: dict[str, Any] = {"chip": wire.INA228, "shunt_unit_pv": 312_500, "bus_unit_pv": 195_312_500}
    ina228 |= {"serial_number": "INA228", "adc_config": 0xB700, "shunt_range_mv": 163}
    wide = Meter(0x77770000, _info(**ina228, **calibrated))
    _first_stream(heard, first)
    _second(heard, second, third)
    heard.take(other, "info", 5000, other.info)
    heard.take(other, "samples", 5001, other.samples(3))
    _wide(heard, wide)
    heard.data += wire.mark(5002, time_us=1, text="cut off", stream_id=other.stream_id)[:-3]
    document = {
        "about": _ABOUT,
        "protocol": 3,
        "frames": heard.frames,
        "counters": heard.counters,
        "power_ups": [[first.stream_id, second.stream_id], [third.stream_id], [other.stream_id], [wide.stream_id]],
        "streams": [_summary(meter, heard.frames) for meter in (first, second, third, other, wide)],
    }
    return heard.data, document


def _second(heard: Heard, second: Meter, third: Meter) -> None:
    """The end of the first power-up, and the next one, whose frames come in between."""
    heard.take(second, "info", 57, second.info)
    heard.take(second, "reply", 58, {"request": 0x12345678, "command": 0x13, "status": 0, "values": [0, 0, 0]})
    heard.take(second, "samples", 59, second.samples(20))
    body = wire.uncobs(wire.info(60, stream_id=second.stream_id, **second.info)[:-1])[6:-4]
    heard.take(second, "info", 60, second.info, encoded=wire.frame(wire.INFO, 60, body + b"more"))
    heard.take(second, "mark", 61, _mark(second.begin_us + second.tick * 2000, "of the host", wire.HOST))
    last, earlier = second.samples(20), third.samples(20)
    heard.take(third, "samples", 2, third.samples(20))  # the meter restarted: its first two frames are missing
    heard.count(lost=2)
    heard.take(second, "samples", 62, last)  # the last one of before comes only now
    again = heard.take(third, "samples", 1, earlier)
    heard.data += again
    heard.count(lost=-1, reordered=1, duplicates=1)
    heard.take(third, "info", 3, third.info)


def _wide(heard: Heard, meter: Meter) -> None:
    """An INA228's stream, from its beginning."""
    heard.take(meter, "info", 0, meter.info)
    heard.take(meter, "samples", 1, meter.samples(20))
    heard.take(meter, "mark", 2, _mark(meter.tick * 1000 + 17, "S2", flags=wire.CHECKED))
    meter.samples(20)
    heard.count(lost=1)
    meter.miss(20)
    heard.take(meter, "samples", 4, meter.samples(0, flags=0x04))
    bits = (0x800000, 0, 0x400000)
    heard.take(meter, "samples", 5, meter.samples(7, flags=0x03, bits=bits))
    head = meter.stream_id.to_bytes(4, "little") + bytes(37)
    heard.data += wire.frame(wire.WIDE_SAMPLES, 6, head + b"\1" + bytes(4))  # as long as a sample that is not wide
    heard.count(damaged=1, lost=1)
    heard.take(meter, "samples", 7, meter.samples(0))


def _summary(meter: Meter, frames: list[dict[str, Any]]) -> dict[str, Any]:
    """Of the frames of samples, in the order of their ticks."""
    ours = [each for each in frames if each["type"] in _SAMPLES and each["stream_id"] == meter.stream_id]
    ours.sort(key=lambda each: each["first_tick"])
    first, last = ours[0], ours[-1]
    received = sum(len(each["shunt"]) for each in ours)
    missed = last["missed_total"] - first["missed_total"]
    raw = sum(shunt * bus for shunt, bus in zip(last["shunt"], last["bus"], strict=True))
    energy = last["energy_raw"] + raw - first["energy_raw"]
    bus = last["bus_total"] + sum(last["bus"]) - first["bus_total"]
    return {
        "stream_id": meter.stream_id,
        "serial_number": meter.info["serial_number"],
        "rate_hz": meter.info["rate_hz"],
        "received": received,
        "missed": missed,
        "lost": last["first_tick"] + len(last["shunt"]) - first["first_tick"] - received - missed,
        "energy_j": meter.joules(energy, bus),
    }


def written(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=1) + "\n"


if __name__ == "__main__":
    stream, expected = golden()
    STREAM_FILE.write_bytes(stream)
    EXPECTED_FILE.write_text(written(expected))
