"""fio's job files and options in suites: what becomes of them, and wrong ones with file and line."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from fsjoule.bench import fio
from fsjoule.errors import ConfigError
from fsjoule.model import KIB, MIB, FioWorkload, IoPattern
from fsjoule.suites import suite

FILES = sorted((Path(__file__).parent / "data" / "fio").glob("*.fio"))


def _workloads(name: str) -> list[FioWorkload]:
    own = suite(str(next(each for each in FILES if each.stem == name)))
    assert own.scales
    return [each for each in own.workloads if isinstance(each, FioWorkload)]


@pytest.mark.parametrize(
    ("name", "slugs"),
    [
        (
            "ssd-test",
            [
                *("read-4k-direct-qd4-libaio-most60s", "randread-4k-direct-qd4-libaio-most60s"),
                *(f"{each}-4k-direct-qd4-endfsync0-libaio-most60s" for each in ("write", "randwrite")),
            ],
        ),
        ("verify", ["randwrite-4k-direct-qd16-endfsync0-libaio-verifycrc32c"]),
        ("threads", ["randread-16k-with1-2c9527dd", "read-64k-3jobs-a5355d24"]),
        ("hot-spots", ["randrw-16k-direct-qd8-endfsync0-libaio-zipf1.2-mix70-57678466"]),
        ("journal", ["write-4k-fdatasync1"]),
        ("camera", ["write-128k-rate4m-with1-0d0019ba"]),
    ],
)
def test_a_job_file_becomes_workloads(name: str, slugs: list[str]) -> None:
    assert [each.slug for each in _workloads(name)] == slugs


def test_jobs_that_run_together_are_one_workload() -> None:
    together, after = _workloads("threads")
    assert (together.programs, together.moved_bytes, together.space_bytes) == (3, 3 * 128 * MIB, 3 * 128 * MIB)
    assert (together.mixed, together.reads, after.only_reads) == (True, True, True)
    assert together.buffer_bytes == 16 * KIB + 2 * 64 * KIB
    smaller = together.scaled(0.5)
    assert [each.size_bytes for each in smaller.together] == [64 * MIB, 64 * MIB]
    assert smaller.slug == together.slug
    assert smaller.identity != together.identity
    argv = fio.run_argv(together, "/d", output="/o", before="START 1 3", after="", seed=7)
    assert [word for word in argv if word.startswith("--name")] == ["--name=fsjoule-0", "--name=fsjoule-1"]
    for word in ("--exec_prerun=START 1 3", "--unified_rw_reporting=1", "--randseed=7", "--thread=1"):
        assert argv.count(word) == 2
    # Only the reader's files are laid out.
    assert [word for word in fio.layout_argv(together, "/d") if "name=" in word] == ["--name=fsjoule-0"]


def test_a_job_that_verifies_reads_and_writes() -> None:
    [job] = _workloads("verify")
    assert (job.only_writes, job.reads, job.moved_bytes) == (False, False, 2 * 512 * MIB)
    argv = fio.run_argv(job, "/d", output="/o", before="S", after="E", seed=1)
    assert "--unified_rw_reporting=1" not in argv, "it verifies after it has written: the times add up"
    side = {"io_bytes": 512, "total_ios": 1, "clat_ns": {"mean": 1.0, "max": 2, "N": 1}}
    report = {
        "job options": {"rw": "randwrite"},
        "write": {**side, "runtime": 3000},
        "read": {**side, "runtime": 2000},
        "usr_cpu": 1.0,
        "sys_cpu": 1.0,
        "error": 0,
    }
    result = fio.parse(json.dumps({"fio version": "fio-3.33", "jobs": [report]}, indent=1), argv)
    assert (result.runtime_ns, result.io_bytes, result.ios) == (5_000_000_000, 1024, 2)


def test_jobs_that_differ_are_different_series() -> None:
    plain = FioWorkload(IoPattern.RANDREAD, 4 * KIB, MIB)
    beside = [plain, replace(plain, files=4), replace(plain, files=8), replace(plain, shared=True)]
    beside += [replace(plain, runtime_s=10), replace(plain, runtime_s=60)]
    assert len({replace(plain, beside=(each,)).identity for each in beside}) == len(beside)
    assert FioWorkload(IoPattern.WRITE, 1536, 3 * MIB).slug == "write-1536b"


def test_a_queue_that_is_made_shorter_makes_no_other_deeper() -> None:
    shallow = FioWorkload(IoPattern.RANDREAD, 4 * KIB, MIB, beside=(FioWorkload(IoPattern.READ, MIB, MIB, depth=64),))
    shorter = shallow.at_most(31)
    assert [each.depth for each in shorter.together] == [1, 31]


def test_a_rate_makes_a_job_longer() -> None:
    [job] = _workloads("camera")
    assert job.seconds(100) == job.paced_s == 32
    half = FioWorkload(IoPattern.RANDRW, 4 * KIB, MIB, options=(("thinktime", "1000"),))
    assert half.paced_s == pytest.approx(0.256)
    mixed = FioWorkload(IoPattern.RANDRW, 4 * KIB, MIB, runtime_s=10, options=(("rwmixread", "70"),))
    assert mixed.written_bytes(1) == pytest.approx(4 * MIB, abs=1)


def test_a_name_that_hides_options_is_explained() -> None:
    [job] = _workloads("hot-spots")
    assert "bssplit=4k/60:8k/30:16k/10" in job.explained
    other = FioWorkload(IoPattern.READ, 4 * KIB, MIB, options=(("bssplit", "4k/60:8k/40"),))
    assert other.slug != FioWorkload(IoPattern.READ, 4 * KIB, MIB, options=(("bssplit", "4k/50:8k/50"),)).slug
    assert not FioWorkload(IoPattern.READ, 4 * KIB, MIB).explained


_JOB = "[global]\nsize=16m\n[a]\nrw=write\n"


@pytest.mark.parametrize(
    ("text", "line", "complaint"),
    [
        ("", 1, "it has no job"),
        ("rw=read\n", 1, "an option before the first"),
        ("[a\nrw=read\n", 1, "'[a' is no [section]"),
        ("[a]\nrw=read\n", 1, "[a]: it has no size"),
        ("[a]\nsize=10%\n", 2, "[a]: size=10%: '10%' is no size"),
        ("[a]\nsize=${SIZE}\n", 2, "variables are refused"),
        ("[a]\nsize=1m\ninclude other.fio\n", 3, "include is refused"),
        (f"{_JOB}rw=trim\n", 5, "[a]: rw=trim is refused"),
        (f"{_JOB}filename=/dev/sda\n", 5, "[a]: filename=/dev/sda is refused"),
        (f"{_JOB}filename=a:b\n", 5, "[a]: filename=a:b is refused"),
        (f"{_JOB}exec_prerun=rm -rf /\n", 5, "[a]: exec_prerun is refused"),
        (f"{_JOB}write_bw_log=/tmp/x\n", 5, "[a]: write_bw_log is refused"),
        (f"{_JOB}read_iolog=/tmp/x\n", 5, "[a]: read_iolog is refused"),
        (f"{_JOB}ioengine=net\n", 5, "[a]: ioengine=net does not work on files"),
        (f"{_JOB}rwmixraed=3\n", 5, "[a]: rwmixraed is refused: fsjoule knows no such option"),
        (f"{_JOB}rwmixread=70\n", 3, "[a]: rwmixread belongs to rw and randrw"),
        (f"{_JOB}rate=fast\n", 5, "[a]: rate=fast: 'fast' is no size"),
        (f"{_JOB}mem=mmaphuge:/mnt/huge\n", 5, "[a]: mem='mmaphuge:/mnt/huge': the value is no plain word"),
        (f"{_JOB}bs=64m\n", 2, "[a]: size=16m is less than a block"),
        (f"{_JOB}numjobs=many\n", 5, "[a]: numjobs=many: it is a whole number"),
        (f"{_JOB}time_based\n", 5, "[a]: time_based needs a runtime"),
        (f"{_JOB}startdelay=5\n", 5, "[a]: startdelay is refused"),
        (f"{_JOB}[b]\nstonewall\nrw=write\n", 5, "[b]: it is the same job as [a]"),
    ],
)
def test_a_wrong_job_file_is_refused_with_its_line(tmp_path: Path, text: str, line: int, complaint: str) -> None:
    file = tmp_path / "own.fio"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        suite(str(file))
    assert str(caught.value).startswith(f"{file}:{line}: {complaint}")


@pytest.mark.skipif(shutil.which("fio") is None, reason="no fio on this computer")
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_fio_takes_the_jobs_as_they_are_passed(file: Path, tmp_path: Path) -> None:
    for job in _workloads(file.stem):
        argv = fio.run_argv(
            job.scaled(1e-3), str(tmp_path), output=str(tmp_path / "out"), before="true", after="", seed=1
        )
        done = subprocess.run([*argv, "--parse-only"], capture_output=True, text=True, timeout=20, check=False)
        assert (done.returncode, done.stderr) == (0, "")
