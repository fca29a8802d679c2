"""Attachments of a test: the measurement's files, the power trace as a picture, the command that repeats it."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fsjoule.errors import ResultError
from fsjoule.host.inside import Listed
from fsjoule.host.plaintext import plain
from fsjoule.model import Measurement, Run
from fsjoule.report.allure.documents import Attachment
from fsjoule.report.facts import no_trace
from fsjoule.report.trace_chart import trace_chart
from fsjoule.store.folder import CHECKSUMS_FILE
from fsjoule.store.profiles import PROFILE_FILE
from fsjoule.store.reader import LoadedRun
from fsjoule.store.schemas import STEPS_FILE

_TYPES: Final = {".json": "application/json", ".log": "text/plain", ".txt": "text/plain"}
# The report shows these in its own way.
_NOT_ATTACHED: Final = frozenset({"measurement.json", "trace.parquet", PROFILE_FILE, STEPS_FILE, CHECKSUMS_FILE})
_TRACE_WIDTH: Final = 860
# The command for one measurement sets these options itself, or they name a path on the other machine.
_LEFT_OUT: Final = ("--seed", "--results", "--resume", "--alluredir", "-k")
_CLEAN: Final = "--clean-alluredir"


@dataclass(frozen=True, slots=True)
class Attached:
    attachments: tuple[Attachment, ...]
    problems: tuple[str, ...]


def attach(loaded: LoadedRun, measurement: Measurement, uuid: str, keep: Callable[[str, bytes], None]) -> Attached:
    """Pass all files of a measurement to `keep`, with their names in the results."""
    attachments: list[Attachment] = []
    problems: list[str] = []
    contents: dict[str, bytes] = {}

    def add(name: str, kind: str, content: bytes, *, own: bool = False) -> None:
        # A browser would run a run folder's .html or .svg as a page of the report's own address.
        suffix = Path(name).suffix if own or Path(name).suffix in _TYPES else ""
        source = f"{uuid}-{len(attachments)}-attachment{suffix}"
        keep(source, content)
        attachments.append(Attachment(name, kind, source))

    try:
        drawn = _trace(loaded, measurement)
    except ResultError as error:
        problems.append(f"no power trace: {error.what}")
    else:
        if drawn:
            add("power trace.svg", "image/svg+xml", drawn.encode(), own=True)
        else:
            problems.append(no_trace(measurement))
    try:
        listed = loaded.files(measurement.number)
    except ResultError as error:
        listed = Listed((), (), {"its files": error.what})
    problems += [f"{name} is not attached: {why}" for name, why in listed.refused.items()]
    for name in listed.files:
        if name in _NOT_ATTACHED:
            continue
        try:
            content = loaded.attachment(measurement.number, name) or b""
        except ResultError as error:
            problems.append(f"{name} is not attached: {error.what}")
            continue
        contents[name] = content
        add(name, _TYPES.get(Path(name).suffix, "application/octet-stream"), content)
    console = contents.get("console.log", b"")
    add(
        "repeat it.sh",
        "text/plain",
        repeat_script(loaded.run, measurement, plain(console.decode(errors="replace"))).encode(),
        own=True,
    )
    return Attached(tuple(attachments), tuple(problems))


def repeat_script(run: Run, measurement: Measurement, console: str) -> str:
    """How to repeat a measurement: the command on the host, and as comments the board's commands."""
    lines = ["# On the host; the seed gives the same order, boots and data.", shlex.join(_command(run, measurement))]
    asked = [line.removeprefix("# ") for line in console.splitlines() if line.startswith("# ")]
    if asked:
        lines += ["", "# The board's commands:", *(f"#   {line}" for line in asked)]
    return "\n".join(lines) + "\n"


def _command(run: Run, measurement: Measurement) -> tuple[str, ...]:
    if not run.by_bench:
        return run.command
    entry = next((each for each in run.plan.entries if each.number == measurement.number), None)
    chosen = ("-k", run.plan.test_id(entry)) if entry else ()
    return (*_without_options(run.command), "--seed", str(run.plan.seed), *chosen)


def _without_options(command: tuple[str, ...]) -> Iterator[str]:
    words = iter(command)
    for word in words:
        if word in _LEFT_OUT:
            next(words, None)
        elif word != _CLEAN and not word.startswith(tuple(f"{option}=" for option in _LEFT_OUT)):
            yield word


def _trace(loaded: LoadedRun, measurement: Measurement) -> str:
    trace = loaded.trace(measurement.number)
    if trace is None or not len(trace.ticks):
        return ""
    # The chart is drawn for a light page, but Allure also has a dark one.
    return trace_chart(measurement, trace, width=_TRACE_WIDTH).replace("<svg ", '<svg style="background:#fff" ', 1)
