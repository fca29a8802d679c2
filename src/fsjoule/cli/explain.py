"""`fsjoule explain`. Thin: it reads arguments, calls one function, shows what came back."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from fsjoule.cli.common import (
    All,
    Filesystems,
    Json,
    PlaceTag,
    Priority,
    Select,
    Wait,
    Wide,
    check_whole,
    joined,
    out,
    output_file,
    print_json,
    progress,
    refuse,
    write_text,
)
from fsjoule.errors import ConfigError, FsjouleError
from fsjoule.store.index.defaults import VARIABLE

if TYPE_CHECKING:
    from fsjoule.store.reader import LoadedRun
    from fsjoule.verdicts.explanation.changes import Explanation

app = typer.Typer()
_SUITE: Final = "quick"


@app.command("explain")
def explain(
    *,
    baseline: Annotated[str, typer.Argument(metavar="A", help="Kernel that is compared with.")],
    candidate: Annotated[str, typer.Argument(metavar="B", help="Kernel whose figure is another.")],
    lg_env: Annotated[
        Path | None, typer.Option("--lg-env", metavar="FILE", help="Measure now, on this board (exact in guest time).")
    ] = None,
    place_tag: PlaceTag = None,
    wait: Wait = None,
    priority: Priority = None,
    within: Annotated[
        str | None,
        typer.Option("--within", metavar="RUN", help="Read the profiles that this run has kept (default: the newest)."),
    ] = None,
    fs: Filesystems = None,
    suite: Annotated[str | None, typer.Option("--suite", metavar="NAME", help=f"Suite (measured: {_SUITE}).")] = None,
    select: Select = None,
    repeat: Annotated[int | None, typer.Option("--repeat", metavar="N", help="Boots of each kernel (else 1).")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the boots and all random choices (else a new one).")] = None,
    results: Annotated[Path, typer.Option(metavar="DIR", help="Where the run folder goes.")] = Path("results"),
    index: Annotated[
        str | None,
        typer.Option(
            "--index", metavar="URL", envvar=VARIABLE, help="Keep in this index that the changes are explained."
        ),
    ] = None,
    everything: All = False,
    wide: Wide = False,
    json_output: Json = False,
    svg: Annotated[
        Path | None, typer.Option("--svg", metavar="FILE", callback=output_file, help="Write a picture there.")
    ] = None,
    folded: Annotated[
        Path | None,
        typer.Option(
            "--folded", metavar="FILE", callback=output_file, help="Write folded stacks there, for flamegraph.pl."
        ),
    ] = None,
) -> None:
    """Say which functions make the difference between two kernels.

    It is exact on a board in guest time. On any other board perf takes samples, and the sampling error is told.

    With --lg-env both kernels (names, package files, build folders) boot and are measured with a profile. Without it
    both are kernels of a run that was measured with --profile: the newest, or that of --within.

    Exit code 0; errors: 2 the input (a board without perf, a run without profiles or with damage), 4 the lab.

    Example: fsjoule explain 6.12 sid --lg-env env/deterministic.yaml --fs btrfs -k read-16k --svg why.svg
    """
    if lg_env is not None and within is not None:
        raise ConfigError("--lg-env measures now, and --within reads a run", hint="leave one of them out")
    if lg_env is None:
        measuring = {"--suite": suite, "--repeat": repeat, "--seed": seed}
        measuring |= {"--place-tag": place_tag, "--wait": wait, "--priority": priority}
        refuse("only what is measured now (--lg-env FILE) takes", measuring)
        from fsjoule.model.labels import listed
        from fsjoule.runs.explain import explain_run
        from fsjoule.store.reader import load_run
        from fsjoule.store.run_folders import named_run

        loaded = load_run(named_run(within))
        kernels = (baseline, candidate)
        found = explain_run(loaded, *kernels, filesystems=listed(fs), select=select)
    else:
        from fsjoule.lab import place_request, read_environment
        from fsjoule.runs.explain import explain_measured
        from fsjoule.runs.request import choose

        environment = read_environment(lg_env, place_request(place_tag, wait, priority))
        drawn = secrets.randbits(32) if seed is None else seed
        choice = choose(
            suite_name=suite or _SUITE,
            filesystems=joined(fs),
            kernels=(baseline, candidate),
            repeat=1 if repeat is None else repeat,
            provision=None,
            results=results,
            seed=drawn,
            environment=environment,
            select=select,
        )
        again = ("fsjoule", *sys.argv[1:], *([] if seed is not None else ["--seed", str(drawn)]))
        loaded, found = explain_measured(choice, environment, say=progress, command=again)
        kernels = (loaded.run.plan.kernels[0], loaded.run.plan.kernels[1])
    _show(found, loaded.path, json_output=json_output, everything=everything, wide=wide)
    _write_files(found, svg, folded)
    if index is not None:
        _keep(index, loaded, kernels, found)
    check_whole(loaded)


def _keep(index: str, loaded: LoadedRun, kernels: tuple[str, str], found: tuple[Explanation, ...]) -> None:
    """The explanation is there, and stays, whatever the index says."""
    from fsjoule.runs.explain import explained_states
    from fsjoule.store.index.database import open_index
    from fsjoule.store.index.states import keep_states

    try:
        with open_index(index) as opened:
            keep_states(opened, explained_states(loaded, *kernels, found))
    except FsjouleError as error:
        progress(f"warning: the index does not know of it: {error.what}")


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


def _show(found: tuple[Explanation, ...], folder: Path, *, json_output: bool, everything: bool, wide: bool) -> None:
    if json_output:
        from fsjoule.report.explanation.document import to_document

        print_json(to_document(found, folder))
        return
    from fsjoule.report.explanation.text import print_explanation

    for each in found:
        print_explanation(out, each, everything=everything, wide=wide)
    progress(f"run folder  {folder}")


def _write_files(found: tuple[Explanation, ...], svg: Path | None, folded: Path | None) -> None:
    """Write a file for each series: times of different series have nothing to do with each other."""
    from fsjoule.report.explanation.document import to_folded
    from fsjoule.report.explanation.section import draw

    for file, drawn in ((svg, draw), (folded, to_folded)):
        for each in found if file is not None else ():
            assert file is not None, "there is something to write"
            several = f"-{each.series.replace(' ', '-').replace('/', '-')}" if len(found) > 1 else ""
            path = file.with_name(f"{file.stem}{several}{file.suffix}")
            write_text(path, drawn(each))
            progress(f"written  {path}")
