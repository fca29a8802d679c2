"""A device file, a job, and what the helpers of a place do; tests/lab/test_lava.py shows them to LAVA itself."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Generator
from pathlib import Path

import pytest
import yaml
from command_line import CommandLine
from fresh_boots import kernel_folder

from fsjoule.ci.lava import guard, helpers, settings
from fsjoule.ci.lava.device import device_dictionary, device_template
from fsjoule.ci.lava.job import LavaJob, suite_job
from fsjoule.ci.lava.signals import safe
from fsjoule.errors import ConfigError, LabError
from fsjoule.host.process_ref import ProcessRef
from fsjoule.lab import lease, target

ENVIRONMENT = Path(__file__).parents[2] / "env" / "virtual.yaml"
GATE = ("--baseline", "6.1", "--candidate", "6.12")


@pytest.fixture
def fsjoule(fsjoule: CommandLine, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    monkeypatch.delenv("LG_ENV", raising=False)
    return fsjoule


def test_a_gate_is_a_job_whose_result_is_the_verdict(fsjoule: CommandLine) -> None:
    told = fsjoule("lava", "job", "--lg-env", ENVIRONMENT, *GATE, "--fs", "ext4", "--", "--budget", "8")
    job = yaml.safe_load(told.out)
    assert job["job_name"] == "fsjoule gate on ext4: 6.12 against 6.1"
    [*_, command, answer] = job["actions"][-1]["test"]["definitions"][0]["repository"]["run"]["steps"]
    assert command.startswith("fsjoule gate --suite quick --fs ext4 --baseline 6.1 --candidate 6.12 --budget 8 ")
    assert "3) lava-test-case gate --result unknown" in answer


def test_many_cells_are_one_job_or_as_many(fsjoule: CommandLine, tmp_path: Path) -> None:
    words = ("lava", "job", "--lg-env", ENVIRONMENT, "--fs", "ext4,btrfs", "--kernel", "6.1,6.12")
    whole = fsjoule(*words).out
    assert "quick on ext4,btrfs, kernel 6.1,6.12" in whole
    assert "- fsjoule bench --suite quick --fs ext4,btrfs --kernel 6.1,6.12 --lg-env" in whole
    fsjoule(*words, "--each", "--output", tmp_path / "jobs")
    jobs = {path.stem: yaml.safe_load(path.read_text())["job_name"] for path in (tmp_path / "jobs").iterdir()}
    cells = [(kernel, filesystem) for kernel in ("6.1", "6.12") for filesystem in ("ext4", "btrfs")]
    assert jobs == {f"{k}-{f}": f"fsjoule quick on {f}, kernel {k}" for k, f in cells}


def test_two_kernels_whose_jobs_would_share_a_file_are_refused(fsjoule: CommandLine, tmp_path: Path) -> None:
    built = [kernel_folder(tmp_path / name, "6.1") for name in ("a b", "a?b")]
    x86 = ENVIRONMENT.with_name("virtual-x86.yaml")
    words = ("lava", "job", "--lg-env", x86, "--fs", "ext4", "--kernel", ",".join(map(str, built)), "--each")
    done = fsjoule(*words, "--output", tmp_path / "jobs")
    assert (done.code, "two jobs would have the name" in done.err, "a?b differs" in done.err) == (2, True, True), (
        done.err
    )
    assert not (tmp_path / "jobs").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--baseline", "6.1"), "a gate has two sides"),
        (("--each",), "--each writes several files"),
        (("--smoke", "--each", "--output", "x"), "jobs of different kinds"),
        ((*GATE, "--repeat", "3"), "a gate measures until the answer is clear"),
    ],
)
def test_kinds_of_jobs_do_not_mix(fsjoule: CommandLine, words: tuple[str, ...], message: str) -> None:
    done = fsjoule("lava", "job", "--lg-env", ENVIRONMENT, *words)
    assert (done.code, message in done.err) == (2, True)


def test_names_are_what_lava_takes() -> None:
    assert safe("6.1 ext4:nojournal-read 16k/x") == "6.1_ext4_nojournal-read_16k_x"


def test_a_helper_carries_its_settings_and_splits_as_it_was_put_together() -> None:
    bench = settings.LavaBoard("board 1", Path("/env/a b.yaml"), {"LG_COORDINATOR": "lab:20408", "PATH": "/a b:/c"}, 60)
    device = yaml.safe_load(device_dictionary(bench, Path("/runs"), "imx6ul"))
    assert device["devicetype"] == "imx6ul"
    command = device["commands"]["power_off"]
    assert command.startswith("/")
    assert "--set 'PATH=/a b:/c'" in command
    assert command.endswith("--wait 60s --set LG_COORDINATOR=lab:20408 --set 'PATH=/a b:/c'")
    assert "'board 1'" in command


def test_a_setting_needs_name_and_value() -> None:
    assert settings.parsed(["A=b=c", "D="]) == {"A": "b=c", "D": ""}
    for wrong in ("A", "=b"):
        with pytest.raises(ConfigError, match="is not NAME=VALUE"):
            settings.parsed([wrong])


@pytest.mark.parametrize(("text", "priority"), [("high", "high"), ("0", 0), ("100", 100)])
def test_a_job_has_the_priority_that_lava_takes(text: str, priority: object) -> None:
    assert yaml.safe_load(suite_job(LavaJob("job", (), "imx6ul", priority=text)))["priority"] == priority


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--priority", "urgent"), "--priority urgent: it is low, medium, high"),
        (("--priority", "101"), "a number up to 100"),
        (("--hours", "0"), "a job needs at least one"),
        (("--suite", "none"), "unknown suite 'none'"),
        (("--fs", "ext5"), "ext5"),
        (("--kernel", "2.6"), "2.6"),
    ],
)
def test_a_job_that_cannot_be_is_refused(fsjoule: CommandLine, words: tuple[str, ...], message: str) -> None:
    done = fsjoule("lava", "job", "--lg-env", ENVIRONMENT, *words)
    assert done.code == 2
    assert message in done.err


def test_a_job_names_its_device_type(fsjoule: CommandLine) -> None:
    done = fsjoule("lava", "job")
    assert done.code == 2
    assert "a job needs the type of its devices" in done.err
    job = yaml.safe_load(fsjoule("lava", "job", "--device-type", "imx6ul", "--place", "desk", "--", "-k", "a b").out)
    assert (job["device_type"], job["device"]) == ("imx6ul", "desk")
    [test] = job["actions"][2]["test"]["definitions"]
    assert any("-k 'a b'" in step for step in test["repository"]["run"]["steps"])


def test_help_shows_what_people_call(fsjoule: CommandLine) -> None:
    text = fsjoule("lava", "--help").out
    assert re.findall(r"^  (\w[\w-]*)  ", text, re.MULTILINE) == ["device", "job", "pull"]


def test_the_overlay_is_the_workers_own_file_or_comes_over_http(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, into = tmp_path / "dispatcher", tmp_path / "job"
    (here / "tmp/7").mkdir(parents=True)
    into.mkdir()
    (here / "tmp/7/overlay-1.tar.gz").write_bytes(b"overlay")
    monkeypatch.setattr(helpers, "_DOWNLOADS", here)
    got = helpers.fetch_overlay("http://127.0.0.1/tmp/7/overlay-1.tar.gz", into)
    assert got == into / "overlay-1.tar.gz"
    assert got.read_bytes() == b"overlay"
    for url in ("http://127.0.0.1:9/tmp/8/overlay-1.tar.gz", "file:///etc/passwd"):
        with pytest.raises(LabError, match="overlay cannot be fetched"):
            helpers.fetch_overlay(url, into)


def test_a_smoke_job_is_of_one_board(fsjoule: CommandLine, tmp_path: Path) -> None:
    done = fsjoule("lava", "job", "--smoke", "--device-type", "imx6ul")
    assert done.code == 2
    assert "a smoke job logs in to the board" in done.err
    words = ("lava", "job", "--smoke", "--image", "http://images/card.img", "--lg-env")
    job = yaml.safe_load(fsjoule(*words, ENVIRONMENT).out)
    assert job["actions"][0]["deploy"]["images"]["image"]["url"] == "http://images/card.img"
    assert job["actions"][1]["boot"]["auto_login"] == {"login_prompt": "fsjoule login: ", "username": "root"}
    assert [next(iter(each.values()))["namespace"] for each in job["actions"]] == ["uart0"] * 3 + ["worker"] * 3
    secret = tmp_path / "secret.yaml"
    secret.write_text(ENVIRONMENT.read_text().replace("username: root", "username: root\n        password: mellon"))
    done = fsjoule(*words, secret)
    assert done.code == 2
    assert "everybody may read a job" in done.err
    assert "mellon" not in done.out + done.err


METER = "      MeterDriver:\n        bindings:\n          port: meter\n"
MUX = "      SdMuxFlasher:\n        write_timeout: 300\n"
NO_METER = "without a meter: throughput only, no energy"


def without(folder: Path, part: str, instead: str = "") -> Path:
    """The virtual board's environment file without a part of its lab."""
    assert part in ENVIRONMENT.read_text()
    file = folder / "board.yaml"
    file.write_text(ENVIRONMENT.read_text().replace(part, instead))
    return file


def test_a_job_says_what_its_board_does_without(fsjoule: CommandLine, tmp_path: Path) -> None:
    text = fsjoule("lava", "job", "--lg-env", without(tmp_path, METER)).out
    assert text.startswith(f"# {NO_METER}\n")
    [test] = yaml.safe_load(text)["actions"][-1]["test"]["definitions"]
    assert test["repository"]["metadata"]["description"].endswith(f"; {NO_METER}")
    assert not fsjoule("lava", "job", "--lg-env", ENVIRONMENT).out.startswith("#")
    bench = settings.LavaBoard("desk", ENVIRONMENT, {})
    assert device_dictionary(bench, Path("/runs"), "imx6ul", [NO_METER]).startswith(f"# {NO_METER}\n")
    assert f"\n   {NO_METER} #}}" in device_template(bench, Path("/runs"), [NO_METER])


def test_a_smoke_job_without_a_meter_asks_none(fsjoule: CommandLine, tmp_path: Path) -> None:
    words = ("lava", "job", "--smoke", "--image", "http://images/card.img", "--lg-env")
    text = fsjoule(*words, without(tmp_path, METER)).out
    actions = yaml.safe_load(text)["actions"]
    assert [next(iter(each.values()))["namespace"] for each in actions] == ["uart0"] * 3
    steps = actions[-1]["test"]["definitions"][0]["repository"]["run"]["steps"]
    assert steps[0] == f"echo '{NO_METER}'"
    assert not any("ttymxc1" in step for step in steps)


@pytest.mark.parametrize(
    ("flasher", "words", "message"),
    [
        ("KeptCard: {}", ("--smoke", "--kernel", "none"), "a smoke job writes the card, and on this board without an"),
        ("InPlaceFlasher: {}", ("--smoke", "--kernel", "none"), "without an SD mux the card stays in the board, which"),
        ("KeptCard: {}", ("--kernel", "6.1,6.12"), "the flasher of virtual changes only the scratch partition"),
        ("KeptCard: {}", ("--baseline", "6.1", "--candidate", "6.12"), "changes only the scratch partition"),
        ("InPlaceFlasher: {}", ("--fs", "ext4,btrfs", "--provision", "root"), "the plan has 2 root filesystems"),
    ],
)
def test_a_job_that_its_board_cannot_do_is_refused_when_it_is_written(
    flasher: str, words: tuple[str, ...], message: str, fsjoule: CommandLine, tmp_path: Path
) -> None:
    done = fsjoule("lava", "job", *words, "--lg-env", without(tmp_path, MUX, f"      {flasher}\n"))
    assert (done.code, message in done.err) == (2, True), done.err


def ours(_place: str) -> bool:
    return True


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> settings.LavaBoard:
    monkeypatch.setenv("FSJOULE_STATE_DIR", str(tmp_path))
    return settings.LavaBoard("desk", ENVIRONMENT, {})


def test_a_place_of_another_job_is_refused(bench: settings.LavaBoard, monkeypatch: pytest.MonkeyPatch) -> None:
    me, other = ProcessRef.of(os.getpid()), ProcessRef.of(1)
    assert me is not None
    assert other is not None
    monkeypatch.delenv("LAVA_JOB_ID", raising=False)
    guard.Record(job=other, guard=me, sessions={}).write("desk")
    with pytest.raises(LabError, match="another job has the place 'desk': process 1"):
        guard.watch(bench)
    assert guard.Record.read("desk") == guard.Record(other, me, {})


def test_a_helper_whose_job_has_ended_does_nothing(bench: settings.LavaBoard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAVA_JOB_ID", "7")
    with pytest.raises(LabError, match="the job has ended"):
        guard.watch(bench)
    assert guard.Record.read("desk") is None


def test_a_lava_that_does_not_name_its_job_is_too_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """LAVA 2023.01: its jobs would hang in the bench's shell."""
    monkeypatch.delenv("LAVA_JOB_ID", raising=False)
    monkeypatch.setenv("FSJOULE_STATE_DIR", str(tmp_path))
    lava_run = tmp_path / "lava-run"
    lava_run.write_text(
        f"{settings.program()} lava bench-shell desk {tmp_path}/runs --lg-env {ENVIRONMENT} --wait 0s; exit $?"
    )
    done = subprocess.run(["sh", lava_run], capture_output=True, text=True, check=False)
    assert (done.returncode, "this LAVA is too old" in done.stderr) == (LabError.exit_code, True), done.stderr
    assert guard.Record.read("desk") is None
    assert not list(tmp_path.glob("job-*"))


def is_complete(_name: str, *, wait_s: float) -> None:
    assert wait_s > 0


def test_a_board_whose_outlet_is_not_there_yet_is_switched_off_all_the_same(
    bench: settings.LavaBoard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "_LOOK_S", 0.0)
    done: list[str] = []

    def switch_off(_environment: Path) -> None:
        done.append("off")
        if len(done) < 3:
            raise LabError("no NetworkPowerPort resource found", transient=True)

    monkeypatch.setattr(lease, "is_ours", ours)
    monkeypatch.setattr(lease, "complete", is_complete)
    monkeypatch.setattr(target, "switch_off", switch_off)
    monkeypatch.setattr(lease, "release", done.append)
    guard.off_and_free(bench)
    assert done == ["off", "off", "off", "desk"]


def test_a_place_is_released_even_if_its_board_cannot_be_switched_off(
    bench: settings.LavaBoard, monkeypatch: pytest.MonkeyPatch
) -> None:
    released: list[str] = []

    def switch_off(_environment: Path) -> None:
        raise LabError("the outlet does not answer")

    monkeypatch.setattr(lease, "is_ours", ours)
    monkeypatch.setattr(lease, "complete", is_complete)
    monkeypatch.setattr(target, "switch_off", switch_off)
    monkeypatch.setattr(lease, "release", released.append)
    with pytest.raises(LabError, match="outlet"):
        guard.off_and_free(bench)
    assert released == ["desk"]


def test_what_a_session_leaves_behind_is_ended_and_its_first_process_spared(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    script = "(trap '' TERM; echo ready; read line < fifo) & sleep 60 & trap '' TERM; read line < fifo"
    with started(script, tmp_path) as (first, process):
        guard.end_session(first, limit_s=1.0)
        assert guard.members([first]) == [first]
        assert process.poll() is None
        guard.end_left(guard.Record(first, first, {guard.SHELL: first}), limit_s=1.0)
        assert process.wait(LIMIT_S) == -signal.SIGKILL
        assert guard.members([first]) == []


def test_all_that_a_job_leaves_behind_is_told_at_once_to_end(tmp_path: Path) -> None:
    """The helper and the console end only after the shell has heard: one after the other they would be killed."""
    ends = "trap 'until [ -e heard ]; do sleep 0.1; done; exit 3' TERM; echo ready; while :; do sleep 0.1; done"
    tells = "trap 'touch heard; exit 4' TERM; echo ready; while :; do sleep 0.1; done"
    with (
        started(ends, tmp_path) as (helper, helping),
        started(ends, tmp_path) as (console, showing),
        started(tells, tmp_path) as (shell, measuring),
    ):
        record = guard.Record(helper, helper, {"console": console, guard.SHELL: shell}, (helper,))
        guard.end_left(record, limit_s=LIMIT_S)
        assert [each.wait(LIMIT_S) for each in (helping, showing, measuring)] == [3, 3, 4]


def test_what_a_killed_lava_run_leaves_of_itself_is_ended_and_nothing_else_of_its_group(tmp_path: Path) -> None:
    sender = """bash -c 'exec -a "lava-run [job: 7]" sleep 60'"""
    with started(f"{sender} & sleep 60 & echo ready; wait", tmp_path) as (first, process):
        both = [each for each in guard.members([first]) if each != first]
        # A child that is still the shell has the shell's command line, with both names in it.
        deadline_s = time.monotonic() + LIMIT_S
        while any(Path(f"/proc/{each.pid}/cmdline").read_bytes().startswith((b"sh\0", b"bash\0")) for each in both):
            assert time.monotonic() < deadline_s
            time.sleep(0.01)
        process.kill()
        process.wait(LIMIT_S)
        guard.end_orphans(first)
        [left] = [each for each in both if each.alive()]
        assert (len(both), guard.members([first])) == (2, [left])


LIMIT_S = 30.0


@contextlib.contextmanager
def started(script: str, folder: Path) -> Generator[tuple[ProcessRef, subprocess.Popen[bytes]]]:
    """A shell in a session of its own, that has said `ready`."""
    with subprocess.Popen(["sh", "-c", script], start_new_session=True, cwd=folder, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            first = ProcessRef.of(process.pid)
            assert first is not None
            yield first, process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
