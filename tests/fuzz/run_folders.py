"""Mutated run folders, and every command that reads run folders on them, each in a process of its own.

    python tests/fuzz/run_folders.py --count 10000 --seed 1 --jobs 4

A command is right if it exits with 0, 2 or 4 within 20 s of CPU time and does not stand still, says no "Traceback",
prints no control characters, neither prints nor keeps anything from outside of the run folder, and writes nothing but
what it was asked to. SIGTERM begins no further folder. A finding is printed with the number of its folder; `--only
NUMBER` makes that folder again and keeps it.
"""

from __future__ import annotations

import argparse
import collections
import importlib
import json
import os
import select
import shutil
import signal
import stat
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

for helpers in ("fuzz", "helpers"):
    sys.path.insert(0, str(Path(__file__).parents[1] / helpers))

# Before numpy is imported: its threads would not be forked.
os.environ["OPENBLAS_NUM_THREADS"] = "1"

from fuzz_cases import Case, make_case  # noqa: E402
from fuzz_checks import kept_token, listed, wrong_in  # noqa: E402
from fuzz_commands import chains_of, execute  # noqa: E402
from fuzz_sources import write_sources  # noqa: E402
from gitlab_server import JOB_TOKEN, gitlab_server  # noqa: E402

_PROJECT: Final = Path(__file__).parents[2]
_LOOK_S: Final = 0.25
_IMPORTED: Final = (
    "cli.ungrouped cli.report cli.compare cli.explain cli.index cli.trend cli.ci cli.suites cli.gate runs.open_run "
    "runs.request runs.explain report.allure.site report.trend.page report.trend.charts report.trend.document "
    "verdicts.trend.trend report.page report.comparison report.explanation.text store.traces store.folder "
    "store.index.importer"
)


@dataclass
class Tally:
    """What came of all."""

    folders: int = 0
    commands: collections.Counter[str] = field(default_factory=collections.Counter[str])
    codes: collections.Counter[tuple[str, int]] = field(default_factory=collections.Counter[tuple[str, int]])
    longest: dict[str, tuple[float, float]] = field(default_factory=dict[str, tuple[float, float]])
    findings: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])


def try_case(work: Path, sources: Sequence[Path], seed: int, number: int, chains: int) -> dict[str, Any]:
    """Run some of the commands, or all with `chains` 0, on one mutated run; what came of it, as JSON has it."""
    case, done, rng = make_case(work, sources, seed, number)
    os.environ["TMPDIR"] = str(case.folder / "tmp")
    os.environ["FSJOULE_CANARY"] = case.token
    tempfile.tempdir = None
    nobody = rng.random() < 0.1 and number % 100 > 0 and _can_be_nobody()
    if nobody:
        for name in ("out", "cwd", "tmp"):
            (case.folder / name).chmod(0o777)
        case.folder.chmod(0o755)
    every = chains_of(case, number)
    chosen = list(every)
    if chains:
        # In turn, so that each gets its share.
        first = number * chains
        chosen = [chosen[(first + i) % 9] for i in range(chains)] + chosen[9:]
    tried = _Tried()
    for name in chosen:
        with _gitlab() if name == "push" else nullcontext():
            for words in every[name]:
                terminal = rng.random() < 0.5
                wrong, said = _try(words, case, tried, terminal=terminal, nobody=nobody)
                if wrong:
                    found = {"number": number, "words": words, "wrong": wrong, "done": done, "said": said}
                    tried.findings.append(found)
    return {"ran": tried.ran, "findings": tried.findings, "done": done}


@dataclass
class _Tried:
    """What came of the commands of a case: which, exit code, seconds, seconds of CPU."""

    ran: list[tuple[str, int, float, float]] = field(default_factory=list[tuple[str, int, float, float]])
    findings: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])


def _can_be_nobody() -> bool:
    """Whether a command may run as another user: in a clone below /root that user cannot import what it needs."""
    folders = {_PROJECT, *_PROJECT.parents, Path(sys.prefix), *Path(sys.prefix).parents}
    return os.getuid() == 0 and all(folder.stat().st_mode & stat.S_IXOTH for folder in folders)


def _try(words: list[str], case: Case, tried: _Tried, *, terminal: bool, nobody: bool) -> tuple[list[str], str]:
    """Run one command; what was wrong, and what it said."""
    before, there = listed(case), set(case.out.rglob("*"))
    ended = execute(words, case, terminal=terminal, nobody=nobody)
    label = " ".join(words[:2]) if words[0] in ("report", "index", "suites", "ci") else words[0]
    label += " --json" if "--json" in words else ""
    tried.ran.append((label, ended.code, ended.seconds, ended.cpu_s))
    wrong = [*wrong_in(ended, case, terminal=terminal), *kept_token(case, there)]
    after = listed(case)
    # A run that is gone on with is its own to change.
    ours = f"{case.run}/" if label == "(resume)" else "\0"
    changed = sorted(
        path
        for path in before.keys() | after.keys()
        if before.get(path) != after.get(path) and not path.startswith(ours)
    )
    if changed:
        wrong.append(f"it changed {changed[:3]}")
    return wrong, ended.err[-1500:].decode(errors="backslashreplace")


@contextmanager
def _gitlab() -> Generator[None]:
    """A package registry of its own, in a process of its own: a process with threads is not to be forked."""
    read, write = os.pipe()
    parent = os.getpid()
    server = os.fork()
    if not server:
        with gitlab_server("fuzz") as gitlab:
            os.write(write, json.dumps([gitlab.url, gitlab.project]).encode())
            os.close(write)
            while os.getppid() == parent:
                time.sleep(_LOOK_S)
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as told:
        url, project = json.loads(told.read())
    os.environ |= {"CI_JOB_TOKEN": JOB_TOKEN, "CI_SERVER_URL": url, "CI_PROJECT_ID": project}
    try:
        yield
    finally:
        os.kill(server, signal.SIGKILL)
        os.waitpid(server, 0)


def _worker(task: Callable[[], dict[str, Any]]) -> tuple[int, int]:
    """A forked process for a task; where its answer can be read, and its id."""
    read, write = os.pipe()
    worker = os.fork()
    if worker:
        os.close(write)
        return read, worker
    os.close(read)
    try:
        answer = task()
    except BaseException:
        answer = {"broken": traceback.format_exc()}
    with os.fdopen(write, "w") as file:
        json.dump(answer, file)
    os._exit(0)


def fuzz(asked: argparse.Namespace) -> Tally:
    """All folders; findings are printed as they come."""
    tally = Tally()
    seed, only = asked.seed, asked.only
    numbers = iter([only] if only is not None else range(asked.first, asked.first + asked.count))
    until = time.monotonic() + asked.limit
    ending: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: ending.append(number))
    with tempfile.TemporaryDirectory(prefix="fsjoule-fuzz-") as top:
        work = Path(top)
        work.chmod(0o755)
        _built(work / "sources", [path.resolve() for path in asked.source])
        sources = sorted((work / "sources").iterdir())
        for name in _IMPORTED.split():
            importlib.import_module(f"fsjoule.{name}")
        _warm(sources)
        running: dict[int, tuple[int, int]] = {}
        while True:
            while len(running) < asked.jobs and not ending and time.monotonic() < until:
                number = next(numbers, None)
                if number is None:
                    break
                read, worker = _worker(lambda n=number: try_case(work, sources, seed, n, asked.chains))
                running[read] = (worker, number)
            if not running:
                return tally
            for read in select.select(list(running), [], [])[0]:
                worker, number = running.pop(read)
                with os.fdopen(read) as file:
                    answer = json.loads(file.read() or '{"broken": "no answer"}')
                os.waitpid(worker, 0)
                _count(tally, answer, number)
                if only is None:
                    shutil.rmtree(work / f"case-{number}", ignore_errors=True)
                else:
                    kept = Path(tempfile.gettempdir()) / f"fsjoule-fuzz-kept-{seed}-{number}"
                    shutil.copytree(work / f"case-{number}" / "results", kept, symlinks=True, dirs_exist_ok=True)
                    print(f"kept in {kept}: {answer.get('done')}")


def _built(into: Path, further: Sequence[Path]) -> None:
    """In a process of its own: what pyarrow starts there is not forked."""

    def build() -> dict[str, Any]:
        into.mkdir()
        write_sources(into, further)
        return {}

    read, worker = _worker(build)
    with os.fdopen(read) as file:
        answer = json.loads(file.read())
    os.waitpid(worker, 0)
    if "broken" in answer:
        raise RuntimeError(answer["broken"])


def _warm(sources: Sequence[Path]) -> None:
    """Fill the caches of charts' specifications, which take seconds of every process: drawing itself starts threads."""
    import vl_convert
    from results_factory import make_measurement, make_trace

    from fsjoule.model import Planned, Provision, TimedKind, TimedWorkload
    from fsjoule.report import page
    from fsjoule.report.page import render_page
    from fsjoule.report.summary import summarise
    from fsjoule.report.trace_chart import trace_chart
    from fsjoule.store.reader import load_run

    draws: Any = vl_convert.vegalite_to_svg
    vl_convert.vegalite_to_svg = lambda *_a, **_k: "<svg></svg>"  # pyright: ignore[reportUnknownLambdaType]
    try:
        for source in sources:
            loaded = load_run(next(source.iterdir()))
            render_page(summarise(loaded.run, loaded.measurements, loaded.damaged), loaded.measurements, lambda _: None)
        entry = Planned(1, 1, "6.1", "ext4", TimedWorkload(TimedKind.MKFS), "quick", Provision.SCRATCH)
        for width in (page._WIDE, page._NARROW, 860):
            trace_chart(make_measurement(entry)[0], make_trace(), width=width)
    finally:
        vl_convert.vegalite_to_svg = draws


def _count(tally: Tally, answer: dict[str, Any], number: int) -> None:
    tally.folders += 1
    if "broken" in answer:
        answer = {"ran": [], "findings": [{"number": number, "wrong": ["the fuzz itself"], "said": answer["broken"]}]}
    for label, code, seconds, cpu_s in answer["ran"]:
        tally.commands[label] += 1
        tally.codes[label, code] += 1
        longest = tally.longest.get(label, (0.0, 0.0))
        tally.longest[label] = (max(longest[0], seconds), max(longest[1], cpu_s))
    for finding in answer["findings"]:
        tally.findings.append(finding)
        print(json.dumps(finding), flush=True)
    if tally.folders % 500 == 0:
        print(f"{tally.folders} folders, {tally.commands.total()} commands, {len(tally.findings)} findings", flush=True)


def main() -> int:
    """Exit code 1 if there is a finding."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100, help="so many run folders")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="so many of them at a time")
    parser.add_argument("--first", type=int, default=0, help="the number of the first one")
    parser.add_argument("--chains", type=int, default=0, help="so many of 10 groups of commands for each (0: all)")
    parser.add_argument("--only", type=int, help="this folder alone, which is kept")
    parser.add_argument("--limit", type=float, default=1e9, metavar="SECONDS", help="begin no folder after that")
    parser.add_argument("--source", type=Path, action="append", default=[], help="a run folder to mutate as well")
    asked = parser.parse_args()
    os.environ |= {"COLUMNS": "160"}
    began = time.monotonic()
    tally = fuzz(asked)
    for label, count in sorted(tally.commands.items()):
        codes = ", ".join(f"{code}: {n}" for (each, code), n in sorted(tally.codes.items()) if each == label)
        seconds, cpu_s = tally.longest[label]
        print(f"{label:<22} {count:>7} times; exit codes {codes}; longest {seconds:.1f} s, {cpu_s:.1f} s of CPU")
    print(
        f"seed {asked.seed}: {tally.folders} folders, {tally.commands.total()} commands, "
        f"{len(tally.findings)} findings, {time.monotonic() - began:.0f} s"
    )
    return bool(tally.findings)


if __name__ == "__main__":
    sys.exit(main())
