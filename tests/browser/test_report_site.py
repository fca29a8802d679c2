"""The report as its reader has it: made by the command, served by the command's server, looked at in a browser."""

from __future__ import annotations

import hashlib
import shutil
import signal
from collections.abc import Generator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from browser import Browser
from command_line import finished, started
from reported_runs import BUILDS, STEP_AT, write_gate, write_nights, write_run
from results_factory import make_measurement

from fsjoule.errors import ConfigError, FsjouleError
from fsjoule.model import KIB, MIB, FioWorkload, IoPattern, Planned, Provision
from fsjoule.model.series import Series
from fsjoule.report.allure.site import make_site, serving
from fsjoule.store.index.database import open_index
from fsjoule.store.index.importer import import_runs
from fsjoule.store.reader import load_run
from fsjoule.verdicts.comparison import Subject


@dataclass(frozen=True)
class Served:
    results: Path
    folder: Path
    address: str
    measured: int


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Generator[Served]:
    here = tmp_path_factory.mktemp("site")
    results, folder = here / "results", here / "report"
    write_nights(results)
    written = write_run(results)
    series = [Series(m.series, simulated=True) for m in load_run(written.path).measurements[:3]]
    write_gate(written.path, tuple(Subject(each.key, each.series, each.simulated, each.label) for each in series))
    made = make_site([results], folder)
    assert (made.runs, made.earlier) == (3, BUILDS - 1 + 5)
    with serving(folder, 0) as address:
        entry = next(entry for entry in written.run.plan.entries if entry.slug == "ext4-randwrite-16k")
        yield Served(results, folder, address, entry.number)


def text(opened: Browser) -> str:
    return str(opened.script("return document.body.innerText"))


# --------------------------------------------------------------------------------------------------------- Allure


def test_the_first_page_tells_what_there_is(opened: Browser, site: Served) -> None:
    opened.open(site.address)
    opened.wait(lambda: "gate: ext4" in text(opened))
    opened.screenshot("report")
    shown = text(opened)
    for part in ("colibri", "nightly", "virtual", "Global Errors"):
        assert part in shown
    assert opened.script("return document.title") == "3 runs, 2026-03-09 10:00"
    opened.script("document.getElementById('fsjoule-trends').click()")
    opened.wait(lambda: "series on 3 boards" in text(opened))


def test_problems_have_their_categories(opened: Browser, site: Served) -> None:
    opened.open(site.address)
    opened.wait(lambda: "Categories" in text(opened))
    click(opened, "Categories")
    expected = (
        "Regression",
        "Invalid measurement",
        "Lab fault",
        "Damaged result",
        "Not decided",
        "Not measured",
        "Bug",
    )
    opened.wait(lambda: all(name in text(opened) for name in expected))
    opened.screenshot("categories")


def test_what_is_missing_stands_in_the_report(opened: Browser, site: Served) -> None:
    opened.open(site.address)
    opened.wait(lambda: "Global Errors" in text(opened))
    click(opened, "Global Errors")
    opened.wait(lambda: "was left out" in text(opened) and "not completed: interrupted" in text(opened))


def test_a_test_has_steps_attachments_and_a_way_to_its_trends(opened: Browser, site: Served) -> None:
    open_measurement(opened, site, site.measured)
    opened.wait(lambda: "repeat it.sh" in text(opened))
    opened.screenshot("test")
    shown = text(opened)
    for part in ("BoardStrategy: transition", "power trace.svg", "console.log", "fio.json"):
        assert part in shown
    click(opened, "power trace.svg")
    opened.wait(lambda: opened.script("return [...document.images].some((i) => i.complete && i.naturalWidth > 800)"))
    opened.script("[...document.images].find((i) => i.naturalWidth > 800).scrollIntoView({block: 'center'})")
    opened.screenshot("trace")
    opened.wait(lambda: "Trends of this series" in text(opened))
    opened.script("document.getElementById('fsjoule-trends').click()")
    opened.wait(lambda: rows(opened) == ["ext4 randwrite-16k"] * 2)


def test_the_metrics_tab_shows_values_deltas_and_the_step(opened: Browser, site: Served) -> None:
    opened.open(f"{site.address}index.html#metrics", (1280, 1500))
    rows = opened.wait(lambda: metric_rows(opened))
    stepped = key_of("btrfs", IoPattern.RANDWRITE, "throughput")
    for metric in ("throughput", "energy", "cpu", "write-amplification"):
        assert rows[key_of("btrfs", IoPattern.RANDWRITE, metric)].value
    assert rows[stepped].name == "btrfs randwrite 16 KiB, throughput (more is better)"
    # What fell in the last build is a delta.
    fallen = rows[key_of("ext4", IoPattern.READ, "throughput")]
    assert fallen.value.endswith("MiB/s")
    change = float(fallen.delta.split()[0])
    assert change / float(fallen.value.split()[0]) == pytest.approx(-0.11, abs=0.04)
    # A change since the last build is no verdict: it has no colour.
    assert {row.direction for row in rows.values() if row.delta} == {"neutral"}
    # The sum of repetitions of a rate means nothing.
    shown: list[str] = opened.script(
        f"{_ROWS} return [...rows[0].closest('table').querySelectorAll('th')]"
        ".filter((e) => e.checkVisibility()).map((e) => e.innerText)"
    )
    assert "Avg" in shown
    assert "Total" not in shown
    # What fell some builds ago is a step in the sparkline: points before it lie above those after it (y grows down).
    assert len(fallen.heights) == len(rows[stepped].heights) == BUILDS
    before, after = rows[stepped].heights[:STEP_AT], rows[stepped].heights[STEP_AT:]
    assert max(before) < min(after)
    assert not max(fallen.heights[:STEP_AT]) < min(fallen.heights[STEP_AT:])
    opened.script(f"{_ROWS} row(arguments[0]).querySelector('button').click()", stepped)
    opened.wait(lambda: "Metric history" in text(opened) and "n00000" in text(opened))
    opened.script(f"{_ROWS} row(arguments[0]).scrollIntoView({{block: 'center'}})", stepped)
    opened.screenshot("metrics")


# ------------------------------------------------------------------------------------------------- beside the pages


def test_only_this_machine_is_served(site: Served) -> None:
    assert site.address.startswith("http://127.0.0.1:")
    with urlopen(site.address, timeout=10) as answer:
        page = answer.read().decode()
    assert "googletagmanager" not in page
    with pytest.raises(HTTPError, match="404"):
        urlopen(f"{site.address}../results/index.sqlite", timeout=10)


def test_the_server_ends_when_it_is_told_to(site: Served) -> None:
    with ExitStack() as closing:
        command = started(closing, "report", "serve", site.folder, "--port", "0")
        assert command.stdout is not None
        address = command.stdout.readline().strip()
        with urlopen(f"{address}trends.html", timeout=10) as answer:
            assert answer.status == 200
        command.send_signal(signal.SIGINT)
        assert finished(command).code == 0


def test_a_report_of_nothing_names_what_is_missing(opened: Browser, tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    made = make_site([tmp_path / "results"], tmp_path / "report")
    assert made.runs == 0
    with serving(made.folder, 0) as address:
        opened.open(address)
        opened.wait(lambda: "Global Errors" in text(opened))
        click(opened, "Global Errors")
        opened.wait(lambda: "there is no run folder" in text(opened))
        # Allure looks for figures even where there are none.
        assert all("widgets/metrics.json" in error for error in opened.errors())
        opened.open(f"{address}trends.html")
        opened.wait(lambda: "0 series" in text(opened))


def test_an_index_knows_more_than_the_runs_that_are_there(site: Served, tmp_path: Path) -> None:
    location = str(tmp_path / "index.sqlite")
    with open_index(location, create=True) as index:
        import_runs(index, [site.results])
    newest = max(site.results.glob("*-nightly-*"))
    make_site([newest], tmp_path / "report", index=location)
    page = (tmp_path / "report" / "trends.html").read_text()
    assert "16 series on 3 boards" in page
    assert "% slower" in page


def test_an_older_report_is_replaced_and_nothing_else(site: Served, tmp_path: Path) -> None:
    report = tmp_path / "report"
    shutil.copytree(site.folder, report)
    (report / "old").touch()
    with pytest.raises(FsjouleError):
        make_site([site.results], report, index=f"sqlite:///{tmp_path}/none.sqlite")
    assert (report / "old").exists()
    make_site([site.results], report)
    assert not (report / "old").exists()
    with pytest.raises(ConfigError, match="exists and is not a report"):
        make_site([site.results], site.results)
    with pytest.raises(ConfigError, match="there is no report"), serving(site.results, 0):
        pass


# ----------------------------------------------------------------------------------------------------- on the pages

# The rows of Allure's summary of metrics, by the series' key and metric.
_ROWS = """
const key = (r) => r.querySelector('button').getAttribute('aria-controls').replace('metrics-summary-history-', '');
const isOne = (r) => r.querySelector('[aria-controls^=metrics-summary-history]');
const rows = [...document.querySelectorAll('tr')].filter(isOne);
const row = (name) => rows.find((r) => key(r) === name);
"""


@dataclass(frozen=True)
class Row:
    """A row of the metrics tab. `direction` is what its delta is coloured by, `heights` are its sparkline's points."""

    name: str
    value: str
    delta: str
    direction: str
    heights: tuple[float, ...]


def metric_rows(opened: Browser) -> dict[str, Row]:
    found: list[dict[str, str]] = opened.script(f"""{_ROWS}
      return rows.map((r) => ({{
        key: key(r), name: r.cells[0].innerText.trim(), value: r.cells[3].innerText, delta: r.cells[6].innerText.trim(),
        direction: r.querySelector('[data-direction]')?.dataset.direction ?? '',
        points: r.querySelector('polyline').getAttribute('points'),
      }}))""")
    return {
        one["key"]: Row(
            one["name"],
            one["value"],
            one["delta"],
            one["direction"],
            tuple(float(point.split(",")[1]) for point in one["points"].split()),
        )
        for one in found
    }


def key_of(filesystem: str, pattern: IoPattern, metric: str) -> str:
    """The key of a series of the nightly board in one metric, as the report has it."""
    planned = Planned(1, 1, "6.1", filesystem, FioWorkload(pattern, 16 * KIB, 4 * MIB), "quick", Provision.SCRATCH)
    measurement, _ = make_measurement(planned)
    series = Series(replace(measurement.series, board="nightly"), simulated=True)
    return f"{series.key}.{metric}"


def open_measurement(opened: Browser, site: Served, number: int) -> None:
    """Allure names a test by a hash of what its result file is called."""
    name = hashlib.md5(f"k3v9q2-{number:02d}".encode()).hexdigest()
    opened.open(f"{site.address}index.html#{name}")


def click(opened: Browser, words: str) -> None:
    """Click what has these words as its own, whatever else is inside of it."""
    opened.script(
        "[...document.querySelectorAll('#app *')].find((e) => e.checkVisibility()"
        " && [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim() === arguments[0])).click()",
        words,
    )


def rows(opened: Browser) -> list[str]:
    """The series that the page of trends shows."""
    return opened.script(
        "return [...document.querySelectorAll('#rows .open, #heat-table .open')].map((e) => e.innerText)"
    )
