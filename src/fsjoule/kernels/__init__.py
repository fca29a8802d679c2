"""Kernels: their sources, their builds, and their parts on a card.

For: Debian's kernels, package files, build folders, and kernels built from a revision of a repository. docs/kernels.md
is the guide.
Called by: `images`, `lab`, `runs`, `ci`, `cli`.
May call: `filesystems`, `host`, `model`, `errors`.

Entry points: `take_kernels` (names become kernels, ready for cards), `build_kernel` (cross-build a revision),
`check_kernel` and `kernel_choices` (values of `--kernel`), `recipe.load_recipe` and `DEFAULT_RECIPE` (card recipes).
"""

from fsjoule.kernels.build import build_kernel, built_kernels, clean_kernels
from fsjoule.kernels.sources import TakenKernel, check_kernel, kernel_choices, kernel_labels, take_kernels

__all__ = [
    "TakenKernel",
    "build_kernel",
    "built_kernels",
    "check_kernel",
    "clean_kernels",
    "kernel_choices",
    "kernel_labels",
    "take_kernels",
]
