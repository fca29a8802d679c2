"""The kernels that a bisection builds, and the figures of their boots."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class WantedKernel:
    """A commit's kernel: unchanged, without another commit (reverted), or with forced alignment of functions."""

    commit: str
    without: str = ""
    aligned: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether it is the commit as it is."""
        return not self.without and not self.aligned


@dataclass(frozen=True, slots=True)
class BuiltKernel:
    """A bootable kernel: its build folder, and a digest of its files on the card.

    Kernels with equal `image` are the same, byte for byte. `seconds` is the build time, 0 from the cache.
    """

    folder: Path
    image: str
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class NoKernel:
    """Why a commit has no such kernel. The commit is at fault, not the building machine."""

    why: str


@dataclass(frozen=True, slots=True)
class KernelBoot:
    """One boot of a kernel: figures by `<measurement> <metric>` in the metric's unit, None if absent.

    `unfit` is the reason why the kernel gave no figures in a healthy lab; `booted` is false if it did not even boot.
    `absent` says why a figure is lacking though its measurement went well: the kernel is not at fault. `board` tells
    boards of one kind apart; it is empty if they are taken as one. `steps` are the shares by which a clock may have
    rounded figures, where one did.
    """

    run_id: str
    folder: Path
    seconds: float
    figures: dict[str, float | None]
    unfit: str | None = None
    booted: bool = True
    absent: dict[str, str] = field(default_factory=dict[str, str])
    board: str = ""
    steps: dict[str, float] = field(default_factory=dict[str, float])
