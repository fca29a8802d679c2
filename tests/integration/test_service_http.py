"""The web service as HTTP: entity tags, formats, headers, errors, hostile text."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from html.parser import HTMLParser
from pathlib import Path

import pytest
from index_runs import write_run
from services import Service, copied, imported, two_runs

from fsjoule.report.service.pages import Pages
from fsjoule.report.site import assets

PAGES = ("/", "/trend", "/runs", "/run/aaaaaa", "/compare", "/compare?baseline=run:aaaaaa&candidate=run:bbbbbb")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return two_runs(tmp_path_factory.mktemp("made"))


@pytest.fixture(autouse=True)
def _cache(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FSJOULE_CACHE_DIR", str(made / "cache"))


@pytest.fixture(scope="module")
def service(made: Path) -> Service:
    """For tests that change nothing."""
    return Service(made / "index.sqlite")


@pytest.fixture
def index(made: Path, tmp_path: Path) -> Path:
    """For a test alone, with its run folders beside it."""
    return copied(made, tmp_path)


# ----------------------------------------------------------------------------------------------------- entity tags


@pytest.mark.parametrize("address", PAGES)
def test_a_page_that_the_reader_has_is_not_made_again(service: Service, address: str) -> None:
    first = service.ask(address)
    assert first.status == 200
    assert first.headers["cache-control"] == "no-cache"
    assert re.fullmatch(r'W/"[0-9a-f]{24}"', first.tag)
    made = service.made
    for known in (first.tag, first.tag.removeprefix("W/"), f'"other", {first.tag}', "*"):
        again = service.ask(address, if_none_match=known)
        assert (again.status, again.sent, again.tag) == (304, b"", first.tag)
        assert again.headers["cache-control"] == "no-cache"
    assert service.ask(address, if_none_match='W/"another"').status == 200
    assert service.ask(address).text == first.text
    assert service.made == made


def test_an_import_gives_new_pages_but_a_run_in_its_folder_stays(index: Path, tmp_path: Path) -> None:
    service = Service(index)
    before = {address: service.ask(address).tag for address in PAGES}
    assert len(set(before.values())) == len(PAGES)
    write_run(tmp_path / "more", "cccccc", started="2026-03-11T10:00:00Z")
    imported(index, tmp_path / "more")
    after = {address: service.ask(address, if_none_match=tag) for address, tag in before.items()}
    assert {address for address, answer in after.items() if answer.status == 304} == {"/run/aaaaaa"}
    assert "cccccc" in after["/runs"].text
    # Nothing is imported if it is there already.
    imported(index, tmp_path / "more")
    tag = after["/runs"].tag
    assert service.ask("/runs", if_none_match=tag).status == 304
    folder = next((tmp_path / "results").glob("*-aaaaaa"))
    (folder / "gate.json").write_text("{")
    again = service.ask("/run/aaaaaa", if_none_match=before["/run/aaaaaa"])
    assert again.status == 200
    assert "gate.json" in again.text


def test_html_and_json_are_told_apart(service: Service) -> None:
    html, document = service.ask("/runs"), service.ask("/runs", accept="application/json")
    assert html.headers["content-type"] == "text/html; charset=utf-8"
    assert document.headers["content-type"] == "application/json"
    assert html.tag != document.tag
    assert html.headers["vary"] == document.headers["vary"] == "Accept, Accept-Encoding"
    for accept in (
        "*/*",
        "text/html, application/json;q=0.9",
        "",
        "application/json;q=nonsense",
        "text/html,*/*;q=0.8",
    ):
        assert service.ask("/runs", accept=accept).headers["content-type"].startswith("text/html")
    assert service.ask("/runs", accept="application/json, text/html;q=0.5").document["schema"] == "fsjoule.runs/1"


@pytest.mark.parametrize("address", ["/", "/runs.json", "/none", "/healthz", "/search?q=aaaaaa"])
def test_head_is_get_without_a_body(service: Service, address: str) -> None:
    for encoding in ("identity", "gzip"):
        get, head = (service.ask(address, method=method, accept_encoding=encoding) for method in ("GET", "HEAD"))
        assert head.sent == b""
        assert (head.status, head.headers) == (get.status, get.headers)
        assert int(get.headers["content-length"]) == len(get.sent)


def test_answers_are_packed_for_those_who_take_it(service: Service) -> None:
    plain = service.ask("/runs")
    assert "content-encoding" not in plain.headers
    for accept in ("gzip", "br, gzip;q=0.5", "*"):
        packed = service.ask("/runs", accept_encoding=accept)
        assert packed.headers["content-encoding"] == "gzip"
        assert len(packed.sent) < len(plain.sent) / 2
        assert packed.body == plain.body
    assert "content-encoding" not in service.ask("/runs", accept_encoding="gzip;q=0").headers


# ---------------------------------------------------------------------------------------------- headers, and files


def test_pages_load_only_their_own_files_which_may_be_kept_for_ever(service: Service) -> None:
    for address in PAGES:
        answer = service.ask(address)
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'; script-src 'self'; style-src 'self';" in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        # No script and no style sheet stands in a page; the data of one is no script.
        assert (
            re.findall(r"<style|<script(?! src=\"/static/)(?! type=\"application/json\")| on\w+=\"", answer.text) == []
        )
        for file in re.findall(r"(?:src|href)=\"(/static/[^\"]+)\"", answer.text):
            loaded = service.ask(file, accept_encoding="gzip")
            assert loaded.status == 200
            assert loaded.headers["cache-control"] == "public, max-age=31536000, immutable"
            assert loaded.headers["content-security-policy"] == policy
            assert loaded.body == service.ask(file).body
    assert b"header > div" in assets()["page.css"].content
    assert b" => " in assets()["trends.js"].content
    assert {asset.name.rpartition("-")[0] for asset in assets().values()} == {"page", "trends"}
    for name in ("page-0.css", "..%2Fapp.py", "page.css", "%2e%2e/%2e%2e/etc/passwd"):
        assert service.ask(f"/static/{name}").status == 404


@pytest.mark.parametrize(
    "address", ["/runs?run=%00", "/trend?board=a%1Fb", "/search?q=%00", "/compare?baseline=%00&candidate=6.1"]
)
def test_control_characters_are_asked_of_no_database(index: Path, address: str) -> None:
    assert Service(index).ask(address).status == 400


def test_only_its_own_names_are_answered(index: Path) -> None:
    service = Service(index, hosts=("127.0.0.1", "lab.example.org"))
    assert service.ask("/runs", host="lab.example.org").status == 200
    for known in ("127.0.0.1:8090", "LAB.example.org:443"):
        assert service.ask("/runs", host=known).status == 200
    right = service.ask("/none", accept="application/json")
    for wrong in ("evil.example.org", "evil.example.org:8090", "127.0.0.1.example.org", ""):
        refused = service.ask("/runs", host=wrong, accept="application/json")
        assert (refused.status, refused.document["schema"]) == (400, "fsjoule.error/1")
        assert f"is not called '{wrong.removesuffix(':8090')}'" in refused.document["what"]
        assert "--name HOST" in refused.document["hint"]
        assert refused.headers.keys() == right.headers.keys() > {"content-security-policy", "vary"}
    assert_harmless(service.ask("/runs", host=HOSTILE.encode().decode("latin-1")).text)
    assert Service(index, hosts=("*",)).ask("/runs", host="any.example.org").status == 200
    assert Service(index, hosts=("[::1]",)).ask("/runs", host="[::1]:8090").status == 200


def test_behind_a_proxy_all_addresses_begin_with_its_path(index: Path) -> None:
    service = Service(index, root="/lab/fsjoule")
    for address in PAGES:
        # A proxy may pass the path on, or take it off.
        answer = service.ask(f"/lab/fsjoule{address}")
        assert answer.status == 200
        assert service.ask(address).body == answer.body
        found = re.findall(r"(?:src|href|action)=\"([^\"#]+)", answer.text)
        assert [each for each in found if not each.startswith(("/lab/fsjoule/", "data:", "#"))] == []
    assert service.ask("/search?q=aaaaaa").headers["location"] == "/lab/fsjoule/run/aaaaaa"
    assert service.ask("/lab/fsjoule/static/" + assets()["page.css"].name).status == 200


def test_the_openapi_document_has_every_page_and_what_it_may_be_asked(service: Service) -> None:
    document = service.ask("/openapi.json").document
    assert set(document["paths"]) == {"/", "/trend", "/runs", "/run/{run_id}", "/compare", "/places"}
    asked = {each["name"] for each in document["paths"]["/trend"]["get"]["parameters"]}
    assert asked >= {"series", "board", "fs", "workload", "metric", "by", "since", "until", "page"}
    answers = document["paths"]["/trend"]["get"]["responses"]
    assert set(answers) >= {"200", "304", "400", "404", "503"}
    schema = answers["200"]["content"]["application/json"]["schema"]
    assert schema["properties"]["schema"]["const"] == "fsjoule.trend/1"


def test_its_own_figures(made: Path) -> None:
    service = Service(made / "index.sqlite")
    tag = service.ask("/runs").tag
    service.ask("/runs")
    service.ask("/runs", if_none_match=tag)
    service.ask("/none")
    told = service.ask("/metrics").text
    assert 'fsjoule_serve_requests_total{page="/runs",status="200"} 2' in told
    assert 'fsjoule_serve_requests_total{page="/runs",status="304"} 1' in told
    assert 'fsjoule_serve_requests_total{page="none",status="404"} 1' in told
    assert "fsjoule_serve_index_up 1" in told
    for how in ("known", "kept", "made"):
        assert f'fsjoule_serve_pages_total{{how="{how}"}} 1' in told


# ---------------------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("address", "status", "told"),
    [
        ("/none", 404, "there is no"),
        ("/run/none", 404, "the index has no run"),
        ("/places", 404, "LG_COORDINATOR"),
        ("/trend?colour=red", 400, "colour: Extra inputs are not permitted"),
        ("/trend?page=0", 400, "page: "),
        ("/trend?page=x", 400, "page: "),
        ("/trend?state=odd", 400, "state: "),
        ("/trend?by=age", 400, "by: "),
        ("/trend?metric=speed", 400, "speed"),
        ("/trend?since=yesterday", 400, "is not a time"),
        ("/trend?since=0001-01-01T00:00%2B09:00", 400, "is not a time"),
        ("/trend?board=virtul", 400, "did you mean virtual?"),
        ("/trend?branch=topic", 400, "the index has no branch"),
        ("/runs?board=virtul", 400, "did you mean virtual?"),
        ("/runs?suite=fast", 400, "it has quick"),
        ("/runs?status=odd", 400, "status.0: Input should be"),
        (f"/trend?search={'x' * 201}", 400, "search: "),
        (f"/trend?board={','.join(map(str, range(51)))}", 400, "board: "),
        (f"/search?q={'x' * 201}", 400, "200 characters"),
        ("/compare?baseline=5.4&candidate=6.1", 400, "no run, kernel or branch"),
        ("/compare?baseline=run:aaaaaa&candidate=run:bbbbbb&fs=ext5", 400, "did you mean ext4?"),
    ],
)
def test_errors_look_like_pages_and_say_what_to_do(service: Service, address: str, status: int, told: str) -> None:
    answer = service.ask(address)
    assert answer.status == status
    assert told in answer.text
    assert '<nav class="site"' in answer.text
    assert answer.headers["cache-control"] == "no-store"
    document = service.ask(address, accept="application/json")
    assert document.status == status
    assert document.document["schema"] == "fsjoule.error/1"
    assert document.document["status"] == status
    assert told in document.document["what"] + str(document.document["hint"])


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_nothing_is_written(service: Service, method: str) -> None:
    answer = service.ask("/runs", method=method)
    assert answer.status == 405
    assert "Nothing is written here" in answer.text
    assert "GET and HEAD" in answer.text


def test_a_bug_is_told_to_whoever_started_the_service(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_arguments: object) -> None:
        raise ZeroDivisionError("secret")

    service = Service(made / "index.sqlite")
    monkeypatch.setattr(Pages, "search", broken)
    answer = service.ask("/search?q=x")
    assert answer.status == 500
    assert "This is a bug in fsjoule" in answer.text
    assert "secret" not in answer.text
    assert "ZeroDivisionError: secret" in service.said[0]


# ---------------------------------------------------------------------------------------------------- hostile text

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>\u202e\x1b[31m\x07\u200f</script><!--"


def test_text_of_the_index_is_no_markup_and_no_control_sequence(index: Path, tmp_path: Path) -> None:
    with closing(sqlite3.connect(index)) as database, database:
        for table, column in (
            *(("series", "board"), ("series", "filesystem"), ("series", "workload"), ("series", "suite")),
            *(("series", "storage"), ("runs", "board"), ("runs", "branch"), ("runs", "suite"), ("runs", "status")),
            *(("runs", "place"), ("runs", "exporter"), ("runs", "meter"), ("runs", "job"), ("runs", "commit_id")),
            *(("kernels", "release"), ("kernels", "version"), ("run_kernels", "label")),
        ):
            database.execute(f"UPDATE {table} SET {column} = {column} || ? WHERE {column} IS NOT NULL", (HOSTILE,))
        database.execute("UPDATE runs SET place = 'p' || ?, job = ?", (HOSTILE, HOSTILE))
        database.execute("UPDATE runs SET run_id = ? WHERE run_id = 'bbbbbb'", (HOSTILE,))
        database.execute(
            "UPDATE measurements SET invalid_reasons = ?, valid = 0 WHERE number = 5", ('["' + "<b>x\u202e" + '"]',)
        )
    database.close()
    (tmp_path / "results").rename(tmp_path / "elsewhere")
    service = Service(index)
    listed = service.ask("/runs").text
    links = [each for each in re.findall(r"href=\"(/run/[^\"]+)\"", listed) if "aaaaaa" not in each]
    assert len(links) == 1
    addresses = (
        "/",
        "/trend",
        "/runs",
        "/run/aaaaaa",
        links[0],
        "/compare",
        "/compare?baseline=kernel:6.1&candidate=main",
    )
    for address in (
        *addresses,
        f"/run/{HOSTILE[:20]}",
        "/search?q=%3Cscript%3E",
        "/trend?search=%22%3E%3Cscript%3Ealert",
    ):
        answer = service.ask(address)
        assert answer.status in (200, 303, 400, 404), answer.text
        assert_harmless(answer.text)
    assert "alert(1)" in service.ask(links[0]).text
    assert service.ask("/runs.json").document["runs"][0]["run_id"] == HOSTILE


class _Attributes(HTMLParser):
    """What a page's elements would do by themselves."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.handlers: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        del tag
        self.handlers += [name for name, text in attrs if name.startswith("on") or "javascript:" in str(text)]


def assert_harmless(page: str) -> None:
    assert re.findall("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]", page) == []
    for element in ("<script>", "<img", "<b>", "<!--"):
        assert element not in page
    assert _Attributes(page).handlers == []


def test_what_is_asked_for_comes_back_as_text(service: Service) -> None:
    for address in (
        "/{}",
        "/run/{}",
        "/trend?search={}",
        "/trend?metric={}",
        "/trend?{}=1",
        "/compare?baseline={}&candidate=x",
    ):
        asked = "%3Cscript%3Ealert(1)%3C/script%3E%22%E2%80%AE%1B"
        answer = service.ask(address.format(asked))
        assert_harmless(answer.text)
