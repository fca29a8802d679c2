"""The picture and the table of read-only images: which none beats, and what a run without them shows."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from xml.etree import ElementTree as ET

import pytest
from results_factory import MadeRun, make_measurement, make_run

from fsjoule.model import KIB, MIB, FioWorkload, IoPattern, Measurement, Planned, Provision, TimedKind, TimedWorkload
from fsjoule.report import style
from fsjoule.report.images import image_rows, images_table
from fsjoule.report.page import render_page
from fsjoule.report.pareto_chart import NARROW, WIDE, pareto_chart
from fsjoule.report.summary import Summary, summarise

# Size in MiB and the energy of a boot in mJ.
IMAGES = {
    "squashfs:xz": (30.2, 2406.6),
    "squashfs:zstd": (38.3, 322.7),
    "squashfs:verity+zstd": (38.6, 488.0),
    "erofs:lz4hc": (55.7, 98.5),
    "erofs": (100.3, 74.7),
    "ext4-ro": (101.0, 81.7),
}


def boot(number: int, name: str) -> Measurement:
    entry = Planned(number, 1, "6.1", name, TimedWorkload(TimedKind.BOOT), "root-image", Provision.ROOT)
    made, _ = make_measurement(entry)
    size, energy = IMAGES[name]
    assert made.energy is not None
    gross = replace(made.energy.gross_mj, value=energy)
    series = replace(made.series, provision=Provision.ROOT)
    return replace(made, series=series, image_bytes=round(size * MIB), energy=replace(made.energy, gross_mj=gross))


def read(number: int, name: str) -> Measurement:
    workload = FioWorkload(IoPattern.RANDREAD, 4 * KIB, 4 * MIB)
    return make_measurement(Planned(number, 1, "6.1", name, workload, "root-image", Provision.SCRATCH))[0]


@pytest.fixture(scope="module")
def made() -> MadeRun:
    return make_run(repeat=1)


@pytest.fixture(scope="module")
def summary(made: MadeRun) -> Summary:
    boots = [boot(number, name) for number, name in enumerate(IMAGES, start=1)]
    reads = [read(number, name) for number, name in enumerate(IMAGES, start=11) if "verity" not in name]
    return summarise(made.run, [*boots, *reads])


def test_the_table_names_the_one_that_beats_an_image(summary: Summary) -> None:
    rows = {row.label: row.beaten_by for row in image_rows(summary)}
    beaten = {"squashfs:verity+zstd": "squashfs:zstd", "ext4-ro": "erofs"}
    assert rows == {name: beaten.get(name, "") for name in IMAGES}
    table = images_table(summary)
    assert table is not None
    assert [row[-1].text for row in table.rows].count("none beats it") == 4
    read_by = {row[0].text: row[5].text for row in table.rows}
    assert read_by["squashfs:verity+zstd"] == "–", "absent, never zero"  # noqa: RUF001 - a dash
    assert float(read_by["erofs"]) > 0


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_each_image_is_a_point_that_says_what_it_is(summary: Summary, width: int) -> None:
    svg = pareto_chart(image_rows(summary), width=width, simulated=True)
    titles = [each.text for each in ET.fromstring(svg).iter() if each.tag.endswith("title")]
    assert len(titles) == len(IMAGES)
    assert "erofs: 100.30 MiB, 74.7 mJ for a boot; none beats it" in titles
    assert "ext4-ro: 101.00 MiB, 81.7 mJ for a boot; beaten by erofs" in titles
    assert "Size against the energy of a boot (simulated)" in svg
    colours = set(re.findall(r"#[0-9a-f]{6}", svg))
    assert colours <= style.DARK.keys(), "each has its partner on a dark page"


def test_the_page_has_the_picture_for_a_desk_and_for_a_phone(summary: Summary) -> None:
    page = render_page(summary, [], lambda _: None)
    HTMLParser().feed(page)
    section = page[page.index('<section id="images">') :]
    section = section[: section.index("</section>")]
    assert section.count("<svg") == 2
    assert 'class="wide"' in section
    assert 'class="narrow"' in section
    assert "squashfs:zstd beats it" in section


def test_one_image_alone_is_no_choice(made: MadeRun) -> None:
    assert images_table(summarise(made.run, [boot(1, "erofs")])) is None
