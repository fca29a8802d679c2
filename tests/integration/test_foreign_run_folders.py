"""A run folder may come from anyone: nothing outside of it is read or written, and nothing in it stops a reader."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from command_line import CommandLine
from hypothesis import given
from hypothesis import strategies as st
from reported_runs import write_run

from fsjoule.errors import ConfigError, ResultError
from fsjoule.host.files import write_file
from fsjoule.host.inside import DOCUMENT_BYTES, list_inside, read_inside
from fsjoule.host.plaintext import REPLACEMENT, is_plain, plain
from fsjoule.host.terminal import PlainConsole
from fsjoule.report.allure.site import _confirmations
from fsjoule.report.run import write_report
from fsjoule.report.svg import Rows, draw
from fsjoule.runs.resume import resume
from fsjoule.store.archive import digest_table, pack_run, unpack_run
from fsjoule.store.confirmations import confirmations
from fsjoule.store.documents import parse
from fsjoule.store.folder import RunFolder
from fsjoule.store.index.database import open_index
from fsjoule.store.index.importer import import_runs
from fsjoule.store.reader import load_run

SECRET = "glpat-a-token-of-a-job"


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "environ").write_text(SECRET)
    return outside


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_run(tmp_path / "results").path


def first(folder: Path) -> Path:
    return min((folder / "measurements").iterdir())


def edit(file: Path, change: Callable[[dict[str, object]], None]) -> None:
    document = json.loads(file.read_text())
    change(document)
    file.write_text(json.dumps(document))


# ------------------------------------------------------------------------------------------------------------ the door


def test_only_plain_files_inside_are_read(tmp_path: Path, secret: Path) -> None:
    inside = tmp_path / "run"
    (inside / "below").mkdir(parents=True)
    (inside / "below" / "file").write_bytes(b"content")
    assert read_inside(inside, "below", "file", at_most=7) == b"content"
    assert read_inside(inside, "below", "none", at_most=7) is None
    assert read_inside(inside, "none", "file", at_most=7) is None
    with pytest.raises(ResultError, match="larger than"):
        read_inside(inside, "below", "file", at_most=6)
    (inside / "link").symlink_to(secret / "environ")
    (inside / "links").symlink_to(secret)
    os.mkfifo(inside / "fifo")
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(inside / "socket"))
    with (inside / "sparse").open("wb") as file:
        file.truncate(10 << 30)
    for names, why in (
        (("link",), "symbolic link"),
        (("links", "environ"), "symbolic link"),
        (("fifo",), "a FIFO"),
        (("socket",), "a socket"),
        (("below",), "a folder"),
        (("sparse",), "larger than"),
        (("..", "outside", "environ"), "name"),
        (("../outside/environ",), "name"),
        (("below", str(secret / "environ")), "name"),
        (("below", ""), "name"),
        (("below", "a\0b"), "name"),
        (("below", "x" * 300), "too long"),
        (("below", "a\x1b[2J"), "control characters"),
        (("below", "a\ud800"), "control characters"),
    ):
        with pytest.raises(ResultError, match=why) as raised:
            read_inside(inside, *names, at_most=DOCUMENT_BYTES)
        assert is_plain(str(raised.value))
    listed = list_inside(inside)
    assert (listed.folders, listed.files) == (("below",), ("sparse",))
    assert listed.refused.keys() == {"link", "links", "fifo", "socket"}


def test_a_name_that_is_not_utf_8_is_told_and_not_read(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"console\xff.log")).write_text("x")
    assert list_inside(tmp_path).files == ()
    assert all(map(is_plain, list_inside(tmp_path).refused))


@pytest.mark.parametrize("name", ["../../../outside", "/outside", "", ".", "..", "a\0b", "x" * 5000, "a/b", "\x1b[2J"])
def test_a_measurement_of_a_name_that_leads_elsewhere_is_damaged(folder: Path, secret: Path, name: str) -> None:
    shutil.copy(first(folder) / "measurement.json", secret)
    whole = len(load_run(folder).measurements)
    edit(folder / "run.json", lambda document: document["measurements"].append(name))  # type: ignore[attr-defined]
    loaded = load_run(folder)
    assert len(loaded.measurements) == whole
    assert len(loaded.damaged) == 2  # one of them was before
    assert all(map(is_plain, loaded.damaged))


def test_a_linked_measurement_is_named_and_left_out(folder: Path, secret: Path) -> None:
    taken = first(folder)
    taken.rename(secret / taken.name)
    taken.symlink_to(secret / taken.name)
    assert "symbolic link" in load_run(folder).damaged[taken.name]


def test_a_run_that_is_a_link_is_refused(folder: Path, secret: Path) -> None:
    (folder / "run.json").rename(secret / "run.json")
    (folder / "run.json").symlink_to(secret / "run.json")
    with pytest.raises(ResultError, match="symbolic link"):
        load_run(folder)


def test_no_report_holds_a_file_from_outside(fsjoule: CommandLine, folder: Path, secret: Path, tmp_path: Path) -> None:
    for name in ("console.log", "steps.json", "trace.parquet", "more.txt"):
        (first(folder) / name).unlink(missing_ok=True)
        (first(folder) / name).symlink_to(secret / "environ")
    (folder / "gate.json").symlink_to(secret / "environ")
    done = fsjoule("report", "allure", folder, "--output", tmp_path / "allure")
    assert (done.code, "gate.json" in done.err) == (0, True)
    results = b"".join(file.read_bytes() for file in (tmp_path / "allure").iterdir())
    assert SECRET.encode() not in results
    assert b"console.log is not attached: it is a symbolic link" in results
    assert fsjoule("report", "page", folder).code == 2
    assert "symbolic link" in (folder / "report.html").read_text()


def test_a_fifo_as_a_trace_is_not_waited_for(fsjoule: CommandLine, folder: Path) -> None:
    (first(folder) / "trace.parquet").unlink(missing_ok=True)
    os.mkfifo(first(folder) / "trace.parquet")
    assert fsjoule("report", "page", folder).code == 2
    assert "a FIFO" in (folder / "report.html").read_text()


def test_nothing_is_written_through_a_link(folder: Path, secret: Path) -> None:
    for name in ("report.html", "report.html.partial"):
        (folder / name).symlink_to(secret / "environ")
    write_report(folder)
    assert (secret / "environ").read_text() == SECRET
    assert not (folder / "report.html").is_symlink()
    (folder / "file.partial").symlink_to(secret / "environ")
    write_file(folder / "file", b"x")
    assert (secret / "environ").read_text() == SECRET


def test_a_report_that_cannot_be_written_is_told(folder: Path) -> None:
    (folder / "report.html").mkdir()
    with pytest.raises(ConfigError, match=r"report\.html could not be written"):
        write_report(folder)


def test_a_run_whose_measurements_are_elsewhere_is_not_gone_on_with(folder: Path, secret: Path) -> None:
    shutil.rmtree(first(folder).parent / load_run(folder).path.name, ignore_errors=True)
    (secret / "01-x.partial").mkdir()
    measurements = folder / "measurements"
    numbers = {m.number for m in load_run(folder).measurements}
    measurements.rename(secret / "measurements")
    measurements.symlink_to(secret)
    with pytest.raises(ResultError):
        RunFolder.reopened(folder, numbers)
    with pytest.raises(ResultError):
        resume(folder)
    assert (secret / "01-x.partial").is_dir()


def test_an_archive_holds_no_links_and_nothing_too_large(folder: Path, secret: Path, tmp_path: Path) -> None:
    (first(folder) / "console.log").unlink(missing_ok=True)
    (first(folder) / "console.log").symlink_to(secret / "environ")
    with (folder / "sparse").open("wb") as file:
        file.truncate(10 << 30)
    problems: list[str] = []
    table = digest_table(folder, problems)
    assert "console.log: it is a symbolic link" in " ".join(problems)
    assert "sparse is larger than" in " ".join(problems)
    pack_run(folder, table, tmp_path / "run.tar.zst")
    assert "sparse" not in unpack_run(tmp_path / "run.tar.zst", folder.name, tmp_path / "there")
    with pytest.raises(ResultError, match="too large"):
        pack_run(folder, table, tmp_path / "run.tar.zst", most_bytes=1000)


def test_confirmations_are_read_through_the_door(tmp_path: Path, secret: Path) -> None:
    (tmp_path / "kept").mkdir()
    os.mkfifo(tmp_path / "kept" / "a.json")
    (tmp_path / "kept" / "b.json").symlink_to(secret / "environ")
    (tmp_path / "kept" / "c.json").write_text("[" * 100_000)
    found, faults = confirmations(tmp_path / "kept")
    assert found == []
    assert [re.sub(".*: ", "", fault) for fault in faults] == [
        "it is a FIFO",
        "it is a symbolic link, which is not followed",
        "it is nested deeper than 40 levels",
    ]


def test_a_report_follows_no_link_to_confirmations(folder: Path, secret: Path) -> None:
    (folder / "confirmations").symlink_to(secret)
    assert _confirmations([folder]) == ([], [f"{folder}/confirmations is a symbolic link, which is not followed"])


def test_a_folder_of_a_strange_name_costs_no_import(folder: Path, tmp_path: Path) -> None:
    strange = folder.with_name("20260309T100000Z-a\x1b[2J-k3v9q2")
    shutil.copytree(folder, strange)
    with open_index(tmp_path / "index.sqlite", create=True) as index:
        report = import_runs(index, [folder.parent])
    assert report.new == 1
    assert "rename it" in report.damaged_runs[0].reason


# ------------------------------------------------------------------------------------------------------------ the text


@given(st.text())
def test_plain_text_stays_and_other_text_becomes_so(text: str) -> None:
    made = plain(text)
    assert is_plain(made)
    assert len(made) == len(text)
    assert plain(made) == made
    made.encode()  # no half of a character


@pytest.mark.parametrize("bad", ["\x1b[31m", "\0", "\x9b2J", "\r", "\x7f", "\u202e", "\u2028", "\ufffe", "\ud800"])
def test_what_is_parsed_is_plain(bad: str) -> None:
    document, content = parse(json.dumps({"a": [f"x{bad}\n\ty"], f"k{bad}": 1}).encode())
    assert document["a"][0] == f"x{plain(bad)}\n\ty"
    assert all(map(is_plain, document))
    assert json.loads(content) == document


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "Expecting value"),
        (b'{"a": 1', "Expecting"),
        (b"\xff\xfe{}", "not UTF-8"),
        ("{}".encode("utf-16"), "not UTF-8"),
        (b"\xef\xbb\xbf{}", "BOM"),
        (b"[" * 200_000, "nested deeper"),
        (b'{"\\u0061":' * 60 + b"1" + b"}" * 60, "nested deeper"),
        (b'{"a": 1, "a": 2}', "is there twice"),
        (b'{"a": 1e308}', "too large"),
        (b'{"a": Infinity, "b": "\\n"}', "too large"),
        (b'{"a": 99999999999999999999}', "too large"),
        (b'{"a": ' + b"9" * 5000 + b"}", "digits"),
    ],
)
def test_what_is_no_document_of_ours_is_refused(content: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse(content)


def test_a_long_text_is_cut() -> None:
    assert len(parse(json.dumps(["x" * 1_000_000]).encode())[0][0]) < 70_000


@given(st.recursive(st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(-1e18, 1e18) | st.text(),
                    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))  # fmt: skip
def test_whatever_json_has_is_parsed_or_refused(value: object) -> None:
    try:
        document, content = parse(json.dumps(value).encode())
    except ValueError:
        return
    assert parse(content)[0] == document
    assert is_plain(json.dumps(document, ensure_ascii=False))


@given(st.binary())
def test_bytes_are_a_document_or_a_value_error(content: bytes) -> None:
    with suppress(ValueError):
        parse(content)


def test_the_terminal_prints_neither_markup_nor_escapes() -> None:
    shown = io.StringIO()
    PlainConsole(file=shown, width=80).print("[/] [bold]x[/bold] :smile: \x1b[31mred\u202e\n\x9b")
    assert shown.getvalue() == f"[/] [bold]x[/bold] :smile: {REPLACEMENT}[31mred{REPLACEMENT}\n{REPLACEMENT}\n"


def test_a_series_of_any_name_is_listed_and_drawn(fsjoule: CommandLine, folder: Path, tmp_path: Path) -> None:
    def rename(document: dict[str, object]) -> None:
        document["series"]["filesystem"] = "[/]ext4\x01\x1b[2J"  # type: ignore[index]

    for file in folder.glob("measurements/*/measurement.json"):
        if file.stat().st_size > 10:
            edit(file, rename)
    # A measurement of this folder is damaged.
    for words in (("report", "page"), ("show",)):
        done = fsjoule(*words, folder)
        assert (done.code, "1 damaged measurement left out: " in done.err) == (2, True)
    assert fsjoule("index", "import", folder, "--index", tmp_path / "index.sqlite").code == 0
    done = fsjoule("index", "series", "--index", tmp_path / "index.sqlite")
    assert (done.code, "[/]ext4" in done.out, "\x1b" in done.out) == (0, True, False)


def test_a_chart_of_text_and_figures_that_cannot_be_drawn_is_drawn() -> None:
    spec = {"mark": "point", "data": {"name": "d"}, "encoding": {"x": {"field": "x", "type": "quantitative"}}}
    rows: Rows = [{"x": 1.0, "y": "a\x01\ud800"}, {"x": float("inf"), "y": "b"}]
    assert "<svg" in draw(spec, {"d": rows}, "a title\x1b", simulated=True)
