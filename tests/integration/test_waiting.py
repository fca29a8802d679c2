"""Waiting for a place in the queue of a real coordinator, whose places have no boards."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Self
from weakref import WeakKeyDictionary

import pytest
from bare_coordinator import LIMIT_S, BareCoordinator, bare_coordinator, within
from interruptible import interruptible

from fsjoule.errors import ConfigError, FsjouleError, LabError, PlaceHeldError
from fsjoule.host.messages import lines_to
from fsjoule.lab import acquired_place, find_places, place_request, read_environment
from fsjoule.lab.coordinator import Coordinator, connected, user
from fsjoule.lab.reservation import reserved
from fsjoule.runs.held_lab import HeldLab

PROJECT = Path(__file__).parents[2]
_BUSY = "otherhost/ada"


_LINES: Final = WeakKeyDictionary[threading.Thread, list[str]]()


@pytest.fixture(autouse=True)
def _lines_of_each_thread() -> Generator[None]:
    with lines_to(lambda line: _LINES.setdefault(threading.current_thread(), []).append(line)):
        yield


@pytest.fixture(name="coordinator")
def _coordinator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[BareCoordinator]:
    monkeypatch.setenv("FSJOULE_STATE_DIR", str(tmp_path / "state"))
    for name in ("LG_HOSTNAME", "LG_USERNAME", "LG_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    with bare_coordinator(tmp_path, monkeypatch.setenv) as coordinator:
        yield coordinator


class Waiter:
    """Waits for a place in a thread, holds it until it is told to end, and tells `events` what it has."""

    def __init__(
        self, name: str, place: str = "", tag: str | None = None, *, priority: float = 0.0, events: list[str]
    ) -> None:
        self.name = name
        self.error: FsjouleError | None = None
        self.end = threading.Event()
        self._events = events
        self._arguments = (place, place_request(tag, "2m", priority))
        self._thread = threading.Thread(target=self._hold, daemon=True)
        self.lines = _LINES.setdefault(self._thread, [])
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.end.set()
        self._thread.join(LIMIT_S)
        assert not self._thread.is_alive()

    def _hold(self) -> None:
        place, wanted = self._arguments
        try:
            with acquired_place(place, wanted=wanted) as held:
                self._events.append(f"{self.name} has {held.name}")
                assert self.end.wait(LIMIT_S)
                held.check()
                self._events.append(f"{self.name} ends")
        except FsjouleError as error:
            self.error = error

    @property
    def waits(self) -> bool:
        return any(line.startswith("waiting for ") for line in self.lines)


def test_two_runs_for_one_place_come_one_after_the_other(coordinator: BareCoordinator) -> None:
    coordinator.make("bench")
    coordinator.client("acquire", user="ada")
    events: list[str] = []
    with Waiter("first", "bench", events=events) as first:
        within(lambda: first.waits)
        with Waiter("second", "bench", events=events) as second:
            within(lambda: second.waits)
            coordinator.client("release", user="ada")
            within(lambda: events == ["first has bench"], lambda: events)
            assert coordinator.reservations() == ["waiting"], "the first needs its own no more"
            first.end.set()
            within(lambda: len(events) == 3, lambda: events)
            second.end.set()
    assert events == ["first has bench", "first ends", "second has bench", "second ends"]
    assert re.fullmatch(
        r"waiting for the place 'bench', 0 s of at most 2 min; number 1 of 1 in the queue; "
        rf"bench is held by {_BUSY} since \d{{4}}-.* UTC",
        first.lines[0],
    )
    assert "number 2 of 2 in the queue" in second.lines[0]
    assert coordinator.holders() == {"bench": None}
    assert coordinator.reservations() == []


def test_three_runs_share_two_places_with_a_tag(coordinator: BareCoordinator) -> None:
    coordinator.make("evk-1", soc="imx6ul")
    coordinator.make("evk-2", soc="imx6ul", sd="fast")
    coordinator.make("pi-1", soc="bcm2837")
    events: list[str] = []
    with Waiter("a", tag="soc=imx6ul", events=events) as a:
        within(lambda: len(events) == 1)
        with Waiter("b", tag="soc=imx6ul", events=events):
            within(lambda: len(events) == 2)
            assert {each.split()[-1] for each in events} == {"evk-1", "evk-2"}
            with Waiter("c", tag="soc=imx6ul", events=events) as c:
                within(lambda: c.waits)
                assert "evk-1 is held by" in c.lines[0]
                assert "evk-2 is held by" in c.lines[0]
                assert "pi-1" not in c.lines[0]
                assert len(events) == 2
                a.end.set()
                within(lambda: len(events) == 4, lambda: events)
                assert events[2:] == ["a ends", events[0].replace("a has", "c has")]
    assert set(coordinator.holders().values()) == {None}
    assert coordinator.reservations() == []


def test_the_highest_priority_is_served_first_then_the_longest_wait(coordinator: BareCoordinator) -> None:
    coordinator.make("bench", soc="imx6ul")
    coordinator.client("acquire", user="ada")
    events: list[str] = []
    waiters: list[Waiter] = []
    for name, priority in (("nightly", 0.0), ("weekly", 0.0), ("request", 10.0)):
        waiters.append(Waiter(name, tag="soc=imx6ul", priority=priority, events=events))
        within(lambda: waiters[-1].waits)
    assert "number 1 of 3" in waiters[-1].lines[0]
    coordinator.client("release", user="ada")
    for name in ("request", "nightly", "weekly"):
        within(lambda name=name: f"{name} has bench" in events, lambda: events)
        next(each for each in waiters if each.name == name).end.set()
    for each in waiters:
        each.__exit__()
    assert [each for each in events if "has" in each] == [
        "request has bench",
        "nightly has bench",
        "weekly has bench",
    ]
    assert coordinator.reservations() == []


def test_a_wait_has_an_end_that_says_who_has_the_place(coordinator: BareCoordinator) -> None:
    coordinator.make("bench", soc="imx6ul")
    coordinator.client("acquire", user="ada")
    with (
        pytest.raises(PlaceHeldError, match=rf"'bench' is held by {_BUSY} since") as caught,
        acquired_place("bench", wanted=place_request(None, "1s", None)),
    ):
        pass
    assert caught.value.__notes__ == ["it was not free within 1 s"]
    coordinator.make("other", soc="imx6ul")
    coordinator.client("acquire", place="other", user="bob")
    wanted = place_request("soc=imx6ul", None, None)
    with (
        pytest.raises(LabError, match="a place with soc=imx6ul was not free: ") as both,
        acquired_place("", wanted=wanted),
    ):
        pass
    assert f"bench is held by {_BUSY}" in both.value.what
    assert "other is held by otherhost/bob" in both.value.what
    assert both.value.transient
    with (
        pytest.raises(ConfigError, match="has soc=am335x") as none,
        acquired_place("", wanted=place_request("soc=am335x", "1h", None)),
    ):
        pass
    assert "soc=imx6ul" in (none.value.hint or "")
    assert coordinator.reservations() == []


def test_what_is_awaited_is_said_again_and_again(coordinator: BareCoordinator, said: list[str]) -> None:
    coordinator.make("bench")
    coordinator.client("acquire", user="ada")
    with suppress(PlaceHeldError), reserved(place_request(None, "3s", None), name="bench", line_s=0.5):
        pass
    assert 2 <= len(said) <= 7, said
    said.clear()
    with suppress(PlaceHeldError), reserved(place_request(None, "3s", None), name="bench"):
        pass
    assert len(said) == 1, "one a minute"


def test_who_waits_goes_on_waiting_at_a_coordinator_that_was_restarted(coordinator: BareCoordinator) -> None:
    coordinator.make("bench", soc="imx6ul")
    coordinator.client("acquire", user="ada")
    events: list[str] = []
    with Waiter("run", tag="soc=imx6ul", events=events) as run:
        within(lambda: run.waits)
        coordinator.stop()
        within(lambda: any("waiting for the coordinator" in line for line in run.lines), lambda: run.lines)
        # It has forgotten its holders and reservations, and places that it had not saved yet.
        coordinator.start()
        if not coordinator.holders():
            coordinator.make("bench", soc="imx6ul")
        within(lambda: events == ["run has bench"], lambda: (events, run.lines, run.error))
    assert run.error is None
    assert coordinator.reservations() == []


def test_a_holder_who_is_kicked_makes_room(coordinator: BareCoordinator) -> None:
    coordinator.make("bench")
    coordinator.client("acquire", user="ada")
    events: list[str] = []
    with Waiter("run", "bench", events=events) as run:
        within(lambda: run.waits)
        coordinator.client("release", "--kick")
        within(lambda: bool(events), lambda: run.lines)
        coordinator.client("release", "--kick")
        coordinator.client("acquire", user="bob")
        run.end.set()
        within(lambda: run.error is not None)
        assert "taken away during the run: otherhost/bob has it since" in str(run.error)
    assert coordinator.holders() == {"bench": "otherhost/bob"}
    assert coordinator.reservations() == []


def test_a_reservation_that_somebody_cancels_ends_the_wait(coordinator: BareCoordinator) -> None:
    coordinator.make("bench")
    coordinator.client("acquire", user="ada")
    with Waiter("run", "bench", events=[]) as run:
        within(lambda: run.waits)
        with connected() as found:
            [token] = [each.token for each in found.reservations()]
        coordinator.client("cancel-reservation", token)
        within(lambda: run.error is not None, lambda: run.lines)
    assert "the reservation for the place 'bench' was cancelled" in str(run.error)


def test_a_coordinator_that_goes_on_failing_is_not_asked_without_a_pause(coordinator: BareCoordinator) -> None:
    coordinator.make("bench")
    looks: list[str] = []

    def usable(_coordinator: Coordinator, name: str) -> bool:
        looks.append(name)
        raise LabError("it fails", transient=True)

    with pytest.raises(LabError), reserved(place_request(None, "3s", None), name="bench", usable=usable):
        pass
    assert len(looks) <= 4


def test_a_wait_during_which_the_reservation_expired_reserves_again(
    coordinator: BareCoordinator, said: list[str]
) -> None:
    """So it is when the process stood still for two minutes: a reservation that nobody polls is dropped."""
    coordinator.make("bench")
    coordinator.client("acquire", user="ada")
    looks = 0

    def usable(_coordinator: Coordinator, _name: str) -> bool:
        nonlocal looks
        looks += 1
        with connected() as other:
            tokens = [each.token for each in other.reservations()]
        if looks == 2:
            coordinator.client("cancel-reservation", *tokens)
        elif looks == 3:
            coordinator.client("release", user="ada")
        return False

    with reserved(place_request(None, "2m", None), name="bench", usable=usable, expires_s=0) as turn:
        assert (turn.place, turn.allocated) == ("bench", True)
    assert "the reservation for the place 'bench' has expired: reserving again" in said
    assert coordinator.reservations() == []


def test_a_reservation_of_ones_own_is_awaited_and_kept(coordinator: BareCoordinator) -> None:
    coordinator.make("bench", soc="imx6ul")
    coordinator.client("acquire", user="ada")
    token = coordinator.client("reserve", "--shell", "soc=imx6ul").strip().partition("=")[2]
    events: list[str] = []
    with Waiter("run", f"+{token}", events=events) as run:
        within(lambda: run.waits)
        assert coordinator.reservations() == ["waiting"]
        coordinator.client("release", user="ada")
        within(lambda: events == ["run has bench"], lambda: run.lines)
        assert coordinator.reservations() == ["acquired"]
    assert coordinator.reservations() == ["allocated"], "it is the user's"
    with Waiter("again", "+NONE", events=events) as none:
        within(lambda: none.error is not None)
    assert isinstance(none.error, ConfigError)


def test_ones_own_place_needs_no_wait_unless_a_run_uses_it(coordinator: BareCoordinator) -> None:
    coordinator.make("bench", soc="imx6ul")
    coordinator.client("acquire")
    events: list[str] = []
    with Waiter("by hand", tag="soc=imx6ul", events=events) as first:
        within(lambda: events == ["by hand has bench"])
        with Waiter("second", tag="soc=imx6ul", events=events) as second:
            within(lambda: second.waits)
            assert len(events) == 1
            first.end.set()
            within(lambda: "second has bench" in events, lambda: events)
    assert coordinator.holders() == {"bench": user()}, "it was acquired by hand"
    assert coordinator.reservations() == []


def test_labgrid_is_told_the_place_that_tags_have_chosen(
    coordinator: BareCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    coordinator.make("bench", soc="imx6ul")
    coordinator.make("other")
    monkeypatch.setenv("LG_PLACE", "other")
    wanted = place_request("soc=imx6ul", "1m", None)
    held = HeldLab(read_environment(PROJECT / "env" / "virtual.yaml", wanted))
    held.find()
    assert os.environ["LG_PLACE"] == "other"
    held.bring_up(())
    with held.place():
        assert os.environ["LG_PLACE"] == "bench"
        assert coordinator.holders() == {"bench": user(), "other": None}
    held.close()
    assert os.environ["LG_PLACE"] == "other"
    assert set(coordinator.holders().values()) == {None}
    with pytest.raises(ConfigError, match="the environment file names imx6ul-evk"):
        find_places(("imx6ul-evk",), wanted)


def test_what_is_taken_or_missing_is_said_before_anything_is_built(coordinator: BareCoordinator) -> None:
    coordinator.make("bench", soc="imx6ul")
    coordinator.client("acquire", user="ada")
    taken, awaited, missing = (
        place_request(*each, None) for each in (("soc=imx6ul", None), ("soc=imx6ul", "1m"), ("soc=am335x", "1m"))
    )
    with pytest.raises(PlaceHeldError, match=_BUSY):
        find_places(("$LG_PLACE",), taken)
    assert find_places(("$LG_PLACE",), awaited) == ("",)
    with pytest.raises(ConfigError, match="has soc=am335x"):
        find_places(("$LG_PLACE",), missing)


_RUN = """
import sys
from fsjoule.host import interrupts
from fsjoule.host.messages import lines_to
from fsjoule.lab import acquired_place, place_request

def show(line):
    print(line, flush=True)

try:
    wanted = place_request("soc=imx6ul", "5m", None)
    with lines_to(show), interrupts.handled(), acquired_place("", wanted=wanted) as held:
        show(f"has {held.name}")
        with interrupts.interruptible():
            sys.stdin.readline()
except KeyboardInterrupt:
    sys.exit(interrupts.exit_code())
"""


def _started() -> subprocess.Popen[str]:
    argv: Sequence[str] = interruptible(sys.executable, "-c", _RUN)
    return subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _until(run: subprocess.Popen[str], says: Callable[[str], bool]) -> None:
    assert run.stdout is not None
    assert any(map(says, run.stdout)), "it has ended"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_wait_or_the_use_and_leaves_nothing_behind(
    coordinator: BareCoordinator, number: signal.Signals
) -> None:
    coordinator.make("bench", soc="imx6ul")
    with _started() as user_:
        _until(user_, lambda line: line == "has bench\n")
        with _started() as waiter:
            _until(waiter, lambda line: line.startswith("waiting for a place with soc=imx6ul"))
            waiter.send_signal(number)
            assert waiter.wait(LIMIT_S) == 128 + number
            assert coordinator.reservations() == []
        user_.send_signal(number)
        assert user_.wait(LIMIT_S) == 128 + number
    assert coordinator.holders() == {"bench": None}
    assert coordinator.reservations() == []


@pytest.mark.slow
def test_what_a_killed_waiter_and_a_killed_run_leave_is_cleared_up(coordinator: BareCoordinator) -> None:
    coordinator.make("bench", soc="imx6ul")
    with _started() as run:
        _until(run, lambda line: line == "has bench\n")
        with _started() as waiter:
            _until(waiter, lambda line: line.startswith("waiting for a place with soc=imx6ul"))
            waiter.kill()
        run.kill()
    assert coordinator.holders() == {"bench": user()}
    events: list[str] = []
    # The place is taken over from the killed run of ours; nobody waits for the reservation of the killed waiter.
    with Waiter("next", tag="soc=imx6ul", events=events) as following:
        within(lambda: events == ["next has bench"], lambda: following.lines)
    assert coordinator.holders() == {"bench": None}
