"""Debian's lava-run drives the virtual lab's place: a device that LAVA accepts, jobs that complete, cancel and kill."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from bench_runs import PROJECT
from lava_dispatcher import Dispatcher, dispatcher, output, results
from lava_place import FREE_WITHIN_S, FSJOULE, LIMIT_S, LavaPlace, figures_of
from waiting import wait_for

from fsjoule.errors import HostError
from fsjoule.host import process
from fsjoule.model import JobFacts, RunStatus
from fsjoule.store.reader import load_run
from fsjoule.virtual.lab import lab


@dataclass
class Place(LavaPlace):
    """A virtual lab's place as a device of lava-run's."""

    lava: Dispatcher
    jobs: int = field(default=0)

    @contextlib.contextmanager
    def run(self, device: str, job: str, *options: str) -> Generator[tuple[subprocess.Popen[bytes], Path]]:
        self.jobs += 1
        out = self.folder / f"job-{self.jobs}"
        with self.lava.run(self.jobs, out, device, job, *options) as running:
            yield running, out

    def complete(self, device: str, job: str, *options: str) -> tuple[int, Path]:
        with self.run(device, job, *options) as (running, out):
            code = running.wait(LIMIT_S)
        return code, out


@pytest.fixture(scope="module")
def lava() -> Generator[Dispatcher]:
    with dispatcher() as found:
        yield found


@pytest.fixture(scope="module")
def place(lava: Dispatcher, module_state: Path, tmp_path_factory: pytest.TempPathFactory) -> Generator[Place]:
    """The board in guest time."""
    handle = lab.up("deterministic", owner_pid=os.getpid(), board="deterministic")
    state = {"FSJOULE_STATE_DIR": str(module_state)}
    yield Place("deterministic", tmp_path_factory.mktemp("lava"), handle.environment | state, lava)
    assert lab.down("deterministic")


@pytest.fixture
def real_time(lava: Dispatcher, state: Path, tmp_path: Path) -> Generator[Place]:
    """The board in real time, which sends its marks while others look."""
    handle = lab.up("virtual", owner_pid=os.getpid())
    (tmp_path / "lava").mkdir()
    yield Place("virtual", tmp_path / "lava", handle.environment | {"FSJOULE_STATE_DIR": str(state)}, lava)
    assert lab.down("virtual")


def case(result: dict[str, Any]) -> str:
    return str(result["case"])


def of_job(out: Path) -> dict[str, Any]:
    """LAVA's word on the whole job."""
    return next(each for each in reversed(results(out)) if each["definition"] == "lava" and case(each) == "job")


def test_lava_accepts_the_device_and_a_job_with_all_options(place: Place) -> None:
    options = ("--place", "virtual", "--priority", "70", "--health-check", "--", "-k", "read or write")
    device, job = place.device(), place.job(*options)
    place.lava.check(device, job)
    code, out = place.complete(device, job, "--validate")
    assert code == 0, output(out)
    assert of_job(out)["result"] == "pass"


def test_the_template_renders_to_the_same_device_and_neither_holds_a_secret(place: Place) -> None:
    place.environment["FSJOULE_INDEX"] = "postgresql://writer:mellon@database/runs"
    try:
        device, template = place.device(), place.device("--template")
    finally:
        del place.environment["FSJOULE_INDEX"]
    assert "mellon" not in device + template
    plain, rendered = yaml.safe_load(device), place.lava.render(template)
    for part in ("commands", "actions", "parameters"):
        plain_part, rendered_part = plain[part], rendered[part]
        for commands in (plain_part, rendered_part):
            for name in ("hard_reset", "power_on", "power_off"):
                if isinstance(commands.get(name), list):
                    [commands[name]] = commands[name]
        assert rendered_part == plain_part
    constants = plain["constants"]
    assert constants["posix"] == rendered["constants"]["posix"]
    assert constants["kernel-start-message"] == rendered["constants"]["kernel-start-message"]
    for name, limit in plain["timeouts"]["actions"].items():
        assert rendered["timeouts"]["actions"][name] == limit


def test_a_suite_completes_and_its_figures_are_those_of_the_run_folder(place: Place) -> None:
    code, out = place.complete(place.device(), place.job("--", "-k", "mkfs or (read and not rand)"))
    assert code == 0, output(out)
    run = place.newest()
    assert run.run.status is RunStatus.COMPLETE
    assert run.run.job == JobFacts(str(place.jobs), "virtual", socket.getfqdn(), "")
    told = {case(each): each for each in results(out) if each["definition"] == "0_fsjoule"}
    assert told[f"run-{run.run.run_id}"]["result"] == "pass"
    assert told["run-complete"]["result"] == "pass"
    assert told["bench"]["result"] == "pass"
    figures = {name: each for name, each in told.items() if "set" in each}
    expected = dict(pair for each in run.measurements for pair in figures_of(each))
    assert len(expected) == 17
    assert {name: (float(each["measurement"]), each.get("units", "")) for name, each in figures.items()} == expected
    assert {each["set"] for each in figures.values()} == {"quick-simulated"}
    assert place.state() == (None, "off")
    place.assert_nothing_left()


METER = "      MeterDriver:\n        bindings:\n          port: meter\n"
NO_METER = "without a meter: throughput only, no energy"


def unmetered(place: Place, folder: Path) -> str:
    """The place's environment file without its meter."""
    text = Path(place.lg_env).read_text()
    assert METER in text
    file = folder / "unmetered.yaml"
    file.write_text(text.replace(METER, ""))
    return str(file)


@pytest.mark.slow
def test_a_board_without_a_meter_is_measured_and_the_job_says_first_what_it_lacks(place: Place, tmp_path: Path) -> None:
    file = unmetered(place, tmp_path)
    results_at = str(place.folder / "unmetered")
    device = place.fsjoule("device", "virtual", "--lg-env", file, "--results", results_at)
    job = place.fsjoule("job", "--fs", "ext4", "--repeat", "1", "--lg-env", file, "--", "-k", "randread")
    place.lava.check(device, job)
    code, out = place.complete(device, job)
    assert code == 0, output(out)
    said = output(out)
    assert said.index(NO_METER) < said.index("results go to ") < said.index("ext4-randread-16k.throughput")
    told = {case(each): each for each in results(out) if each["definition"] == "0_fsjoule"}
    assert (told["bench"]["result"], told["run-complete"]["result"]) == ("pass", "pass")
    assert float(told["ext4-randread-16k.throughput"]["measurement"]) > 0
    assert told["ext4-randread-16k.energy"]["result"] == "skip"
    assert "no energy: the environment file has no meter" in said
    place.assert_nothing_left()


def test_a_place_that_is_not_there_or_lacks_what_its_file_uses_is_no_device(place: Place, tmp_path: Path) -> None:
    """A place of the lab's board without its meter."""
    client = [FSJOULE.with_name("labgrid-client"), "-p", "bare"]
    matches = ("NetworkPowerPort", "NetworkSerialPort/default", "NetworkUSBSDMuxDevice")
    for words in (["create"], *(["add-match", f"*/*/{match}"] for match in matches)):
        process.run([*client, *words], timeout_s=LIMIT_S, env=place.environment)
    try:
        with pytest.raises(HostError, match=r"the place 'bare' lacks what .*: MeterDriver needs .* named 'meter'"):
            place.fsjoule("device", "bare", "--lg-env", place.lg_env)
        with pytest.raises(HostError, match=r"unknown place 'shed'\s+hint: choose from: bare, virtual"):
            place.fsjoule("device", "shed", "--lg-env", place.lg_env)
        assert NO_METER in place.fsjoule("device", "bare", "--lg-env", unmetered(place, tmp_path), "--template")
        # The place has a name of its own for the resource.
        named = ["add-named-match", "fsjoule-deterministic/virtual/NetworkSerialPort/meter", "joules"]
        process.run([*client, *named], timeout_s=LIMIT_S, env=place.environment)
        file = tmp_path / "named.yaml"
        file.write_text(Path(place.lg_env).read_text().replace("port: meter", "port: joules"))
        assert place.fsjoule("device", "bare", "--lg-env", str(file)).startswith("hostname: bare")
        with pytest.raises(HostError, match="named 'meter'"):
            place.fsjoule("device", "bare", "--lg-env", place.lg_env)
    finally:
        process.run([*client, "delete"], timeout_s=LIMIT_S, env=place.environment)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_job_that_ends_while_it_measures_leaves_board_off_and_place_free(
    place: Place, number: signal.Signals
) -> None:
    """test_interrupted_runs.py ends benches in which nobody but fsjoule has the board; the next test cancels a job."""
    with place.run(place.device(), place.job()) as (running, out):
        wait_for(lambda: any("measurement" in each for each in results(out)), lambda: output(out), LIMIT_S)
        assert place.state() == (f"{os.uname().nodename}/lava", "on")
        running.send_signal(number)
        wait_for(lambda: place.state() == (None, "off"), lambda: output(out), FREE_WITHIN_S)
        running.wait(LIMIT_S)
    place.assert_nothing_left()
    run = place.newest()
    assert run.run.status is RunStatus.ABORTED
    assert (run.run.abort_reason or "").startswith("interrupted")
    if number is signal.SIGTERM:
        assert of_job(out)["error_type"] == "Canceled"
        return
    # Its one boot was cut short, and in guest time that is made again whole: -k could leave nothing of it out.
    options = ["--lg-env", place.lg_env, "--resume", str(run.path), "-p", "no:cacheprovider"]
    resumed = process.run(
        [sys.executable, "-m", "pytest", "tests/bench", *options],
        timeout_s=LIMIT_S,
        cwd=PROJECT,
        env=place.environment,
        check=False,
    )
    assert resumed.returncode == 0, resumed.stdout.decode()
    assert load_run(run.path).run.status is RunStatus.COMPLETE


@pytest.mark.slow
def test_a_job_that_runs_out_of_time_leaves_board_off_and_place_free(place: Place) -> None:
    # No computer does so much in two minutes.
    job = yaml.safe_load(place.job("--repeat", "50"))
    job["actions"][-1]["test"]["timeout"] = {"minutes": 2}
    with place.run(place.device(), yaml.safe_dump(job)) as (running, out):
        wait_for(lambda: place.state()[1] == "on", lambda: output(out), LIMIT_S)
        wait_for(lambda: "timed out" in output(out), lambda: output(out), LIMIT_S)
        wait_for(lambda: place.state() == (None, "off"), lambda: output(out), FREE_WITHIN_S)
        assert running.wait(LIMIT_S) == 1
    assert of_job(out)["result"] == "fail"
    place.assert_nothing_left()
    assert place.newest().run.status is RunStatus.ABORTED


def test_a_place_that_somebody_has_is_never_driven(place: Place) -> None:
    place.as_somebody_else("acquire")
    place.as_somebody_else("power", "on")
    try:
        code, out = place.complete(place.device("--wait", "3s"), place.job())
        assert code == 1
        assert of_job(out)["error_type"] == "Infrastructure"
        assert "the place 'virtual' is held by desk/somebody" in output(out)
        assert place.state() == ("desk/somebody", "on")
    finally:
        place.as_somebody_else("power", "off")
        place.as_somebody_else("release")
    place.assert_nothing_left()


def test_a_job_that_is_cancelled_while_it_waits_leaves_the_place_alone(place: Place) -> None:
    place.as_somebody_else("acquire")
    try:
        with place.run(place.device(), place.job()) as (running, out):
            wait_for(lambda: "is held by desk/somebody" in output(out), lambda: output(out), LIMIT_S)
            running.send_signal(signal.SIGTERM)
            assert running.wait(FREE_WITHIN_S) == 1
        assert of_job(out)["error_type"] == "Canceled"
        place.assert_nothing_left()
        assert place.state() == ("desk/somebody", "off")
    finally:
        place.as_somebody_else("release")


@pytest.mark.slow
def test_a_job_waits_until_somebody_gives_the_place_back(place: Place) -> None:
    place.as_somebody_else("acquire")
    with place.run(place.device(), place.job("--", "-k", "mkfs")) as (running, out):
        wait_for(lambda: "is held by desk/somebody" in output(out), lambda: output(out), LIMIT_S)
        place.as_somebody_else("release")
        assert running.wait(LIMIT_S) == 0, output(out)
    assert place.state() == (None, "off")


@pytest.mark.slow
def test_helpers_may_be_called_in_any_order_and_twice(place: Place) -> None:
    commands = yaml.safe_load(place.device())["commands"]

    def call(name: str) -> None:
        process.run(commands[name].split(), timeout_s=LIMIT_S, env={"PATH": "/usr/bin:/bin"})

    call("power_off")
    call("power_on")
    call("power_on")
    assert place.state() == (f"{os.uname().nodename}/lava", "on")
    call("hard_reset")
    assert place.state() == (f"{os.uname().nodename}/lava", "on")
    call("power_off")
    call("power_off")
    assert place.state() == (None, "off")
    place.assert_nothing_left()


SMOKE = {
    "boot",
    "kernel-log",
    "card-size",
    "meter-samples",
    "meter-lost",
    "board-power-simulated",
    "mark-reaches-meter",
}


def test_a_smoke_job_flashes_boots_and_asks_the_meter(real_time: Place) -> None:
    device, job = real_time.device(), real_time.fsjoule("job", "--smoke", "--lg-env", real_time.lg_env)
    real_time.lava.check(device, job)
    code, out = real_time.complete(device, job)
    assert code == 0, output(out)
    told = {case(each): each for each in results(out) if str(each["definition"]).startswith("0_")}
    assert {name: each["result"] for name, each in told.items()} == dict.fromkeys(SMOKE, "pass")
    assert float(told["card-size"]["measurement"]) == 1024
    assert float(told["board-power-simulated"]["measurement"]) > 0.5
    assert real_time.state() == (None, "off")
    real_time.assert_nothing_left()


@pytest.mark.slow
def test_a_smoke_job_of_a_board_without_mux_and_meter_says_so_and_asks_for_neither(
    lava: Dispatcher, state: Path, tmp_path: Path
) -> None:
    """U-Boot offers the card over USB, to the device's helper that LAVA calls."""
    handle = lab.up("virtual-sabrelite", owner_pid=os.getpid(), board="sabrelite")
    (tmp_path / "lava").mkdir()
    environment = handle.environment | {"FSJOULE_STATE_DIR": str(state)}
    place = Place("virtual-sabrelite", tmp_path / "lava", environment, lava)
    try:
        file = unmetered(place, tmp_path)
        device = place.fsjoule("device", "virtual", "--lg-env", file)
        code, out = place.complete(device, place.fsjoule("job", "--smoke", "--lg-env", file))
        assert code == 0, output(out)
        told = {case(each): each["result"] for each in results(out) if str(each["definition"]).startswith("0_")}
        assert told == dict.fromkeys(("boot", "kernel-log", "card-size"), "pass")
        for line in (NO_METER, "without an SD mux: the card is written over USB while U-Boot offers it"):
            assert line in output(out)
        assert place.state() == (None, "off")
    finally:
        assert lab.down("virtual-sabrelite")


@pytest.mark.slow
@pytest.mark.parametrize("helper", ["flash", "hard-reset"])
def test_a_job_that_is_killed_while_lava_drives_the_board_leaves_it_off_and_free(real_time: Place, helper: str) -> None:
    job = real_time.fsjoule("job", "--smoke", "--lg-env", real_time.lg_env)
    with real_time.run(real_time.device(), job) as (running, out):
        wait_for(lambda: f"'{helper}'" in called(out), lambda: output(out), LIMIT_S)
        wait_for(lambda: real_time.state()[0] is not None, lambda: output(out), LIMIT_S)
        running.send_signal(signal.SIGKILL)
        wait_for(lambda: real_time.state() == (None, "off"), lambda: output(out), FREE_WITHIN_S)
    real_time.assert_nothing_left()
    # Nor has a helper that was still at work switched it on again.
    assert real_time.state() == (None, "off")


def called(out: Path) -> str:
    """The commands of the device that LAVA has called so far."""
    return "\n".join(line for line in output(out).splitlines() if line.startswith("Calling: "))
