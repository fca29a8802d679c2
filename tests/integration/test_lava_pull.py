"""A job's run comes back from a LAVA server; tests/lava asks a real one."""

from __future__ import annotations

import base64
import json
import threading
import time
import zlib
from collections.abc import Generator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml
from command_line import CommandLine
from results_factory import MadeRun, make_run

from fsjoule.ci.lava.pull import LavaServer, _log, pull
from fsjoule.ci.lava.signals import Signals, folder_lines, kept_in, measurement_lines, run_lines
from fsjoule.errors import ConfigError, LavaError, ResultError
from fsjoule.host.paths import project_dir
from fsjoule.model import JobFacts, Run, RunStatus
from fsjoule.runs.open_run import lava_job
from fsjoule.store.folder import RunFolder
from fsjoule.store.reader import LoadedRun, load_run
from fsjoule.store.run_folders import find_runs
from fsjoule.store.schemas import MEASUREMENT, encode

TOKEN = "planted-4711"


@dataclass
class Lava:
    """A server's answers by path: status and body. Private ones need the token. `byte_s` is the time a byte takes."""

    answers: dict[str, tuple[int, bytes]] = field(default_factory=dict[str, tuple[int, bytes]])
    private: bool = False
    byte_s: float = 0.0
    url: str = ""

    def has(self, job: int, log: list[str], state: str = "Finished") -> None:
        self.answers["/api/v0.2/system/version/"] = (200, json.dumps({"version": "2026.10"}).encode())
        told = {"id": job, "state": state, "actual_device": "virtual"}
        self.answers[f"/api/v0.2/jobs/{job}/"] = (200, json.dumps(told).encode())
        # A cancelled job's last lines are feedback; LAVA's own lines are debug.
        levels = ["target"] * (len(log) // 2) + ["feedback"] * len(log)
        entries: list[dict[str, object]] = [
            {"dt": "2026-11-22T20:00:00", "lvl": lvl, "msg": line} for lvl, line in zip(levels, log, strict=False)
        ]
        entries.insert(0, {"dt": "2026-11-22T20:00:00", "lvl": "debug", "msg": {"end": "fsjoule-kept"}})
        self.answers[f"/api/v0.2/jobs/{job}/logs/"] = (200, yaml.safe_dump(entries).encode())


@pytest.fixture
def lava() -> Generator[Lava]:
    has = Lava()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = has.answers.get(urlsplit(self.path).path, (404, b"Not found"))
            if has.private and self.headers.get("Authorization") != f"Token {TOKEN}":
                status, body = 401, b'{"detail":"Invalid token."}'
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            for part in [body[at : at + 1] for at in range(len(body))] if has.byte_s else [body]:
                self.wfile.write(part)
                time.sleep(has.byte_s)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            """Keep quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    has.url = f"http://127.0.0.1:{server.server_port}"
    yield has
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def fsjoule(fsjoule: CommandLine, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    monkeypatch.delenv("FSJOULE_LAVA_TOKEN", raising=False)
    return fsjoule


def of_job(made: MadeRun) -> Run:
    return replace(made.run, job=JobFacts("7", "virtual", "bench", ""))


def log_of(made: MadeRun, folder: Path) -> list[str]:
    lines = ["$ pytest tests/bench", *folder_lines(folder), *run_lines(replace(of_job(made), measurements=()))]
    for measurement in made.measurements:
        lines += [*measurement_lines(measurement), "<LAVA_SIGNAL_TESTCASE ...>"]
    return [*lines, *run_lines(of_job(made))]


def test_a_log_without_the_run_folder_gives_all_figures_and_says_that_it_has_no_traces(
    lava: Lava, tmp_path: Path, fsjoule: CommandLine
) -> None:
    made = make_run()
    lava.has(7, log_of(made, tmp_path / "gone"))
    pulled = pull(LavaServer(lava.url), 7, tmp_path / "results")
    assert (pulled.whole, pulled.known, pulled.measurements) == (False, False, len(made.measurements))
    found = load_run(pulled.path)
    assert found.measurements == made.measurements
    assert found.run.job == JobFacts("7", "virtual", "bench", f"{lava.url}/scheduler/job/7", pulled=True)
    assert replace(found.run, job=None, measurements=()) == replace(made.run, measurements=())
    assert found.trace(1) is None
    assert "pulled from its log, without traces" in fsjoule("show", pulled.path).out
    again = pull(LavaServer(lava.url), 7, tmp_path / "results")
    assert (again.known, again.whole) == (True, False)
    done = fsjoule("index", "import", pulled.path, "--index", f"sqlite:///{tmp_path}/index.db")
    assert done.code == 0, done.err


def test_the_run_folder_is_copied_where_it_can_be_read(lava: Lava, tmp_path: Path, fsjoule: CommandLine) -> None:
    made = make_run()
    worker = RunFolder(tmp_path / "worker")
    worker.begin(made.run)
    for measurement in made.measurements:
        worker.add(measurement, made.traces.get(measurement.number), {})
    worker.finish(made.run)
    folder = worker.path
    lava.has(7, log_of(made, folder))
    said = fsjoule("lava", "pull", lava.url, "7", "--results", tmp_path / "here")
    assert "measurements; the run folder" in said.err
    [copied] = (tmp_path / "here").iterdir()
    assert load_run(copied).trace(1) is not None


def test_each_refusal_is_told_without_the_token(
    lava: Lava, tmp_path: Path, fsjoule: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    lava.has(7, [])
    lava.has(8, ["just text"], state="Running")
    lava.answers["/api/v0.2/jobs/9/"] = (500, b"<h1>Server Error</h1>")

    def refused(job: int, code: int, words: str) -> None:
        done = fsjoule("lava", "pull", lava.url, job, "--results", tmp_path)
        assert done.code == code
        assert words in done.err
        assert "wrong-0815" not in done.err

    refused(7, 2, "job 7 of " + lava.url + " has no measurements of fsjoule")
    refused(8, 7, "is Running")
    refused(9, 7, "refuses job 9: HTTP 500")
    refused(10, 7, "has no job 10")
    lava.private = True
    refused(7, 7, "it asks for a token")
    monkeypatch.setenv("FSJOULE_LAVA_TOKEN", "wrong-0815")
    refused(7, 7, "its token is wrong")
    monkeypatch.setenv("FSJOULE_LAVA_TOKEN", TOKEN)
    refused(7, 2, "has no measurements of fsjoule")


@pytest.mark.parametrize(
    ("path", "answer", "words"),
    [
        ("system/version/", (404, b""), "does not answer as LAVA's REST interface v0.2 does"),
        ("system/version/", (200, b"<html>"), "does not answer as LAVA's REST interface v0.2 does"),
        ("jobs/7/", (200, b"[]"), "LAVA 2026.10 at"),
        ("jobs/7/logs/", (200, b"- 7"), "is not as LAVA writes it: LAVA 2026.10"),
    ],
)
def test_a_server_of_another_kind_is_named(
    lava: Lava, tmp_path: Path, path: str, answer: tuple[int, bytes], words: str
) -> None:
    lava.has(7, [])
    lava.answers[f"/api/v0.2/{path}"] = answer
    with pytest.raises(LavaError, match=words):
        pull(LavaServer(lava.url), 7, tmp_path)


def test_a_server_that_is_not_there_is_named(tmp_path: Path, fsjoule: CommandLine) -> None:
    done = fsjoule("lava", "pull", "http://127.0.0.1:9", 7, "--results", tmp_path)
    assert (done.code, "cannot be reached" in done.err) == (7, True)
    done = fsjoule("lava", "pull", "lava.example.org", 7, "--results", tmp_path)
    assert (done.code, "is no address of a LAVA server" in done.err) == (2, True)


@pytest.mark.parametrize("url", ["https://me:secret-99@lava.example.org", "https://me:secret-99@lava.example.org/lava"])
def test_a_password_in_the_address_is_refused_and_not_repeated(url: str, tmp_path: Path, fsjoule: CommandLine) -> None:
    environment = project_dir() / "env" / "virtual.yaml"
    for command in (
        ("lava", "pull", url, 7, "--results", tmp_path),
        ("lava", "device", "place", "--lg-env", environment, "--server", url),
    ):
        done = fsjoule(*command)
        assert (done.code, "is no address of a LAVA server" in done.err) == (2, True), done.err
        assert "secret-99" not in done.out + done.err


def test_the_token_is_sent_although_netrc_knows_a_password_for_the_server(
    lava: Lava, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login me password another")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    lava.has(7, log_of(make_run(), tmp_path / "gone"))
    lava.private = True
    assert pull(LavaServer(lava.url, TOKEN), 7, tmp_path).measurements


def test_a_server_that_never_comes_to_an_end_is_given_up(lava: Lava, tmp_path: Path) -> None:
    lava.has(7, [])
    lava.byte_s = 0.5
    with pytest.raises(LavaError, match="took longer than 1 s"):
        pull(LavaServer(lava.url, answer_limit_s=1.0), 7, tmp_path)


@pytest.mark.parametrize("sign", [b"[", b"{a: ", b"- "])
def test_a_log_that_is_nested_deep_ends_no_process(sign: bytes) -> None:
    with pytest.raises(LavaError, match="not as LAVA writes it"):
        _log(sign * 300_000, "the log", "2026.10")
    nested = b"[" * 300 + b"]" * 300
    assert _log(b"- {lvl: target, msg: a}\n- {lvl: target, msg: " + nested + b"}\n", "the log", "2026.10") == ["a"]


def test_a_folder_that_cannot_be_one_is_not_looked_for(lava: Lava, tmp_path: Path) -> None:
    lava.has(7, log_of(make_run(), Path("a\0b")))
    assert not pull(LavaServer(lava.url), 7, tmp_path).whole


def test_a_run_that_is_being_fetched_is_no_run_yet(lava: Lava, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lava.has(7, log_of(make_run(), tmp_path / "gone"))

    # The real one, at the moment in which the run is there under its passing name.
    def imports_meanwhile(path: Path) -> LoadedRun:
        with pytest.raises(ConfigError, match="there is no run folder"):
            find_runs([tmp_path])
        return load_run(path)

    monkeypatch.setattr("fsjoule.ci.lava.pull.load_run", imports_meanwhile)
    pulled = pull(LavaServer(lava.url), 7, tmp_path)
    assert find_runs([tmp_path]) == ([pulled.path.resolve()], [])


def test_measurements_of_an_earlier_run_in_the_same_job_are_not_the_last_ones() -> None:
    earlier, last = make_run(), make_run()
    last = replace(last, run=replace(last.run, run_id="another"), measurements=last.measurements[:2])
    kept = kept_in([*log_of(earlier, Path("/srv/earlier")), *log_of(last, Path("/srv/last"))], "the log")
    assert kept is not None
    assert (kept.run.run_id, kept.folder) == ("another", "/srv/last")
    assert kept.measurements == last.measurements


def test_what_the_jobs_end_has_cut_off_is_left_out_and_damage_is_told() -> None:
    made = make_run()
    lines = log_of(made, Path("/srv/run"))
    last = [*run_lines(of_job(made))]
    whole = kept_in(lines, "the log")
    assert whole is not None
    assert whole.folder == "/srv/run"
    cut = kept_in(lines[: -len(last) - 2], "the log")
    assert cut is not None
    assert len(cut.measurements) == len(made.measurements) - 1
    assert kept_in(["nothing"], "the log") is None
    for damaged in ("AAAA", "A", base64.b64encode(zlib.compress(b"{}")[:-4]).decode()):
        with pytest.raises(ResultError, match=r"damaged|cut off"):
            kept_in([f"fsjoule-kept run 1/1 {damaged}"], "the log")


def test_a_run_knows_its_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LAVA_JOB_ID", raising=False)
    assert lava_job() is None
    monkeypatch.setenv("LAVA_JOB_ID", "7")
    assert lava_job() == JobFacts("7", "", "", "")
    for name, text in (("DEVICE", "board"), ("WORKER", "rack3"), ("SERVER", "https://lava.example.org/")):
        monkeypatch.setenv(f"FSJOULE_LAVA_{name}", text)
    found = lava_job()
    assert found == JobFacts("7", "board", "rack3", "https://lava.example.org/scheduler/job/7")
    assert found is not None
    assert found.text == "job 7 on board of rack3"


@pytest.mark.parametrize("slug", ["../../outside", "a/b", "x" * 300])
def test_a_measurement_that_would_be_outside_of_its_run_is_refused(
    slug: str, lava: Lava, tmp_path: Path, fsjoule: CommandLine
) -> None:
    """Whoever submits a job writes its log."""
    made = make_run()
    text = encode(MEASUREMENT, made.measurements[0], "it").decode()
    own = f'"slug": "{made.measurements[0].slug}"'
    assert text.count(own) == 1
    packed = base64.b64encode(zlib.compress(text.replace(own, f'"slug": "{slug}"').encode())).decode()
    lava.has(7, [*run_lines(of_job(made)), f"fsjoule-kept measurement 1/1 {packed}"])
    done = fsjoule("lava", "pull", lava.url, 7, "--results", tmp_path / "results" / "here")
    assert (done.code, "slug: " in done.err, "its name is" in done.err) == (2, True, True), done.err
    assert not (tmp_path / "results").exists()


def test_a_run_that_a_second_job_has_resumed_is_pulled_whole_and_stays_the_first_ones(
    lava: Lava, tmp_path: Path, said: list[str]
) -> None:
    made = make_run()
    *earlier, last = made.measurements
    begun = replace(made, run=replace(made.run, status=RunStatus.ABORTED), measurements=tuple(earlier))
    lava.has(7, log_of(begun, tmp_path / "gone"))
    assert pull(LavaServer(lava.url), 7, tmp_path / "results").measurements == len(earlier)
    signals = Signals()
    signals.opened(replace(of_job(made), measurements=()), tmp_path / "gone", earlier)
    signals.stored(last)
    signals.closed(of_job(made))
    lava.has(8, said)
    pulled = pull(LavaServer(lava.url), 8, tmp_path / "results")
    found = load_run(pulled.path)
    assert (pulled.known, [each.name for each in (tmp_path / "results").iterdir()]) == (False, [pulled.path.name])
    assert found.measurements == made.measurements
    assert found.run.job == JobFacts("7", "virtual", "bench", "", pulled=True)


def test_a_run_folder_with_traces_is_not_given_up_for_a_log_without(lava: Lava, tmp_path: Path) -> None:
    made = make_run()
    here = RunFolder(tmp_path)
    here.begin(of_job(made))
    here.add(made.measurements[0], made.traces[made.measurements[0].number], {})
    here.finish(of_job(made))
    lava.has(7, log_of(made, tmp_path / "gone"))
    pulled = pull(LavaServer(lava.url), 7, tmp_path)
    assert (pulled.path, pulled.known, pulled.whole, pulled.measurements) == (here.path, True, True, 1)
    assert load_run(here.path).trace(made.measurements[0].number) is not None
