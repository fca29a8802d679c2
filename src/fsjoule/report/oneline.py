"""A run's progress, line by line."""

from __future__ import annotations

from collections.abc import Iterable

from fsjoule.model import Measurement, Projection
from fsjoule.model.filesystem import file_name
from fsjoule.report.summary import outcome_text


def one_line(measurement: Measurement, *, kernel: bool = False, card: bool = False) -> str:
    """`ext4 randread-16k: 12.34 MiB/s, 1.21 W, 98.1 mJ/MiB (simulated)`, without missing figures.

    With `kernel`, its label comes first: `6.1 ext4 randread-16k: ...`. With `card`, the figures are those with the
    projected card, if there is one.
    """
    figures: list[str] = []
    projected = measurement.projected if card else None
    if measurement.outcome is not None:
        figures.append(outcome_text(measurement.outcome))
    elif measurement.crash is not None:
        figures.append(measurement.crash.text)
    elif measurement.held is not None:
        figures += _held(measurement)
    elif projected is not None:
        figures += _with_card(projected)
    elif measurement.throughput_mib_per_s is not None:
        figures.append(f"{measurement.throughput_mib_per_s:.2f} MiB/s")
    elif measurement.duration_s is not None:
        figures.append(f"{measurement.duration_s:.3f} s")
    if measurement.energy is not None and not (measurement.outcome or measurement.held or projected):
        figures.append(f"{measurement.energy.mean_power_w.value:.3f} W")
        per_mib = measurement.energy_mj_per_mib
        figures.append(f"{per_mib.value:.1f} mJ/MiB" if per_mib else f"{measurement.energy.gross_mj.value:.1f} mJ")
    name = measurement.series.filesystem_title
    what = f"{name} {measurement.slug.removeprefix(file_name(name) + '-')}"
    text = f"{measurement.kernel} {what}" if kernel else what
    text += f": {', '.join(figures) or 'no figure'}"
    if measurement.simulated:
        text += " (simulated)"
    if not measurement.valid:
        text += f" INVALID: {'; '.join(measurement.invalid_reasons)}"
    return text + "".join(f" [{note}]" for note in measurement.notes if note.startswith("no energy"))


def _held(m: Measurement) -> list[str]:
    figures = (
        [] if m.energy is None else [f"{m.energy.mean_power_w.value:.4f} ± {m.energy.mean_power_w.uncertainty:.4f} W"]
    )
    held = m.held
    figures += [f"{held.interrupts_per_s:.4g} interrupts/s"] if held and held.interrupts_per_s is not None else []
    return figures + ([f"resumed in {held.resume_s:.3f} s"] if held and held.resume_s is not None else [])


def _with_card(projected: Projection) -> list[str]:
    if projected.both_mib_per_s is None:
        figures = [f"{projected.both_s:.3f} s"]
        figures += [] if projected.both_mj is None else [f"{projected.both_mj:.1f} mJ"]
    else:
        figures = [f"{projected.both_mib_per_s:.2f} MiB/s"]
        figures += [] if projected.both_mj_per_mib is None else [f"{projected.both_mj_per_mib:.1f} mJ/MiB"]
    return [*figures[:-1], f"{figures[-1]} with its card"]


def plan_lines(left_out: Iterable[str], adjusted: Iterable[str]) -> list[str]:
    """A line per entry of the suite that a plan leaves out or adjusts."""
    return [*(f"left out: {reason}" for reason in left_out), *(f"adjusted: {what}" for what in adjusted)]
