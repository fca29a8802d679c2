"""The page of trends as its reader has it: one file, opened in a browser, by pointer and by keyboard."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from browser import CONTRASTS, DESK, MODES, PHONE, Browser
from nights import Nights
from selenium.webdriver import ActionChains, Keys
from selenium.webdriver.common.by import By

from fsjoule.model import IoPattern
from fsjoule.model.metrics import Figure
from fsjoule.model.series import Order, Where
from fsjoule.report.forge import forge_of
from fsjoule.report.trend.page import link_from, trend_page
from fsjoule.store.index.database import open_index
from fsjoule.store.index.importer import import_runs
from fsjoule.store.index.queries import list_series
from fsjoule.store.index.states import keep_states
from fsjoule.store.index.trend import trend_reader
from fsjoule.verdicts.trend.states import accepted, changes_at
from fsjoule.verdicts.trend.trend import trend_of

FORGE = "https://forge.example/lab/linux"
NIGHTS = 30
STEPS = {("btrfs", IoPattern.RANDWRITE): (18, 0.9), ("ext4", IoPattern.READ): (12, 0.95)}


def speed(night: int, fs: str, pattern: IoPattern, _kernel: str) -> Figure:
    """Random writes on btrfs lose a tenth from one night on, reads on ext4 a twentieth from an earlier one."""
    start, factor = STEPS.get((fs, pattern), (NIGHTS, 1.0))
    return factor if night >= start else 1.0


@dataclass(frozen=True)
class Page:
    address: str
    runs: list[Path]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Page:
    here = tmp_path_factory.mktemp("trends")
    runs = Nights(speed=speed).write(here / "results", NIGHTS)
    Nights(board="colibri", simulated=False, filesystems=("ext4",), prefix="c").write(here / "results", 8)
    (runs[18] / "report.html").write_text("<!doctype html><title>the run</title>")
    with open_index(here / "index.sqlite", create=True) as index:
        import_runs(index, [here / "results"])
        known = Where(boards=("virtual",), filesystems=("ext4",), workloads=("read-16k",))
        key = list_series(index, known)[0].series.key
        found = changes_at(lambda order: trend_of(trend_reader(index, known, order=order)), key, f"{12:012x}")
        keep_states(index, accepted(*found, why="checksums are on since then"))
        trends = [trend_of(trend_reader(index, Where(), order=order), all_names=True) for order in Order]
    file = here / "pages" / "trends.html"
    file.parent.mkdir()
    file.write_text(trend_page(trends[0], trends[1], forge=forge_of(FORGE), link=link_from(file.parent)))
    return Page(file.as_uri(), runs)


def text(opened: Browser, selector: str = "body") -> str:
    return str(opened.script("return document.querySelector(arguments[0]).innerText", selector))


def texts(opened: Browser, selector: str) -> list[str]:
    """The texts of all such elements that are shown."""
    return opened.script(
        "return [...document.querySelectorAll(arguments[0])]"
        ".filter((e) => e.checkVisibility()).map((e) => e.innerText)",
        selector,
    )


def links(opened: Browser, selector: str) -> dict[str, str]:
    return dict(
        opened.script("return [...document.querySelectorAll(arguments[0])].map((e) => [e.innerText, e.href])", selector)
    )


def press(opened: Browser, *keys: str) -> None:
    for key in keys:
        ActionChains(opened.chrome).send_keys(key).perform()


def focused(opened: Browser) -> str:
    return str(opened.script("const e = document.activeElement; return e.id || e.innerText"))


def shown(opened: Browser) -> bool:
    return bool(opened.script("return document.getElementById('one').open"))


def start(opened: Browser, page: Page, size: tuple[int, int] = DESK, *, dark: bool = False, chosen: str = "") -> None:
    opened.open(f"{page.address}#{chosen}", size, dark=dark)
    opened.wait(lambda: " of 12" in text(opened, "#count"))


def open_stepped(opened: Browser, page: Page, size: tuple[int, int] = DESK, *, dark: bool = False) -> None:
    """Open the series with the largest loss, by its button."""
    start(opened, page, size, dark=dark)
    opened.script("document.querySelector('.card [data-open]').click()")
    opened.wait(lambda: opened.script("return document.querySelector('#one-plot canvas') !== null"))


# ------------------------------------------------------------------------------------------------------ overview


def test_a_cause_is_one_card_and_what_is_closed_is_folded(opened: Browser, page: Page) -> None:
    start(opened, page)
    (card,) = (" ".join(each.split()) for each in texts(opened, ".card"))
    assert card.startswith(
        "loss since 2026-01-19 6.1.106-armmp commit 000000000012 simulated virtual, 2 figures, all still so"
    )
    assert "btrfs randwrite-16k: " in card
    assert "% more energy" in card
    assert texts(opened, ".cards-more summary") == ["1 is accepted or refuted"]
    there = links(opened, ".view:not([hidden]) .card.open a")
    before, since = f"{17:012x}{0:028x}", f"{18:012x}{0:028x}"
    assert there[since[:12]] == f"{FORGE}/-/commit/{since}"
    assert there["The difference"] == f"{FORGE}/-/compare/{before}...{since}"
    assert there["run n00018"] == (page.runs[18] / "report.html").as_uri()
    opened.script("document.querySelector('.cards-more').open = true")
    assert "checksums are on since then" in texts(opened, ".card")[1]


def test_a_slash_searches_and_filters_narrow_down(opened: Browser, page: Page) -> None:
    start(opened, page)
    press(opened, "/", *"btrfs energy")
    opened.wait(lambda: text(opened, "#count") == "2 of 12")
    assert len(texts(opened, ".card")) == 1
    press(opened, Keys.ESCAPE)
    opened.wait(lambda: text(opened, "#count") == "12 of 12")
    for name, value, count in (
        ("fs", "ext4", 8),
        ("workload", "read-16k", 4),
        ("metric", "energy", 2),
        ("board", "colibri", 1),
    ):
        opened.choose(name, value)
        assert text(opened, "#count") == f"{count} of 12"
    assert opened.script("return location.hash") == "#fs=ext4&workload=read-16k&metric=energy&board=colibri"
    start(opened, page, chosen="state=open")
    assert text(opened, "#count") == "2 of 12"


def test_lines_are_drawn_when_they_come_into_view_and_name_the_last_change(opened: Browser, page: Page) -> None:
    start(opened, page, chosen="show=lines")
    opened.wait(lambda: opened.script("return document.querySelectorAll('#rows canvas').length") >= 3)
    rows = texts(opened, "#rows li")
    assert "btrfs randwrite-16k" in rows[0]
    assert "10." in rows[0] or "9." in rows[0]
    assert "MiB/s" in rows[0]
    assert "new 2026-01-19" in rows[0].replace("\n", " ")
    assert any("no change" in row for row in rows)
    # Simulated and real ones are told apart where both stand.
    assert all(("simulated" in row) == ("virtual" in row) for row in rows)


def test_the_heat_map_shows_which_kernels_are_worse(opened: Browser, page: Page) -> None:
    start(opened, page, chosen="fs=btrfs&workload=randwrite-16k&metric=throughput")
    heads = texts(opened, ".heat thead th")
    # The newest is in sight, on a phone, too.
    assert heads[1:] == [f"6.1.{100 + number}-armmp" for number in reversed(range(10))]
    ways: list[str] = opened.script("return [...document.querySelectorAll('.heat td')].map((e) => e.className)")
    shares = texts(opened, ".heat td")
    assert all(abs(int(share.replace("−", "-") or 0)) <= 1 for share in shares[4:])  # noqa: RUF001 - a minus sign
    assert all(share in ("−9", "−10", "−11") for share in shares[:4])  # noqa: RUF001
    assert ways[:4] == ["worse"] * 4
    title = str(opened.script("return document.querySelectorAll('.heat td')[3].title"))
    assert title.startswith("btrfs randwrite-16k, throughput: ")
    assert "MiB/s on 6.1.106-armmp, −" in title  # noqa: RUF001 - a minus sign
    opened.screenshot("trends-heat")


# --------------------------------------------------------------------------------------------------- one series


def test_by_keyboard_alone(opened: Browser, page: Page) -> None:
    start(opened, page)
    press(opened, "j", "j", "k")
    assert focused(opened) == "btrfs randwrite-16k"
    press(opened, Keys.ENTER)
    opened.wait(lambda: shown(opened))
    # The newest point first; the arrows go through all of them.
    assert "run n00029" in text(opened, "#one-told")
    opened.script("document.getElementById('point').focus()")
    press(opened, *[Keys.ARROW_LEFT] * 11)
    told = text(opened, "#one-told")
    assert "run n00018" in told
    assert "6.1.106-armmp" in told
    assert f"commit {18:012x}" in told
    assert "3 boots" in told
    press(opened, Keys.ESCAPE)
    # The browser tells the page a little after it has closed the dialog.
    opened.wait(lambda: not shown(opened) and "series=" not in str(opened.script("return location.hash")))


def test_a_pointer_sees_a_point_and_a_click_opens_its_run(opened: Browser, page: Page) -> None:
    open_stepped(opened, page)
    plot = opened.chrome.find_element(By.CSS_SELECTOR, "#one-plot .u-over")
    width, height = plot.size["width"], plot.size["height"]
    at = round((18 / (NIGHTS - 1) * 0.96 + 0.02 - 0.5) * width)
    ActionChains(opened.chrome).move_to_element_with_offset(plot, at, height // 5).perform()
    opened.wait(lambda: "run n00018" in text(opened, "#one-told"))
    assert "MiB/s (" in text(opened, "#one-told")
    first = opened.chrome.current_window_handle
    ActionChains(opened.chrome).click().perform()
    opened.wait(lambda: len(opened.chrome.window_handles) == 2)
    opened.chrome.switch_to.window(next(each for each in opened.chrome.window_handles if each != first))
    opened.wait(lambda: opened.chrome.title == "the run")
    opened.chrome.close()
    opened.chrome.switch_to.window(first)


def test_two_points_are_compared(opened: Browser, page: Page) -> None:
    open_stepped(opened, page)
    # The newest change is proposed.
    first = text(opened, "#compared")
    assert "slower" in first
    assert "Two nights are no verdict." in first
    assert f"difference from {17:012x}" in first
    opened.choose("from", "3")
    opened.choose("to", "25")
    second = text(opened, "#compared")
    assert "% slower" in second
    assert "the intervals are apart" in second
    opened.choose("from", "25")
    opened.choose("to", "3")
    assert "% faster" in text(opened, "#compared")


def test_the_axis_says_where_it_begins_and_which_way_is_better(opened: Browser, page: Page) -> None:
    open_stepped(opened, page)
    assert "more is better" in text(opened, "#one-way")
    assert "The y axis is cut: it begins at " in text(opened, "#one-axis")
    opened.script("document.getElementById('zero').click()")
    assert "The y axis begins at 0." in text(opened, "#one-axis")
    assert "Published: 8.5 MiB/s" in text(opened, "#one-axis")


def test_a_link_carries_the_series(opened: Browser, page: Page) -> None:
    open_stepped(opened, page)
    chosen = str(opened.script("return location.hash"))[1:]
    title = text(opened, "#one-title")
    start(opened, page, chosen=chosen)
    assert shown(opened)
    assert text(opened, "#one-title") == title


# -------------------------------------------------------------------------------------------------- reading well


@pytest.mark.parametrize(("size", "dark"), MODES)
@pytest.mark.parametrize("what", ["lines", "heat", "one"])
def test_it_reads_well(opened: Browser, page: Page, what: str, size: tuple[int, int], dark: bool) -> None:
    if what == "one":
        open_stepped(opened, page, size, dark=dark)
    else:
        start(opened, page, size, dark=dark, chosen=f"show={what}")
    opened.screenshot(f"trends-{what}-{'phone' if size == PHONE else 'desk'}-{'dark' if dark else 'light'}")
    # Nothing is wider than the window, and no letter is too small to be read.
    assert opened.script("return document.documentElement.scrollWidth <= innerWidth")
    assert opened.script("const d = document.getElementById('one'); return !d.open || d.scrollWidth <= d.clientWidth")
    sizes: list[float] = opened.script(
        "return [...document.querySelectorAll('main *, dialog[open] *')]"
        ".filter(e => e.innerText && e.checkVisibility()).map(e => parseFloat(getComputedStyle(e).fontSize))"
    )
    assert min(sizes) >= 11
    contrasts: list[float] = opened.script(CONTRASTS)
    assert len(contrasts) > 20
    assert min(contrasts) >= 4.5, "WCAG 2 asks for that of text"


def test_it_loads_nothing(opened: Browser, page: Page) -> None:
    start(opened, page)
    assert opened.script("return performance.getEntriesByType('resource').map((e) => e.name)") == []
