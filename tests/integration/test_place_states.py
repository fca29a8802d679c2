"""States of places at a real coordinator: who chooses by tags gets a good board, and waits until there is one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Mapping
from pathlib import Path

import pytest
from bare_coordinator import LIMIT_S, BareCoordinator, bare_coordinator, within
from command_line import CommandLine
from place_checks import PlaceNights

from fsjoule.errors import ConfigError, ExporterError, LabError, Part
from fsjoule.host.messages import lines_to
from fsjoule.lab import acquired_place, acquired_places, place_request, read_environment
from fsjoule.lab.coordinator import Coordinator, connected
from fsjoule.lab.placenames import find_places
from fsjoule.lab.states import PlaceState, bad_after, judge, note_drift, note_end, set_state, states
from fsjoule.model.places import PlaceHealth
from fsjoule.runs.doctor import examined_places
from fsjoule.runs.held_lab import HeldLab

_OPEN = ("$LG_PLACE",)


@pytest.fixture(name="coordinator")
def _coordinator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[BareCoordinator]:
    monkeypatch.setenv("FSJOULE_STATE_DIR", str(tmp_path / "state"))
    with bare_coordinator(tmp_path, monkeypatch.setenv) as coordinator:
        for name in ("evk-1", "evk-2"):
            coordinator.make(name, soc="imx6ul")
        yield coordinator


def _set(**wanted: PlaceHealth) -> None:
    with connected() as coordinator:
        for name, state in wanted.items():
            set_state(coordinator, name.replace("_", "-"), state)


def _taken(wait: str | None = None) -> str:
    with acquired_place("", wanted=place_request("soc=imx6ul", wait, None)) as held:
        return held.name


def test_a_pool_gives_good_boards_only_once_one_of_them_has_a_state(coordinator: BareCoordinator) -> None:
    assert _taken() in {"evk-1", "evk-2"}
    _set(evk_1=PlaceHealth.BAD, evk_2=PlaceHealth.GOOD)
    assert {_taken() for _ in range(3)} == {"evk-2"}
    with connected() as there:
        assert [(each.name, each.state) for each in states(there)] == [("evk-1", "bad"), ("evk-2", "good")]
    _set(evk_1=PlaceHealth.GOOD, evk_2=PlaceHealth.MAINTENANCE)
    assert _taken() == "evk-1"
    _set(evk_1=PlaceHealth.UNKNOWN, evk_2=PlaceHealth.UNKNOWN)
    assert _taken() in {"evk-1", "evk-2"}
    assert coordinator.reservations() == []


def test_without_a_good_board_the_states_are_told_at_once(coordinator: BareCoordinator) -> None:
    assert coordinator.holders() == {"evk-1": None, "evk-2": None}
    _set(evk_1=PlaceHealth.MAINTENANCE)
    said = "with soc=imx6ul and state=good was not free: evk-1 is maintenance; evk-2 is of unknown state"
    with pytest.raises(LabError, match=said):
        find_places(_OPEN, place_request("soc=imx6ul", None, None))
    with pytest.raises(LabError, match="evk-1 is maintenance; evk-2 is of unknown state"):
        _taken()
    with pytest.raises(ConfigError, match=r"no place .* has soc=none"):
        find_places(_OPEN, place_request("soc=none", None, None))


def test_a_named_place_is_used_whatever_its_state_and_that_is_said(
    coordinator: BareCoordinator, said: list[str]
) -> None:
    _set(evk_1=PlaceHealth.BAD)
    with acquired_place("evk-1") as held:
        assert coordinator.holders()["evk-1"] is not None
        # Its state changes while it is held, and it stays ours.
        _set(evk_1=PlaceHealth.GOOD)
        held.check()
    assert "has the state bad, and is used because it was named" in said[0]
    assert coordinator.holders()["evk-1"] is None


def test_a_waiting_run_gets_the_board_that_becomes_good_and_not_the_one_that_becomes_bad(
    coordinator: BareCoordinator,
) -> None:
    for name in ("evk-1", "evk-2"):
        coordinator.client("acquire", place=name, user="ada")
    taken: list[str] = []

    def wait() -> None:
        with acquired_place("", wanted=place_request("soc=imx6ul", "2m", None)) as held:
            taken.append(held.name)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    within(lambda: coordinator.reservations() == ["waiting"])
    _set(evk_1=PlaceHealth.BAD, evk_2=PlaceHealth.BAD)
    within(lambda: coordinator.reservations() == [])
    for name in ("evk-1", "evk-2"):
        coordinator.client("release", place=name, user="ada")
    _set(evk_2=PlaceHealth.GOOD)
    thread.join(LIMIT_S)
    assert (taken, coordinator.holders(), coordinator.reservations()) == (["evk-2"], {"evk-1": None, "evk-2": None}, [])


def test_an_examination_gives_a_state_except_in_maintenance(coordinator: BareCoordinator) -> None:
    del coordinator
    with connected() as there:
        assert judge(there, "evk-1", good=False) == "bad"
        assert judge(there, "evk-1", good=True) == "good"
        set_state(there, "evk-1", PlaceHealth.MAINTENANCE)
        assert judge(there, "evk-1", good=True) == "maintenance"
        assert [each.state for each in states(there)] == ["maintenance", "unknown"]
        with pytest.raises(ConfigError, match="unknown place 'evk-9'"):
            judge(there, "evk-9", good=True)


def test_a_place_that_drifts_is_doubtful_until_it_is_in_control(
    coordinator: BareCoordinator, fsjoule: CommandLine, tmp_path: Path
) -> None:
    del coordinator
    results = tmp_path / "results"
    for place in ("evk-1", "elsewhere"):
        PlaceNights(place, gain=lambda night: 1.05 if night >= 12 else 1.0).write(results, 15)
    done = fsjoule("place", "drift", "--results", results, "--mark")
    assert done.code == 1
    assert "place 'evk-1': doubtful, power of cpu +5" in done.err
    assert "elsewhere" not in done.err
    with connected() as there:
        assert [each.state for each in states(there)] == ["doubtful", "good"]
        assert judge(there, "evk-1", good=True) == "doubtful"
        assert note_drift(there, "evk-1", "") == "place 'evk-1': good, in control again"
        assert note_drift(there, "evk-1", "") == ""
        set_state(there, "evk-1", PlaceHealth.MAINTENANCE)
        assert note_drift(there, "evk-1", "power of cpu +0.8 %") == ""


def test_a_person_takes_a_place_out_of_its_pool_and_back(coordinator: BareCoordinator, fsjoule: CommandLine) -> None:
    coordinator.client("acquire", place="evk-1", user="ada")
    assert fsjoule("place", "maintenance", "evk-1", "--why", "a new card").out == "place 'evk-1': maintenance\n"
    listed = fsjoule("place", "list", "--json").document
    assert [(each["place"], each["state"], each["holder"], each["tags"]) for each in listed] == [
        ("evk-1", "maintenance", "otherhost/ada", {"soc": "imx6ul"}),
        ("evk-2", "unknown", "", {"soc": "imx6ul"}),
    ]
    assert listed[0]["why"].endswith(": a new card")
    shown = fsjoule("place", "list", "--wide").out
    assert "maintenance" in shown
    assert "a new card" in shown
    assert fsjoule("place", "maintenance", "evk-1", "--end").code == 0
    assert fsjoule("place", "maintenance", "evk-9").code == 2
    with connected() as there:
        assert [each.state for each in states(there)] == ["good", "unknown"]


def test_each_place_is_examined_with_its_own_environment_file(coordinator: BareCoordinator) -> None:
    coordinator.client("set-tags", "board=beaglebone-black", place="evk-1")
    coordinator.make("evk-3", environment="virtual")
    coordinator.make("evk-4", environment="virtual", state="maintenance")
    script = 'echo "{\\"place\\": \\"$4\\", \\"environment\\": \\"$2\\"}"; [ "$4" = evk-1 ] || exit 4'
    found = list(examined_places(["sh", "-c", script, "sh"], None))
    assert [(each.code, each.document["place"]) for each in found] == [
        (0, "evk-1"),
        (0, "evk-2"),
        (4, "evk-3"),
        (0, "evk-4"),
    ]
    first, second, third, fourth = (each.document for each in found)
    assert first["environment"].endswith("env/boards/beaglebone-black.yaml")
    assert second["not_examined"] == "no environment file is known for the place 'evk-2'"
    assert third["environment"].endswith("env/virtual.yaml")
    assert fourth["not_examined"] == "it is in maintenance"
    [refused, *_] = examined_places(["sh", "-c", "exit 4"], Path("env/virtual.yaml"))
    assert (refused.code, refused.document["not_examined"]) == (4, "exit code 4")


def _known() -> dict[str, PlaceState]:
    with connected() as coordinator:
        return {each.name: each for each in states(coordinator)}


def _run(part: Part | None, bad_after: int = 3) -> str:
    """What is said after a run at evk-1 whose end is noted before the place is given back."""
    lines: list[str] = []
    with lines_to(lines.append), acquired_places(["evk-1"]) as guard:
        guard.note_end(part, bad_after)
        guard.check()
    return "\n".join(line for line in lines if "acquired" not in line and "released" not in line)


def test_faults_in_a_row_make_a_board_bad_and_its_pool_goes_on_without_it(coordinator: BareCoordinator) -> None:
    assert _run(Part.CONSOLE) == "place 'evk-1': fault 1 of 3 that make it bad, in a row (console)"
    assert _run(None) == "place 'evk-1': its 1 fault in a row is over"
    assert _run(None) == ""
    assert (_known()["evk-1"].state, _known()["evk-1"].faults) == ("unknown", 0)
    assert "fault 2 of 3" in [_run(Part.POWER) for _ in range(2)][1]
    said = _run(Part.FLASHER)
    assert said.startswith(
        "place 'evk-1': bad, 3 faults of the lab in a row, the last: flasher; its pool leaves it out"
    )
    assert "; evk-2 had no state, and is good" in said
    bad, other = _known()["evk-1"], _known()["evk-2"]
    assert (bad.state, bad.why, bad.faults) == ("bad", "3 faults of the lab in a row, the last: flasher", 3)
    assert bad.since.startswith("20")
    assert bad.tags == {"soc": "imx6ul"}
    assert (other.state, other.why) == ("good", "no fault is known; evk-1 became bad")
    assert _taken() == "evk-2"
    # Its next run ends well: only the doctor says that it is good.
    assert "its 3 faults in a row are over" in _run(None)
    assert _known()["evk-1"].state == "bad"
    with connected() as there:
        judge(there, "evk-1", good=True, why="the doctor: all ok")
    assert (_known()["evk-1"].state, _known()["evk-1"].why) == ("good", "the doctor: all ok")
    assert coordinator.holders() == {"evk-1": None, "evk-2": None}


class _Slow(Coordinator):
    """A connection before whose first tag another program does something."""

    meanwhile: Callable[[], object] | None = None

    def set_tags(self, name: str, tags: Mapping[str, str]) -> None:
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        super().set_tags(name, tags)


def test_boards_that_fail_at_once_are_all_bad(coordinator: BareCoordinator) -> None:
    """An exporter that dies takes several boards with it, each of which has a process of its own."""
    coordinator.make("evk-3", soc="imx6ul")
    first = _Slow()
    with connected() as second:
        first.meanwhile = lambda: note_end(second, "evk-2", Part.EXPORTER, 1)
        note_end(first, "evk-1", Part.EXPORTER, 1)
    first.close()
    assert {name: each.state for name, each in _known().items()} == {"evk-1": "bad", "evk-2": "bad", "evk-3": "good"}


def test_faults_leave_a_place_alone_that_is_in_maintenance_or_where_nobody_wants_it(
    coordinator: BareCoordinator,
) -> None:
    del coordinator
    assert "fault 1, in a row (meter)" in _run(Part.METER, bad_after=0)
    assert "fault 2, in a row (meter)" in _run(Part.METER, bad_after=0)
    assert _known()["evk-1"].state == "unknown"
    _set(evk_1=PlaceHealth.MAINTENANCE)
    lines = _run(Part.METER, bad_after=1).splitlines()
    assert lines == ["place 'evk-1' has the state maintenance, and is used because it was named"]
    assert (_known()["evk-1"].state, _known()["evk-1"].faults) == ("maintenance", 0)


def test_a_place_that_was_taken_away_gets_no_note(coordinator: BareCoordinator, said: list[str]) -> None:
    with acquired_places(["evk-1"]) as guard:
        coordinator.client("release", "--kick", place="evk-1", user="ada")
        guard.note_end(Part.POWER, 3)
    assert _known()["evk-1"].faults == 0
    assert any("is not released" in line for line in said)


def test_a_board_without_its_exporter_is_noted_by_the_run_that_wanted_it(
    coordinator: BareCoordinator, monkeypatch: pytest.MonkeyPatch, said: list[str]
) -> None:
    coordinator.client("add-match", "rack3/evk-1/NetworkSerialPort/default", place="evk-1")
    monkeypatch.setenv("LG_PLACE", "evk-1")
    held = HeldLab(read_environment(Path("env/boards/imx6ul-evk.yaml")))
    held.find()
    with pytest.raises(ExporterError, match="'evk-1' lacks a resource"), held.place():
        pass
    held.close()
    assert said[-1] == "place 'evk-1': fault 1 of 3 that make it bad, in a row (exporter)"
    assert (_known()["evk-1"].faults, coordinator.holders()["evk-1"]) == (1, None)


def test_bad_places_alone_are_rechecked(coordinator: BareCoordinator, fsjoule: CommandLine) -> None:
    coordinator.client("set-tags", "environment=virtual", place="evk-2")
    assert fsjoule("doctor", "--all", "--recheck").out == "no place is bad\n"
    assert fsjoule("doctor", "evk-1", "--recheck").code == 2
    with connected() as there:
        for _ in range(2):
            note_end(there, "evk-2", Part.METER, 2)
    script = 'echo "{\\"place\\": \\"$4\\"}"'
    found = list(examined_places(["sh", "-c", script, "sh"], None, bad=True))
    assert [each.document["place"] for each in found] == ["evk-2"]


def test_the_number_of_faults_that_make_a_board_bad_is_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FSJOULE_BAD_AFTER", raising=False)
    assert bad_after() == 3
    monkeypatch.setenv("FSJOULE_BAD_AFTER", "0")
    assert bad_after() == 0
    monkeypatch.setenv("FSJOULE_BAD_AFTER", "-1")
    with pytest.raises(ConfigError, match="FSJOULE_BAD_AFTER='-1' is no number"):
        bad_after()
