"""Measurements of several filesystems in the same boots, with known differences. No figure here was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache

import numpy as np
from results_factory import make_measurement

from fsjoule.model import (
    KIB,
    MIB,
    FioWorkload,
    IoPattern,
    Measurement,
    Planned,
    Projection,
    Provision,
    TimedKind,
    TimedWorkload,
    Value,
    Workload,
)

READ = FioWorkload(IoPattern.READ, 16 * KIB, 16 * MIB)
WRITE = FioWorkload(IoPattern.WRITE, 16 * KIB, 16 * MIB)
MKFS = TimedWorkload(TimedKind.MKFS)


def rivals(
    speeds: Mapping[str, float],
    *,
    workloads: Sequence[Workload] = (READ,),
    boots: int = 8,
    kernels: Sequence[str] = ("6.1",),
    noise: float = 0.01,
    boot_noise: float = 0.0,
    meter: bool = True,
    guest_time: bool = False,
    seed: int = 1,
) -> list[Measurement]:
    """Each boot measures all workloads on all filesystems; `speeds` are factors by filesystem, `boot_noise` is common.

    A name with a space is a filesystem and its mount option: `ext4 nobarrier`.
    """
    rng = np.random.default_rng(seed)
    made: list[Measurement] = []
    for boot in range(1, boots + 1):
        for kernel in kernels:
            common = rng.normal(0, boot_noise) if boot_noise else 0.0
            for name, speed in speeds.items():
                for workload in workloads:
                    faster = speed * float(np.exp(common + rng.normal(0, noise)))
                    filesystem, _, option = name.partition(" ")
                    one = _faster(_template(workload, meter=meter), faster)
                    made.append(
                        replace(
                            one,
                            number=len(made) + 1,
                            slug=f"{filesystem}-{workload.slug}",
                            repetition=boot,
                            boot=len(kernels) * (boot - 1) + kernels.index(kernel) + 1,
                            kernel=kernel,
                            series=replace(
                                one.series, filesystem=filesystem, mount_options=(option,) if option else ()
                            ),
                            projected=_card(faster) if guest_time and isinstance(workload, FioWorkload) else None,
                        )
                    )
    return made


def _card(speed: float) -> Projection:
    """A card with whose time and energy the whole has this speed."""
    return Projection("emmc", 0.1, 10.0, 40.0, 2.0, 0.5 / speed, 100.0 / speed, 20.0 * speed, 4.0 / speed)


@cache
def _template(workload: Workload, *, meter: bool) -> Measurement:
    return make_measurement(Planned(1, 1, "6.1", "ext4", workload, "quick", Provision.SCRATCH), meter=meter)[0]


def _faster(one: Measurement, speed: float) -> Measurement:
    """The measurement at another speed: all that takes time, or energy, takes less of it."""

    def less(value: Value | None) -> Value | None:
        return None if value is None else Value(value.value / speed, value.uncertainty)

    energy = one.energy
    return replace(
        one,
        duration_s=None if one.duration_s is None else one.duration_s / speed,
        throughput_mib_per_s=None if one.throughput_mib_per_s is None else one.throughput_mib_per_s * speed,
        energy=None if energy is None else replace(energy, gross_mj=Value(energy.gross_mj.value / speed, 1.0)),
        energy_mj_per_mib=less(one.energy_mj_per_mib),
    )
