"""Instrument files: what they change in the uncertainty, and what is refused in them."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest
from results_factory import METER

from fsjoule.bench.instrument import check_meter
from fsjoule.errors import ConfigError, InstrumentError, StorageError
from fsjoule.meter.energy.ina219 import Ina219
from fsjoule.meter.instrument_files import file_of, read_instrument_file, write_instrument_file
from fsjoule.meter.links.notices import file_notices
from fsjoule.meter.tools.calibration import noted
from fsjoule.model import Ina219Info, MeterCalibration
from fsjoule.model.instrument_file import Calibrated, Certificate, InstrumentFile, RoomTemperature, Shunt

TODAY = date(2026, 11, 23)
CALIBRATED = MeterCalibration(gain_uncertainty_ppm=100, zero_date=1, gain_date=1)
WHOLE = InstrumentFile(
    serial_number="T1",
    shunt=Shunt(ohm=0.1, tolerance_percent=0.5, drift_ppm_per_kelvin=20.0),
    room=RoomTemperature(least_celsius=18.0, most_celsius=28.0),
    calibration=Calibrated(made=TODAY, celsius=22.0),
    certificate=Certificate(number='DE "4711" ö', issuer="a laboratory", expires=date(2027, 1, 31)),
)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FSJOULE_METERS_DIR", str(tmp_path / "meters"))
    return tmp_path / "meters"


def described(file: InstrumentFile | None, calibration: MeterCalibration = CALIBRATED) -> Ina219Info:
    return replace(METER, calibration=calibration, file=file)


def test_what_is_written_is_read(folder: Path) -> None:
    assert read_instrument_file("T1") is None
    assert not folder.exists()
    assert write_instrument_file(WHOLE) == folder / "T1.toml"
    assert read_instrument_file("T1") == WHOLE


def test_a_serial_number_does_not_lead_out_of_the_folder(folder: Path) -> None:
    assert file_of("../../etc/x").parent == folder


def test_a_calibration_is_noted_and_the_rest_of_the_file_stays() -> None:
    noted(described(None), TODAY, None, None)
    first = read_instrument_file("T1")
    assert first == InstrumentFile(serial_number="T1", shunt=Shunt(ohm=0.1), calibration=Calibrated(made=TODAY))
    noted(described(WHOLE), date(2026, 12, 24), 21.5, None)
    assert read_instrument_file("T1") == replace(WHOLE, calibration=Calibrated(made=date(2026, 12, 24), celsius=21.5))
    other = Certificate(number="2")
    noted(described(WHOLE), TODAY, 22.0, other)
    assert read_instrument_file("T1") == replace(WHOLE, certificate=other)


def test_a_file_that_cannot_be_written_is_told(folder: Path) -> None:
    folder.write_text("no folder")
    with pytest.raises(StorageError, match=r"T1\.toml cannot be written"):
        write_instrument_file(WHOLE)


def test_the_shunts_tolerance_counts_before_the_calibration_and_its_drift_after_it() -> None:
    fresh = MeterCalibration()
    assert Ina219.of(described(None, fresh)).shunt == pytest.approx(0.01)
    assert Ina219.of(described(WHOLE, fresh)).shunt == pytest.approx(0.005)
    assert Ina219.of(described(None)).shunt == pytest.approx(75e-6 * 10)
    # From 22 degrees the room goes 6 degrees up and 4 down.
    assert Ina219.of(described(WHOLE)).shunt == pytest.approx(20e-6 * 6)


def test_the_rooms_temperatures_bound_the_drift() -> None:
    unknown = replace(WHOLE, calibration=None)
    assert Ina219.of(described(unknown)).shunt == pytest.approx(20e-6 * 10)
    gains = [Ina219.of(described(each)).gain for each in (WHOLE, unknown, None)]
    assert gains[0] < gains[1] == gains[2]  # without a file 10 degrees are assumed, too
    wide = replace(WHOLE, room=RoomTemperature(least_celsius=-20.0, most_celsius=60.0))
    assert Ina219.of(described(wide)).offset_v > Ina219.of(described(WHOLE)).offset_v
    # The data sheet's limits hold at 25 degrees.
    cold = Ina219.of(
        described(replace(WHOLE, room=RoomTemperature(least_celsius=-20.0, most_celsius=25.0)), MeterCalibration())
    )
    warm = Ina219.of(
        described(replace(WHOLE, room=RoomTemperature(least_celsius=25.0, most_celsius=25.0)), MeterCalibration())
    )
    assert cold.gain > warm.gain


def test_an_expired_certificate_and_another_shunt_are_told() -> None:
    assert file_notices(described(WHOLE), TODAY) == []
    assert file_notices(described(WHOLE), date(2027, 1, 31)) == []
    [expired] = file_notices(described(WHOLE), date(2027, 2, 1))
    assert "expired on 2027-01-31" in expired
    [other] = file_notices(described(replace(WHOLE, shunt=Shunt(ohm=0.05))), TODAY)
    assert "a shunt of 0.1 Ohm, its instrument file says 0.05 Ohm" in other


def test_a_run_does_not_go_on_with_another_instrument_file() -> None:
    """Its joules would have another uncertainty."""
    check_meter(described(WHOLE), described(replace(WHOLE, certificate=None)))
    with pytest.raises(InstrumentError, match="instrument file was absent, it is there now"):
        check_meter(described(None), described(WHOLE))
    other = replace(WHOLE, shunt=Shunt(ohm=0.1, tolerance_percent=2.0, drift_ppm_per_kelvin=20.0))
    with pytest.raises(InstrumentError, match=r"instrument file's tolerance percent was 0\.5, it is 2\.0 now"):
        check_meter(described(WHOLE), described(other))


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ('serial_number = "T1"\n[shunt]\nohm = ten\n', 3, "not valid TOML"),
        ('serial_number = "T1"\n[shunt]\nohms = 0.1\n', 3, "ohms"),
        ('serial_number = "T1"\n[shunt]\nohm = "ten"\n', 3, "valid number"),
        ('serial_number = "T1"\n[shunt]\nohm = 0\n', 3, "a shunt has a resistance"),
        ('serial_number = "T1"\n[shunt]\nohm = -0.1\n', 3, "shunt.ohm = -0.1 is not from 0"),
        ('serial_number = "T1"\n[shunt]\nohm = 0.1\ntolerance_percent = nan\n', 4, "tolerance_percent"),
        ('serial_number = "T1"\n[shunt]\nohm = 0.1\n[room]\nleast_celsius = 40\n', 5, "is above most_celsius = 35"),
        ('serial_number = "T1"\n[shunt]\nohm = 0.1\n[certificate]\nnumber = "1"\nexpires = "soon"\n', 6, "expires"),
        ('serial_number = "T2"\n[shunt]\nohm = 0.1\n', 1, "the file of the meter T2, but its name is of T1"),
    ],
)
def test_a_wrong_file_is_named_with_its_line(folder: Path, text: str, line: int, said: str) -> None:
    folder.mkdir()
    (folder / "T1.toml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_instrument_file("T1")
    assert (caught.value.file, caught.value.line) == (folder / "T1.toml", line)
    assert said in caught.value.what


def test_a_file_that_cannot_be_read_is_told(folder: Path) -> None:
    (folder / "T1.toml").mkdir(parents=True)
    with pytest.raises(ConfigError, match="the instrument file cannot be read"):
        read_instrument_file("T1")
