"""Documents with more in them than can be: refused in a moment, by few words."""

from __future__ import annotations

import io
import json
import resource
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import PROGRAM
from reported_runs import write_run
from results_factory import make_run
from rich.console import Console

from fsjoule.errors import ConfigError, ResultError
from fsjoule.host.inside import DOCUMENT_BYTES, MOST_ENTRIES
from fsjoule.lab import read_environment
from fsjoule.report.terminal import named_lines
from fsjoule.runs.options import BenchOptions
from fsjoule.runs.plan import planned
from fsjoule.runs.request import choose
from fsjoule.store.documents import parse
from fsjoule.store.reader import load_run
from fsjoule.store.schemas import RUN, encode

MANY = MOST_ENTRIES + 1


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_run(tmp_path / "results").path


def change(file: Path, **values: object) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


def first(folder: Path) -> Path:
    return min((folder / "measurements").iterdir()) / "measurement.json"


@pytest.mark.parametrize("text", ["1e19", "1e0308", "999999999999999999e9", "1E+19", "-10000000000000000000", "2.5e18"])
def test_numbers_above_an_exabyte_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="too large"):
        parse(f'{{"a": [1, {text}]}}'.encode())


@pytest.mark.parametrize("number", [1e18, -1e18, 10**18, 1e-300, 5e17, 0.1 + 0.2])
def test_numbers_up_to_an_exabyte_are_read(number: float) -> None:
    assert parse(json.dumps([number]).encode())[0] == [number]


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")])
def test_forty_levels_are_read_and_no_more(opening: str, closing: str) -> None:
    parse((opening * 40 + "1" + closing * 40).encode())
    parse(json.dumps({"text": "[" * 100}).encode())
    for depth in (41, 500, 100_000):
        with pytest.raises(ValueError, match="deeper than 40 levels"):
            parse((opening * depth + "1" + closing * depth).encode())


@pytest.mark.parametrize("value", [[0] * MANY, {str(i): 0 for i in range(MANY)}, [[], ["x"] * MANY]])
def test_lists_and_objects_have_an_end(value: object) -> None:
    with pytest.raises(ValueError, match=f"{MANY} values in one list or object"):
        parse(json.dumps(value).encode())


def test_a_document_has_an_end() -> None:
    with pytest.raises(ValueError, match="larger than 16 MiB"):
        parse(b"[" + b" " * DOCUMENT_BYTES + b"]")


def test_a_name_that_stands_twice_among_many_is_found_at_once() -> None:
    names = ",".join(f'"{i}":0' for i in range(800_000))
    with pytest.raises(ValueError, match="'799999' is there twice"):
        parse(f'{{{names},"799999":1}}'.encode())


def test_of_each_list_the_first_error_is_told(folder: Path) -> None:
    """Pydantic would gather all of them first: a kilobyte for each zero."""
    change(folder / "run.json", measurements=[0] * 30_000, boards={str(i): {} for i in range(30_000)}, command=[1, 2])
    with pytest.raises(ResultError) as caught:
        load_run(folder)
    places = [line.split(":")[0].strip() for line in str(caught.value).splitlines()[1:-1]]
    boards = [place for place in places if place.startswith("boards.")]
    assert set(places) - set(boards) == {"measurements.0", "command.0"}
    assert {place.split(".")[1] for place in boards} == {"0"}


def four_million_zeros(folder: Path) -> None:
    change(folder / "run.json", measurements=[0] * 4_000_000)


def zeros_in_lists(folder: Path) -> None:
    change(folder / "run.json", measurements=[[0] * 30_000] * 150)


def objects_in_lists(folder: Path) -> None:
    change(folder / "run.json", faults=[{str(j): 0 for j in range(300)}] * 3000)


def zeros_as_steps(folder: Path) -> None:
    first(folder).with_name("steps.json").write_text(json.dumps([0] * 4_000_000))


def a_million_names(folder: Path) -> None:
    change(folder / "run.json", measurements=[f"{i:07d}-x" for i in range(1_000_000)])


@pytest.mark.parametrize(
    ("damage", "command", "code", "said"),
    [
        (four_million_zeros, "show", 2, "4000000 values in one list"),
        (a_million_names, "show", 2, "1000000 values in one list"),
        (zeros_in_lists, "show", 2, "measurements.0: Input should be a valid string"),
        (objects_in_lists, "show", 2, "faults.0."),
        (zeros_as_steps, "report allure", 0, ""),
    ],
)
def test_many_values_cost_neither_time_nor_memory(
    damage: Callable[[Path], None], command: str, code: int, said: str, folder: Path
) -> None:
    damage(folder)

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (20, 25))
        resource.setrlimit(resource.RLIMIT_DATA, (4 << 30, 4 << 30))

    words = [str(PROGRAM), *command.split(), str(folder)]
    done = subprocess.run(
        words, cwd=folder.parent, preexec_fn=limited, capture_output=True, text=True, check=False, timeout=400
    )
    assert done.returncode == code, done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_run_has_no_more_measurements_than_its_plan(folder: Path) -> None:
    entries = len(load_run(folder).run.plan.entries)
    change(folder / "run.json", measurements=[f"{i:02d}-x" for i in range(entries)])
    assert load_run(folder).damaged
    change(folder / "run.json", measurements=[f"{i:02d}-x" for i in range(entries + 1)])
    with pytest.raises(ResultError, match=f"{entries + 1} of a plan with {entries} entries"):
        load_run(folder)


@pytest.mark.parametrize("name", ["invalid_reasons", "notes"])
def test_a_measurement_has_no_thousands_of_reasons(name: str, folder: Path) -> None:
    change(first(folder), **{name: ["why"] * 1000})
    assert first(folder).parent.name not in load_run(folder).damaged
    change(first(folder), **{name: ["why"] * 1001})
    assert f"{name}: 1001 are too many" in load_run(folder).damaged[first(folder).parent.name]


def test_long_lists_and_reasons_are_cut_where_they_are_shown() -> None:
    console = Console(record=True, width=200, file=io.StringIO())
    console.print(named_lines("damaged", [(f"n{i}", "x" * 100_000) for i in range(1000)], "red"))
    shown = console.export_text()
    assert "and 800 more" in shown
    assert shown.count("x") == 200 * 4000


def test_what_cannot_be_read_back_is_not_stored() -> None:
    made = make_run(repeat=1)
    plan = replace(made.run.plan, entries=made.run.plan.entries[:1] * MANY)
    with pytest.raises(ResultError, match="cannot be stored:it is larger than 16 MiB"):
        encode(RUN, replace(made.run, plan=plan, measurements=()), "the run")


def test_a_plan_that_no_run_can_hold_is_refused_before_it_begins() -> None:
    environment_file = Path(__file__).parents[2] / "env" / "virtual.yaml"
    choice = choose(
        BenchOptions(
            suite="quick", fs="ext4,btrfs,xfs,f2fs,vfat", kernel="6.1", repeat=1000, results=Path("results"), seed=1
        ),
        read_environment(environment_file),
    )
    with pytest.raises(ConfigError, match="measurements is too long: the limit is 20000"):
        planned(choice, read_environment(environment_file).profile, choice.kernels)
