"""`fsjoule trend` as its user has it: text, JSON and charts."""

from __future__ import annotations

import re
import shutil
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from command_line import CommandLine, command_line
from nights import Nights, slower_at

from fsjoule.model.metrics import Metric
from fsjoule.runs import confirm
from fsjoule.runs.pairs import Pair
from fsjoule.store.index.database import open_index
from fsjoule.store.index.importer import import_runs
from fsjoule.store.index.queries import list_series
from fsjoule.store.index.records import Where
from fsjoule.store.index.serieskeys import IndexedSeries


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    here = tmp_path_factory.mktemp("measured")
    Nights(speed=slower_at(21)).write(here / "results", 36)
    Nights(board="colibri", simulated=False, filesystems=("ext4",), prefix="c").write(here / "results", 5)
    with open_index(here / "results" / "index.sqlite", create=True) as index:
        import_runs(index, [here / "results"])
    return here


@pytest.fixture
def run(
    measured: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> CommandLine:
    """The command line in a folder of its own, with the index of all."""
    (tmp_path / "results").mkdir()
    shutil.copy(measured / "results" / "index.sqlite", tmp_path / "results")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FSJOULE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("FSJOULE_INDEX", raising=False)
    return command_line(monkeypatch, capfd)


def key_of(filesystem: str) -> IndexedSeries:
    with open_index("results/index.sqlite") as index:
        where = Where(boards=("virtual",), filesystems=(filesystem,), workloads=("randwrite-16k",))
        return list_series(index, where)[0].series


def test_a_change_is_told_in_one_line(run: CommandLine) -> None:
    done = run("trend")
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    first = next(line for line in lines if "slower" in line)
    assert re.fullmatch(
        r"btrfs randwrite-16k on virtual \(simulated\): [67]\.\d % slower since 6\.1\.107-armmp, run n00021 of "
        r"2026-01-22, commit 000000000015 \(before: 6\.1\.106-armmp, run n00020 of 2026-01-21, "
        r"commit 000000000014\), nominated",
        first,
    )
    key = key_of("btrfs").key[:8]
    assert f"  confirm with: fsjoule trend --series {key} --metric throughput --confirm --lg-env FILE" in lines
    assert any("more energy since 6.1.107-armmp" in line for line in lines)
    assert "12 histories of 6 series, by time" in done.out
    assert "6 without a change, 2 changes nominated, 0 changes confirmed, 0 changes refuted" in done.out
    assert "fewer than 6 runs with a figure, too few to see a change: 4 histories" in done.out
    assert re.search(r"^  [▁▂▃▄▅▆▇█]{36} ▁ [\d.]+ █ [\d.]+ MiB/s$", done.out, re.MULTILINE)


def test_series_without_anything_new_are_not_judged_again_unless_asked(run: CommandLine) -> None:
    first = run("trend")
    assert "not judged again" not in first.err
    again = run("trend")
    assert again.out == first.out
    assert "6 of 6 series have nothing new and were not judged again" in again.err
    anew = run("trend", "--recompute")
    assert (anew.out, "not judged again" in anew.err) == (first.out, False)


@pytest.mark.parametrize("narrow", [("--fs", "btrfs"), ("--limit", "30"), ("--since", "2026-01-10")])
def test_a_narrower_look_leaves_what_the_nightly_trend_has_kept(run: CommandLine, narrow: tuple[str, str]) -> None:
    run("trend")
    run("trend", *narrow)
    assert "6 of 6 series have nothing new and were not judged again" in run("trend").err


def test_verdicts_that_cannot_be_kept_are_told_all_the_same(run: CommandLine) -> None:
    with sqlite3.connect("results/index.sqlite") as connection:
        connection.execute("CREATE TRIGGER full BEFORE INSERT ON judged_series BEGIN SELECT RAISE(ABORT, 'full'); END")
    done = run("trend")
    assert (done.code, "2 changes nominated" in done.out) == (0, True)
    assert "the next trend will judge all series again" in done.err


def test_a_change_between_two_boards_of_one_type_is_told(run: CommandLine) -> None:
    with sqlite3.connect("results/index.sqlite") as index:
        place = "CASE WHEN run_id >= 'n00021' THEN 'rack-2' ELSE 'rack-1' END"
        index.execute(f"UPDATE runs SET place = {place}, exporter = 'lab', meter = 'T1'")
    line = next(line for line in run("trend").out.splitlines() if "slower" in line)
    assert re.search(
        r"run n00021 of [^(]*, place rack-2 of exporter lab \(before: .*, place rack-1 of exporter lab\)", line
    )
    document = run("trend", "--json", "--fs", "btrfs").document
    since = next(change for history in document["histories"] for change in history["changes"])["since"]
    assert (since["place"], since["exporter"], since["meter"]) == ("rack-2", "lab", "T1")


@pytest.mark.parametrize(
    ("words", "histories"),
    [
        (("--board", "colibri"), 4),
        (("--board", "colibri,virtual", "--fs", "ext4"), 8),
        (("--workload", "read-16k", "--fs", "btrfs", "--fs", "ext4"), 6),
        (("--metric", "throughput"), 6),
        (("--metric", "throughput,cpu", "--board", "virtual"), 8),
        (("--suite", "operations"), 0),
        (("--branch", "topic"), 0),
        (("--since", "2026-02-01", "--until", "2026-02-03T00:00:00+01:00"), 8),
    ],
)
def test_only_what_is_asked_for(run: CommandLine, words: Sequence[str], histories: int) -> None:
    document = run("trend", *words, "--json").document
    assert len(document["histories"]) == histories


def test_nothing_of_that_kind_is_said_to_be_so(run: CommandLine) -> None:
    done = run("trend", "--fs", "xfs")
    assert (done.code, done.out) == (0, "")
    assert "no valid measurement matches" in done.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--metric", "speed"), "unknown metric 'speed'"),
        (("--since", "yesterday"), "--since 'yesterday' is not a time"),
        (("--confirm",), "--confirm needs a board"),
        (("--explain",), "only --confirm takes --explain"),
        (("--index", "none.sqlite"), "there is no index at"),
    ],
)
def test_wrong_options_are_refused(run: CommandLine, words: Sequence[str], said: str) -> None:
    done = run("trend", *words)
    assert done.code != 0
    assert said in done.err


def test_the_document_has_all_of_it(run: CommandLine) -> None:
    document = run("trend", "--by", "kernel", "--fs", "btrfs", "--workload", "randwrite-16k", "--json").document
    assert (document["schema"], document["by"], document["series"]) == ("fsjoule.trend/1", "kernel", 1)
    throughput = next(h for h in document["histories"] if h["metric"] == "throughput")
    assert throughput["series"]["key"] == key_of("btrfs").key
    assert (throughput["unit"], throughput["published"]) == ("MiB/s", 8.5)
    (change,) = throughput["changes"]
    assert (change["status"], change["worse"]) == ("nominated", True)
    assert change["since"]["kernel"] == {"release": "6.1.107-armmp", "version": "6.1.107-1"}
    assert (change["since"]["run"], change["since"]["branch"]) == ("n00023", "main")
    point = throughput["points"][change["index"]]
    assert (point["boots"], point["runs"]) == (9, 3)
    assert point["low"] <= point["figure"] <= point["high"]
    assert point["confidence"] >= 0.95


# -------------------------------------------------------------------------------------------- charts and page


def test_charts_are_svg_in_themselves(run: CommandLine) -> None:
    done = run("trend", "--fs", "btrfs", "--metric", "throughput", "--svg", "charts")
    assert done.code == 0, done.err
    files = sorted(Path("charts").glob("*.svg"))
    assert [file.name.rpartition("-")[0] for file in files] == [
        "virtual-btrfs-randwrite-16k-throughput",
        "virtual-btrfs-read-16k-throughput",
    ]
    texts = [text.text for text in ET.fromstring(files[0].read_text()).iter() if text.tag.endswith("text")]
    assert "btrfs randwrite-16k on virtual: throughput (simulated)" in texts
    assert any(text and re.fullmatch(r"-[67]\.\d %", text) for text in texts)


def test_a_figure_that_pairs_do_not_tell_is_named(run: CommandLine) -> None:
    del run
    series = key_of("btrfs")
    told = Pair(1, {(series, Metric.DURATION): (1.0, 1.0)}, 1)
    said = confirm._untold([(series, Metric.THROUGHPUT)], told)
    assert said == "btrfs randwrite-16k: pairs of boots do not measure its throughput"
    assert confirm._untold([(series, Metric.DURATION)], told) is None
