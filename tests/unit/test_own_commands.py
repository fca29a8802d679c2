"""A user's own commands: as data with file and line, and as work on a board of fakes."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest
from fake_bench import FILES, answer, bench_of, traced

from fsjoule.ci.lava.job import LavaJob, suite_job
from fsjoule.errors import ConfigError
from fsjoule.model import KIB, MIB, Measurement, TimedWorkload
from fsjoule.model.workload import OwnCommand
from fsjoule.ports import CommandResult
from fsjoule.suites import Planning, own_files, packed, plan_entries, project_suites, suite, suite_of, unpacked
from fsjoule.testing import FakeMeter, FakeShell

SCRIPT = b"#!/bin/sh\necho wrote 2097152 bytes\n"
LOGGER = """\
[suite]
title = "a logger"

[[suite.workload]]
name = "logger"
command = ["./logger", "--kib", "{size_kib}", "{directory}/log"]
files = ["bin/logger"]
prepare = [["mkdir", "log"]]
size_mib = 4
seconds = 30
moved = 'wrote (\\d+) bytes'
"""
HEAD = '[suite]\ntitle = "t"\n[[suite.workload]]\n'


def _written(folder: Path, text: str = LOGGER, name: str = "own.toml") -> str:
    (folder / "bin").mkdir(exist_ok=True)
    (folder / "bin" / "logger").write_bytes(SCRIPT)
    (folder / name).write_text(text)
    return str(folder / name)


def _command(file: str) -> tuple[TimedWorkload, OwnCommand]:
    [workload] = suite(file).workloads
    assert isinstance(workload, TimedWorkload)
    assert workload.command is not None
    return workload, workload.command


def test_a_changed_script_is_another_series(tmp_path: Path) -> None:
    file = _written(tmp_path)
    workload, command = _command(file)
    assert (workload.slug, workload.label, workload.space_bytes) == ("command-logger", "logger", 4 * MIB)
    assert workload.identity == f"command-logger 4096KiB {command.digest(4 * MIB)}"
    for text in (LOGGER.replace("--kib", "--size"), LOGGER.replace('["mkdir", "log"]', '["mkdir", "logs"]')):
        assert _command(_written(tmp_path, text))[0].identity != workload.identity
    (tmp_path / "bin" / "logger").write_bytes(SCRIPT + b"# changed\n")
    assert _command(file)[0].identity != workload.identity
    assert workload.scaled(0.5).identity == f"command-logger 2048KiB {command.digest(2 * MIB)}"


def test_what_a_command_moves_is_part_of_its_series_and_scales_with_its_size(tmp_path: Path) -> None:
    fixed = f'{HEAD}command = ["dd", "count=10"]\nmoved_mib = 10\n'
    workload, command = _command(_written(tmp_path, fixed))
    assert workload.scaled(0.1) == workload, "it is not told its size"
    other, _ = _command(_written(tmp_path, fixed.replace("moved_mib = 10", "moved_mib = 20")))
    assert other.identity != workload.identity
    sized = f'{HEAD}command = ["dd", "count={{size_mib}}"]\nsize_mib = 10\nmoved_mib = 10\n'
    workload, command = _command(_written(tmp_path, sized))
    assert command.moved_bytes == 10 * MIB
    smaller = workload.scaled(0.25)
    assert smaller.command is not None
    assert (smaller.size_bytes, smaller.command.moved_bytes) == (2 * MIB, 2 * MIB)


@pytest.mark.parametrize(
    ("text", "line", "complaint"),
    [
        (f"{HEAD}command = []\n", 4, "command: Tuple should have at least 1 item"),
        (f'{HEAD}command = "ls"\n', 4, "command: Input should be a valid tuple"),
        (f'{HEAD}command = ["My Tool"]\n', 4, "command: 'My Tool' cannot be a workload's name"),
        (f'{HEAD}command = ["./logger"]\n', 4, "command: ./logger is not among files"),
        (f'{HEAD}command = ["ls", "{{folder}}"]\n', 4, "command: {folder} stands for nothing"),
        (f'{HEAD}command = ["ls", "{{size_kib}}"]\n', 4, "command: {size_kib} needs size_mib"),
        (f'{HEAD}command = ["ls", "{{size_mib}}"]\nsize_mib = 1.5\n', 4, "command: {size_mib} is whole MiB"),
        (f'{HEAD}command = ["ls"]\nfiles = ["none"]\n', 5, "files: none cannot be read"),
        (f'{HEAD}command = ["ls"]\nfiles = ["../x"]\n', 5, "files: '../x' is refused"),
        (f'{HEAD}command = ["ls"]\nmoved = "wrote"\n', 5, "moved: 'wrote' needs one group"),
        (f'{HEAD}command = ["ls"]\nmoved = "("\n', 5, "moved: '(' is no pattern"),
        (f'{HEAD}command = ["ls"]\nmoved = "(a)"\nmoved_mib = 1\n', 5, "moved and moved_mib are two answers"),
        (f'{HEAD}command = ["ls"]\nseconds = 0\n', 5, "seconds: Input should be greater than 0"),
        (f'{HEAD}operation = "command"\n', 3, "a command has no operation"),
        (f'{HEAD}operation = "read"\nblock_kib = 4\nsize_mib = 1\nfio = {{size = "1g"}}\n', 7, "fio.size is refused"),
        (
            f'{HEAD}operation = "read"\nblock_kib = 4\nsize_mib = 1\nfio = {{rate = "x"}}\n',
            7,
            "fio.rate=x: 'x' is no size",
        ),
        (f'{HEAD}operation = "read"\nblock_kib = 4\nsize_mib = 1\nfio.filename = "/dev/sda"\n', 7, "fio.filename is"),
        (f'{HEAD}operation = "read"\nblock_kib = 4\nsize_mib = 1\nengine = "net"\n', 7, "engine 'net' does not"),
    ],
)
def test_a_wrong_command_is_refused_with_its_line(tmp_path: Path, text: str, line: int, complaint: str) -> None:
    file = _written(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        suite(file)
    assert str(caught.value).startswith(f"{file}:{line}: {complaint}")


def _measured(file: str, shell: FakeShell, output: bytes, *, kept: bool = True) -> Measurement:
    """The command measured on a fake board on which it prints that."""
    own = suite(file)
    bench = bench_of(shell=shell, meter=FakeMeter(traced("S1", "E1", runtime_s=0.02)))
    shell.files["/tmp/fsjoule/output"] = output
    entries = plan_entries(own, Planning(("ext4",), ("6.1",), repeat=1, seed=3)).entries
    files = packed(own.contents) if kept else {}
    bench = replace(bench, run=replace(bench.run, plan=replace(bench.plan, suite="own", entries=entries, files=files)))
    return bench.measure(entries[0])


def _answered(exit_code: int) -> FakeShell:
    def answered(argv: tuple[str, ...]) -> CommandResult:
        failed = (argv[0].endswith("/timed") and exit_code) or (argv[:2] == ("test", "-x"))
        return CommandResult(argv, int(failed), "") if failed else answer(argv)

    return FakeShell(answered, dict(FILES))


def test_a_command_runs_with_its_files_in_the_measured_directory(tmp_path: Path) -> None:
    shell = _answered(0)
    measured = _measured(_written(tmp_path), shell, b"hello\nwrote 2097152 bytes\n")
    assert measured.invalid_reasons == ()
    assert measured.throughput_mib_per_s == pytest.approx(2 / measured.duration_s if measured.duration_s else 0)
    assert measured.write_amplification is None
    [timed] = [argv for argv in shell.asked if argv[0].endswith("/timed")]
    place = f"/tmp/fsjoule/own/{hashlib.sha256(SCRIPT).hexdigest()[:16]}/logger"
    assert shell.files[place] == SCRIPT
    directory = "/tmp/fsjoule/scratch"
    assert timed[7:11] == ("timeout", "-s", "KILL", "30")
    assert timed[-5:] == (directory, place, "--kib", "4096", f"{directory}/log")
    assert any(argv[-2:] == ("mkdir", "log") for argv in shell.asked)


@pytest.mark.parametrize(
    ("exit_code", "output", "reason"),
    [
        (3, b"no space\n", "`./logger --kib {size_kib} {directory}/log` ended with exit code 3: no space"),
        (0, b"done\n", "it printed no number of bytes that matches"),
        (0, b"wrote 0 bytes\n", "it printed no number of bytes that matches"),
    ],
)
def test_a_command_that_fails_makes_no_figure(tmp_path: Path, exit_code: int, output: bytes, reason: str) -> None:
    measured = _measured(_written(tmp_path), _answered(exit_code), output)
    assert any(each.startswith(reason) for each in measured.invalid_reasons)


def test_a_plan_without_the_file_says_so(tmp_path: Path) -> None:
    measured = _measured(_written(tmp_path), _answered(0), b"", kept=False)
    assert measured.invalid_reasons == ("the run does not have the file logger that the command needs",)
    own = suite(_written(tmp_path))
    with pytest.raises(ConfigError, match="another checksum"):
        unpacked({"0" * 64: next(iter(packed(own.contents).values()))})


def test_a_resumed_run_has_its_files_though_the_suite_is_gone(tmp_path: Path) -> None:
    file = _written(tmp_path)
    own = suite(file)
    shell = FakeShell(answer)
    entries = plan_entries(own, Planning(("ext4",), ("6.1",), repeat=1, seed=3)).entries
    plan = replace(
        bench_of(shell=shell, meter=FakeMeter()).plan, suite="own", entries=entries, files=packed(own.contents)
    )
    Path(file).unlink()
    assert (suite_of(plan).workloads, suite_of(plan).contents) == (own.workloads, own.contents)


def test_a_lava_job_brings_the_files_of_a_suite(tmp_path: Path) -> None:
    files = own_files(suite(_written(tmp_path)))
    assert list(files) == ["own.toml", "bin/logger"]
    job = suite_job(LavaJob("n", ("--fs", "ext4"), "board", own=files))
    for words in ("own=$(mktemp -d)", 'base64 -d > "$own"/bin/logger', 'bench --fs ext4 --suite "$own"/own.toml'):
        assert words in job


def test_a_project_names_its_suites(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _written(tmp_path)
    project = tmp_path / "fsjoule.toml"
    monkeypatch.setenv("FSJOULE_PROJECT", str(project))
    project.write_text('[suites]\nours = "own.toml"\n')
    assert project_suites() == {"ours": tmp_path / "own.toml"}
    assert (suite("ours").name, suite("ours").file) == ("ours", str(tmp_path / "own.toml"))
    for line, complaint in (
        ("ours = 1", "ours: 1 is no suite"),
        ('ours = "none.toml"', "ours: there is no none.toml"),
        ('quick = "own.toml"', "quick: fsjoule has a suite of that name"),
        ('"my suite" = "own.toml"', "'my suite' cannot be a suite's name"),
    ):
        project.write_text(f"[suites]\n{line}\n")
        with pytest.raises(ConfigError) as caught:
            project_suites()
        assert str(caught.value).startswith(f"{project}:2: {complaint}")


def test_shipped_suites_bring_their_scripts() -> None:
    for name, script in (("sqlite", "sqlite.sh"), ("files", "files.sh")):
        commands = [each.command for each in suite(name).workloads if isinstance(each, TimedWorkload)]
        assert {file for command in commands if command for file, _ in command.files} == {script}
    assert all(each.size_bytes == 256 * KIB for each in suite("sqlite").workloads)
