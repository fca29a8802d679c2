"""The web service as its reader has it: real processes, real requests, in a browser on a desk and on a phone."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest
from axe import serious_findings
from browser import MODES, PHONE, Browser
from nights import Nights
from selenium.webdriver import ActionChains, Keys

from fsjoule.host.messages import lines_to
from fsjoule.model import IoPattern
from fsjoule.model.metrics import Figure
from fsjoule.report.service.server import serving
from fsjoule.report.service.settings import Settings
from fsjoule.store.index.database import open_index
from fsjoule.store.index.importer import import_runs

NIGHTS = 30
PAGES = {
    "start": "",
    "trends": "trend",
    "runs": "runs",
    "run": "run/n00018",
    "indexed run": "run/c00002",
    "compare": "compare",
    "compared": "compare?baseline=run:n00010&candidate=run:n00025",
}
# Elements whose content is wider than they are, and the page itself.
_WIDE = """
return [document.documentElement, ...document.querySelectorAll('nav, header, section, table, .answer, td, th, dd')]
  .filter((e) => e.checkVisibility() && e.scrollWidth > Math.max(e.clientWidth, 1) + 1)
  .map((e) => `${e.tagName} ${e.scrollWidth} > ${e.clientWidth}: ${e.innerText.slice(0, 80)}`).slice(0, 5);
"""
_LOADED = "return performance.getEntriesByType('resource').map((e) => [e.name, e.transferSize])"


def speed(night: int, fs: str, pattern: IoPattern, _kernel: str) -> Figure:
    return 0.9 if night >= 18 and (fs, pattern) == ("btrfs", IoPattern.RANDWRITE) else 1.0


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    """Where the service is: of two boards, the run folders of one of them elsewhere."""
    here = tmp_path_factory.mktemp("service")
    Nights(speed=speed).write(here / "results", NIGHTS)
    elsewhere = Nights(board="colibri", simulated=False, filesystems=("ext4",), prefix="c").write(here / "results", 8)
    with open_index(here / "index.sqlite", create=True) as index:
        import_runs(index, [here / "results"])
    for folder in elsewhere:
        folder.rename(here / folder.name)
    said: list[str] = []
    settings = Settings(str(here / "index.sqlite"), root="/lab", confirmations=Path("/nonexistent"))
    with lines_to(said.append), serving(settings, limit_s=120.0) as url:
        yield url
    assert said == []


def text(opened: Browser, selector: str = "body") -> str:
    return str(opened.script("return document.querySelector(arguments[0])?.innerText ?? ''", selector))


@pytest.mark.parametrize(("size", "dark"), MODES)
@pytest.mark.parametrize("name", PAGES)
def test_every_page_reads_well(opened: Browser, address: str, name: str, size: tuple[int, int], *, dark: bool) -> None:
    opened.open(address + PAGES[name], size, dark=dark)
    opened.screenshot(f"service-{name}-{'phone' if size == PHONE else 'desk'}-{'dark' if dark else 'light'}")
    wide: list[str] = opened.script(_WIDE)
    assert wide == [], "what is wider than its place hides columns"
    assert serious_findings(opened) == []


def test_from_the_answer_to_the_chart_to_the_run(opened: Browser, address: str) -> None:
    opened.open(address)
    assert text(opened, ".answer").startswith("1 open loss, since 2026-01-19 with 6.1.106-armmp on virtual")
    opened.script("document.querySelector('.card [data-open]').click()")
    opened.wait(lambda: opened.script("return document.getElementById('one')?.open"))
    assert text(opened, "#one-title").startswith("btrfs randwrite-16k: throughput")
    opened.wait(lambda: opened.script("return document.querySelector('#one-plot canvas') !== null"))
    verdict = str(opened.script("return document.querySelector('#compared a').href"))
    assert verdict == f"{address}compare?baseline=run%3An00017&candidate=run%3An00018"
    opened.open(str(opened.script("return document.querySelector('#one-found a').href")))
    assert text(opened, "h1").startswith("quick on virtual")


def test_what_is_chosen_is_chosen_by_the_service_and_stands_in_the_address(opened: Browser, address: str) -> None:
    opened.open(f"{address}trend")
    assert text(opened, "#count") == "12 of 12"
    opened.choose("fs", "ext4")
    opened.wait(lambda: text(opened, "#count") == "8 of 8")
    opened.choose("metric", "energy")
    opened.wait(lambda: text(opened, "#count") == "4 of 4")
    assert str(opened.script("return location.pathname + location.search")) == "/lab/trend?fs=ext4&metric=energy"
    opened.choose("kernel", "9")
    assert text(opened, "#count") == "2 of 4"
    assert opened.script("return location.hash") == "#kernel=9"
    opened.script("history.back()")
    opened.wait(lambda: "metric" not in str(opened.script("return location.search")))
    opened.wait(lambda: text(opened, "#count") == "8 of 8")
    assert opened.script("return [...document.getElementById('filters').elements].every((e) => !e.disabled)")


def test_a_slash_searches(opened: Browser, address: str) -> None:
    opened.open(f"{address}trend")
    ActionChains(opened.chrome).send_keys("/", "btrfs energy", Keys.ENTER).perform()
    opened.wait(lambda: text(opened, "#count") == "2 of 2")
    assert str(opened.script("return location.search")) == "?search=btrfs+energy"
    opened.script("const q = document.querySelector('nav input'); q.value = 'n00018'; q.form.requestSubmit()")
    opened.wait(lambda: text(opened, "h1").startswith("quick on virtual"))
    assert str(opened.script("return location.pathname")) == "/lab/run/n00018"


def test_files_of_all_pages_are_loaded_once(opened: Browser, address: str) -> None:
    opened.chrome.execute_cdp_cmd("Network.clearBrowserCache", {})
    opened.open(f"{address}trend")
    first: list[tuple[str, int]] = opened.script(_LOADED)
    assert sorted(name.rpartition("/")[2].partition("-")[0] for name, _ in first) == ["page", "trends", "trends"]
    assert all(name.startswith(f"{address}static/") for name, _ in first)
    assert all(size > 0 for _, size in first)
    opened.open(f"{address}trend?fs=ext4")
    again: list[tuple[str, int]] = opened.script(_LOADED)
    assert {name for name, _ in again} == {name for name, _ in first}
    assert [size for _, size in again] == [0, 0, 0], "they come from the browser's own cache"
