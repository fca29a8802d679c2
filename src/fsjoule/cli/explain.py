"""`fsjoule explain`. Thin: it reads arguments, calls one function, shows what came back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from fsjoule.cli.common import (
    check_whole,
    out,
    print_json,
    progress,
    refuse,
    write_text,
)
from fsjoule.cli.options import FreshOptions, InsightOptions, argument, file_option, fresh_choice, with_options
from fsjoule.errors import ConfigError, FsjouleError
from fsjoule.runs.options import given_options, option
from fsjoule.store.index.defaults import VARIABLE

if TYPE_CHECKING:
    from fsjoule.verdicts.explanation.changes import Explanation

app = typer.Typer()


@dataclass(frozen=True, kw_only=True)
class _ExplainBenchOptions(FreshOptions):
    repeat: int | None = option("N", "Boots of each kernel (else 1).")


@dataclass(frozen=True, kw_only=True)
class ExplainOptions(_ExplainBenchOptions, InsightOptions):
    baseline: str = argument("A", "Kernel that is compared with.", ...)
    candidate: str = argument("B", "Kernel whose figure is another.", ...)
    within: str | None = option("RUN", "Read the profiles that this run has kept (default: the newest).")
    index: str | None = option("URL", "Keep in this index that the changes are explained.", envvar=VARIABLE)
    svg: Path | None = file_option("Write a picture there.")
    folded: Path | None = file_option("Write folded stacks there, for flamegraph.pl.")


@app.command("explain")
@with_options
def explain(asked: ExplainOptions) -> None:
    """Say which functions make the difference between two kernels.

    It is exact on a board in guest time. On any other board perf takes samples, and the sampling error is told.

    With --lg-env both kernels (names, package files, build folders) boot and are measured with a profile. Without it
    both are kernels of a run that was measured with --profile: the newest, or that of --within. Two run folders of a
    kernel each, such as two nights of your own tests, are compared as they are.

    Exit code 0; errors: 2 the input (a board without perf, a run without profiles or with damage), 4 the lab.

    Example: fsjoule explain 6.12 sid --lg-env env/deterministic.yaml --fs btrfs -k read-16k --svg why.svg
    """
    if asked.lg_env is not None and asked.within is not None:
        raise ConfigError("--lg-env measures now, and --within reads a run", hint="leave one of them out")
    if asked.lg_env is None:
        refuse("only what is measured now (--lg-env FILE) takes", given_options(asked, _ExplainBenchOptions))
        from fsjoule.filesystems import named_filesystems
        from fsjoule.runs.explain import explain_pair, explain_run
        from fsjoule.store.folder import RUN_FILE
        from fsjoule.store.reader import load_run
        from fsjoule.store.run_folders import named_run

        kernels = (asked.baseline, asked.candidate)
        if asked.within is None and all((Path(each) / RUN_FILE).is_file() for each in kernels):
            first, loaded = map(load_run, map(Path, kernels))
            kernels = (first.path.name, loaded.path.name)
            found = explain_pair((kernels[0], first), (kernels[1], loaded))
        else:
            loaded = load_run(named_run(asked.within))
            names = named_filesystems(asked.fs, lenient=True)
            found = explain_run(loaded, *kernels, filesystems=names, select=asked.select)
    else:
        from fsjoule.runs.explain import explain_measured

        pair, repeat = (asked.baseline, asked.candidate), 1 if asked.repeat is None else asked.repeat
        choice, environment, again = fresh_choice(asked, pair, repeat=repeat)
        loaded, found = explain_measured(choice, environment, command=again)
        kernels = (loaded.run.plan.kernels[0], loaded.run.plan.kernels[1])
    _show(found, loaded.path, asked)
    _write_files(found, asked.svg, asked.folded)
    if asked.index is not None:
        from fsjoule.runs.explain import explained_states
        from fsjoule.store.index.database import open_index
        from fsjoule.store.index.states import keep_states

        try:
            with open_index(asked.index) as opened:
                keep_states(opened, explained_states(loaded, *kernels, found))
        except FsjouleError as error:  # the explanation is there, and stays
            progress(f"warning: the index does not know of it: {error.what}")
    check_whole(loaded)


def found_or_warned(find: Callable[[], tuple[Explanation, ...]]) -> tuple[Explanation, ...]:
    """Explain another command's answer. That answer stays even if this fails: a failure is a warning."""
    try:
        return find()
    except FsjouleError as error:
        progress(f"warning: it cannot be explained: {error.what}")
        return ()


def tell_after(found: tuple[Explanation, ...], *, everything: bool, wide: bool) -> None:
    """Print explanations below another command's answer."""
    from fsjoule.report.explanation.text import print_explanation

    for each in found:
        out.print("")
        print_explanation(out, each, everything=everything, wide=wide)


def _show(found: tuple[Explanation, ...], folder: Path, asked: ExplainOptions) -> None:
    if asked.json_output:
        from fsjoule.report.explanation.text import to_document

        print_json(to_document(found, folder))
        return
    from fsjoule.report.explanation.text import print_explanation

    for each in found:
        print_explanation(out, each, everything=asked.everything, wide=asked.wide)
    progress(f"run folder  {folder}")


def _write_files(found: tuple[Explanation, ...], svg: Path | None, folded: Path | None) -> None:
    """Write a file for each series: times of different series have nothing to do with each other."""
    from fsjoule.report.explanation.section import draw
    from fsjoule.report.explanation.text import to_folded

    for file, drawn in ((svg, draw), (folded, to_folded)):
        for each in found if file is not None else ():
            assert file is not None, "there is something to write"
            several = f"-{each.series.replace(' ', '-').replace('/', '-')}" if len(found) > 1 else ""
            path = file.with_name(f"{file.stem}{several}{file.suffix}")
            write_text(path, drawn(each))
            progress(f"written  {path}")
