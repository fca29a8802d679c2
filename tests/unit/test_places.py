"""A lab of several places: what its runs came to, its page, its OpenMetrics text and its JSON."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from labs_of_places import HOUR_S, NOW_S, lab_of_six, place_of, run_of
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as prometheus
from results_factory import make_run
from whole_runs import write_whole

from fsjoule.errors import ConfigError, Part
from fsjoule.model import Fault, LabFacts, PoolPlace, RunStatus
from fsjoule.model.places import Lab, PlaceHealth
from fsjoule.report.places import tables
from fsjoule.report.places.openmetrics import to_openmetrics
from fsjoule.report.places.page import render_page
from fsjoule.report.places.tables import to_document
from fsjoule.runs.places import place_run, runs_of, usage

_COORDINATOR = "lab.example:20408"
_LAB = LabFacts("evk-1", _COORDINATOR, (), None, "ci@runner")
# 2026-03-09T10:05:41Z, the end of the factory's run.
_ENDED_S = 1773050741.0


def _fault(part: Part | None, *, bug: bool = False) -> Fault:
    utc = "2026-03-09T10:01:00Z"
    return Fault(1, utc, utc, "switching the board off failed\nTraceback", transient=True, bug=bug, part=part)


def test_a_run_is_seen_as_its_place_sees_it() -> None:
    run = replace(make_run().run, lab=_LAB, faults=(_fault(Part.POWER), _fault(None), _fault(None, bug=True)))
    seen = place_run(run, Path("r"), _ENDED_S)
    assert (seen.ended_s, seen.held_s, seen.measuring_s) == (_ENDED_S, 341.0, pytest.approx(118.0 + 31.1))
    assert seen.faults == {"power": 1, "unknown": 1, "bug": 1}
    assert (seen.reason, seen.user, seen.went_well) == ("", "ci@runner", False)
    aborted = replace(run, status=RunStatus.ABORTED, abort_reason="1 of 9 were not taken")
    assert place_run(aborted, Path("r"), _ENDED_S).reason == "switching the board off failed"
    assert place_run(replace(aborted, faults=()), Path("r"), _ENDED_S).reason == "1 of 9 were not taken"


def test_a_resumed_run_held_its_place_for_its_phases_and_a_run_that_goes_on_until_now() -> None:
    run = replace(make_run().run, lab=_LAB)
    resumed = replace(run, resumed_utc=("2026-03-11T10:00:00Z",), finished_utc="2026-03-11T10:05:41Z")
    at_board_s = sum(run.phases_s.values()) - run.phases_s["setup"] - run.phases_s["board_on"]
    assert place_run(resumed, Path("r"), _ENDED_S).held_s == pytest.approx(at_board_s)
    running = replace(run, status=RunStatus.RUNNING, finished_utc=None)
    seen = place_run(running, Path("r"), _ENDED_S + 59)
    assert (seen.ended_s, seen.held_s) == (None, 400.0)
    two_boards = replace(run, phases_s={"boot": 100.0, "fio": 500.0, "board_on": 600.0})
    assert (place_run(two_boards, Path("r"), _ENDED_S).held_s, two_boards.finished_utc) == (600.0, run.finished_utc)
    killed = place_run(replace(running, status=RunStatus.ABORTED), Path("r"), _ENDED_S)
    assert killed.ended_s is None, "nobody knows, and it counts nowhere"
    assert usage([killed], "day", _ENDED_S).held_s == 0


def test_each_place_of_a_pools_run_sees_its_own_time_and_faults(tmp_path: Path) -> None:
    made = make_run().run
    other = replace(_LAB, place="evk-2")
    places = (
        PoolPlace(_LAB, None, 300.0, {"fio": 240.0, "boot": 20.0}),
        PoolPlace(other, None, 100.0, {"fio": 30.0}),
    )
    faults = (replace(_fault(Part.POWER), place="evk-2"),)
    run = replace(made, lab=_LAB, places=places, faults=faults)
    first, second = (place_run(run, Path("r"), _ENDED_S, name) for name in ("evk-1", "evk-2"))
    assert (first.held_s, first.measuring_s, first.faults) == (300.0, 240.0, {})
    assert (second.held_s, second.measuring_s, second.faults) == (100.0, 30.0, {"power": 1})
    write_whole(tmp_path, run, ())
    found, damaged, elsewhere = runs_of({"evk-1", "evk-2"}, _COORDINATOR, [tmp_path], _ENDED_S, last=5)
    assert ({name: len(runs) for name, runs in found.items()}, damaged, elsewhere) == ({"evk-1": 1, "evk-2": 1}, {}, 0)


def test_usage_counts_the_part_of_each_run_that_lies_in_the_window() -> None:
    half_in = run_of(1, ago_h=25.0, took_h=2.0, measuring=0.5)
    inside = run_of(2, ago_h=10.0, took_h=1.0, measuring=1.0, faults={"power": 2})
    running = run_of(3, ago_h=0.5, status=RunStatus.RUNNING, faults={"power": 1})
    day = usage([half_in, inside, running], "day", NOW_S)
    assert (day.held_s, day.measuring_s) == (pytest.approx(2 * HOUR_S), pytest.approx(1.5 * HOUR_S))
    assert (day.efficiency, day.used) == (pytest.approx(0.75), pytest.approx(2 / 24))
    assert (day.complete, day.aborted, day.faults) == (1, 0, {"power": 3})
    week = usage([half_in, inside, running], "week", NOW_S)
    assert (week.complete, week.efficiency) == (2, pytest.approx(2 / 3))
    assert usage([], "day", NOW_S).efficiency is None


def _written(results: Path, day: str, number: int, lab: LabFacts = _LAB) -> None:
    run = replace(
        make_run().run, run_id=f"run{number}", started_utc=f"{day}T10:00:00Z", finished_utc=f"{day}T10:05:41Z"
    )
    write_whole(results, replace(run, lab=lab), ())


def test_runs_belong_to_the_places_of_their_own_lab_and_old_ones_are_read_as_needed(tmp_path: Path) -> None:
    _written(tmp_path, "2026-03-08", 1)
    _written(tmp_path, "2026-03-07", 2, lab=replace(_LAB, place="evk-9"))
    _written(tmp_path, "2026-03-06", 3, lab=replace(_LAB, coordinator="127.0.0.1:20014"))
    _written(tmp_path, "2026-03-05", 4, lab=replace(_LAB, coordinator="10.0.0.7:20408"))
    for number in (5, 6):
        _written(tmp_path, f"2026-01-0{number}", number)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "run.json").write_text("{")
    runs, damaged, elsewhere = runs_of({"evk-1"}, _COORDINATOR, [tmp_path], _ENDED_S, last=3)
    assert [run.run_id for run in runs["evk-1"]] == ["run1", "run4", "run6"], "one of last week's is enough"
    assert (list(damaged), elsewhere) == ([str(tmp_path / "broken")], 2)
    assert runs_of({"evk-1"}, _COORDINATOR, [], _ENDED_S, last=3) == ({}, {}, 0)
    (tmp_path / "new").mkdir()
    assert runs_of({"evk-1"}, _COORDINATOR, [tmp_path / "new"], _ENDED_S, last=3) == ({}, {}, 0)
    with pytest.raises(ConfigError):
        runs_of({"evk-1"}, _COORDINATOR, [tmp_path / "none"], _ENDED_S, last=3)


def test_openmetrics_is_valid_and_says_what_the_lab_is() -> None:
    text = to_openmetrics(lab_of_six())
    found = {family.name: family for family in openmetrics(text)}
    assert {family.type for family in found.values()} == {"gauge"}

    def value(name: str, **labels: str) -> float:
        [sample] = [each for each in found[name].samples if labels.items() <= each.labels.items()]
        return sample.value

    assert value("fsjoule_lab_looked_timestamp_seconds") == NOW_S
    assert (value("fsjoule_place_state", place="evk-3", state="bad"), value("fsjoule_reservations_waiting")) == (1, 2)
    assert value("fsjoule_place_state", place="evk-3", state="good") == 0
    assert value("fsjoule_place_held_seconds", place="evk-2", holder="runner-3/ci") == pytest.approx(0.4 * HOUR_S)
    assert value("fsjoule_reservation_waiting_seconds", number="1", tags="soc=imx6ul,state=good", priority="10") == 240
    assert value("fsjoule_place_efficiency_ratio", place="evk-1", window="day") == pytest.approx(0.7)
    assert value("fsjoule_place_faults", place="evk-3", window="week", part="power") == 6
    assert value("fsjoule_place_runs", place="evk-3", window="day", status="aborted") == 3
    assert not [each for each in found["fsjoule_place_efficiency_ratio"].samples if each.labels["place"] == "opi-1"]
    # The older format, which node_exporter's textfile collector reads, gives the same.
    older = {family.name: family.samples for family in prometheus(text) if family.samples}
    assert older == {name: family.samples for name, family in found.items() if family.samples}


def test_openmetrics_is_valid_whatever_names_have_in_them() -> None:
    lab = lab_of_six()
    strange = replace(lab.places[1], name='rack "3"\\1\nx', holder='a"b\\c')
    text = to_openmetrics(replace(lab, places=(strange,)))
    [held] = [each for each in openmetrics(text) if each.name == "fsjoule_place_held_seconds"]
    assert held.samples[0].labels == {"place": 'rack "3"\\1\nx', "holder": 'a"b\\c'}
    empty = to_openmetrics(Lab("lab:1", NOW_S, (), ()))
    assert empty.endswith("# EOF\n")
    assert list(openmetrics(empty))


def test_the_page_shows_states_queue_runs_and_faults_and_escapes_what_others_wrote(tmp_path: Path) -> None:
    lab = lab_of_six()
    (tmp_path / "run1").mkdir()
    (tmp_path / "run1" / "report.html").write_text("")
    ran = replace(lab.places[0].last_runs[0], folder=str(tmp_path / "run1"))
    first = replace(lab.places[0], why="<script>", last_runs=(ran,))
    page = render_page(replace(lab, places=(first, *lab.places[1:])), tmp_path / "lab.html")
    assert "6 places: 3 good, 1 of unknown state, 1 bad, 1 in maintenance; 1 held, 2 reservations wait" in page
    assert "3 faults of the lab in a row, the last: power, 5 h 24 min ago" in page
    assert "runner-3/ci, for 24 min" in page
    assert "reserved for desk/ada" in page
    assert "no place has these tags" in page
    assert "&lt;script&gt;" in page
    assert "<script" not in page
    assert '<a href="run1/report.html">run1</a>' in page
    assert "/srv/results/broken" in page
    assert "simulated" not in page.partition("</style>")[2]
    assert "<svg" in page
    empty = render_page(Lab("lab:1", NOW_S, (), ()), tmp_path / "lab.html")
    for told in ("Nobody waits", "The coordinator knows no place yet", "No run has been measured at these places yet"):
        assert told in empty
    assert 'class="answer good"' not in empty


def test_a_lab_with_emulated_boards_says_so(tmp_path: Path) -> None:
    run = replace(run_of(1, ago_h=2.0), simulated=True)
    page = render_page(Lab("lab:1", NOW_S, (place_of("virtual", PlaceHealth.GOOD, run),), ()), tmp_path / "p.html")
    assert '<span class="badge">simulated</span>' in page
    assert "<title>The lab lab:1 (simulated)</title>" in page


def test_the_document_has_all_of_it() -> None:
    document = json.loads(json.dumps(to_document(lab_of_six())))
    assert document["schema"] == "fsjoule.lab/1"
    assert document["places"][2]["usage"][1]["faults"] == {"power": 6}
    assert document["places"][0]["usage"][0]["efficiency"] == pytest.approx(0.7)
    assert document["queue"][0]["places"] == ["evk-1", "evk-2"]


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(-1, "0 s"), (119, "119 s"), (120, "2 min"), (3599, "60 min"), (3600, "1 h 00 min"), (90000, "1 d 1 h")],
)
def test_spans_are_short(seconds: float, said: str) -> None:
    assert tables.span(seconds) == said


def test_a_long_reason_is_shortened_in_tables() -> None:
    run = run_of(1, ago_h=1.0, status=RunStatus.ABORTED, reason=f"begin {'x' * 900} end")
    [row] = tables.last_runs(Lab("lab:1", NOW_S, (place_of("evk-1", PlaceHealth.BAD, run),), ())).rows
    [shown] = [cell.text for cell in row if cell.text.startswith("begin")]
    assert len(shown) == 160
    assert shown.endswith("end")


def test_parts_with_most_faults_come_first() -> None:
    assert lab_of_six().parts == ("power", "unknown", "console", "flasher")
    assert [cell.text for cell in tables.faults(lab_of_six()).rows[1]] == ["evk-3", "6", "–", "–", "–"]  # noqa: RUF001
