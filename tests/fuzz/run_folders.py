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
import gzip
import importlib
import json
import os
import pty
import random
import re
import resource
import select
import shutil
import signal
import stat
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

for helpers in ("fuzz", "helpers"):
    sys.path.insert(0, str(Path(__file__).parents[1] / helpers))

# Before numpy is imported: its threads would not be forked.
os.environ["OPENBLAS_NUM_THREADS"] = "1"

from fuzz_mutations import mutate  # noqa: E402
from fuzz_sources import write_sources  # noqa: E402
from gitlab_server import JOB_TOKEN, gitlab_server  # noqa: E402

_PROJECT: Final = Path(__file__).parents[2]
_CPU_S: Final = 20
_WALL_S: Final = 60.0
_LOOK_S: Final = 0.25
# What uses no CPU time for so long after a minute hangs; so does what has not ended after so many more minutes.
_STILL_S: Final = 10.0
_BUSY_S: Final = 540.0
_MEMORY_BYTES: Final = 4 << 30
_EXIT_CODES: Final = (0, 2, 4)
_NOBODY: Final = 65534
_IMPORTED: Final = (
    "cli.results cli.report cli.compare cli.explain cli.index cli.trend cli.ci cli.suites cli.gate runs.session "
    "runs.request runs.explain report.allure.site report.trend.page report.trend.charts report.trend.document "
    "verdicts.trend.trend report.page report.comparison.page report.explanation.text store.traces store.folder "
    "store.index.importer"
)
# What rich itself tells a terminal: colours, and the lines of a progress bar.
_STYLES: Final = re.compile(rb"\x1b\[[0-9;]*m|\x1b\[\?25[lh]|\x1b\[2K|\x1b\[1A|\x1b\]8;[^\x1b]*\x1b\\")
_CONTROLS: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


@dataclass(frozen=True)
class Case:
    """A mutated run in a folder of its own. `run` is beside a whole one in `results`; `outside` is to stay unread."""

    folder: Path
    run: Path
    token: str

    @property
    def results(self) -> Path:
        return self.folder / "results"

    @property
    def out(self) -> Path:
        return self.folder / "out"


@dataclass
class Ended:
    """How a command ended."""

    words: list[str]
    code: int
    seconds: float
    cpu_s: float
    out: bytes
    err: bytes
    late: bool = False


@dataclass
class Tally:
    """What came of all."""

    folders: int = 0
    commands: collections.Counter[str] = field(default_factory=collections.Counter[str])
    codes: collections.Counter[tuple[str, int]] = field(default_factory=collections.Counter[tuple[str, int]])
    longest: dict[str, tuple[float, float]] = field(default_factory=dict[str, tuple[float, float]])
    findings: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])


# ------------------------------------------------------------------------------------------------------------- commands


def _chains(case: Case, number: int) -> dict[str, list[list[str]]]:
    """Commands by what they are about; those of one list follow each other."""
    run, results, out = str(case.run), str(case.results), case.out
    index = ["--index", f"{out}/i.sqlite"]
    kept = ["--confirmations", f"{case.run}/confirmations"]
    chains = {
        "show": [["show", run], ["show", run, "--json"]],
        "page": [["report", "page", run]],
        "allure": [["report", "allure", results, "--output", f"{out}/allure"]],
        "compare": [
            ["compare", "6.1", "6.12", "--within", run, "--chart", f"{out}/a.svg", "--page", f"{out}/a.html"],
            ["compare", run, f"{results}/whole", "--json"],
            ["compare", run, results, "--markdown"],
        ],
        "explain": [
            ["explain", "6.1", "6.12", "--within", run, "--svg", f"{out}/e.svg", "--folded", f"{out}/e.folded"],
            ["explain", "6.1", "6.12", "--within", run, "--json"],
        ],
        "index": [
            ["index", "import", results, *index],
            ["index", "stats", *index],
            ["index", "series", *index],
            ["index", "rebuild", results, *index, "--json"],
        ],
        "trend": [
            ["index", "import", run, *index, "--json"],
            ["trend", *index, *kept, "--page", f"{out}/t.html", "--svg", f"{out}/svg"],
            ["trend", *index, *kept, "--json"],
        ],
        "suites": [["suites", "show", "quick", "--lg-env", f"{_PROJECT}/env/virtual.yaml", "--results", results]],
        "push": [["ci", "push", results], ["ci", "pull", f"{out}/pulled"]],
        "resume": [["(resume)", run]],
    }
    if number % 100 == 0:
        chains["build"] = [["report", "build", results, "--output", f"{out}/report"]]
    return chains


def _resume(words: Sequence[str]) -> None:
    """What `pytest tests/bench --resume` does before it asks for the board."""
    from fsjoule.runs.request import choose_resumed

    choice = choose_resumed(Path(words[0]), {"--fs": "ext4"})
    assert choice.resumed is not None
    choice.resumed.check_board("virtual", {})
    choice.resumed.folder()


def _main(words: list[str]) -> None:
    """A command, to its end; it is the process's."""
    from fsjoule.cli import main
    from fsjoule.errors import FsjouleError

    if words[0] != "(resume)":
        sys.argv = ["fsjoule", *words]
        main()
        return
    try:
        _resume(words[1:])
    except FsjouleError as error:
        print(f"error: {type(error).__name__}", file=sys.stderr)
        sys.exit(error.exit_code)


# ------------------------------------------------------------------------------------------------------------ processes


def execute(words: list[str], case: Case, *, terminal: bool, nobody: bool) -> Ended:
    """Run a command in a forked process with limits, its output to pipes or to a terminal."""
    out_read, out_write = pty.openpty() if terminal else os.pipe()
    err_read, err_write = os.pipe()
    began = time.monotonic()
    child = os.fork()
    if not child:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.setsid()
        os.close(out_read)
        os.close(err_read)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for descriptor, number in ((nothing, 0), (out_write, 1), (err_write, 2)):
            os.dup2(descriptor, number)
        _child(words, case, nobody=nobody)
    os.close(out_write)
    os.close(err_write)
    output = {out_read: bytearray(), err_read: bytearray()}
    late = not _drain(output, child, began + _WALL_S)
    if late:
        os.killpg(child, signal.SIGKILL)
    _, status, used = os.wait4(child, 0)
    for descriptor in output:
        os.close(descriptor)
    return Ended(
        words,
        os.waitstatus_to_exitcode(status),
        time.monotonic() - began,
        used.ru_utime + used.ru_stime,
        bytes(output[out_read]),
        bytes(output[err_read]),
        late=late,
    )


def _child(words: list[str], case: Case, *, nobody: bool) -> None:
    code = 70
    try:
        resource.setrlimit(resource.RLIMIT_CPU, (_CPU_S, _CPU_S + 5))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        # Not of addresses: V8 reserves more than there is memory.
        resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY_BYTES, _MEMORY_BYTES))
        os.chdir(case.folder / "cwd")
        if nobody:
            os.setgroups([])
            os.setgid(_NOBODY)
            os.setuid(_NOBODY)
        _main(words)
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(bool(ended.code))
    except BaseException:  # whatever it is, it is a finding
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (OSError, ValueError):
                code = code or 4
        os._exit(code)


def _drain(output: dict[int, bytearray], child: int, until: float) -> bool:
    """Read until the process has ended and nothing more comes; whether that was in time."""
    waiting = set(output)
    ended, used_s = False, -1.0
    while waiting:
        ready, _, _ = select.select(list(waiting), [], [], 0.0 if ended else _LOOK_S)
        if not ready:
            # The end of a terminal is not always told.
            if ended:
                return True
            ended = os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
            if not ended and time.monotonic() > until:
                # On a busy machine it may only have waited for its turn.
                used_s, before_s = _cpu_s(child), used_s
                if used_s == before_s or time.monotonic() > until + _BUSY_S:
                    return False
                until_look = time.monotonic() + _STILL_S
                while time.monotonic() < until_look and not select.select(list(waiting), [], [], _LOOK_S)[0]:
                    pass
        for descriptor in ready:
            try:
                part = os.read(descriptor, 1 << 16)
            except OSError:  # a terminal whose other end is closed
                part = b""
            output[descriptor] += part
            if not part:
                waiting.discard(descriptor)
    return True


def _cpu_s(child: int) -> float:
    """The CPU time that a process has used, in all of its threads."""
    words = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


# --------------------------------------------------------------------------------------------------------------- checks


def _wrong(ended: Ended, case: Case, *, terminal: bool) -> Iterator[str]:
    if ended.late:
        yield f"hangs: {ended.seconds:.0f} s, {ended.cpu_s:.1f} s of CPU"
    elif ended.code not in _EXIT_CODES:
        name = signal.Signals(-ended.code).name if ended.code < 0 else str(ended.code)
        yield f"exit code {name} after {ended.cpu_s:.1f} s of CPU"
    if b"Traceback" in ended.err:
        yield "a traceback"
    for name, said in (("stdout", ended.out), ("stderr", ended.err)):
        shown = _STYLES.sub(b"", said) if terminal and name == "stdout" else said
        text = shown.replace(b"\r\n", b"\n").decode(errors="surrogateescape")
        if terminal and name == "stdout":
            text = text.replace("\r", "")
        if found := _CONTROLS.search(text):
            yield f"{found[0]!r} on {name}"
        if case.token.encode() in said:
            yield f"{name} holds what is outside"


def _kept_token(case: Case, before: set[Path]) -> Iterator[str]:
    """What was written and holds what is outside."""
    token = case.token.encode()
    written = [path for path in case.out.rglob("*") if path not in before]
    for path in (*written, case.run / "report.html"):
        if path.is_symlink() or not path.is_file():
            continue
        content = path.read_bytes()
        if content[:2] == b"\x1f\x8b":
            content = gzip.decompress(content)
        if token in content:
            yield f"{path.relative_to(case.folder)} holds what is outside"


def _listed(case: Case) -> dict[str, tuple[int, int, int, str]]:
    """All that is not to change."""
    found: dict[str, tuple[int, int, int, str]] = {}
    for top, folders, files in os.walk(os.fsencode(case.folder)):
        if top == os.fsencode(case.folder):
            folders.remove(b"out")
        for name in (*folders, *files):
            path = os.path.join(top, name)
            if path == os.fsencode(case.run / "report.html"):
                continue
            about = os.lstat(path)
            at = os.readlink(path) if os.path.islink(path) else b""
            folder = os.path.isdir(path)
            found[os.fsdecode(path)] = (
                about.st_mode,
                0 if folder else about.st_size,
                0 if folder else about.st_mtime_ns,
                os.fsdecode(at),
            )
    return found


# ---------------------------------------------------------------------------------------------------------------- cases


def make_case(work: Path, sources: Sequence[Path], seed: int, number: int) -> tuple[Case, list[str], random.Random]:
    """The mutated run of that number: the same for the same seed and sources."""
    rng = random.Random(f"{seed}-{number}")
    folder = work / f"case-{number}"
    case = Case(folder, folder / "results" / "20260309T100000Z-virtual-mutant", f"canary{rng.getrandbits(64):016x}")
    for name in ("results", "outside", "out", "cwd", "tmp"):
        (folder / name).mkdir(parents=True)
    source = rng.choice(sources)
    whole = next(source.iterdir())
    shutil.copytree(whole, case.run)
    outside = folder / "outside"
    (outside / "secret").write_text(f"{case.token}\n" * 3)
    shutil.copytree(whole, outside / "run")
    for file in outside.rglob("*.json"):
        file.write_text(file.read_text().replace('"ext4"', json.dumps(case.token)))
    for file in outside.rglob("console.log"):
        file.write_text(f"# {case.token}\n")
    measurement = min((outside / "run" / "measurements").iterdir())
    shutil.copytree(measurement, outside / "measurement")
    (case.run / "confirmations").mkdir()
    (case.run / "confirmations" / "a.json").write_text(json.dumps(_confirmation()))
    done = mutate(rng, case.run, outside)
    shutil.copytree(whole, case.results / "whole")
    run_file = case.results / "whole" / "run.json"
    run_file.write_text(json.dumps({**json.loads(run_file.read_text()), "run_id": "whole"}))
    return case, [source.name, *done], rng


def _confirmation() -> dict[str, Any]:
    side = {"run_id": "a", "started_utc": "2026-03-09T10:00:00Z", "kernel_release": "6.1", "kernel_version": "1"}
    figures = {"nominated_ratio": 0.9, "ratio": 0.9, "pairs": 4, "smallest_effect": 0.02, "alpha": 0.05, "beta": 0.1}
    names = {"made_utc": "2026-03-09T10:00:00Z", "series": "0" * 16, "metric": "throughput", "outcome": "confirmed"}
    return {**names, **figures, "before": side, "after": side, "run_id": "b", "schema": "fsjoule.confirmation/1"}


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
    every = _chains(case, number)
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
    before, there = _listed(case), set(case.out.rglob("*"))
    ended = execute(words, case, terminal=terminal, nobody=nobody)
    label = " ".join(words[:2]) if words[0] in ("report", "index", "suites", "ci") else words[0]
    label += " --json" if "--json" in words else ""
    tried.ran.append((label, ended.code, ended.seconds, ended.cpu_s))
    wrong = [*_wrong(ended, case, terminal=terminal), *_kept_token(case, there)]
    after = _listed(case)
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
