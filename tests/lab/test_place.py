"""Who may touch a board: places of a real coordinator, held, lost, shared, reserved and left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

import pytest
from bench_runs import ENVIRONMENT, PROJECT, command
from interruptible import interruptible

from fsjoule.errors import ConfigError, LabError, PlaceHeldError, PlaceLostError
from fsjoule.lab import acquired_place, find_places, variables
from fsjoule.lab.coordinator import user
from fsjoule.model import RunStatus
from fsjoule.store.reader import load_run
from fsjoule.virtual.lab import lab
from fsjoule.virtual.lab.health import coordinator_faults

_CLIENT = Path(sys.executable).parent / "labgrid-client"
_ADA = {"LG_HOSTNAME": "otherhost", "LG_USERNAME": "ada"}
_WRITTEN = ("$LG_PLACE",)


@dataclass
class _Lab:
    state: Path

    def client(self, *arguments: str, **variables: str) -> str:
        done = subprocess.run(
            [_CLIENT, "-p", "virtual", *arguments],
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    @property
    def holder(self) -> str | None:
        return lab.status("virtual").holder

    @property
    def notes(self) -> list[Path]:
        return list((self.state / "places").iterdir())


@pytest.fixture(scope="module")
def running(module_state: Path) -> Generator[_Lab]:
    """A lab that is up, found by its variables."""
    handle = lab.up("virtual", owner_pid=os.getpid())
    with variables(handle.environment):
        yield _Lab(module_state)
    lab.down("virtual")


@pytest.fixture(name="lab_")
def _lab(running: _Lab, monkeypatch: pytest.MonkeyPatch) -> Generator[_Lab]:
    """The same, its place free before and after."""
    for name in ("LG_HOSTNAME", "LG_USERNAME", "LG_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    assert running.holder is None
    yield running
    for name in ("LG_HOSTNAME", "LG_USERNAME"):
        monkeypatch.delenv(name, raising=False)
    if running.holder is not None:
        running.client("release", "--kick")


def test_a_place_is_held_and_free_again_and_what_was_acquired_by_hand_stays_so(lab_: _Lab) -> None:
    with acquired_place("virtual") as place:
        assert lab_.holder == user()
        place.check()
        lab_.client("set-tags", "cable=short")
        place.check()
    assert lab_.holder is None
    lab_.client("acquire")
    with acquired_place("virtual") as place:
        place.check()
    assert lab_.holder == user()
    assert not lab_.notes


@pytest.mark.parametrize("again", [None, _ADA, {}], ids=["nobody", "another", "myself in another shell"])
def test_a_place_that_was_taken_away_is_noticed_at_once_and_left_alone(
    lab_: _Lab, again: dict[str, str] | None, said: list[str]
) -> None:
    with acquired_place("virtual") as place:
        place.check()
        lab_.client("release", "--kick")
        if again is not None:
            lab_.client("acquire", **again)
        with pytest.raises(PlaceLostError, match="taken away during the run: ") as caught:
            place.look()
        with pytest.raises(PlaceLostError):
            place.check()
    who = {"nobody": None, "another": "otherhost/ada", "myself": user()}
    holder = who["nobody"] if again is None else who["another"] if again else who["myself"]
    assert (holder or "nobody has it") in caught.value.what
    assert lab_.holder == holder
    assert any("is not released" in line for line in said)
    assert not lab_.notes


def test_somebody_elses_place_says_who_has_it_since_when_and_what_to_do(
    lab_: _Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab_.client("acquire", **_ADA)
    with pytest.raises(PlaceHeldError, match=r"held by otherhost/ada since \d{4}-\d\d-\d\d .* UTC") as caught:
        find_places(_WRITTEN)
    hint = caught.value.hint or ""
    assert "ask ada" in hint
    assert "--wait 30m" in hint
    assert "kick" not in hint
    with pytest.raises(PlaceHeldError, match="held by otherhost/ada"), acquired_place("virtual"):
        pass
    # One's own, of a computer that may be gone.
    monkeypatch.setenv("LG_HOSTNAME", "thishost")
    monkeypatch.setenv("LG_USERNAME", "ada")
    with pytest.raises(PlaceHeldError) as caught:
        find_places(_WRITTEN)
    assert "release it on otherhost, which is yours" in (caught.value.hint or "")
    assert lab_.holder == "otherhost/ada"


def test_a_second_run_of_ones_own_is_refused_with_the_firsts_number(lab_: _Lab) -> None:
    with acquired_place("virtual"):
        with pytest.raises(PlaceHeldError, match=f"another run of yours on this computer, process {os.getpid()} "):
            acquired_place("virtual").__enter__()
        assert lab_.holder == user()


def test_a_place_that_its_holder_allows_is_used_and_not_released(lab_: _Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    me = user()
    lab_.client("acquire", **_ADA)
    lab_.client("allow", me, **_ADA)
    assert find_places(_WRITTEN) == ("virtual",)
    with acquired_place("virtual") as place:
        place.check()
    assert lab_.holder == "otherhost/ada"
    with acquired_place("virtual") as place:
        lab_.client("release", **_ADA)
        with pytest.raises(PlaceLostError, match="nobody has it"):
            place.check()
    monkeypatch.setenv("LG_USERNAME", "bob")
    with acquired_place("virtual"):
        assert (lab_.holder or "").endswith("/bob")


def test_a_reservation_names_its_place(lab_: _Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    token = lab_.client("reserve", "--wait", "--shell", "board=virtual").strip().splitlines()[-1].partition("=")[2]
    monkeypatch.setenv("LG_PLACE", "+")
    with pytest.raises(ConfigError, match="LG_TOKEN is not set"):
        find_places(_WRITTEN)
    monkeypatch.setenv("LG_TOKEN", token)
    assert find_places(_WRITTEN) == find_places((f"+{token}",)) == ("virtual",)
    with acquired_place("virtual") as place:
        place.check()
    with pytest.raises(ConfigError, match="no place is reserved for the token 'NONE': the reservation does not exist"):
        find_places(("+NONE",))
    monkeypatch.setenv("LG_PLACE", "virtual")
    monkeypatch.setenv("LG_USERNAME", "ada")
    with pytest.raises(PlaceHeldError, match="reserved for") as caught:
        find_places(_WRITTEN)
    assert "labgrid-client reservations" in (caught.value.hint or "")
    monkeypatch.delenv("LG_USERNAME")
    lab_.client("cancel-reservation", token)


def test_without_a_name_it_is_the_only_place_or_the_one_that_is_mine(
    lab_: _Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LG_PLACE")
    assert find_places(_WRITTEN) == ("virtual",)
    assert find_places(("virtual",)) == find_places(("virt",)) == ("virtual",)
    subprocess.run([_CLIENT, "-p", "lathe", "create"], timeout=60, check=True)
    try:
        with pytest.raises(ConfigError, match="no place is named") as caught:
            find_places(_WRITTEN)
        assert "lathe, virtual" in (caught.value.hint or "")
        with pytest.raises(ConfigError, match=r"the place 't' is ambiguous: lathe, virtual"):
            find_places(("t",))
        lab_.client("acquire")
        assert find_places(_WRITTEN) == ("virtual",)
    finally:
        subprocess.run([_CLIENT, "-p", "lathe", "delete"], timeout=60, check=True)
    with pytest.raises(ConfigError, match="unknown place 'lathe'") as caught, acquired_place("lathe"):
        pass
    assert "virtual" in (caught.value.hint or "")
    with pytest.raises(ConfigError, match="no place is named"), acquired_place(""):
        pass
    with pytest.raises(ConfigError, match="has an unset variable: 'NO_SUCH'"):
        find_places(("$NO_SUCH-1",))


@pytest.mark.parametrize(
    ("address", "error"),
    [("nonsense", LabError), ("127.0.0.1:1", LabError), ("localhost:abc", ConfigError)],
)
def test_a_wrong_coordinator_is_said_at_once(
    address: str, error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LG_COORDINATOR", address)
    begin = time.monotonic()
    with pytest.raises(error, match=address):
        find_places(("virtual",))
    assert time.monotonic() - begin < 15


@pytest.mark.parametrize(
    "wrong",
    [
        ("bench", "lathe", 2, "unknown place 'lathe'"),
        ("gate", "virtual", 4, "held by otherhost/ada since"),
    ],
)
def test_a_bench_and_a_gate_say_what_is_wrong_with_the_place_before_anything_is_built(
    lab_: _Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: tuple[str, str, int, str]
) -> None:
    program, place, code, said = wrong
    lab_.client("acquire", **_ADA)
    monkeypatch.setenv("LG_PLACE", place)
    monkeypatch.setenv("FSJOULE_CACHE_DIR", str(tmp_path / "cache"))
    gate = [str(Path(sys.executable).with_name("fsjoule")), "gate", "--lg-env", str(ENVIRONMENT)]
    argv = {
        "bench": command(tmp_path / "results", "--fs", "ext4"),
        "gate": [*gate, "--baseline", "6.1", "--candidate", "6.12", "--results", str(tmp_path / "results")],
    }
    done = subprocess.run(argv[program], cwd=PROJECT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    assert said in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    assert not list(tmp_path.glob("cache/*/*"))
    assert not (tmp_path / "results").exists()


def test_a_bench_whose_place_is_taken_away_ends_at_once_and_leaves_the_board_as_it_is(
    lab_: _Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here tags have chosen the place, after labgrid has read the environment file."""
    results = tmp_path / "results"
    monkeypatch.delenv("LG_PLACE")
    argv = command(results, "--fs", "ext4", "--repeat", "1", "--place-tag", "board=virtual")
    with subprocess.Popen(
        argv, cwd=PROJECT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, bufsize=1
    ) as bench:
        assert bench.stdout is not None
        for line in bench.stdout:
            if line.startswith("[  1/"):
                break
        lab_.client("release", "--kick")
        lab_.client("acquire", **_ADA)
        lab_.client("power", "cycle", **_ADA)
        switched = _switched()
        begin = time.monotonic()
        output, _ = bench.communicate(timeout=120)
    assert time.monotonic() - begin < 60
    assert bench.returncode == 4, output
    assert "was taken away during the run" in output
    assert "trying again" not in output
    assert _switched() == switched, "hands off: nothing was switched after it was lost"
    assert lab_.holder == "otherhost/ada"
    [folder] = results.iterdir()
    run = load_run(folder)
    assert run.run.status is RunStatus.ABORTED
    assert "was taken away during the run" in (run.run.abort_reason or "")
    lab_.client("power", "off", **_ADA)


def _switched() -> tuple[str, int, int]:
    """The board's power, how often it was switched on, and its process."""
    board = lab.status("virtual").board
    assert board is not None
    return board["power"], board["power_ons"], board["qemu_pid"]


_HOLDER = """
import os, signal, sys
from fsjoule.lab import acquired_place, coordinator
if sys.argv[1] == "between":
    acquire = coordinator.Coordinator.acquire
    def killed(self, name):
        acquire(self, name)
        os.kill(os.getpid(), signal.SIGKILL)
    coordinator.Coordinator.acquire = killed
with acquired_place("virtual"):
    print("held", flush=True)
    sys.stdin.readline()
"""


@pytest.mark.parametrize(
    ("number", "when", "freed"),
    [(signal.SIGINT, "held", True), (signal.SIGKILL, "held", False), (None, "between", False)],
    ids=["ctrl-c", "killed", "killed between acquiring and noting it"],
)
def test_a_place_is_free_after_ctrl_c_and_taken_over_after_a_kill(
    lab_: _Lab, number: signal.Signals | None, when: str, *, freed: bool
) -> None:
    with subprocess.Popen(
        interruptible(sys.executable, "-c", _HOLDER, when),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as holder:
        assert holder.stdout is not None
        if number is not None:
            assert holder.stdout.readline() == b"held\n"
            assert lab_.holder == user()
            holder.send_signal(number)
    assert (lab_.holder is None) == freed
    with acquired_place("virtual"):
        assert lab_.holder == user()
    assert lab_.holder is None
    assert not lab_.notes


def test_what_a_killed_run_left_and_somebody_acquired_by_hand_since_stays_so(lab_: _Lab) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _HOLDER, "held"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        holder.kill()
    lab_.client("release")
    lab_.client("acquire")
    with acquired_place("virtual"):
        pass
    assert lab_.holder == user()
    assert not lab_.notes


def test_a_coordinator_that_is_gone_leaves_it_open_whose_the_place_is(
    state: Path, monkeypatch: pytest.MonkeyPatch, said: list[str]
) -> None:
    handle = lab.up("virtual", owner_pid=os.getpid())
    for name, value in handle.environment.items():
        monkeypatch.setenv(name, value)
    with acquired_place("virtual") as place:
        [coordinator] = [each.pid for each in lab.status("virtual").services if each.name == "coordinator"]
        os.kill(coordinator, signal.SIGKILL)
        with pytest.raises(LabError, match="it is not known whether the place 'virtual' is still ours") as caught:
            place.check()
        assert not isinstance(caught.value, PlaceLostError)
        assert caught.value.transient
        place.look()
    assert any("cannot be reached" in line for line in said)
    assert list((state / "places").iterdir()), "the next run takes it over, should the coordinator know it still"
    lab.down("virtual")


@pytest.mark.slow
def test_of_a_coordinator_that_stands_still_nobody_waits_twice(lab_: _Lab) -> None:
    [coordinator] = [each.pid for each in lab.status("virtual").services if each.name == "coordinator"]
    known: list[bool] = []

    def faults(address: str, name: str) -> tuple[str, ...]:
        return coordinator_faults(address, name) if known else ()

    with acquired_place("virtual", faults=faults) as place:
        place.check()
        os.kill(coordinator, signal.SIGSTOP)
        try:
            told: list[tuple[str, float]] = []
            for _ in range(10):
                begin = time.monotonic()
                with pytest.raises(
                    LabError, match="it is not known whether the place 'virtual' is still ours"
                ) as caught:
                    place.check()
                told.append((caught.value.what, time.monotonic() - begin))
        finally:
            os.kill(coordinator, signal.SIGCONT)
        assert len({what for what, _ in told}) == 1
        assert told[0][1] < 30
        assert max(waited_s for _, waited_s in told[1:]) < 5
        place.check()
        known.append(True)
        os.kill(coordinator, signal.SIGSTOP)
        try:
            with pytest.raises(LabError, match=r"^the lab's coordinator \(process \d+\) was stopped"):
                place.check()  # it is known: nobody is asked
        finally:
            os.kill(coordinator, signal.SIGCONT)
        place.check()
    assert lab_.holder is None, "it goes on, and is heard at once"
