"""Advice as one JSON document."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Final

from fsjoule.report.advice import words
from fsjoule.statistics.estimate import Estimate
from fsjoule.verdicts.advice.advise import Advice, Relation
from fsjoule.verdicts.advice.figures import FilesystemFigures, Losses

ADVICE_SCHEMA: Final = "fsjoule.advice/1"


def to_document(advice: Advice) -> dict[str, object]:
    """Figures with their 95 % intervals, relations and what is missing; a figure that was not measured is null."""
    found = advice.evidence
    return {
        "schema": ADVICE_SCHEMA,
        "simulated": found.simulated,
        "answer": words.headline(advice),
        "profile": {"name": advice.profile_name, **asdict(advice.profile)},
        "board": found.board,
        "storage": found.storage,
        "kernel": found.kernel,
        "runs": list(found.runs),
        "sensible": [one.label for one in advice.sensible],
        "ranked": [one.label for one in advice.ranked],
        "loses_files": [one.label for one in advice.unsafe],
        "filesystems": [_filesystem(one) for one in advice.figures],
        "relations": [_relation(one) for one in advice.relations],
        "rule": asdict(advice.rule),
        "criteria": asdict(advice.criteria),
        "weights": {axis.value: weight for axis, weight in advice.weights.items()},
        "scores": {score.label: _estimate(score.value) for score in advice.scores},
        "not_measured": [{"workloads": what, "command": command} for what, command in words.missing(advice)],
        "notes": words.notes(advice),
        "damaged": found.damaged,
    }


def _filesystem(one: FilesystemFigures) -> dict[str, object]:
    return {
        "filesystem": one.label,
        "energy_j_per_day": _estimate(one.energy_j),
        "battery_days": _estimate(one.battery_days),
        "work_s_per_day": _estimate(one.work_s),
        "written_mib_per_day": _estimate(one.written_mib),
        "card_years": _estimate(one.years),
        "wait_p99_s": _estimate(one.wait_s),
        "slowest": one.slowest.value if one.slowest else None,
        "power_cuts": _losses(one.losses),
        "mount_after_cut_s": _estimate(one.mount_s),
        "fsck_s": _estimate(one.fsck_s),
        "parts": [
            {
                "workload": share.part.slug,
                "kind": share.part.kind.value,
                "per_day": share.part.per_day,
                "joules_per_day": share.joules,
                "seconds_per_day": share.seconds,
                "written_mib_per_day": share.written_mib,
            }
            for share in one.shares
        ],
        "not_measured": list(one.missing),
    }


def _losses(losses: Losses | None) -> dict[str, object] | None:
    if losses is None:
        return None
    return {
        "cuts": losses.cuts.n,
        "cuts_with_losses": losses.cuts.count,
        "share_interval": list(losses.cuts.interval()),
        "not_mountable": losses.unmountable,
        "promised_files": losses.promised,
        "lost_per_cut": list(losses.per_cut),
        "fates": {fate.value: count for fate, count in losses.fates.items()},
        "files_lost_per_year": _estimate(losses.per_year),
    }


def _relation(one: Relation) -> dict[str, object]:
    return {
        "axis": one.axis.value,
        "filesystems": [one.one, one.other],
        "less": one.less,
        "same": one.same,
        "ratio": one.ratio,
        "interval": [one.interval.low, one.interval.high] if one.interval else None,
        "more": one.more,
    }


def _estimate(estimate: Estimate | None) -> dict[str, float | None] | None:
    """An estimate; a bound is null if one boot does not show it, or if it is infinite (a battery that lasts)."""
    if estimate is None:
        return None
    told = {name: value if math.isfinite(value) else None for name, value in asdict(estimate).items()}
    return told | {"low": None, "high": None} if estimate.unknown else told
