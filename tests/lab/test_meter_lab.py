"""`fsjoule meter` on a virtual lab: its meter beside labgrid, through labgrid, and with its board."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Generator
from contextlib import ExitStack
from pathlib import Path

import pytest
from command_line import CommandLine, Done, command_line, started
from labgrid_process import forget_coordinator

from fsjoule.host import process
from fsjoule.host.paths import project_dir
from fsjoule.virtual.lab import lab
from fsjoule.virtual.lab.files import LabPaths
from fsjoule.virtual.lab.services import meter_serial

ENVIRONMENT = project_dir() / "env" / "virtual.yaml"
TIMEOUT_S = 120.0


@pytest.fixture(scope="module")
def environment(module_state: Path) -> Generator[dict[str, str]]:
    """A lab, with the variables that labgrid needs to reach it."""
    assert module_state.is_dir()
    handle = lab.up("virtual", owner_pid=os.getpid())
    yield handle.environment
    lab.down("virtual")


@pytest.fixture
def fsjoule(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Generator[CommandLine]:
    """The command line, which finds the lab by itself."""
    assert environment
    monkeypatch.delenv("FSJOULE_METER", raising=False)
    for name in environment:
        monkeypatch.setenv(name, os.environ.get(name, ""))  # to be put back after the command has changed it
        if name != "PATH":
            monkeypatch.delenv(name)
    yield command_line(monkeypatch, capfd)
    forget_coordinator()


@pytest.fixture
def held(environment: dict[str, str]) -> Generator[None]:
    """The place acquired, as by somebody who works with it."""

    def client(word: str) -> None:
        command = [Path(sys.executable).with_name("labgrid-client"), "-p", "virtual", word]
        process.run(command, timeout_s=TIMEOUT_S, env=environment)

    client("acquire")
    yield
    client("release")


def test_the_only_meter_is_found_and_used(fsjoule: CommandLine) -> None:
    found = {each["address"]: each for each in fsjoule("meter", "list", "--json").document}
    assert found["lab:virtual"]["meter"]["serial_number"] == meter_serial(LabPaths.of("virtual"))
    assert found["lab:virtual"]["where"] == "virtual lab 'virtual'"
    info = fsjoule("meter", "info", "--json")
    assert "meter at lab:virtual" in info.err
    assert info.document["simulated"] is True


def test_a_held_lab_is_listened_to_beside_others(held: None, fsjoule: CommandLine, tmp_path: Path) -> None:
    del held
    with ExitStack() as closing:
        path = tmp_path / "trace.parquet"
        beside = started(closing, "meter", "record", "--seconds", "6", "--json", "-o", path, "--meter", "lab:virtual")
        here = fsjoule(
            "meter", "record", "--seconds", "6", "--json", "-o", tmp_path / "b.csv", "--meter", "lab:virtual"
        )
        out, err = beside.communicate(timeout=TIMEOUT_S)
        there = Done(beside.returncode, out, err)
    for done in (here, there):
        assert done.code == 0, done.err
        assert (done.document["missed"], done.document["lost"]) == (0, 0)
        assert done.document["received"] >= 6 * 625
        assert "reads its port" not in done.err


def test_through_labgrid_the_place_is_held_meanwhile(fsjoule: CommandLine) -> None:
    done = fsjoule("meter", "set", "--rate", "500", "--lg-env", ENVIRONMENT, "--json")
    assert done.code == 0, done.err
    assert re.search(r"place 'virtual' acquired(.|\n)*place 'virtual' released", done.err), done.err
    assert done.document["rate_hz"] == 500
    assert fsjoule("meter", "set", "--rate", "625", "--json").document["rate_hz"] == 625


def test_the_doctor_finds_the_empty_card_of_a_good_place(fsjoule: CommandLine) -> None:
    done = fsjoule("doctor", "virtual", "--state", "--json")
    checks = {each["name"]: each for each in done.document["checks"]}
    found = {name: (each["health"], each["because"]) for name, each in checks.items()}
    well, untried = ("ok", ""), ("not tried", "boot")
    assert found == {
        "power": well,
        "meter": well,
        "flasher": well,
        "boot": ("broken", ""),
        "card": untried,
        "marks": untried,
        "clock": untried,
    }, done.err
    assert re.search(
        r"off 0\.000 W, on 1\.[12]\d\d W, off 0\.000 W; the outlet says off, on, off", checks["power"]["seen"]
    )
    assert re.search(r"there \S+ has 1024 MiB; nothing was written", checks["flasher"]["seen"])
    assert "no partition table" in checks["boot"]["seen"]
    assert (done.code, done.document["simulated"], done.document["state"]) == (4, True, "bad")
    status = lab.status("virtual")
    assert status.holder is None
    assert status.board is not None
    assert status.board["state"] == "off"


def test_the_square_load_tells_how_late_marks_are(fsjoule: CommandLine) -> None:
    done = fsjoule("meter", "selftest", "--lg-env", ENVIRONMENT, "--json")
    square = done.document["square_load"]
    assert (done.code, done.document["passed"], square["within_limit"]) == (0, True, True), done.err
    # What the board's power model says: 1.10 W idle, 0.22 W more for a busy CPU.
    assert square["low_w"] == pytest.approx(1.10, abs=0.02)
    assert square["high_w"] == pytest.approx(1.32, abs=0.02)
    for latency in (square["start"], square["stop"]):
        assert latency["steps"] >= 10
        assert latency["least_s"] <= latency["median_s"] <= latency["largest_s"]
        assert max(abs(latency["least_s"]), abs(latency["largest_s"])) <= square["limit_s"]
    assert lab.status("virtual").holder is None
