"""Allure's result files and its history, made from run folders."""

from __future__ import annotations

import html
import json
import re
import shutil
from contextlib import closing
from dataclasses import replace
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from xml.etree import ElementTree as ET

import pytest
from command_line import CommandLine
from nights import Nights, slower_at
from reported_runs import BUILDS, LAB_STEPS, STEP_AT, Written, write_gate, write_nights, write_run
from results_factory import LAB, make_run
from whole_runs import write_whole

from fsjoule.errors import ConfigError, StorageError
from fsjoule.host.plaintext import plain
from fsjoule.model.series import Series
from fsjoule.report import markdown
from fsjoule.report.allure import tests
from fsjoule.report.allure.builds import read_builds
from fsjoule.report.allure.documents import AllureStatus, categories
from fsjoule.report.allure.results import environment, write_results
from fsjoule.report.allure.site import _MARK, history_lines, loss_tests, serving, trends_of
from fsjoule.report.allure.tests import attach
from fsjoule.store.finding import Subject
from fsjoule.store.folder import GATE_FILE
from fsjoule.store.reader import LoadedRun, load_run

Document = dict[str, Any]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    return write_run(tmp_path_factory.mktemp("results"))


@pytest.fixture(scope="module")
def files(written: Written, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made") / "allure-results"
    write_results(read_builds([written.path]), folder)
    return folder


def results_in(folder: Path) -> list[Document]:
    return [json.loads(path.read_text()) for path in sorted(folder.glob("*-result.json"))]


def numbered(folder: Path, number: int) -> list[Document]:
    """All results of an entry of the plan, in the order of time."""
    found = [each for each in results_in(folder) if parameter(each, "number") == str(number)]
    return sorted(found, key=lambda each: each["start"])


def parameter(result: Document, name: str) -> str | None:
    return next((each["value"] for each in result["parameters"] if each["name"] == name), None)


def category(result: Document) -> str | None:
    """As Allure finds it: the first whose status and message fit."""
    said = result["statusDetails"].get("message", "")
    for rule in categories():
        for matcher in rule["matchers"]:
            if result["status"] in matcher["statuses"] and re.search(matcher.get("message", ""), said):
                return rule["name"]
    return None


def test_every_entry_of_the_plan_has_a_result(files: Path, written: Written) -> None:
    numbers = {parameter(result, "number") for result in results_in(files)}
    assert numbers == {str(entry.number) for entry in written.run.plan.entries}


def test_a_measurement_says_what_it_is_of(files: Path, written: Written) -> None:
    entry = next(entry for entry in written.run.plan.entries if entry.slug == "ext4-randwrite-16k")
    (result,) = numbered(files, entry.number)
    assert result["status"] == "passed"
    labels = {label["name"]: label["value"] for label in result["labels"]}
    assert labels == {
        "board": "virtual",
        "kernel": "6.1.0-44-armmp",
        "filesystem": "ext4",
        "suite": "quick",
        "framework": "fsjoule",
        "tag": "simulated",
    }
    assert "write amplification | 1.030" in result["description"]


@pytest.mark.parametrize(
    ("which", "expected", "said"),
    [
        ("invalid", "Invalid measurement", "invalid measurement: window 2.314 s"),
        ("damaged", "Damaged result", "damaged result: "),
        ("missing", "Not measured", "not measured: interrupted"),
        ("failed", "Lab fault", "lab fault: the outlet does not answer"),
        ("retried", "Lab fault, transient", "lab fault, transient: virtual did not boot"),
        ("buggy", "Bug", "bug: ValueError: no"),
    ],
)
def test_what_went_wrong_has_a_category(files: Path, written: Written, which: str, expected: str, said: str) -> None:
    first = numbered(files, getattr(written, which))[0]
    assert category(first) == expected
    assert first["statusDetails"]["message"].startswith(said)
    assert first["status"] == ("skipped" if which == "missing" else "broken")


def test_a_second_try_follows_its_fault(files: Path, written: Written) -> None:
    fault, measured = numbered(files, written.retried)
    assert (fault["status"], measured["status"]) == ("broken", "passed")
    assert "Kernel panic" in fault["statusDetails"]["trace"]
    assert "hint: look at its supply" in fault["statusDetails"]["trace"]
    # Allure takes it for a retry if both are the same test.
    same = [(each["fullName"], parameter(each, "repetition")) for each in (fault, measured)]
    assert same[0] == same[1]


def test_steps_are_those_of_labgrid(files: Path, written: Written) -> None:
    fault = numbered(files, written.retried)[0]
    transition, sync = fault["steps"]
    assert transition["name"] == "BoardStrategy: transition: Status.booted"
    assert [step["name"] for step in transition["steps"]] == ["NetworkPowerDriver: off", "NetworkPowerDriver: on"]
    assert transition["stop"] - transition["start"] == LAB_STEPS[0].duration_ms
    assert sync["status"] == "broken"
    assert sync["statusDetails"]["message"] == "TIMEOUT: no prompt"
    assert sync["parameters"] == [{"name": "cmd", "value": "sync"}]


def test_attachments_are_there_and_can_be_read(files: Path, written: Written) -> None:
    entry = next(entry for entry in written.run.plan.entries if entry.slug == "ext4-randwrite-16k")
    (result,) = numbered(files, entry.number)
    attached = {each["name"]: files / each["source"] for each in result["attachments"]}
    assert list(attached) == ["power trace.svg", "console.log", "fio.json", "repeat it.sh"]
    assert ET.fromstring(attached["power trace.svg"].read_text()).tag.endswith("svg")
    assert json.loads(attached["fio.json"].read_text()) == {"fio version": "fio-3.33"}
    again = attached["repeat it.sh"].read_text()
    assert f"pytest tests/bench --lg-env env/virtual.yaml --fs ext4,btrfs --seed 7 -k {entry.number:02d}-r1-" in again
    assert "#   mount -t ext4 /dev/mmcblk1p3 /mnt" in again


def test_a_foreign_attachment_is_no_page_of_the_reports(tmp_path: Path) -> None:
    made = make_run(repeat=1)
    files = {"a.html": b"<script>", "b.svg": b"<svg/>", "c.log": b"text"}
    folder = write_whole(tmp_path, made.run, made.measurements[:1], attachments=lambda _: files)
    attached = attach(load_run(folder), made.measurements[0], "uuid", lambda _name, _content: None).attachments
    assert {each.name: Path(each.source).suffix for each in attached} == {
        "a.html": "",
        "b.svg": "",
        "c.log": ".log",
        "repeat it.sh": ".sh",
    }


def test_names_call_nobody_and_hide_nothing() -> None:
    named = html.unescape(markdown.plain("@all @_me 6.12@run-1 &#64;all"))
    assert named == "@\u200ball @\u200b\\_me 6.12@run-1 &#64;all"
    assert plain("main\u200b\u200d\u3164\xad") == "main" + 4 * "\N{REPLACEMENT CHARACTER}"


def test_a_report_is_served_by_its_own_names_only(tmp_path: Path) -> None:
    """By another one it would be read by a page elsewhere, in the same browser."""
    (tmp_path / "index.html").write_text("a report")
    (tmp_path / _MARK).touch()
    statuses: list[int] = []
    with serving(tmp_path, 0) as address, closing(HTTPConnection(urlsplit(address).netloc, timeout=60)) as connection:
        for host in ("127.0.0.1:8080", "localhost", "evil.example:8080"):
            connection.request("GET", "/index.html", headers={"Host": host})
            answer = connection.getresponse()
            answer.read()
            statuses.append(answer.status)
    assert statuses == [200, 200, 400]


def test_names_are_no_markup() -> None:
    measurement = replace(make_run(repeat=1).measurements[0], notes=("the card <b> has two_parts | three",))
    text = tests._description(measurement, ())
    assert text.splitlines()[-1] == r"- the card &lt;b&gt; has two\_parts \| three"


def test_a_measurement_without_a_trace_says_so(files: Path) -> None:
    (result,) = numbered(files, 3)
    assert "power trace.svg" not in [each["name"] for each in result["attachments"]]
    assert "the meter recorded nothing" in result["description"]


def test_metrics_are_those_of_valid_measurements(files: Path, written: Written) -> None:
    loaded = load_run(written.path)
    legend = write_results(read_builds([written.path]), files.parent / "again").legend
    for measurement in loaded.measurements:
        file = files / f"k3v9q2-{measurement.number:02d}-perf.json"
        if not measurement.valid:
            assert not file.exists()
            continue
        told = {each["key"]: each["value"] for each in json.loads(file.read_text())}
        key = Series(measurement.series, simulated=True).key
        if measurement.throughput_mib_per_s is not None:
            assert told[f"{key}.throughput"] == measurement.throughput_mib_per_s
            assert told[f"{key}.cpu"] == pytest.approx(1000 * (measurement.cpu_s_per_mib or 0))
            assert "better" not in legend[f"{key}.throughput"], "a colour without an error rate contradicts verdicts"
            assert legend[f"{key}.cpu"]["unit"] == "ms/MiB"
        assert told.keys() <= legend.keys()
    assert all("(simulated)" in row["group"] for row in legend.values())


def test_a_gate_tells_of_each_figure(written: Written, tmp_path: Path) -> None:
    copy = tmp_path / written.path.name
    shutil.copytree(written.path, copy)
    series = [Series(m.series, simulated=True) for m in load_run(copy).measurements[:3]]
    subjects = tuple(Subject(each.key, each.series, each.simulated, each.label) for each in series)
    write_gate(copy, subjects)
    # One that is not stored is no answer.
    with pytest.raises(
        StorageError, match=r"gate\.json could not be stored: No such file .* the answer was: regressed"
    ):
        write_gate(tmp_path / "nowhere", subjects)
    write_results(read_builds([copy]), tmp_path / "made")
    gate = [each for each in results_in(tmp_path / "made") if each["name"].startswith("gate: ")]
    told = {each["status"]: each for each in gate}
    assert told.keys() == {"failed", "passed", "skipped"}
    assert category(told["failed"]) == "Regression"
    assert (
        "10.0 % slower (95 %: 8.0 to 12.0 %), 9.000 MiB/s against 10.00 MiB/s, 4 pairs of boots; "
        in told["failed"]["statusDetails"]["message"]
    )
    assert "HEAD against main" in told["failed"]["statusDetails"]["message"]
    assert category(told["skipped"]) == "Not decided"

    (copy / GATE_FILE).write_text('{"headline": 3}')
    problems = write_results(read_builds([copy]), tmp_path / "damaged").problems
    assert any(GATE_FILE in problem for problem in problems)


def test_environment_and_executor(files: Path, written: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    told = dict(line.split(" = ", 1) for line in (files / "environment.properties").read_text().splitlines())
    assert (told["board"], told["simulated"], told["kernel"]) == ("virtual", "yes", "6.1.0-44-armmp")
    assert json.loads((files / "executor.json").read_text())["buildName"] == "k3v9q2, 2026-03-09 10:00"
    monkeypatch.setenv("GITLAB_CI", "true")
    monkeypatch.setenv("CI_PIPELINE_IID", "42")
    monkeypatch.setenv("CI_PIPELINE_URL", "https://gitlab.example/p/42")
    write_results(read_builds([written.path]), files.parent / "ci", url="https://pages.example/")
    executor = json.loads((files.parent / "ci" / "executor.json").read_text())
    assert (executor["type"], executor["buildOrder"]) == ("gitlab", 42)
    assert executor["buildUrl"] == "https://gitlab.example/p/42"
    assert executor["reportUrl"] == "https://pages.example/"


def test_the_environment_tells_boards_of_one_type_apart(tmp_path: Path) -> None:
    made = make_run(repeat=1)
    lines = environment([LoadedRun(tmp_path, replace(made.run, lab=LAB), (), {}, {})])
    assert (lines["place"], lines["exporter"]) == ("virtual", "fsjoule-virtual")
    assert "place" not in environment([LoadedRun(tmp_path, made.run, (), {}, {})])


def test_earlier_builds_are_history(tmp_path: Path) -> None:
    write_nights(tmp_path)
    builds = read_builds([tmp_path])
    assert [loaded.run.run_id for loaded in builds.current] == ["c00005", f"n{BUILDS - 1:05d}"]
    lines = [json.loads(line) for line in history_lines(builds.earlier).splitlines()]
    nightly = [line for line in lines if line["uuid"].startswith("n")]
    assert len(nightly) == BUILDS - 1
    assert nightly == sorted(nightly, key=lambda line: line["timestamp"])
    legend = write_results(builds, tmp_path / "made").legend
    title = "btrfs randwrite 16 KiB, throughput (more is better)"
    (key,) = [key for key, row in legend.items() if row["title"] == title and "nightly" in row["group"]]
    before, after = nightly[STEP_AT - 1]["metrics"][key], nightly[STEP_AT]["metrics"][key]
    assert after / before == pytest.approx(0.9, abs=0.03)
    assert {each["status"] for each in nightly[0]["testResults"].values()} == {"passed"}
    kept = read_builds([tmp_path], most=4)
    assert (len(kept.current) + len(kept.earlier), kept.left_out) == (4, BUILDS + 6 - 4)


def test_the_runs_of_a_pipeline_are_one_build(tmp_path: Path) -> None:
    for filesystem in ("ext4", "btrfs"):
        for role in ("", "reference"):
            Nights(
                filesystems=(filesystem,),
                prefix=f"{filesystem}{role}",
                kernels=lambda _, role=role: ("6.12",) if role else ("6.1",),
                versions=lambda night, role=role: (
                    {"pipeline": str(100 + night)} | ({"kernel_role": role} if role else {})
                ),
            ).write(tmp_path, 3)
    builds = read_builds([tmp_path])
    assert sorted(loaded.run.run_id for loaded in builds.current) == [
        "btrfs00002", "btrfsreference00002", "ext400002", "ext4reference00002"
    ]  # fmt: skip
    assert [len(build) for build in builds.earlier] == [4, 4]
    lines = [json.loads(line) for line in history_lines(builds.earlier).splitlines()]
    assert [line["name"].split()[:2] for line in lines] == [["pipeline", "100"], ["pipeline", "101"]]
    legend = write_results(builds, tmp_path / "made").legend
    # Both kernels and both filesystems have rows of their own, the same in each build.
    assert [set(line["metrics"]) for line in lines] == [set(legend), set(legend)]
    groups = {row["group"].rpartition(": ")[2] for row in legend.values()}
    assert groups == {"ext4", "btrfs", "ext4, kernel 6.12", "btrfs, kernel 6.12"}
    kept = read_builds([tmp_path], most=2)
    assert (len(kept.current), len(kept.earlier), kept.left_out) == (4, 1, 4)


def test_a_pipeline_that_waited_for_its_board_is_still_the_earlier_one(tmp_path: Path) -> None:
    def nights(filesystem: str, first: int, count: int) -> None:
        # Nights are a day apart: ext4's are those of pipelines 100 and 101, btrfs's come later, and in the other order.
        Nights(
            filesystems=(filesystem,),
            prefix=filesystem,
            versions=lambda night: {"pipeline": str(first - night if filesystem == "btrfs" else first + night)},
        ).write(tmp_path, count)

    nights("ext4", 100, 2)
    nights("btrfs", 102, 3)
    builds = read_builds([tmp_path])
    # Pipeline 102 has begun with btrfs on the first night, 100 and 101 with ext4; 100 has waited until the third.
    assert {loaded.run.versions["pipeline"] for loaded in builds.current} == {"101"}
    (first, second) = builds.earlier
    assert {first[0].run.versions["pipeline"], second[0].run.versions["pipeline"]} == {"100", "102"}


def test_a_limit_never_costs_what_is_to_be_shown(tmp_path: Path) -> None:
    (mine,) = Nights(prefix="m").write(tmp_path / "results", 1)
    Nights().write(tmp_path / "history", 8)
    builds = read_builds([mine], history=[tmp_path / "history"], most=3)
    assert [loaded.run.run_id for loaded in builds.current] == ["m00000"]
    assert [build[0].run.run_id for build in builds.earlier] == ["n00005", "n00006", "n00007"]
    assert builds.left_out == 5


def test_runs_of_the_history_are_never_the_current_ones(tmp_path: Path) -> None:
    Nights().write(tmp_path / "history", 4)
    (mine,) = Nights(prefix="m").write(tmp_path / "results", 1)
    builds = read_builds([mine], history=[tmp_path / "history"])
    assert [loaded.run.run_id for loaded in builds.current] == ["m00000"]
    assert [build[0].run.run_id for build in builds.earlier] == ["n00000", "n00001", "n00002", "n00003"]
    shutil.copytree(mine, tmp_path / "history" / mine.name)
    again = read_builds([mine], history=[tmp_path / "history"])
    assert again.current == builds.current
    assert len(again.earlier) == 4
    (tmp_path / "empty").mkdir()
    alone = read_builds([mine], history=[tmp_path / "empty"])
    assert (len(alone.current), alone.earlier, alone.problems) == (1, (), ())


def test_what_is_missing_is_named(written: Written, tmp_path: Path, fsjoule: CommandLine) -> None:
    results = tmp_path / "results"
    shutil.copytree(written.path, results / written.path.name)
    (results / "20260310T100000Z-virtual-broken").mkdir()
    (results / "20260310T100000Z-virtual-broken" / "run.json").write_text("{}")
    (results / "20260311T100000Z-virtual-lost" / "measurements").mkdir(parents=True)
    done = fsjoule("report", "allure")
    assert done.code == 0, done.err
    errors = json.loads((tmp_path / "allure-results" / "fsjoule-globals.json").read_text())["errors"]
    said = "\n".join(error["message"] for error in errors)
    for part in ("virtual-broken: ", "virtual-lost: it has no run.json", "was left out", "not completed: interrupted"):
        assert part in said
        assert part in done.err


def test_an_empty_folder_is_named(tmp_path: Path) -> None:
    builds = read_builds([tmp_path])
    write_results(builds, tmp_path / "made")
    assert results_in(tmp_path / "made") == []
    (error,) = json.loads((tmp_path / "made" / "fsjoule-globals.json").read_text())["errors"]
    assert "there is no run folder" in error["message"]


def test_wrong_folders_are_refused(tmp_path: Path, written: Written) -> None:
    with pytest.raises(ConfigError, match="is not a folder"):
        read_builds([tmp_path / "nowhere"])
    (tmp_path / "something").touch()
    with pytest.raises(StorageError, match="is not empty"):
        write_results(read_builds([written.path]), tmp_path)


def test_an_open_loss_is_one_failed_test(tmp_path: Path) -> None:
    Nights(speed=slower_at(21), boots=1).write(tmp_path, 40)
    trend, _ = trends_of(read_builds([tmp_path], most=10))
    assert len(trend.histories[0].points) == 20  # ten earlier builds of the report, and ten more of the trends
    by_time, _ = trends_of(read_builds([tmp_path]))
    (loss,) = loss_tests(by_time)
    assert loss.status is AllureStatus.FAILED
    assert loss.name == "open loss since 2026-01-22: 6.1.107-armmp, commit 000000000015 (simulated)"
    assert loss.message.startswith("open loss: virtual, 2 figures, all still so: btrfs randwrite-16k ")
