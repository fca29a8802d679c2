"""`fsjoule timeline`. Thin: it reads arguments, calls one function, shows what came back."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from fsjoule.cli.common import (
    out,
    print_json,
    progress,
    refuse,
    write_text,
)
from fsjoule.cli.options import FreshOptions, InsightOptions, argument, file_option, fresh_choice, with_options
from fsjoule.errors import ConfigError
from fsjoule.host.extras import PAGES, need
from fsjoule.runs.options import given_options, option

if TYPE_CHECKING:
    from fsjoule.report.timeline import TimelineView

app = typer.Typer()


@dataclass(frozen=True, kw_only=True)
class _MeasuringOptions(FreshOptions):
    kernel: str | None = option("NAME", "Kernel to boot.")
    storage: str | None = option("NAME", "Storage device of the board (else the suite's).")


@dataclass(frozen=True, kw_only=True)
class TimelineOptions(_MeasuringOptions, InsightOptions):
    run: str | None = argument("RUN", "Run whose events are read (default: the newest).", None)
    page: Path | None = file_option("Write a page there.")
    perfetto: Path | None = file_option("Write a trace there, for ui.perfetto.dev.")


@app.command("timeline")
@with_options
def timeline(asked: TimelineOptions) -> None:
    """Show whose a measurement's energy was: power, threads, functions, requests and syncs on one clock.

    With --lg-env the board boots once and is measured while its kernel traces its events, which slows it down: figures
    of such a run count nowhere else. Without it a run is read that was measured so.

    Exit code 0; errors: 2 the input (a kernel without events, a run without any), 4 the lab.

    Example: fsjoule timeline --lg-env env/deterministic.yaml --fs ext4 -k randwrite --page why.html --perfetto why.json
    """
    if asked.lg_env is not None and asked.run is not None:
        raise ConfigError("--lg-env measures now, and RUN is read", hint="leave one of them out")
    if asked.page is not None:
        need("pages", *PAGES)
    if asked.lg_env is None:
        refuse("only what is measured now (--lg-env FILE) takes", given_options(asked, _MeasuringOptions))
        from fsjoule.filesystems import named_filesystems
        from fsjoule.runs.explain import read_timelines
        from fsjoule.store.reader import load_run
        from fsjoule.store.run_folders import named_run

        loaded = load_run(named_run(asked.run))
        names = named_filesystems(asked.fs, lenient=True)
        found = read_timelines(loaded, filesystems=names, select=asked.select)
    else:
        from fsjoule.runs.explain import measure_timelines

        choice, environment, again = fresh_choice(asked, kernel=asked.kernel, storage=asked.storage, repeat=1)
        loaded, found = measure_timelines(choice, environment, command=again)
    _show(found, loaded.path, asked)


def _show(found: tuple[TimelineView, ...], folder: Path, asked: TimelineOptions) -> None:
    from fsjoule.report.timeline import print_timeline, render_page, to_document

    if asked.json_output:
        print_json(to_document(found, str(folder)))
    else:
        for each in found:
            print_timeline(out, each, everything=asked.everything, wide=asked.wide)
        progress(f"run folder  {folder}")
    for file, text in ((asked.page, render_page), (asked.perfetto, _trace_text)):
        if file is not None:
            write_text(file, text(found))
            progress(f"written  {file}")


def _trace_text(views: Sequence[TimelineView]) -> str:
    from fsjoule.report.timeline import to_trace_events

    return json.dumps(to_trace_events(views))
