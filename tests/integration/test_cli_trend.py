"""`fsjoule trend` as its user has it: text, JSON and charts."""

from __future__ import annotations

import re
import shutil
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from command_line import CommandLine
from nights import Nights, slower_at

from fsjoule.model.metrics import Metric
from fsjoule.model.series import Series, Where
from fsjoule.runs import confirm
from fsjoule.runs.pairs import BootPair
from fsjoule.store.index.database import open_index
from fsjoule.store.index.queries import list_series


@pytest.fixture
def run(fsjoule: CommandLine, indexed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    """The command line in a folder of its own, with the index of all."""
    (tmp_path / "results").mkdir()
    shutil.copy(indexed / "results" / "index.sqlite", tmp_path / "results")
    monkeypatch.setenv("FSJOULE_CACHE_DIR", str(tmp_path / "cache"))
    return fsjoule


def key_of(filesystem: str) -> Series:
    with open_index("results/index.sqlite") as index:
        where = Where(boards=("virtual",), filesystems=(filesystem,), workloads=("randwrite-16k",))
        return list_series(index, where)[0].series


def test_a_loss_is_one_card_of_few_lines(run: CommandLine) -> None:
    done = run("trend")
    assert done.code == 0, done.err
    title, scope, of, last, *_ = done.out.splitlines()
    assert title == "loss since 2026-01-22: 6.1.107-armmp, commit 000000000015 (simulated)"
    assert scope == "  virtual, 2 figures, all still so"
    assert re.fullmatch(r"  btrfs randwrite-16k: [67]\.\d % slower, [45]\.\d % more energy", of)
    assert last == "  last good: 6.1.106-armmp, commit 000000000014, run n00020 of 2026-01-21"
    assert "12 histories of 6 series by time, 462 measurements: 6 without a change" in done.out
    assert "fewer than 6 runs with a figure, too few to see a change: 4 histories" in done.out
    assert re.search(r"^  [▁▂▃▄▅▆▇█]{36} ▁ [\d.]+ █ [\d.]+ MiB/s$", done.out, re.MULTILINE)
    assert max(map(len, done.out.splitlines())) <= 80


def test_what_only_the_newest_nights_have_is_told_first(run: CommandLine, tmp_path: Path) -> None:
    Nights(speed=slower_at(9, 0.88)).write(tmp_path / "young", 12)
    assert run("index", "import", "young", "--index", "young.sqlite").code == 0
    done = run("trend", "--index", "young.sqlite", "--page", "trend.html")
    when, moved, *_ = done.out.splitlines()
    assert when == "last 3 nights, a change if it lasts:"
    assert re.fullmatch(r"  btrfs randwrite-16k: 1\d % slower, [89]\.\d % more energy \(virtual\)", moved)
    assert run("trend", "--index", "young.sqlite").out == done.out, "kept verdicts say it, too"
    page = (tmp_path / "trend.html").read_text()
    assert "No open loss in 8 histories, but see the newest nights." in page
    assert "Last 3 nights, a change if it lasts: btrfs randwrite-16k" in page


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
    with closing(sqlite3.connect("results/index.sqlite")) as connection, connection:
        connection.execute("CREATE INDEX full ON judged_series (abs(series * 0 - 9223372036854775807 - 1))")
    done = run("trend")
    assert (done.code, "2 changes suspected" in done.out) == (0, True)
    assert "the next trend will judge all series again" in done.err


def test_a_change_between_two_boards_of_one_type_is_told(run: CommandLine) -> None:
    with closing(sqlite3.connect("results/index.sqlite")) as index, index:
        place = "CASE WHEN run_id >= 'n00021' THEN 'rack-2' ELSE 'rack-1' END"
        index.execute(f"UPDATE runs SET place = {place}, exporter = 'lab', meter = 'T1'")
    told = run("trend").out
    assert "  measured at place rack-2 of exporter lab, before at place rack-1 of exporter lab\n" in told
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
        (("--since", "2026-02-01", "--until", "2026-02-03T00:00:00+01:00"), 8),
    ],
)
def test_only_what_is_asked_for(run: CommandLine, words: Sequence[str], histories: int) -> None:
    document = run("trend", *words, "--json").document
    assert len(document["histories"]) == histories


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--metric", "speed"), "unknown metric 'speed'"),
        (("--since", "yesterday"), "--since 'yesterday' is not a time"),
        (("--confirm",), "--confirm needs a board"),
        (("--explain",), "only --confirm takes --explain"),
        (("--index", "none.sqlite"), "there is no index at"),
        (
            ("--board", "colibry"),
            "the index has no board 'colibry'\n  hint: did you mean colibri? it has colibri, virtual",
        ),
        (("--fs", "btrfs,xfs"), "the index has no filesystem 'xfs'"),
        (("--workload", "read"), "the index has no workload 'read'"),
        (("--suite", "operations"), "the index has no suite 'operations'\n  hint: it has quick"),
        (("--kernel", "5.4"), "the index has no kernel '5.4'"),
        (("--branch", "topic"), "the index has no branch 'topic'\n  hint: it has main"),
        (("--series", "zz"), "the index has no series 'zz'"),
    ],
)
def test_wrong_options_are_refused(run: CommandLine, words: Sequence[str], said: str) -> None:
    done = run("trend", *words)
    assert done.code == 2
    assert said in done.err


def test_a_kernel_is_chosen_by_the_start_of_its_release(run: CommandLine) -> None:
    words = ("trend", "--board", "virtual", "--metric", "throughput", "--json", "--kernel")
    counts = {name: run(*words, name).document["measurements"] for name in ("6.1.100", "6.1.100,6.1.101", "6.1")}
    assert counts == {"6.1.100": 36, "6.1.100,6.1.101": 72, "6.1": 432}


def test_the_document_has_all_of_it(run: CommandLine) -> None:
    document = run("trend", "--by", "kernel", "--fs", "btrfs", "--workload", "randwrite-16k", "--json").document
    assert (document["schema"], document["by"], document["series"]) == ("fsjoule.trend/1", "kernel", 1)
    throughput = next(h for h in document["histories"] if h["metric"] == "throughput")
    assert throughput["series"]["key"] == key_of("btrfs").key
    assert (throughput["unit"], throughput["published"]) == ("MiB/s", 8.5)
    (cause,) = document["causes"]
    assert (cause["fate"], cause["boards"], cause["last"]["commit"][:12]) == ("open", ["virtual"], f"{20:012x}")
    assert {(each["metric"], each["still"]) for each in cause["changes"]} == {("throughput", True), ("energy", True)}
    (change,) = throughput["changes"]
    assert (change["status"], change["worse"]) == ("suspected", True)
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
    told = BootPair(1, {(series, Metric.DURATION): (1.0, 1.0)}, 1)
    said = confirm._untold([(series, Metric.THROUGHPUT)], told)
    assert said == "btrfs randwrite-16k: pairs of boots do not measure its throughput"
    assert confirm._untold([(series, Metric.DURATION)], told) is None
