"""`fsjoule compare`: what it prints, as text, Markdown and JSON, what it draws, and how it ends."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from command_line import CommandLine
from compared_runs import in_guest_time, write_kernels
from index_runs import edit
from results_factory import LAB, METER

from fsjoule.model import LabFacts, Measurement
from fsjoule.report import style
from fsjoule.report.run import write_report


@pytest.fixture(scope="module")
def matrix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two kernels: 6.12 does btrfs's random writes 7 % slower. One measurement of it is invalid."""

    def spoil(measurement: Measurement) -> Measurement:
        first = measurement.kernel == "6.12" and measurement.repetition == 1 and measurement.throughput_mib_per_s
        return replace(measurement, invalid_reasons=("no end | mark",)) if first else measurement

    speeds = {"6.1": 1.0, "6.12": 0.93}
    return write_kernels(tmp_path_factory.mktemp("results"), speeds=speeds, boots=12, change=spoil)


def test_the_text_says_what_changed_in_words(fsjoule: CommandLine, matrix: Path) -> None:
    done = fsjoule("compare", "6.1", "6.12", "--within", matrix)
    assert done.code == 0
    text = " ".join(done.out.split())
    assert re.match(
        r"kernel 6\.12 against 6\.1 \(simulated\): btrfs randwrite-16k \d\.\d % more energy "
        r"\(95 %: \d\.\d to \d\.\d %\), "
        r"\d\.\d % more CPU time \(.*\), \d\.\d % slower \(95 %: \d\.\d to \d\.\d %\); 8 equal within 5 % ",
        text,
    )
    assert "baseline kernel 6.1.0-armmp (6.1.7-1), run aaaaaa: 12 boots, 36 measurements, 2026-03-09T" in text
    assert "12 boots, 34 measurements, 2 invalid ones not used" in text
    assert re.search(r"throughput -\d\.\d % -\d\.\d to -\d\.\d % regressed", text)
    assert "Invalid measurements, not used" in text
    assert "no end | mark" in text
    assert "To decide" not in text
    assert "not interleaved" not in text


def _measured_at(results: Path, run_id: str, kernel: str, lab: LabFacts | None, serial: str) -> Path:
    path = write_kernels(results, run_id, speeds={kernel: 1.0}, boots=3)
    located = None if lab is None else asdict(lab)
    edit(path / "run.json", lab=located, meter=asdict(replace(METER, serial_number=serial)))
    return path


def test_different_boards_of_one_type_are_compared_only_when_asked_with_a_warning(
    fsjoule: CommandLine, tmp_path: Path
) -> None:
    here = _measured_at(tmp_path, "aaaaaa", "6.1", LAB, "T1")
    there = _measured_at(tmp_path, "bbbbbb", "6.12", replace(LAB, place="rack-2"), "T2")
    again = _measured_at(tmp_path, "cccccc", "6.12", replace(LAB, coordinator="elsewhere:1"), "T1")
    unknown = _measured_at(tmp_path, "dddddd", "6.12", None, "T1")
    refused = fsjoule("compare", here, there)
    assert refused.code == 2
    assert "baseline and candidate come from different boards: place virtual of exporter" in refused.err
    assert "--across-boards" in refused.err
    notes = fsjoule("compare", here, there, "--across-boards", "--json").document["notes"]
    boards = (
        "baseline and candidate come from different boards: place virtual of exporter fsjoule-virtual against place "
        "rack-2 of exporter fsjoule-virtual. Differences between the boards look like changes"
    )
    meters = (
        "baseline and candidate were measured with different meters: T1 against T2. Energies may differ by what the "
        "meters differ (docs/energy.md)"
    )
    assert notes[:2] == [boards, meters]
    assert "different boards" in fsjoule("compare", here, there, "--across-boards").out
    gate = ("gate", "--baseline", here, "--candidate", there, "--drift-not-excluded")
    assert fsjoule(*gate).code == 2
    assert "different boards" in fsjoule(*gate, "--across-boards").out
    for same in (again, unknown):
        assert not [note for note in fsjoule("compare", here, same, "--json").document["notes"] if "different" in note]


def _on_two_boards(results: Path, speeds: dict[str, float]) -> Path:
    """A run at two places, whose boards differ by a third; repetitions take turns."""

    def at_place(measurement: Measurement) -> Measurement:
        level = 1.0 if measurement.repetition % 2 else 1.5
        speed = measurement.throughput_mib_per_s
        return replace(
            measurement,
            place="evk-1" if measurement.repetition % 2 else "evk-2",
            throughput_mib_per_s=None if speed is None else speed * level,
        )

    path = write_kernels(results, speeds=speeds, boots=20, change=at_place)
    places = [
        {"lab": asdict(replace(LAB, place=name)), "meter": asdict(replace(METER, serial_number=name))}
        | {"held_s": 100.0, "phases_s": {"fio": 80.0}}
        for name in ("evk-1", "evk-2")
    ]
    edit(path / "run.json", places=places, lab=places[0]["lab"], meter=None)
    return path


def test_kernels_of_a_run_on_two_boards_are_compared_within_each(fsjoule: CommandLine, tmp_path: Path) -> None:
    path = _on_two_boards(tmp_path, {"6.1": 1.0, "6.12": 0.95})
    found = fsjoule("compare", "6.1", "6.12", "--within", path, "--metric", "throughput", "--json").document
    assert any("within a board, repetition by repetition" in note for note in found["notes"])
    outcomes = {verdict["label"]: verdict["outcome"] for verdict in found["verdicts"]}
    assert outcomes == {"btrfs randwrite-16k": "regressed", "ext4 read-16k": "unchanged"}
    shown = fsjoule("show", path).out
    assert "places evk-1, evk-2" in shown
    assert "meters evk-1, evk-2" in shown
    assert "means over all places" in shown
    page = write_report(path).read_text()
    assert "places evk-1, evk-2" in page
    assert all(f"{what} evk-{n}" in page for what in ("Place", "Meter of") for n in (1, 2))
    one = fsjoule("gate", "--baseline", f"6.1@{path}", "--candidate", f"6.12@{path}", "--json")
    assert one.code == 1, "the gate judges pairs, and a pair is on one board"


def test_only_changes_leaves_the_rest_out(fsjoule: CommandLine, matrix: Path) -> None:
    text = fsjoule("compare", "6.1", "6.12", "--within", matrix, "--only-changes").out
    assert "8 equal within 5 %" in " ".join(text.split())
    assert "mkfs" not in text
    document = fsjoule("compare", f"6.1@{matrix}", f"6.12@{matrix}", "--only-changes", "--json").document
    assert {verdict["outcome"] for verdict in document["verdicts"]} == {"regressed"}


def test_json_holds_everything(fsjoule: CommandLine, matrix: Path) -> None:
    document = fsjoule("compare", "6.1", "6.12", "--within", matrix, "--json").document
    assert document["schema"] == "fsjoule.compare/1"
    assert document["simulated"] is True
    assert document["interleaved"] is True
    assert document["counts"] == {"unchanged": 8, "regressed": 3}
    assert document["baseline"]["kernels"] == ["6.1.0-armmp (6.1.7-1)"]
    assert [one["number"] for one in document["candidate"]["invalid"]]
    one = next(one for one in document["verdicts"] if one["metric"] == "energy" and one["outcome"] == "regressed")
    assert one["label"] == "btrfs randwrite-16k"
    assert one["series"]["workload"] == "randwrite-16k"
    assert len(one["series"]["key"]) == 16
    assert one["interval"][0] < one["ratio"] < one["interval"][1]
    assert one["ratio"] == pytest.approx(one["candidate"] / one["baseline"])
    assert (one["unit"], one["n_baseline"], one["n_candidate"], one["kernel"]) == ("mJ/MiB", 11, 11, None)
    assert document["statistic"] == "geometric mean of neighbouring boots"
    assert (one["p"], one["q"]) == (None, None)


def test_markdown_puts_changes_first_and_escapes_what_is_not_its_own(fsjoule: CommandLine, matrix: Path) -> None:
    text = fsjoule("compare", "6.1", "6.12", "--within", matrix, "--markdown").out
    assert text.startswith("**kernel 6.12 against 6.1 (simulated): btrfs randwrite-16k")
    before, _, folded = text.partition("<details><summary>8 more figures: 8 equal within 5 %</summary>")
    rows = [line for line in before.splitlines() if line.startswith("| btrfs randwrite-16k |")]
    assert len(rows) == 3
    assert folded.count("| equal within 5 % |") == 8
    assert "no end \\| mark" in folded
    columns = {line.count("|") for line in text.splitlines() if line.startswith("|")}
    assert columns == {10}


def test_a_chart_and_a_page_are_written(fsjoule: CommandLine, matrix: Path, tmp_path: Path) -> None:
    (matrix / "report.html").touch()
    done = fsjoule(
        "compare", "6.1", "6.12", "--within", matrix, "--json", "--chart", "all.svg", "--page", "compare.html"
    )
    assert json.loads(done.out)["counts"]
    assert "compare.html" in done.err
    drawing = Path("all.svg").read_text()
    text = " ".join(ET.fromstring(drawing).itertext())
    assert "Change, kernel 6.12 against 6.1 (simulated)" in text
    assert "throughput, change in %" in text
    assert style.BAD in drawing
    page = Path("compare.html").read_text()
    assert page.count("<svg") == 7
    assert "(simulated)" in page
    for outside in ("<script", "http-equiv", 'src="', "@import"):
        assert outside not in page
    assert f'svg [fill="{style.BAD}"] {{ fill: {style.DARK[style.BAD]}; }}' in page
    assert '<td class="name bad"' in page
    address = re.search(r'<a href="([^"]*report.html)">run \w+</a>', page)
    assert address is not None
    assert (tmp_path / address[1]).resolve() == (matrix / "report.html").resolve()
    (matrix / "report.html").unlink()
    fsjoule("compare", "6.1", "6.12", "--within", matrix, "--page", "compare.html")
    assert "<h2>Runs</h2>" not in Path("compare.html").read_text(), "there is no page to lead to"


def test_what_is_undecided_says_what_would_decide_it(fsjoule: CommandLine, tmp_path: Path) -> None:
    few = write_kernels(tmp_path, speeds={"6.1": 1.0, "6.12": 0.5}, boots=3, in_turn=False, change=in_guest_time)
    done = fsjoule("compare", "6.1", "6.12", "--within", few, "--page", "few.html")
    assert done.code == 0
    text = " ".join(done.out.split())
    assert "6.1 (simulated): 11 not yet decided (4 more boots)" in text
    assert "4 more boots of each side (the rank test needs 7 repetitions of each side): all" in text
    assert "4 more boots of each side" in Path("few.html").read_text()
    two = write_kernels(tmp_path, "cccccc", speeds={"6.1": 1.0, "6.12": 0.5}, boots=2)
    text = " ".join(fsjoule("compare", "6.1", "6.12", "--within", two).out.split())
    assert "1 more boot of each side: all" in text
    noisy = write_kernels(
        *(tmp_path, "bbbbbb"),
        speeds={"6.1": 1.0, "6.12": 1.0},
        boots=8,
        noise=0.1,
        in_turn=False,
        change=in_guest_time,
    )
    text = " ".join(fsjoule("compare", "6.1", "6.12", "--within", noisy, "--fs", "ext4").out.split())
    assert re.search(r"\d+ more boots of each side \(the interval leaves room for 5 % or more\)", text)
    loose = fsjoule("compare", "6.1", "6.12", "--within", noisy, "--smallest-effect", "0.5", "--json").document
    assert set(loose["counts"]) == {"unchanged"}


def test_a_single_boot_in_guest_time_says_what_it_can(fsjoule: CommandLine, tmp_path: Path) -> None:
    speeds = {"6.1": 1.0, "6.12": 0.66}
    one = write_kernels(tmp_path / "one", speeds=speeds, boots=1, change=in_guest_time)
    text = " ".join(fsjoule("compare", "6.1", "6.12", "--within", one).out.split())
    assert "no verdict on one boot of each side, but far beyond the board's own spread: btrfs randwrite-16k" in text
    assert re.search(r"throughput -3\d\.\d % – far apart", text)  # noqa: RUF001
    assert "3 of 7 figures differ by more than 5 %" in text
    document = fsjoule("compare", "6.1", "6.12", "--within", one, "--json").document
    assert document["counts"] == {"too few": 11}
    gated = fsjoule("gate", "--baseline", f"6.1@{one}", "--candidate", f"6.12@{one}")
    assert gated.code == 3
    text = " ".join(gated.out.split())
    assert "not decided: 11 of 11 figures, far beyond the board's own spread: btrfs randwrite-16k" in text
    assert "is no verdict" in text
    real = write_kernels(tmp_path / "real", speeds=speeds, boots=1)
    two = write_kernels(tmp_path / "two", speeds=speeds, boots=2, change=in_guest_time)
    for other in (real, two):
        assert "spread" not in fsjoule("compare", "6.1", "6.12", "--within", other).out


def test_all_figures_are_shown_if_asked_for(fsjoule: CommandLine, matrix: Path) -> None:
    words = ("compare", "6.1", "6.12", "--within", matrix)
    assert "and 1 more figure: 1 equal within 5 % (--all shows them)" in fsjoule(*words).out
    assert "more figure" not in fsjoule(*words, "--all").out


def test_a_changed_figure_alone(fsjoule: CommandLine, matrix: Path) -> None:
    words = ("compare", "6.1", "6.12", "--within", matrix, "--metric", "cpu", "--metric", "energy", "--fs", "btrfs")
    document = fsjoule(*words, "--json").document
    assert [one["metric"] for one in document["verdicts"]] == ["cpu", "energy"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("6.1", "6.1"), "both sides are the same 36 measurements: kernel 6.1.0-armmp"),
        (("6.1", "6.12", "--fs", "xfs"), "run aaaaaa has no filesystem 'xfs'"),
        (("6.1", "6.12", "--alpha", "5"), "--alpha 5 is not a fraction between 0 and 1"),
        (("6.1", "6.12", "--smallest-effect", "nan"), "--smallest-effect nan is not a fraction"),
        (("6.1", "6.12", "--json", "--markdown"), "json and markdown are both to be printed"),
        (("6.1", "7.0"), "run aaaaaa has no kernel '7.0'"),
    ],
)
def test_what_cannot_be_compared_ends_with_2(
    words: tuple[str, ...], said: str, fsjoule: CommandLine, matrix: Path
) -> None:
    done = fsjoule("compare", *words, "--within", matrix)
    assert done.code == 2
    assert said in done.err
    assert done.out == ""


def test_a_file_that_cannot_be_written_is_an_error(fsjoule: CommandLine, matrix: Path, tmp_path: Path) -> None:
    full = tmp_path / "compare.html"
    full.symlink_to("/dev/full")
    done = fsjoule("compare", "6.1", "6.12", "--within", matrix, "--page", full)
    assert done.code == 4
    assert "compare.html cannot be written: No space left" in done.err


def test_the_help_has_an_example_and_says_how_it_ends(fsjoule: CommandLine) -> None:
    text = " ".join(fsjoule("compare", "--help").out.split())
    assert "Example: fsjoule compare 6.1 6.12 --within" in text
    assert "Exit code: 0 whatever the verdicts" in text
    assert "compare" in fsjoule("--help").out


def _called(results: Path, title: str, option: str) -> Path:
    """A run, in a folder with its title, of a filesystem that this computer neither names nor has."""

    def named(m: Measurement) -> Measurement:
        series = replace(m.series, filesystem=f"jfs:{option}", mount_options=(option,), title=title)
        return replace(m, series=series, slug=f"{title}-{m.workload.slug}")

    return write_kernels(
        results / title, f"run{title}", speeds={"6.1": 1.0, "6.12": 1.0}, series=(1,), boots=6, change=named
    )


def test_filesystems_of_other_computers_are_compared_by_their_options(fsjoule: CommandLine, tmp_path: Path) -> None:
    mine, yours, other = (_called(tmp_path, *each) for each in (("mine", "a=1"), ("yours", "a=1"), ("other", "a=2")))
    done = fsjoule("compare", "6.1", "6.12", "--within", mine, "--fs", "mine")
    assert done.code == 0
    assert "mine read-16k" in done.out
    assert fsjoule("compare", mine, yours, "--fs", "jfs:a=1").code == 0
    refused = fsjoule("compare", mine, other)
    assert refused.code == 2
    assert "differ in filesystem: jfs:a=1 against jfs:a=2" in refused.err
    refused = fsjoule("compare", "6.1", "6.12", "--within", mine, "--fs", "yours")
    assert refused.code == 2
    assert "it has mine" in refused.err
    assert fsjoule("report", "page", mine).code == 0
    assert fsjoule("gate", "6.1", "6.12", "--within", mine, "--fs", "mine").code in (0, 3)
    assert fsjoule("index", "import", tmp_path, "--index", "all.sqlite").code == 0
    assert re.findall(r"jfs:a=\d", fsjoule("index", "series", "--index", "all.sqlite").out) == ["jfs:a=1", "jfs:a=2"]
