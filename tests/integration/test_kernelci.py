"""Jobs that a lab takes from KernelCI, up to its bench; tests/lab/test_kernelci.py measures one."""

from __future__ import annotations

import dataclasses
import json
import signal
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from command_line import PROGRAM, CommandLine, Done, command_line
from kernelci_server import KBUILD, RUNTIME, TOKEN, KernelCI, digest, kernelci_server

from fsjoule.ci.kernelci import poll as poller
from fsjoule.ci.kernelci.api import EVENTS_AT_ONCE, Api, Kcidb, kcidb_of
from fsjoule.ci.kernelci.job import KernelCIJob, bring_kernel, check_source, definition_of
from fsjoule.errors import ConfigError, KernelCIError, LabError
from fsjoule.host import process
from fsjoule.host.paths import project_dir
from fsjoule.lab import read_environment
from fsjoule.runs.options import BenchOptions
from fsjoule.runs.request import choose

ENVIRONMENT = project_dir() / "env" / "virtual.yaml"
DTB = "imx6ul-14x14-evk.dtb"


@pytest.fixture
def kernelci(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Generator[KernelCI]:
    monkeypatch.setenv("FSJOULE_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("KCI_API_TOKEN", TOKEN)
    monkeypatch.delenv("KCIDB_REST", raising=False)
    with kernelci_server() as has:
        yield has


class Lab:
    """`fsjoule kernelci poll --once` of the virtual board's lab."""

    def __init__(self, kernelci: KernelCI, run: CommandLine, results: Path) -> None:
        self.kernelci = kernelci
        self.run = run
        self.results = results

    def __call__(self, *options: str, api: str | None = None) -> Done:
        words = ("--runtime", RUNTIME, "--platform", "imx6ul", "--lg-env", ENVIRONMENT, "--results", self.results)
        return self.run("kernelci", "poll", api or self.kernelci.api, *words, "--fs", "ext4", "--once", *options)


@pytest.fixture
def poll(kernelci: KernelCI, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Lab:
    return Lab(kernelci, command_line(monkeypatch, capfd), tmp_path / "results")


@pytest.fixture
def parts(kernelci: KernelCI, tmp_path: Path) -> dict[str, str]:
    """Artifacts whose names and addresses are right; none of them is a kernel."""
    names = {"kernel": "zImage", "dtb": DTB, "modules": "modules.tar.xz"}
    for name in names.values():
        (tmp_path / name).write_bytes(name.encode())
    return {part: kernelci.serves(tmp_path / name) for part, name in names.items()}


def a_poller(
    kernelci: KernelCI,
    tmp_path: Path,
    kcidb: Kcidb | None = None,
    platform: str = "imx6ul",
) -> poller.Poller:
    environment, results = read_environment(ENVIRONMENT), tmp_path / "results"
    choice = choose(BenchOptions(suite="quick", fs="ext4", kernel="6.1", repeat=1, results=results), environment)
    lab = poller.KernelCILab(RUNTIME, platform, environment, results, choice, (), "mylab", 3600)
    return poller.Poller(Api(kernelci.api, TOKEN), lab, kcidb, again_s=0.01)


def ended(kernelci: KernelCI, number: str) -> tuple[str, str, str, str]:
    node = kernelci.nodes[number]
    data = node["data"]
    return node["state"], node["result"], data.get("error_code", ""), data.get("error_msg", "")


def test_what_is_not_for_this_lab_or_is_taken_is_left_alone(
    kernelci: KernelCI, poll: Lab, parts: dict[str, str]
) -> None:
    kernelci.job(1, parts, platform="imx6q-sabrelite")
    kernelci.job(2, parts, runtime="pull-other")
    kernelci.job(3, parts, state="running")
    kernelci.job(4, parts, job_id="pull-mylab:somebody")
    kernelci.job(5, parts, timeout="2026-01-01T00:00:00")
    before = json.dumps(kernelci.nodes)
    done = poll()
    assert (done.code, json.dumps(kernelci.nodes)) == (0, before), done.err
    assert "0 jobs done" in done.err
    assert "somebody has taken it" in done.err
    assert "left, KernelCI ends it at" in done.err
    # The next round begins behind the last event.
    asked = len(kernelci.authorized)
    assert "somebody" not in poll().err
    assert len(kernelci.authorized) == asked + 2


@pytest.mark.parametrize(
    ("changed", "code", "why"),
    [
        ({"board": "imx6q-sabrelite"}, "invalid_job_params", "the job is for 'imx6q-sabrelite', and this board is"),
        ({"arch": "arm64"}, "invalid_job_params", "the job's kernel is for 'arm64', and this board is armhf"),
        ({"type": "ltp"}, "invalid_job_params", "runs no tests of type ltp"),
        ({"without": "modules"}, "invalid_job_params", "the job has no modules"),
        ({"without": "dtb"}, "invalid_job_params", f"the job has no dtb, and this board needs {DTB}"),
        ({"kernel": "ftp://x/zImage"}, "invalid_job_params", "the job's kernel has no address of a web server"),
        ({"kernel": "{url}/storage/Image.gz"}, "Infrastructure", "refuses with HTTP 404"),
        ({"kernel": "http://127.0.0.1:9/zImage"}, "Infrastructure", "cannot be reached: ConnectionError"),
        ({"sha256": {"kernel": "0" * 64}}, "Infrastructure", "the kernel of job {job} is damaged: "),
        ({}, "invalid_job_params", "modules.tar.xz cannot be unpacked"),
        ({"dtb": "{url}/storage/modules.tar.xz"}, "invalid_job_params", f"no device tree {DTB}"),
    ],
)
def test_a_job_that_cannot_be_measured_ends_with_its_reason(
    changed: dict[str, Any], code: str, why: str, poll: Lab, parts: dict[str, str]
) -> None:
    kernelci = poll.kernelci
    parts |= {name: changed[name].format(url=kernelci.url) for name in ("kernel", "dtb") if name in changed}
    parts.pop(changed.get("without", ""), None)
    job = kernelci.job(7, parts, **changed)
    done = poll()
    assert done.code == 0, done.err
    state, result, found, message = ended(kernelci, job)
    assert (state, result, found) == ("done", "incomplete", code), message
    assert why.format(job=job) in message
    assert kernelci.nodes[job]["data"]["job_id"].startswith(f"{RUNTIME}:")
    assert why.format(job=job) in done.err
    assert not poll.results.exists()


def test_a_definition_that_is_none_ends_its_job(kernelci: KernelCI, poll: Lab, parts: dict[str, str]) -> None:
    job = kernelci.job(7, parts)
    [name] = [name for name in kernelci.files if "pull_labs_jobs" in name]
    kernelci.files[name] = b'{"artifacts": {}, "tests": []}'
    assert poll().code == 0
    assert ended(kernelci, job)[2:] == (
        "invalid_job_params",
        f"the definition of job {job} is none: environment: Field required",
    )
    job = kernelci.job(8, parts)
    kernelci.files[name.replace("7.json", "8.json")] = b"<html>"
    assert poll().code == 0
    assert ended(kernelci, job)[2] == "Infrastructure"


def test_files_arrive_whole_under_the_names_of_a_build_folder_and_without_a_token(
    kernelci: KernelCI, parts: dict[str, str], tmp_path: Path
) -> None:
    sums = {part: digest(tmp_path / url.rpartition("/")[2]) for part, url in parts.items()}
    kernelci.job(7, parts, sha256=sums)
    [name] = [name for name in kernelci.files if "pull_labs_jobs" in name]
    job = KernelCIJob("7" * 24, "job", f"{kernelci.url}{name}", "v6.13-rc2/../x", None)
    folder = bring_kernel(job, definition_of(job), tmp_path / "into")
    assert folder == tmp_path / "into" / "kernel"
    assert {each.name: each.read_bytes() for each in folder.iterdir() if each.suffix != ".json"} == {
        each: each.encode() for each in ("zImage", DTB, "modules.tar.xz")
    }
    assert json.loads((folder / "metadata.json").read_text()) == {"git_describe": "v6.13-rc2/../x"}
    assert {token for path, token in kernelci.authorized if path.startswith("/storage")} == {""}


@pytest.mark.parametrize(
    ("changed", "code", "message"),
    [
        ("KCI_API_TOKEN=", 2, "there is no token of http://127.0.0.1"),
        ("KCI_API_TOKEN=wrong", 7, "refuses with HTTP 401"),
        ("KCIDB_REST=https://db.kernelci.org", 2, "KCIDB_REST is not https://TOKEN@HOST"),
        ("--origin=My Lab", 2, "is no name of a CI system"),
        ("--fs=ext5", 2, "ext5"),
        ("--suite=none", 2, "unknown suite 'none'"),
    ],
)
def test_a_lab_that_cannot_begin_says_why(
    changed: str, code: int, message: str, poll: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, _, value = changed.partition("=")
    options = (name, value) if name.startswith("-") else ()
    if not options:
        monkeypatch.setenv(name, value)
    done = poll(*options)
    assert (done.code, message in done.err) == (code, True), done.err
    assert "wrong" not in done.err.replace("the token is wrong", "")


@pytest.mark.parametrize(
    ("api", "code", "message"),
    [
        ("ftp://api", 2, "no address of KernelCI's API"),
        ("https://me:secret@api", 2, "no address of KernelCI's API"),
        ("http://127.0.0.1:9/latest", 7, "cannot be reached: ConnectionError"),
        ("{url}/storage", 7, "refuses with HTTP 404"),
    ],
)
def test_a_server_that_is_none_is_named(api: str, code: int, message: str, poll: Lab) -> None:
    done = poll(api=api.format(url=poll.kernelci.url))
    assert (done.code, message in done.err) == (code, True), done.err
    assert "secret" not in done.err


def test_a_job_that_may_not_be_taken_is_not_measured(kernelci: KernelCI, poll: Lab, parts: dict[str, str]) -> None:
    job = kernelci.job(7, parts)
    kernelci.editors = False
    done = poll()
    assert done.code == 7
    assert f"changing KernelCI's node {job}" in done.err
    assert "Unauthorized to complete the operation" in done.err
    assert ended(kernelci, job)[:2] == ("available", None)


def test_a_jobs_end_is_told_again_after_a_fault_and_not_after_a_refusal(
    kernelci: KernelCI, parts: dict[str, str], tmp_path: Path
) -> None:
    polling = a_poller(kernelci, tmp_path)
    job = kernelci.job(7, parts, arch="arm64")
    kernelci.puts = [200, 503, 502, 200]
    assert polling.once() == 1
    assert ended(kernelci, job)[:2] == ("done", "incomplete")
    assert kernelci.puts == []
    kernelci.job(8, parts, arch="arm64")
    kernelci.puts = [200, 403, 200]
    with pytest.raises(KernelCIError, match="refuses with HTTP 403"):
        polling.once()
    assert kernelci.puts == [200]


@contextmanager
def polling_until_ended(kernelci: KernelCI, said: Path, *options: str) -> Generator[subprocess.Popen[bytes]]:
    """The command in a process of its own, which ends by SIGTERM."""
    words = ["--runtime", RUNTIME, "--platform", "imx6ul", "--lg-env", str(ENVIRONMENT), *options]
    with said.open("wb") as log:
        poll = process.start([PROGRAM, "kernelci", "poll", kernelci.api, *words], log=log)
        try:
            yield poll
            poll.send_signal(signal.SIGTERM)
            assert poll.wait(60) == 128 + signal.SIGTERM
        finally:
            process.stop(poll)


def test_a_lab_asks_again_until_it_is_ended(kernelci: KernelCI, tmp_path: Path) -> None:
    kernelci.faults = {"/latest/events": 503}
    with polling_until_ended(kernelci, tmp_path / "said", "--every", "1"):
        for faults, times in (({"/latest/events": 503}, 2), ({}, 4)):
            kernelci.faults = faults
            await_events(kernelci, times)
    assert b"warning: asking KernelCI for jobs: http://127.0.0.1" in (tmp_path / "said").read_bytes()


def await_events(kernelci: KernelCI, times: int, asked: str = "/latest/events") -> None:
    deadline = time.monotonic() + 120
    while [path for path, _ in kernelci.authorized].count(asked) < times:
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("url", "sha256", "why"),
    [
        ("http://93.184.215.14/zImage", None, "comes by http and has no SHA-256"),
        ("https://127.0.0.1/zImage", "0" * 64, "is in the lab's own network"),
        ("https://[fe80::1]/zImage", "0" * 64, "is in the lab's own network"),
        ("http://10.0.0.7:8080/zImage", "0" * 64, "is in the lab's own network"),
        ("http://93.184.215.14/zImage", "0" * 64, ""),
        ("https://93.184.215.14/zImage", None, ""),
    ],
)
def test_what_is_booted_comes_from_outside_and_nobody_changed_it(url: str, sha256: str | None, why: str) -> None:
    with pytest.raises(ConfigError, match=why) if why else nullcontext():
        check_source("https://93.184.215.15/latest", url, "kernel", sha256=sha256)
    check_source("http://127.0.0.1:9000/latest", url, "kernel", sha256=sha256)


def test_a_revision_names_no_folder(kernelci: KernelCI, parts: dict[str, str], tmp_path: Path) -> None:
    kernelci.job(7, parts)
    [name] = [name for name in kernelci.files if "pull_labs_jobs" in name]
    for revision in ("..", "v" * 300):
        job = KernelCIJob("7" * 24, "job", f"{kernelci.url}{name}", revision, None)
        assert bring_kernel(job, definition_of(job), tmp_path / "into") == tmp_path / "into" / "kernel"
    assert {each.name for each in (tmp_path / "into").iterdir()} == {"kernel"}


def test_figures_that_cannot_be_sent_are_set_aside_and_hold_no_others_up(
    kernelci: KernelCI, tmp_path: Path, said: list[str]
) -> None:
    polling = a_poller(kernelci, tmp_path, kcidb_of(kernelci.kcidb))
    for number, text in (
        ("1", '{"ver'),
        ("2", '{"version": {"major": 5, "minor": 3}}'),
        ("3", '{"version": {"major": 5, "minor": 3}}'),
    ):
        (polling.folder / number).mkdir()
        (polling.folder / number / "kcidb.json").write_text(text)
    kernelci.posts = [400]
    polling.once()
    assert len(kernelci.sent) == 1
    assert (polling.folder / "1" / "kcidb.json.unreadable").exists()
    assert (polling.folder / "2" / "kcidb.json.refused").exists()
    assert (polling.folder / "3" / "submission.json").exists()
    said.clear()
    polling.once()
    assert said == []


def test_the_build_is_asked_before_anything_else_and_its_loss_ends_nothing(
    kernelci: KernelCI, parts: dict[str, str], tmp_path: Path, said: list[str]
) -> None:
    polling = a_poller(kernelci, tmp_path)
    kernelci.faults[f"/latest/node/{KBUILD}"] = 404
    job = kernelci.job(7, parts)
    assert polling.once() == 1
    assert ended(kernelci, job)[2] == "invalid_job_params"
    paths = [path for path, _ in kernelci.authorized]
    assert paths.index(f"/latest/node/{KBUILD}") < paths.index("/storage/zImage")
    assert any("the figures will have a build of their own" in each for each in said)


@pytest.mark.parametrize("told", [200, 403])
def test_a_bug_is_told_as_one_and_keeps_its_cause(
    kernelci: KernelCI, parts: dict[str, str], told: int, tmp_path: Path
) -> None:
    polling = a_poller(kernelci, tmp_path)
    job = kernelci.job(7, parts)
    (polling.folder / job / "definition.json").mkdir(parents=True)
    kernelci.puts = [200, told]
    with pytest.raises(IsADirectoryError) as caught:
        polling.once()
    if told == 200:
        assert ended(kernelci, job)[2:] == ("Infrastructure", "the lab's program failed: IsADirectoryError")
    else:
        assert "refuses with HTTP 403" in caught.value.__notes__[0]


def test_an_end_that_kernelci_did_not_hear_is_told_in_a_later_round(
    kernelci: KernelCI, parts: dict[str, str], tmp_path: Path
) -> None:
    polling = a_poller(kernelci, tmp_path)
    job = kernelci.job(7, parts, arch="arm64")
    kernelci.puts = [200, 403, 503, 200]
    with pytest.raises(KernelCIError):
        polling.once()
    polling.once()
    assert ended(kernelci, job)[:2] == ("available", None)
    polling.once()
    assert ended(kernelci, job)[:3] == ("done", "incomplete", "invalid_job_params")
    assert not (polling.folder / job / "claim.json").exists()


def test_a_job_of_a_program_that_was_killed_ends_in_the_next_round(
    kernelci: KernelCI, parts: dict[str, str], tmp_path: Path
) -> None:
    polling = a_poller(kernelci, tmp_path)
    ours, theirs = kernelci.job(7, parts, job_id="pull-mylab:a"), kernelci.job(8, parts, job_id="pull-mylab:b")
    for job in (ours, theirs):
        (polling.folder / job).mkdir()
        (polling.folder / job / "claim.json").write_text('{"job_id": "pull-mylab:a"}')
    assert polling.once() == 0
    assert ended(kernelci, ours)[:3] == ("done", "incomplete", "Infrastructure")
    assert "the lab's program ended while it did the job" in ended(kernelci, ours)[3]
    assert ended(kernelci, theirs)[:2] == ("available", None)
    assert list(polling.folder.glob("*/claim.json")) == []


def test_a_lab_that_waits_for_a_server_can_be_ended(kernelci: KernelCI, parts: dict[str, str], tmp_path: Path) -> None:
    job = kernelci.job(7, parts)
    kernelci.drips.add("/storage/zImage")
    with polling_until_ended(kernelci, tmp_path / "said", "--once"):
        await_events(kernelci, 1, "/storage/zImage")
    assert ended(kernelci, job)[:3] == ("done", "incomplete", "Canceled")


def test_each_api_and_platform_has_its_own_folder_and_one_program(kernelci: KernelCI, tmp_path: Path) -> None:
    one, same = a_poller(kernelci, tmp_path), a_poller(kernelci, tmp_path)
    other = a_poller(kernelci, tmp_path, platform="other")
    elsewhere = dataclasses.replace(one, api=Api(f"{kernelci.url}/other", TOKEN))
    assert one.folder == same.folder
    assert len({one.folder, other.folder, elsewhere.folder}) == 3
    with one.alone(), other.alone(), pytest.raises(LabError, match="another poll takes the jobs"), same.alone():
        pass
    with same.alone():
        pass


def test_jobs_behind_a_full_page_are_found_at_once(kernelci: KernelCI, parts: dict[str, str], tmp_path: Path) -> None:
    for number in range(EVENTS_AT_ONCE):
        kernelci.job(number, parts, platform="other")
    job = kernelci.job(EVENTS_AT_ONCE, parts, arch="arm64")
    assert a_poller(kernelci, tmp_path).once() == 1
    assert ended(kernelci, job)[0] == "done"
