"""Checks of places: how they are read, when a new chart begins, whether two places agree, and when to doubt one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from place_checks import PlaceNights
from results_factory import METER

from fsjoule.errors import ConfigError
from fsjoule.model import MeterCalibration
from fsjoule.model.metrics import Metric
from fsjoule.store.standards import CheckedPlace, read_checks, runs_beside
from fsjoule.store.states import FOLDER, Restart, read_restarts, restart_place
from fsjoule.verdicts.drift import (
    Control,
    PlaceChart,
    agreements,
    doubts_beside,
    place_charts,
    place_states,
    state_of,
)

PLACE = CheckedPlace("bench-3", "rack")
STEP = 30


def _step(night: int) -> float:
    return 1.01 if night >= STEP else 1.0


def _charts(folders: list[Path]) -> tuple[PlaceChart, ...]:
    checks, damaged = read_checks(folders)
    assert damaged == {}
    return place_charts(checks)


def _power(charts: tuple[PlaceChart, ...], work: str = "idle") -> list[PlaceChart]:
    return [each for each in charts if each.figure == f"power of {work}"]


def test_a_check_is_a_run_of_the_standard_at_a_place(tmp_path: Path) -> None:
    folders = PlaceNights().write(tmp_path, 3)
    checks, _ = read_checks([*folders, *folders])
    assert len(checks) == 6
    assert checks[0].place == PLACE
    assert checks[0].conditions.meter == METER.serial_number
    assert set(checks[0].figures) == {Metric.DURATION, Metric.POWER}
    watts = checks[0].figures[Metric.POWER]
    assert watts.uncertainty == pytest.approx(0.003 * watts.value)
    assert read_checks(folders, "quick") == ([], {})


def test_a_damaged_run_is_named_and_left_out(tmp_path: Path) -> None:
    folders = PlaceNights().write(tmp_path, 3)
    (folders[1] / "run.json").write_text('{"suite": "standard"')
    checks, damaged = read_checks(runs_beside(folders[:1]))
    assert len(checks) == 4
    assert list(damaged) == [str(folders[1])]


def test_a_place_with_another_gain_is_out_of_control(tmp_path: Path) -> None:
    charts = _charts(PlaceNights(gain=_step).write(tmp_path, 60))
    assert state_of(charts, PLACE) is Control.OUT
    assert [each.state for each in charts if each.metric is Metric.DURATION] == [Control.IN] * 2
    (power,) = _power(charts)
    doubt = power.doubts[-1]
    assert doubt.begin_utc[:10] == "2026-01-31"  # the 30th night
    assert doubt.text == f"{100 * doubt.alarm.shift:+.2g} %"
    assert doubt.alarm.shift == pytest.approx(0.01, abs=0.002)
    assert not doubt.covers("2026-01-30T02:00:00Z")
    assert doubt.covers("2027-01-01T00:00:00Z")


def test_a_calibration_begins_a_new_chart(tmp_path: Path) -> None:
    calibrated = replace(METER, calibration=MeterCalibration(current_gain_ppm=-9900, gain_date=1_770_000_000))
    nights = PlaceNights(
        gain=lambda night: _step(night) if night < 50 else 1.0,
        meter=lambda night: METER if night < 50 else calibrated,
    )
    charts = _charts(nights.write(tmp_path, 54))
    old, new = _power(charts)
    assert (old.current, len(old.times), old.state) == (False, 50, Control.OUT)
    assert (new.current, len(new.times), new.state) == (True, 4, Control.UNKNOWN)
    assert old.doubts[-1].end_utc == new.times[0]
    assert state_of(charts, PLACE) is Control.UNKNOWN
    assert [(place, state, open_) for place, state, open_ in place_states(charts)] == [(PLACE, Control.UNKNOWN, [])]


def test_another_kernel_begins_a_new_chart_until_it_is_back(tmp_path: Path) -> None:
    nights = PlaceNights(kernel=lambda night: "6.12" if night == 20 else "6.1")
    first, second = _power(_charts(nights.write(tmp_path, 30)))
    assert (len(first.times), first.current, len(second.times), second.current) == (29, True, 1, False)


def test_two_places_agree_within_their_uncertainties(tmp_path: Path) -> None:
    same = PlaceNights("bench-4", seed=2, meter=lambda _: replace(METER, serial_number="T2"))
    folders = PlaceNights().write(tmp_path, 12)
    folders += same.write(tmp_path, 12)
    more = PlaceNights("bench-5", gain=lambda _: 1.02, seed=2, meter=same.meter)
    folders += more.write(tmp_path, 12)
    charts = _charts(folders)
    assert all(each.agree and not each.same_meter for each in agreements(charts, "bench-3", "bench-4"))
    found = agreements(charts, "bench-3", "bench-5@rack")
    assert [(each.metric, each.agree) for each in found] == [(Metric.POWER, False)] * 2
    # 2 % against 2 sqrt(0.3^2 + 0.3^2) %, and a little for the checks' spread.
    assert found[0].error == pytest.approx(-2 / (2 * 0.3 * 2**0.5), rel=0.1)


def test_places_without_a_common_figure_are_refused(tmp_path: Path) -> None:
    folders = PlaceNights().write(tmp_path, 3)
    folders += PlaceNights("bench-4", kernel=lambda _: "6.12").write(tmp_path, 3)
    folders += PlaceNights("bench-4", exporter="other", seed=4).write(tmp_path / "other", 3)
    charts = _charts(folders)
    with pytest.raises(ConfigError, match="have no figure of a meter in common"):
        agreements(charts, "bench-3", "bench-4@rack")
    with pytest.raises(ConfigError, match="2 labs have a place bench-4"):
        agreements(charts, "bench-3", "bench-4")
    with pytest.raises(ConfigError, match="bench-9"):
        agreements(charts, "bench-9", "bench-4")


def test_a_restart_begins_new_charts_and_ends_doubts(tmp_path: Path) -> None:
    folders = PlaceNights(gain=_step).write(tmp_path, 60)
    checks, _ = read_checks(folders)
    restart = Restart(*PLACE, why="shunt replaced", made_utc="2026-02-20T12:00:00Z")
    elsewhere = replace(restart, exporter="other", made_utc="2026-01-10T12:00:00Z")
    old, new = _power(place_charts(checks, restarts=[elsewhere, restart]))
    assert (old.current, len(old.times), old.state) == (False, 51, Control.OUT)
    assert (new.current, len(new.times), new.state) == (True, 9, Control.IN)
    assert old.doubts[-1].end_utc == restart.made_utc
    # Before the first check after it nothing is known.
    last = replace(restart, made_utc="2026-03-02T00:00:00Z")
    charts = place_charts(checks, restarts=[last])
    assert [each.current for each in charts] == [False] * 4
    assert [(state, open_) for _, state, open_ in place_states(charts)] == [(Control.UNKNOWN, [])]


def test_a_restart_is_kept_beside_the_runs(tmp_path: Path) -> None:
    folders = PlaceNights(gain=_step).write(tmp_path, 50)
    restart_place([tmp_path], *PLACE, why="shunt replaced")
    ((restart,), faults) = read_restarts([tmp_path])
    assert (restart.place, restart.exporter, restart.why, faults) == (*PLACE, "shunt replaced", [])
    doubts = doubts_beside(folders[:1])
    assert {each.end_utc for each in doubts} == {restart.made_utc}
    assert not any(each.covers(restart.made_utc) for each in doubts)
    (document,) = (tmp_path / FOLDER).iterdir()
    document.write_text(document.read_text().replace(restart.made_utc, "yesterday"))
    assert "does not match format" in " ".join(read_restarts([tmp_path])[1])


def test_doubts_come_from_the_folder_of_the_runs(tmp_path: Path) -> None:
    folders = PlaceNights(gain=_step).write(tmp_path, 50)
    assert {each.chart.figure for each in doubts_beside(folders[:1])} == {"power of cpu", "power of idle"}
    assert doubts_beside([tmp_path / "gone/run", Path("s3:/bucket/run")]) == ()
