"""Kernels: where they come from, how they are built, what is taken out of them."""

from fsjoule.kernels.build import BuildNotes, build_kernel, built_kernels, clean_kernels
from fsjoule.kernels.choices import check_kernel, kernel_choices, take_kernels
from fsjoule.kernels.recipe import DEFAULT_RECIPE
from fsjoule.kernels.sources import TakenKernel

__all__ = [
    "DEFAULT_RECIPE",
    "BuildNotes",
    "TakenKernel",
    "build_kernel",
    "built_kernels",
    "check_kernel",
    "clean_kernels",
    "kernel_choices",
    "take_kernels",
]
