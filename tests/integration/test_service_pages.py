"""The pages of the web service: what they show, by address, as HTML and as JSON."""

from __future__ import annotations

import re
import shutil
from collections.abc import Generator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from command_line import CommandLine
from nights import NIGHTS, STEP_AT, Nights
from results_factory import make_run
from services import FORGE, Service, imported
from whole_runs import write_whole

from fsjoule.report.service import making
from fsjoule.store.index.database import open_index
from fsjoule.store.index.importer import import_runs


@pytest.fixture(scope="module")
def service(indexed: Path) -> Generator[Service]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("FSJOULE_CACHE_DIR", str(indexed / "cache"))
        yield Service(indexed / "results" / "index.sqlite")


@pytest.fixture
def run(fsjoule: CommandLine, indexed: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    monkeypatch.chdir(indexed)
    monkeypatch.setenv("FSJOULE_CACHE_DIR", str(indexed / "cache"))
    return fsjoule


class Links(HTMLParser):
    """Addresses of a page, by what is read there."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: dict[str, str] = {}
        self.loaded: list[str] = []
        self._address: str | None = None
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        told = dict(attrs)
        if tag == "a":
            self._address = told.get("href")
        elif tag in ("script", "link") and (address := told.get("src") or told.get("href")):
            self.loaded.append(address)

    def handle_data(self, data: str) -> None:
        if self._address is not None and data.strip():
            self.found[data.strip()] = self._address

    def handle_endtag(self, tag: str) -> None:
        if tag == "a":
            self._address = None


# ----------------------------------------------------------------------------------------------------------- start


def test_the_start_page_begins_with_the_newest_change_for_the_worse(service: Service) -> None:
    text = service.ask("/").text
    told = re.search(r'<p class="answer bad">(.*?)</p>', text)
    assert told is not None
    assert told[1] == "1 open loss, since 2026-01-22 with 6.1.107-armmp on virtual (simulated)."
    links = Links(text).found
    assert links["run n00021"] == "/run/n00021"
    assert links["n00035"] == "/run/n00035"
    assert links["colibri"] == "/trend?board=colibri"
    shown = service.ask(links["btrfs randwrite-16k"].partition("#")[0])
    assert shown.status == 200
    assert "2 series" not in shown.text
    assert "btrfs randwrite-16k" in shown.text


def test_the_start_page_as_json(service: Service) -> None:
    document = service.ask("/", accept="application/json").document
    assert document == service.ask("/index.json").document
    assert document["schema"] == "fsjoule.start/1"
    assert document["stats"]["runs"] == NIGHTS + 5
    assert document["causes"][0]["since"]["run"] == f"n{STEP_AT:05d}"
    assert document["runs"][0]["run_id"] == f"n{NIGHTS - 1:05d}"
    assert "path" not in document["runs"][0]


def test_without_a_change_the_start_page_says_so(tmp_path: Path) -> None:
    Nights().write(tmp_path / "results", 8)
    with open_index(tmp_path / "index.sqlite", create=True) as index:
        import_runs(index, [tmp_path / "results"])
    text = Service(tmp_path / "index.sqlite").ask("/").text
    assert '<p class="answer good">No open loss in 8 histories.</p>' in text


def test_an_empty_index_has_a_start_page(tmp_path: Path) -> None:
    open_index(tmp_path / "index.sqlite", create=True).close()
    service = Service(tmp_path / "index.sqlite")
    assert "The index has no run yet." in service.ask("/").text
    for address in ("/trend", "/runs", "/compare"):
        assert service.ask(address).status == 200


# ---------------------------------------------------------------------------------------------------------- trends


def keys(document: dict[str, Any]) -> set[tuple[str, str]]:
    return {(each["series"]["key"], each["metric"]) for each in document["histories"]}


def test_the_document_of_trends_is_that_of_the_command(service: Service, run: CommandLine) -> None:
    told = run("trend", "--json", "--board", "virtual").document
    document = service.ask("/trend.json?board=virtual").document
    assert document.pop("paging") == {"page": 1, "pages": 1, "series_in_a_metric": 8}
    ours, theirs = ({(h["series"]["key"], h["metric"]): h for h in each.pop("histories")} for each in (document, told))
    assert ours == theirs
    assert document == told


@pytest.mark.parametrize(
    ("asked", "count"),
    [
        ("", 12),
        ("board=colibri", 4),
        ("board=colibri,virtual&fs=ext4", 8),
        ("fs=btrfs&metric=energy", 2),
        ("workload=randwrite-16k", 6),
        ("search=btrfs+ENERGY", 2),
        ("search=simulated+randwrite", 4),
        ("state=open", 2),
        ("state=worse&by=time", 2),
        ("state=accepted", 0),
        ("suite=quick", 12),
        ("branch=main", 12),
        ("since=2026-01-10&until=2026-01-20", 8),
    ],
)
def test_series_are_chosen_by_the_service(service: Service, asked: str, count: int) -> None:
    document = service.ask(f"/trend.json?{asked}").document
    assert document["paging"]["series_in_a_metric"] == count
    assert len(keys(document)) == count
    assert service.ask(f"/trend?{asked}").status == 200


def test_what_is_not_chosen_is_not_asked_for(service: Service) -> None:
    empty = "series=&board=&fs=&workload=&suite=&branch=&metric=&search=&state=&since=&until=&page="
    assert service.ask(f"/trend.json?{empty}").document == service.ask("/trend.json").document


def test_a_list_has_pages_with_the_largest_losses_first(indexed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(making, "SERIES_A_PAGE", 5)
    service = Service(indexed / "results" / "index.sqlite")
    seen: list[set[tuple[str, str]]] = []
    for page in (1, 2, 3):
        document = service.ask(f"/trend.json?page={page}&search=").document
        assert document["paging"] == {"page": page, "pages": 3, "series_in_a_metric": 12}
        seen.append(keys(document))
        assert bool(any(each["changes"] for each in document["histories"])) is (page == 1)
    assert [len(each) for each in seen] == [5, 5, 2]
    assert len(set.union(*seen)) == 12
    links = Links(service.ask("/trend?page=2&fs=ext4").text).found
    assert links["before"] == "/trend?fs=ext4"
    assert "next" not in links
    over = service.ask("/trend?page=4")
    assert over.status == 400
    assert "page 4 of 3" in over.text


def test_a_series_that_is_named_has_all_of_its_history(indexed: Path) -> None:
    few = Service(indexed / "results" / "index.sqlite", most_measurements=6 * 3 * 6, least_of_each=1)
    cut = few.ask("/trend.json?board=virtual").document
    assert cut["series_cut_short"] == 4
    key = cut["histories"][0]["series"]["key"]
    points = few.ask(f"/trend.json?series={key[:8]}").document["histories"][0]["points"]
    assert len(points) == NIGHTS


def test_the_page_of_trends_knows_runs_commits_and_verdicts(service: Service) -> None:
    text = service.ask("/trend?fs=btrfs").text
    assert f'"commit":"{FORGE}' in text
    assert '"/run/n00035"' in text
    assert '"compare":"/compare"' in text
    assert '<option value="btrfs" selected>' in text


# ------------------------------------------------------------------------------------------------------------ runs


def test_runs_are_listed_newest_first_and_found(service: Service) -> None:
    text = service.ask("/runs?board=virtual&status=complete").text
    assert text.index("n00035") < text.index("n00034")
    assert "c00001" not in text
    assert service.ask("/runs.json?run=c0000").document["paging"] == {"page": 1, "pages": 1, "runs": 5}
    assert service.ask("/runs.json?page=2").document["runs"] == []
    for words, address in (
        ("n00021", "/run/n00021"),
        ("c", "/trend?search=c"),
        ("btrfs energy", "/trend?search=btrfs+energy"),
        ("", "/trend"),
    ):
        found = service.ask(f"/search?q={words.replace(' ', '+')}")
        assert (found.status, found.headers["location"]) == (303, address)


def test_a_run_is_shown_as_its_folder_tells_it(service: Service, run: CommandLine, indexed: Path) -> None:
    folder = next((indexed / "results").glob("*-n00021"))
    told = run("show", folder, "--json").document
    assert service.ask("/run/n00021.json").document == told
    text = service.ask("/run/n00021").text
    assert "Which filesystem is better" in text
    assert "Every measurement" in text


def test_a_runs_command_is_shown_without_passwords_and_folders(tmp_path: Path) -> None:
    made = make_run(repeat=1)
    command = (
        "fsjoule",
        "bench",
        "--index",
        "postgresql://lab:s3cret@db/fsjoule",
        "-k=x",
        "--results=/srv/lab/results",
    )
    folder = write_whole(tmp_path / "results", replace(made.run, command=command), made.measurements[:2])
    # As whoever may write to the database can put it there.
    file = folder / "run.json"
    file.write_text(file.read_text().replace("lab:***@", "lab:s3cret@"))
    assert "s3cret" in file.read_text()
    imported(tmp_path / "index.sqlite", tmp_path / "results")
    service = Service(tmp_path / "index.sqlite")
    for end in ("", ".json"):
        text = service.ask(f"/run/{made.run.run_id}{end}").text
        assert "postgresql://lab:***@db/fsjoule" in text, end
        assert "--results=results" in text, end
        assert "s3cret" not in text, end
        assert "/srv/lab" not in text, end


def test_traces_of_a_large_run_are_not_drawn_while_a_reader_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make_run(repeat=1)
    measurements = [each for each in made.measurements if each.number < 4]
    write_whole(tmp_path / "results", made.run, measurements, trace=made.traces.get)
    imported(tmp_path / "index.sqlite", tmp_path / "results")
    address = f"/run/{made.run.run_id}"
    assert "least to greatest sample" in Service(tmp_path / "index.sqlite").ask(address).text
    monkeypatch.setattr("fsjoule.report.run._MOST_TRACES", 2)
    many = Service(tmp_path / "index.sqlite").ask(address).text
    assert "least to greatest sample" not in many
    assert many.count("of more than 2 measurements are not drawn here") == 3


def test_a_run_whose_folder_is_elsewhere_is_shown_as_the_index_knows_it(tmp_path: Path, indexed: Path) -> None:
    for each in (indexed / "results").glob("2026010[1-3]*"):
        shutil.copytree(each, tmp_path / "results" / each.name)
    with open_index(tmp_path / "index.sqlite", create=True) as index:
        import_runs(index, [tmp_path / "results"])
    service = Service(tmp_path / "index.sqlite")
    whole = service.ask("/run/n00001")
    folder = next((tmp_path / "results").glob("*-n00001"))
    folder.rename(tmp_path / "elsewhere")
    text = service.ask("/run/n00001").text
    assert "not reachable from here" in text
    assert "simulated" in text
    assert "btrfs randwrite-16k" in text
    document = service.ask("/run/n00001.json").document
    assert document["schema"] == "fsjoule.indexed-run/1"
    assert len(document["measurements"]) == 12
    assert document["measurements"][0]["figures"]["throughput_mib_per_s"] > 0
    (tmp_path / "elsewhere").rename(folder)
    assert service.ask("/run/n00001").text == whole.text
    (folder / "run.json").write_text("{")
    damaged = service.ask("/run/n00001").text
    assert f"cannot be read: {folder.name}/run.json is not JSON of ours" in damaged
    assert str(tmp_path) not in damaged


def test_a_run_that_nobody_knows_is_missing(service: Service) -> None:
    for address in ("/run/none", "/run/..%2F..%2Fetc", "/run/%00", f"/run/{'x' * 300}"):
        assert service.ask(address).status == 404


# ----------------------------------------------------------------------------------------------------- comparisons


def test_a_comparison_is_that_of_the_command(service: Service, run: CommandLine) -> None:
    told = run("compare", "run:n00010", "run:n00030", "--index", "results/index.sqlite", "--json").document
    address = "compare.json?baseline=run:n00010&candidate=run:n00030"
    assert service.ask(f"/{address}").document == told
    text = service.ask("/compare?baseline=run:n00010&candidate=run:n00030").text
    assert Links(text).found["run n00010"] == "/run/n00010"
    fewer = service.ask(f"/{address}&fs=btrfs&metric=throughput").document
    assert {each["label"].split()[0] for each in fewer["verdicts"]} == {"btrfs"}
    assert {each["metric"] for each in fewer["verdicts"]} == {"throughput"}
    kernels = service.ask("/compare?baseline=6.1.100&candidate=6.1.110")
    assert kernels.status == 200
    assert "kernel 6.1.110 against 6.1.100" in kernels.text


def test_a_comparison_asks_for_its_sides(service: Service) -> None:
    form = service.ask("/compare")
    assert '<option value="run:n00035">' in form.text
    assert '<option value="kernel:6.1.111-armmp' in form.text
    assert service.ask("/compare.json").status == 400
    assert service.ask("/compare?baseline=n00001").status == 400
    same = service.ask("/compare?baseline=n00001&candidate=n00001")
    assert same.status == 400
    assert "both sides are the same" in same.text


def test_no_side_is_a_folder(service: Service, indexed: Path) -> None:
    folder = next((indexed / "results").glob("*-n00021"))
    elsewhere = indexed / "results" / "copy"
    shutil.copytree(folder, elsewhere)
    try:
        for name in (elsewhere, f"6.1.107@{elsewhere}", f"{indexed}/results"):
            found = service.ask(f"/compare?baseline={name}&candidate=run:n00001")
            assert found.status == 400
            assert "the index has no" in found.text
    finally:
        shutil.rmtree(elsewhere)
