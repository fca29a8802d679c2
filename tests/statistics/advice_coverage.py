#!/usr/bin/env python3
"""How often the intervals of `fsjoule advise` hold the truth, and how often equal filesystems are told apart."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Final

import numpy as np
from output import Cell, Report, Share, arguments
from simulation import PLAIN, STALLS, Scenario, boots

from fsjoule.suites.profile import UsageProfile, profile_of
from fsjoule.verdicts.advice.advise import Axis, advise
from fsjoule.verdicts.advice.evidence import AdviceEvidence, FilesystemEvidence, PartFigures, PowerCut
from fsjoule.verdicts.advice.figures import FilesystemFigures, figures_of
from fsjoule.verdicts.advice.parts import UsagePart, parts_of

_SCENARIOS: Final = (("plain", PLAIN), ("5 % stalls", STALLS))
# Standard uncertainty of the meter, as an uncalibrated one has it (docs/energy.md).
_METER: Final = 0.008
_IDLE_W: Final = 1.1
# J, s, MiB written and p99 in s for each MiB or operation, without noise.
_JOULES: Final = 2.0
_SECONDS: Final = 1.5
_WRITTEN_MIB: Final = 3.0
_P99_S: Final = 0.02
_PROMISED: Final = (4, 16)
_MOST_CUTS: Final = 226


def _filesystem(
    rng: np.random.Generator,
    label: str,
    parts: tuple[UsagePart, ...],
    *,
    scenario: Scenario,
    n: int,
    gain: float = 0.0,
    more: float = 0.0,
) -> FilesystemEvidence:
    """A filesystem of `n` boots, measured by a meter that is off by `gain`; it takes `more` of everything."""
    rows: dict[str, dict[tuple[str, str, int], PartFigures]] = {}
    for part in parts:
        # A boot that loses throughput takes longer by as much.
        times = (1 + more) * np.exp(-boots(rng, scenario, (n,)))
        rows[part.slug] = {
            ("run", "6.1", boot): PartFigures(
                joules=float(_JOULES * time * (1 + gain)),
                uncertainty_j=float(_JOULES * time * _METER),
                seconds=float(_SECONDS * time),
                written_mib=float(_WRITTEN_MIB * time),
                p99_s=float(_P99_S * time),
            )
            for boot, time in enumerate(times)
        }
    return FilesystemEvidence(label, label, rows)


def _evidence(filesystems: tuple[FilesystemEvidence, ...], idle_w: tuple[float, ...]) -> AdviceEvidence:
    idle = (idle_w, _METER * _IDLE_W)
    return AdviceEvidence("board", "card", "6.1", True, filesystems, *idle, {"run": Path("run")}, "", 0, {})


def _expected(profile: UsageProfile, mean: float) -> tuple[float, float]:
    """The true joules and MiB written of a day, if a boot takes `mean` times as long on average."""
    parts = parts_of(profile)
    work_s = sum(part.per_day for part in parts) * _SECONDS * mean
    joules = sum(part.per_day for part in parts) * _JOULES * mean
    idle_j = _IDLE_W * profile.idle_share * (86_400 - work_s)
    writing = sum(part.per_day for part in parts if part.kind.value != "reads")
    return joules + idle_j, writing * _WRITTEN_MIB * mean


def _figures(rng: np.random.Generator, profile: UsageProfile, scenario: Scenario, n: int) -> FilesystemFigures:
    gain = float(rng.normal(0, _METER))
    parts = parts_of(profile)
    one = _filesystem(rng, "ext4", parts, scenario=scenario, n=n, gain=gain)
    idle_w = tuple((_IDLE_W * (1 + gain) * (1 + rng.normal(0, 0.003, n))).tolist())
    return figures_of(one, profile, _evidence((one,), idle_w))


def _days(report: Report, trials: int, seed: int) -> None:
    for (name, profile), (title, scenario) in product(map(profile_of, ("logger", "gateway")), _SCENARIOS):
        mean = float(np.mean(np.exp(-boots(np.random.default_rng(0), scenario, (2_000_000,)))))
        energy_j, written_mib = _expected(profile, mean)
        for n in (2, 3, 6, 8, 20):
            rng = np.random.default_rng(seed)
            held = {"energy": 0, "written": 0}
            widths: list[float] = []
            for _ in range(trials):
                found = _figures(rng, profile, scenario, n)
                assert found.energy_j is not None
                assert found.written_mib is not None
                held["energy"] += found.energy_j.low <= energy_j <= found.energy_j.high
                held["written"] += found.written_mib.low <= written_mib <= found.written_mib.high
                widths.append((found.energy_j.high - found.energy_j.low) / energy_j)
            report.rows.append(
                {
                    "profile": name,
                    "boots": title,
                    "n": n,
                    "energy held %": Share(held["energy"], trials).percent,
                    "width %": round(100 * float(np.median(widths)), 2),
                    "written held %": Share(held["written"], trials).percent,
                }
            )


def _cuts(rng: np.random.Generator, n: int, rate: float) -> tuple[PowerCut, ...]:
    promised = rng.integers(*_PROMISED, size=n)
    lost = np.where(rng.random(n) < rate, rng.integers(1, promised + 1), 0)
    pairs = zip(promised.tolist(), lost.tolist(), strict=True)
    return tuple(PowerCut(promised, lost, {}, unmountable=False, mount_s=0.1) for promised, lost in pairs)


def _losses(report: Report, trials: int, seed: int) -> None:
    _, logger = profile_of("logger")
    for rate in (0.01, 0.1, 0.5, 0.9):
        # A cut that loses files loses 1 to all of those promised, each number as likely.
        truth = logger.power_cuts_per_year * rate * (float(np.mean(range(*_PROMISED))) + 1) / 2
        for n in (5, 10, 30, _MOST_CUTS):
            rng = np.random.default_rng(seed)
            files = share = 0
            widths: list[float] = []
            for _ in range(trials):
                one = FilesystemEvidence("ext4", "ext4", cuts=_cuts(rng, n, rate))
                losses = figures_of(one, logger, _evidence((one,), (_IDLE_W,))).losses
                assert losses is not None
                low, high = losses.cuts.interval()
                share += low <= rate <= high
                files += losses.per_year.low <= truth <= losses.per_year.high
                widths.append(losses.per_year.high - losses.per_year.low)
            report.rows.append(
                {
                    "cuts with losses %": 100 * rate,
                    "n": n,
                    "files held %": Share(files, trials).percent,
                    "width, files a year": round(float(np.median(widths)), 1),
                    "share held %": Share(share, trials).percent,
                }
            )


def _told_apart(report: Report, trials: int, seed: int) -> None:
    """Four filesystems, of which three are equal and the last takes more of everything."""
    name, logger = profile_of("logger")
    parts = parts_of(logger)
    for title, scenario in _SCENARIOS:
        for n, more in product((3, 8), (0.0, 0.1)):
            rng = np.random.default_rng(seed)
            false = found = 0
            for _ in range(trials):
                four = tuple(
                    _filesystem(rng, label, parts, scenario=scenario, n=n, more=more * (label == "d"))
                    for label in "abcd"
                )
                advice = advise(_evidence(four, (_IDLE_W,)), name, logger)
                told = [r for r in advice.relations if r.less is not None]
                equal = [r for r in told if not more or "d" not in (r.one, r.other)]
                false += bool(equal)
                found += len(advice.less(Axis.ENERGY, "d")) == len(four) - 1 and not equal
            report.rows.append(
                {
                    "one takes more %": 100 * more,
                    "boots": title,
                    "n": n,
                    "a false difference %": Share(false, trials).percent,
                    "all found %": Share(found, trials).percent if more else None,
                }
            )


def main() -> None:
    options = arguments(str(__doc__), trials=400).parse_args()
    settings: dict[str, Cell] = {"trials": options.trials, "seed": options.seed}
    for title, fill in (
        ("A day: how often the 95 % interval held", _days),
        ("Files lost: how often the 95 % interval held", _losses),
        ("Four filesystems, of which one takes more of everything", _told_apart),
    ):
        report = Report(title, settings)
        fill(report, options.trials, options.seed)
        report.show(as_json=options.json)


if __name__ == "__main__":
    main()
