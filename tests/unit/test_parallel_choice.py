"""Which boards may boot at once, and errors that cross from one process to another."""

from __future__ import annotations

import os
import pickle
import tempfile
from pathlib import Path

import pytest

from fsjoule.cli.bench import bench_program
from fsjoule.errors import (
    BoardError,
    ConfigError,
    FsjouleError,
    LabError,
    MeasurementInvalid,
    MissingToolError,
    NoMeterError,
    PlaceHeldError,
    PlaceLostError,
)
from fsjoule.lab import place_request, read_environment
from fsjoule.runs.options import BenchOptions
from fsjoule.runs.parallel.processes import Processes
from fsjoule.runs.request import RunRequest, choose

ENVIRONMENTS = Path(__file__).parents[2] / "env"


def chosen(
    boards: int | None, environment: str = "deterministic.yaml", wait: str | None = None, tags: str | None = None
) -> RunRequest:
    return choose(
        BenchOptions(suite="quick", fs="ext4", repeat=1, results=Path("results"), seed=1, boards=boards),
        read_environment(ENVIRONMENTS / environment, place_request(tags, wait, None)),
        pair=("6.1", "6.12"),
    )


def test_only_boards_in_guest_time_are_brought_up_for_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LG_COORDINATOR", raising=False)
    assert chosen(4).boards == 4
    assert chosen(1, "virtual.yaml").boards == 1
    with pytest.raises(ConfigError, match="--boards 2: only boards in guest time are brought up") as refused:
        chosen(2, "virtual.yaml")
    assert "env/deterministic.yaml" in str(refused.value)
    with pytest.raises(ConfigError, match="--boards 0: at least one"):
        chosen(0)
    with pytest.raises(ConfigError, match="100000 boards do not fit: each takes"):
        chosen(100_000)


def test_both_sides_of_a_pair_boot_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LG_COORDINATOR", raising=False)
    cpus = os.sched_getaffinity(0)
    assert chosen(None).boards == min(2, len(cpus))
    assert chosen(1).boards == 1
    assert chosen(None, "virtual.yaml").boards == 1
    assert chosen(None, wait="5m").boards == 1
    os.sched_setaffinity(0, {min(cpus)})
    try:
        assert chosen(None).boards == 1
    finally:
        os.sched_setaffinity(0, cpus)
    monkeypatch.setenv("LG_COORDINATOR", "127.0.0.1:1")
    assert chosen(None).boards == 1


def test_boards_of_a_given_coordinator_are_not_brought_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LG_COORDINATOR", "127.0.0.1:1")
    with pytest.raises(ConfigError, match="a coordinator is given, but no pool"):
        chosen(2)
    with pytest.raises(ConfigError, match="a coordinator is given, but no pool"):
        chosen(2, wait="5m")


def test_a_given_coordinator_is_asked_for_one_board(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LG_COORDINATOR", "LG_ENV"):
        monkeypatch.delenv(name, raising=False)
    assert "--boards" in bench_program([])
    assert "--boards" not in bench_program(["--lg-coordinator=127.0.0.1:1"])
    monkeypatch.setenv("LG_COORDINATOR", "127.0.0.1:1")
    assert "--lg-env" in bench_program([])
    assert "--boards" not in bench_program([])


def test_boards_of_a_pool_may_be_more_than_this_computer_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LG_COORDINATOR", "127.0.0.1:1")
    assert chosen(100_000, tags="soc=imx6ul", wait="5m").boards == 100_000
    with pytest.raises(ConfigError, match="--boards 100001: it is out of range"):
        chosen(100_001, tags="soc=imx6ul", wait="5m")


def test_boards_in_real_time_are_places_of_a_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LG_COORDINATOR", "127.0.0.1:1")
    assert chosen(3, "virtual.yaml", tags="soc=imx6ul").boards == 3
    with pytest.raises(ConfigError, match="a coordinator is given, but no pool"):
        chosen(3, "virtual.yaml")


def test_boards_that_are_brought_up_are_not_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LG_COORDINATOR", raising=False)
    assert chosen(1, wait="5m").boards == 1
    with pytest.raises(ConfigError, match="waits for nobody's place"):
        chosen(2, wait="5m")
    with pytest.raises(ConfigError, match="waits for nobody's place"):
        chosen(2, tags="soc=imx6ul")


@pytest.mark.parametrize(
    ("causes", "told"), [(("no qemu", "no qemu"), 0), (("no qemu", "no disk"), 2)], ids=["one cause", "two causes"]
)
def test_boards_that_all_fail_leave_nothing_and_fail_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, causes: tuple[str, ...], told: int, said: list[str]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1] / "helpers"))
    processes, heard = Processes(), list[int]()

    def lose(number: int, error: FsjouleError) -> None:
        assert "its process was killed by SIGKILL" in error.what
        processes.leave_out(number, LabError(causes[number - 1]))

    for name in ("first", "second"):
        processes.start("killed_worker", name, None)
    while processes.left:
        processes.listen(lambda number, _message: heard.append(number), lose)
    assert len(list(tmp_path.glob("*/lg-con-*"))) == 2
    processes.end(())
    assert (len(said), heard, list(tmp_path.iterdir())) == (told, [], [])


@pytest.mark.parametrize(
    "error",
    [
        ConfigError("wrong", file=Path("a.yaml"), line=3, hint="right"),
        BoardError("silent", console_tail=["Oops"], hint="look"),
        MissingToolError("fio", "fio"),
        NoMeterError(),
        PlaceHeldError("bench", "host/user", since="today", hint="wait"),
        PlaceLostError("bench", "nobody has it"),
        MeasurementInvalid("write", ["late"]),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_is_whole_in_another_process(error: FsjouleError) -> None:
    error.add_note("closing failed too")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert (str(again), vars(again)) == (str(error), vars(error))
