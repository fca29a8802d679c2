"""A package outside the tree, built, installed and used: suite, filesystem, instrument, recipe, format, command."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from compared_runs import write_kernels

PROJECT = Path(__file__).parents[2]

# What a build backend does, without the network: hatchling may be absent.
BACKEND = """\
import zipfile
from pathlib import Path

DIST = "fsjoule_mylab-1.0.dist-info"


def build_wheel(folder, config_settings=None, metadata_directory=None):
    files = {str(path): path.read_bytes() for path in Path("mylab").rglob("*") if path.is_file()}
    files[f"{DIST}/METADATA"] = b"Metadata-Version: 2.1\\nName: fsjoule-mylab\\nVersion: 1.0\\n"
    files[f"{DIST}/WHEEL"] = b"Wheel-Version: 1.0\\nGenerator: mylab\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"
    files[f"{DIST}/entry_points.txt"] = b"[fsjoule]\\nmylab = mylab.hooks\\n"
    files[f"{DIST}/RECORD"] = "".join(f"{name},,\\n" for name in (*files, f"{DIST}/RECORD")).encode()
    name = "fsjoule_mylab-1.0-py3-none-any.whl"
    with zipfile.ZipFile(Path(folder) / name, "w") as wheel:
        for path, content in files.items():
            wheel.writestr(path, content)
    return name
"""

PYPROJECT = """\
[project]
name = "fsjoule-mylab"
version = "1.0"

[project.entry-points.fsjoule]
mylab = "mylab.hooks"

[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
"""

HOOKS = """\
from pathlib import Path

from fsjoule.hooks import CliCommand, hook


@hook
def fsjoule_suites():
    return [Path(__file__).parent / "suites"]


@hook
def fsjoule_filesystems():
    from fsjoule.model.filesystem import Filesystem

    return [Filesystem("jfs", "jfs", ("mkfs.jfs", "-q"), check=("fsck.jfs", "-n"), modules=("jfs",))]


@hook
def fsjoule_layers():
    from fsjoule.model.layer import Layer, LayerPlace

    up = ("dmsetup", "create", "{node}", "--table", "0 65536 linear {device} 0")
    return [Layer("dm-linear", "32 MiB", LayerPlace.DEVICE, up, ("dmsetup", "remove", "{node}"), modules=("dm-mod",))]


@hook
def fsjoule_instruments():
    from fsjoule.meter.instruments import InstrumentKind

    address = ("clamp:", "clamp:FILE", "a clamp meter")
    return [InstrumentKind("clamp", *address, link_module="mylab.clamp", errors_module="mylab.clamp")]


@hook
def fsjoule_recipes():
    return [Path(__file__).parent / "images"]


@hook
def fsjoule_renderers():
    from fsjoule.report.renderers import Renderer

    return [Renderer("lost", lambda verdict, _file: "".join(f"{case.name}\\n" for case in failed(verdict)))]


def failed(verdict):
    return [case for case in verdict.cases if case.state == "failed"]


@hook
def fsjoule_importers():
    from fsjoule.runs.imports.importers import Importer

    return [Importer("stopwatch", "seconds, one a line", "mylab.hooks:read_stopwatch")]


def read_stopwatch(file, asked):
    from fsjoule.model import Stated
    from fsjoule.model.metrics import Metric
    from fsjoule.runs.imports.importers import Record, time_of

    for line, text in enumerate(file.read_text().splitlines(), start=1):
        figures = {Metric.DURATION: Stated(float(text))}
        yield Record(where=f"line {line}", time_utc=time_of(file, line, "", asked), work=file.stem, figures=figures)


@hook
def fsjoule_commands():
    return [CliCommand("mylab", "mylab.commands:app")]
"""

# It tells its counter of microjoules in eight bytes. The power of the load is in a file.
CLAMP = """\
import struct
import time
from dataclasses import dataclass
from pathlib import Path

from fsjoule.meter.energy.instrument import SteadyErrors
from fsjoule.meter.instruments import SearchResult
from fsjoule.meter.links.recording import PolledMeter
from fsjoule.meter.protocol.polled import PolledTrace
from fsjoule.model import PlainInfo

INFO = PlainInfo(
    instrument="clamp",
    firmware="1.2",
    serial_number="CL-7",
    rate_hz=100,
    measures_voltage=False,
    simulated=True,
)
HERE = Path("load")


def decode(frame):
    "Nanojoules of a frame."
    return struct.unpack(">Q", frame)[0] * 1000


def meter(name):
    return PolledMeter(INFO, name, lambda: begun(Path(name)), 0.005)


def begun(load):
    trace, watts, start_ns = PolledTrace(INFO), float(load.read_text()), time.monotonic_ns()

    def ask():
        now_ns = time.monotonic_ns()
        frame = struct.pack(">Q", round(watts * (now_ns - start_ns) * 1e-3))
        return lambda: trace.read(now_ns // 1000, decode(frame))

    return trace, ask


def find():
    return [SearchResult("clamp:load", "the folder here", "CL-7", INFO)] if HERE.exists() else []


@dataclass(frozen=True)
class ClampErrors:
    mark_s: float = 1e-3
    sample_s: float = 1e-3
    shift_s: float = 0.0
    sharpening: float = 0.0

    def steady(self, volts, amperes):
        return SteadyErrors(0.0, 0.0, 0.0, gain=0.01, shunt=0.0)


def errors(info, marks):
    return ClampErrors()
"""

COMMANDS = """\
import typer

app = typer.Typer(help="Look after my lab.", no_args_is_help=True)


@app.command()
def hello() -> None:
    "Greet the lab."
    print("hello")


@app.command()
def bye() -> None:
    "Leave the lab."
"""

SUITE = '[suite]\ntitle = "what our logger does"\n[[suite.workload]]\noperation = "mkfs"\n'

Fsjoule = Callable[..., subprocess.CompletedProcess[str]]


def _installer() -> list[str]:
    """The command that installs a folder without the network: uv's, which set-up brings, or pip's."""
    if uv := shutil.which("uv", path=f"{PROJECT / 'build/uv/bin'}{os.pathsep}{os.environ['PATH']}"):
        return [uv, "pip", "install", "--offline", "--python", sys.executable]
    base = str(getattr(sys, "_base_executable", sys.executable))
    return [base, "-m", "pip", "install", "--no-index", "--disable-pip-version-check"]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder into which the package was installed."""
    source, target = tmp_path_factory.mktemp("fsjoule-mylab"), tmp_path_factory.mktemp("site")
    recipe = PROJECT / "images" / "imx6ul.toml"
    files = {
        "pyproject.toml": PYPROJECT,
        "backend.py": BACKEND,
        "mylab/__init__.py": "",
        "mylab/hooks.py": HOOKS,
        "mylab/clamp.py": CLAMP,
        "mylab/commands.py": COMMANDS,
        "mylab/suites/logger.toml": SUITE,
        "mylab/images/mylab-board.toml": recipe.read_text(),
    }
    for name, text in files.items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(text)
    options = ("--no-deps", "--no-build-isolation", "--quiet", "--target", target)
    subprocess.run([*_installer(), *options, source], check=True, timeout=120)
    return target


@pytest.fixture
def fsjoule(installed: Path, tmp_path: Path) -> Fsjoule:
    """Runs the command line, beside which the package is installed, in a folder of its own."""

    def run(*words: object, package: Path = installed) -> subprocess.CompletedProcess[str]:
        program = Path(sys.executable).with_name("fsjoule")
        return subprocess.run(
            [program, *map(str, words)],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(package)},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return run


def test_its_suite_filesystem_and_recipe_are_offered(fsjoule: Fsjoule) -> None:
    choices = json.loads(fsjoule("choices", "--json").stdout)
    assert choices["suites"]["logger"] == "what our logger does"
    assert "jfs" in choices["filesystems"]
    shown = fsjoule("suites", "show", "logger", "--fs", "jfs", "--repeat", 2)
    assert "2 measurements of jfs, 2 repetitions, 2 boots" in " ".join(shown.stdout.split())
    assert "mylab-board" in fsjoule("choices", "--recipe", "absent").stderr


def test_its_filesystem_and_layer_can_be_measured(fsjoule: Fsjoule) -> None:
    options = ("--lg-env", PROJECT / "env" / "virtual.yaml", "--suite", "logger")
    stacks = ("--stack", "dm-crypt+dm-linear")
    bench = fsjoule("bench", *options, "--fs", "jfs", *stacks, "--collect-only", "-q")
    assert bench.returncode == 0
    assert bench.stdout.split() == [f"0{i}-r{i}-jfs-mkfs-card+dm-crypt+dm-linear" for i in (1, 2, 3)]


def test_its_instrument_is_found_and_measures(fsjoule: Fsjoule, tmp_path: Path) -> None:
    (tmp_path / "load").write_text("2.5")
    listed = {each["address"]: each for each in json.loads(fsjoule("meter", "list", "--json").stdout)}
    assert listed["clamp:load"]["meter"]["serial_number"] == "CL-7"
    assert "clamp, 1.2" in fsjoule("meter", "info", "--meter", "clamp:load").stdout
    done = fsjoule("meter", "run", "--meter", "clamp:load", "--idle", 0.5, "--json", "--", "sleep", 0.5)
    assert done.returncode == 0, done.stderr
    [measured] = json.loads(done.stderr.splitlines()[-1])["runs"]
    assert measured["joules"]["value"] == pytest.approx(2.5 * measured["window_seconds"], rel=0.01)
    assert measured["joules"]["uncertainty"] == pytest.approx(0.01 * measured["joules"]["value"], rel=0.2)


def test_its_renderer_shows_a_verdict(fsjoule: Fsjoule, tmp_path: Path) -> None:
    run = write_kernels(tmp_path / "run", speeds={"6.1": 1.0, "6.12": 0.9}, boots=8)
    lost = fsjoule("compare", "6.1", "6.12", "--within", run, "--format", "lost", "--format", "junit=junit.xml")
    assert lost.returncode == 0, lost.stderr
    failures = ET.parse(tmp_path / "junit.xml").iterfind(".//testcase[failure]")
    assert lost.stdout.splitlines() == [case.get("name", "").removesuffix(" (simulated)") for case in failures]
    assert lost.stdout


def test_its_importer_makes_a_run(fsjoule: Fsjoule, tmp_path: Path) -> None:
    (tmp_path / "boot.txt").write_text("9.5\n9.6\n")
    done = fsjoule("import", "stopwatch", "boot.txt", "--time", "2026-03-09T10:00:00Z", "--json")
    assert done.returncode == 0, done.stderr
    [run] = json.loads(done.stdout)
    told = json.loads(fsjoule("show", run["path"], "--json").stdout)["measurements"]
    assert [each["stated"]["duration"]["value"] for each in told] == [9.5, 9.6]
    assert told[0]["series"]["suite"] == "imported from stopwatch"


def test_its_command_is_in_the_help_and_runs(fsjoule: Fsjoule) -> None:
    text = fsjoule("--help").stdout
    assert text.index("Packages:") < text.index("mylab")
    assert "Look after my lab." in text
    assert fsjoule("mylab", "hello").stdout == "hello\n"


def test_a_package_that_breaks_is_named_and_takes_nothing_with_it(
    fsjoule: Fsjoule, installed: Path, tmp_path: Path
) -> None:
    broken = tmp_path / "site"
    shutil.copytree(installed, broken)
    for name in ("clamp", "commands"):
        (broken / "mylab" / f"{name}.py").write_text("import absent\n")
    known = "of package fsjoule-mylab 1.0: mylab.{} cannot be loaded: ModuleNotFoundError: No module named 'absent'"
    asked = fsjoule("meter", "info", "--meter", "clamp:load", package=broken)
    assert asked.returncode == 2
    assert f"error: instrument clamp {known.format('clamp')}" in asked.stderr
    command = fsjoule("mylab", "hello", package=broken)
    assert command.returncode == 2
    assert f"error: command mylab {known.format('commands:app')}" in command.stderr
    main = fsjoule("--help", package=broken)
    assert main.returncode == 0
    assert f"warning: command mylab {known.format('commands:app')}" in main.stderr
    assert "gate" in main.stdout
    (broken / "mylab" / "hooks.py").write_text("import absent\n")
    listed = fsjoule("suites", "list", package=broken)
    assert listed.returncode == 0
    assert "quick" in listed.stdout
    assert "package fsjoule-mylab 1.0 is left out: cannot be loaded: ModuleNotFoundError" in listed.stderr
