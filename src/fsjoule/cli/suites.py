"""`fsjoule suites`: what each suite measures, and its cost in time, wear and energy."""

from __future__ import annotations

import re
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from fsjoule.cli.common import Filesystems, Json, Storages, Wide, joined, out, print_json

if TYPE_CHECKING:
    from fsjoule.model import Planned, Workload
    from fsjoule.report.table import Table

app = typer.Typer(no_args_is_help=True, help="List suites of benchmarks: what they measure, and their cost on a board.")


@app.command("list")
def suites_list(json_output: Json = False) -> None:
    """List all suites and their parts.

    Example: fsjoule suites list
    """
    from fsjoule.suites import SUITES, project_suites, suite

    own = project_suites()
    if json_output:
        ours = (name for each in SUITES for name in (each, *(part.name for part in suite(each).leaves)))
        names = dict.fromkeys((*ours, *own))
        print_json({name: _described(name) for name in names})
        return
    for each in SUITES.values():
        out.print(Text.assemble((each.name, "bold"), f"  {each.title}"))
        for part in each.parts:
            out.print(f"  {part.name:<20} {part.title}", highlight=False)
        if each.source:
            out.print(f"  after {each.source}", style="dim", highlight=False)
    for name, file in own.items():
        out.print(Text.assemble((name, "bold"), f"  {suite(name).title}"))
        out.print(f"  {file}", style="dim", highlight=False, markup=False, soft_wrap=True)


@app.command("show")
def suites_show(  # noqa: PLR0917 - a command's options
    name: Annotated[
        str, typer.Argument(help="A suite, a part of one (elc2015/boot), or a file: ./own.toml, ./own.fio.")
    ],
    lg_env: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The board's environment file (default: env/virtual.yaml).")
    ] = None,
    fs: Filesystems = None,
    storage: Storages = None,
    kernel: Annotated[str, typer.Option(help="Kernels, a,b.")] = "6.1",
    repeat: Annotated[
        int | None, typer.Option(help="Repetitions (default: as many as it takes, as in a bench).")
    ] = None,
    size_factor: Annotated[float | None, typer.Option(help="Factor for published sizes.")] = None,
    full: Annotated[bool, typer.Option("--full", help="Published sizes and repetitions.")] = False,
    results: Annotated[Path, typer.Option(help="Earlier runs for the estimate to learn from.")] = Path("results"),
    wide: Wide = False,
    json_output: Json = False,
) -> None:
    """Show what a suite measures on a board, and its cost: time, bytes written (wear) and energy.

    Example: fsjoule suites show elc2015/bandwidth --lg-env env/virtual.yaml --fs ext4,btrfs
    """
    from fsjoule.host.paths import project_dir
    from fsjoule.lab import read_environment
    from fsjoule.model import MIB
    from fsjoule.report.numbers import seconds_text
    from fsjoule.report.oneline import plan_lines
    from fsjoule.report.terminal import print_table
    from fsjoule.runs.options import BenchOptions
    from fsjoule.runs.plan import earlier_rates, planned
    from fsjoule.runs.request import choose, least_boots
    from fsjoule.suites import estimate
    from fsjoule.verdicts.filesystems import rule_of

    environment = read_environment(lg_env or project_dir() / "env" / "virtual.yaml")
    profile = environment.profile
    asked = BenchOptions(
        suite=name, fs=joined(fs), kernel=kernel, storage=storage, repeat=repeat, size_factor=size_factor, full=full
    )
    choice = choose(replace(asked, seed=1), environment)
    arranged = planned(choice, profile, choice.kernels)
    rates = earlier_rates(results, profile)
    most = estimate(arranged.entries, rates)
    least, taken = choice.repeat, most
    if choice.until_decided:
        least = least_boots(choice.suite, rule_of(guest_time=profile.guest_time))
        taken = estimate([each for each in arranged.entries if each.repetition <= least], rates)
    if json_output:
        factors = {part.name: choice.factor_for(part.name, profile) for part in choice.suite.leaves if part.scaled}
        print_json(
            {
                **_described(name),
                "board": profile.name,
                "filesystems": choice.filesystems,
                "repeat": least,
                "repeat_at_most": choice.repeat,
                "size_factors": factors,
                "left_out": arranged.left_out,
                "adjusted": arranged.adjusted,
                "estimate": asdict(taken),
                "estimate_at_most": asdict(most),
                "learned_from_runs": rates.runs,
            }
        )
        return
    out.print(Text.assemble((choice.suite.name, "bold"), f"  {choice.suite.title}"))
    if choice.suite.source:
        out.print(f"after {choice.suite.source}", highlight=False)
    if choice.suite.file:
        out.print(choice.suite.file, highlight=False, markup=False, soft_wrap=True)
    print_table(out, _table(arranged.entries), wide=wide)
    for part in choice.suite.leaves:
        for remark in part.remarks:
            out.print(f"{part.name}: {remark}", highlight=False, markup=False)
    for text in dict.fromkeys(filter(None, (entry.workload.explained for entry in arranged.entries))):
        out.print(text, highlight=False, markup=False, soft_wrap=True)
    for line in plan_lines(arranged.left_out, arranged.adjusted):
        out.print(line, highlight=False, markup=False, soft_wrap=True)
    learned_from = f"learned from runs of {profile.name}: {rates.runs}" if rates.runs else "a guess: no earlier run"
    out.print(
        f"{taken.measurements} measurements of {', '.join(choice.filesystems)}, {least} repetitions, "
        f"{taken.boots} boots: about {seconds_text(taken.seconds)}, {taken.written_bytes / MIB:,.0f} MiB written, "
        f"{taken.energy_j:,.0f} J of the board ({learned_from})",
        highlight=False,
        soft_wrap=True,
    )
    if choice.until_decided:
        out.print(
            f"more until each figure of two filesystems is decided: at most {choice.repeat} repetitions, "
            f"about {seconds_text(most.seconds)}",
            highlight=False,
            soft_wrap=True,
        )


def _table(entries: tuple[Planned, ...]) -> Table:
    from fsjoule.model.operation import size_label
    from fsjoule.report.table import Column, listing, word

    rows: list[tuple[str, ...]] = []
    where: dict[tuple[str, Workload], list[str]] = {}
    for entry in entries:
        where.setdefault((entry.suite, entry.workload), []).append(entry.storage)
    for (part, workload), storages in sorted(where.items(), key=lambda found: _place(*found[0])):
        size = size_label(workload.size_bytes) if workload.size_bytes else ""
        rows.append((part, workload.label, size, ", ".join(dict.fromkeys(storages))))
    return listing((word("part"), word("workload"), Column("size"), word("on")), rows)


def _place(part: str, workload: Workload) -> tuple[object, ...]:
    """Sort key of a workload: by part, and numbers by value."""
    words = re.split(r"(\d+)", workload.slug)
    return (part, [int(word) if word.isdigit() else word for word in words])


def _described(name: str) -> dict[str, object]:
    from fsjoule.suites import suite

    found = suite(name)
    return {
        "title": found.title,
        "file": found.file,
        "source": found.source,
        "parts": [part.name for part in found.parts],
        "filesystems": list(found.filesystems),
        "repeat": found.repeat,
        "published_repeat": found.published_repeat,
        "workloads": [workload.slug for part in found.leaves for workload in part.workloads],
        "remarks": [remark for part in found.leaves for remark in part.remarks],
    }
