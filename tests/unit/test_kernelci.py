"""Jobs that a lab takes from KernelCI, up to its bench; tests/lab/test_kernelci.py measures one."""

from __future__ import annotations

import dataclasses
import json
import signal
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest
from command_line import PROGRAM, CommandLine, Done, command_line
from kernelci_server import KBUILD, KCIDB_TOKEN, RUNTIME, TOKEN, KernelCI, digest, kernelci_server
from results_factory import make_run

from fsjoule.errors import ConfigError, KernelCIError, LabError
from fsjoule.host import process
from fsjoule.host.paths import project_dir
from fsjoule.kernelci import poll as poller
from fsjoule.kernelci.api import EVENTS_AT_ONCE, Api
from fsjoule.kernelci.job import Job, bring_kernel, definition_of
from fsjoule.kernelci.kcidb import Kcidb, kcidb_of
from fsjoule.kernelci.web import asked, download, is_address
from fsjoule.lab import read_environment
from fsjoule.model import RunStatus

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
    say: Callable[[str], None] = print,
    platform: str = "imx6ul",
) -> poller.Poller:
    lab = poller.Lab(RUNTIME, platform, read_environment(ENVIRONMENT), tmp_path / "results", (), "mylab", 3600)
    return poller.Poller(Api(kernelci.api, TOKEN), lab, kcidb, say, again_s=0.01)


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
    job = Job("7" * 24, "job", f"{kernelci.url}{name}", "v6.13-rc2/../x", None)
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


def test_a_lab_asks_again_until_it_is_ended(kernelci: KernelCI, tmp_path: Path) -> None:
    words = ["--runtime", RUNTIME, "--platform", "imx6ul", "--lg-env", str(ENVIRONMENT), "--every", "1"]
    kernelci.faults = {"/latest/events": 503}
    with (tmp_path / "said").open("wb") as said:
        poll = process.start([PROGRAM, "kernelci", "poll", kernelci.api, *words], log=said)
        try:
            for faults, times in (({"/latest/events": 503}, 2), ({}, 4)):
                kernelci.faults = faults
                await_events(kernelci, times)
            poll.send_signal(signal.SIGTERM)
            assert poll.wait(60) == 128 + signal.SIGTERM
        finally:
            process.stop(poll)
    assert b"warning: asking KernelCI for jobs: http://127.0.0.1" in (tmp_path / "said").read_bytes()


def await_events(kernelci: KernelCI, times: int, asked: str = "/latest/events") -> None:
    deadline = time.monotonic() + 120
    while [path for path, _ in kernelci.authorized].count(asked) < times:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_an_answer_that_is_not_the_apis_is_refused(kernelci: KernelCI) -> None:
    kernelci.files["/storage/events"] = b'{"detail": "hello"}'
    with pytest.raises(KernelCIError, match="does not answer as KernelCI's API does"):
        Api(f"{kernelci.url}/storage", TOKEN).waiting("1970-01-01T00:00:00")
    with pytest.raises(KernelCIError, match="is no node of KernelCI's"):
        Api(kernelci.api, TOKEN).node("../../whoami")
    kernelci.faults["/latest/whoami"] = 503
    with pytest.raises(KernelCIError) as caught:
        Api(kernelci.api, TOKEN).user()
    assert caught.value.transient


def test_kcidb_takes_a_document_or_says_why_not(kernelci: KernelCI) -> None:
    written = kcidb_of(kernelci.kcidb)
    assert written == kcidb_of(f"{kernelci.kcidb}/submit")
    assert written.url == f"{kernelci.url}/kcidb/submit"
    assert KCIDB_TOKEN not in repr(written)
    document = '{"version": {"major": 5, "minor": 3}}'
    assert written.submit(document) == "a1b2c3"
    assert kernelci.sent == [json.loads(document)]
    with pytest.raises(KernelCIError, match=r"refuses with HTTP 401: .*InvalidToken"):
        Kcidb(written.url, "wrong").submit(document)
    with pytest.raises(ConfigError):
        kcidb_of("https://user:password@host")


def test_a_revision_names_no_folder(kernelci: KernelCI, parts: dict[str, str], tmp_path: Path) -> None:
    kernelci.job(7, parts)
    [name] = [name for name in kernelci.files if "pull_labs_jobs" in name]
    for revision in ("..", "v" * 300):
        job = Job("7" * 24, "job", f"{kernelci.url}{name}", revision, None)
        assert bring_kernel(job, definition_of(job), tmp_path / "into") == tmp_path / "into" / "kernel"
    assert {each.name for each in (tmp_path / "into").iterdir()} == {"kernel"}


def test_figures_that_cannot_be_sent_are_set_aside_and_hold_no_others_up(kernelci: KernelCI, tmp_path: Path) -> None:
    said: list[str] = []
    polling = a_poller(kernelci, tmp_path, kcidb_of(kernelci.kcidb), said.append)
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
    kernelci: KernelCI, parts: dict[str, str], tmp_path: Path
) -> None:
    said: list[str] = []
    polling = a_poller(kernelci, tmp_path, say=said.append)
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


@pytest.mark.parametrize(
    ("code", "run", "output", "outcome"),
    [
        (0, {"status": RunStatus.COMPLETE}, "", poller.Outcome("pass")),
        (1, {"status": RunStatus.COMPLETE}, "", poller.Outcome("fail")),
        (
            4,
            {"status": RunStatus.COMPLETE},
            "ERROR: old\nERROR: the meter is silent\n  hint\n",
            poller.Outcome("incomplete", "Infrastructure", "the meter is silent"),
        ),
        (
            4,
            {"status": RunStatus.ABORTED, "abort_reason": "no board"},
            "ERROR: x\n",
            poller.Outcome("incomplete", "Infrastructure", "no board"),
        ),
        (
            4,
            {"status": RunStatus.ABORTED, "abort_reason": "it did not boot: Kernel panic - x"},
            "",
            poller.Outcome("fail"),
        ),
        (2, None, "ERROR: no f2fs\n", poller.Outcome("incomplete", "invalid_job_params", "no f2fs")),
        (70, None, "", poller.Outcome("incomplete", "Infrastructure", "the bench ended with exit code 70")),
        (None, None, "", poller.Outcome("incomplete", "Infrastructure", "the bench took too long")),
    ],
)
def test_a_benchs_end_in_kernelcis_words(
    code: int | None, run: dict[str, Any] | None, output: str, outcome: poller.Outcome, tmp_path: Path
) -> None:
    (tmp_path / "bench.log").write_text(output)
    found = None if run is None else dataclasses.replace(make_run().run, **run)
    assert poller.outcome_of(code, found, tmp_path / "bench.log") == outcome


def test_a_server_that_drips_is_left_at_the_limit_and_one_that_breaks_off_is_noticed(
    kernelci: KernelCI, parts: dict[str, str], tmp_path: Path
) -> None:
    kernelci.drips.add("/storage/zImage")
    begun = time.monotonic()
    with pytest.raises(KernelCIError, match=r"took longer than 0\.5 s"):
        download(parts["kernel"], tmp_path / "got", "it", most_bytes=1 << 20, sha256=None, limit_s=0.5)
    assert time.monotonic() - begun < 30
    kernelci.drips.clear()
    kernelci.cut.add("/storage/zImage")
    with pytest.raises(KernelCIError, match="broke off") as caught:
        download(parts["kernel"], tmp_path / "got", "it", most_bytes=1 << 20, sha256=None)
    assert caught.value.transient


def test_a_lab_that_waits_for_a_server_can_be_ended(kernelci: KernelCI, parts: dict[str, str], tmp_path: Path) -> None:
    words = ["--runtime", RUNTIME, "--platform", "imx6ul", "--lg-env", str(ENVIRONMENT), "--once"]
    job = kernelci.job(7, parts)
    kernelci.drips.add("/storage/zImage")
    with (tmp_path / "said").open("wb") as said:
        poll = process.start([PROGRAM, "kernelci", "poll", kernelci.api, *words], log=said)
        try:
            await_events(kernelci, 1, "/storage/zImage")
            poll.send_signal(signal.SIGTERM)
            assert poll.wait(60) == 128 + signal.SIGTERM
        finally:
            process.stop(poll)
    assert ended(kernelci, job)[:3] == ("done", "incomplete", "Canceled")


def test_a_redirect_is_followed_a_few_times_and_never_by_a_change(kernelci: KernelCI) -> None:
    kernelci.files["/storage/a"] = b'{"a": 1}'
    other = kernelci.url.replace("127.0.0.1", "localhost")
    kernelci.moved = {"/x": "/storage/a", "/y": f"{other}/storage/a", "/z": "/z", "/f": "ftp://x/a", "/v": "https://[x"}
    assert asked("GET", f"{kernelci.url}/x", "it", token=TOKEN) == {"a": 1}
    assert kernelci.authorized[-1] == ("/storage/a", TOKEN)
    assert asked("GET", f"{kernelci.url}/y", "it", token=TOKEN) == {"a": 1}
    assert kernelci.authorized[-1] == ("/storage/a", "")
    before = len(kernelci.authorized)
    with pytest.raises(KernelCIError, match="more than 5 other addresses"):
        asked("GET", f"{kernelci.url}/z", "it")
    assert len(kernelci.authorized) == before + 6
    for path in ("/f", "/v"):
        with pytest.raises(KernelCIError):
            asked("GET", f"{kernelci.url}{path}", "it")
    with pytest.raises(KernelCIError, match="refuses with HTTP 302"):
        asked("PUT", f"{kernelci.url}/x", "it", token=TOKEN, document={})


@pytest.mark.parametrize(("status", "transient"), [(400, False), (408, True), (429, True), (503, True)])
def test_refusals_that_pass_by_themselves(kernelci: KernelCI, status: int, transient: bool) -> None:
    kernelci.faults["/x"] = status
    with pytest.raises(KernelCIError) as caught:
        asked("GET", f"{kernelci.url}/x", "it")
    assert caught.value.transient is transient


def test_what_no_parser_can_read_is_an_error_of_ours(kernelci: KernelCI) -> None:
    assert not is_address("https://[x/a.json")
    kernelci.files["/storage/deep"] = b"[" * 100_000
    with pytest.raises(KernelCIError, match="does not answer in JSON"):
        asked("GET", f"{kernelci.url}/storage/deep", "it")


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
