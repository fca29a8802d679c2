"""Rows of a table on filesystems' survival: counts, and an interval on the rate of failures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from fsjoule.model import FileFate, FlakeyWorkload, Measurement, Outcome, PowerLossWorkload, SeriesKey
from fsjoule.statistics.proportions import clopper_pearson


@dataclass(frozen=True, slots=True)
class OutcomeRow:
    """One series on one kernel. `valid` counts its iterations, `invalid` those that the framework lost.

    An iteration failed if a promised file is not intact, or the filesystem cannot be mounted for writing; `rate` is the
    95 % interval (Clopper, Pearson) of that share. `files` counts the files of all iterations by fate. `unmountable`,
    `read_only`, `unclean`, `complained` and `repaired` count iterations: `unclean` those among the `checked`,
    `repaired` those among the `repairs` that were tried.
    """

    label: str
    kernel: str
    series: SeriesKey
    workload: PowerLossWorkload | FlakeyWorkload
    valid: int
    invalid: int
    failed: int
    rate: tuple[float, float]
    files: dict[FileFate, int]
    unmountable: int
    read_only: int
    checked: int
    unclean: int
    complained: int
    repairs: int
    repaired: int

    @property
    def promised(self) -> int:
        """Files of all iterations whose sync had returned."""
        return sum(self.files.values())


def outcome_row(label: str, workload: PowerLossWorkload | FlakeyWorkload, group: Sequence[Measurement]) -> OutcomeRow:
    outcomes = [m.outcome for m in group if m.valid and m.outcome is not None]
    failed = sum(each.failed for each in outcomes)
    files = Counter[FileFate]()
    for each in outcomes:
        files.update(each.files)
    checked = [each for each in outcomes if each.check_clean is not None]
    repairs = [each for each in outcomes if each.repaired is not None]
    return OutcomeRow(
        label=label,
        kernel=group[0].kernel,
        series=group[0].series,
        workload=workload,
        valid=len(outcomes),
        invalid=len(group) - len(outcomes),
        failed=failed,
        rate=clopper_pearson(failed, len(outcomes)),
        files={fate: files[fate] for fate in FileFate if files[fate]},
        unmountable=sum(not each.mounts for each in outcomes),
        read_only=sum(each.read_only for each in outcomes),
        checked=len(checked),
        unclean=sum(not each.check_clean for each in checked),
        complained=sum(bool(each.messages) for each in outcomes),
        repairs=len(repairs),
        repaired=sum(bool(each.repaired) for each in repairs),
    )


def outcome_text(outcome: Outcome) -> str:
    """`14 files: 12 intact, 2 missing; mounts`."""
    fates = ", ".join(f"{count} {fate.value}" for fate, count in outcome.files.items()) or "none"
    mounts = "read-only" if outcome.read_only else "mounts" if outcome.mounts else "does not mount"
    words = [f"{outcome.promised} files: {fates}", mounts]
    words += ["checker finds faults"] if outcome.check_clean is False else []
    words += [] if outcome.repaired is None else ["repaired" if outcome.repaired else "not repaired"]
    return "; ".join(words)
