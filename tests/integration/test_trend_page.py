"""The page of trends as a file: its data, and what becomes of changes in the index. The browser's tests look at it."""

from __future__ import annotations

import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from command_line import CommandLine
from nights import STEP_AT, Nights, slower_at

from fsjoule.errors import ConfigError
from fsjoule.model.series import Where
from fsjoule.report.forge import forge_of
from fsjoule.store.index.database import open_index
from fsjoule.store.index.importer import rebuild
from fsjoule.store.index.queries import list_series, stats
from fsjoule.store.index.states import keep_states
from fsjoule.store.states import ChangeState, KeptState

SINCE = f"{STEP_AT:012x}"


@pytest.fixture
def run(fsjoule: CommandLine, indexed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    """The command line in a folder of its own, with the index of all."""
    (tmp_path / "results").mkdir()
    (tmp_path / "pages").mkdir()
    shutil.copy(indexed / "results" / "index.sqlite", tmp_path / "results")
    monkeypatch.setenv("FSJOULE_CACHE_DIR", str(indexed / "cache"))
    for variable in ("FSJOULE_INDEX", "CI_PROJECT_URL"):
        monkeypatch.delenv(variable, raising=False)
    return fsjoule


class _Page(HTMLParser):
    """Elements with their attributes, and the texts of scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self._in_script = False
        self.feed(text)
        self.close()
        self.data: dict[str, Any] = next(json.loads(each) for each in self.scripts if each.startswith('{"kernels"'))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        self._in_script = tag == "script"

    def handle_data(self, data: str) -> None:
        if self._in_script:
            self.scripts.append(data)

    def handle_endtag(self, tag: str) -> None:
        self._in_script = self._in_script and tag != "script"


def page_of(run: CommandLine, *words: str) -> _Page:
    Path("pages").mkdir(exist_ok=True)
    done = run("trend", "--page", "pages/trends.html", *words)
    assert done.code == 0, done.err
    return _Page(Path("pages/trends.html").read_text())


def states(run: CommandLine, *words: str) -> list[str]:
    """The states of all changes over time, by loss."""
    return [each["state"] for each in page_of(run, *words).data["changes"] if each["view"] == "time"]


def key_of(index: str = "results/index.sqlite") -> str:
    """The key of the series that changed."""
    with open_index(index) as opened:
        where = Where(boards=("virtual",), filesystems=("btrfs",), workloads=("randwrite-16k",))
        return list_series(opened, where)[0].series.key


# ------------------------------------------------------------------------------------------------------ the page


def test_the_page_holds_all_that_it_needs(run: CommandLine) -> None:
    page = page_of(run)
    loading = [(tag, name) for tag, found in page.seen for name in found if name in ("src", "srcset")]
    assert loading == []
    assert {found["href"] for tag, found in page.seen if tag == "link"} == {"data:,"}
    assert not re.search(r"url\(|@import", Path("pages/trends.html").read_text())
    data = page.data
    assert {one["board"]: one["simulated"] for one in data["series"]} == {"virtual": True, "colibri": False}
    assert len(data["series"]) == 12
    change = data["changes"][0]
    assert (change["state"], change["worse"], change["view"], change["at"]) == ("new", True, "time", STEP_AT)
    changed = data["series"][change["series"]]
    assert (changed["title"], changed["metric"], changed["more"]) == ("btrfs randwrite-16k", "throughput", True)
    (track,) = changed["views"]["time"]
    assert data["runs"][track["run"][STEP_AT]][:2] == ["n00021", f"{STEP_AT:012x}{0:028x}"]
    assert len(track["figure"]) == len(track["low"]) == len(track["at"]) == 36
    # Times are differences.
    assert set(track["at"][1:]) <= set(range(86_000, 87_000))
    (kernels,) = changed["views"]["kernel"]
    assert kernels["runs"] == [3] * 12
    assert data["kernels"] == [f"6.1.{100 + number}-armmp" for number in range(12)]


def test_changes_are_sorted_by_loss(run: CommandLine) -> None:
    data = page_of(run).data
    over_time = [each for each in data["changes"] if each["view"] == "time"]
    assert [data["series"][each["series"]]["metric"] for each in over_time] == ["throughput", "energy"]
    assert over_time[0]["text"].endswith(" % slower")
    assert "all 21 nights before against 15 after" in over_time[0]["told"] or "--confirm" in over_time[0]["told"]


def test_a_change_without_another_kernel_is_not_to_be_confirmed(run: CommandLine) -> None:
    same = Nights(speed=slower_at(20), kernels=lambda _: ("6.1.100",), filesystems=("btrfs",), boots=1)
    same.write(Path("same"), 40)
    assert run("index", "import", "same", "--index", "same.sqlite").code == 0
    changes = page_of(run, "--index", "same.sqlite").data["changes"]
    assert changes
    assert all("--confirm" not in each["told"] for each in changes)


def test_runs_and_commits_have_addresses(run: CommandLine, indexed: Path) -> None:
    folder = next((indexed / "results").glob("*-n00021"))
    (folder / "report.html").touch()
    data = page_of(run, "--forge", "https://forge.example/lab/linux").data
    addresses = {name: address for name, _, address, _ in data["runs"]}
    assert (Path("pages") / addresses["n00021"]).resolve() == folder / "report.html"
    assert (Path("pages") / addresses["n00020"]).resolve() == next((indexed / "results").glob("*-n00020"))
    assert data["forge"]["commit"] == "https://forge.example/lab/linux/-/commit/{}"
    refused = run("trend", "--page", "pages/trends.html", "--forge", "javascript:alert(1)")
    assert refused.code == 2
    assert "is not the address of a project" in refused.err


@pytest.mark.parametrize(
    ("project", "difference"),
    [
        ("https://gitlab.com/me/linux.git", "https://gitlab.com/me/linux/-/compare/{}...{}"),
        ("https://github.com/torvalds/linux/", "https://github.com/torvalds/linux/compare/{}...{}"),
        (
            "https://git.kernel.org/pub/scm/linux/kernel/git/torvalds/linux.git",
            "https://git.kernel.org/pub/scm/linux/kernel/git/torvalds/linux.git/diff/?id2={}&id={}",
        ),
    ],
)
def test_forges_have_ways_of_their_own(project: str, difference: str) -> None:
    assert forge_of(project).difference == difference


@pytest.mark.parametrize("project", ["", "linux", "ftp://a/b", "https://", "https://a/{}", 'https://a/"b'])
def test_what_is_no_address_of_a_project_is_refused(project: str) -> None:
    with pytest.raises(ConfigError, match="not the address of a project"):
        forge_of(project)


def test_a_name_cannot_break_out_of_the_page(run: CommandLine) -> None:
    Nights(board="a&b<i>", filesystems=("ext4",), boots=1).write(Path("odd"), 8)
    assert run("index", "import", "odd", "--index", "odd.sqlite").code == 0
    page = page_of(run, "--index", "odd.sqlite")
    assert "<i>" not in Path("pages/trends.html").read_text()
    assert page.data["series"][0]["board"] == "a&b<i>"


# ---------------------------------------------------------------------------------------- what became of changes


def test_an_accepted_change_needs_nobody_and_can_be_taken_back(run: CommandLine) -> None:
    assert states(run) == ["new", "new"]
    done = run("trend", "accept", key_of()[:8], SINCE, "--why", "checksums are on", "--metric", "throughput")
    assert done.code == 0, done.err
    assert re.search(r"slower since 6\.1\.107-armmp, .*, accepted$", done.out.strip())
    assert sorted(states(run)) == ["accepted", "new"]
    assert "1 is accepted or refuted: --all shows them" in run("trend", "--metric", "throughput").out
    shown = run("trend", "--metric", "throughput", "--all").out
    assert shown.startswith("closed, since 2026-01-22: 6.1.107-armmp")
    assert re.search(r"^  accepted on 20\d\d-\d\d-\d\d: checksums are on$", shown, re.MULTILINE)
    assert "--confirm" not in shown
    # Over kernels it is the same change, also in an index that was made anew.
    by_kernel = run("trend", "--metric", "throughput", "--by", "kernel", "--json").document
    found = [change for history in by_kernel["histories"] for change in history["changes"]]
    assert [change["state"] for change in found] == ["accepted"]
    taken = run("trend", "accept", key_of()[:8], "n00021", "--undo")
    assert "1 change not accepted any more" in taken.err
    assert states(run) == ["new", "new"]


def test_a_rebuild_keeps_what_was_accepted(run: CommandLine, indexed: Path) -> None:
    run("trend", "accept", key_of(), "n00021", "--why", "so")
    with open_index("results/index.sqlite") as index:
        rebuild(index, [indexed / "results"])
    assert states(run) == ["accepted", "accepted"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("n00021",), "an accepted change needs a reason"),
        (("n00020", "--why", "so"), "has no change since 'n00020'"),
        (("00000", "--why", "so"), "it has throughput since 000000000015, energy since 000000000015"),
        (("n00021", "--why", "so", "--metric", "speed"), "unknown metric 'speed'"),
    ],
)
def test_what_cannot_be_accepted_is_said(run: CommandLine, words: tuple[str, ...], said: str) -> None:
    done = run("trend", "accept", key_of(), *words)
    assert done.code == 2
    assert said in done.err
    assert states(run) == ["new", "new"]


def test_the_furthest_state_counts_in_its_metric_direction_and_place(run: CommandLine) -> None:
    key = key_of()
    with open_index("results/index.sqlite") as index:
        old, *_, new = sorted(stats(index).kernels, key=lambda kernel: kernel.order)
        elsewhere = ("2026-01-01T00:00:00Z", "2026-01-10T00:00:00Z")
        keep_states(
            index,
            [
                KeptState(key, ChangeState.EXPLAINED, kernels=(old, new), run_id="why"),
                KeptState(
                    key, ChangeState.BISECTED, metric="throughput", ratio=0.9, kernels=(old, new), commit="c0ffee"
                ),
                KeptState(key, ChangeState.ACCEPTED, metric="energy", ratio=0.9, kernels=(old, new), why="other way"),
                KeptState(key, ChangeState.ACCEPTED, between_utc=elsewhere, why="elsewhere"),
            ],
        )
    assert states(run) == ["bisected", "explained"]
    shown = run("trend", "--metric", "throughput").out
    assert "  first bad commit c0ffee\n  explained by run why\n" in shown
