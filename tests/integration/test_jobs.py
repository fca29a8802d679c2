"""Jobs that hold a place of a real coordinator, whose places have no boards."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from bare_coordinator import LIMIT_S, BareCoordinator, bare_coordinator, within

from fsjoule.errors import LabError
from fsjoule.host.messages import lines_to
from fsjoule.lab import find_places, jobs, place_request
from fsjoule.lab.coordinator import Coordinator
from fsjoule.lab.lease import acquired_for_job
from fsjoule.lab.reservation import AT_ONCE

FSJOULE = Path(sys.executable).with_name("fsjoule")
# What a job does that is in the middle of it.
WORK = ("sh", "-c", "echo working; sleep 300")


@pytest.fixture(name="coordinator")
def _coordinator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[BareCoordinator]:
    """Has the place `bench`."""
    monkeypatch.setenv("FSJOULE_STATE_DIR", str(tmp_path / "state"))
    for name in ("LG_HOSTNAME", "LG_USERNAME", "LG_TOKEN", "LG_PLACE", "LG_ENV", "CI_JOB_ID"):
        monkeypatch.delenv(name, raising=False)
    with bare_coordinator(tmp_path, monkeypatch.setenv) as coordinator:
        coordinator.make("bench", soc="imx6ul")
        yield coordinator


@contextmanager
def started(*command: str, options: Sequence[str] = ()) -> Generator[subprocess.Popen[str]]:
    argv = [FSJOULE, "place", "hold", "--place", "bench", *options, "--", *command]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as job:
        try:
            yield job
        finally:
            job.terminate()


def until(job: subprocess.Popen[str], said: str) -> None:
    assert job.stdout is not None
    seen: list[str] = []
    for line in job.stdout:
        seen.append(line)
        if said in line:
            return
    raise AssertionError(f"it has ended: {seen}")


def release(*, end: bool = False) -> list[str]:
    lines: list[str] = []
    # There is no board to switch off: nobody looks whether that worked.
    with lines_to(lines.append):
        jobs.release("bench", end=end, end_s=1.0)
    return lines


def test_whoever_ends_a_job_does_not_wait_for_the_next_one(coordinator: BareCoordinator) -> None:
    with started(*WORK) as first:
        until(first, "working")
        with started("sh", "-c", "echo next; sleep 300", options=["--wait", "2m"]) as second:
            until(second, "waiting for the place 'bench'")
            # A job that is told to end has a minute and a half; the second one takes longer.
            assert len(release(end=True)) == 1
            assert first.wait(LIMIT_S) == 128 + signal.SIGTERM
            until(second, "next")
            second.terminate()
            second.communicate(timeout=LIMIT_S)
    assert coordinator.holders() == {"bench": None}


_KILLED_AT_ONCE = """
import os, signal
from fsjoule.host.messages import lines_to
from fsjoule.lab.lease import acquired_for_job
from fsjoule.lab.reservation import AT_ONCE

def killed_at_once(line):
    if line.endswith("acquired"):
        os.kill(os.getpid(), signal.SIGKILL)

with lines_to(killed_at_once), acquired_for_job("bench", AT_ONCE, recover=lambda _coordinator: None):
    pass
"""


def test_a_job_that_was_killed_before_its_command_began_has_its_place_given_back(coordinator: BareCoordinator) -> None:
    killed = subprocess.run([sys.executable, "-c", _KILLED_AT_ONCE], timeout=LIMIT_S, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert coordinator.holders()["bench"]
    assert "was killed" in release()[0]
    assert coordinator.holders() == {"bench": None}


def test_a_killed_job_whose_place_got_a_tag_meanwhile_has_it_given_back(
    coordinator: BareCoordinator, tmp_path: Path
) -> None:
    with started(*WORK) as job:
        until(job, "working")
        [note] = (tmp_path / "state" / "jobs").iterdir()
        before = note.read_bytes()
        coordinator.client("set-tags", "cable=short")
        within(lambda: note.read_bytes() != before)
        job.kill()
    assert "was killed" in release()[0]
    assert coordinator.holders() == {"bench": None}
    assert not note.exists()


def test_a_coordinator_that_was_restarted_has_forgotten_the_job_which_ends(coordinator: BareCoordinator) -> None:
    with started(*WORK) as job:
        until(job, "working")
        coordinator.stop()
        coordinator.start()
        output, _ = job.communicate(timeout=LIMIT_S)
    assert job.returncode == 4, output
    assert "taken away during the run: " in output


def test_a_killed_jobs_place_that_cannot_be_given_back_keeps_no_other_job_waiting(
    coordinator: BareCoordinator, said: list[str]
) -> None:
    def recover(_coordinator: Coordinator) -> None:
        raise LabError("releasing 'another' failed: no answer")

    with acquired_for_job("bench", AT_ONCE, recover=recover):
        assert coordinator.holders()["bench"]
    assert said.count("warning: releasing 'another' failed: no answer") == 1


def test_a_release_of_what_no_job_has_says_so(coordinator: BareCoordinator) -> None:
    [line] = release()
    assert "no job of this user on this computer has the place 'bench'" in line
    assert coordinator.address in line


def test_a_place_that_is_ones_own_can_be_chosen_by_its_tag(coordinator: BareCoordinator) -> None:
    coordinator.client("acquire")
    assert find_places(("$LG_PLACE",), place_request("soc=imx6ul", None, None)) == ("",)
