"""What a meter says, in words: its settings, its age, what is wrong with it, and how well it knows."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from datetime import date

import pytest
from traces import INFO

from fsjoule.meter.links.notices import complaints, news, notices
from fsjoule.meter.protocol.frames import InfoFrame
from fsjoule.meter.tools import words
from fsjoule.meter.tools.words import expected
from fsjoule.model import CurrentMonitor, InputCounts, MeterCalibration, MeterStatus, ResetCause

_DATE = 1_750_000_000
TODAY = date(2026, 11, 23)
CALIBRATED = MeterCalibration(20_000, -3000, 500, 400, _DATE, _DATE)
WELL = MeterStatus(7, True, False, False, ResetCause.POWER, 0, 0)


def _frame(status: MeterStatus = WELL, calibration: MeterCalibration = CALIBRATED) -> InfoFrame:
    return InfoFrame(0, replace(INFO, calibration=calibration), status)


@pytest.mark.parametrize(
    ("config", "text"),
    [
        (0x091F, "shunt 12 bits, bus 11 bits"),
        (0x0C67, "shunt 16 x 12 bits, bus 12 bits"),
        (0x399F, "shunt 12 bits, bus 12 bits"),
        (0x0DEF, "shunt 32 x 12 bits, bus 8 x 12 bits"),
        (0x089F, "shunt 12 bits, bus 10 bits"),
    ],
)
def test_the_converters_settings(config: int, text: str) -> None:
    assert words.adc_text(replace(INFO, adc_config=config)) == text


def test_the_settings_of_an_unknown_chip_are_not_taken_for_an_ina219s() -> None:
    later = replace(INFO, chip=CurrentMonitor.UNKNOWN, adc_config=0xFB68)
    assert words.adc_text(later) == "a chip that this version of fsjoule does not know (0xFB68): update fsjoule"
    assert words.bus_text(later) == "unknown"
    assert words.bus_text(INFO) == "up to 16 V"


@pytest.mark.parametrize(
    ("age_s", "text"),
    [
        (10, "just now"),
        (5 * 3600, "5 hours ago"),
        (30 * 86400, "30 days ago"),
        (-86400, "in the future: a clock was wrong"),
    ],
)
def test_ages(age_s: float, text: str) -> None:
    assert words.date_text(_DATE, _DATE + age_s) == f"2025-06-15 15:06 UTC, {text}"
    assert words.date_text(0, _DATE) == "never"


def test_a_meter_that_is_well_has_no_notices() -> None:
    assert notices(_frame(), TODAY) == []


def test_everything_that_is_wrong_is_said() -> None:
    status = MeterStatus(7, False, True, True, ResetCause.WATCHDOG, 3, 5)
    text = "\n".join(notices(_frame(status, MeterCalibration()), TODAY))
    for part in (
        "watchdog has reset it",
        "3 failed transfers",
        "5 frames",
        "damaged",
        "not saved",
        "is stopped",
        "not calibrated yet: zero, gain",
    ):
        assert part in text
    (only,) = notices(_frame(WELL, replace(CALIBRATED, gain_date=0)), TODAY)
    assert "not calibrated yet: gain;" in only


def test_what_arrived_badly_is_said_with_advice() -> None:
    inputs = InputCounts(events_lost=1, mark_framing=2, mark_overruns=3, mark_noise=1, marks_damaged=5)
    status = replace(WELL, inputs=inputs)
    assert [text.split(":")[0] for text in notices(_frame(status), TODAY)] == [
        "1 byte or edge lost since power-up, its queue was full",
        "5 lines of the mark line damaged since power-up",
        "3 framing or noise errors on the mark line since power-up",
        "3 overruns on the mark line since power-up",
    ]
    assert notices(_frame(replace(WELL, inputs=InputCounts())), TODAY) == []
    # A board that is switched on makes errors on its line: that says nothing against a place.
    assert complaints(replace(WELL, inputs=replace(inputs, events_lost=0))) == []
    assert words.inputs_text(inputs) == "5 damaged; errors: 2 framing, 3 overrun, 1 noise; 1 bytes or edges lost"
    assert news(status, replace(WELL, inputs=replace(inputs, events_lost=3, marks_damaged=6))) == [
        "2 bytes or edges lost: its queue was full",
        "1 line of the mark line damaged",
    ]
    assert news(status, replace(WELL, inputs=InputCounts())) == []


def test_news_are_told_once() -> None:
    reset = replace(WELL, reset_cause=ResetCause.BROWN_OUT)
    assert news(None, reset) == ["its supply broke down and reset it"]
    assert news(reset, reset) == []
    assert news(reset, replace(reset, i2c_faults=2, frames_dropped=1)) == [
        "2 failed transfers to the chip",
        "1 frame dropped: the host reads too slowly",
    ]
    # A meter that has started anew counts from 0.
    assert news(replace(WELL, i2c_faults=9, frames_dropped=9), WELL) == []


def test_the_document_is_json_with_dates() -> None:
    document = json.loads(json.dumps(words.as_document(_frame(), TODAY)))
    assert document["calibration"]["gain_date"] == "2025-06-15T15:06:40+00:00"
    assert document["reset_cause"] == "power"


def test_a_calibration_is_expected_to_help_and_the_reference_counts() -> None:
    before = expected(replace(INFO, calibration=MeterCalibration()), 5.0, 0.25)
    after = expected(replace(INFO, calibration=CALIBRATED), 5.0, 0.25)
    assert after.total_w < before.total_w / 3
    assert after.gain_w >= 1.25 * 400e-6
    parts = (after.shunt_rounding_w, after.bus_rounding_w, after.offset_w, after.gain_w, after.shunt_w)
    assert after.total_w == pytest.approx(math.sqrt(sum(part**2 for part in parts)))
    assert "at 5 V, 0.25 A (k=1)" in after.text(5.0, 0.25)


def test_at_no_load_the_offset_and_rounding_are_left() -> None:
    idle = expected(replace(INFO, calibration=MeterCalibration()), 5.0, 0.0)
    assert (idle.gain_w, idle.shunt_w, idle.bus_rounding_w) == (0, 0, 0)
    assert idle.total_w == pytest.approx(math.hypot(idle.offset_w, idle.shunt_rounding_w))
    assert "%" not in idle.text(5.0, 0.0)
