"""`fsjoule place status` at a real coordinator: places, holder, queue and run folders in each of its forms."""

from __future__ import annotations

import threading
import time
from collections.abc import Generator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from bare_coordinator import LIMIT_S, BareCoordinator, bare_coordinator, within
from command_line import CommandLine
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from results_factory import make_run
from whole_runs import write_whole

from fsjoule.errors import Part
from fsjoule.lab import acquired_place, place_request
from fsjoule.lab.coordinator import connected
from fsjoule.lab.states import note_end, set_state
from fsjoule.model import LabFacts
from fsjoule.model.places import PlaceHealth

_HOUR_S = 3600


@pytest.fixture(name="coordinator")
def _coordinator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[BareCoordinator]:
    monkeypatch.setenv("FSJOULE_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    with bare_coordinator(tmp_path, monkeypatch.setenv) as coordinator:
        for name in ("evk-1", "evk-2"):
            coordinator.make(name, soc="imx6ul")
        yield coordinator


def _utc(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%SZ}"


def test_the_whole_lab_is_shown_in_the_terminal_as_a_page_as_json_and_as_metrics(
    coordinator: BareCoordinator, fsjoule: CommandLine, tmp_path: Path
) -> None:
    now_s = time.time()
    facts = LabFacts("evk-1", coordinator.address, (), None, "ci@runner")
    run = replace(
        make_run().run, started_utc=_utc(now_s - _HOUR_S), finished_utc=_utc(now_s - _HOUR_S + 400), lab=facts
    )
    write_whole(tmp_path / "results", run, ())
    with connected() as there:
        set_state(there, "evk-1", PlaceHealth.GOOD, "the doctor: all ok")
        note_end(there, "evk-2", Part.METER, 1)
    coordinator.client("acquire", place="evk-1", user="ada")

    def wait() -> None:
        with acquired_place("", wanted=place_request("soc=imx6ul", "2m", 10.0)):
            pass

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    within(lambda: coordinator.reservations() == ["waiting"])
    try:
        document = fsjoule("place", "status", "--json", "--page", "lab.html", "--openmetrics", "lab.prom").document
        shown = fsjoule("place", "status", "results", "--wide", "--last", "1").out
    finally:
        coordinator.client("release", place="evk-1", user="ada")
        thread.join(LIMIT_S)
    first, second = document["places"]
    assert (first["health"], first["why"], first["holder"]) == ("good", "the doctor: all ok", "otherhost/ada")
    assert (second["health"], second["faults_in_a_row"], second["holder"]) == ("bad", 1, "")
    assert first["usage"][0]["held_s"] == pytest.approx(400)
    assert [each["run_id"] for each in first["last_runs"]] == [run.run_id]
    [waiting] = document["queue"]
    assert (waiting["tags"], waiting["priority"]) == ({"soc": "imx6ul", "state": "good"}, 10)
    assert waiting["places"] == ["evk-1"], "the bad one is not in the pool"
    families = {each.name: each for each in text_string_to_metric_families(Path("lab.prom").read_text())}
    held = {each.labels["place"]: each.value for each in families["fsjoule_place_held"].samples}
    assert held == {"evk-1": 1, "evk-2": 0}
    assert families["fsjoule_reservations_waiting"].samples[0].value == 1
    assert "otherhost/ada, for " in Path("lab.html").read_text()
    assert "2 places: 1 good, 1 bad; 1 held, 1 reservation waits" in shown
    assert "1 fault of the lab in a row, the last: meter" in shown
    assert "soc=imx6ul state=good" in shown


def test_a_lab_without_any_run_is_shown_and_a_wrong_folder_refused(
    coordinator: BareCoordinator, fsjoule: CommandLine
) -> None:
    del coordinator
    assert "2 places: 2 of unknown state; none held, nobody waits" in fsjoule("place", "status").out
    assert fsjoule("place", "status", "nowhere").code == 2


def test_the_units_command_is_one(fsjoule: CommandLine) -> None:
    unit = (Path(__file__).parents[2] / "labgrid" / "systemd" / "fsjoule-lab-status.service").read_text()
    begin = unit.partition("ExecStart=")[2].partition("TimeoutStartSec")[0].replace("\\\n", " ").split()
    assert begin[0].endswith("/fsjoule")
    assert begin[1:3] == ["place", "status"]
    options = [word for word in begin if word.startswith("--")]
    told = fsjoule("place", "status", "--help").out
    assert options == ["--page", "--openmetrics"]
    assert all(option in told for option in options)
