"""States of places at a real coordinator: who chooses by tags gets a good board, and waits until there is one."""

from __future__ import annotations

import threading
from collections.abc import Generator
from pathlib import Path

import pytest
from bare_coordinator import LIMIT_S, BareCoordinator, bare_coordinator, within
from command_line import CommandLine, command_line

from fsjoule.errors import ConfigError, LabError
from fsjoule.lab import acquired_place, wanted_place
from fsjoule.lab.coordinator import connected
from fsjoule.lab.placenames import find_places
from fsjoule.lab.states import State, judge, set_state, states
from fsjoule.runs.doctor import examined_places

_OPEN = ("$LG_PLACE",)


@pytest.fixture(name="coordinator")
def _coordinator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[BareCoordinator]:
    monkeypatch.setenv("FSJOULE_STATE_DIR", str(tmp_path / "state"))
    with bare_coordinator(tmp_path, monkeypatch.setenv) as coordinator:
        for name in ("evk-1", "evk-2"):
            coordinator.make(name, soc="imx6ul")
        yield coordinator


@pytest.fixture(name="fsjoule")
def _fsjoule(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> CommandLine:
    return command_line(monkeypatch, capfd)


def _set(**wanted: State | None) -> None:
    with connected() as coordinator:
        for name, state in wanted.items():
            set_state(coordinator, name.replace("_", "-"), state)


def _taken(wait: str | None = None) -> str:
    lines: list[str] = []
    with acquired_place("", say=lines.append, wanted=wanted_place("soc=imx6ul", wait, None)) as held:
        return held.name


def test_a_pool_gives_good_boards_only_once_one_of_them_has_a_state(coordinator: BareCoordinator) -> None:
    assert _taken() in {"evk-1", "evk-2"}
    _set(evk_1=State.BAD, evk_2=State.GOOD)
    assert {_taken() for _ in range(3)} == {"evk-2"}
    with connected() as there:
        assert [(each.name, each.state) for each in states(there)] == [("evk-1", "bad"), ("evk-2", "good")]
    _set(evk_1=State.GOOD, evk_2=State.MAINTENANCE)
    assert _taken() == "evk-1"
    _set(evk_1=None, evk_2=None)
    assert _taken() in {"evk-1", "evk-2"}
    assert coordinator.reservations() == []


def test_without_a_good_board_the_states_are_told_at_once(coordinator: BareCoordinator) -> None:
    assert coordinator.holders() == {"evk-1": None, "evk-2": None}
    _set(evk_1=State.MAINTENANCE)
    said = "with soc=imx6ul and state=good was not free: evk-1 is maintenance; evk-2 is without a state"
    with pytest.raises(LabError, match=said):
        find_places(_OPEN, wanted_place("soc=imx6ul", None, None))
    with pytest.raises(LabError, match="evk-1 is maintenance; evk-2 is without a state"):
        _taken()
    with pytest.raises(ConfigError, match=r"no place .* has soc=none"):
        find_places(_OPEN, wanted_place("soc=none", None, None))


def test_a_named_place_is_used_whatever_its_state_and_that_is_said(coordinator: BareCoordinator) -> None:
    _set(evk_1=State.BAD)
    lines: list[str] = []
    with acquired_place("evk-1", say=lines.append) as held:
        assert coordinator.holders()["evk-1"] is not None
        # Its state changes while it is held, and it stays ours.
        _set(evk_1=State.GOOD)
        held.check()
    assert "has the state bad, and is used because it was named" in lines[0]
    assert coordinator.holders()["evk-1"] is None


def test_a_waiting_run_gets_the_board_that_becomes_good_and_not_the_one_that_becomes_bad(
    coordinator: BareCoordinator,
) -> None:
    for name in ("evk-1", "evk-2"):
        coordinator.client("acquire", place=name, user="ada")
    taken: list[str] = []
    lines: list[str] = []

    def wait() -> None:
        with acquired_place("", say=lines.append, wanted=wanted_place("soc=imx6ul", "2m", None)) as held:
            taken.append(held.name)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    within(lambda: coordinator.reservations() == ["waiting"])
    _set(evk_1=State.BAD, evk_2=State.BAD)
    within(lambda: coordinator.reservations() == [], lambda: lines)
    for name in ("evk-1", "evk-2"):
        coordinator.client("release", place=name, user="ada")
    _set(evk_2=State.GOOD)
    thread.join(LIMIT_S)
    assert (taken, coordinator.holders(), coordinator.reservations()) == (["evk-2"], {"evk-1": None, "evk-2": None}, [])


def test_an_examination_gives_a_state_except_in_maintenance(coordinator: BareCoordinator) -> None:
    del coordinator
    with connected() as there:
        assert judge(there, "evk-1", good=False) == "bad"
        assert judge(there, "evk-1", good=True) == "good"
        set_state(there, "evk-1", State.MAINTENANCE)
        assert judge(there, "evk-1", good=True) == "maintenance"
        assert [each.state for each in states(there)] == ["maintenance", ""]
        with pytest.raises(ConfigError, match="unknown place 'evk-9'"):
            judge(there, "evk-9", good=True)


def test_a_person_takes_a_place_out_of_its_pool_and_back(coordinator: BareCoordinator, fsjoule: CommandLine) -> None:
    coordinator.client("acquire", place="evk-1", user="ada")
    assert fsjoule("place", "maintenance", "evk-1").out == "place 'evk-1': maintenance\n"
    listed = fsjoule("place", "list", "--json").document
    assert [(each["place"], each["state"], each["holder"]) for each in listed] == [
        ("evk-1", "maintenance", "otherhost/ada"),
        ("evk-2", "", ""),
    ]
    assert "evk-1  maintenance  otherhost/ada  soc=imx6ul" in fsjoule("place", "list").out
    assert fsjoule("place", "maintenance", "evk-1", "--end").code == 0
    assert fsjoule("place", "maintenance", "evk-9").code == 2
    with connected() as there:
        assert [each.state for each in states(there)] == ["good", ""]


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
