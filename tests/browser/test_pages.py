"""The pages of runs, comparisons and gates as a reader sees them: on a desk and on a phone, light and dark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from advised_runs import PLAIN, changed, write_cuts, write_parts
from axe import serious_findings
from browser import MODES, PHONE, Browser
from compared_runs import in_guest_time, write_kernels
from labs_of_places import lab_of_six
from results_factory import make_run
from rivals import MKFS, READ, WRITE, rivals
from selenium.webdriver import ActionChains, Keys
from whole_runs import write_whole

from fsjoule.model import Measurement, Planned, Provision, Run, RunStatus
from fsjoule.model.metrics import Metric
from fsjoule.model.series import Order, Where
from fsjoule.report.advice.page import render_page as advice_page
from fsjoule.report.comparison import ComparisonView
from fsjoule.report.gate import GateView, headline
from fsjoule.report.places.page import render_page as lab_page
from fsjoule.report.run import write_report
from fsjoule.report.trend.page import link_from, trend_page
from fsjoule.statistics.policy import Policy
from fsjoule.store.gate import keep_gate
from fsjoule.store.index.database import open_index
from fsjoule.store.index.importer import import_runs
from fsjoule.store.index.trend import trend_reader
from fsjoule.store.sides import Sources
from fsjoule.suites.profile import profile_of
from fsjoule.verdicts.advice.advise import advise
from fsjoule.verdicts.advice.evidence import evidence
from fsjoule.verdicts.compare import compare_sides
from fsjoule.verdicts.recorded_gate import gate_recorded
from fsjoule.verdicts.trend.trend import trend_of

PAGES = (
    *("answered", "aborted", "kernels", "forty", "alone", "invalid", "gated", "advised"),
    *("compare", "gate", "advice", "trends", "one boot", "many", "lab"),
)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    here = tmp_path_factory.mktemp("pages")
    made = make_run(repeat=1)
    few = rivals({"ext4": 1.0, "btrfs": 0.8}, workloads=(READ, WRITE), boots=1, meter=False)
    runs = {
        "answered": rivals({"ext4": 1.0, "btrfs": 0.8, "f2fs": 0.99}, workloads=(READ, WRITE, MKFS), boots=8),
        "forty": rivals({f"ext4 option_{'x' * n}={n}": 1 + n / 50 for n in range(40)}, boots=1),
        "alone": rivals({"ext4": 1.0}, boots=1, meter=False),
        "invalid": [replace(m, invalid_reasons=("no mark of the end",)) for m in few],
    }
    folders = {name: write_whole(here / name, _run(made.run, found), found) for name, found in runs.items()}
    aborted = replace(made.run, status=RunStatus.ABORTED, abort_reason="interrupted (SIGINT)")
    folders["aborted"] = write_whole(here / "aborted", aborted, made.measurements[:9], trace=made.traces.get)
    speeds = {"6.1": 1.0, "6.12": 0.9}
    folders["kernels"] = write_kernels(here / "kernels", speeds=speeds, boots=2, change=in_guest_time)
    folders["gated"] = gated = write_kernels(here / "gated", speeds=speeds, boots=10)
    policy = Policy(metrics=(Metric.THROUGHPUT, Metric.ENERGY))
    with Sources("") as sources:
        read = partial(sources.side, where=Where(), metrics=tuple(Metric))
        answer = gate_recorded(f"6.1@{gated}", f"6.12@{gated}", read, policy, command=())
    keep_gate(answer, headline(answer), gated)
    risky = {"ext4": PLAIN, "ext4:nobarrier": changed("write-4k-fsync1", joules=0.4, seconds=0.3, p99_ms=4.0)}
    folders["advised"] = advised = write_parts(here / "advised", "a1", risky | {"btrfs": PLAIN})
    cuts = write_cuts(here / "cuts", "c1", {"ext4": (0,) * 10, "ext4:nobarrier": (3,) * 10})
    found = {name: write_report(folder) for name, folder in folders.items()}
    asked = advise(evidence([advised, cuts]), *profile_of("logger"))
    found["advice"] = here / "advice.html"
    found["advice"].write_text(advice_page(asked, found["advice"]), encoding="utf-8")
    many = {f"ext4 (option_{'x' * n}={n})": PLAIN for n in range(20)}
    cut = write_cuts(here / "many", "m2", dict.fromkeys(many, (1, 0, 2)))
    found["many"] = here / "many.html"
    crowd = evidence([write_parts(here / "many", "m1", many, boots=2), cut])
    found["many"].write_text(advice_page(advise(crowd, *profile_of("logger")), found["many"]), encoding="utf-8")
    alone = write_kernels(here / "one", speeds=speeds, boots=1)
    with Sources("") as sources:
        baseline, candidate = (sources.side(f"{kernel}@{alone}", Where(), tuple(Metric)) for kernel in speeds)
    found["one boot"] = here / "one.html"
    found["one boot"].write_text(ComparisonView(compare_sides(baseline, candidate)).page(found["one boot"]), "utf-8")
    with open_index(str(here / "index.sqlite"), create=True) as index:
        import_runs(index, [here])
        by_time, by_kernel = (trend_of(trend_reader(index, Where(), order=order), all_names=True) for order in Order)
    found["trends"] = here / "trends.html"
    found["trends"].write_text(trend_page(by_time, by_kernel, link=link_from(here)), encoding="utf-8")
    with Sources("") as sources:
        baseline, candidate = (sources.side(f"{kernel}@{gated}", Where(), tuple(Metric)) for kernel in speeds)
    found |= {"compare": here / "compare.html", "gate": here / "gate.html"}
    found["compare"].write_text(
        ComparisonView(compare_sides(baseline, candidate)).page(found["compare"]), encoding="utf-8"
    )
    found["gate"].write_text(GateView(answer).page(found["gate"]), encoding="utf-8")
    found["lab"] = here / "lab.html"
    found["lab"].write_text(lab_page(lab_of_six(), found["lab"]), encoding="utf-8")
    return found


def _run(like: Run, measurements: Sequence[Measurement]) -> Run:
    entries = tuple(
        Planned(m.number, m.repetition, m.kernel, m.series.filesystem, m.workload, "quick", Provision.SCRATCH)
        for m in measurements
    )
    filesystems = tuple(dict.fromkeys(m.series.filesystem for m in measurements))
    return replace(like, plan=replace(like.plan, entries=entries, filesystems=filesystems))


@pytest.mark.parametrize(("size", "dark"), MODES)
@pytest.mark.parametrize("name", PAGES)
def test_every_page_reads_well(
    opened: Browser, pages: Mapping[str, Path], name: str, size: tuple[int, int], *, dark: bool
) -> None:
    opened.open(pages[name].as_uri(), size, dark=dark)
    opened.screenshot(f"{name}-{'phone' if size == PHONE else 'desk'}-{'dark' if dark else 'light'}")
    wide: list[str] = opened.script(_WIDE)
    assert wide == [], "what is wider than its place hides columns"
    sizes: list[float] = opened.script(_SIZES)
    assert min(sizes) >= 11
    assert serious_findings(opened) == []


def test_a_report_begins_with_the_answer(opened: Browser, pages: Mapping[str, Path]) -> None:
    opened.open(pages["answered"].as_uri())
    answer = "document.querySelector('header .answer')"
    told = str(opened.script(f"return {answer}.innerText"))
    assert "ext4" in told or "f2fs" in told
    # It is seen without scrolling, and so is the first line of the table below it.
    assert opened.script(f"return {answer}.getBoundingClientRect().bottom < innerHeight")
    assert opened.script(
        "return document.querySelector('.answers tbody tr').getBoundingClientRect().bottom < innerHeight"
    )


def test_a_gate_and_an_aborted_run_say_so_first(opened: Browser, pages: Mapping[str, Path]) -> None:
    opened.open(pages["gated"].as_uri())
    assert str(opened.script("return document.querySelector('.answer').innerText")).startswith("Gate: regressed: ")
    opened.open(pages["aborted"].as_uri())
    told = str(opened.script("return document.querySelector('main section').innerText"))
    assert "It ended at measurement " in told
    assert "interrupted (SIGINT)" in told


def test_a_figure_has_one_scale_and_runs_are_one_click_away(opened: Browser, pages: Mapping[str, Path]) -> None:
    for name in ("compare", "gate"):
        opened.open(pages[name].as_uri())
        titles: list[str] = opened.script(
            "return [...document.querySelectorAll('figure svg')].map((e) => e.textContent.match(/^[^:]*: change/)?.[0])"
        )
        assert len(titles) == len(set(titles)) >= 2, "one plot, and so one scale, per figure"
        opened.script("document.querySelector('.contents a').click()")
        opened.wait(lambda: "Gate: regressed" in str(opened.script("return document.body.innerText")))
        assert opened.script("return location.href") == pages["gated"].resolve().as_uri()


@pytest.mark.parametrize("name", ["answered", "gated", "advice", "compare"])
def test_by_keyboard_alone(opened: Browser, pages: Mapping[str, Path], name: str) -> None:
    """Tab reaches everything that a pointer can use, in the page's order, and each time one sees where it is."""
    opened.open(pages[name].as_uri())
    expected: list[str] = opened.script(f"{_FOCUS} return usable.map(name);")
    assert expected
    reached: list[str] = []
    for _ in expected:
        ActionChains(opened.chrome).send_keys(Keys.TAB).perform()
        told: list[Any] = opened.script(
            f"{_FOCUS} const e = document.activeElement, box = e.getBoundingClientRect();"
            "return [name(e), getComputedStyle(e).outlineStyle, box.bottom > 0 && box.top < innerHeight];"
        )
        reached.append(told[0])
        assert told[1] != "none", f"one does not see that {told[0]} has the focus"
        assert told[2], f"{told[0]} has the focus outside of the window"
    assert reached == expected
    if folded := opened.script("return document.querySelectorAll('details:not([open])').length"):
        opened.script("document.querySelector('details:not([open]) > summary').focus()")
        ActionChains(opened.chrome).send_keys(Keys.ENTER).perform()
        assert opened.script("return document.querySelectorAll('details:not([open])').length") == folded - 1


# What a pointer can use, and a name for each.
_FOCUS = """
const usable = [...document.querySelectorAll('a[href], button, input, select, summary, [tabindex="0"]')]
  .filter((e) => e.checkVisibility());
const all = [...document.querySelectorAll('*')];
const name = (e) => `${all.indexOf(e)} ${e.tagName} ${e.textContent.trim().slice(0, 40)}`;
"""

# Elements whose content is wider than they are, and the page itself.
_WIDE = """
return [document.documentElement, ...document.querySelectorAll('section, table, .answer, td, th, dd')]
  .filter((e) => e.checkVisibility() && e.scrollWidth > Math.max(e.clientWidth, 1) + 1)
  .map((e) => `${e.tagName} ${e.scrollWidth} > ${e.clientWidth}: ${e.innerText.slice(0, 80)}`).slice(0, 5);
"""

# Letters of charts are drawn in the chart's own units.
_SIZES = """
return [...document.querySelectorAll('main *')].filter((e) => !e.closest('svg') && e.innerText && e.checkVisibility())
  .map((e) => parseFloat(getComputedStyle(e).fontSize));
"""
