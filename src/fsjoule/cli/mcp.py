"""`fsjoule mcp`: a server of the Model Context Protocol on stdin and stdout, by which an agent asks and measures.

A tool returns what the command of its name prints with --json: it is the same function in this process. Only a bench
and a gate, which take the lab, are processes of their own.
"""

from __future__ import annotations

import json
import secrets
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from fsjoule.cli.common import guest_time_board
from fsjoule.errors import ConfigError, FsjouleError, ResultError

if TYPE_CHECKING:
    from mcp.server import MCPServer

    from fsjoule.runs.allowance import Allowance, Cost

app = typer.Typer()

_LIMIT_S: Final = 24 * 3600.0
_GATED: Final = "quick"
_SHARE: Final = 20  # of the error rate that one question takes, unless it asks for another share
_GIB: Final = 1 << 30
_HINTS: Final = """\
fsjoule measures filesystems on boards: MiB/s, mJ/MiB and more, with uncertainties and verdicts with error rates.
A figure with "simulated" is of an emulated board. A suite "imported from ..." was not measured by fsjoule.
The error rate of compare and trend is that of one question: many questions of one data set raise it.
"""


@app.command("mcp")
def mcp(
    results: Annotated[Path, typer.Option(metavar="DIR", help="Folder of runs.")] = Path("results"),
    index: Annotated[
        str | None, typer.Option(metavar="URL", envvar="FSJOULE_INDEX", help="The index (default: that of the runs).")
    ] = None,
    *,
    allow_run: Annotated[bool, typer.Option("--allow-run", help="Let it measure, within the limits below.")] = False,
    lg_env: Annotated[
        Path | None,
        typer.Option("--lg-env", metavar="FILE", help="The board (default: the virtual one in guest time)."),
    ] = None,
    boots: Annotated[int, typer.Option(min=0, help="Boots, over all questions.")] = 100,
    written_gib: Annotated[float, typer.Option(min=0, help="GiB that workloads write, over all questions.")] = 10.0,
    alpha: Annotated[float, typer.Option(min=0, max=0.5, help="Error rate: any false alarm in all questions.")] = 0.05,
    budget_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="What was spent (default: allowance.json beside the runs).")
    ] = None,
) -> None:
    """Serve an agent by the Model Context Protocol on stdin and stdout: it reads, and measures if that is allowed.

    What was spent stays in --budget-file: a restart does not reset it, and no number of questions exceeds the limits.

    Example: fsjoule mcp --results /srv/results --allow-run --boots 60
    """
    from fsjoule.runs.allowance import Allowance, Cost

    limit = Cost(boots, round(written_gib * _GIB), alpha)
    allowance = Allowance(budget_file or results / "allowance.json", limit) if allow_run else None
    server_of(Asked(results, index, lg_env or guest_time_board(), allowance)).run()


@dataclass(frozen=True, slots=True)
class Asked:
    """Where a server reads, and on which board it measures; without an allowance it does not."""

    results: Path
    index: str | None
    lg_env: Path
    allowance: Allowance | None = None

    @property
    def in_index(self) -> str:
        return f"--index={self.index or self.results / 'index.sqlite'}"


def server_of(asked: Asked) -> MCPServer:
    """The server with its tools."""
    from importlib.metadata import version

    from mcp.server import MCPServer

    server = MCPServer("fsjoule", instructions=_HINTS, version=version("fsjoule"), log_level="WARNING")
    tools = [*_reading(asked), *(_measuring(asked, asked.allowance) if asked.allowance else ())]
    for tool in tools:
        server.add_tool(tool, structured_output=False)
    return server


def _reading(asked: Asked) -> Iterator[Callable[..., str]]:
    def list_runs() -> str:
        """All runs, newest first: id, start, board, filesystems, kernels, suite, valid measurements."""
        return _answer("runs", "--json", "--", str(asked.results))

    def show_run(run: str) -> str:
        """A run by the start of its id: its documents, tables, phases, and each measurement with its uncertainty."""
        return _answer("show", "--json", "--", _run(asked, run))

    def list_series(filesystem: str = "", board: str = "") -> str:
        """The series of the index, with their keys: what may be compared."""
        return _answer("index", "series", "--json", asked.in_index, *_given(fs=filesystem, board=board))

    def series_figures(key: str) -> str:
        """The newest figures of one series by its key, with uncertainties, kernels and reasons of invalid ones."""
        return _answer("index", "series", "--json", asked.in_index, "--", key)

    def compare(baseline: str, candidate: str, within: str = "", filesystem: str = "", board: str = "") -> str:
        """Compare two sides that were measured: runs, kernels or branches. A verdict for each series and figure."""
        _names(baseline, candidate)
        more = _given(within=within and _run(asked, within), fs=filesystem, board=board)
        return _answer("compare", "--json", asked.in_index, *more, "--", baseline, candidate)

    def trend(filesystem: str = "", board: str = "", by: str = "time") -> str:
        """What made series slower, or use more energy, over time or by kernel: changes with their causes."""
        return _answer("trend", "--json", asked.in_index, *_given(fs=filesystem, board=board, by=by))

    def explain(baseline: str, candidate: str, run: str) -> str:
        """Which functions make the difference of two kernels of a run that was measured with profiles."""
        _names(baseline, candidate)
        return _answer("explain", "--json", *_given(within=_run(asked, run)), "--", baseline, candidate)

    def places() -> str:
        """The lab's places now: states, holders, queue, last runs and faults."""
        return _answer("place", "status", "--json", "--", str(asked.results))

    yield from (list_runs, show_run, list_series, series_figures, compare, trend, explain, places)


def _measuring(asked: Asked, allowance: Allowance) -> Iterator[Callable[..., str]]:
    from fsjoule.runs.allowance import Cost, most_of_bench
    from fsjoule.runs.options import BenchOptions

    def budget() -> str:
        """What is spent and left of boots, written bytes and the error rate."""
        return _checked(lambda: json.dumps(allowance.left()))

    def bench(
        filesystems: str, suite: str = "quick", kernels: str = "6.1", workloads: str = "", repeat: int = 3
    ) -> str:
        """Measure filesystems (a list with commas) on the board; spends boots and written bytes. Takes minutes."""
        _names(suite, kernels)
        options = BenchOptions(
            fs=filesystems,
            suite=suite,
            kernel=kernels,
            workload=workloads or None,
            repeat=repeat,
            results=asked.results,
            seed=secrets.randbits(32),
        )
        words = [*_given(fs=filesystems, suite=suite, kernel=kernels, workload=workloads, repeat=str(repeat))]

        def measured() -> str:
            from fsjoule.cli.bench import bench_program

            program = bench_program(
                [*words, f"--seed={options.seed}", f"--results={asked.results}", f"--lg-env={asked.lg_env}"]
            )
            return _measured(asked, allowance, most_of_bench(options, asked.lg_env), program, options.seed)

        return _checked(measured)

    def gate(baseline: str, candidate: str, filesystems: str, pairs: int = 5, alpha: float = 0.0) -> str:
        """Decide whether a kernel is worse than another by fresh boots of both: the question that counts.

        Spends `alpha` of the error rate for good (default: a twentieth of the whole), boots and written bytes.
        """
        _names(baseline, candidate)
        share = alpha or allowance.limit.alpha / _SHARE
        seed = secrets.randbits(32)
        options = BenchOptions(fs=filesystems, suite=_GATED, repeat=pairs, results=asked.results, seed=seed)

        def measured() -> str:
            if not 0 < share <= 0.1:  # noqa: PLR2004 - a policy's largest
                raise ConfigError(f"alpha {share:g} is not above 0 and at most 0.1")
            cost = most_of_bench(options, asked.lg_env, pair=(baseline, candidate)) + Cost(alpha=share)
            asked.results.mkdir(parents=True, exist_ok=True)
            policy = asked.results / f".gate-{seed}.toml"
            policy.write_text(f"[gate]\nalpha = {share!r}\nbudget_pairs = {pairs}\nleast_pairs = {min(3, pairs)}\n")
            more = _given(fs=filesystems, suite=_GATED, seed=str(seed), results=str(asked.results), policy=str(policy))
            words = ["gate", "--json", f"--lg-env={asked.lg_env}", *more, "--", baseline, candidate]
            program = [sys.executable, "-P", "-c", "from fsjoule.cli import main; main()", *words]
            try:
                return _measured(asked, allowance, cost, program, seed)
            finally:
                policy.unlink(missing_ok=True)

        return _checked(measured)

    yield from (budget, bench, gate)


def _measured(asked: Asked, allowance: Allowance, cost: Cost, program: list[str], seed: int | None) -> str:
    """Run a program that measures, and return its run and the end of what it said. The cost is taken before."""
    from fsjoule.host import process
    from fsjoule.model import RunStatus
    from fsjoule.runs.allowance import TRIES
    from fsjoule.runs.allowance import Cost as Used

    allowance.take(cost)
    done = process.run(program, timeout_s=_LIMIT_S, check=False)
    run = _run_of_seed(asked.results, seed)
    if run is not None and run.run.status is RunStatus.COMPLETE:
        # Boots are counted on each board, and a fault may have cost some; what was written is known by its share.
        last = {each.place: each.boot for each in sorted(run.measurements, key=lambda m: m.boot)}
        boots = min(sum(last.values()) + TRIES * len(run.run.faults), cost.boots)
        allowance.give_back(cost, Used(boots, round(cost.written_bytes * boots / max(cost.boots, 1))))
    text = done.stdout.decode(errors="replace")
    answer: Any = text[-4000:]
    with suppress(ValueError):
        answer = json.loads(text)
    said = done.stderr.decode(errors="replace")[-2000:]
    document = {"exit_code": done.returncode, "run": run and run.run.run_id, "answer": answer, "said": said}
    return json.dumps({**document, "budget": allowance.left()})


def _run_of_seed(results: Path, seed: int | None) -> Any:  # noqa: ANN401 - a LoadedRun, which takes numpy to name
    from fsjoule.store.reader import load_run
    from fsjoule.store.run_folders import find_runs

    for folder in find_runs([results])[0] if results.is_dir() else ():
        with suppress(ResultError):
            loaded = load_run(folder)
            if loaded.run.plan.seed == seed:
                return loaded
    return None


def _run(asked: Asked, name: str) -> str:
    """A run's folder below the server's results; no path leads out of them."""
    from fsjoule.store.run_folders import find_runs

    folders = find_runs([asked.results])[0] if asked.results.is_dir() else []
    found = [each for each in folders if name and each.name.rpartition("-")[2].startswith(name)]
    newest = max(folders, key=lambda each: each.name, default=None) if name in ("", "last") else None
    if newest is None and len(found) != 1:
        from mcp.server.mcpserver.exceptions import ToolError

        raise ToolError(f"{name!r} is the start of {len(found)} runs' ids: list_runs has them")
    return str(newest or found[0])


def _names(*texts: str) -> None:
    """Raise ToolError for a place: an agent names what the server has, and reads nothing else of this computer."""
    from mcp.server.mcpserver.exceptions import ToolError

    for text in texts:
        for part in filter(None, text.replace(",", "@").split("@")):
            if "://" in part or part.startswith((".", "~", "/")) or Path(part).exists():
                raise ToolError(f"{part!r} is a place: name runs, kernels, branches or suites")


def _given(**options: str) -> Iterator[str]:
    """Options with a value, each as one word: no value is taken for another option."""
    return (f"--{name}={value}" for name, value in options.items() if value)


_ONE_AT_A_TIME: Final = threading.Lock()


def _answer(*words: str) -> str:
    """What a command prints with --json."""

    def printed() -> str:
        from fsjoule.cli import app_of

        with _ONE_AT_A_TIME, redirect_stdout(StringIO()) as text:
            app_of(words[0])(list(words), standalone_mode=False)
        return text.getvalue()

    return _checked(printed)


def _checked(answer: Callable[[], str]) -> str:
    """Our errors as the protocol's: what happened, and what to do."""
    from mcp.server.mcpserver.exceptions import ToolError

    try:
        return answer()
    except FsjouleError as error:
        raise ToolError(str(error)) from error
