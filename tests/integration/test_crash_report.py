"""Crash states for people: table, sentence, picture, one state by name; and which promises a file breaks."""

from __future__ import annotations

import hashlib
import json
import re
import struct
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from results_factory import MadeRun, make_measurement, make_run
from typer.testing import CliRunner

import fsjoule.bench.crash
from fsjoule.cli import app_of
from fsjoule.model import (
    CrashFacts,
    CrashFate,
    CrashWorkload,
    Measurement,
    Planned,
    Provision,
    RunStatus,
    TimedKind,
    TimedWorkload,
)
from fsjoule.model.crash import StateTimes
from fsjoule.model.workload import OwnCommand
from fsjoule.model.write_log import DISCARD, END, FLUSH, FUA, MARK, SECTOR_BYTES, LogEntry, WriteLog
from fsjoule.report.crash import crash_footnote, crash_headline, crash_table
from fsjoule.report.run import run_page
from fsjoule.report.summary import summarise
from fsjoule.store.folder import RunFolder
from fsjoule.store.reader import load_run

WRITES = """\
0 1 0 8 0 aa
1 10 0 0 8 made
2 11 16 8 0 bb
3 20 24 8 0 cc
4 29 0 0 1
5 30 0 8 2 dd
6 39 0 0 8 4711
7 40 32 8 0 ee
"""
PROGRAMS = Path(fsjoule.bench.crash.__file__).parent / "programs"
LOG = WriteLog([LogEntry.read(line.partition(" ")[2]) for line in WRITES.splitlines()], {"4711"})
STATES = "0:- ok 0.02 0.1\n0:0 ok 0.02 0.1\n0:1 lost 0.02 0.1 1=missing\n1:- ok 0.03 0.1\n"


def crash_measurement(number: int, name: str, *, lost: int, torn: int = 0) -> Measurement:
    workload = CrashWorkload(OwnCommand("files", ("./files.sh",)))
    facts = CrashFacts(
        log_sha256="0123456789abcdef",
        writes=5,
        epochs=2,
        promises=1,
        states=20,
        different=12,
        checked={CrashFate.OK: 12 - lost, **({CrashFate.LOST: lost} if lost else {})},
        torn=torn,
        first_losses=("0:1: lost: config missing",) if lost else (),
        cause="0:1: lost: config missing without write 0 (4 KiB at sector 16) of epoch 0" if lost else "",
        mount_s=StateTimes(0.0213, 0.03, 0.0305, "1:-"),
    )
    like = Planned(number, 1, "6.1", name, TimedWorkload(TimedKind.MKFS), "crash-states", Provision.SCRATCH)
    made = make_measurement(like)[0]
    return replace(made, slug=f"{name}-{workload.slug}", workload=workload, crash=facts)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made: MadeRun = make_run(repeat=1)
    kept = RunFolder(tmp_path)
    kept.begin(replace(made.run, status=RunStatus.RUNNING))
    attachments = {"writes.txt": WRITES.encode(), "promises.txt": b"1 synced config\n", "states.txt": STATES.encode()}
    kept.add(crash_measurement(1, "ext4:nobarrier", lost=1), None, attachments)
    kept.finish(made.run)
    return kept.path


def test_the_table_counts_losses_and_the_sentence_says_who_is_safe() -> None:
    measured = [crash_measurement(1, "ext4", lost=0), crash_measurement(2, "vfat", lost=3, torn=3)]
    table = crash_table(summarise(make_run(repeat=1).run, measured))
    assert table is not None
    columns = [column.name for column in table.columns]
    assert [row[columns.index("losses")].text for row in table.rows] == ["0", "3"]
    assert "not checked" not in columns
    said = crash_headline(measured)
    assert said == ("No state is a loss on ext4. 3 of 12 states are a loss on vfat, all of them with a torn write.")
    assert crash_headline([]) == ""


def test_an_update_says_what_its_losses_are() -> None:
    files, update = crash_measurement(1, "ext4", lost=0), crash_measurement(2, "ext4", lost=0)
    workload = CrashWorkload(OwnCommand("rauc", ("./update.sh",)), ("./update.sh", "confirm"))
    update = replace(update, workload=workload)
    run = make_run(repeat=1).run
    assert "of an update" not in crash_footnote(summarise(run, [files]))
    assert "Unclean" not in crash_footnote(summarise(run, [update]))
    assert crash_footnote(summarise(run, [files, update])).count("A loss") == 2


def test_states_that_were_not_checked_are_counted() -> None:
    one = crash_measurement(1, "ext4", lost=0)
    assert one.crash is not None
    table = crash_table(summarise(make_run(repeat=1).run, [replace(one, crash=replace(one.crash, different=40))]))
    assert table is not None
    cells = {column.name: cell.text for column, cell in zip(table.columns, table.rows[0], strict=True)}
    assert cells["not checked"] == "28"
    assert (cells["mount"], "check" in cells) == ("21.3 / 30 / 30.5", False)
    assert "28 not checked" in replace(one.crash, different=40).text


def test_the_page_draws_the_recorded_run(folder: Path) -> None:
    page = run_page(load_run(folder))
    assert "1 of 12 states are a loss on ext4:nobarrier." in page
    assert "without write 0 (4 KiB at sector 16) of epoch 0" in page
    assert "Writes, flushes and promises of the recorded run" in page
    assert "Mounts and checks of the states" in page
    assert "21.3 ms, 95 % up to 30 ms, at most 30.5 ms (1:-)" in page


def test_a_state_is_shown_with_what_it_lacks(folder: Path) -> None:
    shown = CliRunner().invoke(app_of("crash"), ["crash", "show", "0:1", str(folder), "--json"])
    assert shown.exit_code == 0, shown.output
    document = json.loads(shown.stdout)
    assert [(each["sector"], each["reached"]) for each in document["writes"]] == [(16, "no"), (24, "yes")]
    assert document["broken"] == ["1 synced config"]
    assert document["log"] == LOG.digest
    assert document["command"][-2:] == ["--states", f"{LOG.digest[:8]}/0:1"]
    again = CliRunner().invoke(app_of("crash"), ["crash", "show", f"{LOG.digest[:8]}/0:1", str(folder), "--json"])
    assert again.stdout == shown.stdout
    said = CliRunner().invoke(app_of("crash"), ["crash", "show", "1.0:-", str(folder)]).stdout
    assert re.search(r"lasting 0 +0 +4.0 +no", said)
    assert re.search(r"0 +32 +4.0 +no", said)
    assert "all but" not in said


@pytest.mark.parametrize(
    ("name", "why"), [("9:0", "no state of this log"), ("0123abcd/0:1", "was named in log 0123abcd, and this is log")]
)
def test_a_state_that_the_run_does_not_have_is_refused(folder: Path, name: str, why: str) -> None:
    asked = CliRunner().invoke(app_of("crash"), ["crash", "show", name, str(folder)])
    assert asked.exit_code != 0
    assert why in str(asked.exception)


def _program(folder: Path, name: str) -> str:
    """A program of the board's that works in this folder."""
    return f"folder={folder}\nnode=none\n" + (PROGRAMS / name).read_text()


def _logged(*entries: tuple[int, int, bytes], size: int = 512) -> bytes:
    """A log of entries with sector, flags and data, or a mark's text. Source: drivers/md/dm-log-writes.c."""
    text = struct.pack("<QQQI", 0x6A736677736872, 1, len(entries), size).ljust(SECTOR_BYTES, b"\0")
    for sector, flags, data in entries:
        mark = data if flags & MARK else b""
        sectors = 0 if mark else len(data) // SECTOR_BYTES
        text += (struct.pack("<QQQQ", sector, sectors, flags, len(mark)) + mark).ljust(SECTOR_BYTES, b"\0")
        text += b"" if mark else data
    return text


def test_a_log_is_read_with_digests_of_its_data_and_texts_of_its_marks(tmp_path: Path) -> None:
    data = bytes(range(256)) * 4
    (tmp_path / "log").write_bytes(
        _logged((0, MARK, b"made"), (64, FUA, data), (0, FLUSH, b""), (0, MARK, END.encode()))
    )
    subprocess.run(["sh", "-c", _program(tmp_path, "read-log")], check=True, timeout=30)
    sum_ = hashlib.md5(data).hexdigest()
    assert (tmp_path / "entries").read_text().splitlines() == [
        "2 0 0 8 made",
        f"3 64 2 2 {sum_}",
        "6 0 0 1 ",
        f"7 0 0 8 {END}",
    ]


@pytest.mark.parametrize(("log", "why"), [(bytes(4096), "no write was logged"), (_logged(size=4096), "of 4096 bytes")])
def test_what_is_no_log_is_refused(tmp_path: Path, log: bytes, why: str) -> None:
    (tmp_path / "log").write_bytes(log)
    read = subprocess.run(
        ["sh", "-c", _program(tmp_path, "read-log")], check=False, capture_output=True, text=True, timeout=30
    )
    assert read.returncode == 1
    assert why in read.stdout


def test_the_trace_of_raw_flash_becomes_a_log_with_its_data(tmp_path: Path) -> None:
    """Pages have four sectors; what is all ones programs nothing, and a flush follows each entry."""
    ones, text = bytes([255]) * SECTOR_BYTES, bytes(range(256)) * 2

    def traced(page: int, *sectors: bytes) -> str:
        probe = "   sh-1 [000] d..1.  1.5: data{}: (nand_prog_page_begin_op+0x0/0x74) page={} data={{{}}}\n"
        words = [",".join(hex(word) for (word,) in struct.iter_unpack("<Q", each)) for each in sectors]
        return "".join(probe.format(quarter, page, each) for quarter, each in enumerate(words))

    trace = tmp_path / "trace-folder"
    for name in ("per_cpu/cpu0/stats", *(f"events/crash/data{quarter}/enable" for quarter in range(4)), "tracing_on"):
        (trace / name).parent.mkdir(parents=True, exist_ok=True)
        (trace / name).write_text("entries: 9\noverrun: 0\ndropped events: 0\n")
    (trace / "trace").write_text(
        "# tracer: nop\n"
        "   sh-1 [000] d..1.  1.0: erase: (nand_erase_op+0x0/0x9c) block=2\n"
        + traced(128, text, ones, ones, ones)
        + "   sh-1 [000] ...1.  1.7: tracing_mark_write: made\n"
        + traced(129, ones, text, text[::-1], ones)
        + traced(130, ones, ones, ones, ones)
        + "   sh-1 [000] ...1.  1.9: tracing_mark_write: 77\n"
    )
    head = f"folder={tmp_path}\ntrace={trace}\nblock=256\nend={END}\n"
    program = head + (PROGRAMS / "read-flash").read_text()

    def read() -> list[LogEntry]:
        subprocess.run(["sh", "-c", program], check=True, timeout=30)
        return [LogEntry.read(line) for line in (tmp_path / "entries").read_text().splitlines()]

    log = WriteLog(read(), {"77"})
    assert (tmp_path / "log").read_bytes() == text + text + text[::-1]
    assert [(each.place, each.sector, each.sectors, each.flags) for each in log.entries if each.sectors] == [
        *((0, 512, 256, DISCARD), (0, 512, 1, 0)),
        (1, 517, 2, 0),
    ]
    assert log.is_whole
    # Its promise was made when the page had been programmed.
    states = {each.name: each.promises for each in log.coverage(1).different}
    assert states == {"0:-": 0, "0:-+0/1": 0, "0:-+0/-1": 0, "1:-": 1}
    (trace / "per_cpu/cpu0/stats").write_text("overrun: 3\n")
    assert not WriteLog(read(), {"77"}).is_whole


@pytest.mark.parametrize(
    ("made", "files", "broken"),
    [
        (0, {}, []),
        (1, {"config": "a"}, []),
        (1, {"config": "b"}, []),  # what is promised next may be there already
        (1, {"config": "c"}, ["1"]),
        (1, {}, ["1"]),
        (2, {"config": "a"}, ["2"]),
        (2, {"config": "b"}, []),
        (2, {}, []),  # it is promised to go
        (3, {"config": "b"}, ["3"]),
        (3, {}, []),
        (4, {"two words": "d"}, []),
    ],
)
def test_a_file_breaks_the_last_promise_of_it(
    tmp_path: Path, made: int, files: dict[str, str], broken: list[str]
) -> None:
    program = (PROGRAMS / "judge").read_text()
    judge = re.search(r"judge='(.*?)'", program, re.DOTALL)
    assert judge is not None
    digest = {text: text * 64 for text in "abcd"}
    promises = tmp_path / "promises"
    promises.write_text(
        f"11 synced {digest['a']} 5 config\n12 synced {digest['b']} 5 config\n13 gone - 0 config\n"
        f"14 synced {digest['d']} 5 two words\n15 holds - 0 rows true\n"
    )
    sums = "".join(f"{digest[text]}  {name}\n" for name, text in files.items())
    argv = ["awk", "-v", f"made={made}", judge[1], str(promises), "sums=1", "-"]
    told = subprocess.run(argv, input=sums, capture_output=True, text=True, check=True, timeout=30)
    assert told.stdout.split() == broken
