"""What layers between filesystem and storage cost, in a table and for scripts. `verdicts.filesystems` judges."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fsjoule.report.numbers import ABSENT, range_text, signed
from fsjoule.report.summary import Summary
from fsjoule.report.table import Cell, Column, Filled, Table, Tone, assembled
from fsjoule.statistics.outcome import Outcome
from fsjoule.verdicts.filesystems import LayerCost

_TONES: Final = {Outcome.IMPROVED: Tone.GOOD, Outcome.REGRESSED: Tone.BAD, Outcome.UNDECIDED: Tone.DOUBT}


def layers_table(summary: Summary, costs: Sequence[LayerCost]) -> Table | None:
    """Each layer's change of speed and energy, a row per operation, filesystem and stack; None without layers."""
    rows: dict[tuple[str, ...], dict[bool, LayerCost]] = {}
    for each in costs:
        key = (each.workload.label, each.filesystem, each.stack, each.device, each.kernel)
        rows.setdefault(key, {})[each.metric.row.as_energy] = each
    if not rows:
        return None
    shown = {"operation": True, "filesystem": True, "with": True}
    shown |= {"storage": summary.several_storages, "kernel": summary.several_kernels}
    filled: list[Filled] = [
        (Column(name, is_figure=False, head=True), [Cell(key[i]) for key in rows])
        for i, (name, is_shown) in enumerate(shown.items())
        if is_shown
    ]
    for energy, name in ((False, "throughput or time"), (True, "energy")):
        found = [cells.get(energy) for cells in rows.values()]
        if any(found):
            filled.append((Column(name), [_change(each) for each in found]))
            intervals = [Cell(range_text(each.finding.interval) if each else "") for each in found]
            filled.append((Column("95 %", joins=True, optional=True), intervals))
    return assembled("What layers cost", filled, simulated=summary.simulated, groups=[key[0] for key in rows])


def layers_document(costs: Sequence[LayerCost]) -> list[dict[str, object]]:
    """The same for scripts."""
    return [
        {
            "operation": each.workload.slug,
            "storage": each.device,
            "kernel": each.kernel,
            "filesystem": each.filesystem,
            "stack": each.stack,
            "metric": each.metric.value,
            "unit": each.metric.unit,
            "without": each.finding.baseline,
            "with": each.finding.candidate,
            "ratio": each.finding.ratio,
            "interval": None
            if each.finding.interval is None
            else [each.finding.interval.low, each.finding.interval.high],
            "outcome": each.finding.outcome.value,
        }
        for each in costs
    ]


def _change(cost: LayerCost | None) -> Cell:
    if cost is None:
        return Cell(ABSENT)
    return Cell(signed(cost.finding.ratio, cost.finding.interval), tone=_TONES.get(cost.finding.outcome, Tone.PLAIN))
