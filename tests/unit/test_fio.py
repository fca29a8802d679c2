from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsjoule.bench import fio
from fsjoule.errors import MeasurementInvalid
from fsjoule.model import KIB, MIB, FioWorkload, IoPattern

DATA = Path(__file__).parent / "data"


@pytest.mark.parametrize(("name", "ios"), [("randread", 256), ("write", 256)])
def test_real_output_is_read(name: str, ios: int) -> None:
    result = fio.parse((DATA / f"fio-3.33-{name}.json").read_text())
    assert result.version == "fio-3.33"
    assert (result.io_bytes, result.ios, result.errors, result.error) == (4 * MIB, ios, 0, 0)
    assert result.mib_per_s == pytest.approx(4 / (result.runtime_ns / 1e9))
    assert {"50", "99", "99.9"} <= result.latency_percentiles_ns.keys()
    assert not fio.complaints(result)


def test_percentiles_of_fsyncs_are_read() -> None:
    document = json.loads((DATA / "fio-3.33-write.json").read_text())
    assert fio.parse(json.dumps(document)).fsync_ms(99) is None
    document["jobs"][0]["sync"]["lat_ns"]["percentile"] = {"50.000000": 900_000, "99.000000": 2_500_000}
    result = fio.parse(json.dumps(document))
    assert (result.fsync_percentiles_ns, result.fsync_ms(99)) == ({"50": 900_000, "99": 2_500_000}, 2.5)


def test_complaints_before_the_json_are_skipped() -> None:
    text = "fio: io_u error on file x: No space left on device\n" + (DATA / "fio-3.33-write.json").read_text()
    assert fio.parse(text).io_bytes == 4 * MIB


def test_the_last_report_is_read_whatever_is_around_it() -> None:
    report = (DATA / "fio-3.33-write.json").read_text()
    other = report.replace('"error" : 0', '"error" : 5')
    for text in (f"fio: pid {{1}}: no {{x: y\n{report}", f"{report}\nfio: done {{\n", f"note {{}}\n{other}{report}"):
        assert fio.parse(text).error == 0
    assert fio.parse(f'{report}\nfio: {{"jobs": {{"x": 1}}}}\n').error == 0


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("usr_cpu", float("nan"), "usr_cpu_percent nan"),
        ("sys_cpu", float("inf"), "sys_cpu_percent inf"),
        ("total_err", -1, "errors -1"),
    ],
)
def test_figures_that_cannot_be_are_refused(key: str, value: object, why: str) -> None:
    document = json.loads((DATA / "fio-3.33-write.json").read_text())
    document["jobs"][0][key] = value
    with pytest.raises(MeasurementInvalid, match=f"cannot be read .*{why}"):
        fio.parse(json.dumps(document))


def test_a_report_of_two_jobs_is_refused() -> None:
    """Without group_reporting each job has its own; the second would be dropped."""
    document = json.loads((DATA / "fio-3.33-write.json").read_text())
    document["jobs"] *= 2
    with pytest.raises(MeasurementInvalid, match="too many values"):
        fio.parse(json.dumps(document))


def test_old_versions_are_read() -> None:
    document = json.loads((DATA / "fio-3.33-write.json").read_text())
    del document["jobs"][0]["write"]["clat_ns"]["N"]
    assert fio.parse(json.dumps(document)).latency_mean_ns > 0
    document["fio version"] = "fio-2.21"
    with pytest.raises(MeasurementInvalid, match=r"the board has fio-2\.21: fio 3\.1 or newer is needed"):
        fio.parse(json.dumps(document))


def test_another_job_than_was_asked_is_invalid() -> None:
    document = json.loads((DATA / "fio-3.33-write.json").read_text())
    options = document["jobs"][0]["job options"]
    argv = tuple(f"--{name}={value}" for name, value in options.items())
    assert fio.parse(json.dumps(document), ("fio", "--output=o", *argv, "--ramp_time=0")).io_bytes == 4 * MIB
    options["size"] = "4432"
    with pytest.raises(MeasurementInvalid, match=r"another job than was asked: size 4432 instead of 4M"):
        fio.parse(json.dumps(document), argv)


def test_reads_and_writes_of_a_mixed_job_are_one() -> None:
    result = fio.parse((DATA / "fio-3.33-randrw.json").read_text())
    assert (result.io_bytes, result.ios, result.runtime_ns) == (266_010_624, 16_236, 504_000_000)
    assert result.ios * 16 * KIB == result.io_bytes
    assert not fio.complaints(result)


def test_out_of_space_is_named() -> None:
    document = json.loads((DATA / "fio-3.33-write.json").read_text())
    document["jobs"][0]["error"] = 28
    assert fio.complaints(fio.parse(json.dumps(document))) == ["fio ended with error 28 (no space left on device)"]


@given(st.text())
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(MeasurementInvalid, match="fio"):
        fio.parse(text)


def test_only_writes_end_with_a_flush() -> None:
    read = fio.run_argv(FioWorkload(IoPattern.READ, 16 * KIB, MIB), "/d", output="o", before="b", after="a", seed=7)
    write = fio.run_argv(FioWorkload(IoPattern.WRITE, 16 * KIB, MIB), "/d", output="o", before="b", after="a", seed=7)
    assert "--end_fsync=0" in read
    assert "--end_fsync=1" in write
    assert {"--kb_base=1024", "--ramp_time=0", "--exec_prerun=b", "--exec_postrun=a", "--randseed=7"} <= set(write)


def test_files_of_all_jobs_have_one_name() -> None:
    workload = FioWorkload(IoPattern.READ, 16 * KIB, MIB, jobs=4, runtime_s=1.5, shared=True)
    run = fio.run_argv(workload, "/d", output="o", before="b", after="a", seed=7)
    assert {"--directory=/d", "--filename=fsjoule", "--numjobs=4", "--time_based=1", "--runtime=1500ms"} <= set(run)
    assert not any(option.startswith("--nrfiles") for option in run)


def test_a_device_is_written_before_it_is_read() -> None:
    workload = FioWorkload(IoPattern.RANDRW, 16 * KIB, 8 * MIB, jobs=4, depth=8, io_bytes=64 * MIB, runtime_s=3.0)
    run = fio.run_argv(workload, "/dev/sda", output="o", before="b", after="a", seed=7)
    assert {"--filename=/dev/sda", "--unified_rw_reporting=1", "--rw=randrw"} <= set(run)
    layout = fio.layout_argv(workload, "/dev/sda")
    assert {"--filename=/dev/sda", "--rw=write", "--size=8388608", "--numjobs=1"} <= set(layout)
    assert not any(option.startswith(("--runtime", "--io_size", "--create_only", "--directory")) for option in layout)


def test_layout_is_the_same_job_without_its_io() -> None:
    workload = FioWorkload(IoPattern.RANDREAD, 16 * KIB, MIB)
    layout = fio.layout_argv(workload, "/d")
    run = fio.run_argv(workload, "/d", output="o", before="b", after="a", seed=7)
    assert "--create_only=1" in layout
    assert set(layout) - {"--create_only=1"} <= set(run)
