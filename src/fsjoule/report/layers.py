"""What layers between filesystem and storage cost, in a table. `verdicts.filesystems` judges."""

from __future__ import annotations

from typing import Final

from fsjoule.report.numbers import ABSENT, range_text, signed
from fsjoule.report.summary import Summary
from fsjoule.report.table import Cell, Column, Filled, Table, Tone, assembled
from fsjoule.statistics.outcome import Outcome
from fsjoule.verdicts.filesystems import Preferred

_TONES: Final = {Outcome.IMPROVED: Tone.GOOD, Outcome.REGRESSED: Tone.BAD, Outcome.UNDECIDED: Tone.DOUBT}


def layers_table(summary: Summary) -> Table | None:
    """Each layer's change of speed and energy, a row per operation, filesystem and stack; None without layers."""
    operations = {row.series: row.workload.label for row in (*summary.fio, *summary.timed)}
    rows: dict[tuple[str, ...], dict[bool, Preferred]] = {}
    for one in summary.layers:
        key = one.subject.series
        head = (operations[key], key.filesystem_title, key.stack, key.device, one.subject.kernel or "")
        rows.setdefault(head, {})[one.metric.row.as_energy] = one
    if not rows:
        return None
    shown = {"operation": True, "filesystem": True, "with": True}
    shown |= {"storage": summary.several_storages, "kernel": summary.several_kernels}
    filled: list[Filled] = [
        (Column(name, is_figure=False, head=True), [Cell(head[i]) for head in rows])
        for i, (name, is_shown) in enumerate(shown.items())
        if is_shown
    ]
    for energy, name in ((False, "throughput or time" if summary.timed else "throughput"), (True, "energy")):
        found = [cells.get(energy) for cells in rows.values()]
        if any(found):
            filled.append((Column(name), [_change(each) for each in found]))
            intervals = [Cell(range_text(each.interval) if each else "") for each in found]
            filled.append((Column("95 %", joins=True, optional=True), intervals))
    return assembled("What layers cost", filled, simulated=summary.simulated, groups=[head[0] for head in rows])


def _change(one: Preferred | None) -> Cell:
    return (
        Cell(ABSENT) if one is None else Cell(signed(one.ratio, one.interval), tone=_TONES.get(one.outcome, Tone.PLAIN))
    )
