"""What others have measured becomes run folders of lesser standing, or a message with file and line."""

from __future__ import annotations

import json
import shutil
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import CommandLine
from results_factory import make_run
from whole_runs import write_whole

from fsjoule.model import Run
from fsjoule.model.metrics import Metric, figure_of, uncertainty_of
from fsjoule.store.reader import LoadedRun, load_run

_FIO = Path(__file__).parents[1] / "unit" / "data"
_CSV = """workload,figure,value,unit,uncertainty,kernel,time,boot
boot to login,duration,9500,ms,,6.1.0,2026-03-{day:02d}T10:00:00Z,1
boot to login,operation-energy,{joules},J,0.2,6.1.0,2026-03-{day:02d}T10:00:00Z,1
copy,throughput,20,MB/s,,6.1.0,2026-03-{day:02d}T10:00:00Z,1
"""


def imported(fsjoule: CommandLine, *words: object) -> list[LoadedRun]:
    done = fsjoule("import", *words, "--json")
    assert done.code == 0, done.err
    return [load_run(Path(each["path"])) for each in done.document]


def test_fio_files_are_runs_whose_series_are_by_content(fsjoule: CommandLine, tmp_path: Path) -> None:
    document: dict[str, Any] = json.loads((_FIO / "fio-3.33-randread.json").read_text())
    for day in (1, 2):
        document["timestamp_ms"] += 86_400_000
        document["jobs"][0]["job options"]["randseed"] = str(day)
        (tmp_path / f"{day}.json").write_text("fio: a complaint\n" + json.dumps(document, indent=1))
    words = ("--board", "imx6ul", "--fs", "ext4", "--kernel", "6.12")
    one, two = imported(fsjoule, "fio", "1.json", "2.json", *words)
    [first], [second] = one.measurements, two.measurements
    assert first.series == second.series
    assert (first.series.suite, first.series.board) == ("imported from fio", "imx6ul")
    assert figure_of(first, Metric.THROUGHPUT) == pytest.approx(4 / 0.020)
    assert figure_of(first, Metric.P99_LATENCY) is not None
    document["jobs"][0]["job options"]["direct"] = "1"
    (tmp_path / "3.json").write_text(json.dumps(document))
    [third] = imported(fsjoule, "fio", "3.json", *words)
    assert third.measurements[0].series != first.series
    again = fsjoule("import", "fio", "1.json", *words)
    assert "there already" in again.out
    shown = fsjoule("show", one.path).out
    assert "imported from fio: 1.json; not measured by fsjoule" in " ".join(shown.split())
    assert "200" in shown


def test_what_failed_is_imported_as_invalid(fsjoule: CommandLine, tmp_path: Path) -> None:
    document: dict[str, Any] = json.loads((_FIO / "fio-3.33-randread.json").read_text())
    broken: dict[str, Any] = json.loads(json.dumps(document["jobs"][0]))
    broken |= {"jobname": "broken", "error": 5}
    for side in ("read", "write", "trim"):
        broken[side]["total_ios"] = 0
    document["jobs"].append(broken)
    (tmp_path / "two.json").write_text(json.dumps(document))
    [run] = imported(fsjoule, "fio", "two.json")
    whole, failed = run.measurements
    assert whole.valid
    assert (failed.invalid_reasons, failed.stated) == (("fio ended with error 5",), {})
    head, *_ = _CSV.splitlines()
    rows = [
        f"{head},invalid",
        "copy,throughput,20,MiB/s,,,2026-03-01T10:00:00Z,1,",
        "copy,iops,5,1/s,,,2026-03-01T10:00:00Z,1,clipped",
    ]
    (tmp_path / "late.csv").write_text("\n".join(rows) + "\n")
    [run] = imported(fsjoule, "csv", "late.csv")
    assert [each.invalid_reasons for each in run.measurements] == [("clipped",)]


def test_a_table_of_nights_has_a_trend_and_a_step(fsjoule: CommandLine, tmp_path: Path) -> None:
    head = _CSV.splitlines()[0]
    rows = [
        row.format(day=day, joules=f"{(10 if day < 14 else 13) + 0.01 * (day % 3):.2f}")
        for day in range(1, 29)
        for row in _CSV.splitlines()[1:]
    ]
    (tmp_path / "nights.csv").write_text("\n".join((head, *rows)) + "\n")
    runs = imported(fsjoule, "csv", "nights.csv", "--board", "imx6ul")
    assert len(runs) == 28
    boot = runs[0].measurements[0]
    assert (figure_of(boot, Metric.DURATION), figure_of(boot, Metric.OPERATION_ENERGY)) == (9.5, 10_010.0)
    assert uncertainty_of(boot, Metric.OPERATION_ENERGY) == pytest.approx(200)
    assert figure_of(runs[0].measurements[1], Metric.THROUGHPUT) == pytest.approx(20e6 / 2**20)
    assert fsjoule("index", "rebuild").code == 0
    told = fsjoule("trend").out
    assert "30 % more energy" in told, told
    assert "imported-boot_to_login" in told
    assert "imported from csv" in fsjoule("index", "series", "--json").out


def test_imported_figures_are_never_compared_with_ours(fsjoule: CommandLine, tmp_path: Path) -> None:
    made = make_run(repeat=1, simulated=False)
    ours = write_whole(tmp_path / "results", replace(made.run, simulated=False), made.measurements)
    (tmp_path / "one.csv").write_text(
        "workload,figure,value,unit,time,fs,board\nread-16k,throughput,20,MiB/s,2026-03-09T10:00:00Z,ext4,virtual\n"
    )
    [theirs] = imported(fsjoule, "csv", "one.csv")
    done = fsjoule("compare", ours, theirs.path)
    assert done.code == 2
    assert "they have no series in common" in done.err
    assert "imported from csv" in done.err


_LAVA = """- {name: boot-time, suite: 0_boot, result: pass, measurement: '9.5', unit: s, logged: '2026-03-09T10:00:00Z'}
- {name: copy, suite: 0_io, result: fail, measurement: '12.5', unit: MB/s, logged: '2026-03-09T10:05:00+00:00'}
- {name: login, suite: lava, result: pass, measurement: None, unit: ''}
"""


@pytest.mark.parametrize("kind", ["yaml", "csv"])
def test_a_lava_job_is_one_run_and_what_failed_is_invalid(kind: str, fsjoule: CommandLine, tmp_path: Path) -> None:
    text = _LAVA
    if kind == "csv":
        text = (
            "job,suite,result,measurement,unit,logged,name\n"
            "17,0_boot,pass,9.5,s,2026-03-09 10:00:00.123456+00:00,boot-time\n"
            "17,0_io,fail,12.5,MB/s,2026-03-09 10:05:00+00:00,copy\n17,lava,pass,,,,login\n"
        )
    (tmp_path / f"job.{kind}").write_text(text)
    [run] = imported(fsjoule, "lava", f"job.{kind}", "--kernel", "6.12")
    assert [m.series.workload for m in run.measurements] == ["imported-0_boot-boot-time", "imported-0_io-copy"]
    assert [m.invalid_reasons for m in run.measurements] == [(), ("LAVA: fail",)]
    assert figure_of(run.measurements[0], Metric.DURATION) == 9.5


def ppk2_file(path: Path, *, packed: bool) -> None:
    """2 s at 10 mA, with 30 mA for 0.5 s while D0 is high."""
    rate_hz = 10_000
    times = np.arange(2 * rate_hz) / rate_hz
    high = (times >= 1.0) & (times < 1.5)
    ua = np.where(high, 30_000.0, 10_000.0)
    if not packed:
        rows = (f"{1e3 * t:.1f},{i},{int(d)}0000000" for t, i, d in zip(times, ua, high, strict=True))
        path.write_text("Timestamp(ms),Current(uA),D0-D7\n" + "\n".join(rows) + "\n")
        return
    frames = np.empty(len(ua), dtype=[("ua", "<f4"), ("bits", "<u2")])
    frames["ua"], frames["bits"] = ua, np.where(high, 0x5556, 0x5555)
    with zipfile.ZipFile(path, "w") as archive:
        facts = {"samplesPerSecond": rate_hz, "startSystemTime": 1773050400000}
        archive.writestr("metadata.json", json.dumps({"metadata": facts, "formatVersion": 2}))
        archive.writestr("session.raw", frames.tobytes())


@pytest.mark.parametrize("packed", [True, False])
def test_a_ppk2_recording_has_a_window_with_nordics_limits(packed: bool, fsjoule: CommandLine, tmp_path: Path) -> None:
    ppk2_file(tmp_path / "sync.ppk2", packed=packed)
    [run] = imported(fsjoule, "ppk2", "sync.ppk2", "--volts", "5", "--time", "2026-03-09T10:00:00Z")
    [m] = run.measurements
    assert m.energy is not None
    assert m.energy.gross_mj.value == pytest.approx(30e-3 * 5 * 0.5 * 1e3, rel=0.01)
    assert m.energy.net_mj.value == pytest.approx(20e-3 * 5 * 0.5 * 1e3, rel=0.01)
    assert 0.05 < m.energy.gross_mj.uncertainty / m.energy.gross_mj.value < 0.2
    assert m.window_s == pytest.approx(0.5, abs=0.001)
    trace = run.trace(1)
    assert trace is not None
    assert len(trace.ticks) == 2000
    assert m.series.workload == "imported-sync"


def test_our_own_joulescope_file_comes_back_with_its_energies(fsjoule: CommandLine, tmp_path: Path) -> None:
    made = make_run(repeat=1)
    ours = write_whole(tmp_path / "ours", made.run, made.measurements, trace=made.traces.get)
    assert fsjoule("export", ours, "--jls", "run.jls").code == 0
    [run] = imported(fsjoule, "jls", "run.jls", "--uncertainty", "0.5", "--simulated")
    named = {m.series.workload: m for m in run.measurements}
    for m in made.measurements:
        if m.energy is None:
            continue
        back = named[f"imported-{m.slug}"]
        energy = figure_of(back, Metric.OPERATION_ENERGY)
        assert energy == pytest.approx(m.energy.gross_mj.value, rel=0.005)
        assert back.simulated


@pytest.mark.parametrize(
    ("form", "content", "told"),
    [
        ("fio", "no report", "x.dat, line 1: it has no report of fio's"),
        ("fio", '{\n"jobs": [\n', "x.dat, line 3: it is no JSON"),
        ("fio", '{"fio version": "fio-3.33", "timestamp": 1, "jobs": [{"jobname": "a"}]}', "moved no data"),
        ("fio", '{"jobs": 3}', "it is no report of fio 3's"),
        ("csv", "", "x.dat, line 1: it has no column workload"),
        ("csv", "workload,figure,value,unit,joy\n", "x.dat, line 1: unknown column joy"),
        ("csv", "workload,figure,value,unit\na,joy,1,s\n", "x.dat, line 2: 'joy' is no figure"),
        ("csv", "workload,figure,value,unit\na,duration,1,kg\n", "x.dat, line 2: 'kg' is no unit of duration"),
        ("csv", "workload,figure,value,unit\na,duration,nan,s\n", "x.dat, line 2: nan s is no possible duration"),
        ("csv", "workload,figure,value,unit\na,energy,3,mJ/MiB\n", "x.dat, line 2: energy has no uncertainty"),
        ("csv", "workload,figure,value,unit\na,duration,1,s\n", "x.dat, line 2: it does not say when"),
        ("csv", "workload,figure,value,unit,time\na,duration,1,s,noon\n", "x.dat, line 2: time: 'noon' is not a time"),
        ("lava", "- {name: a, measurement: '1', unit: kg}\n", "no test case has a measurement in a known unit"),
        ("lava", "a: [\n", "x.dat, line 2: it cannot be read"),
        ("ppk2", "a,b\n", "x.dat, line 1: it has no columns Timestamp(ms)"),
        ("ppk2", "Timestamp(ms),Current(uA)\n0,1\n1,x\n", "x.dat, line 3: it is no sample"),
        ("ppk2", "Timestamp(ms),Current(uA)\n0,1\n1,1\n2,1\n9,1\n", "x.dat, line 5: its samples are not evenly spaced"),
        ("jls", "no", "it is no JLS file"),
        ("xml", "", "unknown format 'xml'"),
    ],
)
def test_a_wrong_file_is_named_and_nothing_is_written(
    form: str, content: str, told: str, fsjoule: CommandLine, tmp_path: Path
) -> None:
    (tmp_path / "x.dat").write_text(content)
    (tmp_path / "good.csv").write_text("workload,figure,value,unit,time\na,duration,1,s,2026-03-09T10:00:00Z\n")
    files = ["good.csv", "x.dat"] if form == "csv" else ["x.dat"]
    done = fsjoule("import", form, *files, *(("--volts", "3") if form == "ppk2" else ()))
    assert (done.code, told in done.err) == (2, True), done.err
    assert not (tmp_path / "results").exists() or not list((tmp_path / "results").iterdir())


def test_a_run_folder_with_a_stated_figure_that_is_none_is_refused(fsjoule: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("workload,figure,value,unit,time\na,duration,1,s,2026-03-09T10:00:00Z\n")
    [run] = imported(fsjoule, "csv", "a.csv")
    assert isinstance(run.run, Run)
    file = run.folders[1] / "measurement.json"
    file.write_text(file.read_text().replace('"duration"', '"joy"'))
    (file.parent / "SHA256SUMS").unlink()
    assert "stated.joy: it is no metric" in load_run(run.path).damaged[file.parent.name]
    shutil.rmtree(run.path)
