"""What a bisection builds and boots: commits' kernels, and the figures of one boot."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class WantedKernel:
    """A commit's kernel: as it is, without another commit (reverted), or with forced alignment of functions."""

    commit: str
    without: str = ""
    aligned: bool = False


@dataclass(frozen=True, slots=True)
class BuiltKernel:
    """A kernel that can be booted: its build folder, and a digest of all that goes onto the card.

    Kernels with equal `image` are the same, byte for byte. `seconds` is how long the build took, 0 for one that was
    there.
    """

    folder: Path
    image: str
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class NoKernel:
    """Why a commit has no such kernel; the commit is at fault and not the machine that builds it."""

    why: str


@dataclass(frozen=True, slots=True)
class KernelBoot:
    """One boot of a kernel: figures by `<measurement> <metric>` in the metric's unit, None where one is lacking.

    `unfit` says why the kernel gave none although the lab is well; `booted` is false if it did not even boot.
    """

    run_id: str
    folder: Path
    seconds: float
    figures: dict[str, float | None]
    unfit: str | None = None
    booted: bool = True
