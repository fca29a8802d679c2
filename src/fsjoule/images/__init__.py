"""Card images: kernels and Debian user land from recipes (`images/*.toml`), built once and cached."""

from fsjoule.images.build import (
    CardImage,
    build_card,
    card_space,
    check_card,
    check_kernel,
    emulator,
    kernel_choices,
    root_filesystem_choices,
    take_kernels,
)
from fsjoule.images.cache import CacheEntry, cached, clean
from fsjoule.images.kernelbuild import BuildNotes, build_kernel, built_kernels, clean_kernels
from fsjoule.images.kernels import TakenKernel
from fsjoule.images.recipe import DEFAULT_RECIPE

__all__ = [
    "DEFAULT_RECIPE",
    "BuildNotes",
    "CacheEntry",
    "CardImage",
    "TakenKernel",
    "build_card",
    "build_kernel",
    "built_kernels",
    "cached",
    "card_space",
    "check_card",
    "check_kernel",
    "clean",
    "clean_kernels",
    "emulator",
    "kernel_choices",
    "root_filesystem_choices",
    "take_kernels",
]
