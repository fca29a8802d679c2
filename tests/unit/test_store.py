"""Run folders: written whole, read strictly, and kept whole by a full disk or a kill."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from results_factory import MadeRun, make_run, make_trace
from whole_runs import write_whole

from fsjoule.errors import HostError, ResultError
from fsjoule.model import JobFacts, Measurement, RunStatus, Value
from fsjoule.model.labels import without_folders, without_passwords
from fsjoule.store.folder import RunFolder
from fsjoule.store.reader import load_run

_HELPERS = Path(__file__).parents[1] / "helpers"
_DATA = Path(__file__).parent / "data"


@pytest.fixture(scope="module")
def made() -> MadeRun:
    return make_run(repeat=1)


def _store(made: MadeRun, results: Path, *, finish: bool = True) -> RunFolder:
    folder = RunFolder(results)
    folder.begin(replace(made.run, status=RunStatus.RUNNING))
    for measurement in made.measurements:
        folder.add(measurement, made.traces.get(measurement.number), {"fio.json": b"{}", "console.log": b"ok\n"})
    if finish:
        folder.finish(made.run)
    return folder


def test_what_is_stored_is_read_back(made: MadeRun, tmp_path: Path) -> None:
    folder = _store(made, tmp_path / "results")
    loaded = load_run(folder.path)
    assert folder.path.name == "20260309T100000Z-virtual-k3v9q2"
    assert replace(loaded.run, measurements=()) == made.run
    assert loaded.measurements == made.measurements
    assert not loaded.damaged
    assert [name.split("-")[0] for name in loaded.run.measurements][:3] == ["01", "02", "03"]
    assert loaded.attachment(1, "console.log") == b"ok\n"
    assert loaded.attachment(1, "nothing.txt") is None
    assert loaded.trace(3) is None
    trace = loaded.trace(1)
    assert trace is not None
    np.testing.assert_array_equal(trace.power_w, made.traces[1].power_w)
    assert not list(folder.path.rglob("*.partial"))


def test_a_link_in_the_place_of_a_folder_is_not_followed(made: MadeRun, tmp_path: Path) -> None:
    """A run of root's in a folder of somebody else, who may rename what is in it."""
    target, aside = tmp_path / "etc", tmp_path / "aside"
    target.mkdir()
    (target / "measurements").mkdir()
    folder = RunFolder(tmp_path / "results")
    folder.begin(replace(made.run, status=RunStatus.RUNNING))
    path = folder.path
    path.rename(aside)
    path.symlink_to(target)
    folder.add(made.measurements[0], None, {})
    folder.finish(made.run)
    folder.keep("gate.json", b"{}")
    assert [each.name for each in target.rglob("*")] == ["measurements"]
    assert load_run(aside).measurements == made.measurements[:1]
    assert (aside / "gate.json").exists()


def test_what_is_taken_from_a_run_is_kept_no_more(made: MadeRun, tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.begin(replace(made.run, status=RunStatus.RUNNING))
    for content in (b"half", b"more"):
        folder.keep("states-3.txt", content)
    assert (folder.take("states-3.txt"), folder.take("states-3.txt")) == (b"more", None)
    (folder.path / "states-3.txt").symlink_to(tmp_path)
    with pytest.raises(ResultError, match="states-3"):
        folder.take("states-3.txt")


def test_the_plan_is_not_read_back_with_each_measurement(made: MadeRun, tmp_path: Path) -> None:
    plan = replace(made.run.plan, entries=made.run.plan.entries * 100)
    folder = RunFolder(tmp_path)
    begun = time.process_time()
    folder.begin(replace(made.run, plan=plan, status=RunStatus.RUNNING))
    beginning_s = time.process_time() - begun
    begun = time.process_time()
    for measurement in made.measurements[:4]:
        folder.add(measurement, None, {})
    assert time.process_time() - begun < 2 * beginning_s


def test_the_tests_own_run_folders_are_the_same(made: MadeRun, tmp_path: Path) -> None:
    extra = {"fio.json": b"{}", "console.log": b"ok\n"}
    one = _store(made, tmp_path / "one").path
    other = write_whole(
        tmp_path / "other", made.run, made.measurements, trace=made.traces.get, attachments=lambda _: extra
    )
    assert one.name == other.name
    for name in {path.relative_to(folder) for folder in (one, other) for path in folder.rglob("*.*")}:
        assert (one / name).read_bytes() == (other / name).read_bytes(), name


def test_load_run_takes_the_path_of_run_json_too(made: MadeRun, tmp_path: Path) -> None:
    folder = _store(made, tmp_path)
    assert load_run(folder.path / "run.json") == load_run(folder.path)


def test_a_run_that_goes_on_is_running_and_one_that_was_dropped_is_aborted(made: MadeRun, tmp_path: Path) -> None:
    folder = _store(made, tmp_path, finish=False)
    path = folder.path
    assert load_run(path).run.status is RunStatus.RUNNING
    del folder
    loaded = load_run(path)
    assert loaded.run.status is RunStatus.ABORTED
    assert loaded.run.abort_reason
    assert loaded.measurements == made.measurements


def test_a_killed_run_keeps_its_measurements_and_reads_as_aborted(made: MadeRun, tmp_path: Path) -> None:
    program = f"""
import os, signal, sys
sys.path.insert(0, {str(_HELPERS)!r})
from pathlib import Path
from results_factory import make_run
from fsjoule.store.folder import RunFolder
made = make_run(repeat=1)
folder = RunFolder(Path({str(tmp_path)!r}))
folder.begin(made.run.__class__(**{{**{{f: getattr(made.run, f) for f in made.run.__slots__}}, "status": "running"}}))
folder.add(made.measurements[0], made.traces[1], {{}})
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", program], timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL
    loaded = load_run(next(tmp_path.iterdir()))
    assert loaded.run.status is RunStatus.ABORTED
    assert loaded.measurements == made.measurements[:1]


def test_facts_learnt_later_are_kept(made: MadeRun, tmp_path: Path) -> None:
    folder = RunFolder(tmp_path, board="virtual")
    folder.begin(replace(made.run, status=RunStatus.RUNNING, boards={}))
    folder.update(made.run)
    assert folder.path.name == "20260309T100000Z-virtual-k3v9q2"
    assert load_run(folder.path).run.board == made.run.board


def test_what_is_withdrawn_is_gone_for_readers_and_can_be_stored_again(made: MadeRun, tmp_path: Path) -> None:
    folder = _store(made, tmp_path / "results", finish=False)
    first, second = made.measurements[:2]
    folder.withdraw([first.number, second.number])
    loaded = load_run(folder.path)
    assert loaded.measurements == made.measurements[2:]
    assert not loaded.damaged
    assert len(loaded.run.measurements) == len(made.measurements) - 2
    assert not list(folder.path.rglob("*.partial"))
    folder.add(second, None, {})
    assert [each.number for each in load_run(folder.path).measurements] == [
        each.number for each in made.measurements[1:]
    ]


def test_what_is_being_written_or_was_just_withdrawn_is_no_damage_of_a_run_that_goes_on(
    made: MadeRun, tmp_path: Path
) -> None:
    folder = _store(made, tmp_path / "results", finish=False)
    first, second = sorted((folder.path / "measurements").iterdir())[:2]
    first.rename(first.with_name(first.name + ".partial"))
    assert not load_run(folder.path).damaged
    folder.finish(made.run)
    assert set(load_run(folder.path).damaged) == {first.name, first.name + ".partial"}
    assert second.is_dir()


def test_a_run_whose_end_cannot_be_written_reads_as_aborted(made: MadeRun, tmp_path: Path) -> None:
    folder = _store(made, tmp_path / "results", finish=False)
    (folder.path / "run.json.partial").mkdir()  # as a full disk does, it keeps the file from being written
    with pytest.raises(HostError, match=r"run\.json could not be stored"):
        folder.finish(made.run)
    assert load_run(folder.path).run.status is RunStatus.ABORTED


def test_a_number_is_stored_once_and_attachments_have_plain_names(made: MadeRun, tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.begin(made.run)
    with pytest.raises(ResultError, match=r"named '\.\./x'"):
        folder.add(made.measurements[0], None, {"../x": b""})
    folder.add(made.measurements[0], None, {})
    with pytest.raises(ResultError, match="already holds a measurement 1"):
        folder.add(made.measurements[0], None, {})


def test_a_nan_is_never_stored(made: MadeRun, tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.begin(made.run)
    broken = replace(made.measurements[0], energy_mj_per_mib=Value(float("nan"), 0.1), iops=float("nan"))
    with pytest.raises(ResultError, match=r"(?s)iops.*energy_mj_per_mib\.value"):
        folder.add(broken, None, {})
    assert load_run(folder.path).measurements == ()


# ------------------------------------------------------------------------------------------------- damaged folders


def _edit(path: Path, **changes: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_damaged_measurements_are_named_and_left_out(made: MadeRun, tmp_path: Path) -> None:
    path = _store(made, tmp_path).path
    first, second, third, fourth = sorted((path / "measurements").iterdir())[:4]
    (first / "measurement.json").write_text('{"schema": "fsjoule.meas')
    _edit(second / "measurement.json", number="2", colour="red")
    (third / "measurement.json").unlink()
    fourth.rename(fourth.with_name(fourth.name + ".partial"))
    loaded = load_run(path)
    assert [m.number for m in loaded.measurements] == [m.number for m in made.measurements][4:]
    reasons = loaded.damaged
    assert "not JSON" in reasons[first.name]
    assert "number: " in reasons[second.name]
    assert "colour: " in reasons[second.name]
    assert "cannot be read" in reasons[third.name]
    assert "missing" in reasons[fourth.name]
    assert "cut short" in reasons[fourth.name + ".partial"]
    with pytest.raises(ResultError, match="no readable measurement 1"):
        loaded.trace(1)


def test_an_edited_figure_is_damage(made: MadeRun, tmp_path: Path) -> None:
    path = _store(made, tmp_path).path
    first, second = sorted((path / "measurements").iterdir())[:2]
    subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=first, check=True, capture_output=True)
    _edit(first / "measurement.json", window_s=28.76)
    (second / "SHA256SUMS").write_text("0123  measurement.json\n")
    loaded = load_run(path)
    assert "its measurement.json was edited after it was stored" in loaded.damaged.pop(first.name)
    assert "SHA256SUMS is damaged: line 1" in loaded.damaged.pop(second.name)
    assert not loaded.damaged
    (first / "SHA256SUMS").unlink()  # whoever edits a folder may remove them
    assert load_run(path).measurements[0].window_s == 28.76


def test_files_that_were_exchanged_or_lost_are_named(made: MadeRun, tmp_path: Path) -> None:
    path = _store(made, tmp_path).path
    assert load_run(path).altered() == {}
    first, second = sorted((path / "measurements").iterdir())[:2]
    (second / "trace.parquet").replace(first / "trace.parquet")
    (first / "console.log").write_text("other\n")
    (first / "fio.json").unlink()
    loaded = load_run(path)
    edited = "was edited after it was stored: its SHA-256 is not that of SHA256SUMS"
    assert loaded.measurements == made.measurements
    assert loaded.altered() == {
        f"{first.name}/console.log": edited,
        f"{first.name}/fio.json": "is missing",
        f"{first.name}/trace.parquet": edited,
        f"{second.name}/trace.parquet": "is missing: the measurement's record says 7627 samples",
    }
    for read in (lambda: loaded.trace(1), lambda: loaded.trace(2), lambda: loaded.attachment(1, "fio.json")):
        with pytest.raises(ResultError, match=r"was edited|is missing"):
            read()
    (second / "SHA256SUMS").unlink()  # whoever edits a folder may remove them
    without = load_run(path)
    assert f"{second.name}/trace.parquet" not in without.altered()
    with pytest.raises(ResultError, match="is missing"):
        without.trace(2)
    # A run out of a job's log never had its traces.
    pulled = replace(without.run, job=JobFacts("7", "virtual", "", "", pulled=True))
    assert replace(without, run=pulled).trace(2) is None


def test_a_run_that_lost_its_measurements_says_so(made: MadeRun, tmp_path: Path) -> None:
    path = _store(made, tmp_path).path
    shutil.rmtree(path / "measurements")
    why = set(load_run(path).damaged.values())
    assert why == {"run.json lists it, but measurements/ is missing or empty"}


def test_a_real_run_is_read() -> None:
    """The first two measurements of one, as they were stored."""
    loaded = load_run(_DATA / "real-run")
    assert loaded.damaged == {}
    [kernel] = loaded.run.kernels
    assert (kernel.label, kernel.release) == ("sid", "7.2.13+deb14-armmp")
    assert [each.kernel for each in loaded.measurements] == ["sid", "sid"]
    assert loaded.measurements[1].throughput_mib_per_s == pytest.approx(1.98, abs=0.01)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "not JSON"),
        ("[]", "names no schema"),
        ('{"schema": "fsjoule.run/2"}', "'fsjoule.run/2'; this version of fsjoule reads 'fsjoule.run/1'"),
        ('{"schema": "fsjoule.run/1"}', "(?s)run_id: Field required.*started_utc: Field required"),
    ],
)
def test_a_damaged_run_file_is_refused_with_all_errors(content: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(content)
    with pytest.raises(ResultError, match=words) as caught:
        load_run(tmp_path)
    assert str(tmp_path / "run.json") in caught.value.what


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ResultError, match="not a run folder"):
        load_run(tmp_path / "nothing")


def test_strictness_reaches_nested_fields(made: MadeRun, tmp_path: Path) -> None:
    path = _store(made, tmp_path).path / "run.json"
    data = json.loads(path.read_text())
    data["plan"]["repeat"] = 3.5
    data["plan"]["entries"][0]["workload"]["extra"] = 1
    data["boards"]["6.1"]["cpus"] = "1"
    path.write_text(json.dumps(data))
    with pytest.raises(ResultError, match=r"(?s)plan\.repeat: .*plan\.entries\.0\.workload.*boards\.6\.1\.cpus: "):
        load_run(path)


# ------------------------------------------------------------------------------------------------------- full disk

_FILL = """
import resource, sys
sys.path.insert(0, sys.argv[1])
from dataclasses import replace
from pathlib import Path
from results_factory import make_run, make_trace
from fsjoule.errors import HostError
from fsjoule.store.folder import RunFolder
made = make_run(repeat=1)
folder = RunFolder(Path(sys.argv[2]))
folder.begin(made.run)
folder.add(made.measurements[0], made.traces[1], {})
if sys.argv[3] == "limit":
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
try:
    for number in range(2, 100):
        folder.add(replace(made.measurements[0], number=number), made.traces[1], {"console.log": b"x" * 60_000})
except HostError as error:
    print(error)
else:
    sys.exit("the disk never filled")
"""


def _check_after_full_disk(results: Path, message: str, made: MadeRun, reason: str) -> list[Measurement]:
    path = next(results.iterdir())
    assert reason in message
    assert str(path) in message
    loaded = load_run(path)
    assert not loaded.damaged
    assert loaded.measurements[0] == made.measurements[0]
    for measurement in loaded.measurements:
        assert loaded.trace(measurement.number) is not None
    assert not list(path.rglob("*.partial"))
    return list(loaded.measurements)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small filesystem needs root")
def test_a_full_disk_leaves_what_is_stored_whole(made: MadeRun, tmp_path: Path) -> None:
    results = tmp_path / "small"
    results.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", results], timeout=10, check=False)
    if mounted.returncode != 0:
        pytest.skip("mounting is not allowed here")
    try:
        argv = [sys.executable, "-c", _FILL, _HELPERS, results, "full"]
        done = subprocess.run(argv, timeout=60, check=True, capture_output=True, text=True)
        assert len(_check_after_full_disk(results, done.stdout, made, "No space left on device")) > 1
    finally:
        subprocess.run(["umount", results], timeout=10, check=True)


def test_a_run_that_cannot_begin_leaves_no_folder(made: MadeRun, tmp_path: Path) -> None:
    too_large = replace(made.run, plan=replace(made.run.plan, seed=1 << 77))
    with pytest.raises(ResultError, match="an integer of 78 bits is too large"):
        RunFolder(tmp_path / "results").begin(too_large)
    assert list((tmp_path / "results").iterdir()) == []


def test_a_file_size_limit_leaves_what_is_stored_whole(made: MadeRun, tmp_path: Path) -> None:
    argv = [sys.executable, "-c", _FILL, _HELPERS, tmp_path, "limit"]
    done = subprocess.run(argv, timeout=60, check=True, capture_output=True, text=True)
    _check_after_full_disk(tmp_path, done.stdout, made, "a file is too large: this shell allows")


def test_a_folder_that_cannot_be_written_is_a_lab_error(made: MadeRun, tmp_path: Path) -> None:
    (tmp_path / "results").write_text("a file, not a folder")
    with pytest.raises(HostError, match=r"(?s)could not be stored.*--results"):
        RunFolder(tmp_path / "results").begin(made.run)


def test_a_trace_that_is_long_stays_small(tmp_path: Path, made: MadeRun) -> None:
    folder = RunFolder(tmp_path)
    folder.begin(made.run)
    folder.add(made.measurements[0], make_trace(60.0), {})
    size = (next((folder.path / "measurements").iterdir()) / "trace.parquet").stat().st_size
    assert size < 61_200 * 5


@pytest.mark.parametrize(
    ("word", "shown"),
    [
        ("postgresql://u:p@w@db/x", "postgresql://u:***@db/x"),
        (
            "--index=postgresql://db/x?user=u&password=p&timeout=3",
            "--index=postgresql://db/x?user=u&password=***&timeout=3",
        ),
        ("https://token@db.example.org", "https://***@db.example.org"),
        ("postgresql://me:pa/ss@db/x", "postgresql://me:***@db/x"),
        ("postgresql://me:p?a#s@db/x", "postgresql://me:***@db/x"),
        ("postgresql://me@corp:pw@db/x", "postgresql://me@corp:***@db/x"),
        ("HTTPS://token:@db/x@y", "HTTPS://***@y"),
        ("postgresql://db/x?PASSWORD=b;c&sslpassword=hunter2", "postgresql://db/x?PASSWORD=***&sslpassword=***"),
        ("https://db/x?user=me@corp&private_token=glpat-1", "https://db/x?user=me@corp&private_token=***"),
        ("s3://b/x?X-Amz-Signature=abc&region=eu&sig=d", "s3://b/x?X-Amz-Signature=***&region=eu&sig=***"),
        ("postgresql://u@db/x", "postgresql://u@db/x"),
        ("6.1@run-1", "6.1@run-1"),
    ],
)
def test_a_command_is_kept_without_its_secrets(word: str, shown: str) -> None:
    assert without_passwords(["fsjoule", word]) == ("fsjoule", shown)


@pytest.mark.parametrize(
    ("word", "shown"),
    [
        ("--index=sqlite:////srv/secret/index.db", "--index=sqlite:index.db"),
        ("file://localhost/home/anna/x", "file:x"),
        ("../../home/anna/x", "x"),
        ("a/../../home/anna b/x", "x"),
        ("~anna/lab/x,/srv/y", "x,y"),
        ("new:/home/anna/linux@feature/x", "new:linux@feature/x"),
        ("postgresql://u@db/x?sslrootcert=/srv/ca.pem", "postgresql://u@db/x?sslrootcert=ca.pem"),
        ("new=https://git.example/a/linux.git", "new=https://git.example/a/linux.git"),
        ("results/x", "results/x"),
    ],
)
def test_a_command_is_shown_without_this_computers_folders(word: str, shown: str) -> None:
    assert without_folders(["fsjoule", word]) == ("fsjoule", shown)


def test_a_long_word_of_a_foreign_command_is_masked_in_no_time() -> None:
    for piece in ("a b ", "a/", "../", "=a/", "?key", "http://", "://a:@"):
        words = without_folders(without_passwords([piece * 20_000]))
        assert len(words) == 1
