"""Jobs that hold a board: however one ends, the board is off and the place free; who waits does not wait for ever."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
from collections.abc import Generator, Sequence
from pathlib import Path

import pytest
from lab_leftovers import assert_free, assert_nothing_left
from waiting import wait_for

from fsjoule.host import process
from fsjoule.host.process_ref import ProcessRef
from fsjoule.virtual.lab import lab
from fsjoule.virtual.lab.files import LabPaths

CLIENT = Path(sys.executable).with_name("labgrid-client")
FSJOULE = Path(sys.executable).with_name("fsjoule")
_LIMIT_S = 120.0
# What a job does that is in the middle of it: board on, and then it takes its time. It ends in its own way.
WORK = f"trap 'echo cleaned >> told; exit 7' TERM; {CLIENT} power on; echo working >> told; sleep 300 & wait"


class Jobs:
    """A project's jobs on one runner's computer, which all are one user of labgrid."""

    def __init__(self, handle: lab.LabHandle, folder: Path) -> None:
        user = {"LG_HOSTNAME": "runner", "LG_USERNAME": "group-project"}
        self.environment = {**os.environ, **handle.environment, **user}
        self.folder = folder

    def hold(self, *command: str, wait: str = "1m", **variables: str) -> subprocess.CompletedProcess[str]:
        return self._run("hold", "--wait", wait, "--", *command, **variables)

    def release(self, *options: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return self._run("release", *options, **variables)

    def _run(self, which: str, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [FSJOULE, "place", which, "--place", "virtual", *words],
            cwd=self.folder,
            env=self.environment | variables,
            capture_output=True,
            text=True,
            timeout=_LIMIT_S,
            check=False,
        )

    def start(
        self, *command: str, options: Sequence[str] = (), by: Sequence[str] = (), **variables: str
    ) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*by, FSJOULE, "place", "hold", "--place", "virtual", "--wait", "2m", *options, "--", *command],
            cwd=self.folder,
            env=self.environment | variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def told(self) -> list[str]:
        file = self.folder / "told"
        return file.read_text().split() if file.exists() else []


@pytest.fixture(scope="module")
def running(module_state: Path) -> Generator[lab.LabHandle]:
    handle = lab.up("virtual", owner_pid=os.getpid())
    devices = Path(LabPaths.of("virtual").read().devices)  # pyright: ignore[reportOptionalMemberAccess]
    yield handle
    assert lab.down("virtual")
    assert_nothing_left(module_state, devices)


@pytest.fixture
def jobs(running: lab.LabHandle, tmp_path: Path) -> Generator[Jobs]:
    assert_free()
    yield Jobs(running, tmp_path)
    assert_free()


def as_somebody_else(handle: lab.LabHandle, *words: str) -> None:
    environment = {**handle.environment, "LG_HOSTNAME": "desk", "LG_USERNAME": "somebody"}
    process.run([CLIENT, "-p", "virtual", *words], timeout_s=_LIMIT_S, env=environment)


def test_the_command_has_the_board_and_its_exit_code_counts(jobs: Jobs) -> None:
    script = f"{CLIENT} power on; {CLIENT} -p virtual show | grep acquired:; exit 5"
    done = jobs.hold("bash", "-c", script)
    assert done.returncode == 5, done.stderr
    assert "acquired: runner/group-project" in done.stdout
    assert_free()


def test_a_wait_ends_and_leaves_somebody_else_alone(running: lab.LabHandle, tmp_path: Path) -> None:
    as_somebody_else(running, "acquire")
    jobs = Jobs(running, tmp_path)
    done = jobs.hold("touch", "told", wait="3s")
    assert done.returncode == 4
    assert "the place 'virtual' is held by desk/somebody since" in done.stderr
    assert "it was not free within 3 s" in done.stderr
    assert not (tmp_path / "told").exists()
    assert jobs.release().returncode == 0
    assert lab.status("virtual").holder == "desk/somebody"
    as_somebody_else(running, "release")
    assert_free()


def test_a_cancelled_job_lets_its_command_end_and_gives_the_board_back(jobs: Jobs) -> None:
    with jobs.start("bash", "-c", WORK) as job:
        wait_for(lambda: jobs.told() == ["working"], "it does not start")
        os.kill(job.pid, signal.SIGTERM)
        output, _ = job.communicate(timeout=_LIMIT_S)
    assert job.returncode == 143, output
    assert jobs.told() == ["working", "cleaned"]
    assert_free()
    assert jobs.release().returncode == 0


@pytest.mark.parametrize("by", [(), pytest.param(("nohup",), marks=pytest.mark.slow)])
def test_a_job_whose_runner_was_killed_ends_though_it_writes_nothing(jobs: Jobs, by: tuple[str, ...]) -> None:
    """Nor can it say any more what it does, for example that its command has to be killed."""
    script = f"trap '' TERM; {CLIENT} power on; echo $$ working >> told; sleep 300"
    with jobs.start("bash", "-c", script, options=["--grace", "1s"], by=by) as job:
        wait_for(lambda: "working" in jobs.told(), "it does not start")
        assert job.stdout is not None
        job.stdout.close()
        job.wait(_LIMIT_S)
    assert job.returncode == 129
    assert not Path(f"/proc/{jobs.told()[0]}").exists()
    assert_free()


def killed(jobs: Jobs, *, whole: bool = True) -> None:
    """A job that holds the place and has the board on, and is killed: all that it started, or the script alone."""
    with jobs.start("bash", "-c", WORK) as job:
        wait_for(lambda: "working" in jobs.told(), "it does not start")
        # Its command is a process group of its own in the same session.
        for pid in process_of_session(job.pid) if whole else [job.pid]:
            os.kill(pid, signal.SIGKILL)
        job.wait(timeout=_LIMIT_S)
        if job.stdout is not None:
            job.stdout.close()
    status = lab.status("virtual")
    assert status.holder == "runner/group-project"
    assert status.board is not None
    assert status.board["power"] == "on"


def process_of_session(session: int) -> list[int]:
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                if os.getsid(int(entry.name)) == session:
                    found.append(int(entry.name))
            except ProcessLookupError:
                continue
    return sorted(found)


def test_after_a_killed_job_the_after_script_gives_the_board_back(jobs: Jobs) -> None:
    killed(jobs)
    # The place says how its board is switched off, whatever file labgrid-client is told to read otherwise.
    done = jobs.release(LG_ENV="no-such.yaml", LG_STATE="booted")
    assert done.returncode == 0, done.stderr
    assert_free()
    again = jobs.release()
    assert (again.returncode, again.stdout) == (0, "")


def test_a_command_that_outlives_its_job_is_ended_before_the_board_is_given_back(jobs: Jobs) -> None:
    killed(jobs, whole=False)
    assert jobs.told() == ["working"]
    done = jobs.release()
    assert done.returncode == 0, done.stderr
    assert jobs.told() == ["working", "cleaned"]
    assert_free()


def test_a_command_that_does_not_end_is_killed(jobs: Jobs) -> None:
    script = f"trap '' TERM; {CLIENT} power on; echo $$ working >> told; sleep 300"
    with jobs.start("bash", "-c", script, options=["--grace", "1s"]) as job:
        wait_for(lambda: "working" in jobs.told(), "it does not start")
        os.kill(job.pid, signal.SIGTERM)
        output, _ = job.communicate(timeout=_LIMIT_S)
    assert job.returncode == 143, output
    assert "did not end within 1 s: it was killed" in output
    assert not Path(f"/proc/{jobs.told()[0]}").exists()
    assert_free()


def test_a_command_that_cannot_be_recorded_is_not_begun(running: lab.LabHandle, tmp_path: Path) -> None:
    jobs = Jobs(running, tmp_path)
    (tmp_path / "no-folder").touch()
    done = jobs.hold("touch", "told", FSJOULE_STATE_DIR=str(tmp_path / "no-folder"))
    assert done.returncode == 2
    assert "no-folder" in done.stderr
    assert not (tmp_path / "told").exists()
    assert_free()


def test_a_process_that_has_the_same_number_is_left_alone(jobs: Jobs) -> None:
    killed(jobs)
    [note] = (Path(jobs.environment["FSJOULE_STATE_DIR"]) / "jobs").iterdir()
    left = json.loads(note.read_text())
    with subprocess.Popen(["sleep", "300"], start_new_session=True) as innocent:
        for leader, boot in (({"pid": innocent.pid, "start_ticks": 1}, left["boot"]), (None, "another boot")):
            began = ProcessRef.of(innocent.pid)
            assert began is not None
            note.write_text(json.dumps(left | {"leader": leader or dataclasses.asdict(began), "boot": boot}))
            assert jobs.release().returncode == 0
            assert innocent.poll() is None
            assert not note.exists()
        innocent.kill()


def test_a_second_job_of_the_project_waits_for_the_first_and_ends_without_touching_it(jobs: Jobs) -> None:
    with jobs.start("bash", "-c", WORK, CI_JOB_ID="17") as first:
        wait_for(lambda: jobs.told() == ["working"], "it does not start")
        second = jobs.hold("touch", "told-2", wait="3s", CI_JOB_ID="18")
        assert second.returncode == 4
        assert "held by runner/group-project" in second.stderr
        after_script = jobs.release(CI_JOB_ID="18")
        assert after_script.returncode == 0
        assert "is left alone: job 17, process" in after_script.stderr
        assert jobs.told() == ["working"]
        assert lab.status("virtual").holder == "runner/group-project"
        # The after_script of the job itself ends what is left of it.
        assert jobs.release(CI_JOB_ID="17").returncode == 0
        output, _ = first.communicate(timeout=_LIMIT_S)
    assert first.returncode == 143, output
    assert jobs.told() == ["working", "cleaned"]
    assert not (jobs.folder / "told-2").exists()


def test_whoever_ends_anothers_job_is_named_in_it(jobs: Jobs) -> None:
    with jobs.start("bash", "-c", WORK) as job:
        wait_for(lambda: jobs.told() == ["working"], "it does not start")
        done = jobs.release("--end", LG_HOSTNAME="desk", LG_USERNAME="ada")
        assert done.returncode == 0, done.stderr
        output, _ = job.communicate(timeout=_LIMIT_S)
    assert job.returncode == 143
    assert "the job is ended by desk/ada, process " in output


def test_a_place_that_is_taken_away_ends_the_job_and_the_board_is_left_as_it_is(
    running: lab.LabHandle, jobs: Jobs
) -> None:
    with jobs.start("bash", "-c", WORK) as job:
        wait_for(lambda: jobs.told() == ["working"], "it does not start")
        as_somebody_else(running, "release", "--kick")
        as_somebody_else(running, "acquire")
        output, _ = job.communicate(timeout=_LIMIT_S)
    assert job.returncode == 4, output
    assert "taken away during the run: " in output
    assert jobs.told() == ["working", "cleaned"]
    board = lab.status("virtual").board
    assert board is not None
    assert board["power"] == "on"
    as_somebody_else(running, "power", "off")
    as_somebody_else(running, "release")


@pytest.mark.slow
def test_jobs_of_two_runners_come_one_after_the_other(running: lab.LabHandle, tmp_path: Path) -> None:
    """Of one project, on two computers, and on one."""
    jobs = Jobs(running, tmp_path)
    script = "echo begin >> told; sleep 1; echo end >> told"
    others = [{}, {"CI_JOB_ID": "2"}, {"LG_HOSTNAME": "runner-2", "FSJOULE_STATE_DIR": str(tmp_path / "state-2")}]
    started = [jobs.start("bash", "-c", script, **each) for each in others]
    for job in started:
        with job:
            output, _ = job.communicate(timeout=_LIMIT_S)
        assert job.returncode == 0, output
    assert jobs.told() == ["begin", "end"] * 3
    assert_free()


@pytest.mark.slow
def test_without_an_after_script_a_job_that_waits_already_takes_over(jobs: Jobs) -> None:
    with jobs.start("bash", "-c", WORK) as first:
        wait_for(lambda: jobs.told() == ["working"], "it does not start")
        with jobs.start("true") as second:
            assert second.stdout is not None
            assert "waiting for the place 'virtual'" in second.stdout.readline()
            for pid in process_of_session(first.pid):
                os.kill(pid, signal.SIGKILL)
            output, _ = second.communicate(timeout=_LIMIT_S)
        first.communicate(timeout=_LIMIT_S)
    assert second.returncode == 0, output
    assert "was killed" in output


@pytest.mark.slow
def test_a_merge_request_goes_before_the_nightly_matrix(running: lab.LabHandle, tmp_path: Path) -> None:
    as_somebody_else(running, "acquire")
    jobs = Jobs(running, tmp_path)
    other = Jobs(running, tmp_path)
    other.environment["LG_USERNAME"] = "group-other"
    with jobs.start("bash", "-c", "echo nightly >> told") as nightly:
        wait_for(lambda: waiting(running) == 1, "no reservation")
        with other.start("bash", "-c", "echo request >> told", options=["--priority", "10"]) as request:
            wait_for(lambda: waiting(running) == 2, "no second reservation")
            as_somebody_else(running, "release")
            assert request.wait(_LIMIT_S) == 0
        assert nightly.wait(_LIMIT_S) == 0
    assert jobs.told() == ["request", "nightly"]
    assert_free()


def waiting(handle: lab.LabHandle) -> int:
    """How many reservations wait."""
    done = process.run([CLIENT, "reservations"], timeout_s=_LIMIT_S, env=handle.environment)
    return done.stdout.decode().count("state: waiting")
