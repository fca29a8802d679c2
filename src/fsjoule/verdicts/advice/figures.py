"""A day and a year of one filesystem, from the rows of its parts. Pure.

A day has 86,400 s. The board works for the seconds that its I/O takes, and draws the measured (gross) energy; of the
rest it idles for the profile's share, and is off otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from fsjoule.model import FileFate
from fsjoule.statistics.estimate import Estimate, bounded_mean, estimate_of
from fsjoule.statistics.spread import Proportion, spread_of
from fsjoule.suites.profile import UsageProfile
from fsjoule.verdicts.advice.evidence import AdviceEvidence, Boot, FilesystemEvidence, PartFigures, PowerCut
from fsjoule.verdicts.advice.parts import POWER_LOSS, UsageKind, UsagePart, parts_of

DAY_S: Final = 86_400.0
DAYS_PER_YEAR: Final = 365.25
_MIB_PER_TIB: Final = 1024 * 1024
# How far UBI lets its most erased block be ahead. Source: CONFIG_MTD_UBI_WL_THRESHOLD.
_UBI_AHEAD: Final = 4096
_J_PER_WH: Final = 3600.0

Rows = Mapping[UsagePart, PartFigures]
"""A row per part, all of one boot where one boot has them all."""


@dataclass(frozen=True, slots=True)
class Share:
    """A part's contribution to a day: the means over boots."""

    part: UsagePart
    joules: float
    seconds: float
    written_mib: float


@dataclass(frozen=True, slots=True)
class Losses:
    """Power cuts: how many lost files whose fsync had returned, and files lost a year if each cut hits such a writer.

    `fates` counts all promised files by fate, `per_cut` the lost files of each cut.
    """

    cuts: Proportion
    unmountable: int
    promised: int
    fates: Mapping[FileFate, int]
    per_cut: tuple[int, ...]
    per_year: Estimate


@dataclass(frozen=True, slots=True)
class FilesystemFigures:
    """One filesystem's figures; None where something was not measured, which `missing` names by slug of workload.

    `energy_j` is a day's energy, `work_s` the time that a day's I/O takes (more than a day: the board cannot do it),
    `written_mib` what a day writes to the device, or erases of raw flash, `worn` the same as a share of what the medium
    endures, if that is known (None if it cannot be compared with the others), `wait_s` the longest p99 of the parts,
    that of `slowest`. `battery_days` and `years` are how long battery and card last. The `*_of_boots` have one figure
    per boot, for comparisons, and `mount_of_cuts` one per power cut. `unflushed`: it sends its device no flushes.
    """

    filesystem: FilesystemEvidence
    missing: tuple[str, ...]
    shares: tuple[Share, ...] = ()
    energy_j: Estimate | None = None
    battery_days: Estimate | None = None
    work_s: Estimate | None = None
    written_mib: Estimate | None = None
    worn: Estimate | None = None
    years: Estimate | None = None
    wait_s: Estimate | None = None
    slowest: UsageKind | None = None
    losses: Losses | None = None
    mount_s: Estimate | None = None
    fsck_s: Estimate | None = None
    energy_of_boots: Mapping[Boot, float] = field(default_factory=dict[Boot, float])
    worn_of_boots: Mapping[Boot, float] = field(default_factory=dict[Boot, float])
    wait_of_boots: Mapping[Boot, float] = field(default_factory=dict[Boot, float])
    mount_of_cuts: tuple[float, ...] = ()
    unflushed: bool = False

    @property
    def label(self) -> str:
        return self.filesystem.label

    @property
    def loses_files(self) -> bool:
        """Whether power cuts lose files whose fsync had returned: seen in a cut, or certain where none was measured."""
        return self.unflushed if self.losses is None else self.losses.cuts.count > 0


def figures_of(filesystem: FilesystemEvidence, profile: UsageProfile, evidence: AdviceEvidence) -> FilesystemFigures:
    parts = parts_of(profile)
    missing = [part.slug for part in parts if part.slug not in filesystem.rows]
    missing += [POWER_LOSS] * (profile.power_cuts_per_year > 0 and not evidence.no_cuts and not filesystem.cuts)
    mounts = tuple(cut.mount_s for cut in filesystem.cuts if cut.mount_s is not None)
    base = FilesystemFigures(
        filesystem,
        missing=tuple(missing),
        losses=_losses(filesystem.cuts, profile.power_cuts_per_year),
        mount_s=estimate_of(mounts),
        mount_of_cuts=mounts,
        fsck_s=estimate_of([figure for figure in filesystem.fsck_s if figure is not None]),
        unflushed=filesystem.unflushed,
    )
    boots = _boots(filesystem, parts)
    if not boots:
        return base
    energies = _energies(boots, profile, evidence)
    energy = estimate_of(tuple(energies.values()), _instrument_j(boots, profile, evidence))
    writing = [part for part in parts if part.kind is not UsageKind.READ]
    written = _totals(boots, writing, lambda row: row.written_mib) if writing else {}
    written_mib = estimate_of(tuple(written.values()))
    slowest, waits = _waits(boots, parts)
    battery, card = profile.battery, profile.card
    endurance_mib = card.endurance_tib * _MIB_PER_TIB if card else 0.0
    if filesystem.flash_mib:
        endurance_mib = filesystem.flash_mib * max(0.0, profile.flash_erasures - _UBI_AHEAD)
    # An erasure of flash is no write to a card.
    worn = {boot: mib / (endurance_mib or 1.0) for boot, mib in written.items()}
    kinds = {bool(each.flash_mib) for each in evidence.filesystems}
    if not endurance_mib and len(kinds) > 1:
        worn = {}
    return replace(
        base,
        shares=tuple(_share(part, boots) for part in parts),
        energy_j=energy,
        battery_days=energy.mapped(lambda joules: _over(battery.wh * _J_PER_WH, joules))
        if battery and energy
        else None,
        work_s=estimate_of(tuple(_totals(boots, parts, lambda row: row.seconds).values())),
        written_mib=written_mib,
        years=(
            written_mib.mapped(lambda mib: _over(endurance_mib, mib * DAYS_PER_YEAR))
            if endurance_mib and written_mib and written_mib.value > 0
            else None
        ),
        wait_s=estimate_of(tuple(waits.values())),
        slowest=slowest,
        energy_of_boots=energies,
        worn=estimate_of(tuple(worn.values())),
        worn_of_boots=worn,
        wait_of_boots=waits,
    )


def _over(amount: float, rate: float) -> float:
    """How long an amount lasts; for ever if the rate, or an interval's lower end of it, is zero."""
    return amount / rate if rate > 0 else math.inf


def _boots(filesystem: FilesystemEvidence, parts: Sequence[UsagePart]) -> dict[Boot, Rows]:
    """The rows of all parts per boot.

    If no boot has all parts (they are of several runs), the first boot of each part is put with the first of the others
    and so on, under the name of the first part's: boots of different runs are independent, whichever are put together.
    """
    if not parts or any(part.slug not in filesystem.rows for part in parts):
        return {}
    by_part = {part: filesystem.rows[part.slug] for part in parts}
    first, *others = by_part.values()
    whole: list[Boot] = [boot for boot in first if all(boot in rows for rows in others)]
    if whole:
        return {boot: {part: rows[boot] for part, rows in by_part.items()} for boot in whole}
    together = zip(*(rows.values() for rows in by_part.values()), strict=False)
    return {boot: dict(zip(by_part, rows, strict=True)) for boot, rows in zip(first, together, strict=False)}


def _totals(
    boots: Mapping[Boot, Rows], parts: Sequence[UsagePart], get: Callable[[PartFigures], float | None]
) -> dict[Boot, float]:
    """A day's sum over the parts, one per boot that has the figure of every part."""
    totals: dict[Boot, float] = {}
    for boot, rows in boots.items():
        figures = [(part.per_day, get(rows[part])) for part in parts]
        if all(figure is not None for _, figure in figures):
            totals[boot] = sum(per_day * (figure or 0.0) for per_day, figure in figures)
    return totals


def _idle_s(rows: Rows, profile: UsageProfile) -> float:
    work_s = sum(part.per_day * (row.seconds or 0.0) for part, row in rows.items())
    return profile.idle_share * max(0.0, DAY_S - work_s)


def _energies(boots: Mapping[Boot, Rows], profile: UsageProfile, evidence: AdviceEvidence) -> dict[Boot, float]:
    """A day's joules, one per boot. Idle power is the board's, the same for all boots and filesystems."""
    if profile.idle_share and not evidence.idle_w:
        return {}
    idle = spread_of(evidence.idle_w)
    idle_w = idle.mean if idle else 0.0
    working = _totals(boots, list(next(iter(boots.values()))), lambda row: row.joules)
    return {boot: joules + idle_w * _idle_s(boots[boot], profile) for boot, joules in working.items()}


def _instrument_j(boots: Mapping[Boot, Rows], profile: UsageProfile, evidence: AdviceEvidence) -> float:
    """The standard uncertainty of a day's joules that all boots share: the meter's, and that of idle power.

    Its parts are added as they are, not in quadrature: gain and shunt are off by the same share in all of them.
    """
    parts = list(next(iter(boots.values())))
    worst = max(_totals(boots, parts, lambda row: row.uncertainty_j).values(), default=0.0)
    idle = spread_of(evidence.idle_w)
    # All boots share the one figure of idle power, with what its own mean does not know.
    of_boots_w = idle.sd / math.sqrt(idle.n) if idle and idle.sd else 0.0
    longest_s = max(_idle_s(rows, profile) for rows in boots.values())
    return worst + math.hypot(evidence.idle_uncertainty_w, of_boots_w) * longest_s


def _waits(boots: Mapping[Boot, Rows], parts: Sequence[UsagePart]) -> tuple[UsageKind | None, dict[Boot, float]]:
    """The longest p99 of reads, writes and fsyncs in each boot, and the kind that most often is the longest."""
    waiting = [part for part in parts if part.kind is not UsageKind.FILES]
    longest: dict[Boot, tuple[float, UsageKind]] = {}
    for boot, rows in boots.items():
        waits = [(p99_s, part.kind) for part in waiting if (p99_s := rows[part].p99_s) is not None]
        if waiting and len(waits) == len(waiting):
            longest[boot] = max(waits)
    kinds = [kind for _, kind in longest.values()]
    return max(kinds, key=kinds.count, default=None), {boot: wait_s for boot, (wait_s, _) in longest.items()}


def _share(part: UsagePart, boots: Mapping[Boot, Rows]) -> Share:
    def mean(get: Callable[[PartFigures], float | None]) -> float:
        estimate = estimate_of(tuple(_totals(boots, [part], get).values()))
        return estimate.value if estimate else 0.0

    return Share(part, mean(lambda row: row.joules), mean(lambda row: row.seconds), mean(lambda row: row.written_mib))


def _losses(cuts: Sequence[PowerCut], per_year: float) -> Losses | None:
    if not cuts:
        return None
    lost = tuple(cut.lost for cut in cuts)
    # A cut cannot lose more files than had been promised.
    mean = bounded_mean(lost, max(cut.promised for cut in cuts))
    assert mean is not None
    fates: dict[FileFate, int] = {}
    for cut in cuts:
        for fate, count in cut.fates.items():
            fates[fate] = fates.get(fate, 0) + count
    return Losses(
        cuts=Proportion(sum(map(bool, lost)), len(cuts)),
        unmountable=sum(cut.unmountable for cut in cuts),
        promised=sum(cut.promised for cut in cuts),
        fates=fates,
        per_cut=lost,
        per_year=mean.mapped(lambda files: per_year * files),
    )
