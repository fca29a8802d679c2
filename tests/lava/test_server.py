"""A real LAVA server drives the virtual lab's place: health checks, a queue, cancel, and results through REST.

`make test-lava` runs it; `make test` does not.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import time
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path

import pytest
from bench_runs import PROJECT
from lava_place import FREE_WITHIN_S, LIMIT_S, LavaPlace, figures_of
from lava_server import DEVICE, SHELL_SECRET, USER, WORKER, RefusedError, Server
from waiting import wait_for

from fsjoule.errors import HostError
from fsjoule.host import process
from fsjoule.host.process_ref import descendants
from fsjoule.model import JobFacts, RunStatus
from fsjoule.store.reader import load_run
from fsjoule.virtual.lab.files import LabPaths

FIRST = ("--", "-k", "mkfs")


@contextlib.contextmanager
def unplugged_console(name: str) -> Generator[None]:
    """The lab's exporter finds no serial port."""
    record = LabPaths.of(name).read()
    assert record is not None
    port = Path(record.devices) / "console"
    aside = port.with_name("console.unplugged")
    port.rename(aside)
    try:
        yield
    finally:
        aside.rename(port)


def test_a_health_check_makes_a_board_without_console_bad_and_a_whole_one_good(lava: Server, place: LavaPlace) -> None:
    job = place.fsjoule("job", "--smoke", "--health-check", "--lg-env", place.lg_env)
    with lava.health_check(DEVICE, job):
        with unplugged_console(DEVICE):
            wait_for(lambda: lava.device(DEVICE)["health"] == "Bad", lambda: str(lava.device(DEVICE)), LIMIT_S)
        bad = lava.job(lava.device(DEVICE)["last_health_report_job"])
        assert (bad["health_check"], bad["health"]) == (True, "Incomplete")
        lava.set_health(DEVICE, "UNKNOWN")
        wait_for(lambda: lava.device(DEVICE)["health"] == "Good", lambda: lava.log(bad["id"] + 1)[-3000:], LIMIT_S)
    good = lava.job(lava.device(DEVICE)["last_health_report_job"])
    assert (good["health_check"], good["health"]) == (True, "Complete")
    cases = {each["name"]: each["result"] for each in lava.results(good["id"]) if each["name"] != "job"}
    assert cases["mark-reaches-meter"] == "pass"
    assert place.state() == (None, "off")
    place.assert_nothing_left()


def test_two_jobs_for_one_place_run_one_after_the_other_and_their_figures_are_the_run_folders(
    lava: Server, place: LavaPlace
) -> None:
    numbers = [lava.submit(place.job("--priority", priority, *FIRST)) for priority in ("medium", "high")]
    jobs = [lava.wait(each) for each in numbers]
    assert [each["health"] for each in jobs] == ["Complete", "Complete"], lava.log(numbers[0])
    first, second = sorted(jobs, key=lambda job: job["start_time"])
    assert second["start_time"] >= first["end_time"]
    for number in numbers:
        told = lava.results(number)
        [run_id] = [found[1] for each in told if (found := re.fullmatch(r"run-([0-9a-f]+)", each["name"]))]
        [folder] = (place.folder / "results").glob(f"*-{run_id}")
        run = load_run(folder)
        assert run.run.status is RunStatus.COMPLETE
        assert run.run.job == JobFacts(str(number), DEVICE, WORKER, f"{lava.url}/scheduler/job/{number}")
        expected = dict(pair for each in run.measurements for pair in figures_of(each))
        figures = {each["name"]: each for each in told if each["name"] in expected}
        assert figures.keys() == expected.keys()
        for name, (figure, unit) in expected.items():
            # The server keeps ten digits behind the point.
            assert float(figures[name]["measurement"]) == pytest.approx(figure, rel=1e-6, abs=1e-9)
            assert figures[name]["unit"] == unit
    place.assert_nothing_left()


def test_a_jobs_run_is_pulled_from_its_folder_and_from_its_log(lava: Server, place: LavaPlace, tmp_path: Path) -> None:
    number = a_measuring_job(lava, place)

    def pull(folder: Path, job: int = number, token: str = lava.token) -> str:
        words = ["pull", lava.url, str(job), "--results", str(folder)]
        return place.told(*words, FSJOULE_LAVA_TOKEN=token)

    assert "the run folder" in pull(tmp_path / "whole")
    [copied] = (tmp_path / "whole").iterdir()
    worker = place.folder / "results"
    aside = worker.rename(worker.with_name("out-of-reach"))
    try:
        assert "from the job's log, without traces" in pull(tmp_path / "log")
    finally:
        aside.rename(worker)
    [rebuilt] = (tmp_path / "log").iterdir()
    whole, log = load_run(copied), load_run(rebuilt)
    assert log.measurements == whole.measurements
    assert whole.run.job is not None
    assert log.run == replace(whole.run, job=replace(whole.run.job, pulled=True))
    with pytest.raises(HostError, match="has no job 9999"):
        pull(tmp_path, job=9999)
    with pytest.raises(HostError, match="its token is wrong"):
        pull(tmp_path, token="wrong")
    smoke = [each["id"] for each in lava.get("jobs/?limit=1000")["results"] if each["health_check"]]
    for each in smoke[:1]:
        with pytest.raises(HostError, match="has no measurements of fsjoule"):
            pull(tmp_path, job=each)


def a_measuring_job(lava: Server, place: LavaPlace) -> int:
    """A job that has measured; an earlier test's if there is one."""
    jobs = lava.get("jobs/?limit=1000")["results"]
    found = [each["id"] for each in jobs if each["health"] == "Complete" and not each["health_check"]]
    if found:
        return int(found[0])
    number = lava.submit(place.job(*FIRST))
    assert lava.wait(number)["health"] == "Complete"
    return number


def test_a_gates_verdict_is_its_jobs_result(lava: Server, place: LavaPlace) -> None:
    number = lava.submit(place.fsjoule("job", "--lg-env", place.lg_env, "--baseline", "6.1", "--candidate", "6.1"))
    assert lava.wait(number)["health"] == "Complete"
    assert {each["name"]: each["result"] for each in lava.results(number)}["gate"] == "pass"
    assert "gate: identical; both kernels are the same, byte for byte" in lava.log(number)
    place.assert_nothing_left()


def test_a_job_waits_for_a_place_that_somebody_has_and_does_not_drive_it(lava: Server, place: LavaPlace) -> None:
    place.as_somebody_else("acquire")
    try:
        number = lava.submit(place.job(*FIRST))
        wait_for(lambda: "is held by desk/somebody" in lava.log(number), lambda: lava.log(number), LIMIT_S)
        assert lava.job(number)["state"] == "Running"
        assert place.state() == ("desk/somebody", "off")
    finally:
        place.as_somebody_else("release")
    assert lava.wait(number)["health"] == "Complete"
    place.assert_nothing_left()


def test_a_job_that_is_cancelled_leaves_board_off_and_place_free_and_its_run_goes_on(
    lava: Server, place: LavaPlace
) -> None:
    number = lava.submit(place.job())
    wait_for(
        lambda: any(each["name"].startswith("ext4-") for each in lava.results(number)),
        lambda: lava.log(number)[-3000:],
        LIMIT_S,
    )
    assert place.state() == (f"{os.uname().nodename}/lava", "on")
    lava.cancel(number)
    wait_for(lambda: place.state() == (None, "off"), lambda: lava.log(number)[-3000:], FREE_WITHIN_S)
    assert lava.wait(number)["health"] == "Canceled"
    place.assert_nothing_left()
    run = place.newest()
    assert run.run.status is RunStatus.ABORTED
    options = ["--lg-env", place.lg_env, "--resume", str(run.path), "-k", "mkfs or write", "-p", "no:cacheprovider"]
    process.run(
        [sys.executable, "-m", "pytest", "tests/bench", *options],
        timeout_s=LIMIT_S,
        cwd=PROJECT,
        env=place.environment | {"FSJOULE_INDEX": ""},
        check=False,
    )
    assert len(load_run(run.path).measurements) > len(run.measurements)


def test_a_server_refuses_a_wrong_token_and_a_job_that_is_none(lava: Server) -> None:
    with pytest.raises(HostError, match="Unable to submit"):
        lava.submit("job_name: nothing\n")
    token, lava.token = lava.token, "wrong"
    try:
        with pytest.raises(RefusedError, match="Invalid token"):
            lava.get("jobs/")
        with pytest.raises(HostError):
            lava.lavacli("jobs", "list")
    finally:
        lava.token = token
    assert USER in lava.lavacli("system", "whoami")


def test_no_secret_is_in_any_jobs_log_definition_or_results(lava: Server, place: LavaPlace) -> None:
    number = a_measuring_job(lava, place)
    # The settings of the device's helpers are there, so that a secret among them would be.
    assert f"--set LG_COORDINATOR={place.environment['LG_COORDINATOR']}" in lava.log(number).replace("', '", " ")
    secrets = (SHELL_SECRET, lava.token, lava.get(f"workers/{WORKER}/")["token"])
    for job in [each["id"] for each in lava.get("jobs/?limit=1000")["results"]]:
        told = "\n".join((lava.log(job), json.dumps(lava.job(job)), json.dumps(lava.results(job))))
        assert not [each for each in secrets if each in told], job


def test_nothing_listens_beyond_loopback_while_a_job_runs(lava: Server, place: LavaPlace) -> None:
    assert lava.get("system/version/")["version"] >= "2026.10"
    number, seen = lava.submit(place.job(*FIRST)), set[str]()

    def finished() -> bool:
        found = listening()
        if beyond_loopback(found):
            # A socket that is just being connected has no address yet.
            time.sleep(1.0)
            found &= listening()
        seen.update(found)
        return lava.job(number)["state"] == "Finished"

    wait_for(finished, lambda: lava.log(number)[-3000:], LIMIT_S)
    assert lava.job(number)["health"] == "Complete"
    assert not beyond_loopback(seen)
    for address in (lava.url, place.environment["LG_COORDINATOR"]):
        assert f"0100007F:{int(address.rpartition(':')[2]):04X}" in seen
    place.assert_nothing_left()


def beyond_loopback(addresses: set[str]) -> set[str]:
    # Little-endian words: 127.*, ::1.
    return {each for each in addresses if not re.match(r"......7F:|0{24}01000000:", each)}


def listening() -> set[str]:
    """The addresses at which processes of server, worker, job and lab listen (TCP) or may be sent to (UDP).

    They are hexadecimal digits, as the kernel has them; gRPC's IPv4 in IPv6 is IPv4 here.
    """
    record = LabPaths.of(DEVICE).read()
    assert record is not None
    assert record.guardian is not None
    sockets: set[str] = set()
    for each in (record.guardian, *descendants(record.guardian.pid), *descendants(os.getpid())):
        with contextlib.suppress(OSError):
            for descriptor in Path(f"/proc/{each.pid}/fd").iterdir():
                with contextlib.suppress(OSError):
                    sockets.add(str(descriptor.readlink()))
    found: set[str] = set()
    for protocol, state in (("tcp", "0A"), ("tcp6", "0A"), ("udp", "07"), ("udp6", "07")):
        for line in Path(f"/proc/net/{protocol}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == state and f"socket:[{fields[9]}]" in sockets:
                found.add(fields[1].removeprefix("0000000000000000FFFF0000"))
    return found
