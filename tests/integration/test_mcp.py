"""An agent asks by the library's own client, and cannot spend more than it may."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from command_line import PROGRAM
from index_runs import write_run
from mcp import Client, StdioServerParameters
from mcp.types import TextContent
from results_factory import make_run
from whole_runs import write_whole

from fsjoule.cli.common import guest_time_board
from fsjoule.cli.mcp import Asked, server_of
from fsjoule.errors import ConfigError, ResultError
from fsjoule.host import process
from fsjoule.runs.allowance import Allowance, Cost, most_of_bench
from fsjoule.runs.options import BenchOptions
from fsjoule.store.index.database import open_index
from fsjoule.store.index.importer import import_runs

_READS = {"list_runs", "show_run", "list_series", "series_figures", "compare", "trend", "explain", "places"}


def ask(server: Any, *calls: tuple[str, dict[str, Any]]) -> tuple[set[str], list[tuple[bool, str]]]:
    """The names of the tools, and for each call whether it failed, and its text."""

    async def asked() -> tuple[set[str], list[tuple[bool, str]]]:
        async with Client(server) as client:
            names = {tool.name for tool in (await client.list_tools()).tools}
            answers: list[tuple[bool, str]] = []
            for name, arguments in calls:
                result = await client.call_tool(name, arguments)
                [content] = result.content
                assert isinstance(content, TextContent)
                answers.append((bool(result.is_error), content.text))
            return names, answers

    return anyio.run(asked)


@pytest.fixture
def results(tmp_path: Path) -> Path:
    folders = [write_run(tmp_path / "results", name, only=range(4, 9)).path for name in ("aaaaaa", "bbbbbb")]
    with open_index(str(tmp_path / "results" / "index.sqlite"), create=True) as index:
        import_runs(index, folders)
    return tmp_path / "results"


def test_an_agent_reads_what_commands_print_as_json(results: Path) -> None:
    names, answers = ask(
        server_of(Asked(results, None, guest_time_board())),
        ("list_runs", {}),
        ("show_run", {"run": "aaa"}),
        ("list_series", {"filesystem": "ext4"}),
        ("compare", {"baseline": "run:aaaaaa", "candidate": "run:bbbbbb"}),
        ("trend", {}),
        ("show_run", {"run": "../x"}),
        ("compare", {"baseline": "--page=x.html", "candidate": "run:bbbbbb"}),
        ("list_series", {"filesystem": "ext5"}),
        ("compare", {"baseline": str(results), "candidate": "run:bbbbbb"}),
        ("compare", {"baseline": "s3://bucket/runs", "candidate": "run:bbbbbb"}),
        ("compare", {"baseline": "6.1@/var", "candidate": "run:bbbbbb"}),
    )
    assert names == _READS
    documents = [json.loads(text) for failed, text in answers[:5] if not failed]
    assert len(documents[0]) == 2
    assert documents[1]["schema"] == "fsjoule.show/1"
    assert {each["series"]["filesystem"] for each in documents[2]} == {"ext4"}
    assert documents[3]["schema"].startswith("fsjoule.compare/")
    assert documents[4]["schema"] == "fsjoule.trend/1"
    assert [failed for failed, _ in answers[5:]] == [True] * 6
    assert all("is a place: name runs" in text for _, text in answers[8:])
    assert "is the start of 0 runs' ids" in answers[5][1]
    assert "the index has no filesystem 'ext5'" in answers[7][1]
    assert not Path("x.html").exists()


def test_the_program_speaks_on_stdin_and_stdout(results: Path) -> None:
    server = StdioServerParameters(command=str(PROGRAM), args=["mcp", "--results", str(results), "--allow-run"])
    names, answers = ask(server, ("list_runs", {}), ("budget", {}))
    assert names == _READS | {"budget", "bench", "gate"}
    assert len(json.loads(answers[0][1])) == 2
    assert json.loads(answers[1][1])["left"] == {"boots": 100, "written_bytes": 10 << 30, "alpha": 0.05}


def test_no_number_of_questions_exceeds_the_limits(tmp_path: Path) -> None:
    limit = Cost(20, 1000, 0.05)

    def spend(_: int) -> bool:
        try:
            Allowance(tmp_path / "spent.json", limit).take(Cost(3, 10, 0.01))
        except ConfigError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        taken = sum(pool.map(spend, range(40)))
    assert taken == 5  # of the error rate; a question more would be a boot more, too
    allowance = Allowance(tmp_path / "spent.json", limit)
    assert allowance.left()["spent"] == {"boots": 15, "written_bytes": 50, "alpha": 0.05}
    allowance.give_back(Cost(3, 10, 0.01), Cost(1, 20, 0.0))
    assert allowance.left()["spent"] == {"boots": 13, "written_bytes": 50, "alpha": 0.05}


@pytest.mark.parametrize("text", ["", "{}", '{"schema": "fsjoule.allowance/1", "spent": {"boots": -5}}', "[1]"])
def test_a_damaged_budget_allows_nothing(text: str, tmp_path: Path) -> None:
    (tmp_path / "spent.json").write_text(text)
    with pytest.raises(ResultError, match="cannot be read"):
        Allowance(tmp_path / "spent.json", Cost(20, 1000, 0.05)).take(Cost(1))


def test_the_most_of_a_bench_counts_each_boot_twice() -> None:
    options = BenchOptions(fs="ext4", workload="write-16k", repeat=3, seed=1)
    cost = most_of_bench(options, guest_time_board())
    assert cost.boots == 2 * 3
    assert cost.written_bytes > 0
    assert most_of_bench(replace(options, repeat=4), guest_time_board()).boots == 2 * 4


def test_a_bench_is_refused_with_what_is_left_or_spends_what_it_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = tmp_path / "results"
    started: list[Sequence[str]] = []

    def run(argv: Sequence[str], **_: Any) -> subprocess.CompletedProcess[bytes]:
        started.append(argv)
        seed = int(next(word for word in argv if word.startswith("--seed=")).partition("=")[2])
        made = make_run(repeat=1)
        write_whole(results, replace(made.run, plan=replace(made.run.plan, seed=seed)), made.measurements)
        return subprocess.CompletedProcess(argv, 0, b"measured\n", b"")

    monkeypatch.setattr(process, "run", run)
    allowance = Allowance(tmp_path / "spent.json", Cost(7, 1 << 40, 0.05))
    server = server_of(Asked(results, None, guest_time_board(), allowance))
    words: dict[str, Any] = {"filesystems": "ext4", "workloads": "write-16k"}
    _, answers = ask(
        server,
        ("bench", {**words, "repeat": 4}),
        ("bench", {**words, "repeat": 3}),
        ("bench", {**words, "repeat": 4}),
        ("bench", {**words, "filesystems": "ext5"}),
        ("gate", {"baseline": "6.1", "candidate": "6.12", "filesystems": "ext4", "pairs": 3, "alpha": 0.06}),
    )
    assert "7 boots" in answers[0][1]
    assert "are left" in answers[0][1]
    measured = json.loads(answers[1][1])
    assert (measured["exit_code"], measured["run"], measured["answer"]) == (0, "k3v9q2", "measured\n")
    assert measured["budget"]["left"]["boots"] == 6  # the run had one boot
    assert [failed for failed, _ in answers] == [True, False, True, True, True]
    assert "'ext5'" in answers[3][1]
    assert len(started) == 1
