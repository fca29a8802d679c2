"""`fsjoule crash`: what a state of a run of crash states holds, and what became of it."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Final

import typer

from fsjoule.cli.common import Json, Run, out, print_json
from fsjoule.errors import ConfigError

if TYPE_CHECKING:
    from fsjoule.model import Measurement
    from fsjoule.model.write_log import State, WriteLog

app = typer.Typer(help="Look at the states that a power cut can leave behind (docs/crash.md).", no_args_is_help=True)

_KIB: Final = 2  # sectors
_COLUMNS: Final = ("write", "sector", "KiB", "on the medium")


@app.command()
def show(
    state: Annotated[str, typer.Argument(help="The state's name: 17:0-3.")],
    *,
    run: Run = None,
    fs: Annotated[str | None, typer.Option(help="The filesystem, if the run has several.")] = None,
    json_output: Json = False,
) -> None:
    """Show a state: which writes had reached the medium, what became of it, and the command that checks it again.

    Exit code: 2 if the run has no such state.

    Example: fsjoule crash show 17:0-3 --fs ext4:nobarrier
    """
    from fsjoule.report.crash import KeptCrashes
    from fsjoule.report.table import Cell, Column, assembled
    from fsjoule.report.terminal import print_table
    from fsjoule.store.reader import load_run
    from fsjoule.store.run_folders import named_run

    loaded = load_run(named_run(run))
    measurement = _measurement(loaded.measurements, fs)
    kept = KeptCrashes.read(lambda name: loaded.attachment(measurement.number, name))
    one = kept.log.state(state)
    writes = _writes(kept.log, one)
    name, fate = measurement.series.filesystem_title, kept.fates.get(one.name)
    broken = [line for line in kept.promises if f" {line.split()[0]}=" in (fate or "")]
    given = {"--seed": str(loaded.run.plan.seed), "--fs": name, "--states": kept.log.full_name(one)}
    again = (*_without(loaded.run.command, given), *chain.from_iterable(given.items()))
    if json_output:
        keys = ("number", "lasting", "sector", "kib", "reached")
        print_json(
            {
                "run": loaded.run.run_id,
                "filesystem": name,
                "log": kept.log.digest,
                "state": one.name,
                "promises": one.promises,
                "writes": [dict(zip(keys, each, strict=True)) for each in writes],
                "fate": fate,
                "broken": broken,
                "command": again,
            }
        )
        return
    rows = [(f"lasting {each[0]}" if each[1] else str(each[0]), *map(str, each[2:])) for each in writes]
    columns = [
        (Column(title, is_figure=i < len(_COLUMNS) - 1), [Cell(row[i]) for row in rows])
        for i, title in enumerate(_COLUMNS)
    ]
    title = f"{name}, state {one.name}: writes since the last flush"
    print_table(out, assembled(title, columns, simulated=measurement.simulated, groups=[""] * len(writes)))
    lines = {
        "log": kept.log.name,
        "promises made": str(one.promises),
        "fate": fate or "not checked: its content is that of another state",
        **{f"broken {i}": line for i, line in enumerate(broken, 1)},
        "to check it": shlex.join(again),
    }
    for head, text in lines.items():
        out.print(f"{head:<14} {text}", soft_wrap=True, highlight=False, markup=False)


def _without(command: Sequence[str], options: Collection[str]) -> Iterator[str]:
    """The words of a command without these options and their values."""
    words = iter(command)
    for word in words:
        if word in options:
            next(words, None)
        elif word.partition("=")[0] not in options:
            yield word


def _measurement(measurements: tuple[Measurement, ...], filesystem: str | None) -> Measurement:
    """The run's measurement of crash states. Raises ConfigError if there is none, or more than one."""
    those = [each for each in measurements if each.crash is not None]
    if filesystem is not None:
        those = [each for each in those if each.series.filesystem_title == filesystem]
    if len(those) == 1:
        return those[0]
    there = dict.fromkeys(each.series.filesystem_title for each in measurements if each.crash is not None)
    if not there:
        raise ConfigError("the run has no crash states", hint="fsjoule bench --suite crash-states checks them")
    hint = f"choose one of the run's filesystems: --fs {', '.join(there)}"
    raise ConfigError(
        "several measurements of crash states" if those else f"no crash states of {filesystem}", hint=hint
    )


def _writes(log: WriteLog, state: State) -> list[tuple[int, bool, int, float, str]]:
    """Number, whether it lasts (FUA), sector and KiB of each write of the epoch, and what of it is on the medium."""
    epoch, subset = log.epochs[state.epoch], state.subset
    rows: list[tuple[int, bool, int, float, str]] = []
    for i, entry in enumerate(log.entries[number] for number in epoch.events):
        if entry.writes:
            rows.append((i, True, entry.sector, entry.sectors / _KIB, "yes" if i < subset.events else "no"))
    for i, entry in enumerate(log.entries[number] for number in epoch.pending):
        reached = "yes" if i in subset.writes else "no"
        if i == subset.torn:
            kib = abs(subset.sectors) / _KIB
            reached = f"the first {kib:g} KiB" if subset.sectors > 0 else f"all but the first {kib:g} KiB"
        rows.append((i, False, entry.sector, entry.sectors / _KIB, reached))
    return rows
