"""The exit code of a bench tells a fault of the lab, which is worth another try, from what is not."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fsjoule.pytest_plugin import exit_code

PROJECT = Path(__file__).parents[2]
# Loading labgrid and the other plugins takes seconds. Where they are not tested, pytest starts without them.
ALONE = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
TESTS = """\
import pytest
from fsjoule.errors import BoardError, ConfigError, MeasurementInvalid, StorageError
from fsjoule.store.folder import RunFolder
from labgrid.remote.common import ResourceEntry

@pytest.fixture
def measurement(request):
    raise BoardError("the board hung")

@pytest.fixture
def dead(request):
    request.session.shouldstop = "stopped: the board hung"
    raise BoardError("the board hung")

@pytest.fixture
def no_place():
    pytest.exit("there is no such place", returncode=2)

@pytest.fixture
def gone():
    return ResourceEntry({}).args

@pytest.fixture(scope="session")
def unstored():
    yield
    raise StorageError("run.json could not be written: No space left on device")

@pytest.fixture(scope="session")
def unstored_either(unstored):
    yield
    raise BoardError("the board could not be switched off")

def test_measured(): pass
def test_lab(measurement): pass
def test_labgrid(gone): pass
def test_invalid(): raise MeasurementInvalid("write", ["no marks"])
def test_wrong(): assert 1 == 2
def test_refused(no_place): pass
def test_config(): raise ConfigError("no such place")
def test_bug(): RunFolder(None).add(None, None, {})
def test_ctrl_c(): raise KeyboardInterrupt
def test_dead(dead): pass
def test_after(): pass
def test_full(unstored): pass
def test_unstored(unstored): raise KeyboardInterrupt
def test_neither(unstored_either): raise KeyboardInterrupt
"""


# What runs, as pytest's -k has it, and the exit code.
CASES = {
    "measured": 0,
    "measured or lab": 4,
    "full": 4,
    "unstored": 130,
    "neither": 130,
    "labgrid": 4,
    "lab or invalid": 4,
    "invalid": 1,
    "wrong": 1,
    "lab or wrong": 4,
    "lab or config": 2,
    "bug": 70,
    "lab or config or bug": 70,
    "lab or ctrl_c": 130,
    "dead or after": 4,
    "invalid or dead or after": 4,
    "wrong or dead or after": 4,
    "bug or dead or after": 70,
    "nothing": 2,
    "refused": 2,
}
# The same where energy was lost.
LOST = "2 of 2 measurements have no energy: x"
LOST_CASES = {"measured": 4, "invalid": 4, "config": 2, "bug": 70}
# All in one process: starting pytest takes seconds.
MAIN = """\
import json, pytest, sys
from fsjoule.pytest_plugin.exit_code import ExitCode
from fsjoule.pytest_plugin import Lines
printed = []

class Quiet:
    @pytest.hookimpl(tryfirst=True)
    def pytest_configure(self, config):
        config.pluginmanager.set_blocked("terminalreporter")
        config.pluginmanager.register(Lines(printed.append, lambda: printed.append("all else")))

options = ["-p", "no:cacheprovider", "-p", "no:unraisableexception", "-q", "--tb=no", "."]
codes = [
    int(pytest.main([*options, "-k", case], plugins=[ExitCode(lambda: lost)])) for case, lost in json.load(sys.stdin)
]
quiet = sys.stdout
sys.stdout = sys.stderr
pytest.main([*options, "-k", "lab or invalid or bug or dead"], plugins=[Quiet()])
pytest.main([*options, "--collect-only", "-k", "measured or lab"], plugins=[Quiet()])
sys.stdout = quiet
print(json.dumps([codes, printed]))
"""


def test_exit_codes(tmp_path: Path) -> None:
    (tmp_path / "test_bench.py").write_text(TESTS)
    done = subprocess.run(
        [sys.executable, "-c", MAIN],
        cwd=tmp_path,
        env=os.environ | ALONE,
        input=json.dumps([(case, "") for case in CASES] + [(case, LOST) for case in LOST_CASES]),
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    codes, printed = json.loads(done.stdout.splitlines()[-1])
    assert dict(zip(CASES, codes, strict=False)) == CASES
    assert "nothing was selected" in done.stderr
    assert "test_measured, test_lab, " in done.stderr
    # Lost energy is a fault of the lab unless something worse is.
    assert dict(zip(LOST_CASES, codes[len(CASES) :], strict=True)) == LOST_CASES
    assert done.stderr.count(LOST) == 2
    # fsjoule's own errors are told when they happen, by who knows what was measured; a bug has its traceback.
    fault, bug, *rest = printed
    assert fault == "ERROR: KeyError: 'params'"
    assert "AttributeError: 'NoneType'" in bug
    assert rest == ["all else", "test_measured", "test_lab", "test_labgrid", "all else"]


# Benches that do not get as far as their lab, and what is no bench, in one process as well.
BENCHES = """\
import contextlib, io, json, pytest, sys
told = []
for argv in json.loads(sys.argv[1]):
    output = io.StringIO()
    with contextlib.redirect_stderr(output), contextlib.redirect_stdout(output):
        try:
            code = int(pytest.main(["-p", "no:cacheprovider", "--capture=no", *argv]))
        except SystemExit as ended:
            code = ended.code
    told.append((code, output.getvalue()))
print(json.dumps(told))
"""
BENCH = str(PROJECT / "tests" / "bench")
ENVIRONMENT = PROJECT / "env" / "virtual.yaml"
# Options of a bench, and what it says.
WRONG = {
    "--no-such-option": "unrecognized arguments: --no-such-option",
    "--suite": "expected one argument",
    "--suite fast": r"unknown suite 'fast'(?=\n  hint: choose from: .*quick)",
    "--repeat two": "argument --repeat: 'two' is no number",
    "--repeat 99999999": "99999999 repetitions are too many",
    "--seed 99999999999999999999999": "--seed 99999999999999999999999: it is out of range",
    "--results=": "argument --results: it is empty",
    "--size-factor half": "argument --size-factor: invalid float value: 'half'",
    "--fs ext5": r"unknown filesystem 'ext5'(?=\n  hint: .*choose from: bcachefs, btrfs, .*ext2, ext3, ext4, .*f2fs)",
    "--provision nfs": r"unknown way to provision 'nfs'(?=\n  hint: choose from: root, scratch)",
    "--provision root --fs vfat": "no card image can have 'vfat' as its root",
    "--results /proc/x": "--results: nothing can be written in /proc/x",
    "--kernel 2.6": r"unknown kernel '2.6'(?=\n  hint: choose from: 5.10, 6.1)",
    f"--kernel {'x' * 300}": "File name too long",
}
# What is changed in its environment file, and what it says.
BROKEN = [
    ("BoardStrategy:", "BordStrategy:", r"unknown driver class 'BordStrategy'\n  hint: did you mean BoardStrategy"),
    ("imports:\n", "imports: [\n", "not YAML"),
]
LISTED = "-q --collect-only --repeat 1 --seed 1 --fs"


def test_wrong_input_is_told_without_a_board_and_so_is_what_would_be_measured(tmp_path: Path) -> None:
    bench = [BENCH, "--lg-env", str(ENVIRONMENT)]
    broken: list[tuple[list[str], int, str]] = []
    for number, (right, wrong, said) in enumerate(BROKEN):
        environment = tmp_path / f"broken{number}.yaml"
        environment.write_text(ENVIRONMENT.read_text().replace(right, wrong))
        broken.append(([BENCH, "--lg-env", str(environment)], 2, rf"{environment.name}:\d+: {said}"))
    (empty := tmp_path / "empty").mkdir()
    cases = [
        ([*bench, *f"{LISTED} ext4".split()], 0, r"-r1-ext4-boot\]"),
        ([*bench, *f"{LISTED} ext5".split()], 2, "choose from: "),
        # Without a bench pytest's own exit codes stay.
        ([str(empty), "--no-such-option"], 4, "unrecognized arguments"),
        ([str(empty)], 5, "no tests ran"),
        # Nothing is fetched, built or started for nothing.
        ([*bench, "-k", "nothing"], 2, "\\nERROR: nothing was selected\n  hint: there are: "),
        ([*bench, "-k", "and ("], 2, "\\nERROR: Wrong expression passed to '-k'.*\n  hint: "),
        ([f"{BENCH}/absent.py", "--lg-env", str(ENVIRONMENT)], 2, "ERROR: file or directory not found.*\n  hint: "),
        ([BENCH, "--no-such-option"], 2, "ERROR: unrecognized arguments: --no-such-option\n  hint: "),
        ([BENCH], 2, "measuring needs a board: add --lg-env env/virtual.yaml"),
        ([*bench, "--repeat", "0"], 2, "--repeat 0: at least one repetition is needed"),
        *(([*bench, *options.split()], 2, rf"{said}[\s\S]*hint: ") for options, said in WRONG.items()),
        *broken,
    ]
    (folder := tmp_path / "here").mkdir()
    argv = [sys.executable, "-c", BENCHES, json.dumps([words for words, _, _ in cases])]
    # What make sets, as somebody else may have set it.
    environment = {name: text for name, text in os.environ.items() if not name.startswith("LG_")}
    environment["FSJOULE_SETUP_STARTED"] = "abc"
    environment["FSJOULE_CACHE_DIR"] = str(cache := tmp_path / "cache")
    done = subprocess.run(argv, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=True)
    told: list[tuple[int, str]] = json.loads(done.stdout.splitlines()[-1])
    for (words, expected, wanted), (code, said) in zip(cases, told, strict=True):
        assert code == expected, (words, said)
        assert re.search(wanted, said), (words, said)
        # Wrong input is a line or two.
        for trace in ("Traceback", "INTERNALERROR", "pytest_plugin", "lab is up"):
            assert trace not in said, (words, said)
        assert expected != 2 or "usage: " not in said, (words, said)
    assert not list(folder.iterdir())
    assert not cache.exists()


@pytest.mark.parametrize(
    ("broken", "told"), [("/dev/full", "No space left on device; all results are stored"), ("", "")]
)
def test_output_that_cannot_be_written_is_no_fault_of_the_lab(tmp_path: Path, broken: str, told: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)  # as head does once it has seen enough
    with open(broken or writer, "w") as output:  # noqa: PTH123 - a descriptor
        done = subprocess.run(
            [sys.executable, "-c", GUARDED],
            cwd=tmp_path,
            env=os.environ | ALONE | {"PYTHONUNBUFFERED": "1" if broken else ""},
            stdout=output,
            stderr=subprocess.PIPE,
            text=True,
            timeout=120,
            check=False,
        )
    assert (done.returncode, done.stderr.strip().endswith(told), bool(done.stderr)) == (0, True, bool(told)), (
        done.stderr
    )


# A bench's session without a bench: what is around pytest's main function is the same.
GUARDED = """\
import pytest, sys
from fsjoule.pytest_plugin.exit_code import OUTPUT, ExitCode, ending

class Bench:
    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_cmdline_main(self, config):
        return (yield from ending(config))

    def pytest_configure(self, config):
        config.pluginmanager.register(ExitCode(), ExitCode.NAME)

    def pytest_terminal_summary(self, config):
        config.stash[OUTPUT].write("the tables")

open("test_it.py", "w").write("def test_it(): print('x' * 100000)")
sys.exit(int(pytest.main(["-p", "no:cacheprovider", "-v", "."], plugins=[Bench()])))
"""


def test_a_crash_is_a_bug_and_told_as_one(tmp_path: Path) -> None:
    broken = (
        "open('test_it.py', 'w').write('def test_it(): pass')\nBench.pytest_collection_finish = lambda self: 1 / 0\n"
    )
    head, sep, tail = GUARDED.partition("open(")
    program = head + broken + sep + tail
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=os.environ | ALONE,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == exit_code.BUG
    assert "this is a bug in fsjoule; please report it" in done.stderr


LEAKING = """\
import socket, pytest
from fsjoule.pytest_plugin import exit_code

class Forgiving:
    @pytest.hookimpl(tryfirst=True)
    def pytest_configure(self, config):
        exit_code.forgive_leaks(config)

    @pytest.hookimpl(tryfirst=True)
    def pytest_unconfigure(self):
        # In a ring, so that it is found when all is over.
        ring = [socket.socket()]
        ring.append(ring)

options = ["-o", "filterwarnings=error", "-p", "no:cacheprovider", "--collect-only"]
raise SystemExit(pytest.main(options, plugins=[Forgiving()]))
"""


def test_what_labgrid_leaves_open_is_no_error_at_the_very_end_either(tmp_path: Path) -> None:
    (tmp_path / "test_none.py").write_text("def test_none(): pass\n")
    argv = [sys.executable, "-X", "dev", "-c", LEAKING]
    environment = os.environ | ALONE
    done = subprocess.run(argv, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
