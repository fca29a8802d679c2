"""The golden vectors of the wire format."""

from __future__ import annotations

import json
from typing import Any

import golden_frames
import meter_wire as wire
import numpy as np
import pytest

from fsjoule.meter.protocol.frames import (
    INFO_SAMPLING,
    INFO_SETTINGS_DAMAGED,
    INFO_SIMULATED,
    INFO_UNSAVED,
    Frame,
    FrameDecoder,
    InfoFrame,
    MarkFrame,
    ReplyFrame,
    SamplesFrame,
)
from fsjoule.model import InputCounts, MarkSource, MeterCalibration, ResetCause

# Vectors of commands go the other way; test_commands.py has them.
_VECTORS: list[dict[str, Any]] = json.loads(golden_frames.JSON_FILE.read_text())["vectors"]


def test_golden_files_are_what_the_script_writes() -> None:
    assert golden_frames.JSON_FILE.read_text() == golden_frames.vectors_json()
    assert golden_frames.HEADER_FILE.read_text() == golden_frames.vectors_header()


@pytest.mark.parametrize("vector", _VECTORS, ids=lambda vector: vector["name"])
def test_golden_vector(vector: dict[str, Any]) -> None:
    frame = _check_vector(vector)
    assert _stream_of(frame) == vector["stream_id"]
    if isinstance(frame, MarkFrame):
        flags = vector["fields"]["flags"]
        assert (frame.checked, frame.damaged) == (flags == wire.CHECKED, flags == wire.BROKEN)
    elif isinstance(frame, InfoFrame):
        assert frame.info.protocol == 3
        assert frame.status.inputs == InputCounts(
            **{name: vector["fields"][name] for name in InputCounts.__dataclass_fields__}
        )


def _stream_of(frame: Frame) -> int:
    return frame.status.stream_id if isinstance(frame, InfoFrame) else frame.stream_id


def _check_vector(vector: dict[str, Any]) -> Frame:
    (frame,) = FrameDecoder().feed(b"\0" + bytes.fromhex(vector["encoded"]))
    fields = dict(vector["fields"])
    assert frame.seq == vector["seq"]
    if isinstance(frame, SamplesFrame):
        values = np.array(fields.pop("values"), dtype=np.int64).reshape(-1, 2)
        assert {name: getattr(frame, name) for name in fields} == fields
        assert frame.shunt_raw.tolist() == values[:, 0].tolist()
        assert frame.wide == (vector["type"] == "wide_samples")
        assert frame.bus_raw.tolist() == (values[:, 1] & (0xFFFFF if frame.wide else 0x1FFF)).tolist()
    elif isinstance(frame, MarkFrame):
        source = [MarkSource.LINE, MarkSource.RISING, MarkSource.FALLING, MarkSource.HOST][fields["source"]]
        assert (frame.time_us, frame.text, frame.source) == (fields["time_us"], fields["text"], source)
    elif isinstance(frame, ReplyFrame):
        assert {name: getattr(frame, name) for name in fields if name != "values"} | {
            "values": list(frame.values)
        } == fields
    else:
        _check_info(frame, fields)
    return frame


def _check_info(frame: InfoFrame, fields: dict[str, Any]) -> None:
    info, status = frame.info, frame.status
    for name in ("rate_hz", "shunt_uohm", "shunt_range_mv", "adc_config", "firmware", "serial_number"):
        assert getattr(info, name) == fields[name]
    assert info.calibration == MeterCalibration(
        **{name: fields[name] for name in MeterCalibration.__dataclass_fields__}
    )
    flags = (info.simulated, status.sampling, status.unsaved, status.settings_damaged)
    bits = (INFO_SIMULATED, INFO_SAMPLING, INFO_UNSAVED, INFO_SETTINGS_DAMAGED)
    assert flags == tuple(bool(fields["flags"] & bit) for bit in bits)
    assert status.reset_cause == list(ResetCause)[fields["reset_cause"]]
    for name in ("i2c_faults", "frames_dropped"):
        assert getattr(status, name) == fields[name]
